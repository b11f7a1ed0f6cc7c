"""Make the charts of losses and scores: one for each quantity, with all its classes."""

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from ...core.tasks.class_names import name_all
from ...core.tasks.score import Score
from . import curves
from .parts import Part, fold, make_note
from .runs import ReportedRun, is_count

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


class _Charts(NamedTuple):
    """The charts of a report, by where they are shown."""

    first: list[Part]  # losses and scores
    on_machine: list[Part]  # speed and memory
    of_classes: list[Part]  # folds of a quantity of classes, if there are several runs


def make_curves(runs: Sequence[ReportedRun]) -> list[Part]:
    """Make the charts: losses and scores first, speed and memory last. What was measured once is a line of text."""
    series = [(run.name, run.metrics.training, run.metrics.evaluation) for run in runs]
    described = {name: score for run in runs for name, score in run.scores.items()}
    names = _list_names(series)
    constants = {name: _find_constant(name, series) for name in names}
    drawn = {name for name in names if constants[name] is None and _has_curve(name, series)}
    counts = {name for name in names if is_count(name, names, described)}
    families = _group(
        sorted((name for name in names if name not in counts), key=_sort_key),
        {name for name in names if not any(name in training for _, training, _ in series)},
        list(dict.fromkeys(name for run in runs for name in run.classes)),
        described,
    )
    # Of classes, those that stay at 0 are shown, too.
    shown = {title: own for title, own in families.items() if not drawn.isdisjoint(own.values())}
    charts = _draw_charts(shown, runs, series)

    parts: list[Part] = [{"kind": "charts", "charts": charts.first[:_MOST_CURVES]}] if charts.first else []
    in_charts = {name for family in shown.values() for name in family.values()}
    constant = [
        f"{_TITLES.get(name, name)} {value:g}"
        for name, value in constants.items()
        if value and name not in in_charts and name not in counts  # 0 is uninformative
    ]
    if parts and constant:
        parts.append(make_note(f"Constant: {', '.join(constant)}."))
    alone = [name for own in families.values() if len(own) == 1 for name in own.values()]
    parts += _describe_single_values([name for name in alone if constants[name] is None and name not in drawn], series)
    for summary, more in (
        ("More charts ({})", charts.first[_MOST_CURVES:]),
        ("Speed and memory ({})", charts.on_machine),
    ):
        if more:
            parts.append(fold(summary.format(len(more)), {"kind": "charts", "charts": more}))
    return [*parts, *charts.of_classes]


def _draw_charts(
    families: Mapping[str, dict[str, str]], runs: Sequence[ReportedRun], series: Sequence[curves.RunSeries]
) -> _Charts:
    """Draw a chart of each quantity; of several runs, one of each of its classes."""
    x_label = "update" if any(training for _, training, _ in series) else "epoch"
    groups = [run.group for run in runs]
    drawn = _Charts([], [], [])
    for title, family in families.items():
        if len(family) == 1:
            (name,) = family.values()
            is_of_machine = title in _OF_THE_MACHINE or "memory" in title
            lines = curves.build_lines(series, name, groups)
            chart = curves.build_chart(_TITLES.get(title, title), lines, x_label, offers_log=True)
            (drawn.on_machine if is_of_machine else drawn.first).append(chart)
        elif len(runs) == 1:
            drawn.first.append(_build_family(title, family, series[0], x_label, runs[0].classes))
        else:  # lines are runs
            own = [
                curves.build_chart(name, curves.build_lines(series, name, groups), x_label) for name in family.values()
            ]
            drawn.of_classes.append(fold(f"{title} ({len(own)})", {"kind": "charts", "charts": own}))
    return drawn


def _list_names(series: Sequence[curves.RunSeries]) -> list[str]:
    """List the quantities of all runs; of a run, first what its evaluations have measured."""
    names: dict[str, None] = {}
    for _, training, evaluation in series:
        names |= dict.fromkeys([*evaluation, *training])
    return list(names)


def _list_lines(name: str, series: Sequence[curves.RunSeries]) -> list[Sequence[tuple[float, float]]]:
    """List the points of a quantity, in training and evaluation, of the runs that have measured it."""
    return [points[name] for _, training, evaluation in series for points in (training, evaluation) if name in points]


def _has_curve(name: str, series: Sequence[curves.RunSeries]) -> bool:
    return any(len(points) > 1 for points in _list_lines(name, series))


def _find_constant(name: str, series: Sequence[curves.RunSeries]) -> float | None:
    """Return the value of a constant quantity; None if it changes, or each run has only one point."""
    values = {y for points in _list_lines(name, series) for _, y in points}
    return values.pop() if len(values) == 1 and _has_curve(name, series) else None


