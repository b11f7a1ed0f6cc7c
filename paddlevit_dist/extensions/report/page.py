"""Build the page's sections as plain data for ``report.html.j2``.

A section is a list of parts: dictionaries with the "kind" of a macro in ``parts.html.j2`` and its content.
"""

import base64
import functools
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ... import __version__
from ...core.logging.record import COMPARED, RunLog, find_stamp
from ...core.runtime.files import atomic_file
from ...core.runtime.metrics_file import METRICS, get_interval, is_number
from ...core.runtime.printing import one_line
from . import curves
from .runs import ReportedRun, find_measured, flatten, read_runs

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
_MOST_CURVES = 14  # further curves are folded
_CLASS_SCORES = ("IoU", "AP", "AP50", "AP25", "threshold")  # before the name of a class
_COUNTS = (" count", "samples", "points")  # suffixes of quantities that are counts, not scores
_MOST_NAMES, _MOST_UNREADABLE = 200, 10
_LARGEST_GRID = 24  # classes of a matrix in HTML; larger ones are drawn on a canvas

Part = dict[str, Any]
Section = tuple[str, str, list[Part]]  # id, title, content


def write_page(folders: Sequence[Path], target: Path) -> Path:
    """Write the report of the runs in these folders, and return ``target``.

    Raises:
        UserError: if a folder does not contain a run, or the file cannot be written.
        OSError: if the target's folder cannot be created.
    """
    page = render(read_runs(folders), target.parent)
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(target) as file:
        file.write(page.encode("utf-8", "backslashreplace"))
    return target


def write_last_page(folder: Path, stamp: int) -> None:
    """Write the report of a run that has failed; an error goes to the run's log.

    ``stamp``: ``find_stamp`` of the metrics before; if the run wrote none, the existing report is kept.
    """
    try:
        if find_stamp(folder / METRICS) not in (0, stamp):
            write_page([folder], folder / PAGE)
    except Exception as error:  # do not hide the error of the run itself
        RunLog(folder, writes=True).log(f"no report was written: {type(error).__name__}: {error}")


def render(runs: Sequence[ReportedRun], folder: Path = Path()) -> str:
    """Render the page for a file in this folder."""
    import jinja2  # without it, a run only lacks its report

    jinja = open_templates(jinja2.Environment)
    macros: Any = jinja.get_template("parts.html.j2").module
    trained = any(run.metrics.training for run in runs)
    sections: list[Section] = [
        ("summary", "Summary", [*make_summary(runs), _comparisons(runs, folder)]),
        ("data", "Data", make_data(runs)),
        ("curves", "Curves", make_curves(runs)),
        *make_figures(runs, macros.part),
        ("differences", "Differences", make_differences(runs)),
        ("weights", "Initial weights" if trained else "Evaluated weights", make_weights(runs)),
        ("configuration", "Configuration", _settings(runs)),
        ("environment", "Environment", make_environment(runs)),
        ("events", "Events", make_events(runs)),
    ]
    return jinja.get_template("report.html.j2").render(
        title="Report: " + ", ".join(run.name for run in runs),
        sections=[section for section in sections if section[2]],
        now=format_time(time.time()),
        version=__version__,
    )


@functools.cache
def open_templates(environment: Callable[..., Any]) -> Any:
    """Open the templates, which are compiled once for all pages of a process."""
    from jinja2 import FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    here = Path(__file__).parent
    jinja = environment(
        loader=FileSystemLoader(here), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    jinja.globals["file"] = lambda name: Markup((here / name).read_text(encoding="utf-8"))
    jinja.filters["base64"] = lambda content: base64.b64encode(content).decode()
    jinja.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return jinja


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str = "") -> Part:
    return {"kind": "table", "title": title, "columns": columns, "rows": rows, "note": note}


def _note(text: str) -> Part:
    return {"kind": "note", "text": text}


def _lines(lines: Iterable[str]) -> Part:
    return {"kind": "lines", "lines": [*lines]}


