"""World positions of an array's voxels. Files store coordinates in the order x, y, z; arrays are indexed z, y, x.

In this module every point and every triple is in array order (z, y, x); only readers and writers reverse it. World
coordinates are always millimeters to the right, anterior and superior (RAS). LPS files are converted when they are
read, and output for them is converted when it is written.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core.runtime.errors import UserError
from ..core.runtime.files import DEFLATE_RATIO
from ..core.runtime.printing import describe_value

_SAME_PLACE = 0.05  # of the smallest spacing: largest distance of corners of arrays of one volume
_LPS_FROM_RAS = np.array([-1.0, -1.0, 1.0])  # its own inverse


class VolumeGeometry(NamedTuple):
    """Shape of an array and its position in the world."""

    shape: tuple[int, int, int]  # (depth, height, width)
    affine: np.ndarray  # float64 (4, 4), from voxel indices (x, y, z, 1) to millimeters (x, y, z, 1) of the world

    @property
    def spacing(self) -> np.ndarray:
        """Millimeters between neighboring voxels, (depth, height, width)."""
        return np.linalg.norm(self.affine[:3, :3], axis=0)[::-1]

    @property
    def voxel_ml(self) -> float:
        """Volume of a voxel in milliliters, for any angles between the axes."""
        return voxel_ml(self.affine[:3, :3])

    def world(self, points: np.ndarray) -> np.ndarray:
        """Convert voxel positions (..., 3) in the order z, y, x to millimeters (..., 3) in the order x, y, z."""
        return points[..., ::-1] @ self.affine[:3, :3].T + self.affine[:3, 3]

    def voxels(self, world: np.ndarray) -> np.ndarray:
        """Convert millimeters (..., 3) in the order x, y, z to voxel positions (..., 3) in the order z, y, x."""
        inverse = np.linalg.inv(self.affine)
        return (world @ inverse[:3, :3].T + inverse[:3, 3])[..., ::-1]

    def contains(self, points: np.ndarray) -> np.ndarray:
        """Return whether positions (..., 3) are inside the array, up to the outer faces of its border voxels."""
        return ((points >= -0.5) & (points <= np.asarray(self.shape) - 0.5)).all(axis=-1)


def check_geometry(shape: tuple[int, ...], affine: np.ndarray, file: str) -> VolumeGeometry:
    """Return a validated geometry; UserError if it is not three-dimensional, or the affine cannot be inverted."""
    shape = drop_leading_axes(shape)
    if len(shape) != 3:
        raise UserError(
            f"{file}: the volume has {len(shape)} dimensions {tuple(shape)}, expected 3; store each time point or "
            "channel in a separate file"
        )
    affine = np.asarray(affine, dtype=np.float64)
    if affine.shape != (4, 4) or not np.isfinite(affine).all():
        raise UserError(f"{file}: the affine is not 4 x 4 finite numbers; rewrite the header")
    lengths = np.linalg.norm(affine[:3, :3], axis=0)
    # Volume of a unit cell relative to the axes' lengths: 1 for right angles, 0 where axes coincide.
    if not lengths.all() or abs(np.linalg.det(affine[:3, :3] / lengths)) < 1e-6:
        raise UserError(
            f"{file}: the affine is singular (an axis has no length or is in the plane of the others), so positions "
            "in millimeters are meaningless; rewrite the header"
        )
    return VolumeGeometry((int(shape[0]), int(shape[1]), int(shape[2])), affine)


def drop_leading_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Drop leading axes of length one, such as a single time point, from a shape."""
    return shape[-3:] if len(shape) > 3 and all(length == 1 for length in shape[:-3]) else shape


def is_same_place(first: VolumeGeometry, second: VolumeGeometry) -> bool:
    """Return whether the corners of two arrays of one shape are in the same places, as far as headers tell."""
    return farthest_apart(first, second) <= _SAME_PLACE * first.spacing.min()


def farthest_apart(first: VolumeGeometry, second: VolumeGeometry) -> float:
    """Return the largest millimeters along a world axis between the same corner of two arrays of one shape."""
    corners = np.array(np.meshgrid(*((0, length - 1) for length in first.shape))).reshape(3, -1).T
    return float(np.abs(first.world(corners) - second.world(corners)).max())


