"""Interface of datasets of images with boxes; annotations are unfiltered."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from ....core.registry.required_methods import is_builtin
from ....core.runtime.errors import UserError
from ....core.runtime.printing import count
from ....core.tasks.class_labels import show_value
from ....core.tasks.dataset import Dataset
from ....core.tasks.sample_arrays import as_array
from ....core.tasks.sample_groups import FOLDER, SUBJECT
from ...data.image_dataset import ImageDataset
from .image_annotations import ImageAnnotations, ObjectRules, make_annotations


class DetectionDataset(ImageDataset):
    """Images with boxes: ``read(index)`` returns ``(RGB image, ImageAnnotations)``; label k is ``category_ids[k]``.

    A derived class may return anything that ``make_annotations`` takes for annotations. ``class_names`` and
    ``category_ids`` are known before any image is read.
    """

    holds = "images with boxes"
    needs_rgb = True
    truth_name = "ImageAnnotations"
    makers: Mapping[str, str] = {**Dataset.makers, "annotations": "make_annotations"}
    indexed = ("size", "image_id")
    groups_by = {**SUBJECT, **FOLDER}
    #: ascending ids of the categories in the annotation file
    category_ids: tuple[int, ...] = ()
    #: whether its files declare these ids, as COCO's do; else ids without gaps are positions in a list of names
    declares_ids: bool = False
    #: whether objects have masks
    has_masks: bool = False
    #: why there are none though the data have some, for messages
    masks_note: str = ""
    #: whether ``notices`` report odd boxes and points; else the first images are looked at
    reports_odd_objects: bool = False

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

    _rules: ObjectRules | None = None  # of all images, found when the first is read after the dataset was opened

    def find_rules(self) -> ObjectRules:
        """Return what is expected of the objects of every image."""
        return ObjectRules(len(self.category_ids) or self.num_classes, self.list_class_names())

    def make_facts(self, name: str) -> None:
        """Make what the attributes say of the classes what tasks expect; without ids, categories are 1, 2, ..."""
        super().make_facts(name)
        self._make_categories(name)
        if not is_builtin(self.own_class):
            self._check_image_ids(name)
        self._rules = None

    def _make_categories(self, name: str) -> None:
        """Check that there are classes, with a name and an id for each; raises UserError."""
        given = as_array(self.category_ids)
        if not self.num_classes and given is not None and given.ndim == 1 and given.size:
            self._set("num_classes", self.num_classes, len(given), name)
        self.number_classes(name)
        if given is not None and not given.size:
            self._set("category_ids", self.category_ids, tuple(range(1, (self.num_classes or 0) + 1)), name)
        ids, expected = self.category_ids, "expected ascending whole numbers, one for each class"
        array = as_array(ids)
        is_whole = array is not None and array.ndim == 1 and array.dtype.kind in "iu"
        if array is None or not is_whole or (np.diff(array.astype(np.int64)) <= 0).any():
            raise UserError(f"{name}: category_ids are {show_value(ids)}: {expected}")
        if self.num_classes is not None and len(array) != self.num_classes:
            raise UserError(f"{name} has {len(array):,} category_ids for {self.num_classes:,} classes: {expected}")
        if not isinstance(ids, tuple):
            self._set("category_ids", ids, tuple(array.tolist()), name)

    def _check_image_ids(self, name: str) -> None:
        """Check that the ids of images, by which results are stored, differ; raises UserError."""
        given: Any = self.image_ids
        ids = as_array(given)
        if ids is None or ids.shape != (len(self),) or ids.dtype.kind not in "iu":
            raise UserError(f"{name}: image_ids are {show_value(given)}: expected a whole number for each image")
        if not isinstance(given, np.ndarray):
            self._set("image_ids", given, ids, name)
        index_of: dict[int, int] = {}
        for index in range(len(self)):
            image_id = self.image_id(index)
            if not isinstance(image_id, (int, np.integer)):
                raise UserError(f"{name}: image_id({index}) is {show_value(image_id)}: expected a whole number")
            first = index_of.setdefault(int(image_id), index)
            if first != index:
                raise UserError(
                    f"{name}: images {first} and {index} both have the id {image_id}: give each image another, as "
                    "files of predictions name images by it"
                )

    def make_truth(self, truth: Any, image: Image.Image) -> ImageAnnotations:
        """Return the annotations of an image, whose masks have its size."""
        self._rules = rules = self._rules or self.find_rules()
        return make_annotations(truth, rules, (image.height, image.width))

    def make_annotations(self, annotations: Any) -> ImageAnnotations:
        """Return what ``annotations`` of a derived class returned as ``ImageAnnotations``; BadSample if it is wrong."""
        self._rules = rules = self._rules or self.find_rules()
        return make_annotations(annotations, rules)

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
        return format_counts(self.list_class_names(), boxes, labels, is_crowd)


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
