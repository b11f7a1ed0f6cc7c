"""Compare two tables of samples: the difference of their scores, of their classes, and the samples that changed."""

import dataclasses
import functools
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from ...core.intervals import ConfidenceInterval, bootstrap, number_groups, small_sample_warning
from ...core.registry.lookup import find_built_in
from ...core.runtime.errors import UserError
from ...core.runtime.printing import shorten
from ...core.tasks.paired_scores import (
    SWAPS,
    PairedDifference,
    PairedScores,
    PairIntervals,
    find_bounds,
    measure_unpaired,
    order_rows,
)
from ...core.tasks.sample_groups import SampleGroups
from ...core.tasks.score_kind import ScoreKind
from .run_settings import find_differing_settings, load_training_settings
from .significance import PERCENT, add_finding, find_level
from .tables import RESULTS, EvaluationTable

_MAX_SINGLE_SCORES = 2_000  # samples whose own scores are computed, as each takes a draw
_FEWEST_DIFFERING = 6  # samples or groups: if fewer differ, an exact test has no p below 0.05
MOST_CLASSES = 10  # that a comparison lists
_UNKNOWN = object()
Found = TypeVar("Found")


@dataclasses.dataclass(frozen=True)
class TablePair:
    """Two tables of the same samples."""

    first: EvaluationTable
    second: EvaluationTable
    kind: ScoreKind  # computes their scores
    order: np.ndarray  # int (samples,), the row in ``second`` of each sample of ``first``
    classes: list[str]
    groups: SampleGroups | None = None  # of the samples of ``first``, from either table; None for single samples

    @classmethod
    def match(cls, first: EvaluationTable, second: EvaluationTable) -> "TablePair":
        """Match the samples of two tables; raises a UserError if the tables cannot be compared."""
        kind = require_comparable(first, second)
        order = match_names(first, second)
        differs = _find_other_labels(first, second, order)
        if differs.any():
            name = first.names[int(np.argmax(differs))]
            reason = f"{int(differs.sum()):,} of {len(order):,} samples have different labels, such as {name}"
            raise UserError(_format_refusal(first, second, reason))
        others = None if second.groups is None else second.groups.select(order)
        return cls(first, second, kind, order, first.about["classes"], first.groups or others)

    @property
    def group_names(self) -> np.ndarray | None:
        """Name of the group of each sample of ``order``; None without groups."""
        return None if self.groups is None else self.groups.names

    @functools.cached_property
    def scores(self) -> PairedScores:
        """The values of both models, which intervals and p are computed from."""
        tables = self.first.arrays, self.second.arrays
        numbers = number_groups(self.group_names)
        return PairedScores.of_tables(self.kind, self.classes, tables, self.order, numbers)

    def compute_intervals(self, swapped: Mapping[str, PairedDifference] | None = None) -> PairIntervals:
        """Compute the intervals of both models' values and their differences; see ``PairedScores``."""
        return self.scores.compute_intervals(PERCENT, swapped=swapped)

    def get_difference(self, found: Mapping[str, Found]) -> Found:
        """Return what was found of the score's difference, such as its interval; UserError if it is not defined."""
        name = self.first.about["score"]
        if name not in found:
            raise UserError(_format_refusal(self.first, self.second, explain_undefined(self.first)))
        return found[name]

    def find_correct(self) -> tuple[np.ndarray, np.ndarray]:
        """Return for which samples the answer of each table is right, bool (samples,); see ``ScoreKind.right_rate``.

        Raises:
            UserError: the kind of scores has no decision for each sample.
        """
        tables = self.first.arrays, order_rows(self.kind, self.second.arrays, self.order)
        first, second = (self.kind.find_correct(arrays, self.classes) for arrays in tables)
        number = len(self.order)
        if first is None or second is None or first.shape != (number,) or second.shape != (number,):
            raise UserError(
                f"{type(self.kind).__name__}.hits has no decisions {self.kind.right_rate!r} of {number:,} samples: its "
                "right_rate names them"
            )
        return first, second

    def describe_answer(self, row: int, is_second: bool) -> dict[str, str]:
        """Return the true class of a sample of ``first``, and the one that a table predicts, if they are known."""
        table, place = (self.second, int(self.order[row])) if is_second else (self.first, row)
        true = self.kind.truth(table.arrays) if self.kind.class_score else None
        columns = {"class": true, "taken_for": self.kind.predictions(table.arrays)}
        labels = {
            name: int(column[place]) for name, column in columns.items() if column is not None and column.ndim == 1
        }
        return {name: self.classes[label] for name, label in labels.items() if 0 <= label < len(self.classes)}


