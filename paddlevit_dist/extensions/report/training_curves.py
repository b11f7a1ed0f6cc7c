"""Make the charts of losses and scores: one for each quantity, with all its classes."""

from collections.abc import Sequence
from typing import Any

from . import curves
from .parts import Part, fold, make_note
from .runs import COUNTS, ReportedRun

_TITLES = {
    "loss": "Loss",
    "learning_rate": "Learning rate",
    "gradient_norm": "Gradient norm",
    "samples_per_second": "Throughput (samples per second)",
    "data_wait_fraction": "Data wait (share of the time)",
    "skipped_updates": "Updates skipped so far",
    "memory_mib": "Memory (MiB)",
}
_AFTER_METRICS = ("learning_rate", "gradient_norm")
_OF_THE_MACHINE = ("samples_per_second", "data_wait_fraction", "skipped_updates")
_MOST_CURVES = 10  # further charts are folded
_COLORED = 4  # classes with the lowest and with the highest values
_FEWEST_OF_A_FAMILY = 3  # names with the same first word


def make_curves(runs: Sequence[ReportedRun]) -> list[Part]:
    """Make the charts: losses and scores first, speed and memory last."""
    series = [(run.name, run.metrics.training, run.metrics.evaluation) for run in runs]
    names = list(dict.fromkeys(name for _, *kinds in series for points in kinds[::-1] for name in points))
    constants = {name: _find_constant(name, series) for name in names}
    families = _group(sorted((name for name in names if not name.endswith(COUNTS)), key=_sort_key))
    # Of classes, those that stay at 0 are shown, too.
    families = {t: own for t, own in families.items() if any(constants[name] is None for name in own.values())}
    shown = {name for family in families.values() for name in family.values()}
    x_label = "update" if any(run.metrics.training for run in runs) else "epoch"
    groups = [run.group for run in runs]
    charts, on_machine, of_many = list[Part](), list[Part](), list[Part]()
    for title, family in families.items():
        if len(family) == 1:
            lines = curves.build_lines(series, title, groups)
            target = on_machine if title in _OF_THE_MACHINE or "memory" in title else charts
            target.append(curves.build_chart(_TITLES.get(title, title), lines, x_label, offers_log=True))
        elif len(runs) == 1:
            charts.append(_build_family(title, family, series[0], x_label, runs[0].classes))
        else:  # lines are runs
            own = [
                curves.build_chart(name, curves.build_lines(series, name, groups), x_label) for name in family.values()
            ]
            of_many.append(fold(f"{title} ({len(own)})", {"kind": "charts", "charts": own}))
    parts: list[Part] = [{"kind": "charts", "charts": charts[:_MOST_CURVES]}] if charts else []
    texts = [
        f"{_TITLES.get(name, name)} {value:g}"
        for name, value in constants.items()
        if value and name not in shown and not name.endswith(COUNTS)  # 0 is uninformative
    ]
    if parts and texts:
        parts.append(make_note(f"Constant: {', '.join(texts)}."))
    for summary, more in (("More charts ({})", charts[_MOST_CURVES:]), ("Speed and memory ({})", on_machine)):
        if more:
            parts.append(fold(summary.format(len(more)), {"kind": "charts", "charts": more}))
    return [*parts, *of_many]


def _group(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Group the names of a quantity's classes, such as "IoU wall", by their quantity, with labels such as "wall"."""
    first_words = [name.split(" ")[0] for name in names]
    families: dict[str, dict[str, str]] = {}
    for name, first in zip(names, first_words):
        is_overall = any(other.startswith(f"{name} ") for other in names)
        overall = name if is_overall else max((o for o in names if name.startswith(f"{o} ")), key=len, default="")
        title = overall or (first if first_words.count(first) >= _FEWEST_OF_A_FAMILY else name)
        label = name[len(title) + 1 :] or "all"
        families.setdefault(title, {})[label] = name
    return families


def _build_family(title: str, family: dict[str, str], series: Any, x_label: str, classes: Sequence[str]) -> Part:
    """Build the chart of a quantity's classes in one run; only the lowest and highest have colors."""
    _, training, evaluation = series
    found = [
        (label, f"{label} {kind}" if name in training and name in evaluation else label, points[name], style)
        for label, name in family.items()
        for kind, style, points in (("training", "line", training), ("evaluation", "dots", evaluation))
        if points.get(name)
    ]
    order = sorted(range(len(found)), key=lambda place: found[place][2][-1][1])
    colored = sorted({*order[:_COLORED], *order[-_COLORED:]})
    colors = curves.color_lines(
        [found[place][0] for place in colored], classes or [name for name in family if name != "all"]
    )
    lines = []
    for place, (label, name, points, style) in enumerate(found):
        if place in colored:
            lines.append(curves.CurveLine(name, points, colors[label], style))
        else:
            lines.insert(0, curves.CurveLine(name, points, curves.MUTED, "thin"))
    note = f"The {_COLORED} lowest and the {_COLORED} highest of {len(found)} at the end are in color."
    return curves.build_chart(_TITLES.get(title, title), lines, x_label, note=note if len(found) > 2 * _COLORED else "")


def _find_constant(name: str, series: Sequence[Any]) -> float | None:
    """Return the value of a constant quantity; None if it changes, or each run has only one point."""
    lines = [points.get(name, ()) for _, *kinds in series for points in kinds]
    values = {y for points in lines for _, y in points}
    return values.pop() if len(values) == 1 and any(len(points) > 1 for points in lines) else None


def _sort_key(name: str) -> tuple[int, int]:
    if name == "loss":
        return 0, 0
    return (2, _AFTER_METRICS.index(name)) if name in _AFTER_METRICS else (1, " " in name)
