"""The coordinate plan of a batch: everything that a network needs to know about its voxels' positions, in arrays.

A loader process builds it with the batch, while the device trains on the previous one. It depends on coordinates only.

A kernel map is kept as lists of pairs: for each kernel offset, the rows that receive and the rows that give. They are
split into blocks of receiving rows: within a block and an offset no row receives twice, so additions need no locks and
none is repeated, and a block's rows stay in cache while all offsets add to them.

For GPUs there are no blocks: the lists of about equal lengths form a group and are filled up to the longest of them, so
that a group is multiplied at once, and nothing has to be arranged on the device. A filling pair gives from
the row after the last, which holds zeros there. Filling pairs receive in turn, one row after the other: additions to
one row have to wait for each other.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...runtime.compiled import compiled
from .coordinate_keys import Steps, along_axes, plainest
from .coordinate_levels import CoordinateLevels, VoxelLevel, is_symmetric

PAIRS, HEADER = "plan_pairs", "plan_header"  # names of the arrays of a packed plan in a batch
_FORMAT = 4
_FEWEST_BLOCK_ROWS = 1024

_LARGEST_FILL = 0.25  # share of a list that may be filling
_SMALL = 256  # pairs that may be filling in any case
_MOST_PAIRS = 1 << 20  # in a group: what is gathered for it takes 256 MB at 64 channels


class MapKey(NamedTuple):
    """One kernel map: which coarse voxel matches which fine voxel at which kernel offset.

    Attributes:
        fine: tensor stride of the finer level.
        coarse: tensor stride of the coarser level, a multiple of ``fine``; equal to it for a stride of 1.
        kernel_size: voxels along each axis.
        dilation: distance between neighboring kernel offsets in units of ``fine``.
    """

    fine: Steps
    coarse: Steps
    kernel_size: Steps
    dilation: Steps = 1

    @property
    def is_symmetric(self) -> bool:
        """If a voxel has a neighbor at offset k, it is that neighbor's neighbor at offset K - 1 - k."""
        return is_symmetric(self.fine, self.coarse, self.kernel_size)

    def num_offsets(self, dimension: int) -> int:
        """Voxels of the kernel."""
        return math.prod(along_axes(self.kernel_size, dimension))


class PlanSpec(NamedTuple):
    """Requirements of a network on each batch's plan.

    Attributes:
        maps: kernel maps, in the order of their first use.
        scene_levels: tensor strides at which each voxel's scene must be known (global pooling).
        block_rows: maximum voxels per block; None: no blocks, but groups of filled lists. As the network's device
            prefers it (``tensor.preferred_block_rows``).
    """

    maps: tuple[MapKey, ...] = ()
    scene_levels: tuple[Steps, ...] = ()
    block_rows: int | None = 8192


class SceneRanges(NamedTuple):
    """Which voxels of a level are whose; arrays, or tensors on the device.

    Attributes:
        numbers: scene number of each voxel, int32 (rows,).
        order: int32 (rows,), the rows by scene; empty if they are in that order already.
        sizes: voxels of each scene.
    """

    numbers: Any
    order: Any
    sizes: list[int]


class PairLists(NamedTuple):
    """Pairs of one kernel map in one direction, as arrays, or as tensors on the device.

    Attributes:
        receivers: int32 (P,), by block, then by kernel offset, then ascending; of groups by group, then as
            ``group_sizes`` orders the offsets, each list filled up to the longest of its group.
        givers: int32 (P,), the row that each of them receives from; the number of giving rows in a filling pair.
        counts: int64 (blocks, K), number of pairs without filling; one block if there are groups.
        is_exclusive: no row receives more than once over all offsets.
        is_grouped: there are groups instead of blocks.
    """

    receivers: Any
    givers: Any
    counts: np.ndarray
    is_exclusive: bool
    is_grouped: bool