def _folded(summary: str, *parts: Part) -> Part:
    return {"kind": "folded", "summary": summary, "parts": parts}


def make_summary(runs: Sequence[ReportedRun]) -> list[Part]:
    """Make the table of runs, with notices."""
    columns = ["score", "state", "time", "model", "data", "device"]  # phones show only the first columns
    rows: list[list[Any]] = []
    notices: list[str] = []
    for run in runs:
        machine = run.facts.get("machine")
        processor = machine.get("processor") if isinstance(machine, dict) else None
        device = f"{run.facts.get('processes', '?')} x {run.facts.get('device', '?')}"
        device += f", {one_line(processor)}" if processor else ""
        model, data = run.settings.get("MODEL.NAME"), run.settings.get("DATA.DATASET")
        rows.append([format_best(run), format_state(run), format_duration(run), model, data, device])
        notices += [_name_run(line, run, runs) for line in run.notices]
    if len(runs) > 1:
        columns, rows = ["run", *columns], [[each.name, *row] for each, row in zip(runs, rows)]
    return [*make_groups(runs), _table("Runs" if len(runs) > 1 else "Run", columns, rows), _lines(notices)]


def make_groups(runs: Sequence[ReportedRun]) -> list[Part]:
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
    unfinished = [
        each.name for each in runs if each.group and not format_state(each).startswith(("complete", "ended early"))
    ]
    note = f"Not complete, counted with their best score so far: {', '.join(unfinished)}." if unfinished else ""
    return [_table("Groups of seeds", columns, rows, note)] if rows else []


def _comparisons(runs: Sequence[ReportedRun], folder: Path) -> Part:
    """Link to the comparisons of the runs with others."""
    compared = [run for run in runs if (run.folder / COMPARED).is_file()]
    links = [quote(os.fsencode(os.path.relpath(run.folder / COMPARED, folder))) for run in compared]
    names = [f"{run.name}/{COMPARED}" for run in compared]
    return {"kind": "comparisons", "links": [*zip(links, names)]}


def _name_run(line: object, run: ReportedRun, runs: Sequence[ReportedRun]) -> str:
    """Prefix a line with the name of its run if there are several runs."""
    return one_line(f"{run.name}: {line}" if len(runs) > 1 else line)


def make_data(runs: Sequence[ReportedRun]) -> list[Part]:
    """List the content of each split, and notes about held-out, skipped, unreadable and identical samples."""
    rows, notes = [], []
    for run in runs:
        for split, about in run.data.items():
            rows.append([_name_run(split, run, runs), one_line(about.get("holds"))])
            split_notes = about.get("notes")
            notes += [_name_run(note, run, runs) for note in (split_notes if isinstance(split_notes, list) else ())]
        if run.unreadable:
            shown = "; ".join(run.unreadable[:_MOST_UNREADABLE])
            text = f"{len(run.unreadable):,} unreadable samples were replaced by others: {shown}"
            notes.append(_name_run(text, run, runs))
    return [_table("Splits", ["split", "contents"], rows), _lines(dict.fromkeys(notes))] if rows else []


def format_state(run: ReportedRun) -> str:
    """Format how far a run is."""
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
    if run.is_running is False:  # None: unknown
        return one_line(f"killed in epoch {epoch} of {epochs}, without a message")
    return one_line(f"in epoch {epoch} of {epochs}; last entry {format_time(last.get('time'))}")


def format_time(value: Any) -> str:
    """Format a time in seconds since 1970; "?" if it is none."""
    is_time = is_number(value) and 0 < value < 1e11
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value)) if is_time else "?"


def format_facts(values: dict[str, Any], skipped: Sequence[str]) -> str:
    """Format names and values that are not empty, separated by commas."""
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in values.items()
        if name not in skipped and value not in (None, {}, [])
    )


