"""What training and evaluation do to pictures with boxes; everything random comes from the sample's generator.

The recipe is that of DETR's authors (N. Carion et al., "End-to-End Object Detection with Transformers", 2020, section
4 and facebookresearch/detr, datasets/coco.py): mirror half of the pictures; resize to one of several sizes; half of the
pictures are cropped before that, at a size of their own.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..settings import PILLOW, TORCHVISION
from .views import Size, View, crop, fitted_size, fitted_size_of_torchvision, flip, resize, resize_as_torchvision


@dataclass(frozen=True)
class EvaluationTransform:
    """Resize so that the shorter side is ``shortest``, or less where the longer one would pass ``longest``.

    Attributes:
        how: ``PILLOW``, or ``TORCHVISION``: with its rounding and its interpolation.
    """

    shortest: int = 800
    longest: int = 1333
    how: str = PILLOW

    def __call__(self, view: View, generator: np.random.Generator) -> View:
        """The resized view; nothing is random."""
        resized = resize_as_torchvision if self.how == TORCHVISION else resize
        return resized(view, self.resized(view.size))

    def resized(self, size: Size) -> Size:
        """Height and width after the resize of a picture of ``size``."""
        fitted = fitted_size_of_torchvision if self.how == TORCHVISION else fitted_size
        return fitted(size, self.shortest, self.longest)


@dataclass(frozen=True)
class TrainingTransform:
    """Mirror, perhaps crop, resize, change colours.

    Attributes:
        shortest: sizes of the shorter side, of which each picture takes one.
        longest: the longer side is not larger than this.
        flip_probability: of a mirrored picture.
        crop_probability: of a picture that is first resized to one of ``shortest_to_crop`` and cropped.
        shortest_to_crop: sizes of the shorter side for that.
        crop_sides: smallest and largest height and width of the crop.
        colour_jitter: strength of the change of brightness, contrast and saturation, 0 for none.
    """

    shortest: tuple[int, ...] = tuple(range(480, 801, 32))
    longest: int = 1333
    flip_probability: float = 0.5
    crop_probability: float = 0.5
    shortest_to_crop: tuple[int, ...] = (400, 500, 600)
    crop_sides: tuple[int, int] = (384, 600)
    colour_jitter: float = 0.0

    def __call__(self, view: View, generator: np.random.Generator) -> View:
        if generator.random() < self.flip_probability:
            view = flip(view)
        if generator.random() < self.crop_probability:
            view = self._crop(view, generator)
        view = resize(view, fitted_size(view.size, _one_of(self.shortest, generator), self.longest))
        if self.colour_jitter:
            from ...transforms.policies import ColorJitter

            view = view._replace(picture=ColorJitter(self.colour_jitter)(view.picture, generator))
        return view

    def _crop(self, view: View, generator: np.random.Generator) -> View:
        shortest = _one_of(self.shortest_to_crop, generator)
        # The authors set no limit to the longer side here; a strip of 1 x 10,000 pixels needs one.
        view = resize(view, fitted_size(view.size, shortest, 10 * max(shortest, self.longest)))
        low, high = self.crop_sides
        width, height = (
            int(generator.integers(min(low, side), min(high, side), endpoint=True)) for side in view.picture.size
        )
        top, left = (
            int(generator.integers(0, side - kept, endpoint=True)) for side, kept in zip(view.size, (height, width))
        )
        return crop(view, top, left, (height, width))


def training_transform(data: Any) -> TrainingTransform:
    """What the keys below DATA describe."""
    return TrainingTransform(
        shortest=tuple(data.SHORTEST_SIDES),
        longest=data.LONGEST_SIDE,
        flip_probability=data.HORIZONTAL_FLIP,
        crop_probability=data.CROP_PROBABILITY,
        shortest_to_crop=tuple(data.CROP_SHORTEST_SIDES),
        crop_sides=tuple(data.CROP_SIDES),
        colour_jitter=data.COLOR_JITTER,
    )


def evaluation_transform(data: Any) -> EvaluationTransform:
    """What the keys below DATA describe."""
    return EvaluationTransform(data.EVAL_SHORTEST_SIDE, data.EVAL_LONGEST_SIDE, data.EVAL_RESIZE)


def _one_of(values: tuple[int, ...], generator: np.random.Generator) -> int:
    return values[int(generator.integers(len(values)))]
