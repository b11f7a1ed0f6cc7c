"""Keys of all tasks with volumes, and of landmarks. Triples are in array order: depth, height, width (z, y, x)."""

from collections.abc import Iterator
from typing import Literal

from ..core.settings.every_run import RunSettings
from ..core.settings.key import ABOVE_0, AT_LEAST_0, AT_LEAST_1, SHARE, SHARE_BELOW_1, Section, Triple, key, rows
from ..core.settings.table import ConfigView, IgnoredKeys, KeyTable

MAX_VOXELS = 1 << 30  # 1,024 along each axis

# Lengths along depth, height and width.
Kernel = Literal["1x1x1", "1x1x3", "1x3x1", "1x3x3", "3x1x1", "3x1x3", "3x3x1", "3x3x3"]
Stride = Literal["1x1x2", "1x2x1", "1x2x2", "2x1x1", "2x1x2", "2x2x1", "2x2x2"]


class VolumeSection(Section):
    """Section VOLUMES with the keys of all tasks with volumes."""

    CROP_SIZE: Triple[int] = key(
        [48, 48, 48], "size of training crops and evaluation windows, voxels (depth, height, width)", AT_LEAST_1
    )
    SPACING_MM: Triple[float] | None = key(
        None,
        "voxel spacing (depth, height, width) to which volumes are resampled; None: all volumes must have the same "
        "spacing",
        ABOVE_0,
    )
    MAX_VOXELS: int = key(
        MAX_VOXELS,
        "limit of voxels of a volume, as stored and at SPACING_MM; the run stops at a larger one",
        AT_LEAST_1,
        effect="neutral",
    )
    NORMALIZE: list[Literal["percentiles", "min_max", "ct", "z_score", "none"]] = key(
        ["percentiles"],
        "scaling of intensities, one value for all channels or one for each: percentiles (0.5 and 99.5 of "
        "each volume, or INTENSITY_WINDOW, become 0 and 1), min_max (smallest and largest intensity of each volume "
        "become 0 and 1), ct (clip to INTENSITY_WINDOW, then INTENSITY_MEAN_STD become 0 and 1), z_score (mean and "
        "deviation of each volume become 0 and 1: of nonzero voxels if the boxes around them are below 75 % of the "
        "training volumes, else of the box), none",
    )
    INTENSITY_WINDOW: list[float] | None = key(
        None,
        "two numbers for all channels, or two for each channel in order. NORMALIZE percentiles: intensities that "
        "become 0 and 1; None: percentiles 0.5 and 99.5 of each volume. NORMALIZE ct: the smallest and the largest "
        "intensity",
    )
    INTENSITY_MEAN_STD: list[float] | None = key(
        None,
        "two numbers for all channels, or two for each channel in order. NORMALIZE ct: mean and deviation of "
        "intensities within the labels of the training volumes; None: middle and half width of INTENSITY_WINDOW",
    )
    ROTATION_DEGREES: float = key(
        0.0, "training: largest rotation about each axis, degrees", AT_LEAST_0, training_only=True
    )
    SCALE: float = key(0.0, "training: largest relative change of size", SHARE_BELOW_1, training_only=True)
    INTENSITY_JITTER: float = key(0.0, "training: largest change of contrast and brightness", SHARE, training_only=True)
    NOISE: float = key(
        0.0, "training: largest deviation of Gaussian noise, for intensities 0 to 1", SHARE, training_only=True
    )
    HEATMAP: Literal["gaussian", "radius"] = key(
        "gaussian", "target heatmaps: gaussian (SIGMA_MM around the landmark), radius (RADIUS voxels around its voxel)"
    )
    GAMMA: float = key(0.0, "training: probability of a gamma change, exponents 0.7 to 1.5", SHARE, training_only=True)
    BLUR: float = key(
        0.0, "training: probability of a Gaussian blur with a deviation of 0.5 to 1 voxel", SHARE, training_only=True
    )
    LOW_RESOLUTION: float = key(
        0.0, "training: probability of simulating half to full resolution", SHARE, training_only=True
    )
    OVERLAP: float = key(0.5, "evaluation: overlap of neighboring windows, as a fraction of a window", SHARE_BELOW_1)
    WINDOW_WEIGHTS: Literal["linear", "gaussian"] = key(
        "linear", "evaluation: decrease of voxel weights from the middle of a window to its ends"
    )
    UNET_WIDTH: int = key(16, "channels of the first level; they double with each level", AT_LEAST_1, effect="network")
    UNET_MAX_WIDTH: int | None = key(None, "most channels of a level; None: no limit", AT_LEAST_1, effect="network")
    UNET_DEPTH: int = key(3, "levels below the first, each of half the resolution", AT_LEAST_1, effect="network")
    UNET_KERNELS: list[Kernel] = key(
        [],
        "sides of the convolutions of each level (depth x height x width), the first too; []: 3x3x3",
        effect="network",
    )
    UNET_STRIDES: list[Stride] = key(
        [], "step to each level below the first (depth x height x width); []: 2x2x2", effect="network"
    )
    UNET_NORM: Literal["batch", "instance"] = key("batch", "normalization layers of the network", effect="network")
    UNET_ACTIVATION: Literal["relu", "leaky_relu"] = key(
        "relu", "activation of the network; leaky_relu has a slope of 0.01 below 0", effect="network"
    )


