"""Configuration keys of all tasks with volumes, and those of landmarks.

Triples are in array order: depth, height, width (z, y, x).
"""

from collections.abc import Iterator
from typing import Literal

from ..settings.every_run import RunSettings
from ..settings.key import ABOVE_0, AT_LEAST_0, AT_LEAST_1, SHARE, SHARE_BELOW_1, ConfigView, IgnoredKeys, KeyTable
from ..settings.section import Pair, Section, Triple, key, rows

MAX_VOXELS = 1 << 30  # 1,024 along each axis


class VolumeSection(Section):
    CROP_SIZE: Triple[int] = key(
        [48, 48, 48], "voxels (depth, height, width) of a training crop and of a window of the evaluation", AT_LEAST_1
    )
    SPACING_MM: Triple[float] | None = key(
        None,
        "voxel spacing (depth, height, width) that all volumes are resampled to; None: they share one already",
        ABOVE_0,
    )
    MAX_VOXELS: int = key(
        MAX_VOXELS, "a volume with more voxels, as it is stored or at SPACING_MM, ends the run", AT_LEAST_1
    )
    NORMALIZE: list[Literal["percentiles", "ct", "z_score", "none"]] = key(
        ["percentiles"],
        "how intensities become the network's, one word for all channels or one for each: percentiles (0.5 and 99.5 of "
        "each volume, or INTENSITY_WINDOW, become 0 and 1), ct (cut off at INTENSITY_WINDOW, then INTENSITY_MEAN_STD "
        "become 0 and 1), z_score (mean and deviation of each volume become 0 and 1: of what is not zero where boxes "
        "around that are below 75 % of the training volumes, else of the box), none",
    )
    INTENSITY_WINDOW: Pair[float] | None = key(
        None,
        "NORMALIZE percentiles: intensities that become 0 and 1; None: percentiles 0.5 and 99.5 of each volume. "
        "NORMALIZE ct: the smallest and the largest intensity",
    )
    INTENSITY_MEAN_STD: Pair[float] | None = key(
        None,
        "NORMALIZE ct: intensities' mean and deviation within the labels of the training volumes; None: middle and "
        "half width of INTENSITY_WINDOW",
    )
    ROTATION_DEGREES: float = key(0.0, "training: largest rotation about each axis", AT_LEAST_0)
    SCALE: float = key(0.0, "training: largest relative change of size", SHARE_BELOW_1)
    INTENSITY_JITTER: float = key(0.0, "training: largest change of contrast and brightness", SHARE)
    NOISE: float = key(0.0, "training: largest deviation of the noise, of intensities 0 to 1", SHARE)
    HEATMAP: Literal["gaussian", "radius"] = key(
        "gaussian", "gaussian: of SIGMA_MM around the landmark; radius: of RADIUS voxels around the voxel it lies in"
    )
    GAMMA: float = key(0.0, "training: probability of another contrast curve, exponents 0.7 to 1.5", SHARE)
    BLUR: float = key(0.0, "training: probability of a blur of 0.5 to 1 voxel", SHARE)
    LOW_RESOLUTION: float = key(0.0, "training: probability of half to full resolution", SHARE)
    OVERLAP: float = key(0.5, "evaluation: share of a window that it has in common", SHARE_BELOW_1)
    WINDOW_WEIGHTS: Literal["linear", "gaussian"] = key(
        "linear", "evaluation: how a voxel's weight falls from the middle of a window to its ends"
    )
    UNET_WIDTH: int = key(16, "channels of the first level; each further one has twice as many", AT_LEAST_1)
    UNET_DEPTH: int = key(3, "levels below the first, each of half the resolution", AT_LEAST_1)
    UNET_NORM: Literal["batch", "instance"] = key("batch", "normalization of the network")
    UNET_ACTIVATION: Literal["relu", "leaky_relu"] = key(
        "relu", "activation of the network; leaky_relu has a slope of 0.01 below 0"
    )


