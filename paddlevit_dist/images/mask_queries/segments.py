"""Segments and instances of a stored image, of a network that gives each of its queries a class and a mask.

Sources: Cheng et al., MaskFormer, NeurIPS 2021, arXiv 2107.06278, section 3.4; Kerssies et al., Your ViT is Secretly an
Image Segmentation Model, CVPR 2025, arXiv 2503.19108, with the code of tue-mps/eomt.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ..run_lengths import MaskRuns, find_mask_runs
from .mask_logits import weigh_cells

_LEAST_AREA = 1e-6  # pixels, added to a mask's area


class MaskView(NamedTuple):
    """Where the masks of a network are in a stored image; each is height and width in pixels."""

    square: tuple[int, int]  # of the network's input, padded at the right and the bottom
    inner: tuple[int, int]  # of the resized image in it
    stored: tuple[int, int]  # of the result

    def find_weights(self, cells: tuple[int, int], dtype: str) -> list[np.ndarray]:
        """Return two matrices, (stored side, cells of that side), which bring logits to the stored image.

        They are bilinear between centers of cells, first to the square, then from its inner part.
        """
        sides = zip(cells, self.square, self.inner, self.stored)
        return [
            weigh_cells(inner, stored, dtype) @ weigh_cells(number, square, dtype)[:inner]
            for number, square, inner, stored in sides
        ]

    def resize(self, masks: Iterable[np.ndarray], cells: tuple[int, int], dtype: str) -> Iterator[np.ndarray]:
        """Yield the logits (height, width) of the stored image of each mask (rows, columns), one at a time."""
        down, across = self.find_weights(cells, dtype)
        for mask in masks:
            yield down @ mask @ across.T


class SegmentRules(NamedTuple):
    """Which queries become segments.

    Attributes:
        score: a query's best class has to be more likely.
        mask: probability from which on a pixel is in a mask.
        overlap: least share of a mask's pixels that no other query takes.
    """

    score: float = 0.8
    mask: float = 0.5
    overlap: float = 0.8


class FoundSegments(NamedTuple):
    """The segments of an image, in the order of their queries."""

    places: np.ndarray  # int32 (height, width), number of each pixel's segment, -1: none
    labels: np.ndarray  # int64 (n,), class from 0
    scores: np.ndarray  # float32 (n,), probability of the class


class ScoredMask(NamedTuple):
    """A mask at the size of the stored image."""

    mean: float  # probability of the pixels inside
    runs: MaskRuns


class RankedInstances(NamedTuple):
    """Pairs of a query and a class, best first; several may be of one query."""

    labels: np.ndarray  # int64 (n,), class from 0
    queries: np.ndarray  # int64 (n,)
    scores: np.ndarray  # float32 (n,), probability of the class times the mean of the mask
    masks: list[MaskRuns]


def class_probabilities(logits: np.ndarray) -> np.ndarray:
    """Return the softmax of the last axis, float64."""
    logits = logits.astype(np.float64)
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def choose_queries(class_logits: np.ndarray, least_score: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the queries whose best class is an object's and more likely: their numbers, labels and scores.

    ``class_logits`` are (queries, classes + 1), no object last. A query that is not finite is not chosen.
    """
    probabilities = class_probabilities(class_logits)
    labels, scores = probabilities.argmax(axis=1), probabilities.max(axis=1)
    chosen = np.flatnonzero((labels < class_logits.shape[1] - 1) & (scores > least_score))
    return chosen, labels[chosen], scores[chosen]


