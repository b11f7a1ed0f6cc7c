"""Image operations with their parameter ranges, the building blocks of the augmentation policies.

Names, ranges and their roundings are timm's, so that its augmentation strings have the same meaning here. All
operations take RGB and gray ("L") images; color operations do not change gray images. The reference is Pillow.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar, overload

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

Fill = int | tuple[int, ...]  # fill for pixels outside the image: a gray value or a color

FULL_MAGNITUDE = 10.0  # the magnitude at which the ranges end
BLUR_RADIUS_PX = (0.1, 2.0)
SOLARIZE_THRESHOLD = 128

_SHEAR, _ROTATION_DEGREES, _SHIFT, _ENHANCEMENT = 0.3, 30.0, 0.45, 0.9
_SMALLEST_ENHANCEMENT = 0.1


class PolicyOperation(NamedTuple):
    """An operation of the policies: ``parameter(strength, generator)``, then ``apply(image, parameter, fill)``.

    Strength is magnitude / FULL_MAGNITUDE.
    """

    parameter: Callable[[float, np.random.Generator], Any]
    apply: Callable[[Image.Image, Any, Fill], Image.Image]


class ChangingImage(Protocol):
    """An image of another library than Pillow that does the operations itself, with the same results."""

    def changed(self, name: str, parameter: Any, fill: Fill) -> "ChangingImage":
        """Return the image after the operation ``name``."""


AnyImage = TypeVar("AnyImage", Image.Image, ChangingImage)


@overload
def change(name: str, image: Image.Image, parameter: Any = None, fill: Fill = 0) -> Image.Image: ...
@overload
def change(name: str, image: ChangingImage, parameter: Any = None, fill: Fill = 0) -> ChangingImage: ...
def change(
    name: str, image: Image.Image | ChangingImage, parameter: Any = None, fill: Fill = 0
) -> Image.Image | ChangingImage:
    """Apply the operation ``name`` to an image."""
    if isinstance(image, Image.Image):
        return OPERATIONS[name].apply(image, parameter, fill)
    return image.changed(name, parameter, fill)


def _either_sign(value: float, generator: np.random.Generator) -> float:
    return -value if generator.random() < 0.5 else value


def _both_ways(limit: float) -> Callable[[float, np.random.Generator], float]:
    return lambda strength, generator: _either_sign(limit * strength, generator)


def _between(low: float, high: float) -> Callable[[float, np.random.Generator], float]:
    return lambda strength, generator: low + (high - low) * min(strength, 1.0)


def _none(strength: float, generator: np.random.Generator) -> None:
    return None


def _enhancement(strength: float, generator: np.random.Generator) -> float:
    """Return a factor from nearly none of the property to nearly twice of it; the image is unchanged in the middle."""
    return _SMALLEST_ENHANCEMENT + 2 * _ENHANCEMENT * strength


def _enhancement_away(strength: float, generator: np.random.Generator) -> float:
    """Return a factor below or above 1, further from 1 with more strength."""
    return max(_SMALLEST_ENHANCEMENT, 1.0 + _either_sign(_ENHANCEMENT * strength, generator))


def _threshold(strength: float, generator: np.random.Generator) -> int:
    return min(256, int(256 * strength))


def _radius(strength: float, generator: np.random.Generator) -> float:
    smallest, largest = BLUR_RADIUS_PX
    return float(generator.uniform(smallest, largest * min(strength, 1.0)))


def _affine(image: Image.Image, rows: tuple[float, ...], fill: Fill) -> Image.Image:
    """Apply an affine map; ``rows`` are the first two rows of the map from target to source coordinates."""
    return image.transform(image.size, Image.Transform.AFFINE, rows, Image.Resampling.BICUBIC, fillcolor=fill)


def _posterize(image: Image.Image, bits: int, fill: Fill) -> Image.Image:
    if bits <= 0:  # Pillow refuses this, which the oldest scale of the operation requires at small magnitudes
        return Image.new(image.mode, image.size)
    return image if bits >= 8 else ImageOps.posterize(image, bits)


def _solarize_add(image: Image.Image, addition: int, fill: Fill) -> Image.Image:
    levels = np.arange(256)
    table = np.where(levels < SOLARIZE_THRESHOLD, np.minimum(levels + addition, 255), levels)
    return image.point(table.tolist() * len(image.getbands()))


def _enhance(kind: Callable[[Image.Image], Any]) -> Callable[[Image.Image, float, Fill], Image.Image]:
    return lambda image, factor, fill: kind(image).enhance(factor)


def _solarize(image: Image.Image, threshold: int, fill: Fill) -> Image.Image:
    return ImageOps.solarize(image, threshold)


def _blur(image: Image.Image, radius_px: float, fill: Fill) -> Image.Image:
    return image.filter(ImageFilter.GaussianBlur(radius=radius_px))


_color, _contrast = _enhance(ImageEnhance.Color), _enhance(ImageEnhance.Contrast)
_brightness, _sharpness = _enhance(ImageEnhance.Brightness), _enhance(ImageEnhance.Sharpness)

# Posterize, Solarize and the enhancements exist in several versions: the older scales weaken or reverse as the
# magnitude grows; the "Increasing" versions ("inc1" in a RandAugment string) always become stronger.
OPERATIONS: dict[str, PolicyOperation] = {
    "AutoContrast": PolicyOperation(_none, lambda image, _, fill: ImageOps.autocontrast(image)),
    "Equalize": PolicyOperation(_none, lambda image, _, fill: ImageOps.equalize(image)),
    "Invert": PolicyOperation(_none, lambda image, _, fill: ImageOps.invert(image)),
    "Rotate": PolicyOperation(
        _both_ways(_ROTATION_DEGREES),
        lambda image, degrees, fill: image.rotate(degrees, Image.Resampling.BICUBIC, fillcolor=fill),
    ),
    "Posterize": PolicyOperation(lambda strength, _: int(4 * strength), _posterize),
    "PosterizeIncreasing": PolicyOperation(lambda strength, _: 4 - int(4 * strength), _posterize),
    "PosterizeOriginal": PolicyOperation(lambda strength, _: int(4 * strength) + 4, _posterize),
    "Solarize": PolicyOperation(_threshold, _solarize),
    "SolarizeIncreasing": PolicyOperation(lambda strength, generator: 256 - _threshold(strength, generator), _solarize),
    "SolarizeAdd": PolicyOperation(lambda strength, _: min(128, int(110 * strength)), _solarize_add),
    "Color": PolicyOperation(_enhancement, _color),
    "ColorIncreasing": PolicyOperation(_enhancement_away, _color),
    "Contrast": PolicyOperation(_enhancement, _contrast),
    "ContrastIncreasing": PolicyOperation(_enhancement_away, _contrast),
    "Brightness": PolicyOperation(_enhancement, _brightness),
    "BrightnessIncreasing": PolicyOperation(_enhancement_away, _brightness),
    "Sharpness": PolicyOperation(_enhancement, _sharpness),
    "SharpnessIncreasing": PolicyOperation(_enhancement_away, _sharpness),
    "ShearX": PolicyOperation(_both_ways(_SHEAR), lambda image, x, fill: _affine(image, (1, x, 0, 0, 1, 0), fill)),
    "ShearY": PolicyOperation(_both_ways(_SHEAR), lambda image, y, fill: _affine(image, (1, 0, 0, y, 1, 0), fill)),
    "TranslateXRel": PolicyOperation(
        _both_ways(_SHIFT), lambda image, x, fill: _affine(image, (1, 0, x * image.width, 0, 1, 0), fill)
    ),
    "TranslateYRel": PolicyOperation(
        _both_ways(_SHIFT), lambda image, y, fill: _affine(image, (1, 0, 0, 0, 1, y * image.height), fill)
    ),
    "Desaturate": PolicyOperation(_between(0.5, 0.0), _color),  # how much color remains
    "GaussianBlur": PolicyOperation(_between(*BLUR_RADIUS_PX), _blur),
    "GaussianBlurRand": PolicyOperation(_radius, _blur),
}
