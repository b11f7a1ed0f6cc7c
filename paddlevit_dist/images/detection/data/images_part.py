"""Part of a dataset of images with boxes, or all of its images in another order."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...data.held_out import DatasetPart, make_row_method, write_rows
from .detection_dataset import DetectionDataset
from .image_annotations import ImageAnnotations
from .transforms import Size


class ImagesPart(DatasetPart, DetectionDataset):
    """Part of another dataset, or all in another order; pickled as that dataset and a memory-mapped file of rows."""

    dataset: DetectionDataset
    labels = None  # an image has many
    image_id, size, annotations = map(make_row_method, ("image_id", "size", "annotations"))
    mirrors = property(lambda part: part.dataset.mirrors)
    can_mirror = property(lambda part: part.dataset.can_mirror)

    def __init__(self, dataset: DetectionDataset, rows_file: Path, is_share: bool = False) -> None:
        super().__init__(dataset, rows_file, is_share)
        self.labeled, self.category_ids, self.has_masks = dataset.labeled, dataset.category_ids, dataset.has_masks
        self.reports_odd_objects = dataset.reports_odd_objects

    def __getstate__(self) -> Any:
        return {**super().__getstate__(), "notices": ()}

    @property
    def image_ids(self) -> np.ndarray:
        """Unique ids of the images in the annotation file, int64 (samples,)."""
        return self.dataset.image_ids[self.rows]

    @property
    def sizes(self) -> np.ndarray:
        """Height and width of every image, int64 (samples, 2)."""
        return self.dataset.sizes[self.rows]

    def find_learnable(self, annotations: ImageAnnotations) -> np.ndarray:
        """Return which objects of an image are learned, bool (n,)."""
        return self.dataset.find_learnable(annotations)

    def missing(self) -> Sequence[int]:
        """Return the positions of images whose file does not exist."""
        return np.flatnonzero(np.isin(self.rows, self.dataset.missing())).tolist()

    def find_broken_masks(self) -> Sequence[int]:
        """Return the positions of images with a mask that cannot be used."""
        return np.flatnonzero(np.isin(self.rows, self.dataset.find_broken_masks())).tolist()

    def list_unannotated(self) -> Sequence[str]:
        """Return the images in the folder that the annotations do not name."""
        return self.dataset.list_unannotated()

    def object_counts(self) -> np.ndarray:
        """Count the learnable objects of each image, all and of its most frequent category."""
        return self.dataset.object_counts()[self.rows]

    def class_counts(self, chosen: np.ndarray | None = None) -> np.ndarray:
        """Count objects, and images with one, of each class."""
        return self.dataset.class_counts(self.rows if chosen is None else self.rows[chosen])

    def count_crowds(self, chosen: np.ndarray | None = None) -> int:
        """Count the crowds in the images ``chosen`` (None: all)."""
        return self.dataset.count_crowds(self.rows if chosen is None else self.rows[chosen])

    def count_categories(self) -> dict[str, int] | None:
        """Count the objects of each category by name, if the whole dataset can."""
        known = self.dataset.count_categories()
        return None if known is None else dict(zip(known, self.class_counts()[:, 0].tolist()))

    def summary(self, chosen: np.ndarray | None = None) -> str:
        """Describe images, boxes and categories."""
        return self.dataset.summary(self.rows if chosen is None else self.rows[chosen])


def ordered_by_shape(
    dataset: DetectionDataset,
    resized: Callable[[Size], Size],
    cache_folder: Path,
    part: type[ImagesPart] = ImagesPart,
) -> ImagesPart:
    """Return all images, ordered by their size after ``resized``, so that batches need no padding."""
    sizes = np.array([resized((height, width)) for height, width in dataset.sizes.tolist()]).reshape(-1, 2)
    rows = np.lexsort((sizes[:, 1], sizes[:, 0]))
    return part(dataset, write_rows(cache_folder, "images-by-shape", rows))
