"""Integer coordinates as sorted int64 keys, on all levels of a batch, and the search for neighbours among them."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...runtime.compiled import compiled
from ...runtime.errors import UserError

_SMALLEST_MARGIN = 256


class Level(NamedTuple):
    """The voxels of one tensor stride.

    Attributes:
        stride: their coordinates are multiples of it.
        coordinates: int64 (N, 1 + D), scene number in column 0.
        order: int64 (N,), the rows in lexicographic order of their coordinates.
    """

    stride: int
    coordinates: np.ndarray
    order: np.ndarray


def kernel_offsets(kernel_size: int, dimension: int) -> np.ndarray:
    """Kernel offsets in voxels, int64 (kernel_size ** dimension, dimension), in the order of its weights.

    The first spatial axis runs fastest. An odd kernel is centred: -(K // 2) .. K // 2 along each axis; an even one
    extends forward: 0 .. K - 1. Both as in MinkowskiEngine 0.5 (``coordinate_at`` in src/kernel_region.hpp).
    """
    first = -(kernel_size // 2) if kernel_size % 2 else 0
    steps = range(first, first + kernel_size)
    return np.array([offset[::-1] for offset in itertools.product(steps, repeat=dimension)], np.int64)


class CoordinateLevels:
    """All levels of a batch of voxels, built lazily.

    Args:
        coordinates: integers (N, 1 + D), scene number in column 0, D = 2 or 3; no duplicate voxels, in any order.
        stride: their tensor stride, the finest of all levels; the coordinates are multiples of it.

    Raises:
        ValueError: another shape or dtype, a negative scene number, duplicate voxels, or coordinates between the
            stride's.
        UserError: coordinates beyond int32, or too far apart for a 63-bit key.
    """

    def __init__(self, coordinates: np.ndarray, stride: int = 1) -> None:
        coordinates = np.asarray(coordinates)
        if coordinates.ndim != 2 or coordinates.shape[1] not in (3, 4) or coordinates.dtype.kind not in "iu":
            raise ValueError(
                f"coordinates are {coordinates.dtype} of shape {coordinates.shape}, expected integers (voxels, 1 + D) "
                "with the scene number in column 0 and D = 2 or 3"
            )
        limits = np.iinfo(np.int32)
        if coordinates.size and (coordinates.min() < limits.min or coordinates.max() > limits.max):
            raise UserError(
                f"voxel coordinates reach from {coordinates.min()} to {coordinates.max()}, beyond int32: use a larger "
                "voxel size, or subtract the scene's minimum"
            )
        coordinates = coordinates.astype(np.int64)
        number = len(coordinates)
        # Column by column: numpy is slow along rows of length four.
        low, high = ([limit(column) if number else 0 for column in coordinates.T] for limit in (np.min, np.max))
        if low[0] < 0:
            raise ValueError(f"scene number {low[0]} in column 0 of the coordinates is negative")
        between = np.flatnonzero((coordinates[:, 1:] % stride).any(axis=1)) if stride > 1 else ()
        if len(between):
            raise ValueError(
                f"voxel {between[0]} at {coordinates[between[0], 1:].tolist()} is not one of stride {stride}: expected "
                "the coordinates of that level, multiples of its stride"
            )
        self.dimension = coordinates.shape[1] - 1
        self._margin = _SMALLEST_MARGIN
        self._low, self._high = np.array(low[1:], np.int64), np.array(high[1:], np.int64)
        self._scenes = int(high[0]) + 1 if number else 0
        self._sorted_keys: dict[int, np.ndarray] = {}
        keys, order = _sorted_with_positions(self._pack(coordinates), self._key_bits())
        _refuse_duplicates(keys, order)
        self._sorted_keys[stride] = keys
        self._finest = stride
        self._levels = {stride: Level(stride, coordinates, order)}

    def level(self, stride: int) -> Level:
        """The distinct ``floor(c / stride) * stride`` of the voxels; in lexicographic order unless they are those
        given.

        Raises:
            ValueError: they would lie between the voxels given.
        """
        if stride not in self._levels:
            if stride % self._finest:
                raise ValueError(f"there are no voxels of stride {stride}: the finest have stride {self._finest}")
            finer = self.level(max(known for known in self._levels if stride % known == 0))
            self._reserve(stride)
            coordinates = _coarsened(finer.coordinates, finer.order, stride)
            keys, order = _sorted_with_positions(self._pack(coordinates), self._key_bits())
            is_first = np.ones(len(keys), bool)
            np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
            coordinates = coordinates[order[is_first]]
            self._sorted_keys[stride] = keys[is_first]
            self._levels[stride] = Level(stride, coordinates, np.arange(len(coordinates)))
        return self._levels[stride]

    def pairs(
        self, fine: int, coarse: int, kernel_size: int, dilation: int
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Matching voxels: for each kernel offset k, those with fine voxel = coarse voxel + offset_k in space.

        For a symmetric kernel (odd, ``fine == coarse``) only one of each pair of mirrored offsets, and not the centre,
        where every voxel matches itself.

        Yields:
            (k, fine row matching each coarse row, coarse row matching each fine row): int32 (coarse rows,) and (fine
            rows,), -1 for none; both buffers are reused.
        """
        offsets = kernel_offsets(kernel_size, self.dimension) * (dilation * fine)
        source, target = self.level(fine), self.level(coarse)
        self._reserve(int(np.abs(offsets).max(initial=0)) + coarse)
        steps = offsets @ self._radices()
        chosen = np.arange(len(steps))
        if fine == coarse and kernel_size % 2:
            chosen = np.flatnonzero(steps < 0)
        # Offsets that differ only along the last axis are a line of neighbouring keys on the fine level: where one is
        # found tells where the next must be. With dilation there are other voxels between them.
        lines = _lines_along_last_axis(offsets, chosen) if dilation == 1 else [[k] for k in chosen]
        longest = max((len(line) for line in lines), default=0)
        fine_of = np.empty((longest, len(target.order) + 1), np.int32)  # the last column is for misses
        coarse_of = np.empty((longest, len(source.order) + 1), np.int32)
        keys = self._keys(target), target.order, self._keys(source), source.order
        for line in lines:
            _match(*keys, int(steps[line[0]]), fine, len(line), fine_of, coarse_of)
            for number, k in enumerate(line):
                yield int(k), fine_of[number, :-1], coarse_of[number, :-1]

    def _reserve(self, reach: int) -> None:
        """Make room in the keys for coordinates up to ``reach`` outside the voxels' bounding box."""
        if reach > self._margin:
            self._margin = 1 << (reach - 1).bit_length()
            self._sorted_keys.clear()

    def _radices(self) -> np.ndarray:
        """Key increment of one step along each spatial axis, int64 (D,)."""
        widths = [int(high) - int(low) + 1 + 2 * self._margin for low, high in zip(self._low, self._high)]
        radices = [1] * self.dimension
        for axis in range(self.dimension - 2, -1, -1):
            radices[axis] = radices[axis + 1] * widths[axis + 1]
        if radices[0] * widths[0] * max(1, self._scenes) > np.iinfo(np.int64).max:
            spans = " x ".join(str(int(high) - int(low) + 1) for low, high in zip(self._low, self._high))
            raise UserError(
                f"the voxels of {self._scenes} scene(s) span {spans}, too far for a key of 63 bits: use a larger voxel "
                "size, or remove stray points"
            )
        return np.array(radices, np.int64)

    def _pack(self, coordinates: np.ndarray) -> np.ndarray:
        """Keys int64 (N,) with the same sort order as the coordinates."""
        radices = self._radices()
        keys = coordinates[:, 0] * self._scene_step()
        for axis in range(self.dimension):
            keys += (coordinates[:, 1 + axis] - (self._low[axis] - self._margin)) * radices[axis]
        return keys

    def _scene_step(self) -> int:
        """Key increment of one scene."""
        return int(self._radices()[0]) * (int(self._high[0]) - int(self._low[0]) + 1 + 2 * self._margin)

    def _key_bits(self) -> int:
        return (self._scene_step() * max(1, self._scenes)).bit_length()

    def _keys(self, level: Level) -> np.ndarray:
        if level.stride not in self._sorted_keys:
            self._sorted_keys[level.stride] = self._pack(level.coordinates)[level.order]
        return self._sorted_keys[level.stride]


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
def _coarsened(coordinates, order, stride):
    """The coarse voxels containing the given voxels, in the given order; the first column is the scene."""
    coarse = np.empty((len(order), coordinates.shape[1]), np.int64)
    is_power_of_two = stride & (stride - 1) == 0
    for i in range(len(order)):
        for axis in range(coordinates.shape[1]):
            value = coordinates[order[i], axis]
            if axis > 0:
                value = value & -stride if is_power_of_two else value // stride * stride  # both round down
            coarse[i, axis] = value
    return coarse


@compiled
def _sorted_with_positions(keys, bits):
    """Stable sort: sorted keys, and their original positions.

    Radix sort from the lowest digit (D. Knuth, The Art of Computer Programming, 5.2.5): in a fifth of the time of
    numpy's comparison sort. ``keys`` are non-negative int64 with that many bits, and are overwritten.
    """
    order = np.arange(len(keys))
    other_keys, other_order = np.empty_like(keys), np.empty_like(order)
    for shift in range(0, bits, 11):
        places = np.zeros(2049, np.int64)
        for i in range(len(keys)):
            places[1 + (keys[i] >> shift & 2047)] += 1
        for digit in range(2048):
            places[digit + 1] += places[digit]
        for i in range(len(keys)):
            digit = keys[i] >> shift & 2047
            other_keys[places[digit]] = keys[i]
            other_order[places[digit]] = order[i]
            places[digit] += 1
        keys, other_keys = other_keys, keys
        order, other_order = other_order, order
    return keys, order


def _refuse_duplicates(sorted_keys: np.ndarray, order: np.ndarray) -> None:
    repeated = np.flatnonzero(sorted_keys[1:] == sorted_keys[:-1])
    if len(repeated):
        first, second = sorted(int(row) for row in order[repeated[0] : repeated[0] + 2])
        raise ValueError(f"voxels {first} and {second} have the same coordinates: make them unique (sparse_quantize)")
