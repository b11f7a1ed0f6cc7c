"""Average precision, area under the ROC curve, counts and thresholds of labels, for weighted draws of images.

A draw changes how often an image counts, but not the order of the scores, so labels are sorted once. Images of equal
scores are found together, as in scikit-learn. Needs no Paddle.
"""

from typing import NamedTuple

import numpy as np

from ...core.intervals import quotient
from ...core.runtime.compiled import compiled

# Marks of a place in the order of scores.
_POSITIVE, _CHOSEN = 1, 2  # the image has the label; the label is chosen for it
_FIRST, _LAST = 4, 8  # of a group of equal scores with a positive
_CUT = 16  # the last of a group of equal probabilities with a positive: a threshold can follow it
_MOST_BYTE = 255
_MOST_BYTES = 1 << 24  # whose sum fits uint32
#: what a threshold has to reach, in the order of the numbers that the compiled loop takes
GOALS = ("none", "precision", "recall", "f1")
_ROUNDING = 1e-12


class DrawnCounts(NamedTuple):
    """What a draw gives for a class, float64 (draws,) each.

    ``ap`` and ``auc`` are fractions, NaN without a positive, or for the latter without a negative. ``known`` labels are
    counted, ``positives`` among them, labels that are ``chosen``, and ``hits``, chosen positives. ``threshold`` is the
    probability above which labels reach the goal, NaN if none does.
    """

    ap: np.ndarray
    auc: np.ndarray
    known: np.ndarray
    positives: np.ndarray
    chosen: np.ndarray
    hits: np.ndarray
    threshold: np.ndarray


class LabelCurve(NamedTuple):
    """The known labels of a class, or of all classes together, by falling score."""

    images: np.ndarray  # int32 (labels,), position of the image
    marks: np.ndarray  # uint8 (labels,)
    cuts: np.ndarray  # float64 (cuts,), threshold after each place with the mark of a cut

    @classmethod
    def from_sorted(cls, scores: np.ndarray, truth: np.ndarray, chosen: np.ndarray, images: np.ndarray) -> "LabelCurve":
        """Build the curve of labels, (labels,) each.

        Args:
            scores: float, logits, falling.
            truth: bool, whether the image has the label.
            chosen: bool, whether the label is chosen.
            images: int32, position of the image.
        """
        marks = truth * np.uint8(_POSITIVE) | chosen * np.uint8(_CHOSEN)
        first, last = _find_groups(scores, truth)
        marks[first] |= _FIRST
        marks[last] |= _LAST
        return cls(images, marks, np.zeros(0))

    def with_cuts(self, scores: np.ndarray) -> "LabelCurve":
        """Return the curve with a threshold after each group of equal probabilities with a positive.

        ``scores`` as for ``from_sorted``.
        """
        probabilities = sigmoid(scores)
        _, ends = _find_groups(probabilities, (self.marks & _POSITIVE) > 0)
        marks = self.marks.copy()
        marks[ends] |= _CUT
        here, below = probabilities[ends], np.append(probabilities, 0.0)[ends + 1]
        middle = (here + below) / 2  # of neighboring numbers it may be the upper one
        return self._replace(marks=marks, cuts=np.where(middle < here, middle, below))

    def count_draws(self, weights: np.ndarray, goal: str = "none", wished: float = 0.0) -> DrawnCounts:
        """Compute what each draw gives; ``weights`` (images, draws) are how often each image counts in it.

        ``wished`` is the least precision or recall for that ``goal``.
        """
        is_small = weights.dtype == np.uint8 and len(self.images) < _MOST_BYTES
        counts = np.zeros((8, weights.shape[1]), np.uint32 if is_small else np.float64)
        values = np.zeros((4, weights.shape[1]))
        _walk(self.images, self.marks, self.cuts, weights, GOALS.index(goal), wished * (1 - _ROUNDING), counts, values)
        ap, auc, threshold = values[:3]
        known, positives, chosen, hits = counts[:4].astype(np.float64)
        is_reached = threshold >= 0
        return DrawnCounts(
            quotient(ap, positives),
            1 - quotient(auc, positives * (known - positives)),
            *(known, positives, chosen, hits),
            np.where(is_reached, threshold, np.nan),
        )