class CoordinatePlan:
    """Levels and kernel maps of a batch, built lazily.

    Args:
        coordinates: integers (N, 1 + D), scene number in column 0, D from 1 to 4; no duplicate voxels, in any order.
        num_scenes: scenes of the batch, in case the last ones are empty; None infers it from the largest number
        present.
        block_rows: as in ``PlanSpec``.
        stride: tensor stride of the coordinates, the finest of the plan.

    Raises:
        ValueError: wrong shape or dtype, duplicate voxels, voxels between those of ``stride``, or a scene number not
            below ``num_scenes``.
        UserError: the coordinates lie too far apart for a key.
    """

    def __init__(
        self,
        coordinates: np.ndarray,
        num_scenes: int | None = None,
        block_rows: int | None = 8192,
        stride: Steps = 1,
    ) -> None:
        self._levels = CoordinateLevels(coordinates, stride)
        self.dimension = self._levels.dimension
        self.block_rows = block_rows
        base = self.level(stride).coordinates
        present = int(base[:, 0].max()) + 1 if len(base) else 0
        self.num_scenes = present if num_scenes is None else num_scenes
        if present > self.num_scenes:
            raise ValueError(f"coordinates have scene number {present - 1}, the batch has {self.num_scenes} scenes")

    def level(self, stride: Steps) -> VoxelLevel:
        """The voxels of a tensor stride."""
        return self._levels.level(stride)

    def find(self, stride: Steps, wanted: np.ndarray) -> np.ndarray:
        """As ``CoordinateLevels.find``."""
        return self._levels.find(stride, wanted)

    def scenes(self, stride: Steps) -> SceneRanges:
        """Which voxels of a level are whose."""
        numbers = self.level(stride).coordinates[:, 0].astype(np.int32)
        is_sorted = bool((numbers[1:] >= numbers[:-1]).all())
        order = np.argsort(numbers[:0] if is_sorted else numbers, kind="stable").astype(np.int32)
        return SceneRanges(numbers, order, np.bincount(numbers, minlength=self.num_scenes).tolist())

    def kernel_map(self, key: MapKey) -> tuple[PairLists, ...]:
        """The pairs of a kernel between two levels: to the coarse one and, if the kernel is not symmetric, to the fine
        one; those of a symmetric kernel's center, where every row meets itself, are left out."""
        return tuple(table.lists() for table in self.pair_tables(key))

    def pair_tables(self, key: MapKey) -> "list[PairTable]":
        """The same before they are laid out."""
        coarse, fine = (len(self.level(stride).order) for stride in (key.coarse, key.fine))
        num_offsets = key.num_offsets(self.dimension)
        return self._tables(self._levels.pairs(*key), fine, coarse, num_offsets, key.is_symmetric)

    def map_to(self, stride: Steps, coarse: np.ndarray, offsets: np.ndarray) -> tuple[PairLists, ...]:
        """The pairs, in both directions, of the voxels of a level with any others, wherever one of the level is one of
        these plus an offset: a kernel map between two sets of voxels.

        Args:
            coarse: integers (M, 1 + D), distinct, scene number in column 0.
            offsets: int64 (K, D), of the kernel, in units of the coordinates.
        """
        fine = len(self.level(stride).order)
        found = self._tables(self._levels.pairs_with(stride, coarse, offsets), fine, len(coarse), len(offsets), False)
        return tuple(table.lists() for table in found)

    def _tables(
        self,
        pairs: Iterable[tuple[int, np.ndarray, np.ndarray]],
        fine: int,
        coarse: int,
        num_offsets: int,
        is_symmetric: bool,
    ) -> "list[PairTable]":
        sides = [(coarse, fine)] if is_symmetric else [(coarse, fine), (fine, coarse)]
        tables = [PairTable(*rows, num_offsets, self.block_rows) for rows in sides]
        for k, fine_of, coarse_of in pairs:
            tables[0].add(k, fine_of)
            tables[-1].add(num_offsets - 1 - k if is_symmetric else k, coarse_of)
        return tables