def require_comparable(first: EvaluationTable, second: EvaluationTable) -> ScoreKind:
    """Return the kind of scores of both tables; raise UserError if task, kind, score or classes differ."""
    about, other_about = first.about, second.about
    tasks = {find_built_in(task) or task for task in (about["task"], other_about["task"])}
    are_alike = len(tasks) == 1 or tasks <= {*first.kind.tasks}
    for what in ("kind", "score") if are_alike else ("task", "kind", "score"):
        if about[what] != other_about[what]:
            raise UserError(_format_refusal(first, second, f"{what} {other_about[what]} instead of {about[what]}"))
    if len(about["classes"]) != len(other_about["classes"]):
        reason = f"{len(other_about['classes'])} classes instead of {len(about['classes'])}"
        raise UserError(_format_refusal(first, second, reason))
    common = set(about["classes"]) & set(other_about["classes"])
    moved = [
        pair for pair in zip(about["classes"], other_about["classes"]) if len(set(pair)) == 2 and set(pair) & common
    ]
    if moved:
        reason = f"classes in another order ({moved[0][1]} instead of {moved[0][0]}); evaluate both on equal lists"
        raise UserError(_format_refusal(first, second, reason))
    return first.kind


def _find_other_labels(first: EvaluationTable, second: EvaluationTable, order: np.ndarray) -> np.ndarray:
    """Return which samples of the first table have another ground truth in the second, bool (samples,)."""
    true, other = (table.kind.truth(table.arrays) for table in (first, second))
    if true is None or other is None:
        return np.zeros(len(order), bool)
    if len(true) != len(order) or true.shape != other.shape:
        reason = f"labels of the shape {other.shape} instead of {true.shape}"
        raise UserError(_format_refusal(first, second, reason))
    ordered = other[order]
    differs = (true != ordered) & ~((true != true) & (ordered != ordered))  # NaN is equal to NaN here
    return differs.reshape(len(order), -1).any(axis=1)


def explain_undefined(table: EvaluationTable) -> str:
    """Explain that the score of a table has no value."""
    score, classes = table.about["score"], table.about["classes"]
    if score in table.kind.recompute_scores([table.arrays], classes)(np.ones((1, len(table.names)))):
        return f"{score} is not defined for these samples"
    return (
        f"{score} is not a score of the kind {table.about['kind']}: let the metrics return a SampleTable of a kind of "
        "your own (docs/guides/extending.md)"
    )


def _format_refusal(first: EvaluationTable, second: EvaluationTable, reason: str) -> str:
    return f"compare: {second.run} cannot be compared with {first.run}: {shorten(reason)}"


def match_names(first: EvaluationTable, second: EvaluationTable) -> np.ndarray:
    """Return the row in the second table of each sample of the first."""
    first_names, second_names = first.names, second.names
    if first.about["digest"] == second.about["digest"] and first_names == second_names:
        return np.arange(len(first_names))
    if any(table.about["of"].startswith(RESULTS) for table in (first, second)):
        first_names, second_names = simplify_names(first_names, second_names)
    missing, new = Counter(first_names) - Counter(second_names), Counter(second_names) - Counter(first_names)
    if missing or new:
        reason = f"different samples: {missing.total():,} of {len(first_names):,} are only in the first"
        raise UserError(
            _format_refusal(first, second, reason)
            + f", {new.total():,} of {len(second_names):,} only in the second (such as "
            f"{shorten(next(iter(new or missing)), 60)}); evaluate both on the same data and split, or "
            "compare them as two sets of samples with -unpaired"
        )
    order = np.empty(len(first_names), np.int64)
    order[sorted(range(len(first_names)), key=first_names.__getitem__)] = sorted(
        range(len(second_names)), key=second_names.__getitem__
    )
    return order


