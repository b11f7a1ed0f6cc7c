"""Points to voxels: ``sparse_quantize`` and ``sparse_collate``, with the names and semantics of MinkowskiEngine 0.5.

Source: C. Choy et al., "4D Spatio-Temporal ConvNets: Minkowski Convolutional Neural Networks", CVPR 2019, arXiv
1904.08755, section 3.1, and the library's documentation of ``utils.quantization`` and ``utils.collation``.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.runtime.compiled import compiled
from ...core.runtime.errors import UserError
from .scene import IGNORED

if TYPE_CHECKING:
    import paddle
    from numpy.typing import DTypeLike

_KEY_BITS = 62  # of an int64, leaving a spare bit for sums
_LIMITS = np.iinfo(np.int32)


def sparse_quantize(
    coordinates: np.ndarray,
    features: np.ndarray | None = None,
    labels: np.ndarray | None = None,
    ignore_label: int = IGNORED,
    return_index: bool = False,
    return_inverse: bool = False,
    return_maps_only: bool = False,
    quantization_size: None | float | Sequence[float] | np.ndarray = None,
) -> Any:
    """Keep the first point of each voxel; voxels are in order of first occurrence.

    A voxel is ``floor(coordinates / quantization_size)``, also for negative coordinates. Features are the first
    point's, not a mean. The label of a voxel is the one shared by all its points, or ``ignore_label`` if they differ; a
    point labeled ``ignore_label`` conflicts with one that has a class. MinkowskiEngine 0.5.4 intends the same, but
    writes the ``ignore_label`` of conflicting voxel ``v`` to voxel ``inverse[v]``, which is a different one once an
    earlier point has shared a voxel; that bug is not reproduced.

    Args:
        coordinates: (N, D) of any real dtype, D at least 1; in voxels if ``quantization_size`` is not given.
        features: (N, C), any dtype.
        labels: (N,) integers.
        ignore_label: label of voxels whose points disagree.
        return_index: also return the map to the first points.
        return_inverse: also return the map from points to voxels.
        return_maps_only: return only the map to the first points, or both maps with ``return_inverse``.
        quantization_size: edge of a voxel in the unit of ``coordinates``, a scalar or one per dimension.

    Returns:
        The requested of the following, in this order, for M voxels; not a tuple if only one: coordinates int32 (M, D);
        features (M, C), if given; labels (M,) in the dtype of ``labels``, or int32 if that cannot hold
        ``ignore_label``, if given; index int64 (M,), increasing; inverse int64 (N,), so that
        ``coordinates[inverse]`` are the voxels of all points.

    Raises:
        UserError: a size that is not positive, coordinates that are not finite or outside int32 as voxels.
        ValueError: shapes that do not match.
    """
    coordinates = np.asarray(coordinates)
    _check_shapes(coordinates, features, labels)
    voxels = discretize(coordinates, quantization_size)  # (N, D) int32
    index, inverse = first_occurrences(voxels)  # (M,), (N,) int64
    if return_maps_only:
        return (index, inverse) if return_inverse else index
    results = [voxels[index]]
    if features is not None:
        results.append(np.asarray(features)[index])
    if labels is not None:
        results.append(common_labels(np.asarray(labels), index, inverse, ignore_label))
    if return_index:
        results.append(index)
    if return_inverse:
        results.append(inverse)
    return results[0] if len(results) == 1 else tuple(results)


def sparse_collate(
    coords: Sequence[np.ndarray],
    feats: Sequence[np.ndarray] | None = None,
    labels: Sequence[np.ndarray] | None = None,
    dtype: "DTypeLike | paddle.dtype" = np.int32,
) -> np.ndarray | tuple[np.ndarray, ...]:
    """Collate scenes into one batch, with the scene number prepended to each voxel's coordinates.

    Args:
        coords: (N_b, D) of each scene; fractional values are rounded down, unless ``dtype`` is floating.
        feats: (N_b, C) of each scene; tensors are concatenated with their gradients. None: only coordinates are
            collated, like MinkowskiEngine's ``batched_coordinates``.
        labels: (N_b,) of each scene, or (1,) for the whole scene; any dtype, arrays or tensors. A scene may be empty.
        dtype: dtype of the coordinates, NumPy's or Paddle's: an integer type, or a floating one for ``TensorField``.

    Returns:
        coordinates (sum of N_b, 1 + D) of ``dtype``; with features a tuple: coordinates, features (sum of N_b, C) and,
        if given, labels, concatenated, in the common dtype of the scenes.

    Raises:
        ValueError: no scenes, lengths or dimensions that do not match, or a ``dtype`` that is not numeric.
        UserError: coordinates that are not finite, outside int32, or whole numbers that ``dtype`` cannot hold.
    """
    coords = [np.asarray(scene_voxels) for scene_voxels in coords]
    rows_by_scene = [scene_voxels[:, :0] for scene_voxels in coords] if feats is None else feats
    if not len(coords) or len(coords) != len(rows_by_scene) or (labels is not None and len(labels) != len(coords)):
        raise ValueError("sparse_collate needs at least one scene, and one array of features and labels per scene")
    for scene, (voxels, rows) in enumerate(zip(coords, rows_by_scene)):
        _check_shapes(voxels, rows, None)
        if labels is not None and tuple(np.shape(labels[scene])) not in ((len(voxels),), (1,)):
            raise ValueError(f"labels have shape {np.shape(labels[scene])}, expected ({len(voxels)},) or (1,)")
    dimensions = {scene_voxels.shape[1] for scene_voxels in coords}
    if len(dimensions) > 1:
        raise ValueError(f"scenes of a batch have different dimensions: {sorted(dimensions)}")
    ends = np.cumsum([len(scene_voxels) for scene_voxels in coords])
    kind = np.dtype(str(dtype).removeprefix("paddle.") if "paddle." in str(dtype) else dtype)
    if kind.kind not in "if":
        raise ValueError(f"dtype {kind}: expected a type of coordinates, such as int32 or float32")
    batch = np.empty((ends[-1], 1 + dimensions.pop()), kind)
    for scene, (end, voxels) in enumerate(zip(ends, coords)):
        batch[end - len(voxels) : end, 0] = scene
        places = discretize(voxels)  # also checks them
        with np.errstate(over="ignore"):  # rejected below
            batch[end - len(voxels) : end, 1:] = places if kind.kind == "i" else voxels
        if np.can_cast(np.int32, kind):  # the check takes a fifth of this function's time
            continue
        is_changed = (places == voxels) & (batch[end - len(voxels) : end, 1:] != places)
        if is_changed.any():
            raise UserError(f"{kind} cannot hold the voxel coordinate {places[is_changed][0]}; use int32 or float64")
    concatenated = [_concatenate(parts) for parts in (feats, labels) if parts is not None]
    return (batch, *concatenated) if concatenated else batch


def _concatenate(parts: Sequence[Any]) -> Any:
    if all(isinstance(part, (np.ndarray, list, tuple)) for part in parts):
        return np.concatenate(parts)
    import paddle  # only for tensors; loader processes have arrays and do not need Paddle

    return paddle.concat([part if isinstance(part, paddle.Tensor) else paddle.to_tensor(part) for part in parts])


def discretize(coordinates: np.ndarray, size: None | float | Sequence[float] | np.ndarray = None) -> np.ndarray:
    """Return ``floor(coordinates / size)``, (N, D), as int32, divided in the precision of ``coordinates``.

    ``size`` is the edge of a voxel, a scalar or one per dimension; None: 1. UserError for a size that is not positive,
    or coordinates that are not finite or outside int32 as voxels.
    """
    if size is not None:
        sizes = _check_size(size, coordinates.shape[1])
        kind = coordinates.dtype if coordinates.dtype.kind == "f" else np.float64
        with np.errstate(over="ignore"):  # overflow is rejected below
            coordinates = coordinates / sizes.astype(kind)
    if coordinates.dtype.kind == "f":
        coordinates = np.floor(coordinates)
    if coordinates.dtype != np.int32 and coordinates.size:
        _check_range(coordinates)
    return coordinates.astype(np.int32, copy=False)


def first_occurrences(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first of each unique row of int32 (N, D), int64 (M,), ascending, and each row's unique one (N,)."""
    number = len(rows)
    if not number:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return _find_first_keys(_pack(rows), 2 * number)


