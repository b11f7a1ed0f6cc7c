"""The page: what is known about the runs, section by section, as the plain data that ``report.html.j2`` is filled with.

A section is a list of parts: dictionaries with the "kind" of a macro in ``parts.html.j2`` and what that shows.
"""

import base64
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .. import __version__
from ..logging.record import COMPARED, RunRecord
from ..runtime.files import atomic_file
from ..runtime.metrics_file import METRICS
from ..runtime.printing import one_line
from . import curves
from .runs import ReportedRun, find_measured, flat, get_interval, is_number, read_runs
from .settings import ReportSettings

PAGE = "report.html"
_TITLES = {
    "loss": "Loss",
    "learning_rate": "Learning rate",
    "gradient_norm": "Gradient norm",
    "samples_per_second": "Throughput (samples per second)",
    "data_wait_fraction": "Data wait (share of the time)",
    "skipped_updates": "Updates skipped so far",
    "memory_mib": "Memory (MiB)",
}
_AFTER_METRICS = ("learning_rate", "gradient_norm", "samples_per_second", "data_wait_fraction")
_MOST_CURVES = 14  # more are folded away
_COUNTS = (" count", "samples", "points")  # ends of names that count, and score nothing
_MOST_NAMES, _MOST_UNREADABLE = 200, 10
_LARGEST_GRID = 24  # classes: a matrix of more is drawn on a canvas

Part = dict[str, Any]
Section = tuple[str, str, list[Part]]  # id, title, content


def write_page(folders: Sequence[Path], target: Path) -> Path:
    """Write the report of the runs in these folders; returns ``target``.

    Raises:
        UserError: one of them is no run's folder, or the file cannot be written.
        OSError: its folder cannot be created.
    """
    page = render(read_runs(folders), target.parent)
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(target) as file:
        file.write(page.encode("utf-8", "backslashreplace"))
    return target


def write_last_page(config: ReportSettings, folder: Path, began: float) -> None:
    """Write the report of a run that did not come to its end, if REPORT; a failure goes to its log.

    Args:
        began: when this start of it did, in seconds since 1970: one that has recorded nothing leaves what is there.
    """
    file = folder / METRICS
    try:
        if config.REPORT and file.is_file() and file.stat().st_mtime >= began:
            write_page([folder], folder / PAGE)
    except Exception as error:  # what the run itself has failed of is what counts
        RunRecord(folder, writes=True).log(f"no report was written: {type(error).__name__}: {error}")


