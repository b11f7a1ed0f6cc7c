"""Built-in pictures of drawn shapes with label maps, so that a first training needs no download."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ...contracts.dataset import require_split
from ..data.drawn_shapes import SPLITS, VERSION, Drawn, draw_shapes, paint
from .data.segmentation_dataset import SegmentationDataset

BACKGROUND = "background"


class SegmentationShapes(SegmentationDataset):
    """Shapes of random colours, sizes and places in front of a noisy background, drawn when they are read: the pictures
    of ``synthetic_shapes``, each pixel labelled with the shape that is in front there, or as background, class 0.

    Args:
        shapes: the keys below DATA.SHAPES.
        seed: of all pictures.
    """

    def __init__(self, split: str, shapes: Any, seed: int = 0) -> None:
        self.split = require_split(split, tuple(SPLITS), "segmentation_shapes")
        self.categories = tuple(shapes.CATEGORIES)
        self.class_names = [BACKGROUND, *self.categories]
        self.num_classes = len(self.class_names)
        self._number = shapes.TRAIN if split == "train" else shapes.VAL
        self._sides, self._per_picture, self._seed = tuple(shapes.SIDES), tuple(shapes.PER_PICTURE), seed

    @classmethod
    def open(cls, config: Any, split: str, cache_folder: Path) -> "SegmentationShapes":
        return cls(split, config.DATA.SHAPES)

    def __len__(self) -> int:
        return self._number

    def read(self, index: int) -> tuple[Image.Image, np.ndarray]:  # type: ignore[override]
        drawn = self._draw(index)
        return Image.fromarray(paint(drawn)), _labels_of(drawn)

    def labels_of(self, index: int) -> np.ndarray:
        return _labels_of(self._draw(index))

    def describe(self, index: int) -> str:
        """The picture's number and what it was drawn from."""
        return f"synthetic picture {self.split}_{index:05d} (seed {self._seed}, drawing {VERSION})"

    def _draw(self, index: int) -> Drawn:
        if not 0 <= index < self._number:
            raise IndexError(f"picture {index} is outside 0..{self._number - 1}")
        return draw_shapes((self._seed, SPLITS[self.split], index), self._sides, self._per_picture, self.categories)


def _labels_of(drawn: Drawn) -> np.ndarray:
    """uint8 (height, width)."""
    labels = np.zeros((drawn.height, drawn.width), np.uint8)
    for label, mask in zip(drawn.labels, drawn.masks):
        labels[mask] = label + 1
    return labels
