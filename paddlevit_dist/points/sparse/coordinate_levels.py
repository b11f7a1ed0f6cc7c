"""All levels of a batch of voxels, and the search for neighbors among their sorted keys."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...runtime.compiled import compiled
from .coordinate_keys import KeySpace, Steps, along_axes, first_of_equals


class VoxelLevel(NamedTuple):
    """The voxels of one tensor stride.

    Attributes:
        stride: their coordinates are multiples of it.
        coordinates: int64 (N, 1 + D), scene number in column 0.
        order: int64 (N,), the rows in lexicographic order of their coordinates.
    """

    stride: Steps
    coordinates: np.ndarray
    order: np.ndarray


def kernel_offsets(kernel_size: Steps, dimension: int) -> np.ndarray:
    """Kernel offsets in voxels, int64 (K, dimension) for K voxels in all, in the order of its weights.

    The first spatial axis runs fastest. An odd side is centered: -(side // 2) .. side // 2; an even one extends
    forward: 0 .. side - 1. Both as in MinkowskiEngine 0.5 (``coordinate_at`` in src/kernel_region.hpp).
    """
    firsts = [(-(side // 2) if side % 2 else 0, side) for side in along_axes(kernel_size, dimension)]
    steps = [range(first, first + side) for first, side in reversed(firsts)]
    return np.array([offset[::-1] for offset in itertools.product(*steps)], np.int64)


class CoordinateLevels:
    """All levels of a batch of voxels, built lazily.

    Args:
        coordinates: integers (N, 1 + D), scene number in column 0, D from 1 to 4; no duplicate voxels, in any order.
        stride: their tensor stride, the finest of all levels; the coordinates are multiples of it.

    Raises:
        ValueError: another shape or dtype, a negative scene number, duplicate voxels, or coordinates between the
            stride's.
        UserError: coordinates beyond int32, or too far apart for a 63-bit key.
    """

    def __init__(self, coordinates: np.ndarray, stride: Steps = 1) -> None:
        self._space = space = KeySpace(coordinates)
        self.dimension, coordinates = space.dimension, space.coordinates
        steps = along_axes(stride, self.dimension)
        between = np.flatnonzero((coordinates[:, 1:] % steps).any(axis=1)) if stride != 1 else ()
        if len(between):
            raise ValueError(
                f"voxel {between[0]} at {coordinates[between[0], 1:].tolist()} is not one of stride {stride}: expected "
                "the coordinates of that level, multiples of its stride"
            )
        keys, order = space.sort_keys(coordinates)
        _refuse_duplicates(keys, order)
        self._sorted_keys: dict[Steps, np.ndarray] = {stride: keys}
        self._finest = stride
        self._levels: dict[Steps, VoxelLevel] = {stride: VoxelLevel(stride, coordinates, order)}

    def level(self, stride: Steps) -> VoxelLevel:
        """The distinct ``floor(c / stride) * stride`` of the voxels; in lexicographic order unless they are those
        given.

        Raises:
            ValueError: they would lie between the voxels given.
        """
        if stride not in self._levels:
            steps = along_axes(stride, self.dimension)
            dividing = [known for known in self._levels if self._divides(known, steps)]
            if not dividing:
                raise ValueError(f"there are no voxels of stride {stride}: the finest have stride {self._finest}")
            finer = self._levels[max(dividing, key=lambda known: math.prod(along_axes(known, self.dimension)))]
            self._forget(self._space.reserve(max(steps)))
            coordinates = _coarsen(finer.coordinates, finer.order, np.array(steps, np.int64))
            keys, order = self._space.sort_keys(coordinates)
            is_first = first_of_equals(keys)
            coordinates = coordinates[order[is_first]]
            self._sorted_keys[stride] = keys[is_first]
            self._levels[stride] = VoxelLevel(stride, coordinates, np.arange(len(coordinates)))
        return self._levels[stride]

    def _divides(self, finer: Steps, steps: Sequence[int]) -> bool:
        return not any(step % fine for fine, step in zip(along_axes(finer, self.dimension), steps))

    def pairs(
        self, fine: Steps, coarse: Steps, kernel_size: Steps, dilation: Steps
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Matching voxels: for each kernel offset k, those with fine voxel = coarse voxel + offset_k in space.

        For a symmetric kernel (odd sides, ``fine == coarse``) only one of each pair of mirrored offsets, and not the
        center, where every voxel matches itself.

        Yields:
            (k, fine row matching each coarse row, coarse row matching each fine row): int32 (coarse rows,) and (fine
            rows,), -1 for none; both buffers are reused.
        """
        spacing = along_axes(fine, self.dimension)
        offsets = kernel_offsets(kernel_size, self.dimension) * along_axes(dilation, self.dimension) * spacing
        target = self.level(coarse)
        self._forget(self._space.reserve(_reach(offsets) + max(along_axes(coarse, self.dimension))))
        keys = self._keys(target), target.order
        yield from self._matching(fine, *keys, len(target.order), offsets, is_symmetric(fine, coarse, kernel_size))

    def pairs_with(
        self, stride: Steps, others: np.ndarray, offsets: np.ndarray
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Matching voxels of a level and of another set: those with voxel of the level = other voxel + offset_k.

        Args:
            others: integers (M, 1 + D), distinct, scene number in column 0.
            offsets: int64 (K, D), in units of the coordinates.

        Yields:
            (k, row of the level matching each other voxel, other voxel matching each row of the level), as ``pairs``.
        """
        others = np.asarray(others, np.int64)
        # As far as offsets lead from a voxel of the level, which may lie a stride outside of the finest.
        self._forget(self._space.reserve(_reach(offsets) + max(along_axes(stride, self.dimension))))
        near = np.flatnonzero(self._space.have_keys(others))
        keys, order = self._space.sort_keys(others[near])
        yield from self._matching(stride, keys, near[order], len(others), offsets, False)

    def _matching(
        self, stride: Steps, keys: np.ndarray, rows: np.ndarray, number: int, offsets: np.ndarray, is_symmetric: bool
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """As ``pairs``, of a level and of those ``rows`` of ``number`` that have the sorted ``keys``."""
        level, spacing = self.level(stride), along_axes(stride, self.dimension)[-1]
        steps = offsets @ self._space.radices()
        # Where one of a line of neighboring keys is found tells where the next must be.
        lines = _lines_along_last_axis(
            offsets, np.flatnonzero(steps < 0) if is_symmetric else np.arange(len(steps)), spacing
        )
        longest = max((len(line) for line in lines), default=0)
        fine_of = np.empty((longest, number + 1), np.int32)  # the last column is for misses
        coarse_of = np.empty((longest, len(level.order) + 1), np.int32)
        for line in lines:
            first = int(steps[line[0]])
            _match(keys, rows, self._keys(level), level.order, first, spacing, len(line), fine_of, coarse_of)
            for place, k in enumerate(line):
                yield k, fine_of[place, :-1], coarse_of[place, :-1]

    def find(self, stride: Steps, wanted: np.ndarray) -> np.ndarray:
        """The row of each wanted voxel in a level, int64 (M,), -1 where there is none.

        Args:
            wanted: integers (M, 1 + D), also several times.
        """
        level, wanted = self.level(stride), np.asarray(wanted, np.int64)
        near = np.flatnonzero(self._space.have_keys(wanted))
        sorted_keys, keys = self._keys(level), self._space.pack(wanted[near])
        places = np.minimum(np.searchsorted(sorted_keys, keys), len(sorted_keys) - 1)
        found = np.full(len(wanted), -1, np.int64)
        found[near] = np.where(sorted_keys[places] == keys, level.order[places], -1)
        return found

    def _forget(self, have_changed: bool) -> None:
        if have_changed:
            self._sorted_keys.clear()

    def _keys(self, level: VoxelLevel) -> np.ndarray:
        if level.stride not in self._sorted_keys:
            self._sorted_keys[level.stride] = self._space.pack(level.coordinates)[level.order]
        return self._sorted_keys[level.stride]


def is_symmetric(fine: Steps, coarse: Steps, kernel_size: Steps) -> bool:
    """If a voxel has a neighbor at offset k, it is that neighbor's neighbor at offset K - 1 - k."""
    sides = (kernel_size,) if isinstance(kernel_size, int) else kernel_size
    return fine == coarse and all(side % 2 for side in sides)


def _reach(offsets: np.ndarray) -> int:
    return int(np.abs(offsets).max(initial=0))


def _lines_along_last_axis(offsets: np.ndarray, chosen: np.ndarray, spacing: int) -> list[list[int]]:
    """The chosen offsets in lines whose last component grows by ``spacing``, and no other does."""
    lines: list[list[int]] = []
    last: dict[tuple[int, ...], list[int]] = {}
    for k in chosen.tolist():
        line = last.get(tuple(offsets[k, :-1]))
        if line is None or offsets[k, -1] - offsets[line[-1], -1] != spacing:
            line = last[tuple(offsets[k, :-1])] = []
            lines.append(line)
        line.append(k)
    return lines


@compiled
def _match(coarse_keys, coarse_rows, fine_keys, fine_rows, step, spacing, length, fine_of, coarse_of):
    """Find the keys ``coarse + step``, ``coarse + step + spacing`` etc. among the fine ones.

    Both lists are sorted, so a coarse voxel's match never precedes that of the previous one.
    """
    nobody = len(fine_keys)
    fine_of[:length] = -1
    coarse_of[:length] = -1
    place = 0
    for i in range(len(coarse_keys)):
        wanted = coarse_keys[i] + step
        while place < nobody and fine_keys[place] < wanted:
            place += 1
        if place == nobody:
            break
        row, candidate = coarse_rows[i], place
        for number in range(length):
            is_found = candidate < nobody and fine_keys[candidate] == wanted + number * spacing
            other = fine_rows[candidate] if is_found else nobody
            fine_of[number, row] = other if is_found else -1
            coarse_of[number, other] = row
            candidate += is_found


@compiled
def _coarsen(coordinates, order, strides):
    """The coarse voxels containing the given voxels, in the given order; the first column is the scene."""
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


def _refuse_duplicates(sorted_keys: np.ndarray, order: np.ndarray) -> None:
    repeated = np.flatnonzero(sorted_keys[1:] == sorted_keys[:-1])
    if len(repeated):
        first, second = sorted(int(row) for row in order[repeated[0] : repeated[0] + 2])
        raise ValueError(f"voxels {first} and {second} have the same coordinates: make them unique (sparse_quantize)")