def find_segments(
    class_logits: np.ndarray, mask_logits: np.ndarray, view: MaskView, is_thing: np.ndarray, rules: SegmentRules
) -> FoundSegments:
    """Give each pixel to the query with the largest product of both probabilities, and join stuff of one class.

    One mask at a time has the size of the image.

    Args:
        class_logits: (queries, classes + 1), no object last.
        mask_logits: (queries, rows, columns).
        is_thing: bool (classes,); segments of other classes are joined to the first of them.
    """
    chosen, labels, scores = choose_queries(class_logits, rules.score)
    best = np.full(view.stored, -1.0, mask_logits.dtype)
    owner = np.full(view.stored, -1, np.int32)
    is_inside = np.zeros(view.stored, bool)  # of the owner's mask
    areas = []
    resized = view.resize(mask_logits[chosen], mask_logits.shape[1:], str(mask_logits.dtype))
    for number, (score, logits) in enumerate(zip(scores, resized)):
        probability = _sigmoid(logits)
        inside, value = probability >= rules.mask, score * probability
        is_larger = value > best  # the first of equal ones stays
        best[is_larger], owner[is_larger] = value[is_larger], number
        is_inside[is_larger] = inside[is_larger]
        areas.append(int(inside.sum()))
    return _join(owner, is_inside, np.array(areas, np.int64), labels, scores, is_thing, rules.overlap)


def _join(
    owner: np.ndarray,
    is_inside: np.ndarray,
    areas: np.ndarray,
    labels: np.ndarray,
    scores: np.ndarray,
    is_thing: np.ndarray,
    overlap: float,
) -> FoundSegments:
    """Drop masks that others mostly took, and number the rest."""
    taken = np.bincount(owner.ravel() + 1, minlength=len(labels) + 1)[1:]
    left = np.bincount(owner[is_inside] + 1, minlength=len(labels) + 1)[1:]
    numbers = np.full(len(labels) + 1, -1, np.int32)  # of the segment of each query; the last is of no query
    first_of_class: dict[int, int] = {}
    kept: list[int] = []
    for query, label in enumerate(labels.tolist()):
        if not left[query] or taken[query] / areas[query] < overlap:
            continue
        if label in first_of_class:
            numbers[query] = first_of_class[label]
            continue
        if not is_thing[label]:
            first_of_class[label] = len(kept)
        numbers[query] = len(kept)
        kept.append(query)
    places = np.where(is_inside, numbers[owner], np.int32(-1))
    return FoundSegments(places, labels[kept].astype(np.int64), scores[kept].astype(np.float32))


def rank_instances(
    class_logits: np.ndarray, mask_logits: np.ndarray, view: MaskView, most: int = 100
) -> RankedInstances:
    """Return the ``most`` likely pairs of a query and a class, ranked again with the means of their masks.

    Args:
        class_logits: (queries, classes + 1), no object last; a query that is not finite has no pair.
        mask_logits: (queries, rows, columns).
    """
    probabilities = class_probabilities(class_logits)[:, :-1]
    pairs = np.argsort(-probabilities, axis=None, kind="stable")[:most]
    pairs = pairs[np.isfinite(probabilities.ravel()[pairs])]
    queries, labels = np.divmod(pairs, probabilities.shape[1])
    distinct, rows = np.unique(queries, return_inverse=True)
    masks = score_masks(mask_logits[distinct], view)
    scores = probabilities.ravel()[pairs] * np.array([masks[row].mean for row in rows.tolist()], np.float64)
    order = np.argsort(-scores, kind="stable")
    chosen = [masks[row].runs for row in rows[order].tolist()]
    return RankedInstances(labels[order], queries[order], scores[order].astype(np.float32), chosen)


def score_masks(mask_logits: np.ndarray, view: MaskView) -> list[ScoredMask]:
    """Measure the masks of logits (n, rows, columns) in a stored image; a pixel is inside where its logit is above 0.

    One mask at a time has the size of the image.
    """
    results = []
    for logits in view.resize(mask_logits, mask_logits.shape[1:], str(mask_logits.dtype)):
        is_inside = logits > 0
        inside = logits[is_inside]
        mean = float(_sigmoid(inside).sum() / (inside.size + _LEAST_AREA))
        results.append(ScoredMask(mean, find_mask_runs(is_inside)))
    return results


def _sigmoid(x: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(x))  # far below 0 the ratio of two probabilities decides
    return np.where(x >= 0, 1, small) / (1 + small)
