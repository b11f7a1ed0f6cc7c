"""Samples of a dataset of volumes: random crops for training, whole volumes for evaluation."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..core.tasks.dataset import TransformedDataset
from .dataset import VolumeDataset
from .geometry import gaussian_weights, rotation
from .intensities import IntensityConfig
from .settings import VolumeSection
from .store import DecodedVolume

_NEAR_LANDMARK = 0.5  # fraction of crops drawn around a landmark


class AugmentationConfig(NamedTuple):
    """Random variation of training crops; fields correspond to the keys VOLUMES.*."""

    flip: float = 0.0
    rotation_degrees: float = 0.0
    scale: float = 0.0
    intensity_jitter: float = 0.0
    noise: float = 0.0
    gamma: float = 0.0
    blur: float = 0.0
    low_resolution: float = 0.0

    @classmethod
    def from_config(cls, volumes: VolumeSection) -> "AugmentationConfig":
        """Create the settings from the section VOLUMES of a configuration; FLIP is 0 for tasks without that key."""
        return cls(*(volumes.get(name.upper(), 0.0) for name in cls._fields))

    @property
    def turns(self) -> bool:
        """Whether crops lie between the volume's voxels."""
        return bool(self.rotation_degrees or self.scale)


NO_AUGMENTATION = AugmentationConfig()


CropSize = tuple[int, int, int]  # depth, height, width


class CropMap(NamedTuple):
    """Affine map of crop voxels to volume voxels: ``center + matrix @ (voxel - (size - 1) / 2)``; order z, y, x."""

    center: np.ndarray  # (3,)
    matrix: np.ndarray  # (3, 3)
    size: CropSize
    is_flipped: bool

    @property
    def start(self) -> np.ndarray:
        """Position of the crop's first voxel in the volume."""
        return self.center - self.matrix @ ((np.array(self.size) - 1) / 2)

    @property
    def is_on_grid(self) -> bool:
        """Whether crop voxels are voxels of the volume, possibly mirrored."""
        signs = np.diag(self.matrix)
        return np.array_equal(self.matrix, np.diag(np.sign(signs))) and np.array_equal(self.start, np.rint(self.start))

    def to_crop(self, points: np.ndarray) -> np.ndarray:
        """Convert volume positions (..., 3) to crop positions."""
        return (points - self.center) @ np.linalg.inv(self.matrix).T + (np.array(self.size) - 1) / 2


