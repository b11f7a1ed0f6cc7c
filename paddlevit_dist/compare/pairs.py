"""One table of samples against another: how far their scores differ, in which classes, and which samples changed."""

import os
from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from ..intervals import (
    ConfidenceInterval,
    ProportionRecompute,
    bootstrap,
    number_groups,
    paired_difference,
    small_sample_warning,
)
from ..runtime.errors import UserError
from ..runtime.printing import shorten
from ..tasks.sample_groups import SampleGroups, draw, get_group_names
from ..tasks.truth import TRUTH, count_class_samples
from .scores import SORTS, ScoreKind
from .significance import Swapped, mcnemar, permutation
from .tables import RESULTS, EvaluationTable, load_settings, that_differ

PERCENT = 95
_FIRST, _SECOND, _DIFFERENCE = "first ", "second ", "difference "  # before names of values
_MOST_ALONE = 2_000  # samples whose own score is computed, where that takes a draw for each
_NOT_KNOWN = object()


class TablePair(NamedTuple):
    """Two tables of the same samples.

    Attributes:
        order: int (samples,), the row of ``second`` that is of the same sample as each row of ``first``.
        classes: their names.
        groups: of the samples of ``first``, as either knows them; None: each is alone.
    """

    first: EvaluationTable
    second: EvaluationTable
    sort: ScoreKind
    order: np.ndarray
    classes: list[str]
    groups: SampleGroups | None = None

    @classmethod
    def of(cls, first: EvaluationTable, second: EvaluationTable) -> "TablePair":
        """Raises:
        UserError: they cannot be compared.
        """
        ours, theirs = first.about, second.about
        for what in ("task", "kind", "score"):
            if ours[what] != theirs[what]:
                raise UserError(_explain_refusal(first, second, f"{what} {ours[what]} there, {theirs[what]} here"))
        if len(ours["classes"]) != len(theirs["classes"]):
            said = f"{len(ours['classes'])} classes there, {len(theirs['classes'])} here"
            raise UserError(_explain_refusal(first, second, said))
        order, sort, truth = _order(first, second), SORTS[ours["kind"]], TRUTH[ours["kind"]]
        differs = (truth(first.arrays) != truth(second.arrays)[order]).reshape(len(order), -1).any(axis=1)
        if differs.any():
            name = first.names[int(np.argmax(differs))]
            said = f"{int(differs.sum()):,} of {len(order):,} samples have other labels there, such as {name}"
            raise UserError(_explain_refusal(first, second, said))
        others = None if second.groups is None else second.groups.select(order)
        return cls(first, second, sort, order, ours["classes"], first.groups or others)

    def both(self) -> ProportionRecompute:
        """Of weights (draws, samples): the values of each table, and their differences."""
        first, second = (self.sort.recompute([table.arrays], self.classes) for table in (self.first, self.second))

        def recompute(weights: np.ndarray) -> dict[str, np.ndarray]:
            values, others = first(weights), second(self._of_second(weights))
            names = [name for name in values if name in others]
            return {
                **{f"{_FIRST}{name}": values[name] for name in names},
                **{f"{_SECOND}{name}": others[name] for name in names},
                **{f"{_DIFFERENCE}{name}": others[name] - values[name] for name in names},
            }

        rates = first.rates if isinstance(first, ProportionRecompute) else {}
        return ProportionRecompute(
            recompute, {f"{which}{name}": n for which in (_FIRST, _SECOND) for name, n in rates.items()}
        )

    def intervals(self) -> dict[str, ConfidenceInterval]:
        """Those of ``both``; of rates the difference has Newcombe's, where a sample is one thing, and the wider ends of
        both where it, or a group, has several that depend on each other."""
        groups = get_group_names(self.groups)
        found = bootstrap(self.both(), len(self.order), PERCENT, groups=groups)
        depends = number_groups(groups) is not None
        later = {name: array[self.order] for name, array in self.second.arrays.items() if len(array) == len(self.order)}
        hits = self.sort.hits(self.first.arrays, self.classes)
        for name, others in self.sort.hits({**self.second.arrays, **later}, self.classes).items():
            drawn = found.get(f"{_DIFFERENCE}{name}")
            if drawn is not None:
                of_each = [found[f"{which}{name}"] for which in (_FIRST, _SECOND)] if depends else ()
                exact = paired_difference(hits[name], others, PERCENT, of_each)
                if depends or len(others) > len(self.order):
                    exact = exact._replace(low=min(exact.low, drawn.low), high=max(exact.high, drawn.high))
                found[f"{_DIFFERENCE}{name}"] = exact._replace(value=drawn.value)
        return found

    def _of_second(self, weights: np.ndarray) -> np.ndarray:
        own = np.empty_like(weights)
        own[:, self.order] = weights
        return own

    def swapped(self) -> Swapped:
        """Of swaps, bool (k, samples): the difference of the main score once these samples' answers are exchanged."""
        joined = self.sort.recompute([self.first.arrays, self.second.arrays], self.classes)
        score = self.first.about["score"]

        def score_of(own: np.ndarray) -> np.ndarray:
            """Of answers of the first table where ``own`` is 1, else of the second."""
            return joined(np.concatenate([own, self._of_second(1 - own)], axis=1))[score]

        return lambda swaps: score_of(swaps.astype(np.float64)) - score_of(1.0 - swaps)

    def right(self) -> tuple[np.ndarray, np.ndarray]:
        """Of classified samples, whether each table has its class."""
        return self.first.arrays["places"] == 0, self.second.arrays["places"][self.order] == 0

    def find_taken_for(self, row: int, is_second: bool) -> dict[str, str]:
        """The class that one table takes a sample of ``first`` for; empty where it is not known."""
        arrays, place = (self.second.arrays, self.order[row]) if is_second else (self.first.arrays, row)
        label = int(arrays["predictions"][place]) if "predictions" in arrays else -1
        return {"taken_for": self.classes[label]} if label >= 0 else {}


