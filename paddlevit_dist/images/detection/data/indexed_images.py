"""Base class of datasets of image files with indexed annotations (COCO's, Pascal VOC's, YOLO's).

The index consists of memory-mapped files in the cache folder, so that a process receives a file name instead of a
million boxes: paths (``data.path_index``), one row for each image, one row for each object, ordered by image, and the
categories with the notices of reading. File names contain the key of their source.
"""

import functools
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ....core.data.checked_files import DamagedCacheError, checked_file, map_verified, read_checked, write_array
from ....core.data.path_index import PathIndex, ensure_path_index, make_batch
from ....core.registry.required_methods import is_builtin
from ....core.runtime.errors import UserError
from ....core.runtime.files import map_array
from ....core.runtime.json_format import format_json
from ....core.runtime.outages import read_through_outages
from ....core.runtime.spelling import compose, find_spelling
from ....core.tasks.class_names import make_unique
from ...data.reading import ReadConfig, WrongSize, decode_image, read_file
from .detection_dataset import DetectionDataset, format_counts
from .image_annotations import ImageAnnotations
from .transforms import Size

VERSION = 8
IMAGE = np.dtype([("id", "<i8"), ("height", "<i4"), ("width", "<i4"), ("first", "<i8")])
OBJECT = np.dtype(
    [
        ("box", "<f8", (4,)),  # x, y, width, height; an index has sides of at least 0
        ("area", "<f8"),
        ("id", "<i8"),
        ("label", "<i4"),
        ("is_crowd", "u1"),
        ("bytes", "<i4"),  # length of its text in the source, and where it starts; 0: no mask
        ("start", "<i8"),
    ]
)


class SourceFacts(NamedTuple):
    """Facts about a source as a whole."""

    class_names: Sequence[str]  # names of the categories, by ascending id
    category_ids: Sequence[int]  # ascending ids of the categories
    has_masks: bool  # whether any object has a mask
    labeled: bool  # whether the source contains annotations
    notices: Sequence[str]  # irregularities, one line each
    is_turned: bool = False  # whether boxes refer to the images after their EXIF rotation
    has_points: bool = False  # whether objects have keypoints
    broken_images: Sequence[int] = ()  # ascending positions of the images with a mask that cannot be used
    more: Mapping[str, Any] = MappingProxyType({})  # what a subclass of ``IndexedDetectionImages`` keeps, as JSON


class AnnotationSource(NamedTuple):
    """Contents of a source, ready to be written."""

    about: SourceFacts  # facts about the source
    paths: list[bytes]  # P paths of images, in the file system's encoding, relative to their folder
    images: np.ndarray  # P rows of IMAGE, without ``first``
    owners: np.ndarray  # int64 (objects,), position of each object's image
    objects: np.ndarray  # rows of OBJECT, in the source's order
    points: np.ndarray | None = None  # float64 (objects, K, 3), see ``ImageAnnotations``; None: without keypoints

    @classmethod
    def from_files(
        cls,
        about: SourceFacts,
        root: str,
        files: Sequence[str],
        stems: Sequence[str],
        sizes: np.ndarray,
        object_rows: Sequence[np.ndarray],
    ) -> "AnnotationSource":
        """Build the source of images that have an annotation file each.

        Args:
            files: P image files, in ``root`` or below it.
            stems: name of each image, which its id is derived from.
            sizes: int64 (P, 2), height and width.
            object_rows: rows of OBJECT of each image; this function sets their ids, from 1.
        """
        paths = [os.fsencode(os.path.relpath(file, root)) for file in files]
        images, objects = np.zeros(len(paths), IMAGE), np.concatenate([np.zeros(0, OBJECT), *object_rows])
        images["id"], images["height"], images["width"] = number_images(stems), sizes[:, 0], sizes[:, 1]
        objects["id"] = np.arange(1, len(objects) + 1)
        return cls(
            about, paths, images, np.repeat(np.arange(len(object_rows)), [len(rows) for rows in object_rows]), objects
        )


