"""Tables of the augmentation policies: operations with their probabilities, magnitudes and weights."""

from typing import NamedTuple

# RandAugment chooses among these with equal probability.
# Source: E. Cubuk et al., "RandAugment", arXiv 1909.13719, section 3, with timm's additions (Invert, SolarizeAdd).
RAND_AUGMENT = (
    "AutoContrast Equalize Invert Rotate Posterize Solarize SolarizeAdd Color Contrast Brightness Sharpness "
    "ShearX ShearY TranslateXRel TranslateYRel"
).split()

_INCREASING = ("Posterize", "Solarize", "Color", "Contrast", "Brightness", "Sharpness")
RAND_AUGMENT_INCREASING = [name + "Increasing" if name in _INCREASING else name for name in RAND_AUGMENT]

# The sets that a RandAugment string names with "t", with the weight of each operation; equal weights are drawn with
# replacement, others without.
RAND_AUGMENT_SETS: dict[str, dict[str, float]] = {
    "3a": {"SolarizeIncreasing": 1, "Desaturate": 1, "GaussianBlur": 1},
    "3aw": {
        "SolarizeIncreasing": 6,
        "Desaturate": 6,
        "GaussianBlur": 6,
        "Rotate": 3,
        "ShearX": 2,
        "ShearY": 2,
        "PosterizeIncreasing": 1,
        "AutoContrast": 1,
        "ColorIncreasing": 1,
        "SharpnessIncreasing": 1,
        "ContrastIncreasing": 1,
        "BrightnessIncreasing": 1,
        "Equalize": 1,
        "Invert": 1,
    },
    "weights": {
        "Rotate": 3,
        "ShearX": 2,
        "ShearY": 2,
        "TranslateXRel": 1,
        "TranslateYRel": 1,
        "ColorIncreasing": 0.25,
        "SharpnessIncreasing": 0.25,
        "AutoContrast": 0.25,
        "SolarizeIncreasing": 0.05,
        "SolarizeAdd": 0.05,
        "ContrastIncreasing": 0.05,
        "BrightnessIncreasing": 0.05,
        "Equalize": 0.05,
        "PosterizeIncreasing": 0.05,
        "Invert": 0.05,
    },
}


class PolicyStep(NamedTuple):
    """An operation of an AutoAugment policy, applied with ``probability``."""

    name: str
    probability: float
    magnitude: float


Policy = tuple[tuple[PolicyStep, ...], ...]  # one row is chosen for an image, its steps are applied in order

# E. Cubuk et al., "AutoAugment", arXiv 1805.09501, table 9 (ImageNet).
_ORIGINAL = """
Posterize .4 8, Rotate .6 9
Solarize .6 5, AutoContrast .6 5
Equalize .8 8, Equalize .6 3
Posterize .6 7, Posterize .6 6
Equalize .4 7, Solarize .2 4
Equalize .4 4, Rotate .8 8
Solarize .6 3, Equalize .6 7
Posterize .8 5, Equalize 1 2
Rotate .2 3, Solarize .6 8
Equalize .6 8, Posterize .4 6
Rotate .8 8, Color .4 0
Rotate .4 9, Equalize .6 2
Equalize 0 7, Equalize .8 8
Invert .6 4, Equalize 1 8
Color .6 4, Contrast 1 8
Rotate .8 8, Color 1 2
Color .8 8, Solarize .8 7
Sharpness .4 7, Invert .6 8
ShearX .6 5, Equalize 1 9
Color .4 0, Equalize .6 3
Equalize .4 7, Solarize .2 4
Solarize .6 5, AutoContrast .6 5
Invert .6 4, Equalize 1 8
Color .6 4, Contrast 1 8
Equalize .8 8, Equalize .6 3
"""

# The policy that EfficientNet's training on TPUs called "v0"; no paper lists it.
_V0 = """
Equalize .8 1, ShearY .8 4
Color .4 9, Equalize .6 3
Color .4 1, Rotate .6 8
Solarize .8 3, Equalize .4 7
Solarize .4 2, Solarize .6 2
Color .2 0, Equalize .8 8
Equalize .4 8, SolarizeAdd .8 3
ShearX .2 9, Rotate .6 8
Color .6 1, Equalize 1 2
Invert .4 9, Rotate .6 0
Equalize 1 9, ShearY .6 3
Color .4 7, Equalize .6 0
Posterize .4 6, AutoContrast .4 7
Solarize .6 8, Color .6 9
Solarize .2 4, Rotate .8 9
Rotate 1 7, TranslateYRel .8 9
ShearX 0 0, Solarize .8 4
ShearY .8 0, Color .6 4
Color 1 0, Rotate .6 2
Equalize .8 4, Equalize 0 8
Equalize 1 4, AutoContrast .6 2
ShearY .4 7, SolarizeAdd .6 7
Posterize .8 2, Solarize .6 10
Solarize .6 8, Equalize .6 1
Color .8 6, Rotate .4 5
"""

# H. Touvron et al., "DeiT III", arXiv 2204.07118, section 3.2: one of three, always.
_THREE_AUGMENT = """
Solarize 1 5
Desaturate 1 10
GaussianBlurRand 1 10
"""


def _read(table: str, posterize: str = "Posterize") -> Policy:
    """Parse the rows of ``table``; ``posterize`` replaces "Posterize", whose scale differs between implementations."""
    rows = [[step.split() for step in line.split(", ")] for line in table.strip().splitlines()]
    return tuple(
        tuple(PolicyStep(posterize if name == "Posterize" else name, float(p), float(m)) for name, p, m in row)
        for row in rows
    )


AUTO_AUGMENT: dict[str, Policy] = {
    "original": _read(_ORIGINAL, "PosterizeOriginal"),
    "originalr": _read(_ORIGINAL, "PosterizeIncreasing"),
    "v0": _read(_V0),
    "v0r": _read(_V0, "PosterizeIncreasing"),
    "3a": _read(_THREE_AUGMENT),
}