@compiled
def _find_first_keys(keys, min_slots):
    """Find the first occurrence of each key with a linear-probing hash table of the unique keys' numbers."""
    bits = 4
    while 1 << bits < min_slots:
        bits += 1
    mask = (1 << bits) - 1
    slots = np.full(1 << bits, -1, np.int32)
    keys_found = np.empty(len(keys), np.int64)
    first = np.empty(len(keys), np.int64)
    inverse = np.empty(len(keys), np.int64)
    number = 0
    for row in range(len(keys)):
        key = keys[row]
        # The upper bits of a product with 2^64 / golden ratio: D. Knuth, The Art of Computer Programming, 6.4.
        slot = np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - bits))
        while slots[slot] >= 0 and keys_found[slots[slot]] != key:
            slot = (slot + 1) & mask
        if slots[slot] < 0:
            slots[slot] = number
            keys_found[number] = key
            first[number] = row
            number += 1
        inverse[row] = slots[slot]
    return first[:number].copy(), inverse


def common_labels(labels: np.ndarray, index: np.ndarray, inverse: np.ndarray, ignore_label: int) -> np.ndarray:
    """Return the label shared by all points of a voxel, else ``ignore_label``; (M,) for ``first_occurrences``."""
    limits = np.iinfo(labels.dtype)
    voxel_labels = labels[index]
    if not limits.min <= ignore_label <= limits.max:
        voxel_labels = voxel_labels.astype(np.int32)
    voxel_labels[inverse[labels != labels[index][inverse]]] = ignore_label
    return voxel_labels


