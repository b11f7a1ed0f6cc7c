"""All levels of a batch of voxels, and the search for neighbours among their sorted keys."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...runtime.compiled import compiled
from .coordinate_keys import KeySpace, Steps, along_axes, first_of_equals


class Level(NamedTuple):
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

    The first spatial axis runs fastest. An odd side is centred: -(side // 2) .. side // 2; an even one extends
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
        keys, order = space.sorted(coordinates)
        _refuse_duplicates(keys, order)
        self._sorted_keys: dict[Steps, np.ndarray] = {stride: keys}
        self._finest = stride
        self._levels: dict[Steps, Level] = {stride: Level(stride, coordinates, order)}

    def level(self, stride: Steps) -> Level:
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
            coordinates = _coarsened(finer.coordinates, finer.order, np.array(steps, np.int64))
            keys, order = self._space.sorted(coordinates)
            is_first = first_of_equals(keys)
            coordinates = coordinates[order[is_first]]
            self._sorted_keys[stride] = keys[is_first]
            self._levels[stride] = Level(stride, coordinates, np.arange(len(coordinates)))
        return self._levels[stride]

    def _divides(self, finer: Steps, steps: Sequence[int]) -> bool:
        return not any(step % fine for fine, step in zip(along_axes(finer, self.dimension), steps))

    def pairs(
        self, fine: Steps, coarse: Steps, kernel_size: Steps, dilation: Steps
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Matching voxels: for each kernel offset k, those with fine voxel = coarse voxel + offset_k in space.

        For a symmetric kernel (odd sides, ``fine == coarse``) only one of each pair of mirrored offsets, and not the
        centre, where every voxel matches itself.

        Yields:
            (k, fine row matching each coarse row, coarse row matching each fine row): int32 (coarse rows,) and (fine
            rows,), -1 for none; both buffers are reused.
        """
        spacing = along_axes(fine, self.dimension)
        offsets = kernel_offsets(kernel_size, self.dimension) * along_axes(dilation, self.dimension) * spacing
        source, target = self.level(fine), self.level(coarse)
        reach = int(np.abs(offsets).max(initial=0)) + max(along_axes(coarse, self.dimension))
        self._forget(self._space.reserve(reach))
        steps = offsets @ self._space.radices()
        chosen = np.arange(len(steps))
        if is_symmetric(fine, coarse, kernel_size):
            chosen = np.flatnonzero(steps < 0)
        # Offsets that differ only along the last axis are a line of neighbouring keys on the fine level: where one is
        # found tells where the next must be. With dilation there are other voxels between them.
        is_dense = along_axes(dilation, self.dimension)[-1] == 1
        lines = _lines_along_last_axis(offsets, chosen) if is_dense else [[k] for k in chosen]
        longest = max((len(line) for line in lines), default=0)
        fine_of = np.empty((longest, len(target.order) + 1), np.int32)  # the last column is for misses
        coarse_of = np.empty((longest, len(source.order) + 1), np.int32)
        keys = self._keys(target), target.order, self._keys(source), source.order
        for line in lines:
            _match(*keys, int(steps[line[0]]), spacing[-1], len(line), fine_of, coarse_of)
            for number, k in enumerate(line):
                yield int(k), fine_of[number, :-1], coarse_of[number, :-1]

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
        level, others = self.level(stride), np.asarray(others, np.int64)
        if len(others):
            self._forget(self._space.reserve_for(others, int(np.abs(offsets).max(initial=0)) + 1))
        keys, order = self._space.sorted(others)
        steps = offsets @ self._space.radices()
        fine_of = np.empty((1, len(others) + 1), np.int32)  # the last column is for misses
        coarse_of = np.empty((1, len(level.order) + 1), np.int32)
        for k, step in enumerate(steps.tolist()):
            _match(keys, order, self._keys(level), level.order, step, 1, 1, fine_of, coarse_of)
            yield k, fine_of[0, :-1], coarse_of[0, :-1]

    def find(self, stride: Steps, wanted: np.ndarray) -> np.ndarray:
        """The row of each wanted voxel in a level, int64 (M,), -1 where there is none.

        Args:
            wanted: integers (M, 1 + D), also several times.
        """
        level, wanted = self.level(stride), np.asarray(wanted, np.int64)
        if not len(wanted) or not len(level.order):
            return np.full(len(wanted), -1, np.int64)
        self._forget(self._space.reserve_for(wanted, 1))
        sorted_keys, keys = self._keys(level), self._space.pack(wanted)
        places = np.minimum(np.searchsorted(sorted_keys, keys), len(sorted_keys) - 1)
        return np.where(sorted_keys[places] == keys, level.order[places], -1)

    def _forget(self, have_changed: bool) -> None:
        if have_changed:
            self._sorted_keys.clear()

    def _keys(self, level: Level) -> np.ndarray:
        if level.stride not in self._sorted_keys:
            self._sorted_keys[level.stride] = self._space.pack(level.coordinates)[level.order]
        return self._sorted_keys[level.stride]


def is_symmetric(fine: Steps, coarse: Steps, kernel_size: Steps) -> bool:
    """If a voxel has a neighbour at offset k, it is that neighbour's neighbour at offset K - 1 - k."""
    sides = (kernel_size,) if isinstance(kernel_size, int) else kernel_size
    return fine == coarse and all(side % 2 for side in sides)


def _lines_along_last_axis(offsets: np.ndarray, chosen: np.ndarray) -> list[list[int]]:
    """The chosen offsets, grouped by all but their last component and ascending in it."""
    lines: dict[tuple[int, ...], list[int]] = {}
    for k in chosen:
        lines.setdefault(tuple(offsets[k, :-1]), []).append(k)
    return list(lines.values())


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
def _coarsened(coordinates, order, strides):
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
