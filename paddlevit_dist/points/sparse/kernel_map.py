"""Kernel maps on the device: the lists of pairs as tensors, split by block and kernel offset."""

from __future__ import annotations

from typing import List, NamedTuple

import numpy as np
import paddle

from .coordinate_plan import MapKey, PackedLists, PairLists


class Pairs(NamedTuple):
    """The pairs of one kernel offset in one block: int32 tensors (P,) of receiving and giving rows."""

    offset: int
    receivers: paddle.Tensor
    givers: paddle.Tensor


class Group(NamedTuple):
    """Lists of pairs of about equal lengths, filled up to the longest: int32 tensors (lists * longest,), list by list.

    Attributes:
        offsets: the kernel offset of each list.
        receivers: 0 where there is no pair.
        givers: the number of giving rows where there is no pair.
    """

    offsets: List[int]
    receivers: paddle.Tensor
    givers: paddle.Tensor


class Direction(NamedTuple):
    """A kernel map in one direction on the device.

    Attributes:
        blocks: of receiving rows, each with its pairs for those kernel offsets that have any. The receiving rows of
            different blocks are different, and so are those within one ``Pairs``.
        is_exclusive: no row receives more than once over all offsets.
        groups: the same pairs for ``batched.py``; empty until it needs them.
    """

    blocks: List[List[Pairs]]
    is_exclusive: bool
    groups: List[Group]


class KernelMap(NamedTuple):
    """Both directions of a kernel map. A symmetric one has the same lists in both, without the centre's."""

    key: MapKey
    num_offsets: int
    to_coarse: Direction
    to_fine: Direction


def direction_of_arrays(lists: PairLists) -> Direction:
    """From the lists of a ``CoordinatePlan``."""
    pairs = paddle.to_tensor(np.concatenate([lists.receivers, lists.givers, np.zeros(1, np.int32)]))
    return direction_of_pairs(PackedLists(0, lists.counts, lists.is_exclusive), pairs)


def direction_of_pairs(lists: PackedLists, pairs: paddle.Tensor) -> Direction:
    """From the contents of ``pairs``, int32 (M,); all tensors are created by two operations."""
    total = int(lists.counts.sum())
    blocks: List[List[Pairs]] = [[] for _ in lists.counts]
    present = np.argwhere(lists.counts > 0).tolist()  # [block, offset], by block
    if present:
        sizes = lists.counts[lists.counts > 0].tolist()
        ends = [lists.start + total, lists.start + 2 * total]
        receivers = paddle.split(pairs[lists.start : ends[0]], sizes)
        givers = paddle.split(pairs[ends[0] : ends[1]], sizes)
        for (block, offset), receiving, giving in zip(present, receivers, givers):
            blocks[block].append(Pairs(offset, receiving, giving))
    return Direction(blocks, lists.is_exclusive, [])
