"""All levels of a batch of voxels, and the search for neighbors among their sorted keys."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...core.runtime.compiled import compiled
from .coordinate_keys import KeySpace, Steps, along_axes, mark_first


class VoxelLevel(NamedTuple):
    """The voxels of one tensor stride."""

    stride: Steps  # tensor stride; all coordinates are multiples of it
    coordinates: np.ndarray  # int64 (N, 1 + D), scene number in column 0
    order: np.ndarray  # int64 (N,), the rows in lexicographic order of their coordinates


def kernel_offsets(kernel_size: Steps, dimension: int) -> np.ndarray:
    """Return the kernel's offsets in voxels, int64 (K, dimension), in the order of the kernel's weights.

    The first spatial axis runs fastest. An odd side is centered: -(side // 2) .. side // 2; an even one extends
    forward: 0 .. side - 1. Both follow MinkowskiEngine 0.5 (``coordinate_at`` in src/kernel_region.hpp).
    """
    firsts = [(-(side // 2) if side % 2 else 0, side) for side in along_axes(kernel_size, dimension)]
    steps = [range(first, first + side) for first, side in reversed(firsts)]
    return np.array([offset[::-1] for offset in itertools.product(*steps)], np.int64)


class CoordinateLevels:
    """All levels of a batch of voxels, built lazily.

    ``coordinates`` are integers (N, 1 + D), scene number in column 0, D from 1 to 4; no duplicate voxels, in any order.
    They are multiples of ``stride``, the finest of all levels. ValueError for anything else, a wrong shape or dtype, or
    a negative scene number; UserError for coordinates beyond int32, or too far apart for a 63-bit key.
    """

    def __init__(self, coordinates: np.ndarray, stride: Steps = 1) -> None:
        self._space = space = KeySpace(coordinates)
        self.dimension, coordinates = space.dimension, space.coordinates
        steps = along_axes(stride, self.dimension)
        between = np.flatnonzero((coordinates[:, 1:] % steps).any(axis=1)) if stride != 1 else np.zeros(0, np.int64)
        if len(between):
            raise ValueError(
                f"voxel {between[0]} at {coordinates[between[0], 1:].tolist()} is not a voxel of stride {stride}: pass "
                "the coordinates of that level, which are multiples of its stride"
            )
        keys, order = space.sort_keys(coordinates)
        _reject_duplicates(keys, order)
        self._sorted_keys: dict[Steps, np.ndarray] = {stride: keys}
        self._finest = stride
        self._levels: dict[Steps, VoxelLevel] = {stride: VoxelLevel(stride, coordinates, order)}

    def level(self, stride: Steps) -> VoxelLevel:
        """Return the unique ``floor(c / stride) * stride`` of the voxels, in lexicographic order.

        The voxels of the finest level keep the order in which they were given. ValueError if the tensor stride is not a
        multiple of that of any existing level.
        """
        if stride not in self._levels:
            steps = along_axes(stride, self.dimension)
            dividing = [stride_in_use for stride_in_use in self._levels if self._divides(stride_in_use, steps)]
            if not dividing:
                raise ValueError(f"there are no voxels of stride {stride}: the finest have stride {self._finest}")
            finer = self._levels[max(dividing, key=lambda step: math.prod(along_axes(step, self.dimension)))]
            self._drop_keys_if(self._space.reserve(max(steps)))
            coordinates = _coarsen(finer.coordinates, finer.order, np.array(steps, np.int64))
            keys, order = self._space.sort_keys(coordinates)
            is_first = mark_first(keys)
            coordinates = coordinates[order[is_first]]
            self._sorted_keys[stride] = keys[is_first]
            self._levels[stride] = VoxelLevel(stride, coordinates, np.arange(len(coordinates)))
        return self._levels[stride]

    def _divides(self, finer: Steps, steps: Sequence[int]) -> bool:
        return not any(step % fine for fine, step in zip(along_axes(finer, self.dimension), steps))

    def pairs(
        self, fine: Steps, coarse: Steps, kernel_size: Steps, dilation: Steps
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Find matching voxels: for each kernel offset k, those with fine voxel = coarse voxel + offset_k in space.

        A symmetric kernel (odd sides, ``fine == coarse``) yields only one of each pair of mirrored offsets, and not the
        center, where every voxel matches itself. ``fine`` and ``coarse`` are tensor strides; ``dilation`` is in units
        of ``fine``.

        Yields:
            (k, fine row matching each coarse row, coarse row matching each fine row): int32 (coarse rows,) and (fine
            rows,), -1 for none; both buffers are reused.
        """
        spacing = along_axes(fine, self.dimension)
        offsets = kernel_offsets(kernel_size, self.dimension) * along_axes(dilation, self.dimension) * spacing
        target = self.level(coarse)
        self._drop_keys_if(self._space.reserve(_reach(offsets) + max(along_axes(coarse, self.dimension))))
        keys = self._keys(target), target.order
        yield from self._matching(fine, *keys, len(target.order), offsets, is_symmetric(fine, coarse, kernel_size))

    def pairs_with(
        self, stride: Steps, others: np.ndarray, offsets: np.ndarray
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Find matching voxels of a level and another set: those with voxel of the level = other voxel + offset_k.

        ``others`` are integers (M, 1 + D), unique, scene number in column 0; ``offsets`` int64 (K, D), in units of the
        coordinates.

        Yields:
            (k, row of the level matching each other voxel, other voxel matching each row of the level): int32, -1 for
            none; both buffers are reused.
        """
        others = np.asarray(others, np.int64)
        # Offsets reach this far from a voxel of the level, which may be up to one stride outside the finest level.
        self._drop_keys_if(self._space.reserve(_reach(offsets) + max(along_axes(stride, self.dimension))))
        near = np.flatnonzero(self._space.in_reach(others))
        keys, order = self._space.sort_keys(others[near])
        yield from self._matching(stride, keys, near[order], len(others), offsets, False)

    def _matching(
        self, stride: Steps, keys: np.ndarray, rows: np.ndarray, number: int, offsets: np.ndarray, is_symmetric: bool
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Match a level with the ``rows`` of ``number`` voxels that have the sorted ``keys``; yields like ``pairs``."""
        level, spacing = self.level(stride), along_axes(stride, self.dimension)[-1]
        steps = offsets @ self._space.radices()
        # The match of the first key in a line of neighboring keys bounds the search for the next ones.
        lines = _lines_along_last_axis(
            offsets, np.flatnonzero(steps < 0) if is_symmetric else np.arange(len(steps)), spacing
        )
        longest = max((len(row) for row in lines), default=0)
        fine_matches = np.empty((longest, number + 1), np.int32)  # the last column is for misses
        coarse_matches = np.empty((longest, len(level.order) + 1), np.int32)
        for line in lines:
            first = int(steps[line[0]])
            _match(keys, rows, self._keys(level), level.order, first, spacing, len(line), fine_matches, coarse_matches)
            for place, k in enumerate(line):
                yield k, fine_matches[place, :-1], coarse_matches[place, :-1]

    def find(self, stride: Steps, voxels: np.ndarray) -> np.ndarray:
        """Return the row of each voxel, integers (M, 1 + D), in the level of ``stride``, int64 (M,), -1 for none."""
        level, voxels = self.level(stride), np.asarray(voxels, np.int64)
        near = np.flatnonzero(self._space.in_reach(voxels))
        sorted_keys, keys = self._keys(level), self._space.pack(voxels[near])
        places = np.minimum(np.searchsorted(sorted_keys, keys), len(sorted_keys) - 1)
        rows = np.full(len(voxels), -1, np.int64)
        rows[near] = np.where(sorted_keys[places] == keys, level.order[places], -1)
        return rows

    def _drop_keys_if(self, have_changed: bool) -> None:
        if have_changed:
            self._sorted_keys.clear()

    def _keys(self, level: VoxelLevel) -> np.ndarray:
        if level.stride not in self._sorted_keys:
            self._sorted_keys[level.stride] = self._space.pack(level.coordinates)[level.order]
        return self._sorted_keys[level.stride]


def is_symmetric(fine: Steps, coarse: Steps, kernel_size: Steps) -> bool:
    """Return True if offset K - 1 - k is always the mirror image of offset k, and both levels are the same."""
    sides = (kernel_size,) if isinstance(kernel_size, int) else kernel_size
    return fine == coarse and all(side % 2 for side in sides)


def _reach(offsets: np.ndarray) -> int:
    return int(np.abs(offsets).max(initial=0))


def _lines_along_last_axis(offsets: np.ndarray, selected: np.ndarray, spacing: int) -> list[list[int]]:
    """Group the selected offsets into lines along the last axis, with steps of ``spacing``."""
    lines: list[list[int]] = []
    last: dict[tuple[int, ...], list[int]] = {}
    for k in selected.tolist():
        line = last.get(tuple(offsets[k, :-1]))
        if line is None or offsets[k, -1] - offsets[line[-1], -1] != spacing:
            line = last[tuple(offsets[k, :-1])] = []
            lines.append(line)
        line.append(k)
    return lines


@compiled
def _match(coarse_keys, coarse_rows, fine_keys, fine_rows, step, spacing, length, fine_matches, coarse_matches):
    """Find the keys ``coarse + step``, ``coarse + step + spacing`` etc. among the fine ones.

    Both lists are sorted, so a coarse voxel's match never precedes that of the previous one.
    """
    missing = len(fine_keys)
    fine_matches[:length] = -1
    coarse_matches[:length] = -1
    place = 0
    for i in range(len(coarse_keys)):
        target = coarse_keys[i] + step
        while place < missing and fine_keys[place] < target:
            place += 1
        if place == missing:
            break
        row, candidate = coarse_rows[i], place
        for number in range(length):
            is_match = candidate < missing and fine_keys[candidate] == target + number * spacing
            other = fine_rows[candidate] if is_match else missing
            fine_matches[number, row] = other if is_match else -1
            coarse_matches[number, other] = row
            candidate += is_match


@compiled
def _coarsen(coordinates, order, strides):
    """Return the coarse voxel that contains each voxel, in the given order; the first column is the scene."""
    coarse = np.empty((len(order), coordinates.shape[1]), np.int64)
    is_power_of_two = True
    for stride in strides:
        is_power_of_two &= stride & (stride - 1) == 0
    for i in range(len(order)):
        coarse[i, 0] = coordinates[order[i], 0]
        for axis in range(len(strides)):
            value, stride = coordinates[order[i], 1 + axis], strides[axis]
            coarse[i, 1 + axis] = value & -stride if is_power_of_two else value // stride * stride  # both round down
    return coarse


def _reject_duplicates(sorted_keys: np.ndarray, order: np.ndarray) -> None:
    repeated = np.flatnonzero(sorted_keys[1:] == sorted_keys[:-1])
    if len(repeated):
        first, second = sorted(int(row) for row in order[repeated[0] : repeated[0] + 2])
        raise ValueError(f"voxels {first} and {second} have the same coordinates: make them unique (sparse_quantize)")
