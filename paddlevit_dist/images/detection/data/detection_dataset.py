"""Interface of datasets of images with boxes; annotations are unfiltered."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ....core.runtime.printing import count, describe_value
from ....core.tasks.dataset import Dataset
from ....core.tasks.sample_checks import BadSample
from ....core.tasks.sample_groups import FOLDER, SUBJECT
from ...data.image_dataset import ImageDataset


class ImageAnnotations(NamedTuple):
    """Annotations of an image: n objects in the file's order, including objects that training skips."""

    boxes: np.ndarray  # float64 (n, 4), x, y of the upper left corner, width, height, in the stored image's pixels
    labels: np.ndarray  # int64 (n,), index of the category in the dataset's ``category_ids``
    areas: np.ndarray  # float64 (n,), square pixels, of the mask if there is one
    is_crowd: np.ndarray  # bool (n,), a group: not learned; detections of it are neither right nor wrong
    ids: np.ndarray  # int64 (n,), ids of the annotations in their file
    masks: list[Any] | None = None  # n masks as in COCO's JSON: a list of polygons, or a dictionary
    #: float64 (n, K, 3), x and y of K keypoints in the stored image's pixels, and COCO's visibility: 0 not labeled, 1
    #: hidden, 2 visible. K is the largest number of a category. As in COCO's files a pixel's center is at its integers
    points: np.ndarray | None = None

    @property
    def is_learnable(self) -> np.ndarray:
        """Mask of objects, bool (n,), that COCO's detectors train on: no crowds, and boxes with an area."""
        return ~self.is_crowd & self.has_area

    @property
    def has_area(self) -> np.ndarray:
        """Mask of objects whose box has an area, bool (n,); others are neither learned nor counted as boxes."""
        return (self.boxes[:, 2] > 0) & (self.boxes[:, 3] > 0)


