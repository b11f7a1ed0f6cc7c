"""Maps of one size cut out of a pyramid for boxes of any size (RoIAlign), and masks of boxes put back into pictures."""

from __future__ import annotations

from typing import List, Sequence, Tuple

import numpy as np
import paddle
from paddle.vision.ops import roi_align

from ....transfers import to_device_together
from ..boxes import areas

_EPSILON = 1e-6  # of torchvision: a side of exactly 2 x 224 belongs to the next level
_CERTAIN = 0.5  # a pixel belongs to the object above this
_THIRD = 2  # the level, from 0, that boxes of the reference size are cut out of


def levels_of(boxes: paddle.Tensor, number: int, reference_size: float) -> paddle.Tensor:
    """The level from 0 to ``number`` - 1 that each box is cut out of, int64 (n,) of (n, 4): one coarser for each
    doubling of the side.

    Source: Lin et al., Feature Pyramid Networks, 2017, equation 1.
    """
    side = paddle.sqrt(paddle.clip(areas(boxes), min=1e-12))
    level = paddle.floor(_THIRD + paddle.log2(side / reference_size) + _EPSILON)
    return paddle.clip(level, 0, number - 1).astype("int64")


def cut_out(
    maps: Sequence[paddle.Tensor],
    strides: Sequence[int],
    boxes: paddle.Tensor,
    pictures: np.ndarray,
    levels: np.ndarray,
    size: int,
    samples: int = 2,
    aligned: bool = False,
) -> paddle.Tensor:
    """(n, channels, size, size) for boxes (n, 4), each out of one map.

    Each bin of a box is the mean of bilinear samples. A box narrower than a position of its map is widened to one, at
    the right or the bottom; so it is with ``aligned`` too, where the authors leave it narrow: Paddle's gradients for
    such boxes are wrong on CPUs. Paddle's operator waits for the device to read how many boxes each picture has.

    Args:
        maps: (N, channels, height, width) of each level, all of one type.
        strides: pixels of each level to one position.
        pictures: int (n,), the picture of each box, ascending.
        levels: int (n,), the map of each box.
        samples: in each direction of a bin; -1: as many as positions of the map, rounded up.
        aligned: position i of a map is at i + 0.5 strides, not at i.

    Source: He et al., Mask R-CNN, 2017, section 3.
    """
    order = np.argsort(levels, kind="stable")
    used, starts = np.unique(levels[order], return_index=True)
    of_levels = np.split(order, starts[1:])  # the boxes of each level
    counts = [np.bincount(pictures[chosen], minlength=maps[0].shape[0]) for chosen in of_levels]
    by_level, back, *numbers = to_device_together(
        *(array.astype(np.int32) for array in (order, np.argsort(order, kind="stable"), *counts))
    )
    boxes = paddle.gather(boxes, by_level).astype(maps[0].dtype)
    parts: List[paddle.Tensor] = []
    for level, start, chosen, number in zip(used.tolist(), starts.tolist(), of_levels, numbers):
        of_level, stride = boxes[start : start + len(chosen)], strides[level]
        if aligned:
            of_level = of_level - 0.5 * stride
        parts.append(roi_align(maps[level], of_level, number, size, 1.0 / stride, samples, aligned=False))
    return paddle.gather(paddle.concat(parts), back) if len(parts) > 1 else parts[0]


def paste(mask: np.ndarray, box: np.ndarray, size: Tuple[int, int]) -> np.ndarray:
    """uint8 (height, width) of the picture, 1 on the object.

    As torchvision does: the mask gets a border of zeros, the box grows by as much and is cut to whole pixels, the mask
    is resized to it (bilinear) and laid into the picture.

    Args:
        mask: (side, side), probabilities.
        box: (4,), x0, y0, x1, y1 in pixels of the picture.
        size: height and width of the picture.
    """
    side = len(mask)
    padded = np.pad(np.asarray(mask, dtype=np.float32), 1)
    centre, half = (box[2:] + box[:2]) * 0.5, (box[2:] - box[:2]) * 0.5 * ((side + 2) / side)
    x0, y0, x1, y1 = (int(value) for value in np.concatenate([centre - half, centre + half]))
    width, height = max(x1 - x0 + 1, 1), max(y1 - y0 + 1, 1)
    rows = np.arange(max(y0, 0), min(y0 + height, size[0]))
    columns = np.arange(max(x0, 0), min(x0 + width, size[1]))
    result = np.zeros(size, dtype=np.uint8)
    if len(rows) and len(columns):
        down = _weights(rows - y0, height, side + 2)
        across = _weights(columns - x0, width, side + 2)
        values = down @ padded @ across.T
        result[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] = values > _CERTAIN
    return result


def _weights(positions: np.ndarray, length: int, side: int) -> np.ndarray:
    """float32 (positions, side): how much of each of ``side`` values is in positions of ``length`` resized ones."""
    place = np.clip((positions + 0.5) * (side / length) - 0.5, 0, None)
    low = np.minimum(place.astype(np.int64), side - 1)
    high = np.minimum(low + 1, side - 1)
    share = (place - low).astype(np.float32)
    weights = np.zeros((len(positions), side), dtype=np.float32)
    each = np.arange(len(positions))
    weights[each, low] += 1 - share
    weights[each, high] += share
    return weights
