"""Configuration keys of all tasks with volumes, and those of landmarks.

Triples are in array order: depth, height, width (z, y, x).
"""

from collections.abc import Iterator

from ..settings.key import ABOVE_0, AT_LEAST_0, AT_LEAST_1, SHARE, SHARE_BELOW_1, ConfigView, Key, Table, Unused

MAX_VOXELS = 1 << 30  # 1,024 along each axis

_KEYS = (
    Key(
        "VOLUMES.CROP_SIZE",
        [48, 48, 48],
        "int",
        "voxels (depth, height, width) of a training crop and of a window of the evaluation",
        AT_LEAST_1,
        many=True,
        length=3,
    ),
    Key(
        "VOLUMES.SPACING_MM",
        None,
        "float",
        "voxel spacing (depth, height, width) that all volumes are resampled to; None: they share one already",
        ABOVE_0,
        many=True,
        length=3,
        optional=True,
    ),
    Key(
        "VOLUMES.MAX_VOXELS",
        MAX_VOXELS,
        "int",
        "a volume with more voxels, as it is stored or at SPACING_MM, ends the run",
        AT_LEAST_1,
    ),
    Key(
        "VOLUMES.NORMALISE",
        ["percentiles"],
        "text",
        "how intensities become the network's, one word for all channels or one for each: percentiles (0.5 and 99.5 of "
        "each volume, or INTENSITY_WINDOW, become 0 and 1), ct (cut off at INTENSITY_WINDOW, then INTENSITY_MEAN_STD "
        "become 0 and 1), z_score (mean and deviation of each volume become 0 and 1: of what is not zero where boxes "
        "around that are below 75 % of the training volumes, else of the box), none",
        choices=("percentiles", "ct", "z_score", "none"),
        many=True,
    ),
    Key(
        "VOLUMES.INTENSITY_WINDOW",
        None,
        "float",
        "NORMALISE percentiles: intensities that become 0 and 1; None: percentiles 0.5 and 99.5 of each volume. "
        "NORMALISE ct: the smallest and the largest intensity",
        many=True,
        length=2,
        optional=True,
    ),
    Key(
        "VOLUMES.INTENSITY_MEAN_STD",
        None,
        "float",
        "NORMALISE ct: intensities' mean and deviation within the labels of the training volumes; None: middle and "
        "half width of INTENSITY_WINDOW",
        many=True,
        length=2,
        optional=True,
    ),
    Key("VOLUMES.ROTATION_DEGREES", 0.0, "float", "training: largest rotation about each axis", AT_LEAST_0),
    Key("VOLUMES.SCALE", 0.0, "float", "training: largest relative change of size", SHARE_BELOW_1),
    Key("VOLUMES.INTENSITY_JITTER", 0.0, "float", "training: largest change of contrast and brightness", SHARE),
    Key("VOLUMES.NOISE", 0.0, "float", "training: largest deviation of the noise, of intensities 0 to 1", SHARE),
    Key(
        "VOLUMES.HEATMAP",
        "gaussian",
        "text",
        "gaussian: of SIGMA_MM around the landmark; radius: of RADIUS voxels around the voxel it lies in",
        choices=("gaussian", "radius"),
    ),
    Key("VOLUMES.GAMMA", 0.0, "float", "training: probability of another contrast curve, exponents 0.7 to 1.5", SHARE),
    Key("VOLUMES.BLUR", 0.0, "float", "training: probability of a blur of 0.5 to 1 voxel", SHARE),
    Key("VOLUMES.LOW_RESOLUTION", 0.0, "float", "training: probability of half to full resolution", SHARE),
    Key("VOLUMES.OVERLAP", 0.5, "float", "evaluation: share of a window that it has in common", SHARE_BELOW_1),
    Key(
        "VOLUMES.WINDOW_WEIGHTS",
        "linear",
        "text",
        "evaluation: how a voxel's weight falls from the middle of a window to its ends",
        choices=("linear", "gaussian"),
    ),
    Key("VOLUMES.UNET_WIDTH", 16, "int", "channels of the first level; each further one has twice as many", AT_LEAST_1),
    Key("VOLUMES.UNET_DEPTH", 3, "int", "levels below the first, each of half the resolution", AT_LEAST_1),
    Key("VOLUMES.UNET_NORM", "batch", "text", "normalisation of the network", choices=("batch", "instance")),
    Key(
        "VOLUMES.UNET_ACTIVATION",
        "relu",
        "text",
        "activation of the network; leaky_relu has a slope of 0.01 below 0",
        choices=("relu", "leaky_relu"),
    ),
)
_LANDMARK_KEYS = (
    Key(
        "VOLUMES.LANDMARKS",
        None,
        "text",
        "names of the landmarks, in the order of the model's outputs; None: all that the files name, sorted",
        many=True,
        optional=True,
    ),
    Key(
        "VOLUMES.LANDMARK_UNITS",
        "mm",
        "text",
        "CSV and JSON files of landmarks: world millimetres, or voxel indices x, y, z of the stored array",
        choices=("mm", "voxel"),
    ),
    Key(
        "VOLUMES.WORLD",
        "file",
        "text",
        "how CSV and JSON files of landmarks, and predictions, count millimetres: as the volume's format does (NIfTI "
        "and NumPy ras; MetaImage, NRRD and DICOM lps), or always one of them; Slicer's files say it themselves",
        choices=("file", "ras", "lps"),
    ),
    Key("VOLUMES.FLIP", 0.0, "float", "training: probability of exchanging left and right", SHARE),
    Key(
        "VOLUMES.MIRROR_PAIRS",
        [],
        "text",
        "landmarks that FLIP exchanges, each as left_name:right_name; none: no landmark has a counterpart",
        many=True,
        words=("none",),
    ),
    Key(
        "VOLUMES.SIGMA_MM",
        [4.0, 4.0, 4.0],
        "float",
        "HEATMAP gaussian: standard deviation (depth, height, width)",
        ABOVE_0,
        many=True,
        length=3,
    ),
    Key("VOLUMES.RADIUS", 4, "int", "HEATMAP radius: voxels; the deviation is (2 RADIUS + 1) / 6", AT_LEAST_0),
    Key(
        "VOLUMES.LOSS",
        "mse",
        "text",
        "weighted squared error, or the focal loss of CornerNet",
        choices=("mse", "focal"),
    ),
    Key("VOLUMES.PEAK_WEIGHT", 10.0, "float", "LOSS mse: weight of a voxel is 1 + this x heatmap", AT_LEAST_0),
    Key(
        "VOLUMES.DECODING",
        "quadratic",
        "text",
        "position from a parabola through the peak's neighbours, or their weighted mean",
        choices=("quadratic", "soft_argmax"),
    ),
)


