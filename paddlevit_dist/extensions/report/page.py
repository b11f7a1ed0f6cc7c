"""Build the page's sections as plain data for ``report.html.j2``: what a reader looks for first comes first."""

import base64
import functools
import itertools
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...core.logging.record import RunLog, find_stamp
from ...core.registry.extension_points import COMPARE_RUNS
from ...core.runtime.errors import UserError
from ...core.runtime.files import atomic_file
from ...core.runtime.metrics_file import METRICS
from ...core.runtime.printing import agree, count, one_line
from ...core.runtime.version import __version__
from . import curves
from .parts import (
    Part,
    fold,
    format_cell,
    format_facts,
    format_time,
    lay_out_table,
    make_lines,
    make_note,
    make_table,
    name_run,
)
from .runs import ReportedRun, flatten, read_runs
from .still import draw_still
from .summary import make_summary
from .training_curves import make_curves

PAGE = "report.html"
_MOST_NAMES, _MOST_UNREADABLE, _MOST_BARS = 200, 10, 40
_LONG = 12  # letters that captions have in common
_LARGEST_GRID = 24  # classes of a matrix in HTML; larger ones are drawn on a canvas

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
        ("summary", "Result" if len(runs) == 1 else "Results", make_summary(runs, folder)),
        ("differences", "Differences", [*make_paired_differences(runs), *make_differences(runs)]),
        *make_figures(runs, macros.part),
        ("data", "Data", make_data(runs)),
        ("curves", "Curves", make_curves(runs)),
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
    jinja.filters.update(lay_out_table=lay_out_table, format_cell=format_cell)
    jinja.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return jinja


def make_data(runs: Sequence[ReportedRun]) -> list[Part]:
    """Show the content of each split, and notes about held-out, skipped, unreadable and identical samples."""
    rows, notes, bars = [], [], list[Part]()
    for run in runs:
        counts = {split: about["counts"] for split, about in run.data.items() if about.get("counts")}
        if counts and counts not in (part["counts"] for part in bars):  # runs often have the same data
            bars.append(_make_bars(run, runs, counts))
        for split, about in run.data.items():
            if split not in counts:
                rows.append([name_run(split, run, runs), one_line(about.get("holds"))])
            split_notes = about.get("notes")
            notes += [name_run(note, run, runs) for note in (split_notes if isinstance(split_notes, list) else ())]
        if run.unreadable:
            shown = "; ".join(run.unreadable[:_MOST_UNREADABLE])
            number = len(run.unreadable)
            replaced = f"{count(number, 'unreadable sample')} {agree(number, 'was', 'were')} replaced"
            text = f"{replaced} by others: {shown}"
            notes.append(name_run(text, run, runs))
    tables = [make_table("Splits", ["split", "contents"], rows)] if rows else []
    return [*tables, *bars, make_lines(dict.fromkeys(notes))] if tables or bars else []