def format_best(run: ReportedRun) -> str | None:
    """Format the best evaluation, or the last one, marked as such, if the best is not known."""
    if run.metrics.best is not None and run.metrics.training:
        best = run.metrics.best
        return one_line(f"{best['name']} {best['value']:.4g}{_format_interval(best)}, epoch {best['epoch']}")
    values, intervals = {name: points[-1][1] for name, points in run.metrics.evaluation.items()}, {}
    if not values and run.metrics.evaluations:
        values = dict(find_measured(run.metrics.evaluations[-1]))
        intervals = {name: get_interval(run.metrics.evaluations[-1], name) for name in values}
    scores = {name: value for name, value in values.items() if not name.endswith(_COUNTS)}
    shown = [f"{name} {value:.4g}{_format_interval(intervals.get(name, {}))}" for name, value in scores.items()][:3]
    return (", ".join(shown) + (" (the last)" if run.metrics.training else "")) if shown else None


def _format_interval(values: Mapping[str, Any]) -> str:
    """Format the interval of ``get_interval``, to follow its value."""
    if "interval" not in values:
        return ""
    low, high = values["interval"]
    return f" [{low:.4g}, {high:.4g}] ({values['percent']:g} %)"


def format_duration(run: ReportedRun) -> str | None:
    """Format how long a run took, and in how many sessions; None if that is unknown."""
    if run.seconds is None:
        return None
    minutes, seconds = divmod(round(run.seconds), 60)
    duration = f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {seconds} s"
    number = len(run.metrics.sessions)
    return f"{duration} in {number} sessions" if number > 1 else duration


def make_figures(runs: Sequence[ReportedRun], render_part: Callable[[Part], str]) -> list[Section]:
    """Build a section with the figures of each run, by the macro ``render_part``; a line replaces a damaged figure."""
    sections: list[Section] = []
    for number, run in enumerate(runs):
        for title_part, stored in run.figures.items():
            notices, rendered = list(stored.problems), []
            for figure in stored.figures:
                try:
                    rendered.append((figure["kind"], render_part(_PREPARE.get(figure["kind"], dict)(figure))))
                except Exception as error:  # the file may contain anything; show the other figures
                    notices.append(one_line(f"a figure cannot be shown: {type(error).__name__}: {error}"))
            by_kind = itertools.groupby(rendered, key=lambda row: row[0])
            groups = [(name, [content for _, content in figures]) for name, figures in by_kind]
            facts = format_facts(stored.about, ("of", "time"))
            about = f"Of {stored.about.get('of', 'an evaluation')}{f' ({facts})' if facts else ''}."
            parts = [*map(_note, [about, *notices]), {"kind": "figures", "groups": groups}]
            title = f"{run.name}: predictions" if len(runs) > 1 else "Predictions"
            if len(run.figures) > 1:
                title += f" ({title_part.lower()})"
            if sections:  # only the figures of the first run are unfolded
                parts = [_folded(f"{len(stored.figures)} figures", *parts)]
            sections.append((f"figures-{number}-{title_part.lower()}", title, parts))
    return sections


def prepare_matrix(figure: Part) -> Part:
    """Add the counts of each row if the matrix is small enough for HTML."""
    size, cells = len(figure["names"]), iter(figure["cells"])
    if size > _LARGEST_GRID:
        return figure
    rows = [[0] * size for _ in range(size)]
    for row, column, count in zip(cells, cells, cells):
        rows[row][column] = count
    return {**figure, "rows": rows}


def prepare_chart(figure: Part) -> Part:
    """Make the chart of a figure that has lines."""
    lines = []
    for number, line in enumerate(figure["lines"]):
        points = [(float(x), float(y)) for x, y in zip(line["x"], line["y"]) if x is not None and y is not None]
        style = "bar" if figure["shape"] == "bar" else "line"
        lines.append(curves.CurveLine(line["name"], points, number, style))
    return curves.build_chart(figure["title"], lines, figure["x_label"], figure["y_label"], figure["note"])


# Computed for the macros of these kinds.
_PREPARE: dict[str, Callable[[Part], Part]] = {"matrix": prepare_matrix, "chart": prepare_chart}


