"""Scores of a table of samples: the one place of a formula, for evaluations, intervals, comparisons and searches.

A kind of scores is registered by the name that ``SampleTable.kind`` has. It can be imported without Paddle.
"""

import copy
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..intervals.recompute import ProportionRecompute, Recompute
from ..intervals.resampling import FEW
from ..intervals.score_ranges import (
    PERCENT_RANGE,
    UNBOUNDED,
    InvalidScoreError,
    ScoreRange,
    require_valid_range,
)
from ..registry import plugins
from ..registry.lookup import require_derived, resolve
from ..registry.names import REGISTRY
from ..runtime.errors import UserError
from ..runtime.printing import describe_value
from .class_names import require_unique
from .score import CLASSES, DECISIONS, PERCENT, POOLED, SAMPLES, Score, find_direction, split_names
from .table_checks import require_names, require_texts

LOSS, CROSS_ENTROPY = "loss", "cross_entropy"
OWN_LOSS = "has_own_loss"  # bool (samples,), an array of tables of tasks whose loss a user has written
Arrays = Mapping[str, np.ndarray]
FormatInterval = Callable[[str, int], str]  # formats the interval of a value after a space: its name, its decimals


class ScoreKind:
    """Compute scores from the arrays of one kind of table, see ``SampleTable``.

    Only ``compute`` is required, or ``recompute``, for a kind that prepares something before the first draw.

    Args:
        classes: names of the classes, or of landmarks.
    """

    #: name of the score of a class, with "{}" for the class; empty: classes have no score of their own
    class_score: str = ""
    #: names of further scores of a class, likewise; their intervals count the samples of the class
    other_class_scores: Sequence[str] = ()
    #: units of quantities that are neither rates nor plain numbers, such as {"mre_mm": "mm"}
    units: Mapping[str, str] = {}
    #: what is better, "higher", "lower" or "" for neither, by quantity. Without an entry its range tells: of an error
    #: from 0 up lower is better, of a score with a highest value higher
    directions: Mapping[str, str] = {}
    #: number of samples below which a note says that intervals are rough
    few: int = FEW
    #: number of decimals shown
    decimals: int = 4
    #: number of swaps from which a difference has its deviation, see ``intervals.swaps``
    swaps: int = 10_000
    #: whether a score may depend on how outputs of different samples are ranked, such as AP. False: two models' outputs
    #: can be scored together
    is_ranking: bool = True
    #: the rate in ``hits`` whose decisions say of each sample whether its answer is right; empty: samples have scores
    right_rate: str = ""
    #: names of arrays that are not rows of samples; they are equal in all tables that are compared
    settings: Sequence[str] = ()
    #: names of tasks that do the same by other means, whose tables can be compared with one another
    tasks: Sequence[str] = ()
    #: names of arrays that only ``columns`` reads; files do not have them
    unsaved: Sequence[str] = ()
    #: names of rates of ``hits`` with several decisions a sample
    pooled_rates: Sequence[str] = ()
    #: by name, means over classes, with the name of the score of a class, "{}" for the class: the one that is averaged,
    #: or one with a deviation in proportion to it
    class_means: Mapping[str, str] = {}
    #: whether an evaluation logs the scores of classes
    logs_classes: bool = True
    #: whether there is a cross-entropy, which has the name of ``name_loss``: that of the task's loss, if it is that
    has_cross_entropy: bool = False

    def __init__(self, classes: Sequence[str] = ()) -> None:
        self.classes = list(classes)

    @classmethod
    def check_methods(cls) -> None:
        """Raise UserError if the class does not say how scores are computed, or has a method of former versions."""
        owners = cls._list_scoring()
        if not owners:
            raise UserError(f"{cls.__name__} needs the method compute(self, arrays, weights)")
        turns = [pair for pair in itertools.pairwise(owners) if pair[0][1].isdisjoint(pair[1][1])]
        if len(turns) > 1:  # super() in the first would call the last, and so skip what the one between them adds
            (owner, names), (parent, inherited) = turns[0]
            raise UserError(
                f"{owner.__name__} has {names.pop()}, but {parent.__name__} has {inherited.pop()}: use the same in both"
            )
        if hasattr(cls, "find_range"):  # of 0.1.0rc1; ranges that nothing reads would change intervals
            raise UserError(
                f"{cls.__name__} needs find_ranges(self, arrays, classes) instead of find_range(self, name)"
            )

    @classmethod
    def _list_scoring(cls) -> list[tuple[type, set[str]]]:
        """Return the classes with ``compute``, ``recompute`` or both, the nearest first, with the names of these."""
        owners = [(each, vars(each).keys() & {"compute", "recompute"}) for each in cls.__mro__ if each is not ScoreKind]
        return [(owner, names) for owner, names in owners if names]

    def compute_scores(self, arrays: Arrays, weights: np.ndarray) -> Mapping[str, np.ndarray]:
        """Return the scores as ``compute`` does, by the method that the nearest class has: an inherited one ignores it.

        Call this and ``recompute_scores``, and write one of ``compute`` and ``recompute``.
        """
        _, names = self._list_scoring()[0]
        return self.compute(arrays, weights) if "compute" in names else ScoreKind.compute(self, arrays, weights)

    def recompute_scores(self, parts: Sequence[Arrays], classes: Sequence[str]) -> Recompute:
        """Return the function that ``recompute`` returns, by the method that the nearest class has."""
        _, names = self._list_scoring()[0]
        return self.recompute(parts, classes) if "recompute" in names else ScoreKind.recompute(self, parts, classes)

    def compute(self, arrays: Arrays, weights: np.ndarray) -> Mapping[str, np.ndarray]:
        """Compute the scores of weighted samples.

        Args:
            arrays: arrays by name; except ``settings``, they have the rows of the samples.
            weights: float64 (draws, samples), how often each sample counts in each draw; ones for the samples as they
                are.

        Returns:
            Values by name, float (draws,); NaN where a value is not defined. Values of one draw must not depend on the
            others.
        """
        return self.recompute([arrays], self.classes)(weights)

    def recompute(self, parts: Sequence[Arrays], classes: Sequence[str]) -> Recompute:
        """Return a function from weights of the samples of all tables, in their order, to values as in ``compute``."""
        named, arrays = self._name_classes(classes), self.join(parts)
        return named.declare(functools.partial(named.compute, arrays), arrays, classes)

    def _name_classes(self, classes: Sequence[str]) -> "ScoreKind":
        """Return a copy with these names of the classes: a kind that was found by its name alone has none."""
        named = copy.copy(self)
        named.classes = list(classes)
        return named

    def declare_recomputed(self, parts: Sequence[Arrays], classes: Sequence[str]) -> ProportionRecompute:
        """Return ``recompute`` of tables with all that this kind declares; a parent's ``recompute`` knows less."""
        arrays = parts[0] if len(parts) == 1 else self.join(parts)
        return self.declare(self.recompute_scores(parts, classes), arrays, classes)

    def declare(self, values: Recompute, arrays: Arrays, classes: Sequence[str]) -> ProportionRecompute:
        """Declare to intervals which of these values are rates, the ranges of others, and the samples of classes.

        Raises UserError: a range is not valid.
        """
        rates = self._name_classes(classes).count_decisions(arrays)
        count_units = functools.partial(self.count_units, arrays, classes)
        means = {name: [of.format(each) for each in classes] for name, of in self.class_means.items()}
        ranges = self._read_ranges(arrays, classes)
        find_range = functools.partial(_get_range, ranges)
        sizes = self.count_objects(arrays) if self.pooled_rates else None
        return ProportionRecompute(values, rates, means, find_range, self.pooled_rates, count_units, sizes)

    def count_units(self, arrays: Arrays, classes: Sequence[str], numbers: np.ndarray | None) -> dict[str, int]:
        """Count the samples, or groups, in which each class occurs, by the name of each of the class's scores.

        Empty if classes have no scores, or there is no ground truth. ``numbers``: see ``intervals.number_groups``.
        """
        counts = self.count_of_classes(arrays, len(classes), numbers)
        return {
            of.format(name): number for of in self.list_class_scores(arrays) for name, number in zip(classes, counts)
        }

    def count_of_classes(self, arrays: Arrays, num_classes: int, numbers: np.ndarray | None) -> list[int]:
        """Count the samples, or groups, in which each class occurs, see ``count_units``; empty if it is not known."""
        true = self.truth(arrays) if self.class_score else None
        return [] if true is None else count_classes(true, num_classes, numbers)

    def describe(self, names: Iterable[str], arrays: Arrays, classes: Sequence[str]) -> dict[str, Score]:
        """Describe the values of these names: quantity, class, unit, range, direction, what they are counted over."""
        rates, ranges = self._name_classes(classes).count_decisions(arrays), self._read_ranges(arrays, classes)
        parts, scores = self.split_names(arrays, classes), {}
        for name in names:
            quantity, of_class = parts.get(name, (name, None))
            bounds, unit, over = ranges.get(name, UNBOUNDED), self.units.get(quantity, ""), SAMPLES
            if name in rates:
                bounds, over = PERCENT_RANGE, POOLED if name in self.pooled_rates else DECISIONS
            elif name in self.class_means:
                bounds, over = ranges.get(name, PERCENT_RANGE), CLASSES
            unit = unit or (PERCENT if bounds == PERCENT_RANGE else "")
            better = self.directions.get(quantity, find_direction(bounds))
            scores[name] = Score(quantity, of_class, unit, bounds, better, over)
        return scores

    def describe_classes(self, arrays: Arrays, classes: Sequence[str]) -> list[Score]:
        """Describe the quantities that classes have, the one of ``class_score`` first."""
        names = {quantity: name for name, (quantity, _) in self.split_names(arrays, classes).items()}
        described = self.describe(names.values(), arrays, classes)
        return [dataclasses.replace(score, of_class=None) for score in described.values()]

    def split_names(self, arrays: Arrays, classes: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Return quantity and class of the scores of classes, by their name."""
        return split_names(self.list_class_scores(arrays), classes)

    def list_class_scores(self, arrays: Arrays) -> Sequence[str]:
        """Return the names of all scores that a class has, with "{}" for the class, ``class_score`` first."""
        return (self.class_score, *self.other_class_scores) if self.class_score else ()

    def find_ranges(self, arrays: Arrays, classes: Sequence[str]) -> Mapping[str, ScoreRange | None]:
        """Return the lowest and highest possible value of scores that are not in ``hits``, by name of the score.

        Infinite where there is no bound, as of all scores without an entry. None: the score gets no interval. Declare
        the range: an interval then stays inside, and contains the expected score more often.
        """
        return {}

    def _read_ranges(self, arrays: Arrays, classes: Sequence[str]) -> dict[str, ScoreRange | None]:
        """Return ``find_ranges`` as pairs; InvalidScoreError if one is not valid."""
        ranges: object = self.find_ranges(arrays, classes)  # a user's
        if not isinstance(ranges, Mapping):
            raise InvalidScoreError(
                f"find_ranges of {type(self).__name__} returns {describe_value(ranges)}, expected ranges by name of "
                "the score, such as {'error': (0.0, math.inf)}"
            )
        for name, bounds in ranges.items():
            require_valid_range(name, bounds)
        return {name: bounds and (bounds[0], bounds[1]) for name, bounds in ranges.items()}

    def require_declared(self, names: Collection[str], arrays: Arrays, classes: Sequence[str]) -> None:
        """Raise InvalidScoreError if a user's kind adds facts about scores that it does not compute, or no direction.

        Kinds of this package may declare more: they have the facts about all scores that they can compute.
        """
        package = __name__.partition(".")[0]
        kinds = (each for each in type(self).__mro__ if issubclass(each, ScoreKind))
        ours = next(each for each in kinds if each.__module__.partition(".")[0] == package)
        if ours is type(self):
            return
        parts = self.split_names(arrays, classes)
        of_classes = {quantity for quantity, _ in parts.values()}
        quantities = dict.fromkeys(parts.get(name, (name,))[0] for name in names)
        ranges = self._read_ranges(arrays, classes), ours.find_ranges(self, arrays, classes)
        declared: dict[str, tuple[Any, Collection[str], Collection[str]]] = {
            "find_ranges": (*ranges, names),
            "class_means": (self.class_means, ours.class_means, names),
            "directions": (self.directions, {*ours.directions, *of_classes}, quantities),
            "units": (self.units, {*ours.units, *of_classes}, quantities),
        }
        for place, (own, inherited, computed) in declared.items():
            require_names(type(self).__name__, place, own, inherited, computed)
        require_texts(type(self).__name__, self.directions, self.units)
        if self.right_rate not in ("", ours.right_rate) and self.right_rate not in self.hits(arrays, classes):
            raise InvalidScoreError(
                f"right_rate of {type(self).__name__} is {self.right_rate!r}, which hits does not return"
            )
        if not isinstance(self.decimals, int) or isinstance(self.decimals, bool) or self.decimals < 0:
            raise InvalidScoreError(
                f"decimals of {type(self).__name__} are {describe_value(self.decimals)}, expected a whole number from 0"
            )

    def join(self, parts: Sequence[Arrays]) -> Arrays:
        """Join the arrays of tables whose samples follow one another; arrays that one does not have are omitted."""
        names = [name for name in parts[0] if all(name in part for part in parts)]
        return {name: parts[0][name] if name in self.settings else join_arrays(parts, name) for name in names}

    def counts(self, arrays: Arrays) -> Mapping[str, int]:
        """Return whole numbers about all samples by name, which an evaluation logs; they have no intervals."""
        return {}

    def select(self, arrays: Arrays, row: int) -> Arrays:
        """Return the arrays of one sample."""
        return {name: array if name in self.settings else array[row : row + 1] for name, array in arrays.items()}

    def columns(self, arrays: Arrays) -> Mapping[str, Sequence[Any]]:
        """Return the columns of a readable table of the samples, see ``PerSampleMetrics.columns``.

        By default they are the values of each sample alone.
        """
        samples = len(next(array for name, array in arrays.items() if name not in self.settings))
        values = [self.compute_scores(self.select(arrays, row), np.ones((1, 1))) for row in range(samples)]
        return {name: [float(row[name][0]) for row in values] for name in values[0]}

    def summary(self, values: Mapping[str, float], format_interval: FormatInterval) -> str:
        """Format the line that an evaluation ends with; by default all values but the scores of classes.

        Args:
            values: all values and ``counts``; for a part of the samples without the counts. One that is not defined is
                not among them, but reads as NaN.
            format_interval: see ``PerSampleMetrics.format_interval``.
        """
        class_scores = {self.class_score.format(name) for name in self.classes}
        numbers = {name: value for name, value in values.items() if isinstance(value, float)}
        return " ".join(
            f"{name} {value:.{self.decimals}f}{format_interval(name, self.decimals)}"
            for name, value in numbers.items()
            if name not in class_scores
        )

    def is_valid(self, arrays: Arrays, samples: int, classes: int) -> bool:
        """Return whether arrays of a file have the right shapes and values, before anything is computed from them."""
        return True

    def truth(self, arrays: Arrays) -> np.ndarray | None:
        """Return the part of the arrays that no model changes, to see whether two tables have the same ground truth.

        Returns:
            Array (samples, ...), or None if the arrays have no such part. If classes have a score: int (samples,), the
            class of each sample, or (samples, classes, ...), above 0 for the classes in a sample.
        """
        return None

    def count_objects(self, arrays: Arrays) -> np.ndarray | None:
        """Return the number of true objects of each sample, (samples,), by which it counts in p, or in a pooled rate.

        None: all samples count alike. By default, if classes have a score: the number of classes of samples that have
        several. Only scores that rank outputs, and pooled rates, need it.
        """
        true = self.truth(arrays) if self.class_score else None
        return None if true is None or true.ndim == 1 else (true.reshape(len(true), -1) > 0).sum(axis=1)

    def hits(self, arrays: Arrays, classes: Sequence[str]) -> Mapping[str, np.ndarray]:
        """Return the decisions whose share is a rate in percent, bool (decisions,), by name of the rate.

        Rates have Wilson's intervals.
        """
        return {}

    def find_correct(self, arrays: Arrays, classes: Sequence[str]) -> np.ndarray | None:
        """Return for each sample whether its answer is right, bool (samples,): by default, ``hits`` of ``right_rate``.

        None if there is no such rate.
        """
        return self.hits(arrays, classes).get(self.right_rate)

    def count_decisions(self, arrays: Arrays) -> dict[str, int]:
        """Return the number of decisions of each rate of ``hits`` that has any."""
        return {name: len(decisions) for name, decisions in self.hits(arrays, self.classes).items() if len(decisions)}

    def predictions(self, arrays: Arrays) -> np.ndarray | None:
        """Return the predicted class of each sample, int (samples,), -1 for none; None if it is not known."""
        return None


def _get_range(ranges: Mapping[str, ScoreRange | None], name: str) -> ScoreRange | None:
    return ranges.get(name, UNBOUNDED)


def name_loss(arrays: Arrays) -> str:
    """Return the name of the cross-entropy of a table: "loss" is that of the task, which may be another one."""
    return CROSS_ENTROPY if OWN_LOSS in arrays else LOSS


def format_losses(values: Mapping[str, float]) -> str:
    """Format the loss, and the cross-entropy if that is not the loss, for ``ScoreKind.summary``."""
    names = [name for name in (LOSS, CROSS_ENTROPY) if name in values] or [LOSS]
    return " ".join(f"{name} {values.get(name, math.nan):.4f}" for name in names)


def find_score_kind(name: str, classes: Sequence[str] = ()) -> ScoreKind | None:
    """Return the kind of scores of this name, also one of an installed package; None if none is registered.

    ``classes`` are the names of the classes.

    Raises:
        UserError: it is not derived from ``ScoreKind``, or two classes have one name, and so would have one score.
    """
    known = REGISTRY.kinds["score_kind"]
    if name not in known:
        plugins.load_installed()
    if name not in known:
        return None
    kind: ScoreKind = require_derived(resolve("score_kind", name), ScoreKind)()
    kind.check_methods()
    require_unique(classes, f"scores of {name}: classes")
    kind.classes = list(classes)
    return kind


def require_score_kind(name: str, classes: Sequence[str] = ()) -> ScoreKind:
    """Return ``find_score_kind``; raise UserError if none of this name is registered."""
    if not isinstance(name, str):
        raise UserError(
            f"{describe_value(name)} is not the name of a kind of scores: expected the text of register_score_kind"
        )
    kind = find_score_kind(name, classes)
    if kind is None:
        raise UserError(f"no kind of scores {name!r} is registered: call register_score_kind({name!r}, ...)")
    return kind


def join_arrays(parts: Sequence[Arrays], name: str) -> np.ndarray:
    """Join the arrays of this name of several tables."""
    return np.concatenate([part[name] for part in parts])


def are_below(numbers: np.ndarray, limit: int) -> bool:
    """Return whether all are integers from 0 up to, but not including, the limit."""
    return numbers.dtype.kind in "iu" and bool(((numbers >= 0) & (numbers < limit)).all())


def count_classes(true: np.ndarray, num_classes: int, numbers: np.ndarray | None = None) -> list[int]:
    """Count the samples in which each class occurs.

    Args:
        true: see ``ScoreKind.truth``.
        num_classes: number of classes.
        numbers: int (samples,), the group of each sample, to count groups instead.
    """
    if true.ndim == 1:
        samples = np.flatnonzero(true >= 0)
        labels = true[samples].astype(np.int64)
    else:
        samples, labels = np.nonzero((true.reshape(*true.shape[:2], -1) > 0).any(axis=2))
    if numbers is not None:
        samples = numbers[samples]
    counted = np.unique(labels * len(true) + samples) // max(len(true), 1)
    return np.bincount(counted, minlength=num_classes).tolist()
