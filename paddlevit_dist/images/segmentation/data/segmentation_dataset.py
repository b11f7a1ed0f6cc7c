"""Base class of datasets of images with label maps: the image, and the class of each of its pixels."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image

from ....core.runtime.printing import shorten
from ....core.tasks.class_names import require_classes
from ....core.tasks.dataset import Dataset
from ....core.tasks.sample_groups import FOLDER, SUBJECT
from ...data.drawn_shapes import DrawnImages, SyntheticImage, render_image
from ...data.image_dataset import ImageDataset
from ...data.image_labels import IGNORED, make_label_map
from ...data.inspection import count_maps
from ...data.reading import UnreadableImage

_MOST_NAMED = 12  # classes in a line
_NEARLY_ALL = 0.99


class SegmentationDataset(ImageDataset):
    """Images with label maps: ``read(index)`` returns ``(RGB image, labels)``.

    ``class_names``, ``num_classes`` and ``palette`` are available without reading a label map.
    """

    holds = "images with label maps"
    needs_rgb = True
    truth_name = "label map"
    makers: Mapping[str, str] = {**Dataset.makers, "read_labels": "make_label_map"}
    groups_by = {**SUBJECT, **FOLDER}
    num_classes: int
    #: uint8 (classes, 3), the published color of each class in RGB; None: ``tasks.figures.class_colors``
    palette: np.ndarray | None = None

    @abstractmethod
    def read(self, index: int) -> tuple[Image.Image, np.ndarray]:
        """Read RGB image ``index`` and its labels, uint8 (height, width) or what ``make_label_map`` takes for them.

        Raises:
            UserError: one of the two cannot be read, they differ in size, or a label is unknown.
        """

    def read_labels(self, index: int) -> np.ndarray:
        """Read the labels of image ``index``, if possible without decoding the image.

        Raises:
            UserError: the label map cannot be read, or has an unknown label; the message names file, row and column.
        """
        return self.read(index)[1]

    def make_truth(self, truth: Any, image: Image.Image) -> np.ndarray:
        """Return the labels of an image as ``make_label_map`` does."""
        return make_label_map(truth, self.num_classes, (image.height, image.width))

    def make_label_map(self, labels: Any) -> np.ndarray:
        """Return what ``read_labels`` of a derived class returned as ``image_labels.make_label_map`` does."""
        return make_label_map(labels, self.num_classes)

    def make_facts(self, name: str) -> None:
        """Make what the attributes say of the classes what the task expects; there are classes."""
        super().make_facts(name)
        if not self.num_classes:
            require_classes(self, name)


def summarize_labels(dataset: SegmentationDataset, split: str) -> list[str]:
    """Count classes in label maps, as many as time allows, in the same order in every run; warn about unusual labels.

    Raises:
        UserError: a label is unknown; the message names file, row and column.
    """
    if not dataset.labeled:
        return []
    rows = count_maps(_counts, dataset, len(dataset), f"labels of {split}")
    if not rows:
        return []
    each = np.stack(rows)
    counts, ignored = each.sum(axis=0)[: dataset.num_classes], int(each[:, IGNORED].sum())
    labeled = int(counts.sum())
    maps = f"{len(each):,} of {len(dataset):,}" if len(each) < len(dataset) else f"all {len(each):,}"
    if not labeled:
        return [f"no pixel of {maps} label maps of {split} has a class: all are unlabeled ({IGNORED})"]
    names = list(map(str, dataset.class_names or range(dataset.num_classes)))
    largest = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    shares = [f"{names[label]} {_share(counts[label], labeled)}" for label in largest[:_MOST_NAMED].tolist()]
    more = f", and {len(largest) - _MOST_NAMED} more" if len(largest) > _MOST_NAMED else ""
    lines = [
        f"labels of {split}, in {maps} label maps: {', '.join(shares)}{more}; unlabeled "
        f"{_share(ignored, ignored + labeled)} of all pixels"
    ]
    absent = [names[label] for label in np.flatnonzero(counts == 0).tolist()]
    if absent:
        number = f"{len(absent)} of {len(names)} classes do not occur in them"
        lines.append(f"warning: {number}: {shorten(', '.join(absent))}")
    if counts.max() > _NEARLY_ALL * labeled and len(names) > 1:
        lines.append(f"warning: nearly all labeled pixels are {names[largest[0]]}; check the label maps")
    if ignored > _NEARLY_ALL * (ignored + labeled):
        lines.append(f"warning: nearly all pixels are unlabeled: is {IGNORED} a class, or 0 (REDUCE_ZERO_LABEL)?")
    return lines


def _share(part: float, whole: int) -> str:
    return f"{100 * int(part) / whole:.3g} %"


def _counts(dataset: SegmentationDataset, index: int) -> np.ndarray | None:
    """Count the pixels of each label, int64 (256,); None if the label map cannot be read, which is reported later."""
    try:
        return np.bincount(dataset.read_labels(index).ravel(), minlength=IGNORED + 1)
    except UnreadableImage:
        return None


class SegmentationShapes(DrawnImages, SegmentationDataset):
    """Drawn images, each pixel labeled with the front shape, or as background, class 0."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.class_names = ["background", *self.categories]
        self.num_classes = len(self.class_names)

    def read(self, index: int) -> tuple[Image.Image, np.ndarray]:
        """Draw image ``index`` and its labels."""
        image = self.draw(index)
        return Image.fromarray(render_image(image)), _draw_labels(image)

    def read_labels(self, index: int) -> np.ndarray:
        """Draw the labels of image ``index``."""
        return _draw_labels(self.draw(index))


def _draw_labels(image: SyntheticImage) -> np.ndarray:
    """Draw the labels, uint8 (height, width)."""
    labels = np.zeros((image.height, image.width), np.uint8)
    for label, mask in zip(image.labels, image.masks):
        labels[mask] = label + 1
    return labels
