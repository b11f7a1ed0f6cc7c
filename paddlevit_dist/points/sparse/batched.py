"""The arithmetic of sparse convolution in few large operations, for devices that wait longer for a launch than for it.

The kernel offsets are grouped by their numbers of pairs. Each group is one gather, one batched product and one addition
to the receiving rows, instead of three operations per offset; lists are filled up to the longest of their group with
pairs that give a row of zeros. Rows that receive several times within a group are summed in no particular order: on a
GPU the last bits may differ from run to run.
"""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

import paddle

from ...autocast import as_dtype
from .kernel_map import Direction, Group

_LARGEST_FILL = 0.25  # share of a list that may be filling
_SMALL = 256  # pairs that may be filling in any case
_MOST_PAIRS = 1 << 20  # in a group: what is gathered for it takes 256 MB at 64 channels


class Product(NamedTuple):
    """What ``receive`` needs of one direction of a convolution.

    Attributes:
        direction: the pairs.
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
    if not any(work.direction.blocks):
        return
    with_zeros = paddle.concat([source, paddle.zeros([1, source.shape[1]], dtype=source.dtype)])
    for group in groups_of(work.direction, source.shape[0]):
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


def groups_of(direction: Direction, zero_row: int) -> List[Group]:
    """The groups of a direction, kept with it. ``zero_row`` is the number of giving rows, which is also that of the row
    of zeros."""
    lists = [pairs for block in direction.blocks for pairs in block]
    if not direction.groups and lists:
        sizes = [pairs.receivers.shape[0] for pairs in lists]
        receivers = paddle.concat([pairs.receivers for pairs in lists])
        givers = paddle.concat([*(pairs.givers for pairs in lists), paddle.full([1], zero_row, "int32")])
        starts = [sum(sizes[:number]) for number in range(len(sizes))]
        for members in grouped(sizes):
            places, is_pair = _places([starts[m] for m in members], [sizes[m] for m in members])
            giving = paddle.where(is_pair, places, paddle.full_like(places, sum(sizes)))
            receiving = paddle.where(is_pair, places, paddle.zeros_like(places))
            offsets = [lists[member].offset for member in members]
            direction.groups.append(Group(offsets, paddle.gather(receivers, receiving), paddle.gather(givers, giving)))
    return direction.groups


def _places(starts: List[int], sizes: List[int]) -> Tuple[paddle.Tensor, paddle.Tensor]:
    """Where each pair of lists of unequal sizes is, and whether there is one: int32 and bool (lists * longest,)."""
    begin, size = paddle.to_tensor([starts, sizes], dtype="int32").unsqueeze(-1).unbind(0)  # each (lists, 1)
    steps = paddle.arange(max(sizes), dtype="int32").unsqueeze(0)  # (1, longest)
    return (begin + steps).reshape([-1]), (steps < size).reshape([-1])


def grouped(sizes: Sequence[int]) -> List[List[int]]:
    """Numbers of lists with about equal sizes, the largest first."""
    groups: List[List[int]] = []
    for number in sorted(range(len(sizes)), key=lambda n: (-sizes[n], n)):
        if groups:
            largest = sizes[groups[-1][0]]
            is_similar = largest - sizes[number] <= max(_LARGEST_FILL * largest, _SMALL)
            if is_similar and (len(groups[-1]) + 1) * largest <= _MOST_PAIRS:
                groups[-1].append(number)
                continue
        groups.append([number])
    return groups
