"""Label maps of images whose objects have outlines or run lengths in COCO's format, drawn as COCO's tools do.

A pixel has the class of the smallest object that covers it, and of equally large ones the last in the file. Crowds lie
below all other objects. A pixel that only the box of an object without a mask covers is unlabeled.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ....core.runtime.errors import UserError
from ...data.outline_files import draw_runs
from ...data.reading import ReadConfig
from ...run_lengths import MaskRuns, parse_segmentation
from ...segmentation.data.label_maps import add_background
from ...segmentation.data.segmentation_dataset import IGNORED, SegmentationDataset
from ...segmentation.settings import SegmentationSettings
from .coco import Coco
from .image_annotations import ImageAnnotations
from .split_checks import require_masks


class CocoOutlines(SegmentationDataset):
    """Images with the label maps of a file in COCO's format; its categories are the classes, by ascending id."""

    def __init__(self, objects: Coco, is_unlabeled_ignored: bool = False) -> None:
        """Draw the masks of ``objects``.

        Raises:
            UserError: there are no masks, one that cannot be used, or too many categories.
        """
        if not objects.has_masks:
            raise UserError(f"{objects.source} has no masks: boxes define no pixel's class; use TASK detection")
        require_masks(objects, objects.split)
        self._objects, self.root, self.split = objects, objects.root, objects.split
        self.class_names, self._first, self._unlabeled, notices = add_background(
            objects.class_names, is_unlabeled_ignored
        )
        self.num_classes = len(self.class_names)
        if self.num_classes > IGNORED:
            raise UserError(f"{objects.source} has {self.num_classes:,} classes; expected 1 to {IGNORED}")
        rule = "smaller objects are drawn over larger ones, and all over crowds; pixels in a box alone are unlabeled"
        self.notices = [*objects.notices, *notices, rule]

    @classmethod
    def open(cls, config: SegmentationSettings, split: str, cache_folder: Path) -> "CocoOutlines":
        """Open the split of a configuration."""
        objects = Coco(*Coco.list_options(config, split, cache_folder))
        return cls(objects, config.DATA.UNLABELED_PIXELS == "ignored")

    has_validation = Coco.has_validation

    @property
    def reading(self) -> ReadConfig:  # type: ignore[override] # the images' dataset has it
        """How image files are decoded."""
        return self._objects.reading

    def read_with(self, reading: ReadConfig) -> None:
        """Set how image files are decoded."""
        self._objects.reading = reading

    def __len__(self) -> int:
        return len(self._objects)

    def describe(self, index: int) -> str:
        """Return the file of image ``index``."""
        return self._objects.describe(index)

    def identity(self, index: int) -> str:
        """Return the path of image ``index`` relative to the dataset's folder."""
        return self._objects.identity(index)

    def listed(self) -> dict[str, Iterable[Any]]:
        """Return what is listed: paths, sizes and boxes."""
        return self._objects.listed()

    def require_size(self, index: int, size: tuple[int, int]) -> None:
        """Raise ``WrongSize`` if the size of image ``index`` differs from its annotations."""
        self._objects.require_size(index, size)

    def read(self, index: int) -> tuple[Image.Image, np.ndarray]:
        """Read image ``index`` and draw its labels."""
        image, annotations = self._objects.read(index)
        return image, self._draw(index, annotations)

    def read_labels(self, index: int) -> np.ndarray:
        """Draw the labels of image ``index``."""
        return self._draw(index, self._objects.annotations(index))

    def _draw(self, index: int, annotations: ImageAnnotations) -> np.ndarray:
        """Draw a label map, uint8 (height, width)."""
        size = self._objects.size(index)
        labels = np.where(self._objects.find_masked(index), annotations.labels + self._first, IGNORED)
        parts = list(zip(self._parse(index, annotations, size), labels.tolist(), annotations.is_crowd.tolist()))
        parts.sort(key=lambda part: (part[1] != IGNORED, not part[2], -part[0].area))
        return draw_runs(((runs, label) for runs, label, _ in parts), size, self._unlabeled)

    def _parse(self, index: int, annotations: ImageAnnotations, size: tuple[int, int]) -> Iterator[MaskRuns]:
        for number, mask in zip(annotations.ids.tolist(), annotations.masks or ()):
            try:
                yield parse_segmentation(mask, *size)
            except ValueError as error:
                place = f"{self.describe(index)}: annotation {number} in {self._objects.source}"
                raise UserError(f"{place}: its segmentation {error}") from None
