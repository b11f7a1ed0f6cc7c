"""The coordinate plan on the device: kernel maps as lists of pairs, by block or in groups."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle

from ...core.runtime.transfers import to_device
from .coordinate_keys import Steps
from .coordinate_plan import (
    HEADER,
    PAIRS,
    CoordinatePlan,
    MapKey,
    PairLists,
    PlanSpec,
    PlanTable,
    SceneRanges,
    group_lists,
    unpack_plan,
)

_PLAN_SPEC_HINT = "build it with the plan_spec() of this network"
_NO_COORDINATES = "a plan from a batch has no coordinates: put them into the batch with the plan"


_CPU_BLOCK_ROWS = 8192  # 2 MB at 64 channels: the output rows stay in the L2 cache over all offsets
_overrides: list[bool] = []  # one entry for each open ``batch_products``


def preferred_block_rows() -> int | None:
    """Return the maximum output rows per block on this process's device; None: groups for batched products."""
    is_batched = _overrides[-1] if _overrides else paddle.get_device() != "cpu"
    return None if is_batched else _CPU_BLOCK_ROWS


@contextlib.contextmanager
def batch_products(enabled: bool) -> Iterator[None]:
    """Make plans created inside the block use groups of kernel offsets, or single ones, on any device."""
    _overrides.append(enabled)
    try:
        yield
    finally:
        _overrides.pop()


class KernelPairs(NamedTuple):
    """The pairs of one kernel offset in one block: int32 tensors (P,) of output and input rows."""

    offset: int
    out_rows: paddle.Tensor
    in_rows: paddle.Tensor


class PairGroup(NamedTuple):
    """Lists of pairs of similar lengths, padded to the longest: int32 tensors (lists * longest,), list by list."""

    offsets: list[int]  # the kernel offset of each list
    sizes: list[int]  # pairs of each list without padding, the largest first
    out_rows: paddle.Tensor  # output rows; any rows in padding pairs
    in_rows: paddle.Tensor  # input rows; in padding pairs the row after the last one (zeros)

    def lists(self) -> Iterator[KernelPairs]:
        """Yield each list without its padding."""
        for index, (offset, size) in enumerate(zip(self.offsets, self.sizes)):
            start = index * self.sizes[0]
            yield KernelPairs(offset, self.out_rows[start : start + size], self.in_rows[start : start + size])


class KernelDirection(NamedTuple):
    """A kernel map in one direction on the device, by blocks or by groups."""

    # blocks of output rows, each with the pairs of its kernel offsets. No output row is in two blocks, and none is
    # repeated within one ``KernelPairs``. Empty if there are groups.
    blocks: list[list[KernelPairs]]
    is_exclusive: bool  # no output row occurs more than once over all offsets
    groups: list[PairGroup]  # groups of lists that are multiplied at once

    def lists(self) -> Iterator[KernelPairs]:
        """Yield every list of pairs."""
        for block in self.blocks:
            yield from block
        for group in self.groups:
            yield from group.lists()


class KernelMap(NamedTuple):
    """Both directions of a kernel map. A symmetric map has the same lists in both, without the center's."""

    is_symmetric: bool
    num_offsets: int
    to_coarse: KernelDirection
    to_fine: KernelDirection


def build_direction(lists: PairLists) -> KernelDirection:
    """Build one direction from lists on the device, with few operations."""
    counts = lists.counts
    blocks: list[list[KernelPairs]] = [[] for _ in counts]
    if not counts.any():
        return KernelDirection(blocks, lists.is_exclusive, [])
    both = lists.out_rows, lists.in_rows
    if lists.is_grouped:
        members = group_lists(counts)
        parts = [paddle.split(side, [len(sizes) * sizes[0] for _, sizes in members]) for side in both]
        return KernelDirection(
            [], lists.is_exclusive, [PairGroup(*group, *sides) for group, *sides in zip(members, *parts)]
        )
    out_rows, in_rows = (paddle.split(side, counts[counts > 0].tolist()) for side in both)
    for (block, offset), *rows in zip(np.argwhere(counts > 0).tolist(), out_rows, in_rows):
        blocks[block].append(KernelPairs(offset, *rows))
    return KernelDirection(blocks, lists.is_exclusive, [])


