"""Views of an image: large and small crops with changes of color, drawn in the loader from the sample's generator.

Source: M. Caron et al., Emerging Properties in Self-Supervised Vision Transformers, 2021, arXiv 2104.14294,
section 3.1, which takes the augmentation of J.-B. Grill et al., BYOL, 2020, arXiv 2006.07733, appendix B.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from ...transforms.crops import GlyphTransform, TrainingTransform
from ...transforms.operations import change
from ..samples import PretrainingSamples
from ..unlabeled_sources import UNKNOWN

_BRIGHTNESS, _CONTRAST, _SATURATION, _HUE = 0.4, 0.4, 0.2, 0.1
_GRAY_CHANGES = 2  # brightness and contrast
_COLOR_PROBABILITY, _GRAY_PROBABILITY = 0.8, 0.2
_GLYPH_BLUR = 0.5
_BLUR_RADIUS_PX = 0.1, 2.0
_SOLARIZE_THRESHOLD = 128
_SEED_OF_SECOND_VIEW = 431


@dataclass(frozen=True)
class ViewAugmentation:
    """Color, gray, blur and solarization, each with a probability; color of a gray image is brightness and contrast."""

    blur: float
    solarize: float

    def __call__(self, image: Image.Image, generator: np.random.Generator) -> Image.Image:
        """Change an image at random."""
        jitters, grays, blurs, solarizes = (
            generator.random(4) < (_COLOR_PROBABILITY, _GRAY_PROBABILITY, self.blur, self.solarize)
        ).tolist()
        order = generator.permutation(4)
        strengths = np.array([_BRIGHTNESS, _CONTRAST, _SATURATION, _HUE])
        draws = generator.uniform(-strengths, strengths)  # (4,)
        radius = float(generator.uniform(*_BLUR_RADIUS_PX))
        if jitters:
            for position in order[order < (4 if image.mode == "RGB" else _GRAY_CHANGES)]:
                image = jitter(image, int(position), float(draws[position]))
        if grays and image.mode == "RGB":
            image = image.convert("L").convert("RGB")
        if blurs:
            image = change("GaussianBlur", image, radius)
        return change("Solarize", image, _SOLARIZE_THRESHOLD) if solarizes else image


@dataclass(frozen=True)
class GlyphAugmentation:
    """A small random affine map, then changes of brightness, contrast and sharpness.

    Crops of a glyph share its slant, brightness and width of strokes: without these changes, a network tells glyphs by
    them, and their classes get farther apart.

    Args:
        distortion: strength of the map as in ``GlyphTransform``, from 0 to 1.
        appearance: what follows the map.
    """

    distortion: float
    appearance: ViewAugmentation

    def __call__(self, image: Image.Image, generator: np.random.Generator) -> Image.Image:
        """Change an image at random; pixels outside it are black."""
        glyph = GlyphTransform((image.height, image.width), train=True, distortion=self.distortion)
        inverse = glyph.draw_inverse_map(image.size, generator)
        mapped = image.transform(image.size, Image.Transform.AFFINE, inverse, Image.Resampling.BICUBIC)
        return self.appearance(mapped, generator)


def jitter(image: Image.Image, position: int, amount: float) -> Image.Image:
    """Change brightness, contrast or saturation by a factor of 1 + ``amount``, or turn the hue by this part of a turn.

    ``position`` says which, from 0.
    """
    if position < 3:
        return change(("Brightness", "Contrast", "Color")[position], image, 1.0 + amount)
    hue, saturation, value = image.convert("HSV").split()
    turned = (np.asarray(hue).astype(np.int16) + round(amount * 255)) % 256
    return Image.merge("HSV", (Image.fromarray(turned.astype(np.uint8)), saturation, value)).convert("RGB")


@dataclass(frozen=True)
class Views:
    """Two large views and a number of small ones."""

    large: tuple[TrainingTransform, TrainingTransform]
    small: TrainingTransform
    number: int

    def __call__(self, image: Image.Image, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return uint8 (2, channels, size, size), and (number, channels, small size, small size)."""
        large = np.stack([transform(image, generator) for transform in self.large])
        if not self.number:
            return large, np.zeros((0, *large.shape[1:]), np.uint8)
        return large, np.stack([self.small(image, generator) for _ in range(self.number)])


def build_views(config: Any, kind: str) -> Views:
    """Build the views of images of a kind: "photo", or "glyph", which is distorted and not mirrored."""
    data, keys, is_glyph = config.DATA, config.SELF_DISTILLATION, kind == "glyph"
    flip = 0.0 if is_glyph else data.HORIZONTAL_FLIP
    ratio = data.CROP_RATIO[0], data.CROP_RATIO[1]

    def build(size: Any, scale: Any, blur: float, solarize: float) -> TrainingTransform:
        augment: Any = ViewAugmentation(_GLYPH_BLUR if is_glyph else blur, 0.0 if is_glyph else solarize)
        augment = GlyphAugmentation(data.GLYPH_DISTORTION, augment) if is_glyph else augment
        return TrainingTransform(size, (scale[0], scale[1]), ratio, flip, data.IMAGE_CHANNELS, augment)

    large = build(data.IMAGE_SIZE, keys.LARGE_SCALE, 1.0, 0.0), build(data.IMAGE_SIZE, keys.LARGE_SCALE, 0.1, 0.2)
    return Views(large, build(keys.SMALL_SIZE, keys.SMALL_SCALE, 0.5, 0.0), keys.SMALL_VIEWS)


class ViewSamples(PretrainingSamples):
    """Images with their views; in an evaluation the whole image and one large view, in each the same."""

    second: TrainingTransform

    def read_sample(self, index: int, generator: np.random.Generator) -> Any:
        """Return arrays uint8 of the views, and the class (-1: unknown, and in training)."""
        image, label = self.reader(index)
        if self.is_training:
            return *self.transform(image, generator), UNKNOWN
        second = self.second(image, np.random.default_rng([_SEED_OF_SECOND_VIEW, index]))
        whole = self.transform(image, generator)
        return (
            np.stack([whole, second]),
            np.zeros((0, *whole.shape), np.uint8),
            int(label) if self.has_classes else UNKNOWN,
        )
