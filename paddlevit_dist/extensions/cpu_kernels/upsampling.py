"""Differentiable functions of bilinearly upsampled maps, in host memory; see ``functions.py``."""

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import paddle
from paddle.autograd import PyLayer

from . import upsampling_kernels
from .branches import UntrackedTensor
from .functions import address, differentiable, with_graph
from .memory import as_contiguous, empty

Size = tuple[int, ...]


@functools.lru_cache(maxsize=64)
def _places(size: Size, large: Size) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute ``lower``, ``upper`` and ``shares`` of ``upsampling_kernels``, with Paddle's aligned pixel centers."""
    parts = []
    for source_length, target_length in zip(size, large):
        position = (np.arange(target_length, dtype=np.float32) + np.float32(0.5)) * (
            np.float32(source_length) / np.float32(target_length)
        )
        position = np.maximum(position - np.float32(0.5), np.float32(0.0))
        lower = np.minimum(position.astype(np.int64), source_length - 1)
        parts.append((lower, np.minimum(lower + 1, source_length - 1), (position - lower).astype(np.float32)))
    first, second, share = (np.concatenate(part) for part in zip(*parts))
    return first, second, share


def _enlarge(loop: Callable, source: paddle.Tensor, out: paddle.Tensor, size: Size, large: Size) -> paddle.Tensor:
    arrays = _places(size, large)
    batch, _, _, channels = out.shape
    loop(address(source), *(array.ctypes.data for array in arrays), address(out), batch, channels, size, large)
    return out


def _sum(finest: paddle.Tensor, coarse: Sequence[paddle.Tensor]) -> paddle.Tensor:
    total, large = finest.clone(), tuple(finest.shape[1:3])
    for x in coarse:
        _enlarge(upsampling_kernels.enlarge, x, total, tuple(x.shape[1:3]), large)
    return total


class _EnlargedSum(PyLayer):
    @staticmethod
    def forward(ctx, finest, *coarse):
        ctx.shapes = [x.shape for x in coarse]
        return _sum(finest, coarse)

    @staticmethod
    @with_graph()
    def backward(ctx, gradient):
        gradient, loop = as_contiguous(gradient), upsampling_kernels.enlarge_gradient
        large = tuple(gradient.shape[1:3])
        map_gradients = [_enlarge(loop, gradient, empty(*shape), tuple(shape[1:3]), large) for shape in ctx.shapes]
        return gradient, *map_gradients


def sum_enlarged(maps: Sequence[paddle.Tensor]) -> paddle.Tensor:
    """Sum maps (batch, height, width, channels) at the size of the first. All or none need a gradient."""
    finest, *coarse = map(as_contiguous, maps)
    return differentiable(_EnlargedSum, finest, *coarse) if paddle.is_grad_enabled() else _sum(finest, coarse)


Weights = tuple[float, ...] | None  # weight of the pixels of each class; None: 1


def _cross_entropy(logits, labels, ignored: int, weights: Weights, slopes: paddle.Tensor | None) -> paddle.Tensor:
    """Compute the summed cross-entropy; ``slopes``, like the logits, receive its gradient."""
    batch, classes, *size = logits.shape
    large = tuple(labels.shape[1:])
    arrays = np.array(weights or (1.0,) * classes, np.float32), *_places(tuple(size), large)
    addresses = [address(labels), *(array.ctypes.data for array in arrays), address(slopes)]
    total = upsampling_kernels.cross_entropy(address(logits), ignored, *addresses, batch, classes, tuple(size), large)
    if math.isnan(total):
        values = labels.numpy()
        unknown = values[(values != ignored) & ((values < 0) | (values >= classes))]
        if len(unknown):
            raise ValueError(f"label {unknown[0]} is neither one of {classes} classes nor {ignored}, the ignored label")
    return paddle.full([], total, "float32")


class _ResizedCrossEntropy(PyLayer):
    @staticmethod
    def forward(ctx, logits, labels, ignored, weights):
        slopes = empty(*logits.shape)
        ctx.save_for_backward(slopes)
        return _cross_entropy(logits, labels.tensor, ignored, weights, slopes)

    @staticmethod
    @with_graph()
    def backward(ctx, gradient):
        (slopes,) = ctx.saved_tensor()
        return slopes * gradient


def resized_cross_entropy(
    logits: paddle.Tensor, labels: paddle.Tensor, ignored: int, weights: Weights
) -> paddle.Tensor:
    """Compute ``losses.resized_cross_entropy`` without logits of the labels' size."""
    logits, labels = as_contiguous(logits), as_contiguous(labels)
    if paddle.is_grad_enabled() and not logits.stop_gradient:
        return differentiable(_ResizedCrossEntropy, logits, UntrackedTensor(labels), ignored, weights)
    return _cross_entropy(logits, labels, ignored, weights, None)