class Plan:
    """The levels and kernel maps of a batch as device tensors, shared by all sparse tensors of a forward pass.

    A plan created from a batch (``Plan.of_batch``) has the tables that the network's ``plan_spec()`` requested; a plan
    created from coordinates (``Plan.of_coordinates``) builds all tables lazily.
    """

    #: numbers that are equal on all ranks, for random choices about whole batches; None: there are none
    seed: Sequence[int] | None = None

    def __init__(self, dimension: int, num_scenes: int) -> None:
        self.dimension = dimension
        self.num_scenes = num_scenes
        self._maps: dict[MapKey, KernelMap] = {}
        self._scenes: dict[Steps, SceneRanges] = {}
        self._rows: dict[Steps, int] = {}
        self._packed_maps: dict[MapKey, tuple[PairLists, ...]] = {}
        self._coordinate_plan: CoordinatePlan | None = None
        self._used_maps: dict[MapKey, None] = {}
        self._used_scenes: dict[Steps, None] = {}
        self._tables: dict[int, list[paddle.Tensor]] = {}
        self._used_tables: dict[PlanTable, None] = {}

    @classmethod
    def of_batch(cls, batch: Mapping[str, Any]) -> "Plan":
        """Create a plan from a batch with "plan_pairs" int32 (M,) on the features' device, and "plan_header" bytes."""
        pairs = batch[PAIRS]
        packed = unpack_plan(pairs if isinstance(pairs, paddle.Tensor) else to_device(pairs), batch[HEADER])
        plan = cls(packed.dimension, packed.num_scenes)
        plan._rows, plan._packed_maps, plan._scenes, plan._tables = (
            packed.rows,
            packed.maps,
            packed.scenes,
            packed.tables,
        )
        return plan

    @classmethod
    def of_coordinates(
        cls, coordinates: paddle.Tensor | np.ndarray, num_scenes: int | None = None, stride: Steps = 1
    ) -> "Plan":
        """Create a plan from integers (N, 1 + D), an array or tensor, as ``CoordinatePlan`` takes and checks them."""
        arrays = CoordinatePlan(np.asarray(coordinates), num_scenes, preferred_block_rows(), stride)
        plan = cls(arrays.dimension, arrays.num_scenes)
        plan._coordinate_plan = arrays
        return plan

    @property
    def has_coordinates(self) -> bool:
        """True if the plan was created from coordinates in this process."""
        return self._coordinate_plan is not None

    def rows(self, stride: Steps) -> int:
        """Return the number of voxels of a level."""
        if self._coordinate_plan is not None:
            return len(self._coordinate_plan.level(stride).order)
        if stride not in self._rows:
            raise ValueError(f"the plan has no level of stride {stride}, only {list(self._rows)}: {_PLAN_SPEC_HINT}")
        return self._rows[stride]

    def coordinates(self, stride: Steps) -> np.ndarray:
        """Return int32 (N, 1 + D) of a level; requires a plan created from coordinates in this process."""
        return self._arrays().level(stride).coordinates.astype(np.int32)

    def find(self, stride: Steps, voxels: np.ndarray) -> np.ndarray:
        """Return the row of each of ``voxels`` (M, 1 + D) in a level, -1 for voxels that do not exist.

        Requires a plan created from coordinates in this process.
        """
        return self._arrays().find(stride, voxels)

    def _arrays(self) -> CoordinatePlan:
        if self._coordinate_plan is None:
            raise ValueError(_NO_COORDINATES)
        return self._coordinate_plan

    def scenes(self, stride: Steps) -> SceneRanges:
        """Return the assignment of a level's voxels to scenes."""
        self._used_scenes[stride] = None
        if stride not in self._scenes:
            if self._coordinate_plan is None:
                raise ValueError(f"the plan has no scene numbers for stride {stride}: {_PLAN_SPEC_HINT}")
            numbers, order, sizes = self._coordinate_plan.scenes(stride)
            self._scenes[stride] = SceneRanges(to_device(numbers), to_device(order), sizes)
        return self._scenes[stride]

    def kernel_map(self, key: MapKey) -> KernelMap:
        """Return the pairs of a kernel between two levels."""
        self._used_maps[key] = None
        if key not in self._maps:
            if self._coordinate_plan is not None:
                lists = tuple(map(_to_device, self._coordinate_plan.kernel_map(key)))
            elif key in self._packed_maps:
                lists = self._packed_maps[key]
            else:
                raise ValueError(f"the plan has no {key}: {_PLAN_SPEC_HINT}")
            directions = [build_direction(direction) for direction in lists]
            num_offsets = key.num_offsets(self.dimension)
            self._maps[key] = KernelMap(key.is_symmetric, num_offsets, directions[0], directions[-1])
        return self._maps[key]

    def table(self, key: PlanTable) -> list[paddle.Tensor]:
        """Return the arrays of a network's own table, int32 tensors of one axis."""
        self._used_tables[key] = None
        if key.number not in self._tables:
            if self._coordinate_plan is None:
                raise ValueError(f"the plan has no {key}: {_PLAN_SPEC_HINT}")
            self._tables[key.number] = [to_device(array) for array in key.build(self._coordinate_plan)]
        return self._tables[key.number]

    def map_to(self, stride: Steps, coarse: np.ndarray, offsets: np.ndarray) -> KernelMap:
        """Return the kernel map between a level and any other set of voxels (``CoordinatePlan.map_to``).

        Requires a plan created from coordinates in this process.
        """
        lists = self._arrays().map_to(stride, coarse, offsets)
        return KernelMap(False, len(offsets), *(build_direction(_to_device(direction)) for direction in lists))

    def get_used_spec(self, block_rows: int | None) -> PlanSpec:
        """Return the spec of the tables that have been used so far."""
        return PlanSpec(tuple(self._used_maps), tuple(self._used_scenes), block_rows, tuple(self._used_tables))


def _to_device(lists: PairLists) -> PairLists:
    """Copy pair lists to the device in one transfer, which is never empty."""
    size = len(lists.out_rows)
    pairs = to_device(np.concatenate([lists.out_rows, lists.in_rows, np.zeros(1, np.int32)]))
    return lists._replace(out_rows=pairs[:size], in_rows=pairs[size : 2 * size])