class AnnotationIndex:
    """An index opened by ``ensure_annotation_index``; it is pickled as the common prefix of its files.

    Its ``images`` have a row of IMAGE for each image, and one more whose ``first`` is the number of objects. Its
    ``objects`` are rows of OBJECT; the objects of an image are in the source's order. ``points`` are their keypoints,
    float64 (objects, K, 3); None if the source has none.
    """

    def __init__(self, stem: str) -> None:
        self._stem = stem
        self.paths = PathIndex(f"{stem}.index")
        self.images, self.objects = (map_array(f"{stem}-{part}.npy") for part in ("images", "objects"))
        self.about = _read_facts(stem)
        self.points = map_array(f"{stem}-points.npy") if self.about.has_points else None

    def __reduce__(self) -> Any:
        return AnnotationIndex, (self._stem,)

    def __len__(self) -> int:
        return len(self.images) - 1

    def get_objects(self, index: int) -> np.ndarray:
        """Return the rows of the objects in image ``index``."""
        return self.objects[self.rows(index)]

    def rows(self, index: int) -> slice:
        """Return the positions of the objects in image ``index``."""
        if not 0 <= index < len(self):
            raise IndexError(f"image {index} is outside 0..{len(self) - 1}")
        return slice(*self.images["first"][index : index + 2].tolist())


def ensure_annotation_index(
    folder: Path, name: str, key: bytes, read_source: Callable[[], AnnotationSource]
) -> AnnotationIndex:
    """Open the index of a source; build it if ``folder`` has none or a damaged one.

    Args:
        name: start of the names of its files.
        key: SHA-256 of everything that determines the content.
        read_source: reads the source; called only to build.

    Raises:
        UserError: ``read_source`` fails, or the folder is not writable.
    """
    stem = str(Path(folder, f"{name}-{key.hex()[:16]}"))
    try:
        return _open(stem, key)
    except (DamagedCacheError, UserError, OSError):  # absent, of another version, or damaged
        _build(stem, Path(folder), name, key, read_source())
        return _open(stem, key)


def _open(stem: str, key: bytes) -> AnnotationIndex:
    for part in ("images", "objects", *(["points"] if _read_facts(stem).has_points else [])):
        map_verified(f"{stem}-{part}.npy")
    PathIndex(f"{stem}.index", key)
    return AnnotationIndex(stem)


def _read_facts(stem: str) -> SourceFacts:
    return SourceFacts(**json.loads(read_checked(f"{stem}.about")))


def _build(stem: str, folder: Path, name: str, key: bytes, source: AnnotationSource) -> None:
    order = np.argsort(source.owners, kind="stable")
    numbers = np.bincount(source.owners, minlength=len(source.images))
    images = np.zeros(len(source.images) + 1, IMAGE)
    images[:-1] = source.images
    images["first"][1:] = np.cumsum(numbers)
    write_array(Path(f"{stem}-images.npy"), images)
    objects = source.objects[order]
    np.maximum(objects["box"][:, 2:], 0.0, out=objects["box"][:, 2:])  # boxes without an area, which readers report
    write_array(Path(f"{stem}-objects.npy"), objects)
    if source.points is not None:
        write_array(Path(f"{stem}-points.npy"), source.points[order])
    facts = {**source.about._asdict(), "has_points": source.points is not None, "more": dict(source.about.more)}
    with checked_file(Path(f"{stem}.about")) as out:
        out.write(format_json(facts).encode("ascii"))
    ensure_path_index(folder, name, key, lambda: [make_batch(source.paths, 0)])


def number_images(stems: Sequence[str]) -> np.ndarray:
    """Return a unique id for each image, int64: the number in its name, as in 2008_000008, or else its position.

    If a name is not a number, positions from 1 are used for all.
    """
    digits = [stem.replace("_", "") for stem in stems]
    if all(text.isascii() and text.isdigit() and len(text) < 16 for text in digits):
        numbers = np.array(list(map(int, digits)), dtype=np.int64)
        if len(np.unique(numbers)) == len(numbers):
            return numbers
    return np.arange(1, len(stems) + 1)