class PairTable:
    """Collects the pairs of a kernel map in one direction, one kernel offset at a time.

    Args:
        num_rows: rows that may receive.
        num_givers: rows that may give.
        num_offsets: of the kernel.
        block_rows: as in ``PlanSpec``.
    """

    def __init__(self, num_rows: int, num_givers: int, num_offsets: int, block_rows: int | None) -> None:
        self.is_grouped = block_rows is None
        self._num_rows, self._num_givers = num_rows, num_givers
        # At least two blocks, unless they would be tiny, so that two threads can share the work.
        blocks = max(num_rows, 1) if block_rows is None else max(_FEWEST_BLOCK_ROWS, -(-num_rows // 2))
        self._block = blocks if block_rows is None else min(block_rows, blocks)
        self.counts = np.zeros((-(-num_rows // self._block), num_offsets), np.int64)
        # By offset in order of arrival. Most of it is never touched, and so takes no memory.
        self._receivers = np.empty(num_rows * num_offsets + 1, np.int32)
        self._givers = np.empty(num_rows * num_offsets + 1, np.int32)
        self._starts = np.zeros(num_offsets, np.int64)
        self._has_received = np.zeros(num_rows, bool)
        self.size = 0

    @property
    def is_exclusive(self) -> bool:
        """No row receives more than once in all."""
        return self.size == np.count_nonzero(self._has_received)

    def add(self, k: int, giver_of: np.ndarray) -> None:
        """Add the row that each row receives from at offset ``k``, int32 (rows,), -1 for none."""
        self._starts[k] = self.size
        self.size = _append(
            giver_of, k, self._block, self._receivers, self._givers, self.size, self.counts, self._has_received
        )

    @property
    def filled_size(self) -> int:
        """Number of pairs with the filling ones."""
        return filled_size(self.counts, self.is_grouped)

    def write(self, receivers: np.ndarray, givers: np.ndarray) -> None:
        """Lay the pairs out as ``PairLists`` has them, in two arrays int32 (filled_size,)."""
        if not self.is_grouped:
            _lay_out(self._receivers, self._givers, self._starts, self.counts, receivers, givers)
            return
        place = filled = 0
        for offsets, sizes in group_lists(self.counts):
            for offset, size in zip(offsets, sizes):
                own, start, filling = slice(place, place + size), self._starts[offset], sizes[0] - size
                receivers[own] = self._receivers[start : start + size]
                givers[own] = self._givers[start : start + size]
                place += sizes[0]
                receivers[own.stop : place] = np.arange(filled, filled + filling) % self._num_rows
                givers[own.stop : place] = self._num_givers
                filled += filling

    def lists(self) -> PairLists:
        """The same in arrays of their own."""
        receivers, givers = np.empty(self.filled_size, np.int32), np.empty(self.filled_size, np.int32)
        self.write(receivers, givers)
        return PairLists(receivers, givers, self.counts, self.is_exclusive, self.is_grouped)


def filled_size(counts: np.ndarray, is_grouped: bool) -> int:
    """Pairs of one direction of a kernel map with the filling ones; ``counts`` as in ``PairLists``."""
    return sum(len(sizes) * sizes[0] for _, sizes in group_lists(counts)) if is_grouped else int(counts.sum())


def group_lists(counts: np.ndarray) -> list[tuple[list[int], list[int]]]:
    """The kernel offsets of each group and their numbers of pairs, the largest first; ``counts`` as in
    ``PairLists``."""
    present = np.flatnonzero(counts.sum(axis=0))
    sizes = counts.sum(axis=0)[present].tolist()
    return [([int(present[n]) for n in members], [sizes[n] for n in members]) for members in group_sizes(sizes)]


def group_sizes(sizes: Sequence[int]) -> list[list[int]]:
    """Numbers of lists with about equal sizes, the largest first."""
    groups: list[list[int]] = []
    for number in sorted(range(len(sizes)), key=lambda n: (-sizes[n], n)):
        if groups:
            largest = sizes[groups[-1][0]]
            is_similar = largest - sizes[number] <= max(_LARGEST_FILL * largest, _SMALL)
            if is_similar and (len(groups[-1]) + 1) * largest <= _MOST_PAIRS:
                groups[-1].append(number)
                continue
        groups.append([number])
    return groups


@compiled
def _append(giver_of, k, block, receivers, givers, size, counts, has_received):
    for number in range(len(counts)):
        before = size
        for row in range(number * block, min((number + 1) * block, len(giver_of))):
            giver = giver_of[row]
            receivers[size] = row  # overwritten by the next if there is no pair: avoids a mispredicted branch
            givers[size] = giver
            size += giver >= 0
            has_received[row] |= giver >= 0
        counts[number, k] = size - before
    return size


@compiled
def _lay_out(receivers, givers, starts, counts, receivers_out, givers_out):
    taken = starts.copy()
    place = 0
    for number in range(counts.shape[0]):
        for k in range(counts.shape[1]):
            count = counts[number, k]
            receivers_out[place : place + count] = receivers[taken[k] : taken[k] + count]
            givers_out[place : place + count] = givers[taken[k] : taken[k] + count]
            taken[k] += count
            place += count


def build_plan(coordinates: np.ndarray, spec: PlanSpec, num_scenes: int | None = None) -> dict[str, Any]:
    """The plan of a batch as an array and its header, sent to the training process with the batch.

    Args:
        coordinates: as for ``CoordinatePlan``.
        spec: from the network's ``plan_spec()``.
        num_scenes: scenes of the batch; None infers it from the largest number in column 0.

    Returns:
        ``{"plan_pairs": int32 (M,), "plan_header": bytes}``. The header is not an array, so that it stays on the host:
        reading it back from a GPU would make each step wait for the previous one.

    Raises:
        ValueError, UserError: as ``CoordinatePlan``.
    """
    plan = CoordinatePlan(coordinates, num_scenes, spec.block_rows)
    header: list[int] = [_FORMAT, plan.dimension, plan.num_scenes, int(spec.block_rows is None)]
    axes = functools.partial(along_axes, dimension=plan.dimension)
    strides = sorted({1, *spec.scene_levels, *(s for key in spec.maps for s in (key.fine, key.coarse))}, key=axes)
    rows = {stride: len(plan.level(stride).order) for stride in strides}
    header += [len(strides), *(value for stride in strides for value in (*axes(stride), rows[stride]))]
    most = sum(2 * key.num_offsets(plan.dimension) * (rows[key.coarse] + rows[key.fine]) for key in spec.maps)
    # Untouched memory is not committed. One extra element, so that the array is not empty for a batch without pairs.
    pairs = np.empty(most + sum(2 * rows[stride] for stride in spec.scene_levels) + 1, np.int32)
    end = 0
    header.append(len(spec.scene_levels))
    for stride in spec.scene_levels:
        numbers, order, sizes = plan.scenes(stride)
        header += [*axes(stride), len(order), *sizes]
        pairs[end : end + len(numbers) + len(order)] = np.concatenate([numbers, order])
        end += len(numbers) + len(order)
    header.append(len(spec.maps))
    for key in spec.maps:
        header += [value for steps in key for value in axes(steps)]
        for table in plan.pair_tables(key):
            header += [int(table.is_exclusive), len(table.counts), *table.counts.ravel().tolist()]
            size = table.filled_size
            table.write(pairs[end : end + size], pairs[end + size : end + 2 * size])
            end += 2 * size
        del table  # its arrays are large, and so are the next one's
    pairs[end] = 0
    return {PAIRS: pairs[: end + 1], HEADER: np.array(header, np.int64).tobytes()}


class PackedPlan(NamedTuple):
    """A plan as ``build_plan`` has packed it.

    Attributes:
        dimension: spatial axes, 1 to 4.
        num_scenes: of the batch.
        rows: number of voxels by tensor stride.
        scenes: by tensor stride, of the levels where they were asked for.
        maps: as ``CoordinatePlan.kernel_map`` has them.
    """

    dimension: int
    num_scenes: int
    rows: dict[Steps, int]
    scenes: dict[Steps, SceneRanges]
    maps: dict[MapKey, tuple[PairLists, ...]]


def unpack_plan(pairs: Any, header: bytes) -> PackedPlan:
    """The plan packed by ``build_plan``, whose arrays are parts of ``pairs``: an array, or a tensor on the device.

    Raises:
        ValueError: ``header`` is not one of ``build_plan``.
    """
    numbers = np.frombuffer(header, np.int64) if len(header) % 8 == 0 else np.empty(0, np.int64)
    values = iter(numbers.tolist())
    if next(values, None) != _FORMAT:
        raise ValueError(f"not the header of a coordinate plan of format {_FORMAT}: {numbers[:8]}")
    dimension, num_scenes, is_grouped = next(values), next(values), bool(next(values))

    def steps() -> Steps:
        return plainest([next(values) for _ in range(dimension)])

    rows = {steps(): next(values) for _ in range(next(values))}
    start, scenes = 0, {}
    for _ in range(next(values)):
        stride, ordered = steps(), next(values)
        middle, end = start + rows[stride], start + rows[stride] + ordered
        scenes[stride] = SceneRanges(pairs[start:middle], pairs[middle:end], [next(values) for _ in range(num_scenes)])
        start = end
    maps: dict[MapKey, tuple[PairLists, ...]] = {}
    for _ in range(next(values)):
        key = MapKey(*(steps() for _ in MapKey._fields))
        num_offsets = key.num_offsets(dimension)
        directions = []
        for _ in range(1 if key.is_symmetric else 2):
            is_exclusive, blocks = bool(next(values)), next(values)
            counts = np.array([next(values) for _ in range(blocks * num_offsets)], np.int64).reshape(
                blocks, num_offsets
            )
            middle, end = (start + side * filled_size(counts, is_grouped) for side in (1, 2))
            directions.append(PairLists(pairs[start:middle], pairs[middle:end], counts, is_exclusive, is_grouped))
            start = end
        maps[key] = tuple(directions)
    return PackedPlan(dimension, num_scenes, rows, scenes, maps)