def _describe_single_values(names: Sequence[str], series: Sequence[curves.RunSeries]) -> list[Part]:
    """Describe quantities that no run has measured more than once."""
    if not names:
        return []
    texts = [_TITLES.get(name, name) for name in names]
    if len(series) == 1:
        kinds = [(f" ({kind})", points) for kind, points in zip(("training", "evaluation"), series[0][1:])]
        texts = [
            f"{text} {points[name][0][1]:.4g}{kind if all(name in each for _, each in kinds) else ''}"
            for name, text in zip(names, texts)
            for kind, points in kinds
            if name in points
        ]
    return [make_note(f"Measured once, so without a curve: {', '.join(texts)}.")]


class _ScoreOfClass(NamedTuple):
    """A score such as "IoU wall" or, with the class first, "left eye mre_mm"."""

    quantity: str
    class_name: str
    is_first: bool  # whether the class is first


def _group(
    names: Sequence[str], scores: Set[str], classes: Sequence[str], described: Mapping[str, Score]
) -> dict[str, dict[str, str]]:
    """Group the names of a quantity's classes by their quantity: title -> label, such as the class -> name.

    Args:
        names: all names.
        scores: those that only evaluations have. Neither classes nor first words join them with other names.
        classes: names of classes.
        described: what scores are, by name; of the others, of runs of former versions, the names say it.
    """
    of_classes = _split_scores([name for name in names if name in scores], classes, described)
    quantities = {score.quantity for score in of_classes.values()}
    others = [name for name in names if name not in of_classes and name not in quantities & scores]
    first_words = Counter((name in scores, name.split(" ")[0]) for name in others)  # where classes are not known
    overall = name_all(classes)
    families: dict[str, dict[str, str]] = {}
    for name in names:
        first, _, rest = name.partition(" ")
        title, label = name, overall
        if name in of_classes:
            title, label, _ = of_classes[name]
        elif name in others and rest and first_words[name in scores, first] >= _FEWEST_OF_A_FAMILY:
            title, label = first, rest
        if title in names and (title in scores) != (name in scores):  # such as the loss "mask" and the score "mask AP"
            title = f"{title} ({'evaluation' if name in scores else 'training'})"
        families.setdefault(title, {})[label] = name
    return families


def _split_scores(
    scores: Sequence[str], classes: Sequence[str], described: Mapping[str, Score]
) -> dict[str, _ScoreOfClass]:
    """Split the scores of classes into quantity and class, see ``_group``.

    Where a name can be split in several ways, as with the classes "door" and "car door", its quantity is the one that
    most classes have.
    """
    known = set(classes)
    ways = {name: list(_list_ways(name, known, described.get(name))) for name in scores}
    members = Counter((way.quantity, way.is_first) for each in ways.values() for way in each)
    result = {}
    for name, each in ways.items():
        # "mask AP" is not the score of a class "mask": classes are behind "AP".
        each = [way for way in each if not (way.is_first and members[way.quantity, False])]
        each = [way for way in each if members[way.quantity, way.is_first] > 1 or way.quantity in ways]
        if each:
            result[name] = max(each, key=lambda way: (members[way.quantity, way.is_first], len(way.class_name)))
    return result


def _list_ways(name: str, classes: Container[str], score: Score | None) -> Iterator[_ScoreOfClass]:
    if score is not None:
        if score.of_class is not None:
            yield _ScoreOfClass(score.quantity, score.of_class, is_first=False)
        return
    for space in (place for place, letter in enumerate(name) if letter == " "):
        first, last = name[:space], name[space + 1 :]
        if last in classes:
            yield _ScoreOfClass(first, last, is_first=False)
        if first in classes:
            yield _ScoreOfClass(last, first, is_first=True)


def _build_family(
    title: str, family: dict[str, str], series: curves.RunSeries, x_label: str, classes: Sequence[str]
) -> Part:
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
        [found[place][0] for place in colored], classes or [name for name in family if name != name_all(classes)]
    )
    lines = []
    for place, (label, name, points, style) in enumerate(found):
        if place in colored:
            lines.append(curves.CurveLine(name, points, colors[label], style))
        else:
            lines.insert(0, curves.CurveLine(name, points, curves.MUTED, "thin"))
    note = f"The {_COLORED} lowest and the {_COLORED} highest of {len(found)} at the end are in color."
    return curves.build_chart(_TITLES.get(title, title), lines, x_label, note=note if len(found) > 2 * _COLORED else "")


def _sort_key(name: str) -> tuple[int, int]:
    if name == "loss":
        return 0, 0
    return (2, _AFTER_METRICS.index(name)) if name in _AFTER_METRICS else (1, " " in name)
