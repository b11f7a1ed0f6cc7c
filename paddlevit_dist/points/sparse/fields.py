"""Points with features between voxels: scattering to voxels, gathering, interpolation; and dense arrays.

Points are in units of voxels. ``PointFeatures.voxels`` takes a voxel's coordinates as its lower corner; interpolation
takes them as a grid point, as in MinkowskiEngine's ``TensorField`` (``src/interpolation_kernel.hpp``).
"""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import paddle

from ...core.runtime.transfers import to_device
from .coordinate_keys import Steps, along_axes, unique_voxels
from .device_plan import Plan
from .tensor import FeatureOutput, SparseTensor, empty_rows, gather_rows, parse_steps, require_sparse, scatter_rows

_MODES = ("mean", "sum", "first")


class PointFeatures(FeatureOutput):
    """Points with features, floating (P, C), tensor or array: MinkowskiEngine's ``TensorField``.

    ``points`` are float (P, 1 + D), array or tensor, scene number in column 0, then coordinates in voxels.
    ``num_scenes`` counts scenes of the batch, if the last ones may be empty. ValueError for shapes that do not match,
    points that are not finite, or scene numbers that are not integers.
    """

    def __init__(
        self, features: paddle.Tensor | np.ndarray, points: paddle.Tensor | np.ndarray, num_scenes: int | None = None
    ) -> None:
        self.features = features if isinstance(features, paddle.Tensor) else to_device(np.asarray(features))
        self.points = np.asarray(points, np.float64)
        if self.features.ndim != 2 or self.points.ndim != 2 or len(self.points) != self.features.shape[0]:
            raise ValueError(
                f"features have shape {list(self.features.shape)} and points {list(self.points.shape)}, expected "
                "(points, channels) and (points, 1 + D)"
            )
        is_valid = np.isfinite(self.points).all(axis=1) & (self.points[:, 0] % 1 == 0)
        if not is_valid.all():
            raise ValueError(
                f"point {is_valid.argmin()} is {self.points[is_valid.argmin()].tolist()}, expected finite numbers, "
                "with an integer scene number first"
            )
        self.num_scenes = num_scenes

    def voxels(self, mode: str = "mean") -> tuple[SparseTensor, paddle.Tensor]:
        """Return the voxels that contain points, in lexicographic order, and the voxel of each point, int64 (P,).

        The second value is an argument of ``SparseTensor.slice``. ``mode`` is "mean" or "sum" of the points in a voxel,
        or the "first" one.
        """
        if mode not in _MODES:
            raise ValueError(f"mode is '{mode}', expected one of {', '.join(_MODES)}")
        coordinates, inverse = unique_voxels(np.floor(self.points).astype(np.int64))
        rows = to_device(inverse)
        if mode == "first":
            first = np.unique(inverse, return_index=True)[1]
            return SparseTensor(gather_rows(self.features, first), coordinates, num_scenes=self.num_scenes), rows
        weights = 1.0 / np.bincount(inverse, minlength=len(coordinates))[inverse] if mode == "mean" else None
        features = _sum_rows(self.features, weights, inverse, len(coordinates))
        return SparseTensor(features, coordinates, num_scenes=self.num_scenes), rows

    def splat(self) -> SparseTensor:
        """Distribute each point's features to the voxels at its corners, with the weights of linear interpolation.

        This is the transpose of ``features_at(x, points, "linear")``.
        """
        corners = list(_corners(self.points, 1))
        voxels = np.concatenate([voxel for voxel, _ in corners])
        weights = np.concatenate([share for _, share in corners])
        touched = np.flatnonzero(weights)
        coordinates, inverse = unique_voxels(voxels[touched])
        gathered = gather_rows(self.features, touched % max(len(self.points), 1))
        features = _sum_rows(gathered, weights[touched], inverse, len(coordinates))
        return SparseTensor(features, coordinates, num_scenes=self.num_scenes)


def features_at(x: SparseTensor, points: paddle.Tensor | np.ndarray, mode: str = "linear") -> paddle.Tensor:
    """Return the features of a sparse tensor at points, (P, C), differentiable in the features.

    ``points`` are float (P, 1 + D), scene number in column 0, then coordinates in voxels of stride 1. ``mode`` is
    "linear", the weighted sum of the 2 ** D voxels around a point (a missing voxel counts as zeros, and the weights of
    the others do not change), or "nearest", the voxel that contains the point; zeros if it is missing. ValueError for
    an unknown mode or a wrong shape.
    """
    require_sparse("features_at", x)
    points = np.asarray(points, np.float64)
    if points.ndim != 2 or points.shape[1] != 1 + x.dimension:
        raise ValueError(f"points have shape {list(points.shape)}, expected (points, {1 + x.dimension})")
    if mode not in ("linear", "nearest"):
        raise ValueError(f"mode is '{mode}', expected 'linear' or 'nearest'")
    if not len(points):
        return empty_rows(x.features)
    zeros = paddle.zeros([1, x.features.shape[1]], dtype=x.features.dtype)
    with_zeros = paddle.concat([x.features, zeros]) if x.features.shape[0] else zeros
    corners = list(_corners(points, x.stride)) if mode == "linear" else [(_containing(points, x.stride), None)]
    total = None
    for voxels, share in corners:
        rows = x.plan.find(x.stride, voxels)
        gathered = paddle.gather(with_zeros, to_device(np.where(rows < 0, x.features.shape[0], rows)))
        if share is not None:
            gathered = gathered * to_device(share[:, None].astype(np.float64)).astype(gathered.dtype)
        total = gathered if total is None else total + gathered
    return total


