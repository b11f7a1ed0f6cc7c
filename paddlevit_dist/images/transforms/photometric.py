"""Colours that change at random, as detectors and networks that segment are trained: SSD's photometric distortion."""

import numpy as np
from PIL import Image

_BRIGHTNESS = 32.0  # levels
_FACTORS = (0.5, 1.5)  # of contrast and saturation
_HUE = 18 / 180  # of a whole turn


def with_other_colours(pixels: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Pixels uint8 (height, width, 3) with brightness, contrast, saturation and hue changed, each with probability 1/2;
    contrast comes after brightness or at the end.

    Source: order and ranges of mmsegmentation's ``PhotoMetricDistortion``, which are those of W. Liu et al., "SSD:
    Single Shot MultiBox Detector", 2016 (in its code).
    """
    is_early = generator.random() < 0.5
    if generator.random() < 0.5:
        pixels = _levels(pixels, 1.0, generator.uniform(-_BRIGHTNESS, _BRIGHTNESS))
    if is_early and generator.random() < 0.5:
        pixels = _levels(pixels, generator.uniform(*_FACTORS), 0.0)
    saturation = generator.uniform(*_FACTORS) if generator.random() < 0.5 else None
    turn = generator.uniform(-_HUE, _HUE) if generator.random() < 0.5 else None
    if saturation is not None or turn is not None:
        hue, colour, value = Image.fromarray(np.ascontiguousarray(pixels)).convert("HSV").split()
        levels = np.arange(256)
        if turn is not None:
            hue = hue.point(((levels + round(256 * turn)) % 256).tolist())
        if saturation is not None:
            colour = colour.point(np.clip(np.rint(levels * saturation), 0, 255).astype(int).tolist())
        pixels = np.asarray(Image.merge("HSV", (hue, colour, value)).convert("RGB"))
    if not is_early and generator.random() < 0.5:
        pixels = _levels(pixels, generator.uniform(*_FACTORS), 0.0)
    return pixels


def _levels(pixels: np.ndarray, factor: float, shift: float) -> np.ndarray:
    """uint8 pixels times ``factor`` plus ``shift``, cut off at 0 and 255."""
    table = np.clip(np.rint(np.arange(256) * factor + shift), 0, 255).astype(np.uint8)
    return table[pixels]
