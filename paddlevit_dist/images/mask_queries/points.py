"""Costs and losses of masks at a few points of each.

Sources: Kirillov et al., PointRend, CVPR 2020, arXiv 1912.08193, section 3.1 (points); Cheng et al., Mask2Former, CVPR
2022, arXiv 2112.01527, section 3.3 (matching and losses at points).
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import paddle
from paddle.nn import functional as F

from ...core.registry.extension_points import SAMPLE_MAPS
from ...core.runtime.transfers import constant

_CANDIDATES = 3  # for each point of a loss
_UNCERTAIN = 0.75  # share of the points that are the least certain candidates
_LINEAR = 40.0  # from here on, log(1 + exp(x)) is x in float64

Draw = Callable[[int, int], paddle.Tensor]  # masks, number -> points x, y as fractions (masks, number, 2)


class DrawnMasks(Protocol):
    """The masks of the objects of N images, M of each."""

    def size(self) -> tuple[int, int]:
        """Return height and width of the masks."""

    def look_up(self, objects: paddle.Tensor, rows: paddle.Tensor, columns: paddle.Tensor) -> paddle.Tensor:
        """Return whether pixels, int64 (n, points), are in the masks of objects, int64 (n, 1), among all N * M."""


class MaskStack(NamedTuple):
    """A mask for each object."""

    masks: paddle.Tensor  # uint8 (N, M, H, W), 1 on the object

    def size(self) -> tuple[int, int]:
        """Return height and width."""
        height, width = self.masks.shape[2:]
        return height, width

    def look_up(self, objects: paddle.Tensor, rows: paddle.Tensor, columns: paddle.Tensor) -> paddle.Tensor:
        """Return the values of pixels, see ``DrawnMasks``."""
        height, width = self.size()
        places = (objects * height + rows) * width + columns
        return paddle.gather(self.masks.flatten(), places.flatten()).reshape(places.shape)


class NumberMaps(NamedTuple):
    """Masks that do not overlap: a map with the number of each pixel's object."""

    maps: paddle.Tensor  # integers (N, H, W)
    numbers: paddle.Tensor  # int64 (N, M), of each object, such as its class; padded with what no map has

    def size(self) -> tuple[int, int]:
        """Return height and width."""
        height, width = self.maps.shape[1:]
        return height, width

    def look_up(self, objects: paddle.Tensor, rows: paddle.Tensor, columns: paddle.Tensor) -> paddle.Tensor:
        """Return the values of pixels, see ``DrawnMasks``."""
        height, width = self.size()
        places = (objects // self.numbers.shape[1] * height + rows) * width + columns
        found = paddle.gather(self.maps.flatten(), places.flatten()).reshape(places.shape)
        own = paddle.gather(self.numbers.flatten(), objects.flatten()).reshape([-1, 1])
        return found.astype(own.dtype) == own


class PointRules(NamedTuple):
    """What a point is in two families of networks.

    Attributes:
        repeats_border: the cells of logits at the border are repeated outside, which is else zero.
        is_soft: a truth is interpolated between pixels and zeros outside; else it is the pixel's that has the point.
    """

    repeats_border: bool
    is_soft: bool


def softplus(x: paddle.Tensor) -> paddle.Tensor:
    """Return log(1 + exp(x)), which Paddle's function approximates by x above 20 unless told otherwise."""
    return F.softplus(x, threshold=_LINEAR)


def sample_between(maps: paddle.Tensor, points: paddle.Tensor, repeats_border: bool = True) -> paddle.Tensor:
    """Interpolate maps (N, dim, height, width) at points (N, n, 2), x, y as fractions: (N, dim, n)."""
    is_learned = paddle.is_grad_enabled() and not maps.stop_gradient
    compiled = None if is_learned else SAMPLE_MAPS.find()
    fast = None if compiled is None else compiled(maps, points, repeats_border)
    if fast is not None:
        return fast
    grid = (2 * points - 1).unsqueeze(2)
    padding = "border" if repeats_border else "zeros"
    return F.grid_sample(maps, grid, padding_mode=padding, align_corners=False).squeeze(3)


def sample_truth(masks: DrawnMasks, objects: paddle.Tensor, points: paddle.Tensor, is_soft: bool) -> paddle.Tensor:
    """Return the values (n, points) of objects' masks at points (n, points, 2), x, y as fractions, in their dtype.

    ``objects``, int64 (n, 1), are positions among the objects of all images; ``is_soft``: see ``PointRules``.
    """
    sides = masks.size()[::-1]
    if not is_soft:
        column, row = ((points[..., axis] * side).astype("int64").clip(0, side - 1) for axis, side in enumerate(sides))
        return masks.look_up(objects, row, column).astype(points.dtype)
    columns, rows = (_weigh_neighbors(points[..., axis], side) for axis, side in enumerate(sides))
    total = paddle.zeros(points.shape[:2], points.dtype)
    for row, row_weight in rows:
        for column, column_weight in columns:
            total = total + masks.look_up(objects, row, column).astype(points.dtype) * (row_weight * column_weight)
    return total


def _weigh_neighbors(fractions: paddle.Tensor, side: int) -> list[tuple[paddle.Tensor, paddle.Tensor]]:
    """Return the two nearest pixels along a side with their weights, 0 outside."""
    place = fractions * side - 0.5
    first = paddle.floor(place)
    pairs = []
    for pixel, weight in ((first, first + 1 - place), (first + 1, place - first)):
        is_inside = paddle.logical_and(pixel >= 0, pixel <= side - 1)
        pairs.append((pixel.clip(0, side - 1).astype("int64"), weight * is_inside.astype(weight.dtype)))
    return pairs


def compare_at_points(
    logits: paddle.Tensor, truth: paddle.Tensor, mask_weight: float, dice_weight: float
) -> paddle.Tensor:
    """Return the costs (N, Q, M) of masks' logits (N, Q, points) and truths (N, M, points): cross-entropy and Dice."""
    number, scores = logits.shape[2], F.sigmoid(logits)
    entropy = softplus(logits).sum(axis=2, keepdim=True) - paddle.matmul(logits, truth, transpose_y=True)
    shared = paddle.matmul(scores, truth, transpose_y=True)
    total = scores.sum(axis=2, keepdim=True) + truth.sum(axis=2).unsqueeze(1)
    return mask_weight * entropy / number + dice_weight * (1 - (2 * shared + 1) / (total + 1))


def sum_at_points(
    maps: paddle.Tensor, objects: paddle.Tensor, masks: DrawnMasks, number: int, rules: PointRules, draw: Draw
) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Return the sums over masks of the mean cross-entropy and of 1 - Dice at ``number`` points, scalars.

    Three quarters of the points are where a mask is least certain, the others anywhere.

    Args:
        maps: logits, (n, 1, height, width).
        objects: int64 (n, 1), position of each mask's object among the objects of all images.
        masks: of the objects.
    """
    points = _choose_points(maps.detach(), number, rules, draw)
    logits = sample_between(maps, points, rules.repeats_border).squeeze(1)  # (n, points)
    truth = sample_truth(masks, objects, points, rules.is_soft).astype(logits.dtype)
    entropy = (softplus(logits) - logits * truth).mean(axis=1)
    scores = F.sigmoid(logits)
    shared, total = (scores * truth).sum(axis=1), scores.sum(axis=1) + truth.sum(axis=1)
    return entropy.sum(), (1 - (2 * shared + 1) / (total + 1)).sum()


@paddle.no_grad()
def _choose_points(maps: paddle.Tensor, number: int, rules: PointRules, draw: Draw) -> paddle.Tensor:
    """Choose points of masks whose logits are (pairs, 1, height, width), as fractions, (pairs, number, 2)."""
    candidates = draw(len(maps), _CANDIDATES * number).astype(maps.dtype)
    certainty = sample_between(maps, candidates, rules.repeats_border).squeeze(1).abs()
    uncertain = int(_UNCERTAIN * number)
    chosen = paddle.topk(certainty, uncertain, axis=1, largest=False)[1].unsqueeze(2).expand([-1, -1, 2])
    others = draw(len(maps), number - uncertain).astype(maps.dtype)
    return paddle.concat([paddle.take_along_axis(candidates, chosen, axis=1), others], axis=1)


def draw_points(masks: int, number: int, is_random: bool = True) -> paddle.Tensor:
    """Draw points x, y of masks as fractions, float32 (masks, number, 2); else spread evenly, the same of all masks."""
    if is_random:
        return paddle.rand([masks, number, 2])
    return constant(_spread_points, number).expand([masks, number, 2])


def _spread_points(number: int) -> np.ndarray:
    """Return points of Roberts' sequence, float32 (number, 2)."""
    steps = np.array([1, 1]) / 1.32471795724474602596 ** np.array([1, 2])
    return ((0.5 + np.arange(1, number + 1)[:, None] * steps) % 1).astype(np.float32)
