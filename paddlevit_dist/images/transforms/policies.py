"""Random augmentation between crop and array: RandAugment, AutoAugment, 3-Augment and color jitter.

Each is called as ``augmentation(image, generator)`` on an RGB or gray ("L") image and returns an image of the same mode
and size; all random numbers come from ``generator``.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ...core.runtime.errors import UserError
from .operations import FULL_MAGNITUDE, OPERATIONS, AnyImage, Fill, change
from .policy_tables import AUTO_AUGMENT, RAND_AUGMENT, RAND_AUGMENT_INCREASING, RAND_AUGMENT_SETS, Policy


class Augmentation(Protocol):
    """A random change of an image that keeps its type."""

    def __call__(self, image: AnyImage, generator: np.random.Generator) -> AnyImage:
        """Return the changed image."""


THREE_AUGMENT = "3a"  # the policy that is combined with color jitter


@dataclass(frozen=True)
class MagnitudeSpread:
    """Distribution of an operation's magnitude, clipped to 0..``largest``.

    It is normal around the mean, or uniform from 0 to the mean if ``deviation`` is infinite.
    """

    deviation: float = 0.0
    largest: float = FULL_MAGNITUDE

    def draw(self, mean: float, generator: np.random.Generator) -> float:
        """Draw a magnitude."""
        if math.isinf(self.deviation):
            mean = generator.uniform(0.0, mean)
        elif self.deviation:
            mean = generator.normal(mean, self.deviation)
        return max(0.0, min(mean, self.largest))


@dataclass(frozen=True)
class RandAugment:
    """``layers`` operations chosen at random, each applied with ``probability``; ``fill`` is outside the image.

    With ``weights``, the probabilities of the operations, none is chosen twice. Source: E. Cubuk et al., "RandAugment",
    arXiv 1909.13719, section 3.
    """

    names: tuple[str, ...]
    layers: int = 2
    magnitude: float = FULL_MAGNITUDE
    spread: MagnitudeSpread = MagnitudeSpread()
    probability: float = 0.5
    weights: tuple[float, ...] | None = None
    fill: Fill = 128

    def __call__(self, image: AnyImage, generator: np.random.Generator) -> AnyImage:
        """Apply random operations."""
        for name in self.choose(generator):
            if generator.random() < self.probability:
                image = _apply(name, image, self.spread.draw(self.magnitude, generator), generator, self.fill)
        return image

    def choose(self, generator: np.random.Generator) -> Iterator[str]:
        """Choose the operations for one image, in their order."""
        if self.weights is None:
            chosen = generator.integers(len(self.names), size=self.layers)
        else:
            chosen = generator.choice(len(self.names), self.layers, replace=False, p=self.weights)
        return (self.names[position] for position in chosen)


@dataclass(frozen=True)
class AutoAugment:
    """One row of a policy, chosen at random; each of its steps has its own probability and magnitude.

    Source: E. Cubuk et al., "AutoAugment", arXiv 1805.09501, section 3.
    """

    policy: Policy
    spread: MagnitudeSpread = MagnitudeSpread()
    fill: Fill = 128

    def __call__(self, image: AnyImage, generator: np.random.Generator) -> AnyImage:
        """Apply a random row of the policy."""
        for step in self.policy[int(generator.integers(len(self.policy)))]:
            if generator.random() < step.probability:
                image = _apply(step.name, image, self.spread.draw(step.magnitude, generator), generator, self.fill)
        return image


def _apply(name: str, image: AnyImage, magnitude: float, generator: np.random.Generator, fill: Fill) -> AnyImage:
    return change(name, image, OPERATIONS[name].parameter(magnitude / FULL_MAGNITUDE, generator), fill)


JITTERED = ("Brightness", "Contrast", "Color")


@dataclass(frozen=True)
class ColorJitter:
    """Brightness, contrast and saturation in random order, each times a factor within ``strength`` of 1, at least 0."""

    strength: float

    def __call__(self, image: AnyImage, generator: np.random.Generator) -> AnyImage:
        """Change the color at random."""
        order = generator.permutation(len(JITTERED))
        factors = generator.uniform(max(0.0, 1.0 - self.strength), 1.0 + self.strength, size=len(JITTERED))
        for position in order:
            image = change(JITTERED[position], image, float(factors[position]))
        return image


@dataclass(frozen=True)
class TransformChain:
    """Several augmentations, one after the other."""

    steps: tuple[Augmentation, ...]

    def __call__(self, image: AnyImage, generator: np.random.Generator) -> AnyImage:
        """Apply all augmentations."""
        for step in self.steps:
            image = step(image, generator)
        return image


def get_fill(mean: Sequence[float]) -> Fill:
    """Return the mean as a pixel: one number for gray images, a color for others."""
    pixel = tuple(min(255, round(255 * value)) for value in mean)
    return pixel[0] if len(pixel) == 1 else pixel


_UNIFORM_ABOVE = 100.0  # a deviation larger than this means uniform magnitudes


def parse_rand_augment(text: str, fill: Fill = 128) -> RandAugment:
    """Parse RandAugment in timm's notation, such as ``rand-m9-mstd0.5-inc1``; a ``UserError`` if it is not valid.

    ``rand`` is followed, in any order, by ``m`` magnitude (10), ``n`` operations per image (2), ``p`` probability of
    each (0.5), ``mstd`` standard deviation of the magnitude (0; uniform from 0 to it if above 100 or ``inf``), ``mmax``
    largest magnitude (10), ``inc1`` operations that become stronger with it, ``t`` a named set of operations (3a, 3aw,
    weights).
    """
    complain = _complaint("TRAIN.RAND_AUGMENT", text, "text like rand-m9-mstd0.5-inc1, true or false")
    head, *sections = text.split("-")
    if head != "rand":
        raise complain(f"it begins with '{head}'")
    options = {"m": FULL_MAGNITUDE, "n": 2.0, "p": 0.5, "mstd": 0.0, "mmax": FULL_MAGNITUDE, "inc": 0.0}
    chosen_set = None
    for section in sections:
        if section.startswith("t"):
            chosen_set = section[1:]
            if chosen_set not in RAND_AUGMENT_SETS:
                raise complain(f"its set of operations '{chosen_set}' is not one of {', '.join(RAND_AUGMENT_SETS)}")
            continue
        name, value = _section(section, options, complain)
        options[name] = value
    if options["n"] < 1 or options["n"] % 1 or options["inc"] not in (0, 1) or options["p"] > 1:
        raise complain("n is a whole number from 1, inc is 0 or 1, p is at most 1")
    names, weights = _operations(chosen_set, bool(options["inc"]))
    if weights is not None and options["n"] > len(names):
        raise complain(f"its set has only {len(names)} operations")
    deviation = math.inf if options["mstd"] > _UNIFORM_ABOVE else options["mstd"]
    spread = MagnitudeSpread(deviation, options["mmax"] or FULL_MAGNITUDE)
    return RandAugment(names, int(options["n"]), options["m"], spread, options["p"], weights, fill)


def parse_auto_augment(text: str, fill: Fill = 128) -> AutoAugment:
    """Parse AutoAugment in timm's notation: a policy (original, originalr, v0, v0r, 3a), optionally ``-mstd0.5``.

    A ``UserError`` says that the text is not valid.
    """
    complain = _complaint("TRAIN.AUTO_AUGMENT", text, f"true, false or one of {', '.join(AUTO_AUGMENT)}")
    name, *sections = text.split("-")
    if name not in AUTO_AUGMENT:
        raise complain(f"there is no policy '{name}'")
    deviation = 0.0
    for section in sections:
        _, deviation = _section(section, ("mstd",), complain)
    return AutoAugment(AUTO_AUGMENT[name], MagnitudeSpread(deviation), fill)


def _operations(chosen_set: str | None, increasing: bool) -> tuple[tuple[str, ...], tuple[float, ...] | None]:
    if chosen_set is None:
        return tuple(RAND_AUGMENT_INCREASING if increasing else RAND_AUGMENT), None
    weights = RAND_AUGMENT_SETS[chosen_set]
    if len(set(weights.values())) == 1:
        return tuple(weights), None
    total = sum(weights.values())
    return tuple(weights), tuple(weight / total for weight in weights.values())


def _section(section: str, names: dict | Sequence[str], complain: Callable) -> tuple[str, float]:
    """Parse name and number of one section of such a text."""
    match = re.fullmatch(r"([a-z]+)(\d+(?:\.\d*)?|inf)", section)
    if match is None or match[1] not in names or (match[2] == "inf" and match[1] != "mstd"):
        raise complain(f"'{section}' is not one of {', '.join(names)} with a number")
    return match[1], float(match[2])


def _complaint(key: str, text: str, expected: str) -> Callable[[str], UserError]:
    return lambda problem: UserError(f"{key} is '{text}': {problem}; expected {expected}")