def simplify_names(first: list[str], second: list[str]) -> tuple[list[str], list[str]]:
    """Remove folders, then suffixes, if names are equal without them: a file of labels may name samples so."""
    for simplify in (str, os.path.basename, lambda name: os.path.splitext(os.path.basename(name))[0]):
        first_names, second_names = list(map(simplify, first)), list(map(simplify, second))
        if len(set(first_names)) == len(first_names) and sorted(first_names) == sorted(second_names):
            return first_names, second_names
    return first, second


def compare_tables(
    first: EvaluationTable, second: EvaluationTable, comparisons: int = 1, margin: float | None = None
) -> dict[str, Any]:
    """Compare two tables, and return plain values; "difference" is second minus first. May raise UserError.

    Args:
        first: of the model that the other is compared with.
        second: of the same samples.
        comparisons: of how many this is one; all their differences together have intervals of a higher level.
        margin: a difference that does not matter. The second is not worse by it if the interval ends above -margin, and
            equivalent if that of two one-sided tests, 90 % in place of 95 %, lies within. Source: D. J. Schuirmann, "A
            Comparison of the Two One-Sided Tests Procedure and the Power Approach for Assessing the Equivalence of
            Average Bioavailability", Journal of Pharmacokinetics and Biopharmaceutics 15, 1987.
    """
    pair = TablePair.match(first, second)
    score, scores = first.about["score"], pair.scores
    # all swaps of a rate are known
    is_exact = score in scores.hits[0] and score not in pair.kind.pooled_rates
    swapped = scores.measure_swaps(SWAPS if is_exact else pair.kind.swaps)
    tests = ["McNemar's mid-p test"] if scores.is_single(score) else ["Student's t"]
    tests += [] if is_exact else [f"deviation of {pair.kind.swaps:,} swaps"]
    tested, own = pair.get_difference(swapped), pair.compute_intervals(swapped)[:2]
    facts = {
        "samples": len(pair.order),
        "test": ", ".join(tests),
        **({} if pair.groups is None else {"groups": pair.groups.to_dict()}),
        "warnings": [*find_warnings(first, second), *_compare_groups(pair)],
        "notes": _find_notes(pair, PairIntervals(*own, {}), tested),
    }
    compared = _compare(first, second, swapped, own, scores.compute_differences, comparisons, margin)
    return {**compared, **facts, **_find_changes(pair)}


def compare_sets(
    first: EvaluationTable, second: EvaluationTable, comparisons: int = 1, margin: float | None = None
) -> dict[str, Any]:
    """Compare the scores of two sets of other samples, such as of an external validation; see ``compare_tables``."""
    kind = require_comparable(first, second)
    common = set(first.names) & set(second.names)
    if common:
        reason = f"{len(common):,} samples are in both, such as {min(common)}: drop -unpaired"
        raise UserError(_format_refusal(first, second, reason))
    sets, classes = [], first.about["classes"]
    for table in (first, second):
        numbers = number_groups(None if table.groups is None else table.groups.names)
        sets.append((kind.declare_recomputed([table.arrays], classes), len(table.names), numbers))
    own = [bootstrap(declared, number, PERCENT, groups=numbers) for declared, number, numbers in sets]
    measured = measure_unpaired(sets)
    if first.about["score"] not in measured:
        raise UserError(_format_refusal(first, second, explain_undefined(first)))

    def compute(level: float, found: Mapping[str, PairedDifference]) -> dict[str, ConfidenceInterval]:
        return {name: one.compute_interval(level, find_bounds(sets[0][0], name)) for name, one in found.items()}

    units = [f"{len(t.names):,} samples{'' if t.groups is None else f', {t.groups}'}" for t in (first, second)]
    facts = {"samples": len(first.names), "other_samples": len(second.names), "test": "Welch's t"}
    notes = [f"{' and '.join(units)} that are not paired: other samples are as likely a cause as other models"]
    warnings = [line for line in find_warnings(first, second) if not line.startswith(("split", "dataset"))]
    compared = _compare(first, second, measured, own, compute, comparisons, margin)
    return {**compared, **facts, "warnings": warnings, "notes": notes}


