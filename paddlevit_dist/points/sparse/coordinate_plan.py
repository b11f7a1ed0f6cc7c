"""The coordinate plan of a batch: the tables about voxel positions that a network needs, as arrays.

A loader process builds it with the batch, while the device trains on the previous one. It depends on coordinates only.

A kernel map is stored as lists of pairs: for each kernel offset, the output rows and the input rows. The lists are
split into blocks of output rows. Within a block and an offset no output row occurs twice, so additions need no locks,
and a block's rows stay in cache while all offsets add to them.

Plans for GPUs have no blocks: lists of similar lengths form a group and are padded to the longest of them, so that a
group is multiplied at once and nothing has to be arranged on the device. A padding pair reads the row after the last
one, which contains zeros. The output rows of padding pairs cycle through all rows, because additions to the same row
have to wait for each other.
"""

import functools
import math
import zlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.runtime.compiled import compiled
from .coordinate_keys import Steps, along_axes, simplify_steps
from .coordinate_levels import CoordinateLevels, VoxelLevel, is_symmetric

if TYPE_CHECKING:
    import paddle

PAIRS, HEADER = "plan_pairs", "plan_header"  # keys of a packed plan in a batch
_FORMAT = 5
_MIN_BLOCK_ROWS = 1024

_MAX_PADDING_RATIO = 0.25  # fraction of a list that may be padding
_MIN_PADDING = 256  # padding pairs that are always allowed
_MAX_GROUP_PAIRS = 1 << 20  # the gathered rows of a group take 256 MB at 64 channels


class MapKey(NamedTuple):
    """Key of a kernel map: two levels and the kernel that connects them."""

    fine: Steps  # tensor stride of the finer level
    coarse: Steps  # tensor stride of the coarser level, a multiple of ``fine``; equal to it for a stride of 1
    kernel_size: Steps  # voxels along each axis
    dilation: Steps = 1  # distance between neighboring kernel offsets in units of ``fine``

    @property
    def is_symmetric(self) -> bool:
        """If a voxel has a neighbor at offset k, it is that neighbor's neighbor at offset K - 1 - k."""
        return is_symmetric(self.fine, self.coarse, self.kernel_size)

    def num_offsets(self, dimension: int) -> int:
        """Return the number of voxels of the kernel."""
        return math.prod(along_axes(self.kernel_size, dimension))


@dataclass(frozen=True)
class PlanTable:
    """A network's own table of a batch, from levels of these tensor ``strides``. Keys are sent to loader processes."""

    strides: tuple[int, ...]

    @abstractmethod
    def build(self, plan: "CoordinatePlan") -> list[np.ndarray]:
        """Return the table as int32 arrays of one axis."""

    @property
    def number(self) -> int:
        """A number that is equal for equal tables in all processes."""
        return zlib.crc32(repr(self).encode())


class PlanSpec(NamedTuple):
    """Requirements of a network on each batch's plan."""

    maps: tuple[MapKey, ...] = ()  # kernel maps, in the order of their first use
    scene_levels: tuple[Steps, ...] = ()  # tensor strides at which each voxel's scene must be known (global pooling)
    # maximum voxels per block; None: groups of padded lists instead of blocks. Use the value that the network's device
    # prefers (``device_plan.preferred_block_rows``).
    block_rows: int | None = 8192
    tables: tuple[PlanTable, ...] = ()
    from_zero: bool = False  # move each scene so that its lowest voxel along each axis is 0, for ``build_plan``


class SceneRanges(NamedTuple):
    """Assignment of a level's voxels to scenes; arrays, or tensors on the device."""

    numbers: "np.ndarray | paddle.Tensor"  # scene number of each voxel, int32 (rows,)
    order: "np.ndarray | paddle.Tensor"  # int32 (rows,), the rows sorted by scene; empty if they are already sorted
    sizes: list[int]  # voxels of each scene


class PairLists(NamedTuple):
    """Pairs of one kernel map in one direction, as arrays, or as tensors on the device."""

    # int32 (P,), sorted by block, then by kernel offset, then ascending. With groups: sorted by group, then in the
    # order of ``group_sizes``, each list padded to the longest of its group.
    out_rows: "np.ndarray | paddle.Tensor"
    # int32 (P,), the row that each output row gets features from; in a padding pair the row after the last one
    in_rows: "np.ndarray | paddle.Tensor"
    counts: np.ndarray  # int64 (blocks, K), number of pairs without padding; one block if there are groups
    is_exclusive: bool  # no output row occurs more than once over all offsets
    is_grouped: bool  # there are groups instead of blocks


