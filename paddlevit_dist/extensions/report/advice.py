"""Say what to look at next: what a run's curves, classes and data show, with the setting that would change it."""

import math
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...core.runtime.metrics_file import is_number
from ...core.runtime.printing import agree, count, one_line, shorten
from ...core.tasks.score import HIGHER
from .parts import format_numbers
from .runs import Points, ReportedRun

#: headings of columns where less is worse, of runs of former versions, which do not tell it
_SCORES_OF_CLASSES = ("AP", "AP %", "IoU", "IoU %", "Dice", "recall %", "PCK %", "OKS")
_PLURALS = {"class": "classes", "category": "categories", "point": "points"}
_TAKEN_FOR = "most often taken for"
_WEIGHTS = ("CLASS_WEIGHTS", "VOLUMES.FOREGROUND_FRACTION")  # ends of keys that give rare classes more weight
#: the second is of runs of former versions, with shapes
_CONFIDENCE_LOWERED_BY = ("TRAIN.SMOOTHING", "SHAPES.LABEL_SMOOTHING", "TRAIN.MIXUP_ALPHA", "TRAIN.CUTMIX_ALPHA")
_STILL_RISING = 0.02  # share of the whole improvement that the last third must have
_ENDED = 0.01  # of the highest learning rate
_LOSS_RISE = 1.1  # of an evaluation's smallest loss
_WIDE = 0.03  # width of an interval as a share of its score
_FEW = 0.5  # of the median number of samples of a class
_MUCH_LOWER = 0.8  # of the highest F1
_APART = 0.04  # precision and recall
_UNCALIBRATED = 5.0  # mean confidence minus accuracy, percent
_MISSED = "nothing"  # what an object that is not found is taken for
_TWO_SIDED = 1.96  # standard errors
_SKILL = 0.02  # share of what an answer for all misses
_MOSTLY = 0.8  # of the answers
_FEW_UPDATES = 1_000
_LEARNED = 0.5  # of the first loss
_LONGEST_LIST = 120  # letters of names


def advise(run: ReportedRun) -> list[str]:
    """Return a line for each thing that stands out, the largest first."""
    if chance := _compare_with_chance(run):  # what differs between classes, and confidence, then mean nothing
        rules: tuple[Callable[[ReportedRun], Iterable[str]], ...] = (_unused_epochs, _overfitting, _width)
        return [one_line(line) for line in (chance, *(line for find in rules for line in find(run)))]
    rules = (_unseen_detections, _worst_class, _unequal_rates, _miscalibration, _unused_epochs, _overfitting, _width)
    return [one_line(line) for find in rules for line in find(run)]


def _compare_with_chance(run: ReportedRun) -> str:
    """Say that the answers say nothing about the classes, and why that is likely; empty if they do.

    They do not if neither the share of right answers is above that of the commonest class, nor the mean share of each
    class above what one answer for all gives. Both may be above by chance, or by a few percent of what is missing.
    """
    found = next((each for each in run.list_figures("matrix") if "is_pairs" not in each), {})
    names, cells = found.get("names"), found.get("cells")
    if not isinstance(names, list) or not isinstance(cells, list) or _MISSED in names or len(cells) % 3:
        return ""
    if not all(isinstance(number, int) for number in cells):
        return ""
    true, predicted, numbers = np.array(cells, np.int64).reshape(-1, 3).T
    of_class, answered, hits = (
        np.bincount(classes, numbers * counts, len(names))
        for classes, counts in ((true, 1), (predicted, 1), (true, true == predicted))
    )
    total, occurring = of_class.sum(), np.flatnonzero(of_class)
    if len(occurring) < 2:
        return ""
    right, commonest, even = hits.sum() / total, of_class.max() / total, 1 / len(occurring)
    recalls = hits[occurring] / of_class[occurring]
    deviation = math.sqrt((recalls * (1 - recalls) / of_class[occurring]).sum()) * even
    for value, chance, error in (
        (right, commonest, math.sqrt(right * (1 - right) / total)),
        (recalls.mean(), even, deviation),
    ):
        if value - chance > max(_TWO_SIDED * error, _SKILL * (1 - chance)):
            return ""
    most = np.flatnonzero(of_class == of_class.max())
    answer = f"{names[most[0]]}, the commonest class" if len(most) == 1 else "one class"
    text = f"The model is {'not measurably' if right > commonest else 'no'} better than always answering {answer}"
    text += f": {right:.1%} of its answers are right, {commonest:.1%} of those would be"
    if answered.max() > _MOSTLY * total:
        text += f"; it answers {names[int(answered.argmax())]} for {int(answered.max()):,} of {int(total):,}"
    return f"{text}. {_explain_chance(run)}"


