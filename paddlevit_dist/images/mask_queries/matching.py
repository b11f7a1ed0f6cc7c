"""The matching of queries with the objects of an image, of least total cost.

Source: Carion et al., End-to-End Object Detection with Transformers, 2020, section 3.1, equation 1.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle.nn import functional as F

from ...core.runtime.errors import UserError
from ...core.tasks.step_types import StepPosition

_INSTALL = "pip install '.[detection]' in the folder of paddlevit_dist's setup.py"


class QueryMatches(NamedTuple):
    """Matched pairs of L layers and N images, with Q queries and at most M objects, in host memory.

    Weights are NaN for all objects of an image with a prediction that is not finite, so that the loss is not finite
    either.
    """

    query_of: np.ndarray  # int64 (L, N, M), the query of each object; 0 where there is none
    weight_of: np.ndarray  # float32 (L, N, M), 1 for an object with a query, else 0
    object_of: np.ndarray  # int64 (L, N, Q), the object of each query; M where it has none
    counts: np.ndarray  # int64 (N,), objects of each image; if there are more than queries, only Q have one


class QueryPairs(NamedTuple):
    """Pairs of a query and an object of one head, image by image, group by group, queries ascending."""

    images: np.ndarray  # int64 (pairs,)
    queries: np.ndarray  # int64 (pairs,), among the queries of all images and groups
    objects: np.ndarray  # int64 (pairs,), among the objects of all images, M of each


def load_solver() -> Callable[[np.ndarray], Any]:
    """Return SciPy's ``linear_sum_assignment``; raise UserError if it is not installed."""
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise UserError(f"DETR matches its queries with SciPy, which is not installed: {_INSTALL}") from error
    return linear_sum_assignment


def match_queries(costs: np.ndarray, counts: np.ndarray) -> QueryMatches:
    """Match queries with objects, separately for each image and layer.

    Args:
        costs: of each pair, (L, N, Q, M).
        counts: int64 (N,), objects of each image, the first of M.

    Raises:
        UserError: SciPy is not installed.
    """
    assign = load_solver()
    layers, images, queries, most = costs.shape
    query_of = np.zeros((layers, images, most), dtype=np.int64)
    weight_of = np.zeros((layers, images, most), dtype=np.float32)
    object_of = np.full((layers, images, queries), most, dtype=np.int64)
    for layer, (image, number) in itertools.product(range(layers), enumerate(counts)):
        image_costs = costs[layer, image, :, :number]
        is_finite = np.isfinite(image_costs).all()
        rows, columns = assign(image_costs if is_finite else np.zeros_like(image_costs))
        query_of[layer, image, columns] = rows
        object_of[layer, image, rows] = columns
        weight_of[layer, image, columns] = 1.0 if is_finite else np.nan
    return QueryMatches(query_of, weight_of, object_of, counts)


def list_query_pairs(matches: QueryMatches, groups: int, queries: int) -> list[QueryPairs]:
    """Return the pairs of each head of ``matches``, whose layers are groups of ``queries`` of heads."""
    heads = []
    for query_of, weight_of in zip(*(np.split(part, len(part) // groups) for part in matches[:2])):
        group, image, number = np.nonzero(weight_of)  # NaN too
        query = query_of[group, image, number]
        order = np.lexsort((query, group, image))
        group, image, number, query = (part[order] for part in (group, image, number, query))
        most = weight_of.shape[2]
        heads.append(QueryPairs(image, (image * groups + group) * queries + query, image * most + number))
    return heads


def class_losses(
    logits: paddle.Tensor, labels: paddle.Tensor, objects: paddle.Tensor, no_object_weight: float
) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Return the sums of each layer's weighted cross-entropy, (L,), and the class of each query, int64 (L, N, Q).

    Args:
        logits: (L, N, Q, classes + 1), no object last.
        labels: int64 (N, M).
        objects: int64 (L * N * Q,), position of each query's object among the labels of all images, M + 1 of each; the
            last one stands for no object.
        no_object_weight: weight of a query without an object; others have 1.
    """
    last = logits.shape[3] - 1
    no_object = paddle.full([labels.shape[0], 1], last, dtype=labels.dtype)
    table = paddle.concat([labels, no_object], axis=1)  # (N, M + 1)
    classes = paddle.gather(table.flatten(), objects).reshape(logits.shape[:3])
    weights = paddle.where(
        classes == last,
        paddle.full_like(classes, no_object_weight, dtype=logits.dtype),
        paddle.ones_like(classes, dtype=logits.dtype),
    )
    entropy = F.cross_entropy(logits, classes.unsqueeze(-1), reduction="none").squeeze(-1)  # (L, N, Q)
    return (entropy * weights).sum(axis=[1, 2]), classes


class ObjectCounter:
    """Counts the objects that a process trains on; in an image, as many as ``queries`` have one."""

    queries_key = "MODEL.NUM_QUERIES"

    def __init__(self, queries: int, no_object_weight: float) -> None:
        self.queries, self.no_object_weight = queries, no_object_weight
        # Objects since the last report: all, without a query, and the most in an image.
        self._num_objects = self._num_unmatched = self._most_objects = 0
        self._counted: tuple[int, set[int]] = -1, set()  # update, and its counted micro-batches

    def class_count(self, objects: np.ndarray) -> float:
        """Return the sum of weights of all queries of images with ``objects``, int (N,)."""
        matched = int(np.minimum(objects, self.queries).sum())
        return matched + self.no_object_weight * (len(objects) * self.queries - matched)

    def note_objects(self, objects: np.ndarray, step: StepPosition) -> None:
        """Record the number of objects in each image of a micro-batch, once for each ``step``."""
        update, micros = self._counted
        if update != step.update:
            micros = set()
        if step.micro in micros:
            return
        self._counted = step.update, {*micros, step.micro}
        self._num_objects += int(objects.sum())
        self._num_unmatched += int(np.maximum(objects - self.queries, 0).sum())
        self._most_objects = max(self._most_objects, int(objects.max()))

    def epoch_lines(self) -> list[str]:
        """Return a line on objects that had no query since the last call."""
        lines = []
        if self._num_unmatched:
            lines = [
                f"{self._num_unmatched:,} of {self._num_objects:,} objects on the first device had no query: images "
                f"have up to {self._most_objects:,}, but {self.queries_key} is {self.queries:,}; raise it"
            ]
        self._num_objects = self._num_unmatched = self._most_objects = 0
        return lines