class CoordinatePlan:
    """Levels and kernel maps of a batch, built lazily.

    Args:
        coordinates: integers (N, 1 + D), scene number in column 0, D from 1 to 4; no duplicate voxels, in any order.
        num_scenes: scenes of the batch, in case the last ones are empty; None infers it from the largest number.
        block_rows: maximum voxels per block; None: groups instead of blocks (``PlanSpec``).
        stride: tensor stride of the coordinates, the finest of the plan.

    Raises:
        ValueError: wrong shape or dtype, duplicate voxels, coordinates that are not multiples of ``stride``, or a
            scene number not below ``num_scenes``.
        UserError: the coordinates are too far apart for a 63-bit key.
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
        """Return the voxels of a tensor stride."""
        return self._levels.level(stride)

    def find(self, stride: Steps, voxels: np.ndarray) -> np.ndarray:
        """Return the row of each of ``voxels`` (M, 1 + D) in a level, int64 (M,), -1 for voxels that do not exist."""
        return self._levels.find(stride, voxels)

    def scenes(self, stride: Steps) -> SceneRanges:
        """Return the assignment of a level's voxels to scenes."""
        numbers = self.level(stride).coordinates[:, 0].astype(np.int32)
        is_sorted = bool((numbers[1:] >= numbers[:-1]).all())
        order = np.argsort(numbers[:0] if is_sorted else numbers, kind="stable").astype(np.int32)
        return SceneRanges(numbers, order, np.bincount(numbers, minlength=self.num_scenes).tolist())

    def kernel_map(self, key: MapKey) -> tuple[PairLists, ...]:
        """Return the pairs of a kernel between two levels, to the coarse one and to the fine one.

        A symmetric kernel has one direction only. Its center, where every row matches itself, is omitted.
        """
        return tuple(table.lists() for table in self.pair_tables(key))

    def pair_tables(self, key: MapKey) -> "list[PairTable]":
        """Return the tables of ``kernel_map`` before they are written to arrays."""
        coarse, fine = (len(self.level(stride).order) for stride in (key.coarse, key.fine))
        num_offsets = key.num_offsets(self.dimension)
        return self._tables(self._levels.pairs(*key), fine, coarse, num_offsets, key.is_symmetric)

    def map_to(self, stride: Steps, coarse: np.ndarray, offsets: np.ndarray) -> tuple[PairLists, ...]:
        """Return the kernel map between a level and any other set of voxels, in both directions.

        A pair exists wherever a voxel of the level is a voxel of ``coarse``, unique integers (M, 1 + D) with the scene
        number in column 0, plus one of ``offsets``, int64 (K, D), in units of the coordinates.
        """
        fine = len(self.level(stride).order)
        tables = self._tables(self._levels.pairs_with(stride, coarse, offsets), fine, len(coarse), len(offsets), False)
        return tuple(table.lists() for table in tables)

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
        for k, fine_rows, coarse_rows in pairs:
            tables[0].add(k, fine_rows)
            tables[-1].add(num_offsets - 1 - k if is_symmetric else k, coarse_rows)
        return tables


