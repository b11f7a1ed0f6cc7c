"""Sparse convolution by gather-GEMM-scatter over kernel maps (in/out pairs per kernel offset, as in MinkowskiEngine).

For every block of output rows and every kernel offset: gather the input rows, multiply them by the offset's matrix, add
to the output rows. Within one offset no output row occurs twice, so the addition is a gather of the rows, a product
accumulated in place, and a store, with no scatter-add. Each block is written by one thread. The backward pass uses the
other direction of the kernel map. Only existing pairs are multiplied, about 12 of 27 in rooms, and no temporary is
larger than a block.

On GPUs, kernel offsets with similar numbers of pairs are padded to one length and multiplied by one batched GEMM
(``PairGroup``; TorchSparse's adaptive grouping), because a kernel launch costs more than the work. A group takes one
gather, one batched product and one addition to the output rows, instead of three operations per offset. The order in
which several contributions to one row are summed within a group is not fixed, so the last bits may differ from run to
run.
"""

import functools
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import paddle
from paddle.autograd import PyLayerContext

from ...core.launch import tuning
from ...core.runtime import autocast
from ...core.runtime.autocast import as_dtype, product_dtype
from .device_plan import KernelDirection, KernelMap, KernelPairs


def _threads() -> int:
    """Return the number of threads that share the blocks of a convolution: on a CPU, those assigned to this process."""
    if paddle.get_device() != "cpu":
        return 1
    return max(1, paddle.get_flags(["FLAGS_paddle_num_threads"])["FLAGS_paddle_num_threads"])


class _ConvolutionPass(NamedTuple):
    """One direction of a convolution: pairs of output and input rows, and the matrix of each kernel offset.

    Rows are named by this pass: the backward pass reads the gradient of the convolution's output ("in" rows) and writes
    the gradient of its input ("out" rows).
    """

    direction: KernelDirection  # the pairs
    matrix_indices: Sequence[int]  # for each kernel offset, the index of its matrix in the weight
    center: int | None  # index of the matrix that multiplies each row into the same output row; None if there is none


