"""Synthetic images of shapes with boxes and masks, to train a detector without a download."""

from typing import Any

import numpy as np
from PIL import Image

from ...data.drawn_shapes import DrawnImages, SyntheticImage, render_image
from ...run_lengths import find_mask_runs
from .detection_dataset import DetectionDataset
from .image_annotations import ImageAnnotations


class SyntheticShapes(DrawnImages, DetectionDataset):
    """Synthetic images with masks of each shape's visible pixels, at least three quarters, and tightest boxes."""

    has_masks = True
    reports_odd_objects = True  # there are none

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.class_names, self.num_classes = self.categories, len(self.categories)
        self.category_ids = tuple(range(1, self.num_classes + 1))

    def read(self, index: int) -> tuple[Image.Image, ImageAnnotations]:
        """Return image ``index`` and its annotations."""
        image = self.draw(index)
        return Image.fromarray(render_image(image)), self._annotations(index, image)

    def annotations(self, index: int) -> ImageAnnotations:
        """Return the annotations of image ``index``."""
        return self._annotations(index, self.draw(index))

    def _annotations(self, index: int, image: SyntheticImage) -> ImageAnnotations:
        number, runs = len(image.masks), [find_mask_runs(mask) for mask in image.masks]
        return ImageAnnotations(
            boxes=np.array([mask.box() for mask in runs], dtype=np.float64).reshape(number, 4),
            labels=np.array(image.labels, dtype=np.int64),
            areas=np.array([mask.area for mask in runs], dtype=np.float64),
            is_crowd=np.zeros(number, bool),
            ids=100 * (index + 1) + np.arange(number, dtype=np.int64),
            masks=[mask.listed() for mask in runs],
        )