class VolumeSettings(RunSettings):
    """Settings of a run with volumes."""

    VOLUMES: VolumeSection


class LandmarkVolumes(VolumeSection):
    """Section VOLUMES of landmark detection."""

    LANDMARKS: list[str] | None = key(
        None, "names of the landmarks, in the order of the model's outputs; None: all names in the files, sorted"
    )
    LANDMARK_UNITS: Literal["mm", "voxel"] = key(
        "mm", "unit of CSV and JSON landmark files: mm (world millimeters), voxel (indices x, y, z of the stored array)"
    )
    COORDINATE_SYSTEM: Literal["file", "ras", "lps"] = key(
        "file",
        "coordinate system of CSV and JSON landmark files and of predictions: file (that of the volume's format: NIfTI "
        "and NumPy ras; MetaImage, NRRD and DICOM lps), ras, or lps; Slicer's files specify their own",
    )
    FLIP: float = key(0.0, "training: probability of mirroring left and right", SHARE, training_only=True)
    MIRROR_PAIRS: list[str] | Literal["none"] = key(
        [],
        "landmarks that FLIP exchanges, each as left_name:right_name; none: no landmark has a counterpart",
        training_only=True,
    )
    SIGMA_MM: Triple[float] = key(
        [4.0, 4.0, 4.0],
        "HEATMAP gaussian: standard deviation in millimeters (depth, height, width)",
        ABOVE_0,
        effect="training",
    )
    RADIUS: int = key(4, "HEATMAP radius: radius in voxels; the deviation is (2 RADIUS + 1) / 6", AT_LEAST_0)
    LOSS: Literal["mse", "focal"] = key(
        "mse", "loss: mse (weighted squared error), focal (focal loss of CornerNet)", effect="training"
    )
    PEAK_WEIGHT: float = key(
        10.0,
        "LOSS mse: extra weight of peaks; a voxel's weight is 1 + PEAK_WEIGHT x heatmap",
        AT_LEAST_0,
        training_only=True,
    )
    DECODING: Literal["quadratic", "soft_argmax"] = key(
        "quadratic", "position of a peak: quadratic (parabola through its neighbors), soft_argmax (their weighted mean)"
    )


class LandmarkSettings(VolumeSettings):
    """Settings of landmark detection."""

    VOLUMES: LandmarkVolumes


def _find_unused(config: ConfigView[LandmarkSettings]) -> Iterator[IgnoredKeys]:
    volumes = config.values.VOLUMES
    if volumes.HEATMAP == "radius":
        yield IgnoredKeys(("VOLUMES.SIGMA_MM",), "VOLUMES.HEATMAP", "it is for gaussian, and {}")
    else:
        yield IgnoredKeys(("VOLUMES.RADIUS",), "VOLUMES.HEATMAP", "it is for radius, and {}")
    if not volumes.FLIP:
        yield IgnoredKeys(("VOLUMES.MIRROR_PAIRS",), "VOLUMES.FLIP", "no volume is mirrored: {}")
    if volumes.LOSS == "focal":
        yield IgnoredKeys(("VOLUMES.PEAK_WEIGHT",), "VOLUMES.LOSS", "it is for mse, and {}")


def _find_unused_shared(config: ConfigView[VolumeSettings]) -> Iterator[IgnoredKeys]:
    volumes = config.values.VOLUMES  # a plan sets both keys to None where they are not needed
    if volumes.INTENSITY_WINDOW is not None and not {"ct", "percentiles"} & set(volumes.NORMALIZE):
        yield IgnoredKeys(("VOLUMES.INTENSITY_WINDOW",), "VOLUMES.NORMALIZE", "it is for ct and percentiles, and {}")
    if volumes.INTENSITY_MEAN_STD is not None and "ct" not in volumes.NORMALIZE:
        yield IgnoredKeys(("VOLUMES.INTENSITY_MEAN_STD",), "VOLUMES.NORMALIZE", "it is for ct, and {}")


VOLUMES = KeyTable(rows(VolumeSettings), find_ignored=_find_unused_shared)
LANDMARKS = KeyTable(rows(LandmarkSettings), find_ignored=_find_unused)