class VolumeSettings(RunSettings):
    VOLUMES: VolumeSection


class LandmarkVolumes(VolumeSection):
    LANDMARKS: list[str] | None = key(
        None, "names of the landmarks, in the order of the model's outputs; None: all that the files name, sorted"
    )
    LANDMARK_UNITS: Literal["mm", "voxel"] = key(
        "mm", "CSV and JSON files of landmarks: world millimeters, or voxel indices x, y, z of the stored array"
    )
    COORDINATE_SYSTEM: Literal["file", "ras", "lps"] = key(
        "file",
        "how CSV and JSON files of landmarks, and predictions, count millimeters: as the volume's format does (NIfTI "
        "and NumPy ras; MetaImage, NRRD and DICOM lps), or always one of them; Slicer's files say it themselves",
    )
    FLIP: float = key(0.0, "training: probability of exchanging left and right", SHARE)
    MIRROR_PAIRS: list[str] | Literal["none"] = key(
        [], "landmarks that FLIP exchanges, each as left_name:right_name; none: no landmark has a counterpart"
    )
    SIGMA_MM: Triple[float] = key(
        [4.0, 4.0, 4.0], "HEATMAP gaussian: standard deviation (depth, height, width)", ABOVE_0
    )
    RADIUS: int = key(4, "HEATMAP radius: voxels; the deviation is (2 RADIUS + 1) / 6", AT_LEAST_0)
    LOSS: Literal["mse", "focal"] = key("mse", "weighted squared error, or the focal loss of CornerNet")
    PEAK_WEIGHT: float = key(10.0, "LOSS mse: weight of a voxel is 1 + this x heatmap", AT_LEAST_0)
    DECODING: Literal["quadratic", "soft_argmax"] = key(
        "quadratic", "position from a parabola through the peak's neighbors, or their weighted mean"
    )


class LandmarkSettings(VolumeSettings):
    VOLUMES: LandmarkVolumes


def _find_unused(given: ConfigView[LandmarkSettings]) -> Iterator[IgnoredKeys]:
    volumes = given.values.VOLUMES
    if volumes.HEATMAP == "radius":
        yield IgnoredKeys(("VOLUMES.SIGMA_MM",), "VOLUMES.HEATMAP", "it is for gaussian, and {}")
    else:
        yield IgnoredKeys(("VOLUMES.RADIUS",), "VOLUMES.HEATMAP", "it is for radius, and {}")
    if volumes.LOSS == "focal":
        yield IgnoredKeys(("VOLUMES.PEAK_WEIGHT",), "VOLUMES.LOSS", "it is for mse, and {}")


_TRAINING = "ROTATION_DEGREES SCALE INTENSITY_JITTER NOISE GAMMA BLUR LOW_RESOLUTION"
_NETWORK = "UNET_WIDTH UNET_DEPTH UNET_NORM UNET_ACTIVATION"


def _split_names(words: str) -> tuple[str, ...]:
    return tuple(f"VOLUMES.{word}" for word in words.split())


def _find_unused_of_all(given: ConfigView[VolumeSettings]) -> Iterator[IgnoredKeys]:
    if "ct" not in given.values.VOLUMES.NORMALIZE:
        yield IgnoredKeys(("VOLUMES.INTENSITY_MEAN_STD",), "VOLUMES.NORMALIZE", "it is for ct, and {}")


VOLUMES = KeyTable(
    rows(VolumeSettings),
    training=_split_names(_TRAINING),
    effects={"network": _split_names(_NETWORK), "neutral": ("VOLUMES.MAX_VOXELS",)},
    find_ignored=_find_unused_of_all,
)
LANDMARKS = KeyTable(
    rows(LandmarkSettings),
    training=_split_names("FLIP MIRROR_PAIRS PEAK_WEIGHT"),
    effects={"training": ("VOLUMES.SIGMA_MM", "VOLUMES.LOSS")},
    find_ignored=_find_unused,
)