def _containing(points: np.ndarray, stride: Steps) -> np.ndarray:
    """Return the voxel that contains each point, int64 (P, 1 + D)."""
    steps = np.array(along_axes(stride, points.shape[1] - 1))
    lower = np.floor(points[:, 1:] / steps).astype(np.int64) * steps
    return np.concatenate([points[:, :1].astype(np.int64), lower], axis=1)


def _corners(points: np.ndarray, stride: Steps) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield each corner of the cells around the points: voxels int64 (P, 1 + D) and their weights, float64 (P,)."""
    dimension = points.shape[1] - 1
    steps = np.array(along_axes(stride, dimension))
    lower = _containing(points, stride)
    fractions = (points[:, 1:] - lower[:, 1:]) / steps  # (P, D), from 0 to 1
    for corner in itertools.product((0, 1), repeat=dimension):
        voxels = lower.copy()
        voxels[:, 1:] += np.array(corner) * steps
        yield voxels, np.where(corner, fractions, 1.0 - fractions).prod(axis=1)


def _sum_rows(gathered: paddle.Tensor, weights: np.ndarray | None, inverse: np.ndarray, number: int) -> paddle.Tensor:
    """Return (number, C): the weighted sum of the features that belong to each row."""
    if not gathered.shape[0]:
        return gathered
    if weights is not None:
        gathered = gathered * to_device(weights[:, None]).astype(gathered.dtype)
    return scatter_rows(gathered, inverse, number)


def to_dense(
    x: SparseTensor, shape: Sequence[int] | None = None, minimum: Sequence[int] | None = None
) -> tuple[paddle.Tensor, np.ndarray]:
    """Return the features as a dense tensor (scenes, C, *shape), and the coordinates of its first voxel, int64 (D,).

    Cells without a voxel are zeros. ``shape`` is in voxels of the tensor's stride; None: the smallest that contains all
    voxels. ``minimum`` is the first voxel, a multiple of the stride; None: the smallest along each axis. ValueError if
    voxels are outside of the shape.
    """
    require_sparse("to_dense", x)
    coordinates = x.coordinates.astype(np.int64)
    steps = np.array(along_axes(x.stride, x.dimension))
    if minimum is None:
        first = coordinates[:, 1:].min(axis=0) if len(coordinates) else np.zeros(x.dimension, np.int64)
    else:
        first = np.array(along_axes(tuple(minimum), x.dimension))
    if (first % steps).any():
        raise ValueError(f"minimum is {first.tolist()}, expected multiples of the stride {x.stride}")
    if shape is None:
        farthest = coordinates[:, 1:].max(axis=0) if len(coordinates) else first
        shape = np.maximum((farthest - first) // steps + 1, 1)
    cells = x.plan.num_scenes, *along_axes(parse_steps("shape", shape, x.dimension), x.dimension)
    flat = _number_cells(coordinates, first, steps, cells)
    dense = scatter_rows(x.features, flat, int(np.prod(cells))).reshape([*cells, x.features.shape[1]])
    return dense.transpose([0, x.dimension + 1, *range(1, x.dimension + 1)]), first


def from_dense(
    values: paddle.Tensor,
    coordinates: paddle.Tensor | np.ndarray | None = None,
    minimum: Sequence[int] | int = 0,
    stride: Steps = 1,
) -> SparseTensor:
    """Return the voxels of a dense tensor (scenes, C, ...), one to four spatial axes, as a sparse tensor.

    Args:
        values: the dense tensor.
        coordinates: integers (N, 1 + D) of the voxels to take; None: all cells with a nonzero channel, which
            synchronizes with a GPU.
        minimum: coordinates of the first voxel, a multiple of ``stride``.
        stride: tensor stride of the voxels.

    Raises:
        ValueError: voxels outside of the tensor, or invalid coordinates (``CoordinatePlan``).
    """
    dimension = values.ndim - 2
    steps = np.array(along_axes(parse_steps("stride", stride), dimension))
    first = np.array(along_axes(minimum if isinstance(minimum, int) else tuple(minimum), dimension))
    cells = [values.shape[0], *values.shape[2:]]
    rows = values.transpose([0, *range(2, dimension + 2), 1]).reshape([-1, values.shape[1]])
    if coordinates is None:
        flat = np.flatnonzero((rows != 0).any(axis=1).numpy())
        places = np.stack(np.unravel_index(flat, cells), axis=1)
        coordinates = np.concatenate([places[:, :1], places[:, 1:] * steps + first], axis=1)
    else:
        coordinates = np.asarray(coordinates, np.int64)
        flat = _number_cells(coordinates, first, steps, cells)
    plan = Plan.of_coordinates(coordinates, values.shape[0], parse_steps("stride", stride))
    return SparseTensor(gather_rows(rows, flat), plan=plan, stride=stride)


def _number_cells(coordinates: np.ndarray, first: np.ndarray, steps: np.ndarray, cells: Sequence[int]) -> np.ndarray:
    """Return the index of each voxel's cell, int64 (N,), in a dense array (scenes, *sides) that begins at ``first``."""
    places = np.concatenate([coordinates[:, :1], (coordinates[:, 1:] - first) // steps], axis=1)
    outside = np.flatnonzero(((places < 0) | (places >= cells)).any(axis=1))
    if len(outside):
        raise ValueError(
            f"voxel {outside[0]} at {coordinates[outside[0], 1:].tolist()} of scene {coordinates[outside[0], 0]} is "
            f"outside of {cells[0]} scene(s) of shape {list(cells[1:])} from {first.tolist()} on ({len(outside):,} "
            "voxels are): give a larger shape, or prune them"
        )
    return np.ravel_multi_index(tuple(places.T), cells)