def convolve(
    features: paddle.Tensor,
    weight: paddle.Tensor,
    kernel_map: KernelMap,
    rows: int,
    *,
    transposed: bool = False,
    weight_order: Sequence[int] | None = None,
) -> paddle.Tensor:
    """Compute a sparse convolution, ``out[u] = sum over k of in[u + offset_k] @ weight[k]``, or its transpose.

    Under mixed precision, products are computed in half precision. Each row's sum over kernel offsets and the weight's
    gradient are accumulated in the weight's dtype and rounded once: GPUs add half precision to scattered rows slowly,
    and 27 roundings would cost a digit. Returns (rows, C_out), in the dtype of products.

    Args:
        features: (rows of the input level, C_in).
        weight: (K, C_in, C_out).
        kernel_map: kernel map between the two levels.
        rows: number of rows of the output level.
        transposed: compute the transpose, ``out[u + offset_k] += in[u] @ weight[k]``, from coarse to fine rows.
        weight_order: index of each kernel offset's matrix in ``weight``; None means 0 .. K - 1.
    """
    order = list(range(kernel_map.num_offsets)) if weight_order is None else list(weight_order)
    if kernel_map.is_symmetric:
        center = order[len(order) // 2]
        # Stride 1: the transposed map has the same pairs, with mirrored offsets.
        passes = [_ConvolutionPass(kernel_map.to_coarse, indices, center) for indices in (order, order[::-1])]
    else:
        passes = [
            _ConvolutionPass(kernel_map.to_coarse, order, None),
            _ConvolutionPass(kernel_map.to_fine, order, None),
        ]
    forward, backward = passes[::-1] if transposed else passes
    features = as_dtype(features, product_dtype() or weight.dtype)
    return _SparseConvolutionFunction.apply(features, weight, forward, backward, rows)


class _SparseConvolutionFunction(paddle.autograd.PyLayer):
    """Sparse convolution with the pairs of one direction in the forward pass and of the other in the backward pass."""

    @staticmethod
    def forward(
        ctx: PyLayerContext,
        features: paddle.Tensor,
        weight: paddle.Tensor,
        forward: _ConvolutionPass,
        backward: _ConvolutionPass,
        rows: int,
    ) -> paddle.Tensor:
        ctx.save_for_backward(features, weight)
        ctx.backward_pass = backward
        ctx.needs_gradient = (not features.stop_gradient, not weight.stop_gradient)
        with paddle.no_grad(), autocast.off():
            return _multiply_pairs(features, _matrices(weight, features), forward, rows, weight.dtype)

    @staticmethod
    def backward(ctx: PyLayerContext, gradient: paddle.Tensor) -> tuple[paddle.Tensor | None, paddle.Tensor | None]:
        features, weight = ctx.saved_tensor()
        needs_features, needs_weight = ctx.needs_gradient
        with paddle.no_grad(), autocast.off():
            matrices = _matrices(weight.transpose([0, 2, 1]), features) if needs_features else None
            center = ctx.backward_pass.center
            weight_gradient = _WeightGradient(features, gradient, center, weight) if needs_weight else None
            features_gradient = _multiply_pairs(
                gradient, matrices, ctx.backward_pass, features.shape[0], weight.dtype, weight_gradient
            )
            return features_gradient, None if weight_gradient is None else weight_gradient.stack_sums(weight)


def _matrices(weight: paddle.Tensor, features: paddle.Tensor) -> list[paddle.Tensor]:
    """Return the K matrices of a weight (K, C_in, C_out), in the dtype of the features."""
    return paddle.unbind(as_dtype(weight, features.dtype), 0)


class _WeightGradient:
    """Gradient of the weight: for each matrix the sum over its pairs of a feature row times a gradient row."""

    def __init__(
        self, features: paddle.Tensor, gradient: paddle.Tensor, center: int | None, weight: paddle.Tensor
    ) -> None:
        self.features = features
        self.sums: dict[int, paddle.Tensor] = {}  # (C_in, C_out) by index of the matrix, in the weight's dtype
        if center is not None and features.shape[0]:
            self.sums[center] = as_dtype(paddle.matmul(features, gradient, transpose_x=True), weight.dtype)

    def merge(self, sums: Iterable[tuple[int, paddle.Tensor]]) -> None:
        """Add (index of the matrix, (C_in, C_out)) pairs to the sums."""
        for index, value in sums:
            _add(self.sums, index, value)

    def stack_sums(self, weight: paddle.Tensor) -> paddle.Tensor:
        """Return the gradient (K, C_in, C_out), zeros for matrices without pairs."""
        zeros = paddle.zeros(weight.shape[1:], dtype=weight.dtype)
        return paddle.stack([self.sums.get(index, zeros) for index in range(weight.shape[0])])


def _add(sums: dict[int, paddle.Tensor], index: int, value: paddle.Tensor) -> None:
    sums[index] = sums[index].add_(value) if index in sums else value


def _multiply_pairs(
    source: paddle.Tensor,
    matrices: Sequence[paddle.Tensor] | None,
    direction_pass: _ConvolutionPass,
    rows: int,
    sum_dtype: paddle.dtype,
    weight_gradient: _WeightGradient | None = None,
) -> paddle.Tensor | None:
    """Return for each output row the sum of products of input rows (n, C_in) and matrices (C_in, C_out), or None.

    The sums are accumulated in ``sum_dtype`` and returned in the dtype of ``source``. ``weight_gradient`` is
    accumulated from the same gathered rows. Without ``matrices`` there is no result.
    """
    result = None
    if matrices is not None:
        if direction_pass.center is not None and rows:
            result = as_dtype(paddle.matmul(source, matrices[direction_pass.center]), sum_dtype)
        else:
            result = paddle.zeros([rows, matrices[0].shape[1]], dtype=sum_dtype)
    if direction_pass.direction.groups:
        _multiply_groups(source, matrices, direction_pass, result, sum_dtype, weight_gradient)
        return result if result is None else as_dtype(result, source.dtype)
    # Otherwise each row is written at most once.
    accumulates = direction_pass.center is not None or not direction_pass.direction.is_exclusive

    def process_blocks(blocks: Sequence[list[KernelPairs]]) -> dict[int, paddle.Tensor]:
        sums: dict[int, paddle.Tensor] = {}
        for block in blocks:
            for offset, out_rows, in_rows in block:
                index = direction_pass.matrix_indices[offset]
                gathered = paddle.gather(source, in_rows)  # (P, C_in)
                if weight_gradient is not None:
                    features = paddle.gather(weight_gradient.features, out_rows)
                    _add(sums, index, as_dtype(paddle.matmul(features, gathered, transpose_x=True), sum_dtype))
                if result is None or matrices is None:
                    continue
                if accumulates and source.dtype == sum_dtype:
                    total = paddle.gather(result, out_rows)  # (P, C_out)
                    total.addmm_(gathered, matrices[index])
                else:
                    total = as_dtype(paddle.matmul(gathered, matrices[index]), sum_dtype)
                    total = paddle.gather(result, out_rows) + total if accumulates else total
                paddle.scatter_(result, out_rows, total)
        return sums

    for sums in _share(process_blocks, direction_pass.direction.blocks):
        if weight_gradient is not None:
            weight_gradient.merge(sums.items())
    return result if result is None else as_dtype(result, source.dtype)


def _multiply_groups(
    source: paddle.Tensor,
    matrices: Sequence[paddle.Tensor] | None,
    direction_pass: _ConvolutionPass,
    result: paddle.Tensor | None,
    sum_dtype: paddle.dtype,
    weight_gradient: _WeightGradient | None,
) -> None:
    """Add the products of all groups to ``result`` (rows, C_out) in place; arguments like ``_multiply_pairs``'s."""
    # Padding pairs read the row after the last one, which contains zeros.
    with_zeros = paddle.concat([source, paddle.zeros([1, source.shape[1]], dtype=source.dtype)])
    for group in direction_pass.direction.groups:
        indices = [direction_pass.matrix_indices[offset] for offset in group.offsets]
        shape = [len(indices), -1, source.shape[1]]
        gathered = paddle.gather(with_zeros, group.in_rows).reshape(shape)  # (lists, pairs, C_in)
        if weight_gradient is not None:
            features = paddle.gather(weight_gradient.features, group.out_rows)
            features = features.reshape([*shape[:2], features.shape[1]])  # (lists, pairs, C)
            sums = as_dtype(paddle.matmul(features, gathered, transpose_x=True), sum_dtype)  # (lists, C, C_in)
            weight_gradient.merge(zip(indices, paddle.unbind(sums, 0)))
        if result is not None and matrices is not None:
            products = paddle.bmm(gathered, paddle.stack([matrices[index] for index in indices]))
            products = as_dtype(products.reshape([-1, result.shape[1]]), sum_dtype)
            result.index_add_(group.out_rows, 0, products)


def _share(process_blocks: Callable[[Sequence[list[KernelPairs]]], Any], blocks: list[list[KernelPairs]]) -> list[Any]:
    """Run each thread's share of the blocks; the partition does not change between calls.

    Paddle's operations release the interpreter's lock, and blocks write different rows.
    """
    threads = min(_threads(), len(blocks))
    if threads <= 1:
        return [process_blocks(blocks)]
    parts = [blocks[first::threads] for first in range(threads)]

    def process_in_thread(part: list[list[KernelPairs]]) -> Any:
        with paddle.no_grad(), tuning.one_thread_here():  # both settings are thread-local
            return process_blocks(part)

    executor = _executor(threads - 1, os.getpid())
    futures = [executor.submit(process_in_thread, part) for part in parts[1:]]
    return [process_in_thread(parts[0]), *(future.result() for future in futures)]


@functools.cache
def _executor(threads: int, process: int) -> ThreadPoolExecutor:
    """Return idle worker threads; a forked process needs new ones because threads are not inherited."""
    return ThreadPoolExecutor(threads, thread_name_prefix="sparse convolution")