def _compare(
    first: EvaluationTable,
    second: EvaluationTable,
    measured: Mapping[str, PairedDifference],
    own: Sequence[dict[str, ConfidenceInterval]],
    compute: Callable[[float, Mapping[str, PairedDifference]], dict[str, ConfidenceInterval]],
    comparisons: int,
    margin: float | None,
) -> dict[str, Any]:
    """Return what ``compare_tables`` and ``compare_sets`` share; ``compute`` returns the intervals of a level."""
    score, level, kind = first.about["score"], find_level(comparisons), first.kind
    intervals = PairIntervals(own[0], own[1], compute(level, measured))
    rows = {name: _build_row(intervals, name) for name in intervals.difference}
    class_scores = {kind.class_score.format(name): name for name in first.about["classes"]}
    classes = [
        {"class": class_scores[name], "score": name, **row} for name, row in rows.items() if name in class_scores
    ]
    classes.sort(key=lambda row: -abs(row["difference"]["value"]))
    if len(classes) > MOST_CLASSES:
        of_listed = find_level(comparisons * len(classes), MOST_CLASSES)
        wider = compute(of_listed, {row["score"]: measured[row["score"]] for row in classes[:MOST_CLASSES]})
        for row in classes[:MOST_CLASSES]:
            row["listed"] = {"percent": of_listed, **wider[row["score"]].plain()}
    before, now = (load_training_settings(str(table.about["of"]), table.file.parent) for table in (first, second))
    comparison = {
        "first": first.run,
        "second": second.run,
        "score": score,
        "more_is_better": first.about["more_is_better"],
        "percent": PERCENT,
        "difference_percent": level,
        **rows[score],
        "p": float(f"{measured[score].p:.6g}"),
        "settings": find_differing_settings(before, now, ignored=("score",)),
        "values": {name: row for name, row in rows.items() if name not in class_scores},
        "classes": classes,
    }
    if margin is not None:
        found, narrow = intervals.difference[score], compute(2 * level - 100, {score: measured[score]})[score]
        worst, best = (found.low, found.high) if first.about["more_is_better"] else (-found.high, -found.low)
        is_inside = -margin < narrow.low and narrow.high < margin
        is_outside = narrow.high < -margin or narrow.low > margin
        comparison["margin"] = {
            "margin": margin,
            "not_worse": found.has_width() and worst > -margin,
            "worse": found.has_width() and best < -margin,
            "equivalent": narrow.has_width() and is_inside,
            "different": narrow.has_width() and is_outside,
            "interval": narrow.plain(),
            "percent": 2 * level - 100,
        }
    return add_finding(comparison, comparisons)


def _compare_groups(pair: TablePair) -> list[str]:
    """Return a warning if the second table has different groups."""
    groups, others = pair.groups, pair.second.groups
    if groups is None or others is None:
        return []
    both = set(zip(groups.names.tolist(), others.select(pair.order).names.tolist()))
    if len(both) == groups.number() == others.number():
        return []
    return [f"groups: {pair.second.run} has different ones, {others}; used are the groups of {pair.first.run}"]


