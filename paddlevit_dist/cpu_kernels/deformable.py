"""Multi-scale deformable sampling in the host's memory, differentiable; see ``functions.py``."""

import functools

import numpy as np
import paddle
from paddle.autograd import PyLayer

from . import deformable_kernels
from .functions import address, choose, differentiable, find_wanted, with_graph
from .memory import empty, in_order

Levels = tuple[tuple[int, int, int], ...]  # of each level rows, columns and number of points


@functools.lru_cache(maxsize=64)
def _table(levels: Levels) -> np.ndarray:
    """What ``deformable_kernels`` call ``levels``."""
    rows, columns, points = np.array(levels, np.int64).T
    return np.stack([rows, columns, np.cumsum(rows * columns) - rows * columns, points], axis=1)


def _sizes(values, weights, levels: Levels) -> tuple[int, ...]:
    batch, cells, heads, channels = values.shape
    return batch, cells, weights.shape[1], heads, channels, weights.shape[3], len(levels)


def _sample(values, locations, weights, levels: Levels) -> paddle.Tensor:
    out, table = empty(*weights.shape[:2], values.shape[2] * values.shape[3]), _table(levels)
    places = address(locations), address(weights), address(out)
    deformable_kernels.sample(address(values), table.ctypes.data, *places, _sizes(values, weights, levels))
    return out


class _Sample(PyLayer):
    @staticmethod
    def forward(ctx, values, locations, weights, levels):
        ctx.wanted, ctx.levels = find_wanted(values, locations, weights), levels
        ctx.save_for_backward(values, locations, weights)
        return _sample(values, locations, weights, levels)

    @staticmethod
    @with_graph()
    def backward(ctx, gradient):
        inputs, gradient, table = ctx.saved_tensor(), in_order(gradient), _table(ctx.levels)
        found = [empty(*tensor.shape) for tensor in inputs]
        (values, *others), sizes = map(address, inputs), _sizes(inputs[0], inputs[2], ctx.levels)
        places = values, table.ctypes.data, *others, *map(address, found)
        deformable_kernels.sample_gradient(address(gradient), *places, sizes)
        return choose(ctx.wanted, *found)


def sample(values: paddle.Tensor, locations: paddle.Tensor, weights: paddle.Tensor, levels: Levels) -> paddle.Tensor:
    """What ``images.detection.rtdetr.deformable.sample`` interpolates, (N, Q, heads * channels)."""
    given = [in_order(tensor) for tensor in (values, locations, weights)]
    if paddle.is_grad_enabled() and any(find_wanted(*given)):
        return differentiable(_Sample, *given, levels)
    return _sample(*given, levels)
