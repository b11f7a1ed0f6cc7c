"""Built-in pictures of drawn shapes with label maps, so that a first training needs no download."""

from typing import Any

import numpy as np
from PIL import Image

from ..data.drawn_shapes import Drawn, DrawnPictures, paint
from .data.segmentation_dataset import SegmentationDataset


class SegmentationShapes(DrawnPictures, SegmentationDataset):
    """Drawn pictures, each pixel labelled with the shape that is in front there, or as background, class 0."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.class_names = ["background", *self.categories]
        self.num_classes = len(self.class_names)

    def read(self, index: int) -> tuple[Image.Image, np.ndarray]:  # type: ignore[override] # a label for each pixel
        drawn = self.draw(index)
        return Image.fromarray(paint(drawn)), _labels_of(drawn)

    def labels_of(self, index: int) -> np.ndarray:
        return _labels_of(self.draw(index))


def _labels_of(drawn: Drawn) -> np.ndarray:
    """uint8 (height, width)."""
    labels = np.zeros((drawn.height, drawn.width), np.uint8)
    for label, mask in zip(drawn.labels, drawn.masks):
        labels[mask] = label + 1
    return labels
