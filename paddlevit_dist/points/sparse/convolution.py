"""Sparse convolution: gather, matrix product, and a store to rows that no other thread writes.

For every block of output rows and every kernel offset: gather the input rows, multiply them by the offset's matrix, add
to the output rows. Within one offset no output row occurs twice, so the addition is a gather of the rows, a product
accumulated in place, and a store, with no scatter-add. The backward pass uses the other direction of the kernel map.
Only existing pairs are multiplied, about 12 of 27 in rooms, and no temporary is larger than a block.

GPUs prefer a plan with groups instead of blocks, because a kernel launch costs more than the work. The lists of a group
are multiplied at once: one gather, one batched product and one addition to the receiving rows, instead of three
operations per offset. The order in which several contributions to one row are summed within a group is not fixed, so
the last bits may differ from run to run on a GPU.
"""

import functools
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import paddle

from ...launch import tuning
from ...runtime import autocast
from ...runtime.autocast import as_dtype, product_dtype
from .device_plan import KernelDirection, KernelMap, KernelPairs


def _threads() -> int:
    """Return the number of threads that share the blocks of a convolution: on a CPU, those assigned to this process."""
    if paddle.get_device() != "cpu":
        return 1
    return max(1, paddle.get_flags(["FLAGS_paddle_num_threads"])["FLAGS_paddle_num_threads"])


class _ConvolutionPass(NamedTuple):
    """One direction of a convolution: pairs of receiving and giving rows, and the matrix of each kernel offset.

    Attributes:
        direction: the pairs.
        matrix_numbers: for each kernel offset, the number of its matrix.
        center: number of the matrix through which every row receives from itself; None if there is none.
    """

    direction: KernelDirection
    matrix_numbers: Sequence[int]
    center: int | None


