"""Integer coordinates as sorted int64 keys, on all levels of a batch, and the search for neighbours among them."""

from __future__ import annotations

import itertools
from typing import Dict, Iterator, NamedTuple, Tuple

import numpy as np

from ...errors import UserError
from ..compiled import compiled
from ..voxels import sort_with_positions

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
    """The offsets of a kernel in voxels, int64 (kernel_size ** dimension, dimension), in the order of its weights.

    The first spatial axis runs fastest. An odd kernel is centred: -(K // 2) .. K // 2 along each axis; an even one goes
    forward: 0 .. K - 1. Both as in MinkowskiEngine 0.5 (``coordinate_at`` in src/kernel_region.hpp).
    """
    first = -(kernel_size // 2) if kernel_size % 2 else 0
    steps = range(first, first + kernel_size)
    return np.array([offset[::-1] for offset in itertools.product(steps, repeat=dimension)], np.int64)


class CoordinateLevels:
    """All levels of a batch of voxels; made when they are first asked for.

    Args:
        coordinates: integers (N, 1 + D), scene number in column 0, D = 2 or 3; no voxel twice, in any order.

    Raises:
        ValueError: another shape or dtype, a negative scene number, or a voxel that occurs twice.
        UserError: coordinates beyond int32, or too far apart for a key of 63 bits.
    """

    def __init__(self, coordinates: np.ndarray) -> None:
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
        # Column by column: numpy is slow along rows of four.
        low, high = ([limit(column) if number else 0 for column in coordinates.T] for limit in (np.min, np.max))
        if low[0] < 0:
            raise ValueError(f"scene number {low[0]} in column 0 of the coordinates is negative")
        self.dimension = coordinates.shape[1] - 1
        self._margin = _SMALLEST_MARGIN
        self._low, self._high = np.array(low[1:], np.int64), np.array(high[1:], np.int64)
        self._scenes = int(high[0]) + 1 if number else 0
        self._sorted_keys: Dict[int, np.ndarray] = {}
        keys, order = sort_with_positions(self._pack(coordinates), self._key_bits())
        _refuse_duplicates(keys, order)
        self._sorted_keys[1] = keys
        self._levels = {1: Level(1, coordinates, order)}

    def level(self, stride: int) -> Level:
        """The distinct ``floor(c / stride) * stride`` of the voxels; beyond stride 1 in lexicographic order."""
        if stride not in self._levels:
            finer = self.level(max(known for known in self._levels if stride % known == 0))
            self._reserve(stride)
            low = np.append(0, self._low - self._margin)
            radices = np.append(self._scene_step(), self._radices())
            keys = _coarse_keys(finer.coordinates, finer.order, stride, low, radices)
            keys, order = sort_with_positions(keys, self._key_bits())
            is_first = np.ones(len(keys), bool)
            np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
            coordinates = _coarse_coordinates(finer.coordinates, finer.order[order[is_first]], stride)
            self._sorted_keys[stride] = keys[is_first]
            self._levels[stride] = Level(stride, coordinates, np.arange(len(coordinates)))
        return self._levels[stride]

    def pairs(
        self, fine: int, coarse: int, kernel_size: int, dilation: int
    ) -> Iterator[Tuple[int, np.ndarray, np.ndarray]]:
        """Which voxels meet: for each kernel offset k, those with fine voxel = coarse voxel + offset_k in space.

        For a symmetric kernel (odd, ``fine == coarse``) only the offsets before the centre: those after it are their
        mirror images, and at the centre every voxel meets itself.

        Yields:
            (k, the fine row that each coarse row meets, the coarse row that each fine row meets): int32 (coarse rows,)
            and (fine rows,), -1 for none; both are overwritten by the next offset.
        """
        offsets = kernel_offsets(kernel_size, self.dimension) * (dilation * fine)
        if fine == coarse and kernel_size % 2:
            offsets = offsets[: len(offsets) // 2]
        source, target = self.level(fine), self.level(coarse)
        self._reserve(int(np.abs(offsets).max(initial=0)) + coarse)
        fine_of, coarse_of = np.empty(len(target.order), np.int32), np.empty(len(source.order), np.int32)
        for k, step in enumerate((offsets @ self._radices()).tolist()):
            _match(self._keys(target), target.order, self._keys(source), source.order, step, fine_of, coarse_of)
            yield k, fine_of, coarse_of

    def _reserve(self, reach: int) -> None:
        """Make keys leave room for coordinates that lie ``reach`` outside of the voxels' bounding box."""
        if reach > self._margin:
            self._margin = 1 << (reach - 1).bit_length()
            self._sorted_keys.clear()

    def _radices(self) -> np.ndarray:
        """What one step along each spatial axis adds to a key, int64 (D,)."""
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
        """Keys int64 (N,) that sort as the coordinates do."""
        radices = self._radices()
        keys = coordinates[:, 0] * self._scene_step()
        for axis in range(self.dimension):
            keys += (coordinates[:, 1 + axis] - (self._low[axis] - self._margin)) * radices[axis]
        return keys

    def _scene_step(self) -> int:
        """What one scene adds to a key."""
        return int(self._radices()[0]) * (int(self._high[0]) - int(self._low[0]) + 1 + 2 * self._margin)

    def _key_bits(self) -> int:
        return (self._scene_step() * max(1, self._scenes)).bit_length()

    def _keys(self, level: Level) -> np.ndarray:
        if level.stride not in self._sorted_keys:
            self._sorted_keys[level.stride] = self._pack(level.coordinates)[level.order]
        return self._sorted_keys[level.stride]


@compiled
def _coarse_keys(coordinates, order, stride, low, radices):
    """Keys of the coarse voxels that voxels lie in, in the given order; the first column is not made coarse."""
    keys = np.empty(len(order), np.int64)
    for i in range(len(order)):
        row = coordinates[order[i]]
        key = (row[0] - low[0]) * radices[0]
        for axis in range(1, len(row)):
            key += (row[axis] // stride * stride - low[axis]) * radices[axis]
        keys[i] = key
    return keys


@compiled
def _coarse_coordinates(coordinates, rows, stride):
    coarse = np.empty((len(rows), coordinates.shape[1]), np.int64)
    for i in range(len(rows)):
        coarse[i, 0] = coordinates[rows[i], 0]
        for axis in range(1, coordinates.shape[1]):
            coarse[i, axis] = coordinates[rows[i], axis] // stride * stride
    return coarse


@compiled
def _match(coarse_keys, coarse_rows, fine_keys, fine_rows, step, fine_of, coarse_of):
    """Walk through both sorted lists at once: a coarse voxel's partner is never before that of the one before."""
    fine_of[:] = -1
    coarse_of[:] = -1
    place = 0
    for i in range(len(coarse_keys)):
        wanted = coarse_keys[i] + step
        while place < len(fine_keys) and fine_keys[place] < wanted:
            place += 1
        if place == len(fine_keys):
            break
        if fine_keys[place] == wanted:
            fine_of[coarse_rows[i]] = fine_rows[place]
            coarse_of[fine_rows[place]] = coarse_rows[i]


def _refuse_duplicates(sorted_keys: np.ndarray, order: np.ndarray) -> None:
    repeated = np.flatnonzero(sorted_keys[1:] == sorted_keys[:-1])
    if len(repeated):
        first, second = sorted(int(row) for row in order[repeated[0] : repeated[0] + 2])
        raise ValueError(f"voxels {first} and {second} have the same coordinates: make them unique (sparse_quantize)")