def describe_difference(first: VolumeGeometry, second: VolumeGeometry) -> str:
    """Say how the geometries of two arrays of one volume differ, the second one's numbers first; empty: they do not."""
    if first.shape != second.shape:
        both = [" x ".join(map(str, geometry.shape[::-1])) for geometry in (second, first)]
        return f"{both[0]} voxels (x, y, z) and {both[1]}"
    if is_same_place(first, second):
        return ""
    if not np.allclose(first.spacing, second.spacing, rtol=1e-3):
        both = [" x ".join(f"{length:.4g}" for length in geometry.spacing[::-1]) for geometry in (second, first)]
        return f"spacing {both[0]} and {both[1]} mm (x, y, z)"
    both = [", ".join(f"{place:.2f}" for place in geometry.affine[:3, 3]) for geometry in (second, first)]
    distance = farthest_apart(first, second)
    return f"origin {both[0]} and {both[1]} mm, or another direction; corners are {distance:.3g} mm apart"


def to_canonical(array: np.ndarray, affine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a view of an array (depth, height, width) with axes aligned as closely as possible with the world's.

    Its affine (4, 4) is returned too: each voxel keeps its world position.
    """
    order, signs = nearest_axes(affine)
    turned = array.transpose([2 - axis for axis in order[::-1]])
    turned = turned[tuple(slice(None, None, int(sign)) for sign in signs[::-1])]
    last = np.array(array.shape[::-1])[order] - 1  # largest index along each new axis, x first
    change = np.zeros((4, 4))  # new index (x, y, z, 1) -> old index
    change[3, 3] = 1.0
    for new, old in enumerate(order):
        change[old, new] = signs[new]
        change[old, 3] = 0.0 if signs[new] > 0 else last[new]
    return turned, affine @ change


def nearest_axes(affine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the array axis (0 is x) that is closest to each world axis (x, y, z), and its sign."""
    cosines = affine[:3, :3] / np.linalg.norm(affine[:3, :3], axis=0)
    order, signs = np.zeros(3, dtype=int), np.zeros(3)
    left = np.abs(cosines).round(6)  # ignore the last digits, which differ between formats
    for _ in range(3):  # best-aligned pair first
        world, axis = np.unravel_index(left.argmax(), (3, 3))
        order[world], signs[world] = axis, np.sign(cosines[world, axis])
        left[world, :] = left[:, axis] = -1.0
    return order, signs


def turned_spacing(geometry: VolumeGeometry) -> np.ndarray:
    """Return steps along depth, height and width after axes are reordered to the world's: float64 (3, 3).

    Each row is world millimeters x, y, z. Lengths alone give neither volumes nor distances if axes are not at right
    angles, for example with a tilted gantry.
    """
    order, signs = nearest_axes(geometry.affine)
    return (geometry.affine[:3, :3][:, order] * signs).T[::-1]


def step_lengths(steps: np.ndarray) -> np.ndarray:
    """Return the lengths of the steps of ``turned_spacing``, millimeters (depth, height, width)."""
    return np.linalg.norm(steps, axis=1)


def voxel_ml(steps: np.ndarray) -> float:
    """Return the volume of a voxel with steps (3, 3) in milliliters."""
    return float(abs(np.linalg.det(steps))) / 1000


def convert(points: np.ndarray, convention: str) -> np.ndarray:
    """Convert millimeters (..., 3), x, y, z, from the world to "lps" or back; "ras" changes nothing."""
    return points if convention == "ras" else points * _LPS_FROM_RAS + 0.0  # no negative zeros


def affine_to_world(affine: np.ndarray, convention: str) -> np.ndarray:
    """Convert an affine (4, 4) from a convention's millimeters to world millimeters."""
    return affine if convention == "ras" else np.diag([*_LPS_FROM_RAS, 1.0]) @ affine


def resampled_shape(shape: Sequence[int], affine: np.ndarray, spacing: np.ndarray) -> tuple[int, int, int]:
    """Return the shape (depth, height, width) that ``resample`` gives an array of ``shape``."""
    stored = VolumeGeometry((shape[0], shape[1], shape[2]), affine)
    steps = np.asarray(spacing, dtype=np.float64) / stored.spacing
    depth, height, width = (_resampled_length(length, step) for length, step in zip(shape, steps))
    return depth, height, width


def _resampled_length(length: int, step: float) -> int:
    if abs(step - 1.0) < 1e-6:
        return length
    # Formats store the same spacing with different last digits, which must not change the count.
    return max(1, int(np.floor((length - 1) / step + 0.5 + 1e-4)) + 1)


def resample(
    array: np.ndarray, affine: np.ndarray, spacing: np.ndarray, are_labels: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Resample an array to another spacing, linearly and axis by axis; labels take the nearest voxel.

    The center of the first voxel stays fixed. The last voxel may be up to half a new voxel outside the old array and
    then repeats its border. If voxels become k times as long, a Gaussian is applied first against aliasing. Its
    deviation of sqrt(k^2 - 1) / (2 sqrt(2 ln 2)) old voxels widens a point spread of one voxel to k voxels. The array
    is (depth, height, width), ``affine`` (4, 4), ``spacing`` in millimeters; the result is float32, or labels of their
    dtype, and its affine.

    Source: M. J. Cardoso et al., 2015, "Scale Factor Point Spread Function Matching: Beyond Aliasing in Image
    Resampling", MICCAI, for the deviation.
    """
    old = VolumeGeometry(array.shape, affine).spacing
    result = array if are_labels else np.asarray(array, dtype=np.float32)
    steps = np.asarray(spacing, dtype=np.float64) / old
    for axis, step in enumerate(steps):
        if abs(step - 1.0) < 1e-6:
            continue
        length = array.shape[axis]
        count = _resampled_length(length, step)
        if are_labels:
            nearest = np.rint(np.arange(count) * step).astype(np.int64)
            result = result.take(np.minimum(nearest, length - 1), axis)
            continue
        lower, share = interpolation_weights(length, count, step)
        bell = gaussian_weights(math.sqrt(max(step**2 - 1, 0) / (8 * math.log(2))))
        weights = (1 - share)[:, None] * np.append(bell, 0) + share[:, None] * np.append(0, bell)  # (count, taps)
        total = np.float32(0)
        for shift, weight in enumerate(weights.astype(np.float32).T, -(len(bell) // 2)):
            weight = weight.reshape([-1 if other == axis else 1 for other in range(3)])
            total = total + result.take(np.clip(lower + shift, 0, length - 1), axis) * weight
        result = total
    changed = affine.copy()
    changed[:3, :3] *= steps[::-1]
    return result, changed


def interpolation_weights(length: int, count: int, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Return indices and weights for linear interpolation at ``count`` positions 0, step, 2 step ... along an axis.

    ``step`` is in voxels. The index of the lower voxel, int64 (count,), is at most ``length`` - 2; the weight is of the
    next voxel, float32 (count,). Positions beyond the end of the axis are moved to it.
    """
    places = np.minimum(np.arange(count) * step, length - 1)
    lower = np.minimum(places.astype(np.int64), max(length - 2, 0))
    return lower, (places - lower).astype(np.float32)


def gaussian_weights(deviation: float) -> np.ndarray:
    """Return the normalized weights of a Gaussian, float32 (2 n + 1,), cut off at three deviations; [1] for 0."""
    steps = np.arange(-math.ceil(3 * deviation), math.ceil(3 * deviation) + 1)
    weights = np.exp(-((steps / (deviation or 1)) ** 2) / 2)
    return (weights / weights.sum()).astype(np.float32)


def from_canonical(array: np.ndarray, affine: np.ndarray) -> np.ndarray:
    """Undo ``to_canonical``: return a view of a world-aligned array with the axes of a file with this affine."""
    order, signs = nearest_axes(affine)
    turned = array[tuple(slice(None, None, int(sign)) for sign in signs[::-1])]
    return turned.transpose(np.argsort([2 - axis for axis in order[::-1]]))


def remove_shear(affine: np.ndarray) -> np.ndarray:
    """Remove the shear of an affine (4, 4), as slices of a tilted gantry have it.

    Steps keep their lengths and the first voxel its position. The first axis keeps its direction, and the second stays
    in the plane of both.
    """
    changed = affine.copy()
    directions, upper = np.linalg.qr(affine[:3, :3])
    changed[:3, :3] = directions * np.sign(np.diag(upper)) * np.linalg.norm(affine[:3, :3], axis=0)
    return changed


def rotation(angles: np.ndarray) -> np.ndarray:
    """Return the matrix (3, 3) of rotations in radians about the first, then the second, then the third axis."""
    matrix = np.eye(3)
    for axis, angle in enumerate(angles):
        axis_rotation = np.eye(3)
        i, j = [k for k in range(3) if k != axis]
        axis_rotation[i, i] = axis_rotation[j, j] = np.cos(angle)
        axis_rotation[i, j], axis_rotation[j, i] = -np.sin(angle), np.sin(angle)
        matrix = axis_rotation @ matrix
    return matrix


PACKED, PLAIN = DEFLATE_RATIO, 1  # maximum bytes of voxels per byte of a file: deflated, uncompressed


def check_voxels(file: str, shape: Sequence[int], max_voxels: int, why: str = "") -> None:
    """Check that every axis has voxels and that their number is not above the limit; UserError with shape and key.

    ``why`` is the reason for the shape.
    """
    shown = " x ".join(f"{length:,}" for length in shape)
    if any(length < 1 for length in shape):
        raise UserError(f"{file}: its header announces {shown} voxels, so the volume is empty; write the file again")
    if math.prod(map(int, shape)) > max_voxels:
        raise UserError(
            f"{file} has {shown} voxels{why}, above the limit of {max_voxels:,} in total; raise VOLUMES.MAX_VOXELS if "
            "this is intended"
        )


def check_fits(file: str, announced: int, available: int, gain: int) -> None:
    """Check that a header announces no more bytes of voxels than the available ones can contain, ``gain`` for each.

    UserError has the file and both numbers.
    """
    if announced > gain * available:
        raise UserError(
            f"{file} cannot be read as a volume: it probably has fewer voxels than its header announces ({announced:,} "
            f"bytes, more than {available:,} bytes can contain); is it complete? Copy it again"
        )


def require_spacing(spacing: np.ndarray | None) -> np.ndarray:
    """Return ``spacing``; ValueError if it is None, since neither a dataset nor trained weights are open."""
    if spacing is None:
        raise ValueError("the voxel spacing is not known: open a dataset, or load metadata of trained weights")
    return spacing


def find_spacing(name: str, dataset: Any) -> np.ndarray:
    """Return the attribute ``spacing`` of a dataset as float64 (3,); UserError if it is not three positive numbers."""
    spacing = getattr(dataset, "spacing", None)
    try:
        lengths = np.array(spacing, np.float64)
    except (TypeError, ValueError):
        lengths = np.zeros(0)
    if lengths.shape != (3,) or not ((lengths > 0) & np.isfinite(lengths)).all():
        raise UserError(
            f"dataset {name}: spacing is {describe_value(spacing)}, expected three positive numbers, the millimeters "
            "between voxels (depth, height, width)"
        )
    return lengths


def require_same_spacing(dataset: str, other_spacing: np.ndarray | None, spacing: np.ndarray) -> None:
    """Check that two splits have the same spacing, if another was opened first; UserError with both."""
    if other_spacing is not None and not np.allclose(other_spacing, spacing, rtol=1e-3):
        raise UserError(
            f"dataset {dataset}: the voxel spacings of train and val differ ({other_spacing.tolist()} and "
            f"{spacing.tolist()} mm); set VOLUMES.SPACING_MM to resample all"
        )


def round_spacing(length: float) -> float:
    """Round to three digits, .5 up as usual spacings end in 5, so that formats with different last digits agree."""
    return float(f"{length * (1 + 1e-6):.3g}")
