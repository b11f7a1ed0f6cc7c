"""Say what to look at next: what a run's curves, classes and data show, with the setting that would change it."""

from collections.abc import Iterator
from typing import Any

from ...core.runtime.metrics_file import is_number
from ...core.runtime.printing import one_line
from .runs import ReportedRun

_SCORES_OF_CLASSES = ("AP %", "IoU %", "Dice", "recall %", "PCK %", "OKS")  # columns; less is worse
_STILL_RISING = 0.02  # share of the whole improvement that the last third must have
_LOSS_RISE = 1.1  # of an evaluation's smallest loss
_WIDE = 0.03  # width of an interval as a share of its score
_FEW = 0.5  # of the median number of samples of a class


def advise(run: ReportedRun) -> list[str]:
    """Return a line for each thing that stands out, the worst class first."""
    rules = (_worst_class, _unused_epochs, _overfitting, _width)
    return [one_line(line) for find in rules for line in find(run)]


def _worst_class(run: ReportedRun) -> Iterator[str]:
    for table in [figure for stored in run.figures.values() for figure in stored.figures if isinstance(figure, dict)]:
        columns, rows = table.get("columns"), table.get("rows")  # of other figures, and in damaged files, anything
        if not isinstance(columns, list) or not isinstance(rows, list):
            continue
        column = next((name for name in _SCORES_OF_CLASSES if name in columns), None)
        if column is not None and all(isinstance(row, list) and len(row) == len(columns) for row in rows):
            yield from _describe_worst(table, column, run)
            return


def _describe_worst(table: dict[str, Any], column: str, run: ReportedRun) -> Iterator[str]:
    columns, at = table["columns"], table["columns"].index(column)
    rows = [row for row in table["rows"] if is_number(row[at])]
    if len(rows) < 2:
        return
    worst = min(rows, key=lambda row: row[at])
    values = sorted(row[at] for row in rows)
    if values[0] == values[-1]:
        return
    text = f"{columns[0]} {worst[0]} has the lowest {column.removesuffix(' %')}, {worst[at]:.4g}"
    text += f"{' %' if column.endswith('%') else ''}; the median is {values[len(values) // 2]:.4g}"
    if columns[-1] == "most often taken for" and worst[-1] is not None:
        text += f"; it is most often taken for {worst[-1]}"
    counts = run.data.get("train", {}).get("counts") or {}
    if str(worst[0]) in counts:
        number, median = counts[str(worst[0])], sorted(counts.values())[len(counts) // 2]
        if number < _FEW * median:
            text += f"; it has only {number:,} training samples (median {median:,}): add some"
    yield text[0].upper() + text[1:] + "."


def _unused_epochs(run: ReportedRun) -> Iterator[str]:
    best, epochs = run.metrics.best, run.settings.get("TRAIN.NUM_EPOCHS", "")
    if best is None or str(best["epoch"]) != epochs:
        return
    values = [value for _, value in run.metrics.evaluation.get(best["name"], ())]
    if len(values) < 3:
        return
    late, whole = abs(values[-1] - values[-1 - len(values) // 3]), abs(values[-1] - values[0])
    if late > _STILL_RISING * whole:
        yield f"{best['name']} was best in the last of {epochs} epochs: try more (TRAIN.NUM_EPOCHS)."


def _overfitting(run: ReportedRun) -> Iterator[str]:
    evaluated, trained = (points.get("loss", ()) for points in (run.metrics.evaluation, run.metrics.training))
    if len(evaluated) < 3 or not trained:
        return
    update, least = min(evaluated, key=lambda point: point[1])
    before = min(trained, key=lambda point: abs(point[0] - update))[1]
    if evaluated[-1][1] > _LOSS_RISE * least > 0 and trained[-1][1] < before:
        yield (
            f"The loss of the evaluation rises from {least:.4g} after update {update:,} to {evaluated[-1][1]:.4g}, "
            "while that of training falls: more data, augmentation or weight decay may help."
        )


def _width(run: ReportedRun) -> Iterator[str]:
    best = run.metrics.best
    if best is None or "interval" not in best:
        return
    low, high = best["interval"]
    if high - low > _WIDE * abs(best["value"]):
        yield (
            f"The interval of {best['name']} is {high - low:.3g} wide: use 'compare' to see, sample by sample, "
            "whether another run is better; more validation samples narrow it."
        )