def sort_labels(
    labels: np.ndarray, logits: np.ndarray, chosen: np.ndarray, has_cuts: bool = False
) -> tuple[LabelCurve, list[LabelCurve]]:
    """Return the curve of all known labels together, and the curve of each class.

    Args:
        labels: int8 (images, classes), 1 or 0, and -1 where not known.
        logits: float (images, classes); NaN comes last.
        chosen: bool (images, classes).
        has_cuts: whether the curves of classes have thresholds.
    """
    images, columns = np.nonzero(labels >= 0)
    scores = logits[images, columns]
    scores[np.isnan(scores)] = -np.inf
    order = np.argsort(-scores, kind="stable")
    images, columns, scores = (
        images[order].astype(np.int32),
        columns[order].astype(np.min_scalar_type(labels.shape[1])),
        scores[order],
    )
    arrays = scores, labels[images, columns] == 1, chosen[images, columns], images
    together = LabelCurve.from_sorted(*arrays)
    by_class = np.argsort(columns, kind="stable")
    places = np.split(by_class, np.cumsum(np.bincount(columns, minlength=labels.shape[1]))[:-1])
    each = [LabelCurve.from_sorted(*(array[rows] for array in arrays)) for rows in places]
    return together, [curve.with_cuts(scores[rows]) for curve, rows in zip(each, places)] if has_cuts else each


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Compute the probabilities of logits in float64, without overflow."""
    logits = logits.astype(np.float64)
    small = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1.0, small) / (1.0 + small)


def transpose_weights(weights: np.ndarray) -> np.ndarray:
    """Return weights (draws, images) as (images, draws), in bytes if all of them are small whole numbers."""
    columns = np.ascontiguousarray(weights.T)
    if columns.max(initial=0) > _MOST_BYTE:
        return columns
    as_bytes = columns.astype(np.uint8)
    return as_bytes if (as_bytes == columns).all() else columns


def _find_groups(values: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and the last place of each group of equal values with a positive, int64 (groups,) each."""
    ends = np.append(np.flatnonzero(values[1:] != values[:-1]), len(values) - 1)[: len(values)]
    starts = np.append(0, ends[:-1] + 1)[: len(ends)]
    found = np.cumsum(truth)[ends]
    has_positive = np.diff(found, prepend=0) > 0
    return starts[has_positive], ends[has_positive]


@compiled(needs_numba=False, error_model="numpy")
def _walk(images, marks, cuts, weights, goal, wished, counts, values):
    """Add up what ``LabelCurve.count_draws`` returns, from the highest score down, for all draws at once.

    Rows of ``counts``, zeros (8, draws): known labels, positives, chosen labels, chosen positives; then positives and
    negatives before the group, positives at the last cut, and all positives. Rows of ``values``, zeros (4, draws):
    precision times positives, pairs of a positive below a negative, threshold (-1: not reached), best F1.
    """
    draws = weights.shape[1]
    values[2] = -1.0
    if goal >= 2:
        for place in range(len(images)):
            if marks[place] & _POSITIVE:
                for draw in range(draws):
                    counts[7, draw] += weights[images[place], draw]
    cut = 0
    for place in range(len(images)):
        image, mark = images[place], marks[place]
        if mark & _FIRST:
            for draw in range(draws):
                counts[4, draw] = counts[1, draw]
                counts[5, draw] = counts[0, draw] - counts[1, draw]
        for draw in range(draws):
            counts[0, draw] += weights[image, draw]
        if mark & _POSITIVE:
            for draw in range(draws):
                counts[1, draw] += weights[image, draw]
        if mark & _CHOSEN:
            for draw in range(draws):
                counts[2, draw] += weights[image, draw]
            if mark & _POSITIVE:
                for draw in range(draws):
                    counts[3, draw] += weights[image, draw]
        if mark & _LAST:
            for draw in range(draws):
                right = counts[1, draw]
                gained = float(right - counts[4, draw])
                if gained > 0:
                    values[0, draw] += gained * (right / counts[0, draw])
                    values[1, draw] += gained * 0.5 * (float(counts[5, draw]) + float(counts[0, draw] - right))
        if mark & _CUT:
            if goal:
                for draw in range(draws):
                    right = counts[1, draw]
                    if right <= counts[6, draw]:
                        continue
                    counts[6, draw] = right
                    if goal == 1:
                        if right >= wished * counts[0, draw]:
                            values[2, draw] = cuts[cut]
                    elif goal == 2:
                        if values[2, draw] < 0 and right >= wished * counts[7, draw]:
                            values[2, draw] = cuts[cut]
                    else:
                        f1 = 2.0 * right / (float(counts[0, draw]) + float(counts[7, draw]))
                        if f1 > values[3, draw]:
                            values[3, draw] = f1
                            values[2, draw] = cuts[cut]
            cut += 1
