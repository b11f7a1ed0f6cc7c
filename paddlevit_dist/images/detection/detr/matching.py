"""Which query is to find which object: the assignment that costs least."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import numpy as np
import paddle

from .... import autocast
from ....errors import UserError
from ....transfers import read
from ..boxes import corners, generalised_iou

_INSTALL = "pip install '.[detection]' in the folder of paddlevit_dist's setup.py"


class CostWeights(NamedTuple):
    """Weights of the parts of the matching cost."""

    label: float = 1.0
    box: float = 5.0
    giou: float = 2.0


class Matches(NamedTuple):
    """Matched pairs of L layers and N pictures, with Q queries and at most M objects, in the host's memory.

    Attributes:
        query_of: int64 (L, N, M), the query of each object; 0 where there is none.
        weight_of: float32 (L, N, M), 1 for an object that has a query, else 0; NaN for all objects of a picture for
            which a prediction was not finite, so that the loss is not either.
        object_of: int64 (L, N, Q), the object of each query; M where it has none.
        counts: int64 (N,), objects of each picture; where they are more than queries, only Q have one.
    """

    query_of: np.ndarray
    weight_of: np.ndarray
    object_of: np.ndarray
    counts: np.ndarray


@paddle.no_grad()
def match(
    logits: paddle.Tensor, boxes: paddle.Tensor, labels: paddle.Tensor, targets: paddle.Tensor, weights: CostWeights
) -> Matches:
    """Match queries with objects, each picture and each layer by itself. The host waits for the device once, for the
    costs of all layers.

    Source: DETR, section 3.1, equation 1.

    Args:
        logits: (L, N, Q, classes + 1); boxes: (L, N, Q, 4), centre, width and height as shares of the picture.
        labels: int64 (N, M), -1 where a picture has fewer objects; targets: (N, M, 4), as ``boxes``.

    Raises:
        UserError: SciPy is not installed.
    """
    assign = solver()
    counts = (labels >= 0).astype("int64").sum(axis=1)  # (N,)
    return matched(*read(pair_costs(logits, boxes, labels, targets, weights), counts), assign)


def pair_costs(
    logits: paddle.Tensor, boxes: paddle.Tensor, labels: paddle.Tensor, targets: paddle.Tensor, weights: CostWeights
) -> paddle.Tensor:
    """What each pair of a query and an object costs, (L, N, Q, M); arguments as of ``match``."""
    chosen = paddle.nn.functional.one_hot(paddle.clip(labels, min=0), logits.shape[-1])  # (N, M, classes + 1)
    # A product with ones and zeros, as a gather that broadcasts.
    with autocast.off():
        scores = paddle.nn.functional.softmax(logits, axis=-1)
        found = paddle.matmul(scores, chosen.astype(logits.dtype), transpose_y=True)
    ours, theirs = boxes.unsqueeze(3), targets.unsqueeze(1)  # (L, N, Q, 1, 4), (N, 1, M, 4)
    distance = (ours - theirs).abs().sum(axis=-1)
    overlap = generalised_iou(corners(ours), corners(theirs))
    return weights.box * distance - weights.label * found - weights.giou * overlap


def matched(costs: np.ndarray, counts: np.ndarray, assign: Callable[[np.ndarray], Any]) -> Matches:
    """The matches of least cost.

    Args:
        costs: (L, N, Q, M); those of objects that a picture does not have are not looked at.
        counts: int64 (N,), objects of each picture.
        assign: ``scipy.optimize.linear_sum_assignment``.
    """
    layers, pictures, queries, most = costs.shape
    query_of = np.zeros((layers, pictures, most), dtype=np.int64)
    weight_of = np.zeros((layers, pictures, most), dtype=np.float32)
    object_of = np.full((layers, pictures, queries), most, dtype=np.int64)
    for layer in range(layers):
        for picture, number in enumerate(counts):
            own = costs[layer, picture, :, :number]
            is_finite = np.isfinite(own).all()
            rows, columns = assign(own if is_finite else np.zeros_like(own))
            query_of[layer, picture, columns] = rows
            object_of[layer, picture, rows] = columns
            weight_of[layer, picture, columns] = 1.0 if is_finite else np.nan
    return Matches(query_of, weight_of, object_of, counts)


def solver() -> Callable[[np.ndarray], Any]:
    """SciPy's ``linear_sum_assignment``.

    Raises:
        UserError: SciPy is not installed.
    """
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise UserError(f"DETR matches its queries with SciPy, which is not installed: {_INSTALL}") from error
    return linear_sum_assignment