def _make_bars(run: ReportedRun, runs: Sequence[ReportedRun], counts: dict[str, dict[str, int]]) -> Part:
    """Make bars of each class by split; of many classes, only of the most and the least frequent ones."""
    names = list(dict.fromkeys(name for own in counts.values() for name in own))
    note = ""
    if len(names) > _MOST_BARS:
        first = next(iter(counts.values()))
        names.sort(key=lambda name: -first.get(name, 0))
        note = f"The {_MOST_BARS // 2} most and the {_MOST_BARS // 2} least frequent of {len(names):,} classes."
        names = [*names[: _MOST_BARS // 2], *names[-_MOST_BARS // 2 :]]
    most = {split: max(own.values()) or 1 for split, own in counts.items()}
    rows = [
        (name, [(own.get(name, 0), own.get(name, 0) / most[split]) for split, own in counts.items()]) for name in names
    ]
    splits = [f"{split}: {run.data[split].get('samples', '?')}" for split in counts]
    title = name_run("How often each class occurs", run, runs)
    return {"kind": "bars", "title": title, "splits": splits, "rows": rows, "note": note, "counts": counts}


def make_figures(runs: Sequence[ReportedRun], render_part: Callable[[Part], str]) -> list[Section]:
    """Build a section with the figures of each run, by the macro ``render_part``; a line replaces a damaged figure."""
    sections: list[Section] = []
    for number, run in enumerate(runs):
        prepare: dict[str, Callable[[Part], Part]] = {**_PREPARE}
        prepare["chart"] = functools.partial(prepare_chart, classes=run.classes)
        for title_part, stored in run.figures.items():
            notices, rendered = list(stored.problems), []
            for figure in stored.figures:
                try:
                    part = prepare.get(figure["kind"], dict)(figure)
                    if figure.get("folded"):
                        part = fold(f"{figure['title']}: {figure['folded']}", part)
                    rendered.append((part["kind"], render_part(part)))
                except Exception as error:  # the file may contain anything; show the other figures
                    notices.append(one_line(f"a figure cannot be shown: {type(error).__name__}: {error}"))
            by_kind = itertools.groupby(rendered, key=lambda row: row[0])
            groups = [(name, [content for _, content in figures]) for name, figures in by_kind]
            facts = format_facts(stored.about, ("of", "time"))
            about = f"Of {stored.about.get('of', 'an evaluation')}{f' ({facts})' if facts else ''}."
            parts = [*map(make_note, [about, *notices]), {"kind": "figures", "groups": groups}]
            title = f"{run.name}: predictions" if len(runs) > 1 else "Predictions"
            split = stored.about.get("split")
            title += f" for {one_line(split)}" if split else ""
            if len(run.figures) > 1:
                title += ", at the end of training" if title_part == "Training" else ", evaluated afterwards"
            if sections:  # only the figures of the first run are unfolded
                parts = [fold(count(len(stored.figures), "figure"), *parts)]
            sections.append((f"figures-{number}-{title_part.lower()}", title, parts))
    return sections


def prepare_matrix(figure: Part) -> Part:
    """Add the counts of each row if the matrix is small enough for HTML."""
    size, cells = len(figure["names"]), iter(figure["cells"])
    if size > _LARGEST_GRID:
        return figure
    rows = [[0] * size for _ in range(size)]
    for row, column, number in zip(cells, cells, cells):
        rows[row][column] = number
    return {**figure, "rows": rows}


def prepare_gallery(figure: Part) -> Part:
    """Move what the last lines of all captions begin and end with to the note, such as the path of their file."""
    origins = [image["caption"][-1] for image in figure["images"]]
    first = _find_prefix(origins)
    names = [origin.removeprefix(first) for origin in origins]
    last = _find_prefix([name[::-1] for name in names])[::-1]
    names = [name.removesuffix(last) for name in names]
    if names == origins or not all(names):
        return figure
    images = [{**image, "caption": [*image["caption"][:-1], name]} for image, name in zip(figure["images"], names)]
    return {**figure, "images": images, "note": f"{figure['note']} Names in full: {first}…{last}.".strip()}


def _find_prefix(texts: Sequence[str]) -> str:
    common = os.path.commonprefix(texts)
    prefix = common[: max(common.rfind(" "), common.rfind("/")) + 1]
    return prefix if len(prefix) >= _LONG else ""


def prepare_chart(figure: Part, classes: Sequence[str] = ()) -> Part:
    """Make the chart of a figure that has lines; ``classes`` have their colors."""
    lines, colors = [], curves.color_lines([line["name"] for line in figure["lines"]], classes)
    for line in figure["lines"]:
        points = [(float(x), float(y)) for x, y in zip(line["x"], line["y"]) if x is not None and y is not None]
        style = "bar" if figure["shape"] == "bar" else "line"
        lines.append(curves.CurveLine(line["name"], points, colors[line["name"]], style))
    return curves.build_chart(figure["title"], lines, figure["x_label"], figure["y_label"], figure["note"])


def prepare_points(figure: Part) -> Part:
    """Add the image of the first view."""
    return {**figure, "still": draw_still(figure)}


# Computed for the macros of these kinds.
_PREPARE: dict[str, Callable[[Part], Part]] = {
    "matrix": prepare_matrix,
    "gallery": prepare_gallery,
    "points": prepare_points,
}


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
        return [make_note("The configurations are the same.")]
    return [make_table("Settings that differ", ["key", *(run.name for run in runs)], rows)]


def make_paired_differences(runs: Sequence[ReportedRun]) -> list[Part]:
    """Compare each run, or group of seeds, with the first, sample by sample; a line says why that cannot be done."""
    compare, names = COMPARE_RUNS.find(), dict[str, str]()
    for run in runs:
        folder, name = (run.folder.parent, run.group) if run.group else (run.folder, run.name)
        names.setdefault(str(folder), name)
    if compare is None or len(names) == 1:
        return []
    try:
        rows, lines = compare(names)
    except UserError as error:
        return [make_note(f"The scores are not compared sample by sample: {str(error).removeprefix('compare: ')}")]
    table = [make_table("Differences of the scores", [*rows[0][:-1], "finding"], rows[1:])] if rows else []
    return [*table, make_lines(lines)]


def _settings(runs: Sequence[ReportedRun]) -> list[Part]:
    return [
        fold(
            f"{run.name}: {len(run.settings)} settings",
            make_table("config.yaml", ["key", "value"], sorted(run.settings.items())),
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
            parts.append(make_table("Parameters not copied unchanged", columns, rows))
    return parts


def make_environment(runs: Sequence[ReportedRun]) -> list[Part]:
    """Make the tables of facts about machines and versions."""
    facts = {run.name: list(flatten(run.facts).items())[:_MOST_NAMES] for run in runs}
    return [fold(name, make_table("run.json", ["fact", "value"], rows)) for name, rows in facts.items() if rows]


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
        return [make_note("There are no interruptions, resumptions or superseded evaluations.")]
    return [make_table("Events", ["time", "run", "event", "details"], rows)]