class DetectionDataset(ImageDataset):
    """Images with boxes: ``read(index)`` returns ``(RGB image, ImageAnnotations)``; label k is ``category_ids[k]``.

    ``class_names`` and ``category_ids`` are known before any image is read.
    """

    holds = "images with boxes"
    needs_rgb = True
    truth_name = "ImageAnnotations"
    makers: Mapping[str, str] = {**Dataset.makers, "annotations": "make_annotations"}
    groups_by = {**SUBJECT, **FOLDER}
    #: ascending ids of the categories in the annotation file
    category_ids: tuple[int, ...] = ()
    #: whether objects have masks
    has_masks: bool = False

    @property
    def mirrors(self) -> np.ndarray | None:
        """Keypoint that each keypoint of each label becomes in a mirror, int64 (labels, K); None: without keypoints."""
        return None

    @property
    def can_mirror(self) -> bool:
        """Whether images may be mirrored in training."""
        return True

    def find_learnable(self, annotations: ImageAnnotations) -> np.ndarray:
        """Return which objects of an image are learned, bool (n,)."""
        return annotations.is_learnable

    @abstractmethod
    def read(self, index: int) -> tuple[Image.Image, ImageAnnotations]:
        """Return RGB image ``index`` and its annotations; raise UserError if it is unreadable or of another size."""

    def annotations(self, index: int) -> ImageAnnotations:
        """Return the annotations of image ``index``, without opening it if possible."""
        return self.read(index)[1]

    def make_truth(self, truth: Any, image: Image.Image) -> ImageAnnotations:
        """Return the annotations of an image as ``make_annotations`` does."""
        return self.make_annotations(truth)

    def make_annotations(self, annotations: Any) -> ImageAnnotations:
        """Return the annotations of an image as ``ImageAnnotations``; BadSample if they are something else."""
        if not isinstance(annotations, ImageAnnotations):
            raise BadSample(f"its annotations are {describe_value(annotations)}, expected ImageAnnotations")
        return annotations

    def size(self, index: int) -> tuple[int, int]:
        """Return the height and width of image ``index``, from its annotations if they give them."""
        width, height = self.read(index)[0].size
        return height, width

    @property
    def image_ids(self) -> np.ndarray:
        """Unique ids of the images in the annotation file, int64 (samples,)."""
        return np.arange(1, len(self) + 1)

    def missing(self) -> Sequence[int]:
        """Return the images whose files are missing, as far as folder listings show it."""
        return ()

    def find_broken_masks(self) -> Sequence[int]:
        """Return the images with a mask that cannot be used, as far as is known without reading all of them."""
        return ()

    def image_id(self, index: int) -> int:
        """Return the id of image ``index`` in the annotation file."""
        return int(self.image_ids[index])

    @property
    def sizes(self) -> np.ndarray:
        """Height and width of every image, int64 (samples, 2)."""
        return np.array([self.size(index) for index in range(len(self))], dtype=np.int64).reshape(-1, 2)

    def list_unannotated(self) -> Sequence[str]:
        """Return the images in the dataset's folder that the annotations do not name, as far as known."""
        return ()

    def object_counts(self) -> np.ndarray:
        """Count objects of each image without crowds and empty boxes, int64 (samples, 2): all, its commonest class."""
        counts = np.zeros((len(self), 2), np.int64)
        for index in range(len(self)):
            annotations = self.annotations(index)
            per_class = np.bincount(annotations.labels[self.find_learnable(annotations)].astype(np.int64))
            counts[index] = per_class.sum(), per_class.max(initial=0)
        return counts

    def class_counts(self, chosen: np.ndarray | None = None) -> np.ndarray:
        """Count objects of each class and images with one, int64 (classes, 2), in the images ``chosen`` (None: all)."""
        counts = np.zeros((len(self.category_ids), 2), np.int64)
        for index in range(len(self)) if chosen is None else chosen.tolist():
            image = self.annotations(index)
            per_class = np.bincount(image.labels[image.has_area].astype(np.int64), minlength=len(counts))
            counts += np.stack([per_class, per_class > 0], axis=1)
        return counts

    def count_crowds(self, chosen: np.ndarray | None = None) -> int:
        """Count the crowds, whose box has an area, in the images ``chosen`` (None: all)."""
        annotations = map(self.annotations, range(len(self)) if chosen is None else chosen.tolist())
        return sum(int((image.is_crowd & image.has_area).sum()) for image in annotations)

    def count_categories(self) -> dict[str, int] | None:
        """Count the objects of each category by name; None if that would read every image."""
        return None

    def summary(self, chosen: np.ndarray | None = None) -> str:
        """Describe the images ``chosen`` (None: all): boxes, also of each category, crowds, images without boxes."""
        annotations = [self.annotations(index) for index in (range(len(self)) if chosen is None else chosen.tolist())]
        labels = np.concatenate([np.zeros(0, np.int64), *(image.labels[image.has_area] for image in annotations)])
        is_crowd = np.concatenate([np.zeros(0, bool), *(image.is_crowd[image.has_area] for image in annotations)])
        boxes = np.array([image.has_area.sum() for image in annotations])
        return format_counts(self.class_names or (), boxes, labels, is_crowd)


_MAX_LISTED = 20  # categories; of more, only the most and the least frequent are listed


def format_counts(class_names: Sequence[str], boxes: np.ndarray, labels: np.ndarray, is_crowd: np.ndarray) -> str:
    """Format counts as in ``4 images, 7 boxes: cat 5, dog 2; 1 image without boxes``.

    ``boxes`` is int (images,), number of boxes in each image; ``labels`` and ``is_crowd`` are of all boxes.
    """
    numbers = np.bincount(labels.astype(np.int64), minlength=len(class_names))
    crowds, empty = int(is_crowd.sum()), np.count_nonzero(boxes == 0)
    totals = f"{count(len(boxes), 'image')}, {count(len(labels), 'box')}"
    order = np.argsort(-numbers, kind="stable").tolist()
    entries = [f"{class_names[label]} {numbers[label]:,}" for label in order]
    if len(entries) > _MAX_LISTED:
        entries = [*entries[: _MAX_LISTED // 2], "…", *entries[-3:]]
    totals += f": {', '.join(entries)}" if entries else ""
    more = [f"{crowds:,} of them {'a crowd' if crowds == 1 else 'crowds'}, not learned"] if crowds else []
    more += [f"{count(empty, 'image')} without boxes"] if empty else []
    return "; ".join([totals, *more])
