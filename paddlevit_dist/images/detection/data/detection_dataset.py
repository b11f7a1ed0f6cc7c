"""The contract of a dataset of images with boxes: the image and everything annotated in it, nothing filtered."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ....tasks.sample_groups import FOLDER, SUBJECT
from ...data.data_warnings import count
from ...data.image_dataset import ImageDataset


class ImageAnnotations(NamedTuple):
    """Annotations of an image: n objects in the file's order, those that nobody can learn from included.

    Attributes:
        boxes: float64 (n, 4), x and y of the upper left corner, width and height, in pixels of the stored image.
        labels: int64 (n,), position of the category among the dataset's ``category_ids``.
        areas: float64 (n,), square pixels, of the mask where there is one.
        is_crowd: bool (n,), a group of objects: not learned, and what is found in it is neither right nor wrong.
        ids: int64 (n,), of the annotations in their file.
        masks: None, or n of them as in COCO's JSON: a list of polygons, or run lengths as a dictionary.
    """

    boxes: np.ndarray
    labels: np.ndarray
    areas: np.ndarray
    is_crowd: np.ndarray
    ids: np.ndarray
    masks: list[Any] | None = None

    @property
    def is_learnable(self) -> np.ndarray:
        """bool (n,): no crowd, and a box with an area. COCO's authors of methods train on these only."""
        return ~self.is_crowd & (self.boxes[:, 2] > 0) & (self.boxes[:, 3] > 0)


class DetectionDataset(ImageDataset):
    """Images with boxes: ``read(index)`` returns ``(RGB image, ImageAnnotations)``.

    ``class_names`` and ``category_ids`` are known without reading anything. Label ``k`` stands for ``category_ids[k]``.
    """

    holds = "images with boxes"
    groups_by = {**SUBJECT, **FOLDER}
    #: number of each category in the file that names them, ascending
    category_ids: tuple[int, ...] = ()
    #: whether objects have masks
    has_masks: bool = False

    def read(self, index: int) -> tuple[Image.Image, ImageAnnotations]:  # type: ignore[override] # many labels
        """Image ``index`` in mode "RGB", and what is annotated in it.

        Raises:
            UserError: the image cannot be read, or has another size than its annotations say.
        """
        raise NotImplementedError

    def annotations(self, index: int) -> ImageAnnotations:
        """Return what is annotated in image ``index``, where possible without opening it."""
        return self.read(index)[1]

    def size(self, index: int) -> tuple[int, int]:
        """Height and width of image ``index`` in pixels, without opening it where its annotations say them."""
        width, height = self.read(index)[0].size
        return height, width

    @property
    def image_ids(self) -> np.ndarray:
        """int64 (samples,), the number of each image in its file; all different."""
        return np.arange(1, len(self) + 1)

    def missing(self) -> Sequence[int]:
        """The images whose files are not there, as far as that is known from lists of folders."""
        return ()

    def image_id(self, index: int) -> int:
        """The number of image ``index`` in its file."""
        return int(self.image_ids[index])

    @property
    def sizes(self) -> np.ndarray:
        """int64 (samples, 2), height and width of every image."""
        return np.array([self.size(index) for index in range(len(self))], dtype=np.int64).reshape(-1, 2)

    def beside(self) -> Sequence[str]:
        """The images in the dataset's folder that its annotations do not name, as far as that is known."""
        return ()

    def object_counts(self) -> np.ndarray:
        """Count the objects to find in each image, crowds and boxes without an area left out: int64 (samples, 2), all
        and the most of one category."""
        counts = np.zeros((len(self), 2), np.int64)
        for index in range(len(self)):
            one = self.annotations(index)
            of_classes = np.bincount(one.labels[one.is_learnable].astype(np.int64))
            counts[index] = of_classes.sum(), of_classes.max(initial=0)
        return counts

    def class_counts(self, chosen: np.ndarray | None = None) -> np.ndarray:
        """Count what is annotated of each class: int64 (classes, 2), objects, and images that have one.

        Args:
            chosen: int64, in these images only.
        """
        counts = np.zeros((len(self.category_ids), 2), np.int64)
        for index in range(len(self)) if chosen is None else chosen.tolist():
            of_classes = np.bincount(self.annotations(index).labels.astype(np.int64), minlength=len(counts))
            counts += np.stack([of_classes, of_classes > 0], axis=1)
        return counts

    def summary(self, chosen: np.ndarray | None = None) -> str:
        """Say what it holds in words: images, boxes, how many of each category, crowds, images without boxes.

        Args:
            chosen: int64, of these images only.
        """
        found = [self.annotations(index) for index in (range(len(self)) if chosen is None else chosen.tolist())]
        labels = np.concatenate([np.zeros(0, np.int64), *(one.labels for one in found)])
        is_crowd = np.concatenate([np.zeros(0, bool), *(one.is_crowd for one in found)])
        return format_counts(self.class_names or (), np.array([len(one.labels) for one in found]), labels, is_crowd)


_MOST_TOLD = 20  # categories; of more than these, the most and the least frequent


def format_counts(class_names: Sequence[str], boxes: np.ndarray, labels: np.ndarray, is_crowd: np.ndarray) -> str:
    """``4 images, 7 boxes: cat 5, dog 2; 1 image without boxes``.

    Args:
        boxes: int (images,), how many each has.
        labels: int (boxes,), of all boxes; is_crowd: (boxes,), those that stand for a group.
    """
    numbers = np.bincount(labels.astype(np.int64), minlength=len(class_names))
    crowds, empty = int(is_crowd.sum()), np.count_nonzero(boxes == 0)
    said = f"{count(len(boxes), 'image')}, {count(len(labels), 'box')}"
    order = np.argsort(-numbers, kind="stable").tolist()
    named = [f"{class_names[label]} {numbers[label]:,}" for label in order]
    if len(named) > _MOST_TOLD:
        named = [*named[: _MOST_TOLD // 2], "…", *named[-3:]]
    said += f": {', '.join(named)}" if named else ""
    more = [f"{crowds:,} of them {'a crowd' if crowds == 1 else 'crowds'}"] if crowds else []
    more += [f"{count(empty, 'image')} without boxes"] if empty else []
    return "; ".join([said, *more])
