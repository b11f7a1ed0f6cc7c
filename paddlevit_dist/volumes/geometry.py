"""Where an array's voxels are in the world.

Files name coordinates in the order x, y, z; arrays are indexed z, y, x. Here every point and every triple is in array
order (z, y, x), and only reading and writing reverses it.

World coordinates are always millimeters to the right, anterior and superior (RAS). LPS files are converted on reading,
and output for them is converted on writing.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..runtime.errors import UserError

_LPS_FROM_RAS = np.array([-1.0, -1.0, 1.0])  # its own inverse


class VolumeGeometry(NamedTuple):
    """Shape of an array and its position in the world.

    Attributes:
        shape: (depth, height, width).
        affine: float64 (4, 4), from voxel indices (x, y, z, 1) to millimeters (x, y, z, 1) of the world.
    """

    shape: tuple[int, int, int]
    affine: np.ndarray

    @property
    def spacing(self) -> np.ndarray:
        """Millimeters between neighbors, (depth, height, width)."""
        return np.linalg.norm(self.affine[:3, :3], axis=0)[::-1]

    @property
    def voxel_ml(self) -> float:
        """Milliliters of a voxel, whatever the angles between the axes."""
        return voxel_ml(self.directions)

    @property
    def directions(self) -> np.ndarray:
        """World millimeters (x, y, z) of a step along depth, height and width: float64 (3, 3), a row for each."""
        return self.affine[:3, :3].T[::-1]

    def world(self, points: np.ndarray) -> np.ndarray:
        """Millimeters (..., 3) in the order x, y, z of voxel positions (..., 3) in the order z, y, x."""
        return points[..., ::-1] @ self.affine[:3, :3].T + self.affine[:3, 3]

    def voxels(self, world: np.ndarray) -> np.ndarray:
        """Voxel positions (..., 3) in the order z, y, x of millimeters (..., 3) in the order x, y, z."""
        inverse = np.linalg.inv(self.affine)
        return (world @ inverse[:3, :3].T + inverse[:3, 3])[..., ::-1]

    def contains(self, points: np.ndarray) -> np.ndarray:
        """Whether positions (..., 3) are inside the array, up to the outer faces of its border voxels."""
        return ((points >= -0.5) & (points <= np.asarray(self.shape) - 0.5)).all(axis=-1)


def check_geometry(shape: tuple[int, ...], affine: np.ndarray, file: str) -> VolumeGeometry:
    """A validated geometry.

    Raises:
        UserError: the array is not three-dimensional, or the affine cannot be inverted.
    """
    shape = spatial(shape)
    if len(shape) != 3:
        raise UserError(
            f"{file}: the volume has {len(shape)} dimensions {tuple(shape)}, expected 3; store each time point or "
            "channel in a file of its own"
        )
    affine = np.asarray(affine, dtype=np.float64)
    if affine.shape != (4, 4) or not np.isfinite(affine).all():
        raise UserError(f"{file}: the affine is not 4 x 4 finite numbers; rewrite the header")
    lengths = np.linalg.norm(affine[:3, :3], axis=0)
    # Relative to the axes' lengths this is the volume of a unit cell: 1 for right angles, 0 where axes coincide.
    if not lengths.all() or abs(np.linalg.det(affine[:3, :3] / lengths)) < 1e-6:
        raise UserError(
            f"{file}: the affine is singular (an axis has no length or lies in the plane of the others), so positions "
            "in millimeters are meaningless; rewrite the header"
        )
    return VolumeGeometry((int(shape[0]), int(shape[1]), int(shape[2])), affine)


def spatial(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without the leading axes of length one of a single time point."""
    return shape[-3:] if len(shape) > 3 and all(length == 1 for length in shape[:-3]) else shape


