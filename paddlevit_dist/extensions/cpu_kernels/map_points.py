"""Bilinear samples of maps at points that all maps of an image share, in a compiled loop, without gradients."""

import numba
import numpy as np
import paddle

from ...core.runtime.compiled import compiled
from .functions import address
from .intrinsics import FAST, floats_at
from .memory import as_contiguous, empty

f32 = np.float32


def sample_maps(maps: paddle.Tensor, points: paddle.Tensor, repeats_border: bool) -> paddle.Tensor:
    """Compute ``points.sample_between`` of maps (N, Q, height, width) at points (N, n, 2): (N, Q, n)."""
    maps, points = map(as_contiguous, (maps, points))
    (images, number, height, width), count = maps.shape, points.shape[1]
    out = empty(images, number, count)
    sample(*map(address, (maps, points, out)), repeats_border, images, number, count, height, width)
    return out


@numba.njit(**FAST)
def _weigh(place, side, repeats_border):
    """Return the two nearest cells on a side, and their shares: 0 outside, unless the cells there are the border's."""
    place = place * f32(side) - f32(0.5)
    if repeats_border:
        place = min(max(place, f32(0.0)), f32(side - 1))
    if not f32(-1.0) < place < f32(side):
        # A place that is not finite stays so, and is not used as an index.
        return 0, 0, place - place, place - place
    first = int(np.floor(place))
    after = place - f32(first)
    before = f32(1.0) - after if first >= 0 else f32(0.0)
    after = after if first + 1 < side else f32(0.0)
    return max(first, 0), min(first + 1, side - 1), before, after


@compiled(**FAST)
def sample(maps, points, out, repeats_border, images, number, count, height, width):
    """Write (images, number, count) samples of maps (images, number, height, width) at points (images, count, 2)."""
    cells, shares = np.empty((4, count), np.int64), np.empty((4, count), np.float32)
    for image in range(images):
        places = numba.carray(floats_at(points + 8 * image * count), (count, 2))
        for i in range(count):
            left, right, left_share, right_share = _weigh(places[i, 0], width, repeats_border)
            top, lower, top_share, lower_share = _weigh(places[i, 1], height, repeats_border)
            cells[0, i], shares[0, i] = top * width + left, top_share * left_share
            cells[1, i], shares[1, i] = top * width + right, top_share * right_share
            cells[2, i], shares[2, i] = lower * width + left, lower_share * left_share
            cells[3, i], shares[3, i] = lower * width + right, lower_share * right_share
        for own in range(image * number, (image + 1) * number):
            source = floats_at(maps + 4 * own * height * width)
            target = numba.carray(floats_at(out + 4 * own * count), count)
            for i in range(count):
                target[i] = (
                    shares[0, i] * source[cells[0, i]]
                    + shares[1, i] * source[cells[1, i]]
                    + shares[2, i] * source[cells[2, i]]
                    + shares[3, i] * source[cells[3, i]]
                )
