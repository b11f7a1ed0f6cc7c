"""Differentiable functions of maps that are enlarged bilinearly, in the host's memory; see ``functions.py``."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle
from paddle.autograd import PyLayer

from . import upsampling_kernels
from .branches import UntrackedTensor
from .functions import address, differentiable, with_graph
from .memory import empty, in_order

Size = tuple[int, ...]


@functools.lru_cache(maxsize=64)
def _places(size: Size, large: Size) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute what ``upsampling_kernels`` call ``lower``, ``upper`` and ``shares``: centers of pixels are aligned, as
    in Paddle's bilinear resizing."""
    parts = []
    for few, many in zip(size, large):
        place = (np.arange(many, dtype=np.float32) + np.float32(0.5)) * (np.float32(few) / np.float32(many))
        place = np.maximum(place - np.float32(0.5), np.float32(0.0))
        lower = np.minimum(place.astype(np.int64), few - 1)
        parts.append((lower, np.minimum(lower + 1, few - 1), (place - lower).astype(np.float32)))
    first, second, share = (np.concatenate(part) for part in zip(*parts))
    return first, second, share


# ---- sum of maps ---------------------------------------------------------------------------------------------


def _enlarge(loop: Any, source: paddle.Tensor, out: paddle.Tensor, size: Size, large: Size) -> paddle.Tensor:
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
        gradient, loop = in_order(gradient), upsampling_kernels.enlarge_gradient
        large = tuple(gradient.shape[1:3])
        found = [_enlarge(loop, gradient, empty(*shape), tuple(shape[1:3]), large) for shape in ctx.shapes]
        return gradient, *found


def sum_enlarged(maps: Sequence[paddle.Tensor]) -> paddle.Tensor:
    """The sum of maps (batch, height, width, channels) at the size of the first. All or none need a gradient."""
    finest, *coarse = map(in_order, maps)
    return differentiable(_EnlargedSum, finest, *coarse) if paddle.is_grad_enabled() else _sum(finest, coarse)


# ---- cross-entropy -------------------------------------------------------------------------------------------


Weights = tuple[float, ...] | None  # of the pixels of each class; None: 1


def _cross_entropy(logits, labels, ignored: int, weights: Weights, slopes: paddle.Tensor | None) -> paddle.Tensor:
    """The sum; ``slopes``, like the logits, receive its gradient."""
    batch, classes, *size = logits.shape
    large = tuple(labels.shape[1:])
    arrays = np.array(weights or (1.0,) * classes, np.float32), *_places(tuple(size), large)
    places = [address(labels), *(array.ctypes.data for array in arrays), address(slopes)]
    total = upsampling_kernels.cross_entropy(address(logits), ignored, *places, batch, classes, tuple(size), large)
    if math.isnan(total):
        _refuse_unknown(labels.numpy(), classes, ignored)
    return paddle.full([], total, "float32")


def _refuse_unknown(labels: np.ndarray, classes: int, ignored: int) -> None:
    unknown = labels[(labels != ignored) & ((labels < 0) | (labels >= classes))]
    if len(unknown):
        raise ValueError(f"label {unknown[0]} is neither one of {classes} classes nor {ignored}, which is none")


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
    """Compute what ``losses.resized_cross_entropy`` returns, without logits of the labels' size."""
    logits, labels = in_order(logits), in_order(labels)
    if paddle.is_grad_enabled() and not logits.stop_gradient:
        return differentiable(_ResizedCrossEntropy, logits, UntrackedTensor(labels), ignored, weights)
    return _cross_entropy(logits, labels, ignored, weights, None)
