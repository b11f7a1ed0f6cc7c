"""Built-in images of drawn shapes with boxes and masks, so that a first training of a detector needs no download."""

from typing import Any

import numpy as np
from PIL import Image

from ...data.drawn_shapes import DrawnImages, SyntheticImage, render_image
from ...run_lengths import find_mask_runs
from .detection_dataset import DetectionDataset, ImageAnnotations


class SyntheticShapes(DrawnImages, DetectionDataset):
    """Drawn images whose masks are a shape's visible pixels, of which others cover a quarter at most, and whose boxes
    are the smallest ones around these. There are no crowds."""

    has_masks = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.class_names, self.num_classes = self.categories, len(self.categories)
        self.category_ids = tuple(range(1, self.num_classes + 1))

    def read(self, index: int) -> tuple[Image.Image, ImageAnnotations]:  # type: ignore[override]
        drawn = self.draw(index)
        return Image.fromarray(render_image(drawn)), self._annotations(index, drawn)

    def annotations(self, index: int) -> ImageAnnotations:
        return self._annotations(index, self.draw(index))

    def _annotations(self, index: int, drawn: SyntheticImage) -> ImageAnnotations:
        number, runs = len(drawn.masks), [find_mask_runs(mask) for mask in drawn.masks]
        return ImageAnnotations(
            boxes=np.array([one.box() for one in runs], dtype=np.float64).reshape(number, 4),
            labels=np.array(drawn.labels, dtype=np.int64),
            areas=np.array([one.area for one in runs], dtype=np.float64),
            is_crowd=np.zeros(number, bool),
            ids=100 * (index + 1) + np.arange(number, dtype=np.int64),
            masks=[one.listed() for one in runs],
        )