def make_curves(runs: Sequence[ReportedRun]) -> list[Part]:
    """Make the charts of losses and scores."""
    series = [(run.name, run.metrics.training, run.metrics.evaluation) for run in runs]
    names: dict[str, None] = {}
    for _, training, evaluation in series:
        names.update(dict.fromkeys([*evaluation, *training]))
    shown = [name for name in names if not name.endswith(_COUNTS) and _find_constant(name, series) is None]
    shown.sort(key=_curve_sort_key)
    groups = [run.group for run in runs]
    charts = [
        curves.build_chart(_TITLES.get(name, name), curves.build_lines(series, name, groups), "update")
        for name in shown
    ]
    if not charts:
        return []
    parts: list[Part] = [{"kind": "charts", "charts": charts[:_MOST_CURVES]}]
    constants = {name: _find_constant(name, series) for name in names if not name.endswith(_COUNTS)}
    texts = [f"{_TITLES.get(name, name)} {value:g}" for name, value in constants.items() if value]  # 0 is uninformative
    if texts:
        parts.append(_note(f"Constant: {', '.join(texts)}."))
    more = charts[_MOST_CURVES:]
    return [*parts, _folded(f"{len(more)} more curves", {"kind": "charts", "charts": more})] if more else parts


def _find_constant(name: str, series: Sequence[Any]) -> float | None:
    """Return the value of a constant quantity; None if it changes, or each run has only one point."""
    lines = [points.get(name, ()) for _, *kinds in series for points in kinds]
    values = {y for points in lines for _, y in points}
    return values.pop() if len(values) == 1 and any(len(points) > 1 for points in lines) else None


def _curve_sort_key(name: str) -> tuple[int, int]:
    if name == "loss":
        return 0, 0
    if name in _AFTER_METRICS:
        return 2, _AFTER_METRICS.index(name)
    if "memory" in name or name == "skipped_updates":
        return 3, 0
    # Metrics of single classes, such as "IoU wall", follow the metrics of all classes.
    return (4, 0) if " " in name and name.split()[0] in _CLASS_SCORES else (1, 0)


def make_differences(runs: Sequence[ReportedRun]) -> list[Part]:
    """Make the table of settings that differ between runs."""
    if len(runs) == 1:
        return []
    keys = sorted({name for run in runs for name in run.settings})
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


def make_weights(runs: Sequence[ReportedRun]) -> list[Part]:
    """Make the tables of weights that were loaded."""
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
        text = f"{report.get('source')}: {report.get('origin')}; {len(loaded) if isinstance(loaded, list) else '?'} "
        text += f"parameters and buffers loaded ({share})"
        notices = report.get("notices")
        lines = [one_line(line) for line in (text, *(notices if isinstance(notices, list) else []))]
        parts.append({"kind": "weights", "run": run.name if len(runs) > 1 else "", "lines": lines})
        if rows:
            columns = ["parameter", "status", "shape in the file", "shape in the model"]
            parts.append(_table("Parameters not copied unchanged", columns, rows))
    return parts


def make_environment(runs: Sequence[ReportedRun]) -> list[Part]:
    """Make the tables of facts about machines and versions."""
    facts = {run.name: list(flatten(run.facts).items())[:_MOST_NAMES] for run in runs}
    return [_folded(name, _table("run.json", ["fact", "value"], rows)) for name, rows in facts.items() if rows]


def make_events(runs: Sequence[ReportedRun]) -> list[Part]:
    """Make the table of events, by time."""
    rows = []
    for run in runs:
        for event in [*run.metrics.events, *run.metrics.evaluations]:
            kind = f"superseded {event['kind']}" if event.get("superseded") else event["kind"]
            details = format_facts(event, ("kind", "time", "superseded", "stages", "operators", "interval"))
            rows.append([format_time(event.get("time")), run.name, one_line(kind), one_line(details)[:1000]])
    rows.sort(key=lambda row: row[0])
    if not rows:
        return [_note("There are no interruptions, resumptions or superseded evaluations.")]
    return [_table("Events", ["time", "run", "event", "details"], rows)]