class IndexedDetectionImages(DetectionDataset):
    """Images in a folder, with their annotations in an index.

    Args:
        root: folder that the index's paths are relative to.
        source: file or folder of the annotations, for messages.
        turned: whether boxes refer to the images after their EXIF rotation.
    """

    root: str
    class_names: list[str]
    num_classes: int
    reading: ReadConfig
    reports_odd_objects = True

    def __init__(self, root: str, index: AnnotationIndex, source: str, turned: bool = False) -> None:
        self.root, self.source = root, source
        self.reading = ReadConfig(turned)
        self._index = index
        self.notices = list(index.about.notices)
        self.category_ids = tuple(index.about.category_ids)
        self.class_names = make_unique(index.about.class_names, [f"id {number}" for number in self.category_ids])
        self.num_classes, self.has_masks = len(self.class_names), index.about.has_masks
        self.labeled = index.about.labeled

    def __getstate__(self) -> Any:
        return {**self.__dict__, "notices": (), "_rules": None}

    def __len__(self) -> int:
        return len(self._index)

    @property
    def image_ids(self) -> np.ndarray:
        """Unique ids of the images in the annotation file, int64 (samples,)."""
        return np.asarray(self._index.images["id"][:-1], dtype=np.int64)

    def image_id(self, index: int) -> int:
        """Return the id of image ``index``."""
        return int(self._index.images["id"][index])

    @property
    def sizes(self) -> np.ndarray:
        """Height and width of every image, int64 (samples, 2)."""
        images = self._index.images[:-1]
        return np.stack([images["height"], images["width"]], axis=1).astype(np.int64)

    def size(self, index: int) -> Size:
        """Return the height and width of image ``index`` as annotated."""
        image = self._index.images[index]
        return int(image["height"]), int(image["width"])

    def annotations(self, index: int) -> ImageAnnotations:
        """Return the annotations of image ``index``."""
        rows = self._index.get_objects(index)
        return ImageAnnotations(
            boxes=np.array(rows["box"], dtype=np.float64),
            labels=rows["label"].astype(np.int64),
            areas=np.array(rows["area"], dtype=np.float64),
            is_crowd=rows["is_crowd"].astype(bool),
            ids=np.array(rows["id"], dtype=np.int64),
            masks=self.masks(index) if self.has_masks else None,
            points=None if self._index.points is None else np.array(self._index.points[self._index.rows(index)]),
        )

    def masks(self, index: int) -> list[Any]:
        """Return the masks of image ``index``; called only if the dataset has masks."""
        raise NotImplementedError

    def read(self, index: int) -> tuple[Image.Image, ImageAnnotations]:
        """Return image ``index`` and its annotations."""
        path = self.describe(index)
        image = decode_image(read_file(path), path, self.image_mode, self.reading)
        self.require_size(index, (image.size[1], image.size[0]))
        return image, self.annotations(index)

    def make_truth(self, truth: Any, image: Image.Image) -> ImageAnnotations:
        """Return annotations, which ``annotations`` has made unless a user's class reads the image."""
        return truth if is_builtin(type(self).read) else super().make_truth(truth, image)

    def make_annotations(self, annotations: Any) -> ImageAnnotations:
        """Return annotations, which were checked when they were indexed unless a user's class makes them."""
        return annotations if is_builtin(type(self).annotations) else super().make_annotations(annotations)

    def describe(self, index: int) -> str:
        """Return the file of image ``index``."""
        return os.path.join(self.root, self._index.paths.path(index))

    def listed(self) -> dict[str, Iterable[Any]]:
        """Return the paths, sizes and boxes, which identify the dataset's content."""
        columns = [self._index.objects[field] for field in ("box", "label", "is_crowd")]
        boxes = map(np.ascontiguousarray, [*columns, self._index.images["first"]])
        return {"names": self._index.paths.buffers(), "sizes": [self.sizes], "boxes": boxes}

    def missing(self) -> Sequence[int]:
        """Return the positions of images whose file does not exist."""
        list_names = functools.cache(_list_names)
        paths = (os.path.split(self.describe(index)) for index in range(len(self)))
        return [index for index, (folder, name) in enumerate(paths) if compose(name) not in list_names(folder)]

    def find_broken_masks(self) -> Sequence[int]:
        """Return the positions of images with a mask that cannot be used, found when the index was built."""
        return self._index.about.broken_images

    def count_crowds(self, chosen: np.ndarray | None = None) -> int:
        """Count the crowds in the images ``chosen`` (None: all)."""
        return int(self._index.objects["is_crowd"][self._find_boxes(chosen)].sum())

    def object_counts(self) -> np.ndarray:
        """Count the learnable objects of each image, all and of its most frequent category."""
        objects, images = self._index.objects, self._object_images()
        is_learnable = (objects["is_crowd"] == 0) & self._find_boxes(None)
        pairs = images[is_learnable] * self.num_classes + objects["label"][is_learnable]
        pairs, numbers = np.unique(pairs, return_counts=True)
        counts = np.zeros((len(self), 2), np.int64)
        np.add.at(counts[:, 0], pairs // self.num_classes, numbers)
        np.maximum.at(counts[:, 1], pairs // self.num_classes, numbers)
        return counts

    def class_counts(self, chosen: np.ndarray | None = None) -> np.ndarray:
        """Count objects, and images with one, of each class."""
        is_counted = self._find_boxes(chosen)
        images, labels = self._object_images()[is_counted], self._index.objects["label"][is_counted].astype(np.int64)
        image_labels = np.unique(images * self.num_classes + labels) % self.num_classes
        return np.stack(
            [np.bincount(classes, minlength=self.num_classes) for classes in (labels, image_labels)], axis=1
        )

    def count_categories(self) -> dict[str, int]:
        """Count the objects of each category by name."""
        return dict(zip(self.class_names, self.class_counts()[:, 0].tolist()))

    def _object_images(self) -> np.ndarray:
        """Return the position of each object's image."""
        return np.repeat(np.arange(len(self)), np.diff(self._index.images["first"]))

    def _find_boxes(self, chosen: np.ndarray | None) -> np.ndarray:
        """Return which objects are boxes with an area in the images ``chosen`` (None: all), bool (objects,)."""
        has_area = (self._index.objects["box"][:, 2:] > 0).all(axis=1)
        return has_area if chosen is None else has_area & np.isin(self._object_images(), chosen)

    def summary(self, chosen: np.ndarray | None = None) -> str:
        """Describe images, boxes and categories."""
        is_counted = self._find_boxes(chosen)
        boxes = np.bincount(self._object_images()[is_counted], minlength=len(self))
        labels, is_crowd = (self._index.objects[name][is_counted] for name in ("label", "is_crowd"))
        return format_counts(self.class_names, boxes if chosen is None else boxes[np.unique(chosen)], labels, is_crowd)

    def require_size(self, index: int, size: Size) -> None:
        """Raise ``WrongSize`` if an image's size differs from its annotations."""
        height, width = self.size(index)
        if size == (height, width):
            return
        is_rotated = size == (width, height)
        remedy = (
            "the image was rotated before or after annotation: try DATA.EXIF_ROTATE "
            f"{'false' if self.reading.exif_rotate else 'true'}, or restore the annotated file"
            if is_rotated
            else "boxes would be in wrong places: restore the annotated file, or correct the annotations"
        )
        raise WrongSize(
            self.describe(index),
            f"has {size[1]} x {size[0]} pixels (width x height), but {self.source} says {width} x {height}; {remedy}",
        )


def _list_names(folder: str) -> set[str]:
    """Return the composed names in a folder; empty if it cannot be listed."""
    try:
        return set(map(compose, read_through_outages(lambda: os.listdir(find_spelling(folder)))))
    except OSError:
        return set()