def _find_notes(pair: TablePair, found: PairIntervals, tested: PairedDifference) -> list[str]:
    """Return notes if intervals or p are rough; errors are counted in the table with fewer of them."""
    score = pair.first.about["score"]
    both = {"first": found.first, "second": found.second}
    intervals = {f"{which} {name}": interval for which, each in both.items() for name, interval in each.items()}
    best = max(both, key=lambda which: both[which][score].value)
    rates = {f"{best} {name}": number for name, number in pair.scores.first.rates.items()}
    number, unit = (len(pair.order), "sample") if pair.groups is None else pair.groups.units()
    note = small_sample_warning(number, unit, intervals, rates, [f"{which} {score}" for which in both], pair.kind.few)
    notes = [note] if note else []
    folders = pair.first.about.get("folders")
    if folders and pair.kind.is_ranking:
        notes.append(f"{score} ranks the outputs of {folders} models together, whose scales may differ")
    if tested.deviation and not pair.scores.is_single(score):
        differing = pair.scores.count_differing(score, min(_MAX_SINGLE_SCORES, pair.kind.swaps))
        if differing is not None and differing < _FEWEST_DIFFERING:
            notes.append(f"only {differing} of {number:,} {unit}s differ in {score}: p and the interval are rough")
    return notes


def _build_row(intervals: PairIntervals, name: str) -> dict[str, Any]:
    parts = zip(("of_first", "of_second", "difference"), intervals)
    return {what: found[name].plain() for what, found in parts if name in found}


def _find_changes(pair: TablePair) -> dict[str, Any]:
    """List the samples that became right ("fixed") or wrong ("broken"), or else better or worse, most changed first.

    Empty for a score that one sample alone does not have, such as a correlation.
    """
    names = pair.first.names
    if pair.kind.right_rate and any(pair.scores.hits):  # without classes, images have only numbers
        before, after = pair.find_correct()
        fixed, broken = np.flatnonzero(after & ~before).tolist(), np.flatnonzero(before & ~after).tolist()
        return {
            "fixed": [{"sample": names[row], **pair.describe_answer(row, False)} for row in fixed],
            "broken": [{"sample": names[row], **pair.describe_answer(row, True)} for row in broken],
        }
    if len(names) > _MAX_SINGLE_SCORES:
        return {}
    score, alone = pair.first.about["score"], np.eye(len(names))
    ends = [declared(alone)[score] for declared in (pair.scores.first, pair.scores.second)]
    better = (ends[1] - ends[0]) * (1 if pair.first.about["more_is_better"] else -1)
    if np.isnan(better).all():
        return {}
    by_change = np.argsort(-np.abs(np.nan_to_num(better)), kind="stable").tolist()
    rows = [(row, {"sample": names[row], "of_first": ends[0][row], "of_second": ends[1][row]}) for row in by_change]
    return {
        "better": [_round(row) for number, row in rows if better[number] > 0],
        "worse": [_round(row) for number, row in rows if better[number] < 0],
    }


def _round(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value if isinstance(value, str) else float(f"{value:.6g}") for name, value in row.items()}


def find_warnings(first: EvaluationTable, second: EvaluationTable) -> list[str]:
    """List other differences of two evaluations that affect scores, one line each."""
    first_about, second_about, lines = first.about, second.about, []
    for what in ("split", "dataset", "classes"):
        value, other = first_about[what], second_about[what]
        if value != other and value and other:  # empty if unknown for results of other programs
            lines.append(f"{what}: {shorten(value, 60)} in {first.run}, {shorten(other, 60)} in {second.run}")
    for table in (first, second):
        if table.about["of"].startswith(RESULTS):
            lines.append(f"protocol, input: unknown for {table.run}, the results of another program")
            return lines
    for what in ("protocol", "input"):
        for name in dict.fromkeys((*first_about[what], *second_about[what])):
            values = [about[what].get(name, _UNKNOWN) for about in (first_about, second_about)]
            if values[0] != values[1]:
                texts = ["not set" if item is _UNKNOWN else shorten(item, 60) for item in values]
                lines.append(f"{what}: {name} is {texts[0]} in {first.run}, {texts[1]} in {second.run}")
    return lines