def convolve(
    features: paddle.Tensor,
    weight: paddle.Tensor,
    kernel_map: KernelMap,
    rows: int,
    *,
    to_fine: bool = False,
    weight_order: Sequence[int] | None = None,
) -> paddle.Tensor:
    """Compute a sparse convolution, ``out[u] = sum over k of in[u + offset_k] @ weight[k]``, or its transpose.

    Under mixed precision, products are computed in half precision. Each row's sum over kernel offsets and the weight's
    gradient are accumulated in the weight's dtype and rounded once: GPUs add half precision to scattered rows slowly,
    and 27 roundings would cost a digit.

    Args:
        features: (rows of the input level, C_in).
        weight: (K, C_in, C_out).
        kernel_map: kernel map between the two levels.
        rows: number of rows of the output level.
        to_fine: compute the transpose, ``out[u + offset_k] += in[u] @ weight[k]``, from coarse to fine rows.
        weight_order: number of each kernel offset's matrix in ``weight``; None means 0 .. K - 1.

    Returns:
        (rows, C_out), in the dtype of products.
    """
    order = list(range(kernel_map.num_offsets)) if weight_order is None else list(weight_order)
    if kernel_map.is_symmetric:
        center = order[len(order) // 2]
        passes = [_ConvolutionPass(kernel_map.to_coarse, numbers, center) for numbers in (order, order[::-1])]
    else:
        passes = [
            _ConvolutionPass(kernel_map.to_coarse, order, None),
            _ConvolutionPass(kernel_map.to_fine, order, None),
        ]
    forward, backward = passes[::-1] if to_fine else passes
    features = as_dtype(features, product_dtype() or weight.dtype)
    return _SparseConvolutionFunction.apply(features, weight, forward, backward, rows)


class _SparseConvolutionFunction(paddle.autograd.PyLayer):
    """Sparse convolution with the pairs of one direction in the forward pass and of the other in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
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
            return _receive(features, _matrices(weight, features), forward, rows, weight.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> tuple[paddle.Tensor | None, paddle.Tensor | None]:
        features, weight = ctx.saved_tensor()
        needs_features, needs_weight = ctx.needs_gradient
        with paddle.no_grad(), autocast.off():
            transposed = _matrices(weight.transpose([0, 2, 1]), features) if needs_features else None
            outer = _OuterProducts(features, gradient, ctx.backward_pass.center, weight) if needs_weight else None
            features_gradient = _receive(
                gradient, transposed, ctx.backward_pass, features.shape[0], weight.dtype, outer
            )
            return features_gradient, None if outer is None else outer.stack_products(weight)


def _matrices(weight: paddle.Tensor, features: paddle.Tensor) -> list[paddle.Tensor]:
    """Return the K matrices of a weight (K, C_in, C_out), in the dtype of the features."""
    return paddle.unbind(as_dtype(weight, features.dtype), 0)


class _OuterProducts:
    """Gradient of the weight: for each matrix the sum over its pairs of a feature row times a gradient row."""

    def __init__(
        self, features: paddle.Tensor, gradient: paddle.Tensor, center: int | None, weight: paddle.Tensor
    ) -> None:
        self.features = features
        self.sums: dict[int, paddle.Tensor] = {}  # (C_in, C_out) by number of the matrix, in the weight's dtype
        if center is not None and features.shape[0]:
            self.sums[center] = as_dtype(paddle.matmul(features, gradient, transpose_x=True), weight.dtype)

    def merge(self, sums: Iterable[tuple[int, paddle.Tensor]]) -> None:
        """Add (number of the matrix, (C_in, C_out)) pairs to the sums."""
        for number, value in sums:
            _add(self.sums, number, value)

    def stack_products(self, weight: paddle.Tensor) -> paddle.Tensor:
        """Return the gradient (K, C_in, C_out), zeros for matrices without pairs."""
        zeros = paddle.zeros(weight.shape[1:], dtype=weight.dtype)
        return paddle.stack([self.sums.get(number, zeros) for number in range(weight.shape[0])])


def _add(sums: dict[int, paddle.Tensor], number: int, value: paddle.Tensor) -> None:
    sums[number] = sums[number].add_(value) if number in sums else value


def _receive(
    source: paddle.Tensor,
    matrices: Sequence[paddle.Tensor] | None,
    work: _ConvolutionPass,
    rows: int,
    sum_dtype: Any,
    outer: _OuterProducts | None = None,
) -> paddle.Tensor | None:
    """Return the sum (rows, C_out) that each of ``rows`` rows receives from ``source``; None without ``matrices``.

    The sum is accumulated in ``sum_dtype`` and returned in the dtype of ``source``.
    If ``outer`` is given, its sums are accumulated from the same gathered rows.
    """
    received = None
    if matrices is not None:
        if work.center is not None and rows:
            received = as_dtype(paddle.matmul(source, matrices[work.center]), sum_dtype)
        else:
            received = paddle.zeros([rows, matrices[0].shape[1]], dtype=sum_dtype)
    if work.direction.groups:
        _receive_in_groups(source, matrices, work, received, sum_dtype, outer)
        return received if received is None else as_dtype(received, source.dtype)
    adds = work.center is not None or not work.direction.is_exclusive

    def process_blocks(blocks: Sequence[list[KernelPairs]]) -> dict[int, paddle.Tensor]:
        sums: dict[int, paddle.Tensor] = {}
        for block in blocks:
            for offset, receivers, givers in block:
                number = work.matrix_numbers[offset]
                gathered = paddle.gather(source, givers)  # (P, C_in)
                if outer is not None:
                    outer_rows = paddle.gather(outer.features, receivers)
                    _add(sums, number, as_dtype(paddle.matmul(outer_rows, gathered, transpose_x=True), sum_dtype))
                if received is None or matrices is None:
                    continue
                if adds and source.dtype == sum_dtype:
                    total = paddle.gather(received, receivers)  # (P, C_out)
                    total.addmm_(gathered, matrices[number])
                else:
                    total = as_dtype(paddle.matmul(gathered, matrices[number]), sum_dtype)
                    total = paddle.gather(received, receivers) + total if adds else total
                paddle.scatter_(received, receivers, total)
        return sums

    for sums in _share(process_blocks, work.direction.blocks):
        if outer is not None:
            outer.merge(sums.items())
    return received if received is None else as_dtype(received, source.dtype)


def _receive_in_groups(
    source: paddle.Tensor,
    matrices: Sequence[paddle.Tensor] | None,
    work: _ConvolutionPass,
    received: paddle.Tensor | None,
    sum_dtype: Any,
    outer: _OuterProducts | None,
) -> None:
    """Add the contributions of all groups to ``received`` (rows, C_out) in place; arguments like ``_receive``'s."""
    # Padding pairs give from the row after the last one, which holds zeros.
    with_zeros = paddle.concat([source, paddle.zeros([1, source.shape[1]], dtype=source.dtype)])
    for group in work.direction.groups:
        numbers = [work.matrix_numbers[offset] for offset in group.offsets]
        shape = [len(numbers), -1, source.shape[1]]
        gathered = paddle.gather(with_zeros, group.givers).reshape(shape)  # (lists, pairs, C_in)
        if outer is not None:
            outer_rows = paddle.gather(outer.features, group.receivers).reshape([*shape[:2], outer.features.shape[1]])
            sums = as_dtype(paddle.matmul(outer_rows, gathered, transpose_x=True), sum_dtype)  # (lists, C, C_in)
            outer.merge(zip(numbers, paddle.unbind(sums, 0)))
        if received is not None and matrices is not None:
            products = paddle.bmm(gathered, paddle.stack([matrices[number] for number in numbers]))
            products = as_dtype(products.reshape([-1, received.shape[1]]), sum_dtype)
            received.index_add_(group.receivers, 0, products)


def _share(process_blocks: Callable[[Sequence[list[KernelPairs]]], Any], blocks: list[list[KernelPairs]]) -> list[Any]:
    """Run each thread's share of the blocks; the partition does not change between calls.

    Paddle's operations release the interpreter's lock, and blocks write different rows.
    """
    threads = min(_threads(), len(blocks))
    if threads <= 1:
        return [process_blocks(blocks)]
    parts = [blocks[number::threads] for number in range(threads)]

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