def _explain_chance(run: ReportedRun) -> str:
    """Say why a run has probably learned nothing that helps on the evaluated samples."""
    updates, losses = int(run.num_updates), [loss for _, loss in run.metrics.training.get("loss", ())]
    if not updates:
        return "The weights may be of other classes, or of images that were prepared in another way."
    if len(losses) > 1 and losses[-1] < _LEARNED * losses[0]:
        return (
            f"The loss of training fell from {losses[0]:.4g} to {losses[-1]:.4g}: look whether both splits have the "
            "same kind of samples and the right labels ('inspect data')."
        )
    reasons = []
    if updates < _FEW_UPDATES:
        reasons.append(f"{count(updates, 'update')} {agree(updates)} few (TRAIN.NUM_EPOCHS, DATA.BATCH_SIZE)")
    frozen = run.settings.get("TRAIN.FREEZE", "")
    if re.search(r"\w", frozen) and frozen != "None":
        reasons.append(f"frozen layers learn nothing (TRAIN.FREEZE {frozen})")
    rate = run.settings.get("TRAIN.BASE_LR", "")
    reasons.append(f"the learning rate may be too low or too high (TRAIN.BASE_LR{rate and f' {rate}'})")
    return f"Likely reasons: {'; '.join(reasons)}."


def _find_line(run: ReportedRun, title: str, name: str | None = None) -> Points:
    """Return the points of a chart's line, by default the first; empty if there is none."""
    for chart in run.list_figures("chart"):
        lines = chart.get("lines") if chart.get("title") == title else None
        for line in lines if isinstance(lines, list) else ():
            if isinstance(line, dict) and name in (None, line.get("name")):
                pairs = zip(line.get("x") or (), line.get("y") or ())
                return [(x, y) for x, y in pairs if is_number(x) and is_number(y)]
    return []


def _unseen_detections(run: ReportedRun) -> Iterator[str]:
    points = _find_line(run, "Choice of the score threshold", "F1")
    shown = run.settings.get("DETECTION.SCORE_THRESHOLD", "")
    if not points or not re.fullmatch(r"\d+(\.\d+)?|\.\d+", shown):
        return
    best, highest = max(points, key=lambda point: point[1])
    _, value = min(points, key=lambda point: abs(point[0] - float(shown)))
    if value >= _MUCH_LOWER * highest:
        return
    text = f"No object is found with a score of at least {shown}; F1 is best"
    if value > 0:
        text = f"F1 is {value:.3f} with detections from a score of {shown} on, and best"
    yield f"{text}, {highest:.3f}, from {best:.10g} on (DETECTION.SCORE_THRESHOLD)."


def _worst_class(run: ReportedRun) -> Iterator[str]:
    found = _find_class_table(run)
    if found is None:
        return
    column, table = found
    kind, names = next(iter(table.items()))
    scores = [(value, place) for place, value in enumerate(table[column]) if is_number(value)]
    if len(scores) < 2:
        return
    score, (lowest, worst), unit = column.removesuffix(" %"), min(scores), " %" if column.endswith("%") else ""
    if lowest == 0:
        yield _describe_unfound(kind, table, score, [place for value, place in scores if value == 0], run)
    elif lowest < max(scores)[0]:
        values = [float(value) for value, _ in scores]
        shown, median, *_ = format_numbers([lowest, statistics.median(values), *values])  # as the table shows them
        text = f"{kind.capitalize()} {names[worst]} has the lowest {score}, {shown}{unit}; the median is {median}"
        other = _find_taken_for(run, names[worst])
        if other is not None and len({*table.get(_TAKEN_FOR, ())}) > 1:  # not of all classes
            text += "; it is most often " + ("missed" if other == _MISSED else f"taken for {other}")
        yield f"{text}{_describe_rare(run, str(names[worst]))}."


def _find_class_table(run: ReportedRun) -> tuple[str, dict[str, list[Any]]] | None:
    """Find the column of the first score of classes that a table has, and the table; None if none has one."""
    for column in _list_columns(run):
        table = run.find_table(column)
        if table is not None:
            return column, table
    return None


def _list_columns(run: ReportedRun) -> Sequence[str]:
    """Return the headings of scores of classes where higher is better; in percent, they may end with the unit."""
    if not run.of_classes:
        return _SCORES_OF_CLASSES
    if run.of_classes[0].better != HIGHER:
        return ()
    names = [score.quantity for score in run.of_classes if score.better == HIGHER]
    return [heading for name in names for heading in (name, f"{name} %")]


def _describe_rare(run: ReportedRun, name: str) -> str:
    counts = run.data.get("train", {}).get("counts") or {}
    number, median = counts.get(name), statistics.median(counts.values()) if counts else 0
    is_rare = number is not None and number < _FEW * median
    return f"; it has only {number:,} training samples (median {median:,.10g}): add some" if is_rare else ""