def _unused(given: ConfigView) -> Iterator[Unused]:
    volumes = given.values.VOLUMES
    if volumes.HEATMAP == "radius":
        yield Unused(("VOLUMES.SIGMA_MM",), "VOLUMES.HEATMAP", "it is for gaussian, and {}")
    else:
        yield Unused(("VOLUMES.RADIUS",), "VOLUMES.HEATMAP", "it is for radius, and {}")
    if volumes.LOSS == "focal":
        yield Unused(("VOLUMES.PEAK_WEIGHT",), "VOLUMES.LOSS", "it is for mse, and {}")


_TRAINING = "ROTATION_DEGREES SCALE INTENSITY_JITTER NOISE GAMMA BLUR LOW_RESOLUTION"
_NETWORK = "UNET_WIDTH UNET_DEPTH UNET_NORM UNET_ACTIVATION"


def _named(words: str) -> tuple[str, ...]:
    return tuple(f"VOLUMES.{word}" for word in words.split())


def _unused_of_all(given: ConfigView) -> Iterator[Unused]:
    if "ct" not in given.values.VOLUMES.NORMALISE:
        yield Unused(("VOLUMES.INTENSITY_MEAN_STD",), "VOLUMES.NORMALISE", "it is for ct, and {}")


VOLUMES = Table(
    _KEYS,
    training=_named(_TRAINING),
    effects={"network": _named(_NETWORK), "neutral": ("VOLUMES.MAX_VOXELS",)},
    unused=_unused_of_all,
    gone={"VOLUMES.UNET_BLOCKS": (1, "a level has one residual block; leave it out")},
)
LANDMARKS = Table(
    _LANDMARK_KEYS,
    training=_named("FLIP MIRROR_PAIRS PEAK_WEIGHT"),
    effects={"training": ("VOLUMES.SIGMA_MM", "VOLUMES.LOSS")},
    unused=_unused,
)