def canonical(array: np.ndarray, affine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Reorient an array so that its axes align as closely as possible with the world's, without resampling.

    Args:
        array: (depth, height, width).
        affine: (4, 4), see ``VolumeGeometry``.
    Returns:
        A view of the array, and its affine: each voxel keeps its world position.
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
    """For each world axis (x, y, z) the array axis (0 is x) that runs along it, and its sign."""
    cosines = affine[:3, :3] / np.linalg.norm(affine[:3, :3], axis=0)
    order, signs = np.zeros(3, dtype=int), np.zeros(3)
    left = np.abs(cosines).round(6)  # ignore the last digits, which differ between formats
    for _ in range(3):  # the clearest pair first
        world, axis = np.unravel_index(left.argmax(), (3, 3))
        order[world], signs[world] = axis, np.sign(cosines[world, axis])
        left[world, :] = left[:, axis] = -1.0
    return order, signs


def turned_spacing(geometry: VolumeGeometry) -> np.ndarray:
    """Return the steps along depth, height and width once the axes are turned to the world's.

    Returns:
        float64 (3, 3), a row of world millimeters (x, y, z) for each. Their lengths alone give neither volumes nor
        distances where axes are not at right angles, as with a tilted gantry.
    """
    order, signs = nearest_axes(geometry.affine)
    return (geometry.affine[:3, :3][:, order] * signs).T[::-1]


def step_lengths(steps: np.ndarray) -> np.ndarray:
    """Return the millimeters of the steps of ``turned_spacing``, (depth, height, width)."""
    return np.linalg.norm(steps, axis=1)


def voxel_ml(steps: np.ndarray) -> float:
    """Return the milliliters of a voxel with these steps, float64 (3, 3)."""
    return float(abs(np.linalg.det(steps))) / 1000


def convert(points: np.ndarray, convention: str) -> np.ndarray:
    """Millimeters (..., 3) in the order x, y, z, from the world to a convention, or back.

    Args:
        convention: "ras" (right-anterior-superior), in which nothing changes, or "lps" (left-posterior-superior).
    """
    return points if convention == "ras" else points * _LPS_FROM_RAS + 0.0  # no negative zeros


def affine_from(affine: np.ndarray, convention: str) -> np.ndarray:
    """Convert an affine (4, 4) to millimeters in a convention into one to the world."""
    return affine if convention == "ras" else np.diag([*_LPS_FROM_RAS, 1.0]) @ affine


def resampled_shape(shape: Sequence[int], affine: np.ndarray, spacing: np.ndarray) -> tuple[int, int, int]:
    """Shape (depth, height, width) that ``resample`` gives an array of ``shape``."""
    steps = np.asarray(spacing, dtype=np.float64) / VolumeGeometry(tuple(shape), affine).spacing
    depth, height, width = (_resampled_length(length, step) for length, step in zip(shape, steps))
    return depth, height, width


def _resampled_length(length: int, step: float) -> int:
    if abs(step - 1.0) < 1e-6:
        return length
    # Formats store the same spacing with different last digits: the count must not depend on those.
    return max(1, int(np.floor((length - 1) / step + 0.5 + 1e-4)) + 1)


def resample(
    array: np.ndarray, affine: np.ndarray, spacing: np.ndarray, are_labels: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Interpolate linearly, axis by axis, to another spacing; labels become those of the nearest voxels.

    The first voxel's center stays fixed; the last may end up to half a new voxel outside the old array and then repeats
    its border. Where voxels become k times as long, a Gaussian comes first, with which a voxel stands for all that it
    covers: a deviation of sqrt(k^2 - 1) / (2 sqrt(2 ln 2)) old voxels turns a point spread of one voxel's width into
    one of k. Without it fine structure would come back as a coarse one that is not there.

    Source: M. J. Cardoso et al., 2015, "Scale Factor Point Spread Function Matching: Beyond Aliasing in Image
    Resampling", MICCAI, for the deviation.

    Args:
        array: (depth, height, width).
        spacing: target millimeters, (depth, height, width).
    Returns:
        float32 array, or labels of their dtype, and its affine.
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
        lower, share = between(length, count, step)
        bell = gaussian(math.sqrt(max(step**2 - 1, 0) / (8 * math.log(2))))
        weights = (1 - share)[:, None] * np.append(bell, 0) + share[:, None] * np.append(0, bell)  # (count, taps)
        total = np.float32(0)
        for shift, own in enumerate(weights.astype(np.float32).T, -(len(bell) // 2)):
            own = own.reshape([-1 if other == axis else 1 for other in range(3)])
            total = total + result.take(np.clip(lower + shift, 0, length - 1), axis) * own
        result = total
    changed = affine.copy()
    changed[:3, :3] *= steps[::-1]
    return result, changed


def between(length: int, count: int, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Where places 0, step, 2 step and so on lie on an axis of ``length`` voxels, at most at its end: the voxel before
    each, int64 (count,), which is not the last if there is another, and the next one's share, float32 (count,)."""
    places = np.minimum(np.arange(count) * step, length - 1)
    lower = np.minimum(places.astype(np.int64), max(length - 2, 0))
    return lower, (places - lower).astype(np.float32)


def gaussian(deviation: float) -> np.ndarray:
    """Weights of a Gaussian about a voxel, float32 (2 n + 1,), cut off at three deviations, of the sum 1; [1] for 0."""
    steps = np.arange(-math.ceil(3 * deviation), math.ceil(3 * deviation) + 1)
    weights = np.exp(-((steps / (deviation or 1)) ** 2) / 2)
    return (weights / weights.sum()).astype(np.float32)


def as_stored(array: np.ndarray, affine: np.ndarray) -> np.ndarray:
    """Undo ``canonical``: a view of an array with the world's axes, along those of a file with this affine."""
    order, signs = nearest_axes(affine)
    turned = array[tuple(slice(None, None, int(sign)) for sign in signs[::-1])]
    return turned.transpose(np.argsort([2 - axis for axis in order[::-1]]))


def square(affine: np.ndarray) -> np.ndarray:
    """An affine (4, 4) without its shear: steps keep their lengths and the first voxel its place, the first axis its
    direction and the second its plane with it, as slices of a tilted gantry do."""
    changed = affine.copy()
    directions, upper = np.linalg.qr(affine[:3, :3])
    changed[:3, :3] = directions * np.sign(np.diag(upper)) * np.linalg.norm(affine[:3, :3], axis=0)
    return changed


def rotation(angles: np.ndarray) -> np.ndarray:
    """Matrix (3, 3) of rotations in radians about the first, then the second, then the third axis."""
    matrix = np.eye(3)
    for axis, angle in enumerate(angles):
        turn = np.eye(3)
        i, j = [k for k in range(3) if k != axis]
        turn[i, i] = turn[j, j] = np.cos(angle)
        turn[i, j], turn[j, i] = -np.sin(angle), np.sin(angle)
        matrix = turn @ matrix
    return matrix


PACKED, PLAIN = 1032, 1  # bytes that a byte of a file can stand for: deflated (the format's own bound), and as it is


def check_voxels(file: str, shape: Sequence[int], max_voxels: int, why: str = "") -> None:
    """Refuse a shape with an axis without voxels, or with too many voxels.

    Args:
        why: how it came to that shape, for the message.
    Raises:
        UserError: names the file, its shape and the key that allows more.
    """
    shown = " x ".join(f"{length:,}" for length in shape)
    if any(length < 1 for length in shape):
        raise UserError(f"{file}: its header announces {shown} voxels, so none at all; write the file again")
    if math.prod(map(int, shape)) > max_voxels:
        raise UserError(
            f"{file} has {shown} voxels{why}, above the limit of {max_voxels:,} in all; raise VOLUMES.MAX_VOXELS if "
            "that is meant"
        )


def check_fits(file: str, announced: int, held: int, gain: int) -> None:
    """Refuse a header that announces more bytes of voxels than there can be.

    Args:
        announced: bytes of the voxels in memory, as the header has them.
        held: bytes of the files.
        gain: the most that one of their bytes can become.
    Raises:
        UserError: names the file and both numbers.
    """
    if announced > gain * held:
        raise UserError(
            f"{file} cannot be read as a volume: probably there are fewer voxels than its header says ({announced:,} "
            f"bytes, more than {held:,} bytes can hold); is it complete? Copy it again"
        )


def require_same_spacing(dataset: str, before: np.ndarray | None, spacing: np.ndarray) -> None:
    """Check that two splits have one spacing, (depth, height, width); None: there was no other.

    Raises:
        UserError: names both.
    """
    if before is not None and not np.allclose(before, spacing, rtol=1e-3):
        raise UserError(
            f"dataset {dataset}: the voxel spacing of train is not that of val ({before.tolist()} and "
            f"{spacing.tolist()} mm); set VOLUMES.SPACING_MM to resample all"
        )


def three_digits(length: float) -> float:
    """Rounded so that formats which keep different last digits agree; typical spacings end in 5 and are rounded up."""
    return float(f"{length * (1 + 1e-6):.3g}")
