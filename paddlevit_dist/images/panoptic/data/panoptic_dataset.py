"""Base class of datasets of images with segments, and drawn ones."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from ....core.runtime.errors import UserError
from ....core.runtime.printing import count, shorten
from ....core.tasks.class_labels import as_array, show_value
from ....core.tasks.class_names import require_classes
from ....core.tasks.dataset import Dataset
from ....core.tasks.sample_groups import FOLDER, SUBJECT
from ...data.drawn_shapes import DrawnImages, SyntheticImage, render_image
from ...data.image_dataset import ImageDataset
from ...data.inspection import count_maps
from ...data.reading import UnreadableImage
from .segments import Segments, make_segments, number_segments


class PanopticDataset(ImageDataset):
    """Images with segments: ``read(index)`` returns ``(RGB image, segments)``, see ``make_segments``.

    ``class_names``, ``num_classes``, ``is_thing`` and ``category_ids`` are available without reading an image.
    """

    holds = "images with segments"
    needs_rgb = True
    truth_name = "segments"
    makers: Mapping[str, str] = {**Dataset.makers, "read_segments": "make_segments"}
    indexed = ("image_id",)
    groups_by = {**SUBJECT, **FOLDER}
    num_classes: int
    #: of each class, whether it has instances (a thing) or is stuff
    is_thing: Sequence[bool]
    #: number of each class in files of COCO's format; None: from 1
    category_ids: Sequence[int] | None = None
    #: uint8 (classes, 3), the published color of each class in RGB; None: ``tasks.figures.class_colors``
    palette: np.ndarray | None = None

    @abstractmethod
    def read(self, index: int) -> tuple[Image.Image, Segments]:
        """Read RGB image ``index`` and its segments, or what ``make_segments`` takes for them.

        Raises:
            UserError: one of the two cannot be read, they differ in size, or a segment is unknown.
        """

    def read_segments(self, index: int) -> Segments:
        """Read the segments of image ``index``, without decoding the image if possible; see ``read``."""
        return self.read(index)[1]

    def image_id(self, index: int) -> int | str:
        """Return the id of image ``index`` in files of COCO's format; by default, they are counted from 1."""
        return index + 1

    def make_truth(self, truth: Any, image: Image.Image) -> Segments:
        """Return the segments of an image as ``make_segments`` does."""
        return make_segments(truth, self.num_classes, self.class_names or (), (image.height, image.width))

    def make_segments(self, segments: Any) -> Segments:
        """Return what ``read_segments`` of a derived class returned as ``segments.make_segments`` does."""
        return make_segments(segments, self.num_classes, self.class_names or ())

    def make_facts(self, name: str) -> None:
        """Make also ``is_thing`` what the task expects: a list of bool, one for each class."""
        super().make_facts(name)
        if not self.num_classes:
            require_classes(self, name)
        given = getattr(self, "is_thing", None)
        array = as_array(given)
        if array is None or array.shape != (self.num_classes,) or not np.isin(array, (0, 1)).all():
            raise UserError(
                f"{name}: is_thing is {show_value(given)}; expected true or false for each of the {self.num_classes} "
                "classes: whether it has instances"
            )
        self._set("is_thing", given, [bool(flag) for flag in array], name)


def summarize_segments(dataset: PanopticDataset, split: str) -> list[str]:
    """Count segments, as many images as time allows, in the same order in every run; warn about what is unusual.

    Raises:
        UserError: a map has an unknown number; the message names the file.
    """
    if not dataset.labeled:
        return []
    rows = count_maps(_count, dataset, len(dataset), f"segments of {split}")
    if not rows:
        return []
    numbers, sums = (np.stack(part).sum(axis=0) for part in zip(*rows))
    crowds, empty, void, pixels, repeated, wrong = sums.tolist()
    names, is_thing = list(map(str, dataset.class_names or range(dataset.num_classes))), np.array(dataset.is_thing)
    images = f"{len(rows):,} of {len(dataset):,}" if len(rows) < len(dataset) else f"all {len(rows):,}"
    things, stuff = int(numbers[is_thing].sum()), int(numbers[~is_thing].sum())
    lines = [
        f"segments of {split}, in {images} images: {things:,} of {int(is_thing.sum())} classes of things, {stuff:,} of "
        f"{int((~is_thing).sum())} of stuff, {count(crowds, 'crowd')}; {100 * void / max(pixels, 1):.3g} % of all "
        "pixels are void"
    ]
    absent = [names[label] for label in np.flatnonzero(numbers == 0).tolist()]
    if absent:
        lines.append(
            f"warning: {len(absent)} of {len(names)} classes do not occur in them: {shorten(', '.join(absent))}"
        )
    if empty:
        lines.append(f"warning: {count(empty, 'segment')} of {split} without a pixel: not learned")
    if repeated:
        lines.append(f"warning: {count(repeated, 'image')} of {split} with several segments of one class of stuff")
    if wrong:
        lines.append(f"warning: {split}: {describe_wrong_areas(wrong)}")
    return lines


def count_wrong_areas(segments: Segments) -> int:
    """Count segments whose area in their file is not their number of pixels."""
    counted = np.bincount(segments.places[segments.places >= 0], minlength=len(segments.areas))
    return int(((segments.areas != counted) & (counted > 0)).sum())


def describe_wrong_areas(number: int) -> str:
    """Say that segments have another area in their file than pixels."""
    return f"{count(number, 'segment')} with an area in the file that is not the number of pixels: the pixels count"


def _count(dataset: PanopticDataset, index: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Count the segments of each class without crowds, and what is unusual.

    The second array has crowds, empty ones, void pixels, pixels, whether stuff is repeated, and wrong areas. None if
    the map cannot be read, which is reported later.
    """
    try:
        segments = dataset.read_segments(index)
    except UnreadableImage:
        return None
    numbers = np.bincount(segments.labels[~segments.is_crowd], minlength=dataset.num_classes)
    is_repeated = bool((numbers[~np.array(dataset.is_thing)] > 1).any())
    void, present = int((segments.places < 0).sum()), np.unique(segments.places[segments.places >= 0])
    crowds, empty = int(segments.is_crowd.sum()), len(segments.labels) - len(present)
    wrong = count_wrong_areas(segments)
    return numbers, np.array([crowds, empty, void, segments.places.size, is_repeated, wrong])


class PanopticShapes(DrawnImages, PanopticDataset):
    """Drawn images: each shape is a thing, and the background is stuff, the last class."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.class_names = [*self.categories, "background"]
        self.num_classes = len(self.class_names)
        self.is_thing = [True] * len(self.categories) + [False]

    def read(self, index: int) -> tuple[Image.Image, Segments]:
        """Draw image ``index`` and its segments."""
        image = self.draw(index)
        return Image.fromarray(render_image(image)), self._list_segments(image)

    def read_segments(self, index: int) -> Segments:
        """Draw the segments of image ``index``."""
        return self._list_segments(self.draw(index))

    def _list_segments(self, image: SyntheticImage) -> Segments:
        numbers = np.full((image.height, image.width), len(image.masks) + 1, np.int64)
        for number, mask in enumerate(image.masks, start=1):
            numbers[mask] = number
        ids = range(1, len(image.masks) + 2)
        return number_segments(numbers, ids, [*image.labels, len(self.categories)], [False] * len(ids))