def voxel_means(features: np.ndarray, inverse: np.ndarray, num_voxels: int) -> np.ndarray:
    """Return the mean of the features of each voxel's points, float32 (M, C), for the loader; summed in float64."""
    means = np.zeros((num_voxels, features.shape[1]))
    counts = np.zeros(num_voxels, np.int64)
    _add_to_voxels(features, inverse, means, counts)
    means /= counts[:, None]
    return means.astype(np.float32)


@compiled
def _add_to_voxels(features, inverse, sums, counts):
    for point in range(len(inverse)):
        voxel = inverse[point]
        counts[voxel] += 1
        for channel in range(features.shape[1]):
            sums[voxel, channel] += features[point, channel]


def _pack(rows: np.ndarray) -> np.ndarray:
    """Compute keys int64 (N,), different for different rows: numbers of the cells of the rows' bounding box.

    In a box with too many cells for an int64, each value is replaced by its rank among the values that occur, at most
    as many as rows.
    """
    columns = np.ascontiguousarray(rows.T, np.int64)  # (D, N): far faster along contiguous memory
    columns -= columns.min(axis=1)[:, None]
    keys, cells = columns[0], int(columns[0].max()) + 1
    for column in columns[1:]:
        width = int(column.max()) + 1
        if cells * width > 1 << _KEY_BITS:
            keys, cells = _ranks(keys)
        if cells * width > 1 << _KEY_BITS:
            column, width = _ranks(column)
        keys *= width
        keys += column
        cells *= width
    return keys


def _ranks(values: np.ndarray) -> tuple[np.ndarray, int]:
    unique_values, ranks = np.unique(values, return_inverse=True)
    return ranks.astype(np.int64, copy=False), len(unique_values)


def _check_shapes(coordinates: np.ndarray, features: np.ndarray | None, labels: np.ndarray | None) -> None:
    if np.ndim(coordinates) != 2 or coordinates.shape[1] < 1:
        raise ValueError(f"coordinates have shape {np.shape(coordinates)}, expected (points, dimensions)")
    if features is not None and (np.ndim(features) != 2 or len(features) != len(coordinates)):
        raise ValueError(f"features have shape {np.shape(features)}, expected ({len(coordinates)}, channels)")
    if labels is not None:
        if tuple(np.shape(labels)) != (len(coordinates),):
            raise ValueError(f"labels have shape {np.shape(labels)}, expected ({len(coordinates)},)")
        if np.asarray(labels).dtype.kind not in "iu":
            raise ValueError(f"labels are {np.asarray(labels).dtype}, expected integers")


def _check_size(size: float | Sequence[float] | np.ndarray, dimensions: int) -> np.ndarray:
    sizes = np.asarray(size, np.float64)
    if sizes.ndim and sizes.shape != (dimensions,):
        raise ValueError(f"quantization_size has shape {sizes.shape}, expected one number or {dimensions}")
    if not np.all((sizes > 0) & (sizes < math.inf)):
        raise UserError(f"voxel size {size}: expected a positive number in the unit of the coordinates, such as 0.02")
    return sizes


def _check_range(voxels: np.ndarray) -> None:
    lowest, highest = float(voxels.min()), float(voxels.max())  # exact: the largest int32 is not one of float32
    if not (np.isfinite(lowest) and np.isfinite(highest)):
        row = int(np.flatnonzero(~np.isfinite(voxels).all(axis=1))[0])
        raise UserError(f"point {row} has a coordinate that is not a finite number; remove such points")
    if lowest < _LIMITS.min or highest > _LIMITS.max:
        raise UserError(
            f"voxel coordinates reach from {lowest:.6g} to {highest:.6g}, beyond int32; use a larger voxel size, or "
            "subtract the scene's minimum and remove stray points"
        )
