"""Scores of a table of samples: what ``compare``, ``search`` and ``-plan`` compute again without the metrics' state.

A kind of scores is registered by the name that ``SampleTable.kind`` has. It belongs to the metrics that write such
tables, and can be imported without Paddle.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from ..intervals.resampling import Recompute
from ..registry import plugins
from ..registry.lookup import list_names, require_derived, resolve

Arrays = Mapping[str, np.ndarray]


class ScoreKind(ABC):
    """Compute scores again from the arrays of one kind of table, see ``SampleTable``.

    Only ``recompute`` is required. Arrays whose length is the number of samples have a row for each.
    """

    #: name of the score of a class, with "{}" for the class; empty: classes have no score of their own
    class_score: str = ""
    #: number of decimals shown
    decimals: int = 4
    #: number of swaps in a permutation test
    swaps: int = 10_000
    #: the rate in ``hits`` whose decisions say of each sample whether its answer is right; empty: samples have scores
    right_rate: str = ""

    @abstractmethod
    def recompute(self, parts: Sequence[Arrays], classes: Sequence[str]) -> Recompute:
        """Return a function that computes the scores of weighted samples.

        Args:
            parts: arrays of one or more tables. Their samples follow one another.
            classes: names of the classes.

        Returns:
            A function from float64 (draws, samples of all tables), how often each sample counts in each draw, to values
            by name, float (draws,); NaN where a value is not defined.
        """

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

    def hits(self, arrays: Arrays, classes: Sequence[str]) -> Mapping[str, np.ndarray]:
        """Return the decisions whose share is a rate in percent, bool (decisions,), by name of the rate."""
        return {}

    def predictions(self, arrays: Arrays) -> np.ndarray | None:
        """Return the predicted class of each sample, int (samples,), -1 for none; None if it is not known."""
        return None


def find_score_kind(name: str) -> ScoreKind | None:
    """Return the kind of scores of this name, also one of an installed package; None if none is registered.

    Raises:
        UserError: it is not derived from ``ScoreKind``.
    """
    if name not in list_names("score_kind"):
        plugins.load_installed()
    if name not in list_names("score_kind"):
        return None
    kind: ScoreKind = require_derived(resolve("score_kind", name), ScoreKind)()
    return kind


def join_arrays(parts: Sequence[Arrays], name: str) -> np.ndarray:
    """Join the arrays of this name of several tables."""
    return np.concatenate([part[name] for part in parts])


def are_below(numbers: np.ndarray, limit: int) -> bool:
    """Return whether all are integers from 0 up to, but not including, the limit."""
    return numbers.dtype.kind in "iu" and bool(((numbers >= 0) & (numbers < limit)).all())


def count_class_samples(
    kind: str, arrays: Arrays, classes: Sequence[str], groups: np.ndarray | None = None
) -> dict[str, int]:
    """Count the samples in which each class, or landmark, occurs, by class.

    Empty if the ``kind`` of the table is not registered, has no scores of classes, or no ground truth. If the name of
    each sample's group is given, ``groups`` are counted instead of samples.
    """
    score_kind = find_score_kind(kind)
    true = score_kind.truth(arrays) if score_kind is not None and score_kind.class_score else None
    if true is None:
        return {}
    if true.ndim == 1:
        samples = np.flatnonzero(true >= 0)
        labels = true[samples].astype(np.int64)
    else:
        samples, labels = np.nonzero((true.reshape(*true.shape[:2], -1) > 0).any(axis=2))
    if groups is not None:
        samples = np.unique(groups, return_inverse=True)[1][samples]
    counts = np.bincount(np.unique(labels * len(true) + samples) // max(len(true), 1), minlength=len(classes))
    return dict(zip(classes, counts.tolist()))
