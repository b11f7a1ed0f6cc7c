"""Creation of volumes, label maps and landmarks from what people have: lists, all types of numbers, any order of axes.

Values are checked once, when a volume is created; what a dataset returns at each read is checked by shape.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..core.runtime.errors import UserError
from ..core.runtime.printing import describe_value, shorten
from ..core.tasks.prediction import is_file_name
from ..core.tasks.sample_arrays import to_array
from ..core.tasks.sample_checks import BadSample, to_finite
from .geometry import VolumeGeometry, check_geometry, drop_leading_axes, to_canonical
from .store import DecodedVolume, extremes, moments, percentile_window, small_type

_ORDER = "zyx"
_SAME_SPACING = 1e-2  # relative: headers store a spacing with few digits
_OUTSIDE = 2.0  # voxels: a resampled volume may end one voxel before the outer faces of the stored one


def make_volume(
    array: Any,
    *,
    axes: str | None = None,
    spacing: Any = None,
    affine: Any = None,
    window: Sequence[float] | None = None,
) -> DecodedVolume:
    """Create a volume with axes aligned with the world's, whose values are checked and summarized once.

    Keep the result, or its file, rather than creating it at each read: this takes several passes over the voxels.

    Args:
        array: real numbers with three axes; leading axes of length one are dropped.
        axes: the order of the array's axes: "zyx" for (depth, height, width), as SimpleITK returns, "xyz" as nibabel
            returns. Without it, the array is refused.
        spacing: millimeters between neighboring voxels along the array's axes, in their order; x then grows to the
            right, y to the front and z up.
        affine: 4 x 4, from voxel indices (x, y, z, 1) to millimeters to the right, to the front and up (RAS), as
            nibabel has it. Either this or ``spacing`` is needed.
        window: two intensities that enclose almost all voxels; None: percentiles 0.5 and 99.5.

    Raises:
        BadSample: an argument has another form, or numbers that are not finite.
    """
    upright, geometry = _place(array, "array", axes, spacing, affine)
    if upright.dtype.kind not in "iufb":
        raise BadSample(f"array is {describe_value(upright)}, expected real numbers")
    voxels = to_finite(upright, small_type(upright), "array")
    low_high = percentile_window(voxels) if window is None else _read_pair(window, "window")
    return DecodedVolume(voxels, geometry, low_high, moments(voxels), extremes(voxels))


def place_labels(array: Any, axes: Any, spacing: Any, affine: Any) -> tuple[np.ndarray, VolumeGeometry]:
    """Return labels with axes aligned with the world's, and their geometry; see ``make_volume`` for the arguments."""
    upright, geometry = _place(array, "labels", axes, spacing, affine)
    return np.ascontiguousarray(upright), geometry


def make_landmarks(
    points: Any, names: Sequence[str], geometry: VolumeGeometry | None = None, columns: int = 3
) -> np.ndarray:
    """Return the positions of landmarks, float64 (landmarks, columns), NaN in all columns where one is missing.

    Args:
        points: positions (landmarks, columns), in which a row may be None; or positions by name, where names may be
            absent. A landmark is missing if one of its coordinates is NaN or None.
        names: names of the landmarks, in their order.
        geometry: of the volume that they are voxels z, y, x of; None: not known.
        columns: number of coordinates.

    Raises:
        BadSample: the positions have another form, one is infinite, or is outside of the volume.
    """
    if isinstance(points, Mapping):
        unknown = [name for name in points if name not in names]
        if unknown:
            raise BadSample(f"points has the landmark {unknown[0]!r}, which is none of {shorten(', '.join(names))}")
        points = [points.get(name) for name in names]
    if isinstance(points, (list, tuple)):
        points = [[np.nan] * columns if row is None else row for row in points]
        points = [
            [np.nan if value is None else value for value in row] if isinstance(row, (list, tuple)) else row
            for row in points
        ]
    array = to_array(points, "points")
    if array.dtype.kind not in "iuf":
        raise BadSample(f"points is {describe_value(array)}, expected numbers")
    if array.shape != (len(names), columns):
        raise BadSample(
            f"points has the shape {array.shape}, expected ({len(names)}, {columns}): a row for each landmark"
        )
    array = np.array(array, np.float64)
    if np.isinf(array).any():
        first = names[int(np.isinf(array).any(axis=1).argmax())]
        raise BadSample(f"landmark {first} has an infinite coordinate: correct or remove it")
    array[np.isnan(array).any(axis=1)] = np.nan
    if geometry is not None:
        is_outside = ((array < -_OUTSIDE) | (array > np.array(geometry.shape) - 1 + _OUTSIDE)).any(axis=1)
        if is_outside.any():
            number = int(is_outside.argmax())
            place = ", ".join(f"{length:.6g}" for length in array[number])
            raise BadSample(
                f"landmark {names[number]} is at voxel ({place}) of {' x '.join(map(str, geometry.shape))} (z, y, x): "
                "positions are voxels of the volume; its geometry.voxels(positions) converts millimeters x, y, z"
            )
    return array