def _describe_unfound(kind: str, table: dict[str, list[Any]], score: str, places: list[int], run: ReportedRun) -> str:
    """Describe the classes in these rows, which are not found, and what gives them more weight."""
    names = [str(table[kind][place]) for place in places]
    if len(names) == len(table[kind]):
        return f"No {kind} is found: {score} is 0 for all {len(names)}. {_explain_chance(run)}"
    if len(names) > 1:
        listed = shorten(", ".join(names), _LONGEST_LIST)
        text = f"{len(names)} of {len(table[kind])} {_PLURALS.get(kind, kind)} have {score} 0: {listed}"
    else:
        text = f"{kind.capitalize()} {names[0]} has {score} 0"
        labeled, missed = (table.get(column, table[kind])[places[0]] for column in ("volumes with it", "missed in"))
        if is_number(labeled) and is_number(missed) and missed <= labeled:
            text += f": it is missed in {missed} of {labeled} volumes"
        text += _describe_rare(run, names[0])
    amount = next((column for column in table if column.startswith("labeled ") and column != "labeled Dice"), "")
    if amount and all(map(is_number, table[amount])):
        share = sum(table[amount][place] for place in places) / max(sum(table[amount]), 1)
        text += f"; {'it has' if len(names) == 1 else 'they have'} {100 * share:.2g} % of the {amount}"
    key = next((name for name in run.settings if name.endswith(_WEIGHTS)), None)
    return f"{text}. More weight or more samples may help{f' ({key})' if key else ''}."


def _find_taken_for(run: ReportedRun, name: object) -> str | None:
    """Return the class that a class is most often taken for, if that is one, and happened more than once."""
    for matrix in run.list_figures("matrix"):
        names, cells = matrix.get("names"), matrix.get("cells")
        if not isinstance(names, list) or not isinstance(cells, list) or name not in names or "is_pairs" in matrix:
            continue
        row = names.index(name)
        counts = sorted((n, other) for true, other, n in zip(*[iter(cells)] * 3) if true == row != other)
        if counts and counts[-1][0] > 1 and (len(counts) == 1 or counts[-1][0] > counts[-2][0]):
            return str(names[counts[-1][1]])
    return None


def _unequal_rates(run: ReportedRun) -> Iterator[str]:
    table = run.find_table("precision", "recall", "threshold")
    if table is None or run.settings.get("MULTI_LABEL.THRESHOLDS") != "fixed":
        return
    pairs = [pair for pair in zip(table["precision"], table["recall"]) if all(map(is_number, pair))]
    precision, recall = map(statistics.fmean, zip(*pairs)) if pairs else (0, 0)
    if abs(precision - recall) > _APART:
        what = "Many labels are missed" if recall < precision else "Many labels are chosen wrongly"
        yield (
            f"{what}: the classes' mean recall is {recall:.4f}, their precision {precision:.4f}; a "
            "threshold of each class balances them (MULTI_LABEL.THRESHOLDS f1)."
        )


def _miscalibration(run: ReportedRun) -> Iterator[str]:
    means, numbers = _find_line(run, "Calibration", "this model"), _find_line(run, "Confidence")
    filled = [number for _, number in numbers if number > 0]
    if not filled or len(filled) != len(means):
        return
    confidence, accuracy = (
        100 * sum(number * point[axis] for number, point in zip(filled, means)) / sum(filled) for axis in (0, 1)
    )
    if abs(confidence - accuracy) < _UNCALIBRATED:
        return
    values = {key: run.settings[key] for key in _CONFIDENCE_LOWERED_BY if key in run.settings}
    active = [f"{key} {value}" for key, value in values.items() if value not in ("0", "0.0", "None")]
    side, remedy = "over", f"label smoothing, mixing or fewer epochs ({', '.join(values)}) may lower its confidence"
    if confidence < accuracy:
        side, remedy = "under", f"less of {', '.join(active) or 'regularization'} may raise its confidence"
    yield f"The model is {side}-confident: {confidence:.1f} % sure on average, {accuracy:.1f} % right; {remedy}."


def _unused_epochs(run: ReportedRun) -> Iterator[str]:
    best, epochs = run.metrics.best, run.settings.get("TRAIN.NUM_EPOCHS", "")
    if best is None or str(best["epoch"]) != epochs:
        return
    values = [value for _, value in run.metrics.evaluation.get(best["name"], ())]
    if len(values) < 3:
        return
    before = values[-1 - len(values) // 3]
    if abs(values[-1] - before) <= _STILL_RISING * abs(values[-1] - values[0]):
        return
    rates = [rate for _, rate in run.metrics.training.get("learning_rate", ())]
    text = f"{best['name']} was best in the last of {epochs} epochs: try more (TRAIN.NUM_EPOCHS)"
    if not rates or rates[-1] > _ENDED * max(rates):
        yield f"{text}."
    elif not best.get("interval") or not best["interval"][0] <= before <= best["interval"][1]:
        yield f"{text}, in a new run, since the learning rate has fallen to 0."


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
