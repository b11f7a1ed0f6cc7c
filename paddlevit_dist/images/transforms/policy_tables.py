"""Tables of the augmentation policies: operations with their probabilities, magnitudes and weights."""

from pathlib import Path
from typing import NamedTuple

# RandAugment chooses among these with equal probability.
# Source: E. Cubuk et al., "RandAugment", arXiv 1909.13719, section 3, with timm's additions (Invert, SolarizeAdd).
RAND_AUGMENT = (
    "AutoContrast Equalize Invert Rotate Posterize Solarize SolarizeAdd Color Contrast Brightness Sharpness "
    "ShearX ShearY TranslateXRel TranslateYRel"
).split()

_INCREASING = ("Posterize", "Solarize", "Color", "Contrast", "Brightness", "Sharpness")
RAND_AUGMENT_INCREASING = [name + "Increasing" if name in _INCREASING else name for name in RAND_AUGMENT]

_LINES = [line.partition(": ") for line in Path(__file__).with_name("policies.txt").read_text("ascii").splitlines()]
# The sets that a RandAugment string names with "t", with the weight of each operation; equal weights are drawn with
# replacement, others without.
RAND_AUGMENT_SETS: dict[str, dict[str, float]] = {
    name.removeprefix("RandAugment "): {name: float(weight) for name, weight in map(str.split, row.split(", "))}
    for name, _, row in _LINES
    if name.startswith("RandAugment ")
}


class PolicyStep(NamedTuple):
    """An operation of an AutoAugment policy, applied with ``probability``."""

    name: str
    probability: float
    magnitude: float


Policy = tuple[tuple[PolicyStep, ...], ...]  # one row is chosen for an image, its steps are applied in order


def _policy(policy: str, posterize: str = "Posterize") -> Policy:
    """Return the rows of a policy; ``posterize`` replaces "Posterize", whose scale differs between implementations."""
    rows = [[step.split() for step in row.split(", ")] for name, _, row in _LINES if name == f"AutoAugment {policy}"]
    return tuple(
        tuple(PolicyStep(posterize if name == "Posterize" else name, float(p), float(m)) for name, p, m in row)
        for row in rows
    )


# original: E. Cubuk et al., "AutoAugment", arXiv 1805.09501, table 9 (ImageNet). v0: EfficientNet's training on TPUs
# called it so; no paper has it. 3a: H. Touvron et al., "DeiT III", arXiv 2204.07118, section 3.2: one of three, always.
AUTO_AUGMENT: dict[str, Policy] = {
    "original": _policy("original", "PosterizeOriginal"),
    "originalr": _policy("original", "PosterizeIncreasing"),
    "v0": _policy("v0"),
    "v0r": _policy("v0", "PosterizeIncreasing"),
    "3a": _policy("3a"),
}