def check_volume(decoded: Any, field: str, spacing: Any = None) -> DecodedVolume:
    """Return a volume of a dataset whose shape and geometry fit, and has the dataset's ``spacing`` if it is not None.

    Its voxels are not read. Raises BadSample.
    """
    if not isinstance(decoded, DecodedVolume):
        raise BadSample(f"{field} is {describe_value(decoded)}, expected a DecodedVolume: make_volume creates one")
    array = decoded.array if isinstance(decoded.array, np.ndarray) else to_array(decoded.array, field)
    geometry = check_place(array, decoded.geometry, field)
    if array.dtype.kind not in "iufb":
        raise BadSample(f"{field} is {describe_value(array)}, expected real numbers")
    if spacing is not None and not np.allclose(geometry.spacing, spacing, rtol=_SAME_SPACING):
        own, others = (" x ".join(f"{length:.4g}" for length in lengths) for lengths in (geometry.spacing, spacing))
        raise BadSample(f"{field} has voxels of {own} mm (depth, height, width), but the data set's are {others}")
    pairs = (_read_pair(getattr(decoded, name), f"{field}.{name}", name) for name in ("window", "moments", "extremes"))
    return DecodedVolume(array, geometry, *pairs)


def check_place(array: np.ndarray, geometry: Any, field: str) -> VolumeGeometry:
    """Return the geometry of an array with axes aligned with the world's; BadSample if it does not fit the array."""
    if not isinstance(geometry, VolumeGeometry):
        raise BadSample(f"{field} has the geometry {describe_value(geometry)}, expected a VolumeGeometry")
    is_same = isinstance(geometry.shape, (tuple, list)) and list(geometry.shape) == list(array.shape)
    if array.ndim != 3 or not array.size or not is_same:
        raise BadSample(
            f"{field} has the shape {array.shape}, and its geometry {describe_value(geometry.shape)}: expected the "
            "same (depth, height, width)"
        )
    checked = _check_geometry(array.shape, geometry.affine, field)
    if not (np.diag(checked.affine)[:3] > 0).all():
        raise BadSample(
            f"{field} has axes that do not go up, to the front and to the right (depth, height, width): make_volume "
            "turns them"
        )
    return checked


def _place(array: Any, field: str, axes: Any, spacing: Any, affine: Any) -> tuple[np.ndarray, VolumeGeometry]:
    """Return an array with axes aligned with the world's, and its geometry."""
    values = to_array(array, field)
    shape = drop_leading_axes(values.shape)
    if len(shape) == 3 and not values.size:
        raise BadSample(f"{field} has the shape {values.shape}: it is empty")
    if len(shape) != 3:
        raise BadSample(f"{field} has the shape {values.shape}, expected three axes: a volume for each channel or time")
    order = "".join(axes) if isinstance(axes, (str, list, tuple)) and all(isinstance(a, str) for a in axes) else ""
    if sorted(order) != sorted(_ORDER):
        raise BadSample(
            f'axes is {describe_value(axes)}, expected the order of the array\'s axes, such as "zyx" or "xyz"'
        )
    if (spacing is None) == (affine is None):
        raise BadSample("expected either the spacing or the affine of the volume")
    values = values.reshape(shape).transpose([order.index(axis) for axis in _ORDER])
    if affine is None:
        lengths = to_array(spacing, "spacing")
        if lengths.shape != (3,) or lengths.dtype.kind not in "iuf" or not ((lengths > 0) & np.isfinite(lengths)).all():
            raise BadSample(f"spacing is {describe_value(spacing)}, expected three positive numbers, millimeters")
        affine = np.diag([*(float(lengths[order.index(axis)]) for axis in "xyz"), 1.0])
    checked = _check_geometry(values.shape, affine, field)
    upright, turned = to_canonical(values, checked.affine)
    depth, height, width = upright.shape
    return upright, VolumeGeometry((depth, height, width), turned)


def _check_geometry(shape: tuple[int, ...], affine: Any, field: str) -> VolumeGeometry:
    array = to_array(affine, "affine")
    if array.dtype.kind not in "iuf":
        raise BadSample(f"affine is {describe_value(array)}, expected 4 x 4 numbers")
    try:
        return check_geometry(shape, array, field)
    except UserError as error:
        raise BadSample(str(error).partition("; rewrite")[0]) from error


def _read_pair(pair: Any, field: str, kind: str = "window") -> tuple[float, float]:
    """Return two finite numbers: a window, whose second one is larger, moments, a positive deviation, or extremes."""
    values = to_array(pair, field)
    if values.shape == (2,) and values.dtype.kind in "iuf" and np.isfinite(values).all():
        first, second = values.tolist()
        if kind == "extremes" or (second > first if kind == "window" else second > 0):
            return float(first), float(second)
    expected = {"window": "a smaller and a larger one", "moments": "mean and deviation, above 0"}.get(kind, "finite")
    raise BadSample(f"{field} is {describe_value(pair)}, expected two numbers, {expected}")


def require_cases(cases: Iterable[Any], name: str) -> None:
    """Check the names of a dataset's volumes, by which files of predictions are named; ``name`` is the dataset's.

    Raises UserError: one is not a text or cannot name a file, or two volumes have one name, which would overwrite one
    another's predictions.
    """
    index_of: dict[str, int] = {}
    for index, case in enumerate(cases):
        if not is_file_name(case):
            raise UserError(
                f"{name}: case({index}) is {describe_value(case)}, expected a short text without '/', such as the "
                "volume's file name: it names the files of its prediction"
            )
        first = index_of.setdefault(case, index)
        if first != index:
            raise UserError(
                f"{name}: case({first}) and case({index}) are both '{shorten(case)}': return another name for each "
                "volume, as it names the files of its prediction"
            )