class VolumeSamples(TransformedDataset):
    """Samples that a loader process reads.

    Args:
        crop_size: (depth, height, width) of training crops; None: whole volumes.
        mirrored: for each landmark, index of the landmark that replaces it when left and right are exchanged.
        intensities: scaling; or the two intensities that become 0 and 1, None for percentiles of each volume.
    """

    def __init__(
        self,
        dataset: VolumeDataset,
        crop_size: Sequence[int] | None,
        augmentation: AugmentationConfig,
        mirrored: Sequence[int],
        intensities: IntensityConfig | Sequence[float] | None,
        notices: Sequence[str] = (),
    ) -> None:
        self.dataset = dataset
        self.crop_size = None if crop_size is None else to_crop_size(crop_size)
        self.augmentation = augmentation
        self.mirrored = list(mirrored)
        if not isinstance(intensities, IntensityConfig):
            intensities = IntensityConfig(window=intensities)
        self.intensities = intensities
        self.notices = notices

    # the dataset knows them
    labeled = property(lambda samples: samples.dataset.labeled)
    class_names = property(lambda samples: samples.dataset.class_names)

    def sample(self, index: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Return one crop or whole volume, float32 (1, depth, height, width), intensities mostly 0 to 1, as ``volume``.

        It has ``points`` float32 (landmarks, 3), voxel positions z, y, x in it, NaN where missing; for a whole volume
        also ``affine`` float64 (4, 4), from voxels x, y, z to millimeters, and ``index``.
        """
        decoded, points = self.dataset.read(index)
        scaling = self.intensities.scaling(0, decoded)
        if self.crop_size is None:
            volume = scaling(decoded.array)
            whole = {"affine": decoded.geometry.affine, "index": np.int64(index)}
            return {"volume": volume[None], "points": points.astype(np.float32), **whole}
        crop = self._draw_map(decoded, points, self.crop_size, generator)
        volume = scaling(cut(decoded.array, crop, outside=scaling.zero))
        points = crop.to_crop(points)
        if crop.is_flipped:
            points = points[self.mirrored]
        return {
            "volume": augment_intensities(volume, self.augmentation, generator)[None],
            "points": points.astype(np.float32),
        }

    def _draw_map(
        self, decoded: DecodedVolume, points: np.ndarray, crop_size: CropSize, generator: np.random.Generator
    ) -> CropMap:
        augmentation = self.augmentation
        matrix = draw_matrix(augmentation, decoded.geometry.spacing, generator)
        is_flipped = bool(generator.random() < augmentation.flip)
        if is_flipped:
            matrix[:, 2] *= -1.0
        center = self.draw_center(decoded.array.shape, points, generator)
        if not augmentation.turns:
            center = snap_to_grid(center, crop_size)
        return CropMap(center, matrix, crop_size, is_flipped)

    def draw_center(self, shape: Sequence[int], points: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Draw a center such that the crop stays inside the volume, if the volume is large enough."""
        size = np.array(self.crop_size)
        low, high = center_range(shape, size)
        center = generator.uniform(low, np.maximum(high, low))
        present = np.flatnonzero(np.isfinite(points).all(axis=1))
        near, choice = generator.random(), generator.random()
        offset = generator.uniform(-0.3, 0.3, 3) * size
        if near < _NEAR_LANDMARK and len(present):
            center = points[present[int(choice * len(present))]] + offset
        return np.clip(center, low, high)


def to_crop_size(lengths: Sequence[int]) -> CropSize:
    """Convert three lengths to plain integers."""
    depth, height, width = map(int, lengths)
    return depth, height, width


def draw_matrix(augmentation: AugmentationConfig, spacing: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Draw a rotation and a scale in millimeters; return their matrix for voxels z, y, x, float64 (3, 3)."""
    angles = np.deg2rad(generator.uniform(-1, 1, 3) * augmentation.rotation_degrees)
    scale = 1.0 + generator.uniform(-1, 1) * augmentation.scale
    return rotation(angles) * scale * spacing / spacing[:, None]


def center_range(shape: Sequence[int], size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return smallest and largest center of a crop inside a volume; around the middle if the volume is smaller."""
    low, high = (size - 1) / 2, np.array(shape) - 1 - (size - 1) / 2
    middle = (np.array(shape) - 1) / 2
    return np.minimum(low, middle), np.maximum(high, middle)


def snap_to_grid(center: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """Move a center such that crop voxels coincide with the volume's and nothing is interpolated."""
    half = (np.array(size) - 1) / 2
    return np.floor(center) + (half - np.floor(half))


def augment_intensities(
    volume: np.ndarray, augmentation: AugmentationConfig, generator: np.random.Generator
) -> np.ndarray:
    """Change intensities at random; return float32 of the same shape.

    Source of the ranges of blur, resolution and gamma: F. Isensee et al., 2021, "nnU-Net", Nature Methods 18,
    supplementary note 4. Deviations are 0.5 to 1 voxel, resolutions 0.5 to 1, exponents 0.7 to 1.5; a quarter of the
    exponents apply to inverted intensities.
    """
    contrast, brightness = generator.uniform(-1, 1, 2) * augmentation.intensity_jitter
    if augmentation.intensity_jitter:
        volume = volume * np.float32(1.0 + contrast) + np.float32(brightness)
    if augmentation.noise:
        deviation = np.float32(generator.random() * augmentation.noise)
        volume = volume + deviation * generator.standard_normal(volume.shape, dtype=np.float32)
    if augmentation.blur and generator.random() < augmentation.blur:
        volume = blur(volume, generator.uniform(0.5, 1.0))
    if augmentation.low_resolution and generator.random() < augmentation.low_resolution:
        volume = coarsen(volume, generator.uniform(0.5, 1.0))
    if augmentation.gamma and generator.random() < augmentation.gamma:
        exponent = generator.uniform(0.7, 1.0) if generator.random() < 0.5 else generator.uniform(1.0, 1.5)
        volume = apply_gamma(volume, exponent, generator.random() < 0.25)
    return volume.astype(np.float32)


def cut(array: np.ndarray, crop: CropMap, outside: float) -> np.ndarray:
    """Return float32 intensities at the voxels of a crop, interpolated linearly, ``outside`` beyond the array."""
    start, signs = crop.start, np.diag(crop.matrix)
    if crop.is_on_grid:
        return _slice(array, start.astype(int), signs.astype(int), crop.size, outside)
    return _interpolate(array, start, crop, outside)


def cut_labels(array: np.ndarray, crop: CropMap) -> np.ndarray:
    """Return the labels at the voxels of a crop, nearest neighbor, dtype of ``array``; 0 outside."""
    if crop.is_on_grid:
        labels = _slice(array, crop.start.astype(int), np.diag(crop.matrix).astype(int), crop.size, 0)
        return labels.astype(array.dtype)
    steps = [np.arange(extent, dtype=np.float32) for extent in crop.size]
    matrix, index, inside = crop.matrix.astype(np.float32), np.int64(0), np.array(True)
    for axis, length in enumerate(array.shape):
        z, y, x = (step * matrix[axis, other] for other, step in enumerate(steps))
        place = np.rint(z[:, None, None] + y[:, None] + x + np.float32(crop.start[axis])).astype(np.int32)
        inside = inside & (place >= 0) & (place < length)
        index = index * length + np.clip(place, 0, length - 1)
    return np.where(inside, array.reshape(-1).take(index), array.dtype.type(0))


def _slice(
    array: np.ndarray, start: np.ndarray, signs: np.ndarray, size: tuple[int, int, int], outside: float
) -> np.ndarray:
    result = np.full(size, outside, dtype=np.float32)
    sources, targets = [], []
    for axis in range(3):
        indices = start[axis] + signs[axis] * np.arange(size[axis])
        inside = np.flatnonzero((indices >= 0) & (indices < array.shape[axis]))
        if not len(inside):
            return result
        first, last = indices[inside[0]], indices[inside[-1]]
        sources.append(slice(min(first, last), max(first, last) + 1))
        targets.append(slice(inside[0], inside[-1] + 1))
    result[tuple(targets)] = array[tuple(sources)][tuple(slice(None, None, int(sign)) for sign in signs)]
    return result


def _interpolate(array: np.ndarray, start: np.ndarray, crop: CropMap, outside: float) -> np.ndarray:
    steps = [np.arange(extent, dtype=np.float32) for extent in crop.size]
    corners = np.array(np.meshgrid(*[(0, length - 1) for length in crop.size], indexing="ij")).reshape(3, -1)
    reached = start[:, None] + crop.matrix @ corners
    # Read only the part of the volume that the crop touches; one extra voxel on each side is "outside".
    low = np.clip(np.floor(reached.min(axis=1)).astype(int) - 1, -1, np.array(array.shape))
    high = np.clip(np.ceil(reached.max(axis=1)).astype(int) + 2, 0, np.array(array.shape) + 1)
    high = np.maximum(high, low + 2)
    block = _slice(array, low, np.ones(3, dtype=int), tuple(high - low), outside)
    matrix = crop.matrix.astype(np.float32)
    positions: list[np.ndarray] = []
    for axis in range(3):
        terms = [steps[k] * matrix[axis, k] for k in range(3)]
        position = terms[0][:, None, None] + terms[1][None, :, None] + terms[2][None, None, :]
        position += np.float32(start[axis] - low[axis])
        positions.append(np.clip(position, 0, block.shape[axis] - 1, out=position))
    lower = [np.minimum(p.astype(np.int32), n - 2) for p, n in zip(positions, block.shape)]
    share = [at - below.astype(np.float32) for at, below in zip(positions, lower)]  # with integers it would be float64
    flat = block.reshape(-1)
    strides = (block.shape[1] * block.shape[2], block.shape[2], 1)
    base = lower[0] * strides[0] + lower[1] * strides[1] + lower[2]
    rows = []
    for z in (0, strides[0]):
        columns = []
        for y in (0, strides[1]):
            left, right = flat.take(base + (z + y)), flat.take(base + (z + y + 1))
            columns.append(left + share[2] * (right - left))
        rows.append(columns[0] + share[1] * (columns[1] - columns[0]))
    return rows[0] + share[0] * (rows[1] - rows[0])


def blur(volume: np.ndarray, deviation: float) -> np.ndarray:
    """Smooth a volume with a Gaussian of this deviation in voxels, cut off at three; borders are repeated."""
    weights = gaussian_weights(deviation)
    for axis in range(3):
        length = volume.shape[axis]
        total = np.zeros_like(volume)
        for shift, weight in enumerate(weights, -(len(weights) // 2)):
            total += weight * volume.take(np.clip(np.arange(length) + shift, 0, length - 1), axis=axis)
        volume = total
    return volume


def coarsen(volume: np.ndarray, share: float) -> np.ndarray:
    """Simulate a scan with ``share`` of the voxels along each axis: subsample, then interpolate linearly.

    (In nnU-Net, interpolation is with cubic splines.)
    """
    for axis, length in enumerate(volume.shape):
        sampled = np.unique(np.rint(np.linspace(0, length - 1, max(2, round(share * length)))).astype(int))
        after = np.searchsorted(sampled, np.arange(length), side="right") % len(sampled)  # of the last voxel any
        first, second = sampled[after - 1], sampled[after]
        part = ((np.arange(length) - first) / np.maximum(second - first, 1)).astype(np.float32)
        part = part.reshape([-1 if other == axis else 1 for other in range(3)])
        volume = volume.take(first, axis=axis) * (1 - part) + volume.take(second, axis=axis) * part
    return volume


def apply_gamma(volume: np.ndarray, exponent: float, is_inverted: bool) -> np.ndarray:
    """Raise intensities, or negative ones, scaled to their range, to a power; mean and deviation are preserved."""
    sign = np.float32(-1.0 if is_inverted else 1.0)
    values = volume * sign
    low, high = values.min(), values.max()
    if high <= low:
        return volume
    values = ((values - low) / (high - low)) ** np.float32(exponent)
    values = (values - values.mean()) / max(float(values.std()), 1e-7)
    return sign * (values * volume.std() + (volume * sign).mean()).astype(np.float32)
