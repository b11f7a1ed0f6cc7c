"""Integer coordinates as sorted int64 keys, on all levels of a batch, and the search for neighbours among them."""

from __future__ import annotations

import itertools
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from ...errors import UserError

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
        if len(coordinates) and coordinates[:, 0].min() < 0:
            raise ValueError(f"scene number {coordinates[:, 0].min()} in column 0 of the coordinates is negative")
        self.dimension = coordinates.shape[1] - 1
        self._margin = _SMALLEST_MARGIN
        self._low = coordinates[:, 1:].min(axis=0) if len(coordinates) else np.zeros(self.dimension, np.int64)
        self._high = coordinates[:, 1:].max(axis=0) if len(coordinates) else np.zeros(self.dimension, np.int64)
        self._scenes = int(coordinates[:, 0].max()) + 1 if len(coordinates) else 0
        self._sorted_keys: Dict[int, np.ndarray] = {}
        keys = self._pack(coordinates)
        order = _sorting_order(keys)
        _refuse_duplicates(keys[order], order)
        self._levels = {1: Level(1, coordinates, order)}

    def level(self, stride: int) -> Level:
        """The distinct ``floor(c / stride) * stride`` of the voxels; beyond stride 1 in lexicographic order."""
        if stride not in self._levels:
            finer = self.level(max(known for known in self._levels if stride % known == 0))
            coordinates = finer.coordinates[finer.order]
            coordinates[:, 1:] -= np.mod(coordinates[:, 1:], stride)  # numpy's remainder is that of floor division
            self._reserve(stride)
            keys = self._pack(coordinates)
            order = _sorting_order(keys)
            keys = keys[order]
            is_first = np.ones(len(keys), bool)
            np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
            coordinates = coordinates[order[is_first]]
            self._levels[stride] = Level(stride, coordinates, np.arange(len(coordinates)))
        return self._levels[stride]

    def pairs(
        self, fine: int, coarse: int, kernel_size: int, dilation: int
    ) -> Iterator[Tuple[int, np.ndarray, np.ndarray]]:
        """Which voxels meet: for each kernel offset k, coarse rows u and fine rows v with v = u + offset_k in space.

        For a symmetric kernel (odd, ``fine == coarse``) only the offsets before the centre: those after it are their
        mirror images, and at the centre every voxel meets itself.

        Yields:
            (k, coarse rows, fine rows), int64 and of equal length.
        """
        offsets = kernel_offsets(kernel_size, self.dimension) * (dilation * fine)
        if fine == coarse and kernel_size % 2:
            offsets = offsets[: len(offsets) // 2]
        source, target = self.level(fine), self.level(coarse)
        self._reserve(int(np.abs(offsets).max(initial=0)) + coarse)
        source_keys, target_keys = self._keys(source), self._keys(target)
        weights = self._radices()
        # Kernel offsets that differ only along the last axis are a line of consecutive keys on the fine level: the
        # place of one is that of the one before, or the next if that one was found. With dilation it is not.
        walks = dilation == 1
        for line in _lines_along_last_axis(offsets):
            place: Optional[np.ndarray] = None
            for k in line:
                wanted = target_keys + int(offsets[k] @ weights)
                if place is None or not walks:
                    place = np.searchsorted(source_keys, wanted)
                found = _equal_at(source_keys, place, wanted)
                yield k, target.order[found], source.order[place[found]]
                place = place + found

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
        widest = int(radices[0]) * (int(self._high[0]) - int(self._low[0]) + 1 + 2 * self._margin)
        keys = coordinates[:, 0] * widest
        for axis in range(self.dimension):
            keys += (coordinates[:, 1 + axis] - (self._low[axis] - self._margin)) * radices[axis]
        return keys

    def _keys(self, level: Level) -> np.ndarray:
        if level.stride not in self._sorted_keys:
            self._sorted_keys[level.stride] = self._pack(level.coordinates)[level.order]
        return self._sorted_keys[level.stride]


def _sorting_order(keys: np.ndarray) -> np.ndarray:
    if len(keys) < 2 or (keys[1:] >= keys[:-1]).all():
        return np.arange(len(keys))
    return np.argsort(keys, kind="stable")


def _refuse_duplicates(sorted_keys: np.ndarray, order: np.ndarray) -> None:
    repeated = np.flatnonzero(sorted_keys[1:] == sorted_keys[:-1])
    if len(repeated):
        first, second = sorted(int(row) for row in order[repeated[0] : repeated[0] + 2])
        raise ValueError(f"voxels {first} and {second} have the same coordinates: make them unique (sparse_quantize)")


def _lines_along_last_axis(offsets: np.ndarray) -> List[List[int]]:
    """Numbers of the offsets, grouped by all but their last component and ascending in it."""
    lines: Dict[Tuple[int, ...], List[int]] = {}
    for k, offset in enumerate(offsets):
        lines.setdefault(tuple(offset[:-1]), []).append(k)
    return list(lines.values())


def _equal_at(sorted_keys: np.ndarray, place: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Whether each wanted key stands at its place, bool (N,)."""
    if not len(sorted_keys):
        return np.zeros(len(wanted), bool)
    return sorted_keys[np.minimum(place, len(sorted_keys) - 1)] == wanted  # past the end: the last key is smaller