def _explain_refusal(first: EvaluationTable, second: EvaluationTable, said: str) -> str:
    return f"compare: {second.run} cannot be compared with {first.run}: {shorten(said)}"


def _order(first: EvaluationTable, second: EvaluationTable) -> np.ndarray:
    ours, theirs = first.names, second.names
    if first.about["digest"] == second.about["digest"] and ours == theirs:
        return np.arange(len(ours))
    if any(table.about["of"].startswith(RESULTS) for table in (first, second)):
        ours, theirs = _alike(ours, theirs)
    gone, new = Counter(ours) - Counter(theirs), Counter(theirs) - Counter(ours)
    if gone or new:
        raise UserError(
            _explain_refusal(first, second, f"other samples: {gone.total():,} of {len(ours):,} are there only")
            + f", {new.total():,} of {len(theirs):,} here only (such as {shorten(next(iter(new or gone)), 60)}); "
            "evaluate both on the same data and split"
        )
    order = np.empty(len(ours), np.int64)
    order[sorted(range(len(ours)), key=ours.__getitem__)] = sorted(range(len(theirs)), key=theirs.__getitem__)
    return order


def _alike(ours: list[str], theirs: list[str]) -> tuple[list[str], list[str]]:
    """Names without folders, or without the suffix as well, where only these are the same: who keeps truth in a file of
    his own may call samples otherwise than the data do."""
    for cut in (str, os.path.basename, lambda name: os.path.splitext(os.path.basename(name))[0]):
        mine, others = list(map(cut, ours)), list(map(cut, theirs))
        if len(set(mine)) == len(mine) and sorted(mine) == sorted(others):
            return mine, others
    return ours, theirs


def compare(first: EvaluationTable, second: EvaluationTable) -> dict[str, Any]:
    """Everything that is told of two runs, as plain values; "difference" is that of the second from the first.

    Raises:
        UserError: they cannot be compared.
    """
    pair = TablePair.of(first, second)
    found, score = pair.intervals(), first.about["score"]
    rows = {name.removeprefix(_DIFFERENCE): _row(found, name) for name in found if name.startswith(_DIFFERENCE)}
    if score not in rows:
        raise UserError(_explain_refusal(first, second, f"{score} is not defined for these samples"))
    p, test = _significance(pair)
    own = {pair.sort.of_class.format(name): name for name in pair.classes}
    classes = [{"class": own[name], "score": name, **row} for name, row in rows.items() if name in own]
    classes.sort(key=lambda row: -abs(row["difference"]["value"]))
    return {
        "first": first.run,
        "second": second.run,
        "score": score,
        "more_is_better": first.about["more_is_better"],
        "samples": len(pair.order),
        "percent": PERCENT,
        **rows[score],
        "p": float(f"{p:.6g}"),
        "test": test,
        **({} if pair.groups is None else {"groups": pair.groups.to_dict()}),
        "settings": that_differ(load_settings(first), load_settings(second), without=("score",)),
        "warnings": [*warnings(first, second), *_other_groups(pair)],
        "notes": _notes(pair, found),
        "values": {name: row for name, row in rows.items() if name not in own},
        "classes": classes,
        **_find_changes(pair),
    }


def _other_groups(pair: TablePair) -> list[str]:
    """The line of groups that are others in the second table."""
    groups, others = pair.groups, pair.second.groups
    if groups is None or others is None:
        return []
    both = set(zip(groups.names.tolist(), others.select(pair.order).names.tolist()))
    if len(both) == groups.number() == others.number():
        return []
    return [f"groups: {pair.second.run} has others, {others}; drawn are those of {pair.first.run}"]


