"""Several views of a test image: its center and corners, at several scales, and their mirror images.

Sources: A. Krizhevsky et al., "ImageNet classification with deep convolutional neural networks", 2012, section 4.1
(five crops and their reflections, with the mean of the probabilities); C. Szegedy et al., "Going deeper with
convolutions", 2015, section 7 (scales).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image

from .crops import EvaluationTransform

MIRRORED, FIVE_CROPS = "mirrored", "five_crops"


@dataclass(frozen=True)
class ViewsTransform:
    """Several views of an image, each as ``EvaluationTransform`` makes it; the usual one first if 1 is the first scale.

    Args:
        plain: the transform of one view.
        scales: factors of the size that images are resized to; the crop keeps its size.
        has_corners: crop the four corners of the resized image, too.
        is_mirrored: add the mirror image of each view.
    """

    plain: EvaluationTransform
    scales: tuple[float, ...]
    has_corners: bool
    is_mirrored: bool

    @classmethod
    def build(cls, plain: EvaluationTransform, views: Sequence[str], scales: Sequence[float]) -> "ViewsTransform":
        """Build the transform for the names of views, "mirrored" and "five_crops"."""
        return cls(plain, tuple(scales), FIVE_CROPS in views, MIRRORED in views)

    def __call__(self, image: Image.Image, generator: np.random.Generator) -> np.ndarray:
        """Return (views, channels, height, width) uint8; the generator is not used."""
        views = [view for scaled in self._scaled() for view in scaled.crops(image, self.has_corners)]
        if self.is_mirrored:
            views += [view[:, :, ::-1] for view in views]
        return np.stack(views)

    def _scaled(self) -> list[EvaluationTransform]:
        return [replace(self.plain, scale=scale) for scale in self.scales]

    def resized(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return (width, height) after the largest resize of an image of ``size``, both (width, height)."""
        return max(scaled.resized(size) for scaled in self._scaled())

    def describe(self) -> str:
        """Describe the views in a few words, for the line of the score."""
        number = len(self.scales) * (5 if self.has_corners else 1) * (2 if self.is_mirrored else 1)
        parts = ["five crops"] * self.has_corners + ["mirrored"] * self.is_mirrored
        if self.scales != (1.0,):
            parts.append(f"scales {', '.join(f'{scale:g}' for scale in self.scales)}")
        return f"mean of {number} view{'s' * (number > 1)}: {', '.join(parts)}"