def render(runs: Sequence[ReportedRun], folder: Path = Path()) -> str:
    """The whole page, which is to be in this folder."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # a run without it loses its report alone
    from markupsafe import Markup

    here = Path(__file__).parent
    pages = Environment(
        loader=FileSystemLoader(here), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    pages.globals["file"] = lambda name: Markup((here / name).read_text(encoding="utf-8"))
    pages.filters["base64"] = lambda content: base64.b64encode(content).decode()
    pages.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    macros: Any = pages.get_template("parts.html.j2").module
    trained = any(run.metrics.training for run in runs)
    sections: list[Section] = [
        ("summary", "Summary", [*_summary(runs), _comparisons(runs, folder)]),
        ("data", "Data", _data(runs)),
        ("curves", "Curves", _curves(runs)),
        *_figures(runs, macros.part),
        ("differences", "Differences", _differences(runs)),
        ("weights", "Weights it started from" if trained else "Weights it evaluated", _weights(runs)),
        ("configuration", "Configuration", _settings(runs)),
        ("environment", "Environment", _environment(runs)),
        ("events", "Events", _events(runs)),
    ]
    return pages.get_template("report.html.j2").render(
        title="Report: " + ", ".join(run.name for run in runs),
        sections=[section for section in sections if section[2]],
        now=_clock(time.time()),
        version=__version__,
    )


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str = "") -> Part:
    return {"kind": "table", "title": title, "columns": columns, "rows": rows, "note": note}


def _note(said: str) -> Part:
    return {"kind": "note", "text": said}


def _lines(lines: Iterable[str]) -> Part:
    return {"kind": "lines", "lines": [*lines]}


def _folded(summary: str, *parts: Part) -> Part:
    return {"kind": "folded", "summary": summary, "parts": parts}


# ---- sections ------------------------------------------------------------------------------------------------


def _summary(runs: Sequence[ReportedRun]) -> list[Part]:
    columns = ["score", "state", "time", "model", "data", "device"]  # a phone shows the first ones
    rows: list[list[Any]] = []
    notices: list[str] = []
    for run in runs:
        machine = run.facts.get("machine")
        processor = machine.get("processor") if isinstance(machine, dict) else None
        device = f"{run.facts.get('processes', '?')} x {run.facts.get('device', '?')}"
        device += f", {one_line(processor)}" if processor else ""
        model, data = run.settings.get("MODEL.NAME"), run.settings.get("DATA.DATASET")
        rows.append([_best(run), _state(run), _duration(run), model, data, device])
        notices += [_name_run(line, run, runs) for line in run.notices]
    if len(runs) > 1:
        columns, rows = ["run", *columns], [[run.name, *row] for run, row in zip(runs, rows)]
    return [*_groups(runs), _table("Runs" if len(runs) > 1 else "Run", columns, rows), _lines(notices)]


def _groups(runs: Sequence[ReportedRun]) -> list[Part]:
    """Summarize the best scores of each group of seeds."""
    best: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        if run.group and run.metrics.best is not None:
            best.setdefault((run.group, run.metrics.best["name"]), []).append(run.metrics.best["value"])
    rows = []
    for (group, name), scores in best.items():
        spread = statistics.stdev(scores) if len(scores) > 1 else None
        numbers = (statistics.fmean(scores), spread, min(scores), max(scores))
        rows.append([group, len(scores), name, *(None if value is None else f"{value:.4g}" for value in numbers)])
    columns = ["group", "seeds", "best", "mean", "standard deviation", "minimum", "maximum"]
    going = [run.name for run in runs if run.group and not _state(run).startswith(("complete", "ended early"))]
    note = f"Not complete, and counted with what they have reached so far: {', '.join(going)}." if going else ""
    return [_table("Groups of seeds", columns, rows, note)] if rows else []


def _comparisons(runs: Sequence[ReportedRun], folder: Path) -> Part:
    """Where the runs were compared with others."""
    compared = [run for run in runs if (run.folder / COMPARED).is_file()]
    links = [quote(os.fsencode(os.path.relpath(run.folder / COMPARED, folder))) for run in compared]
    names = [f"{run.name}/{COMPARED}" for run in compared]
    return {"kind": "comparisons", "links": [*zip(links, names)]}


def _name_run(line: Any, run: ReportedRun, runs: Sequence[ReportedRun]) -> str:
    """A line that says which run it is about, where there are several."""
    return one_line(f"{run.name}: {line}" if len(runs) > 1 else line)


def _data(runs: Sequence[ReportedRun]) -> list[Part]:
    """List what each split holds, and what was found in it: held out, left out, unreadable, identical."""
    rows, notes = [], []
    for run in runs:
        for split, about in run.data.items():
            rows.append([_name_run(split, run, runs), one_line(about.get("holds"))])
            found = about.get("notes")
            notes += [_name_run(note, run, runs) for note in (found if isinstance(found, list) else ())]
        if run.unreadable:
            shown = "; ".join(run.unreadable[:_MOST_UNREADABLE])
            said = f"{len(run.unreadable):,} unreadable, another took the place of each: {shown}"
            notes.append(_name_run(said, run, runs))
    return [_table("Splits", ["split", "holds"], rows), _lines(dict.fromkeys(notes))] if rows else []


def _state(run: ReportedRun) -> str:
    last = run.metrics.last or {}
    if not run.metrics.training and last.get("kind") != "interruption":
        return "evaluated" if run.metrics.evaluations else "nothing recorded yet"
    epochs, epoch = run.settings.get("TRAIN.NUM_EPOCHS", "?"), last.get("epoch", "?")
    if last.get("kind") == "interruption":
        return one_line(f"interrupted after epoch {epoch} of {epochs}: {last.get('reason', '')}")
    if last.get("kind") == "ended_early":
        return one_line(f"ended early after epoch {epoch} of {epochs}")
    if last.get("kind") == "evaluation" and str(epoch) in (epochs, run.settings.get("TRAIN.STOP_AFTER_EPOCH")):
        return f"complete, {epochs} epochs" if str(epoch) == epochs else f"stopped after epoch {epoch} of {epochs}"
    if run.is_running is False:
        return one_line(f"killed in epoch {epoch} of {epochs}: it ended without a message")
    return one_line(f"in epoch {epoch} of {epochs}; last entry {_clock(last.get('time'))}")


def _clock(value: Any) -> str:
    is_time = is_number(value) and 0 < value < 1e11
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value)) if is_time else "?"


def _format_facts(values: dict[str, Any], without: Sequence[str]) -> str:
    """Names and values that are not empty, separated by commas."""
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in values.items()
        if name not in without and value not in (None, {}, [])
    )


def _best(run: ReportedRun) -> str | None:
    """The best evaluation; where none is known, what the last has found, which is then told."""
    if run.metrics.best is not None and run.metrics.training:
        best = run.metrics.best
        return one_line(f"{best['name']} {best['value']:.4g}{_ends(best)}, epoch {best['epoch']}")
    values, intervals = {name: points[-1][1] for name, points in run.metrics.evaluation.items()}, {}
    if not values and run.metrics.evaluations:
        values = dict(find_measured(run.metrics.evaluations[-1]))
        intervals = {name: get_interval(run.metrics.evaluations[-1], name) for name in values}
    scores = {name: value for name, value in values.items() if not name.endswith(_COUNTS)}
    shown = [f"{name} {value:.4g}{_ends(intervals.get(name, {}))}" for name, value in scores.items()][:3]
    return (", ".join(shown) + (" (the last)" if run.metrics.training else "")) if shown else None


def _ends(found: Mapping[str, Any]) -> str:
    """The interval of ``runs.get_interval`` in words that follow its value."""
    if "interval" not in found:
        return ""
    low, high = found["interval"]
    return f" [{low:.4g}, {high:.4g}] ({found['percent']:g} %)"


def _duration(run: ReportedRun) -> str | None:
    if run.seconds is None:
        return None
    minutes, seconds = divmod(round(run.seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {seconds} s"


def _figures(runs: Sequence[ReportedRun], made_of: Callable[[Part], str]) -> list[Section]:
    """The figures of each run; of one that is damaged there is a line.

    Args:
        made_of: the macro that makes a part.
    """
    sections: list[Section] = []
    for number, run in enumerate(runs):
        for kind, stored in run.figures.items():
            notices, made = list(stored.problems), []
            for figure in stored.figures:
                try:
                    made.append((figure["kind"], made_of(_FILLED.get(figure["kind"], dict)(figure))))
                except Exception as error:  # the file may hold anything; the other figures are still worth showing
                    notices.append(one_line(f"a figure cannot be shown: {type(error).__name__}: {error}"))
            alike = itertools.groupby(made, key=lambda one: one[0])
            groups = [(name, [content for _, content in ones]) for name, ones in alike]
            said = _format_facts(stored.about, ("of", "time"))
            about = f"Of {stored.about.get('of', 'an evaluation')}{f' ({said})' if said else ''}."
            parts = [*map(_note, [about, *notices]), {"kind": "figures", "groups": groups}]
            title = f"{run.name}: predictions" if len(runs) > 1 else "Predictions"
            if len(run.figures) > 1:
                title += f" ({kind.lower()})"
            if sections:  # those of the first run are what most readers want to see
                parts = [_folded(f"{len(stored.figures)} figures", *parts)]
            sections.append((f"figures-{number}-{kind.lower()}", title, parts))
    return sections


def _matrix(figure: Part) -> Part:
    """With the counts of each row, if that can be read."""
    size, cells = len(figure["names"]), iter(figure["cells"])
    if size > _LARGEST_GRID:
        return figure
    rows = [[0] * size for _ in range(size)]
    for row, column, count in zip(cells, cells, cells):
        rows[row][column] = count
    return {**figure, "rows": rows}


def _chart(figure: Part) -> Part:
    lines = []
    for number, line in enumerate(figure["lines"]):
        points = [(float(x), float(y)) for x, y in zip(line["x"], line["y"]) if x is not None and y is not None]
        style = "bar" if figure["shape"] == "bar" else "line"
        lines.append(curves.CurveLine(line["name"], points, number, style))
    return curves.chart(figure["title"], lines, figure["x_label"], figure["y_label"], figure["note"])


_FILLED: dict[str, Callable[[Part], Part]] = {"matrix": _matrix, "chart": _chart}  # what macros need beside the figure


def _curves(runs: Sequence[ReportedRun]) -> list[Part]:
    series = [(run.name, run.metrics.training, run.metrics.evaluation) for run in runs]
    names: dict[str, None] = {}
    for _, training, evaluation in series:
        names.update(dict.fromkeys([*evaluation, *training]))
    shown = [name for name in names if not _is_dull(name, series)]
    shown.sort(key=_order)
    groups = [run.group for run in runs]
    charts = [curves.chart(_TITLES.get(name, name), curves.of_events(series, name, groups), "update") for name in shown]
    if not charts:
        return []
    parts: list[Part] = [{"kind": "charts", "charts": charts[:_MOST_CURVES]}]
    constant = {name: _constant(name, series) for name in names if not name.endswith(_COUNTS)}
    told = [f"{_TITLES.get(name, name)} {value:g}" for name, value in constant.items() if value]  # 0 says nothing
    if told:
        parts.append(_note(f"Always the same: {', '.join(told)}."))
    more = charts[_MOST_CURVES:]
    return [*parts, _folded(f"{len(more)} more curves", {"kind": "charts", "charts": more})] if more else parts


def _is_dull(name: str, series: Sequence[Any]) -> bool:
    """Whether a curve would say nothing: numbers of samples, and what never changes."""
    return name.endswith(_COUNTS) or _constant(name, series) is not None


def _constant(name: str, series: Sequence[Any]) -> float | None:
    """The value that a quantity has at all of several points; None: it changes, or has one point in each run."""
    lines = [points.get(name, ()) for _, *kinds in series for points in kinds]
    values = {y for points in lines for _, y in points}
    return values.pop() if len(values) == 1 and any(len(points) > 1 for points in lines) else None


def _order(name: str) -> tuple[int, int]:
    if name == "loss":
        return 0, 0
    if name in _AFTER_METRICS:
        return 2, _AFTER_METRICS.index(name)
    if "memory" in name or name == "skipped_updates":
        return 3, 0
    # Metrics of single classes, such as "IoU wall", come after those of all.
    return (4, 0) if " " in name and name.split()[0] in ("IoU", "AP", "AP50", "AP25") else (1, 0)


def _differences(runs: Sequence[ReportedRun]) -> list[Part]:
    if len(runs) == 1:
        return []
    keys = sorted({key for run in runs for key in run.settings})
    rows = []
    for key in keys:
        values = [run.settings.get(key) for run in runs]
        if len(set(values)) > 1 and key != "SAVE":
            rows.append([key, *("(not set)" if value is None else value for value in values)])
    if not rows:
        return [_note("The configurations are the same.")]
    return [_table("Settings that differ", ["key", *(run.name for run in runs)], rows)]


def _settings(runs: Sequence[ReportedRun]) -> list[Part]:
    return [
        _folded(
            f"{run.name}: {len(run.settings)} settings",
            _table("config.yaml", ["key", "value"], sorted(run.settings.items())),
        )
        for run in runs
        if run.settings
    ]


def _weights(runs: Sequence[ReportedRun]) -> list[Part]:
    parts: list[Part] = []
    for run in runs:
        report = run.load_report
        if report is None:
            continue
        rows = []
        for kind in ("resized", "reinitialized", "missing", "unexpected"):
            entries = report.get(kind)
            for entry in (entries if isinstance(entries, list) else [])[:_MOST_NAMES]:
                if isinstance(entry, dict):
                    shapes = (entry.get("source_shape"), entry.get("model_shape"))
                    rows.append(
                        [one_line(entry.get("name")), kind, *(None if s is None else one_line(s) for s in shapes)]
                    )
        loaded, fraction = report.get("loaded"), report.get("loaded_fraction")
        share = f"{100 * fraction:.1f} %" if isinstance(fraction, (int, float)) else "?"
        said = f"{report.get('source')}: {report.get('origin')}; {len(loaded) if isinstance(loaded, list) else '?'} "
        said += f"parameters and buffers loaded ({share})"
        notices = report.get("notices")
        lines = [one_line(line) for line in (said, *(notices if isinstance(notices, list) else []))]
        parts.append({"kind": "weights", "run": run.name if len(runs) > 1 else "", "lines": lines})
        if rows:
            columns = ["parameter", "what became of it", "shape in the file", "shape in the model"]
            parts.append(_table("Not simply copied", columns, rows))
    return parts


def _environment(runs: Sequence[ReportedRun]) -> list[Part]:
    facts = {run.name: list(flat(run.facts).items())[:_MOST_NAMES] for run in runs}
    return [_folded(name, _table("run.json", ["fact", "value"], rows)) for name, rows in facts.items() if rows]


def _events(runs: Sequence[ReportedRun]) -> list[Part]:
    rows = []
    for run in runs:
        for event in [*run.metrics.events, *run.metrics.evaluations]:
            kind = f"superseded {event['kind']}" if event.get("superseded") else event["kind"]
            told = _format_facts(event, ("kind", "time", "superseded", "stages", "operators", "interval"))
            rows.append([_clock(event.get("time")), run.name, one_line(kind), one_line(told)[:1000]])
    rows.sort(key=lambda row: row[0])
    if not rows:
        return [_note("No interruption, resumption or superseded evaluation.")]
    return [_table("What happened", ["time", "run", "event", "details"], rows)]