class PairTable:
    """Collects the pairs of a kernel map in one direction, by kernel offset; ``block_rows`` as in ``PlanSpec``."""

    def __init__(self, num_out_rows: int, num_in_rows: int, num_offsets: int, block_rows: int | None) -> None:
        self.is_grouped = block_rows is None
        self._num_out_rows, self._num_in_rows = num_out_rows, num_in_rows
        # At least two blocks, unless they would be tiny, so that two threads can share the work.
        blocks = max(num_out_rows, 1) if block_rows is None else max(_MIN_BLOCK_ROWS, -(-num_out_rows // 2))
        self._block = blocks if block_rows is None else min(block_rows, blocks)
        self.counts = np.zeros((-(-num_out_rows // self._block), num_offsets), np.int64)
        # Sorted by offset in order of arrival. Most of it is never touched, and so takes no memory.
        self._out_rows = np.empty(num_out_rows * num_offsets + 1, np.int32)
        self._in_rows = np.empty(num_out_rows * num_offsets + 1, np.int32)
        self._starts = np.zeros(num_offsets, np.int64)
        self._has_pair = np.zeros(num_out_rows, bool)
        self.size = 0

    @property
    def is_exclusive(self) -> bool:
        """True if no output row occurs more than once over all offsets."""
        return self.size == np.count_nonzero(self._has_pair)

    def add(self, k: int, in_row_by_out_row: np.ndarray) -> None:
        """Add the input row of each output row at offset ``k``, int32 (output rows,), -1 for none."""
        self._starts[k] = self.size
        self.size = _append(
            in_row_by_out_row, k, self._block, self._out_rows, self._in_rows, self.size, self.counts, self._has_pair
        )

    @property
    def padded_size(self) -> int:
        """Number of pairs, including padding."""
        return padded_size(self.counts, self.is_grouped)

    def write(self, out_rows: np.ndarray, in_rows: np.ndarray) -> None:
        """Write the pairs to two arrays int32 (padded_size,), in the order that ``PairLists`` describes."""
        if not self.is_grouped:
            _lay_out(self._out_rows, self._in_rows, self._starts, self.counts, out_rows, in_rows)
            return
        place = padded = 0
        for offsets, sizes in group_lists(self.counts):
            for offset, size in zip(offsets, sizes):
                part, start, padding = slice(place, place + size), self._starts[offset], sizes[0] - size
                out_rows[part] = self._out_rows[start : start + size]
                in_rows[part] = self._in_rows[start : start + size]
                place += sizes[0]
                out_rows[part.stop : place] = np.arange(padded, padded + padding) % self._num_out_rows
                in_rows[part.stop : place] = self._num_in_rows
                padded += padding

    def lists(self) -> PairLists:
        """Return the pairs in new arrays."""
        out_rows, in_rows = np.empty(self.padded_size, np.int32), np.empty(self.padded_size, np.int32)
        self.write(out_rows, in_rows)
        return PairLists(out_rows, in_rows, self.counts, self.is_exclusive, self.is_grouped)


def padded_size(counts: np.ndarray, is_grouped: bool) -> int:
    """Return the number of pairs of one direction, including padding; ``counts`` is that of ``PairLists``."""
    return sum(len(sizes) * sizes[0] for _, sizes in group_lists(counts)) if is_grouped else int(counts.sum())


def group_lists(counts: np.ndarray) -> list[tuple[list[int], list[int]]]:
    """Return the kernel offsets of each group and their numbers of pairs, largest first, from ``PairLists.counts``."""
    present = np.flatnonzero(counts.sum(axis=0))
    sizes = counts.sum(axis=0)[present].tolist()
    return [([int(present[n]) for n in members], [sizes[n] for n in members]) for members in group_sizes(sizes)]


def group_sizes(sizes: Sequence[int]) -> list[list[int]]:
    """Group lists of similar sizes; return the numbers of each group's lists, the largest first."""
    groups: list[list[int]] = []
    for number in sorted(range(len(sizes)), key=lambda n: (-sizes[n], n)):
        if groups:
            largest = sizes[groups[-1][0]]
            is_similar = largest - sizes[number] <= max(_MAX_PADDING_RATIO * largest, _MIN_PADDING)
            if is_similar and (len(groups[-1]) + 1) * largest <= _MAX_GROUP_PAIRS:
                groups[-1].append(number)
                continue
        groups.append([number])
    return groups


@compiled
def _append(in_row_by_out_row, k, block, out_rows, in_rows, size, counts, has_pair):
    for number in range(len(counts)):
        before = size
        for row in range(number * block, min((number + 1) * block, len(in_row_by_out_row))):
            in_row = in_row_by_out_row[row]
            out_rows[size] = row  # overwritten by the next if there is no pair: avoids a mispredicted branch
            in_rows[size] = in_row
            size += in_row >= 0
            has_pair[row] |= in_row >= 0
        counts[number, k] = size - before
    return size


@compiled
def _lay_out(out_rows, in_rows, starts, counts, packed_out_rows, packed_in_rows):
    position = starts.copy()
    place = 0
    for number in range(counts.shape[0]):
        for k in range(counts.shape[1]):
            count = counts[number, k]
            packed_out_rows[place : place + count] = out_rows[position[k] : position[k] + count]
            packed_in_rows[place : place + count] = in_rows[position[k] : position[k] + count]
            position[k] += count
            place += count


def build_plan(coordinates: np.ndarray, spec: PlanSpec, num_scenes: int | None = None) -> dict[str, Any]:
    """Build the plan of a batch as an array and its header, sent to the training process with the batch.

    The arguments are as for ``CoordinatePlan``, ``spec`` is the network's ``plan_spec()``. The result is
    ``{"plan_pairs": int32 (M,), "plan_header": bytes}``. The header is not an array, so that it stays on the host:
    reading it back from a GPU would make each step wait for the previous one. ValueError for a wrong shape or dtype,
    duplicate voxels, or a scene number not below ``num_scenes``; UserError if the coordinates are too far apart for a
    63-bit key.
    """
    coordinates = move_to_zero(coordinates) if spec.from_zero else coordinates
    plan = CoordinatePlan(coordinates, num_scenes, spec.block_rows)
    header: list[int] = [_FORMAT, plan.dimension, plan.num_scenes, int(spec.block_rows is None)]
    axes = functools.partial(along_axes, dimension=plan.dimension)
    used = [*spec.scene_levels, *(step for table in spec.tables for step in table.strides)]
    strides = sorted({1, *used, *(s for spot in spec.maps for s in (spot.fine, spot.coarse))}, key=axes)
    rows = {step: len(plan.level(step).order) for step in strides}
    header += [len(strides), *(value for step in strides for value in (*axes(step), rows[step]))]
    max_pairs = sum(2 * spot.num_offsets(plan.dimension) * (rows[spot.coarse] + rows[spot.fine]) for spot in spec.maps)
    # Untouched memory is not committed. One extra element, so that the array is not empty for a batch without pairs.
    pairs = np.empty(max_pairs + sum(2 * rows[step] for step in spec.scene_levels) + 1, np.int32)
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
            size = table.padded_size
            table.write(pairs[end : end + size], pairs[end + size : end + 2 * size])
            end += 2 * size
        del table  # frees its large arrays before the next table allocates the same size
    pairs[end] = 0
    header.append(len(spec.tables))
    parts = [pairs[: end + 1]]
    for own in spec.tables:
        arrays = own.build(plan)
        header += [own.number, len(arrays), *map(len, arrays)]
        parts += arrays
    packed = np.concatenate(parts) if len(parts) > 1 else parts[0]
    return {PAIRS: packed, HEADER: np.array(header, np.int64).tobytes()}


def move_to_zero(coordinates: np.ndarray) -> np.ndarray:
    """Return voxels, integers (N, 1 + D), moved so that the lowest of each scene along each axis is 0."""
    scenes = coordinates[:, 0]
    lowest = np.full((int(scenes.max(initial=-1)) + 1, coordinates.shape[1]), np.iinfo(np.int64).max)
    np.minimum.at(lowest, scenes, coordinates)
    lowest[:, 0] = 0
    return coordinates - lowest[scenes]


class PackedPlan(NamedTuple):
    """A plan packed by ``build_plan``."""

    dimension: int  # spatial axes, 1 to 4
    num_scenes: int  # scenes of the batch
    rows: dict[Steps, int]  # number of voxels by tensor stride
    scenes: dict[Steps, SceneRanges]  # by tensor stride, for the levels that were requested
    maps: dict[MapKey, tuple[PairLists, ...]]  # pairs by key, see ``CoordinatePlan.kernel_map``
    tables: "dict[int, list[np.ndarray] | list[paddle.Tensor]]"  # arrays of networks' tables, by ``PlanTable.number``


def unpack_plan(pairs: "np.ndarray | paddle.Tensor", header: bytes) -> PackedPlan:
    """Unpack ``build_plan``'s int32 (M,), array or tensor, to views; ValueError if ``header`` is from elsewhere."""
    numbers = np.frombuffer(header, np.int64) if len(header) % 8 == 0 else np.empty(0, np.int64)
    values = iter(numbers.tolist())
    if next(values, None) != _FORMAT:
        raise ValueError(f"not the header of a coordinate plan of format {_FORMAT}: {numbers[:8]}")
    dimension, num_scenes, is_grouped = next(values), next(values), bool(next(values))

    def steps() -> Steps:
        return simplify_steps([next(values) for _ in range(dimension)])

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
            middle, end = (start + side * padded_size(counts, is_grouped) for side in (1, 2))
            directions.append(PairLists(pairs[start:middle], pairs[middle:end], counts, is_exclusive, is_grouped))
            start = end
        maps[key] = tuple(directions)
    lengths = {next(values): [next(values) for _ in range(next(values))] for _ in range(next(values))}
    return PackedPlan(dimension, num_scenes, rows, scenes, maps, _unpack_tables(pairs, lengths, start + 1))


def _unpack_tables(
    pairs: "np.ndarray | paddle.Tensor", lengths: dict[int, list[int]], start: int
) -> "dict[int, list[np.ndarray] | list[paddle.Tensor]]":
    """Cut the arrays of tables, which begin at ``start``, with one operation: on a GPU each costs a launch."""
    sizes, rest = [size for own in lengths.values() for size in own if size], pairs[start:]
    parts: Iterator[Any] = iter(())
    if sizes:
        parts = iter(np.split(rest, np.cumsum(sizes)[:-1]) if isinstance(rest, np.ndarray) else rest.split(sizes))
    return {number: [next(parts) if size else pairs[:0] for size in own] for number, own in lengths.items()}
