"""Kernel maps on the device: the lists of pairs as tensors, split by block and kernel offset."""

from __future__ import annotations

from typing import Iterator, List, NamedTuple

import numpy as np
import paddle

from ...transfers import to_device
from .coordinate_plan import MapKey, PackedLists, PairLists, filled_size, grouped_lists


class Pairs(NamedTuple):
    """The pairs of one kernel offset in one block: int32 tensors (P,) of receiving and giving rows."""

    offset: int
    receivers: paddle.Tensor
    givers: paddle.Tensor


class Group(NamedTuple):
    """Lists of pairs of about equal lengths, filled up to the longest: int32 tensors (lists * longest,), list by list.

    Attributes:
        offsets: the kernel offset of each list.
        sizes: pairs of each list without filling, the largest first.
        receivers: any rows where there is no pair.
        givers: the number of giving rows where there is no pair.
    """

    offsets: List[int]
    sizes: List[int]
    receivers: paddle.Tensor
    givers: paddle.Tensor

    def lists(self) -> Iterator[Pairs]:
        """Each list without what fills it."""
        for number, (offset, size) in enumerate(zip(self.offsets, self.sizes)):
            start = number * self.sizes[0]
            yield Pairs(offset, self.receivers[start : start + size], self.givers[start : start + size])


class Direction(NamedTuple):
    """A kernel map in one direction on the device, by blocks or by groups.

    Attributes:
        blocks: of receiving rows, each with its pairs for those kernel offsets that have any. The receiving rows of
            different blocks are different, and so are those within one ``Pairs``. Empty if there are groups.
        is_exclusive: no row receives more than once over all offsets.
        groups: of lists, for ``batched.py``.
    """

    blocks: List[List[Pairs]]
    is_exclusive: bool
    groups: List[Group]

    def lists(self) -> Iterator[Pairs]:
        """Every list of pairs."""
        for block in self.blocks:
            yield from block
        for group in self.groups:
            yield from group.lists()


class KernelMap(NamedTuple):
    """Both directions of a kernel map. A symmetric one has the same lists in both, without the centre's."""

    key: MapKey
    num_offsets: int
    to_coarse: Direction
    to_fine: Direction


def direction_of_arrays(lists: PairLists) -> Direction:
    """From the lists of a ``CoordinatePlan``."""
    pairs = to_device(np.concatenate([lists.receivers, lists.givers, np.zeros(1, np.int32)]))
    return direction_of_pairs(PackedLists(0, lists.counts, lists.is_exclusive, lists.is_grouped), pairs)


def direction_of_pairs(lists: PackedLists, pairs: paddle.Tensor) -> Direction:
    """From the contents of ``pairs``, int32 (M,); all tensors are created by few operations."""
    counts, total = lists.counts, filled_size(lists.counts, lists.is_grouped)
    blocks: List[List[Pairs]] = [[] for _ in counts]
    if not total:
        return Direction(blocks, lists.is_exclusive, [])
    ends = [lists.start + total, lists.start + 2 * total]
    both = pairs[lists.start : ends[0]], pairs[ends[0] : ends[1]]
    if lists.is_grouped:
        members = grouped_lists(counts)
        parts = [paddle.split(side, [len(sizes) * sizes[0] for _, sizes in members]) for side in both]
        return Direction([], lists.is_exclusive, [Group(*own, *sides) for own, *sides in zip(members, *parts)])
    receivers, givers = (paddle.split(side, counts[counts > 0].tolist()) for side in both)
    for (block, offset), receiving, giving in zip(np.argwhere(counts > 0).tolist(), receivers, givers):
        blocks[block].append(Pairs(offset, receiving, giving))
    return Direction(blocks, lists.is_exclusive, [])
