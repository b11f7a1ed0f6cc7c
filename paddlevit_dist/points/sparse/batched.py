"""The arithmetic of sparse convolution in few large operations, for devices that wait longer for a launch than for it.

The kernel offsets are grouped by their numbers of pairs (``coordinate_plan.py``). Each group is one gather, one batched
product and one addition to the receiving rows, instead of three operations per offset. Rows that receive several times
within a group are summed in no particular order: on a GPU the last bits may differ from run to run.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional, Sequence

import paddle

from ...autocast import as_dtype
from .kernel_map import Direction


class Product(NamedTuple):
    """What ``receive`` needs of one direction of a convolution.

    Attributes:
        direction: the pairs, in groups.
        matrix_numbers: for each kernel offset, the number of its matrix.
        sum_dtype: that products, of the dtype of their factors, are summed in.
    """

    direction: Direction
    matrix_numbers: Sequence[int]
    sum_dtype: Any


def receive(
    source: paddle.Tensor,
    matrices: Optional[Sequence[paddle.Tensor]],
    work: Product,
    received: Optional[paddle.Tensor],
    features: Optional[paddle.Tensor],
    add: Callable[[int, paddle.Tensor], None],
) -> None:
    """Add to ``received`` (rows, C_out), in place, what its rows receive from those of ``source`` (n, C_in).

    Args:
        matrices: (C_in, C_out) each; None, as ``received``, if only the sums below are wanted.
        features: (rows, C); None: no sums. Otherwise, for each list of pairs, ``add(number of its matrix, sum)`` gets
            the sum over the pairs of the receiving row of ``features`` times the giving row, (C, C_in).
    """
    if not work.direction.groups:
        return
    # Filling pairs give from the row after the last.
    with_zeros = paddle.concat([source, paddle.zeros([1, source.shape[1]], dtype=source.dtype)])
    for group in work.direction.groups:
        numbers = [work.matrix_numbers[offset] for offset in group.offsets]
        shape = [len(numbers), -1, source.shape[1]]
        given = paddle.gather(with_zeros, group.givers).reshape(shape)  # (lists, pairs, C_in)
        if features is not None:
            own = paddle.gather(features, group.receivers).reshape([*shape[:2], features.shape[1]])
            sums = as_dtype(paddle.matmul(own, given, transpose_x=True), work.sum_dtype)  # (lists, C, C_in)
            for number, of_list in zip(numbers, paddle.unbind(sums, 0)):
                add(number, of_list)
        if received is not None and matrices is not None:
            products = paddle.bmm(given, paddle.stack([matrices[number] for number in numbers]))
            products = as_dtype(products.reshape([-1, received.shape[1]]), work.sum_dtype)
            received.index_add_(group.receivers, 0, products)