def _notes(pair: TablePair, found: dict[str, ConfidenceInterval]) -> list[str]:
    """The line of an interval that is rough; of the table with fewer errors, where errors are counted."""
    score, about = pair.first.about["score"], pair.first.about
    which = max((_FIRST, _SECOND), key=lambda which: found[f"{which}{score}"].value)
    of_class = count_class_samples(about["kind"], pair.first.arrays, pair.classes, get_group_names(pair.groups))
    rates, shown = pair.both().rates, (f"{_FIRST}{score}", f"{_SECOND}{score}")
    rate = {name: number for name, number in rates.items() if name.startswith(which)}
    note = small_sample_warning(*draw(pair.groups, len(pair.order), "sample"), found, rate, of_class, shown)
    return [note] if note else []


def _row(found: dict[str, ConfidenceInterval], name: str) -> dict[str, Any]:
    plain = name.removeprefix(_DIFFERENCE)
    names = {"of_first": f"{_FIRST}{plain}", "of_second": f"{_SECOND}{plain}", "difference": name}
    return {what: found[one].plain() for what, one in names.items() if one in found}


def _significance(pair: TablePair) -> tuple[float, str]:
    numbers = number_groups(get_group_names(pair.groups))
    if pair.first.about["score"] != "top-1":
        p, swaps = permutation(pair.swapped(), len(pair.order), pair.sort.swaps, numbers)
        return p, f"permutation test, {swaps:,} swaps"
    before, after = pair.right()
    if numbers is None:
        return mcnemar(int((after & ~before).sum()), int((before & ~after).sum())), "McNemar's exact test"
    gained = np.bincount(numbers, after.astype(np.float64) - before)  # of each group
    p, swaps = permutation(lambda swapped: (1.0 - 2.0 * swapped) @ gained, len(gained), pair.sort.swaps)
    return p, f"permutation test, {swaps:,} swaps of groups"


def _find_changes(pair: TablePair) -> dict[str, Any]:
    """The samples whose answer became right ("fixed") or wrong ("broken"); where there is no such thing, those with a
    better and a worse score of their own, what changed most first."""
    names, classes = pair.first.names, pair.classes
    if pair.first.about["kind"] == "classes":
        before, after = pair.right()
        labels = pair.first.arrays["labels"]
        kinds = {"fixed": (after & ~before, False), "broken": (before & ~after, True)}
        return {
            kind: [
                {"sample": names[row], "class": classes[labels[row]], **pair.find_taken_for(row, is_second)}
                for row in np.flatnonzero(chosen).tolist()
            ]
            for kind, (chosen, is_second) in kinds.items()
        }
    if len(names) > _MOST_ALONE:
        return {}
    alone, score = pair.both()(np.eye(len(names))), pair.first.about["score"]
    better = alone[f"{_DIFFERENCE}{score}"] * (1 if pair.first.about["more_is_better"] else -1)
    by_change = np.argsort(-np.abs(np.nan_to_num(better)), kind="stable").tolist()
    ends = alone[f"{_FIRST}{score}"], alone[f"{_SECOND}{score}"]
    rows = [(row, {"sample": names[row], "of_first": ends[0][row], "of_second": ends[1][row]}) for row in by_change]
    return {
        "better": [_round(row) for number, row in rows if better[number] > 0],
        "worse": [_round(row) for number, row in rows if better[number] < 0],
    }


def _round(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value if isinstance(value, str) else float(f"{value:.6g}") for name, value in row.items()}


def warnings(first: EvaluationTable, second: EvaluationTable) -> list[str]:
    """List what else differs that a score depends on, one line each."""
    ours, theirs, lines = first.about, second.about, []
    for what in ("split", "dataset", "classes"):
        if ours[what] != theirs[what] and ours[what] and theirs[what]:  # of others' results they may not be known
            lines.append(
                f"{what}: {shorten(ours[what], 60)} in {first.run}, {shorten(theirs[what], 60)} in {second.run}"
            )
    for table in (first, second):
        if table.about["of"].startswith(RESULTS):
            lines.append(f"protocol, input: not known of {table.run}, which this package did not make")
            return lines
    for what in ("protocol", "input"):
        for name in dict.fromkeys((*ours[what], *theirs[what])):
            values = [about[what].get(name, _NOT_KNOWN) for about in (ours, theirs)]
            if values[0] != values[1]:
                told = ["not set" if value is _NOT_KNOWN else shorten(value, 60) for value in values]
                lines.append(f"{what}: {name} is {told[0]} in {first.run}, {told[1]} in {second.run}")
    return lines
