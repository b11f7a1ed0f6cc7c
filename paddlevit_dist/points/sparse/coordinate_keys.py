"""Integer coordinates as int64 keys with the same order, sorted in linear time."""

from collections.abc import Sequence

import numpy as np

from ...core.runtime.compiled import compiled
from ...core.runtime.errors import UserError

_MIN_MARGIN = 256
_MAX_AXES = 4

Steps = int | tuple[int, ...]  # a stride, size or dilation: one number for all axes, or one for each if they differ


def along_axes(steps: Steps, dimension: int) -> tuple[int, ...]:
    """Return one number for each axis from one for all or one for each; ValueError if they are not ``dimension``."""
    numbers = (steps,) * dimension if isinstance(steps, int) else tuple(steps)
    if len(numbers) != dimension:
        raise ValueError(f"{steps} has {len(numbers)} numbers for {dimension} axes: give one for each, or one for all")
    return numbers


def simplify_steps(steps: Sequence[int]) -> Steps:
    """Return one number if all are equal, else a tuple, so that equal steps compare equal."""
    return steps[0] if len(set(steps)) == 1 else tuple(steps)


class KeySpace:
    """Keys of all voxels within the bounding box of the given coordinates, plus a margin.

    ``coordinates`` are whole numbers (N, 1 + D), integers or floating, scene number in column 0, D from 1 to 4, in any
    order; the attribute has them as int64. ValueError for a wrong shape or dtype, or a negative scene number, UserError
    for coordinates that are not whole or beyond int32.
    """

    def __init__(self, coordinates: np.ndarray) -> None:
        coordinates = np.asarray(coordinates)
        is_shaped = coordinates.ndim == 2 and 2 <= coordinates.shape[1] <= 1 + _MAX_AXES
        if not is_shaped or coordinates.dtype.kind not in "iuf":
            raise ValueError(
                f"coordinates are {coordinates.dtype} of shape {coordinates.shape}, expected integers (voxels, 1 + D) "
                f"with the scene number in column 0 and D from 1 to {_MAX_AXES}"
            )
        if coordinates.dtype.kind == "f":  # float64, since half precision has no limits of int32
            coordinates = coordinates.astype(np.float64)
        if coordinates.dtype.kind == "f" and (coordinates != np.floor(coordinates)).any():  # also NaN
            row = int((coordinates != np.floor(coordinates)).any(axis=1).argmax())
            raise UserError(
                f"row {row} of the coordinates is {coordinates[row].tolist()}, expected whole numbers of voxels: use "
                "sparse_quantize with quantization_size first, or PointFeatures for points between voxels"
            )
        limits = np.iinfo(np.int32)
        if coordinates.size and (coordinates.min() < limits.min or coordinates.max() > limits.max):
            raise UserError(
                f"voxel coordinates reach from {coordinates.min()} to {coordinates.max()}, beyond int32: use a larger "
                "voxel size, or subtract the scene's minimum"
            )
        self.coordinates = coordinates = coordinates.astype(np.int64)
        number = len(coordinates)
        # Column by column: numpy is slow along rows of length four.
        low, high = ([limit(column) if number else 0 for column in coordinates.T] for limit in (np.min, np.max))
        if low[0] < 0:
            raise ValueError(f"scene number {low[0]} in column 0 of the coordinates is negative")
        self.dimension = coordinates.shape[1] - 1
        self._margin = _MIN_MARGIN
        self._low, self._high = np.array(low[1:], np.int64), np.array(high[1:], np.int64)
        self._scenes = int(high[0]) + 1 if number else 0

    def reserve(self, reach: int) -> bool:
        """Extend the margin to ``reach`` around the bounding box; return True if this changed all keys."""
        grows = reach > self._margin
        if grows:
            self._margin = 1 << (reach - 1).bit_length()
        return grows

    def in_reach(self, others: np.ndarray) -> np.ndarray:
        """Return which of ``others`` (M, 1 + D) have a known scene and are within the margin: bool (M,)."""
        is_in_reach = (others[:, 0] >= 0) & (others[:, 0] < self._scenes)
        for column, low, high in zip(others.T[1:], self._low - self._margin, self._high + self._margin):
            is_in_reach &= (column >= low) & (column <= high)
        return is_in_reach

    def radices(self) -> np.ndarray:
        """Return the key's increment of one step along each axis, int64 (D,); UserError if keys need over 63 bits."""
        widths = [int(high) - int(low) + 1 + 2 * self._margin for low, high in zip(self._low, self._high)]
        radices = [1] * self.dimension
        for axis in range(self.dimension - 2, -1, -1):
            radices[axis] = radices[axis + 1] * widths[axis + 1]
        if radices[0] * widths[0] * max(1, self._scenes) > np.iinfo(np.int64).max:
            spans = " x ".join(str(int(high) - int(low) + 1) for low, high in zip(self._low, self._high))
            raise UserError(
                f"the voxels of {self._scenes} scene(s) span {spans}, too large for a 63-bit key: use a larger voxel "
                "size, or remove stray points"
            )
        return np.array(radices, np.int64)

    def pack(self, coordinates: np.ndarray) -> np.ndarray:
        """Return keys int64 (N,) with the same sort order as the coordinates."""
        radices = self.radices()
        keys = coordinates[:, 0] * self._scene_step()
        for axis in range(self.dimension):
            keys += (coordinates[:, 1 + axis] - (self._low[axis] - self._margin)) * radices[axis]
        return keys

    def sort_keys(self, coordinates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the keys in ascending order, and the positions of their voxels, int64 (N,) each."""
        return _sort_with_positions(self.pack(coordinates), (self._scene_step() * max(1, self._scenes)).bit_length())

    def _scene_step(self) -> int:
        return int(self.radices()[0]) * (int(self._high[0]) - int(self._low[0]) + 1 + 2 * self._margin)


def unique_voxels(coordinates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the unique voxels in lexicographic order, int32 (M, 1 + D), and the index of each input, int64 (N,).

    ``coordinates`` and errors are as for ``KeySpace``; UserError also if they are too far apart for a 63-bit key.
    """
    space = KeySpace(coordinates)
    keys, order = space.sort_keys(space.coordinates)
    is_first = mark_first(keys)
    inverse = np.empty(len(keys), np.int64)
    inverse[order] = np.cumsum(is_first) - 1
    return space.coordinates[order[is_first]].astype(np.int32), inverse


def mark_first(sorted_keys: np.ndarray) -> np.ndarray:
    """Return bool (N,): True where a key differs from the previous one."""
    is_first = np.ones(len(sorted_keys), bool)
    np.not_equal(sorted_keys[1:], sorted_keys[:-1], out=is_first[1:])
    return is_first


@compiled
def _sort_with_positions(keys, bits):
    """Sort stably; return the sorted keys and their original positions. Sorted input is returned unchanged.

    Radix sort from the lowest digit (D. Knuth, The Art of Computer Programming, 5.2.5): takes a fifth of the time of
    numpy's comparison sort. ``keys`` are non-negative int64 with at most ``bits`` bits, and are overwritten.
    """
    order = np.arange(len(keys))
    ascending = 1
    while ascending < len(keys) and keys[ascending] >= keys[ascending - 1]:
        ascending += 1
    if ascending >= len(keys):
        return keys, order
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
