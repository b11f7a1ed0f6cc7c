"""Datasets of image files whose annotations are in an index, COCO's, Pascal VOC's and YOLO's; and how large their
images are, from the beginnings of the files.

The index is memory-mapped files of the cache folder, so that a process receives a file's name and not a million boxes:
paths (``data.path_index``), one row for each image, one row for each object, ordered by image, and the
categories with what was found while reading. Their names carry the key of their source.
"""

import functools
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ....data.checked_files import DamagedCacheError, checked_file, map_verified, read_checked, write_array
from ....data.path_index import PathIndex, ensure_path_index, make_batch
from ....runtime.errors import UserError
from ....runtime.files import map_array
from ...data.data_warnings import DataWarnings
from ...data.inspection import run_in_threads
from ...data.reading import ReadConfig, UnreadableImage, WrongSize, decode_image, open_image, orientation, read_file
from .detection_dataset import DetectionDataset, ImageAnnotations, format_counts
from .transforms import Size

VERSION = 5
IMAGE = np.dtype([("id", "<i8"), ("height", "<i4"), ("width", "<i4"), ("first", "<i8")])
OBJECT = np.dtype(
    [
        ("box", "<f8", (4,)),  # x, y, width, height
        ("area", "<f8"),
        ("id", "<i8"),
        ("label", "<i4"),
        ("is_crowd", "u1"),
        ("bytes", "<i4"),  # of its text in the source, and where that begins; 0: it has no mask
        ("start", "<i8"),
    ]
)


class SourceFacts(NamedTuple):
    """Facts about a source as a whole.

    Attributes:
        class_names, category_ids: of the categories, by ascending number.
        has_masks: whether any object has a mask.
        labeled: whether the source says what is in the images at all.
        notices: what was odd, one line each.
        is_turned: boxes are taken to be drawn on the images as their EXIF orientation turns them.
    """

    class_names: Sequence[str]
    category_ids: Sequence[int]
    has_masks: bool
    labeled: bool
    notices: Sequence[str]
    is_turned: bool = False


class AnnotationSource(NamedTuple):
    """Contents of a source, ready to be written.

    Attributes:
        paths: of P images, as the file system spells them, relative to their folder.
        images: P rows of IMAGE, ``first`` not yet set.
        owners: int64 (objects,), the position of each object's image.
        objects: rows of OBJECT, in the source's order.
    """

    about: SourceFacts
    paths: list[bytes]
    images: np.ndarray
    owners: np.ndarray
    objects: np.ndarray

    @classmethod
    def of(
        cls,
        about: SourceFacts,
        root: str,
        files: Sequence[str],
        stems: Sequence[str],
        sizes: np.ndarray,
        found: Sequence[np.ndarray],
    ) -> "AnnotationSource":
        """The source of images that come with a file of annotations each.

        Args:
            files: of the P images, in the folder ``root`` or below it.
            stems: what the images are called, which their numbers follow from.
            sizes: int64 (P, 2), height and width.
            found: rows of OBJECT of each image, whose ids are counted here, from 1.
        """
        paths = [os.fsencode(os.path.relpath(file, root)) for file in files]
        images, objects = np.zeros(len(paths), IMAGE), np.concatenate([np.zeros(0, OBJECT), *found])
        images["id"], images["height"], images["width"] = number_images(stems), sizes[:, 0], sizes[:, 1]
        objects["id"] = np.arange(1, len(objects) + 1)
        return cls(about, paths, images, np.repeat(np.arange(len(found)), [len(rows) for rows in found]), objects)


class AnnotationIndex:
    """An index that ``ensure_annotation_index`` has opened. Its pickle is the beginning of the files' names.

    Attributes:
        paths: the file of each image.
        images: a row of IMAGE for each, and one more whose ``first`` is the number of objects.
        objects: rows of OBJECT, those of an image in the source's order.
        about: categories and notices.
    """

    def __init__(self, stem: str) -> None:
        self._stem = stem
        self.paths = PathIndex(f"{stem}.index")
        self.images, self.objects = (map_array(f"{stem}-{part}.npy") for part in ("images", "objects"))
        self.about = SourceFacts(**json.loads(read_checked(f"{stem}-about.json")))

    def __reduce__(self) -> Any:
        return AnnotationIndex, (self._stem,)

    def __len__(self) -> int:
        return len(self.images) - 1

    def get_objects(self, index: int) -> np.ndarray:
        """The rows of image ``index``."""
        if not 0 <= index < len(self):
            raise IndexError(f"image {index} is outside 0..{len(self) - 1}")
        first, end = self.images["first"][index : index + 2].tolist()
        return self.objects[first:end]


def ensure_annotation_index(
    folder: Path, name: str, key: bytes, read_source: Callable[[], AnnotationSource]
) -> AnnotationIndex:
    """Open the index of a source, and build it first if ``folder`` has none or a damaged one.

    Args:
        name: beginning of the files' names.
        key: SHA-256 of all that decides the content.
        read_source: reads the source; called only to build.
    Raises:
        UserError: of ``read_source``; or the folder cannot be written.
    """
    stem = str(Path(folder, f"{name}-{key.hex()[:16]}"))
    try:
        return _open(stem, key)
    except (DamagedCacheError, UserError, OSError):  # absent, of another version, or damaged
        _build(stem, Path(folder), name, key, read_source())
        return _open(stem, key)


def _open(stem: str, key: bytes) -> AnnotationIndex:
    for part in ("images", "objects"):
        map_verified(f"{stem}-{part}.npy")
    PathIndex(f"{stem}.index", key)
    return AnnotationIndex(stem)


def _build(stem: str, folder: Path, name: str, key: bytes, source: AnnotationSource) -> None:
    order = np.argsort(source.owners, kind="stable")
    numbers = np.bincount(source.owners, minlength=len(source.images))
    images = np.zeros(len(source.images) + 1, IMAGE)
    images[:-1] = source.images
    images["first"][1:] = np.cumsum(numbers)
    write_array(Path(f"{stem}-images.npy"), images)
    write_array(Path(f"{stem}-objects.npy"), source.objects[order])
    with checked_file(Path(f"{stem}-about.json")) as out:
        out.write(json.dumps(source.about._asdict()).encode("ascii"))
    ensure_path_index(folder, name, key, lambda: [make_batch(source.paths, 0)])


def number_images(stems: Sequence[str]) -> np.ndarray:
    """A number for each image, int64, all different: that which its name without suffix is, where all are numbers
    (000005, or 2008_000008); otherwise its position, from 1."""
    digits = [stem.replace("_", "") for stem in stems]
    if all(text.isascii() and text.isdigit() and len(text) < 16 for text in digits):
        numbers = np.array(list(map(int, digits)), dtype=np.int64)
        if len(np.unique(numbers)) == len(numbers):
            return numbers
    return np.arange(1, len(stems) + 1)


class IndexedDetectionImages(DetectionDataset):
    """Images in a folder, and their annotations in an index.

    Args:
        root: folder that the index's paths begin in.
        index: of the annotations.
        source: the file or folder that says what is in the images, for messages.
        turned: boxes are of the images as their EXIF orientation turns them.
    """

    def __init__(self, root: str, index: AnnotationIndex, source: str, turned: bool = False) -> None:
        self.root, self.source = root, source
        self.reading = ReadConfig(turned)
        self._index = index
        self.notices = list(index.about.notices)
        self.class_names, self.category_ids = list(index.about.class_names), tuple(index.about.category_ids)
        self.num_classes, self.has_masks = len(self.class_names), index.about.has_masks
        self.labeled = index.about.labeled

    def __getstate__(self) -> Any:
        return {**self.__dict__, "notices": ()}

    def __len__(self) -> int:
        return len(self._index)

    @property
    def image_ids(self) -> np.ndarray:
        return np.asarray(self._index.images["id"][:-1], dtype=np.int64)

    def image_id(self, index: int) -> int:
        return int(self._index.images["id"][index])

    @property
    def sizes(self) -> np.ndarray:
        images = self._index.images[:-1]
        return np.stack([images["height"], images["width"]], axis=1).astype(np.int64)

    def size(self, index: int) -> Size:
        image = self._index.images[index]
        return int(image["height"]), int(image["width"])

    def annotations(self, index: int) -> ImageAnnotations:
        rows = self._index.get_objects(index)
        return ImageAnnotations(
            boxes=np.array(rows["box"], dtype=np.float64),
            labels=rows["label"].astype(np.int64),
            areas=np.array(rows["area"], dtype=np.float64),
            is_crowd=rows["is_crowd"].astype(bool),
            ids=np.array(rows["id"], dtype=np.int64),
            masks=self.masks(index) if self.has_masks else None,
        )

    def masks(self, index: int) -> list[Any]:
        """The masks of image ``index``, where the dataset has them."""
        raise NotImplementedError

    def read(self, index: int) -> tuple[Image.Image, ImageAnnotations]:  # type: ignore[override]
        path = self.describe(index)
        image = decode_image(read_file(path), path, self.image_mode, self.reading)
        self.require_size(index, (image.size[1], image.size[0]))
        return image, self.annotations(index)

    def describe(self, index: int) -> str:
        """The file of image ``index``."""
        return os.path.join(self.root, self._index.paths.path(index))

    def listed(self) -> dict[str, Iterable[Any]]:
        columns = [self._index.objects[field] for field in ("box", "label", "is_crowd")]
        boxes = map(np.ascontiguousarray, [*columns, self._index.images["first"]])
        return {"names": self._index.paths.buffers(), "sizes": [self.sizes], "boxes": boxes}

    def missing(self) -> Sequence[int]:
        names_of = functools.cache(_names_in)
        places = (os.path.split(self.describe(index)) for index in range(len(self)))
        return [index for index, (folder, name) in enumerate(places) if name not in names_of(folder)]

    def object_counts(self) -> np.ndarray:
        objects, images = self._index.objects, self._images_of_objects()
        is_learnable = (objects["is_crowd"] == 0) & (objects["box"][:, 2] > 0) & (objects["box"][:, 3] > 0)
        pairs = images[is_learnable] * self.num_classes + objects["label"][is_learnable]
        pairs, numbers = np.unique(pairs, return_counts=True)
        counts = np.zeros((len(self), 2), np.int64)
        np.add.at(counts[:, 0], pairs // self.num_classes, numbers)
        np.maximum.at(counts[:, 1], pairs // self.num_classes, numbers)
        return counts

    def class_counts(self, chosen: np.ndarray | None = None) -> np.ndarray:
        images, labels = self._images_of_objects(), self._index.objects["label"].astype(np.int64)
        if chosen is not None:
            is_chosen = np.isin(images, chosen)
            images, labels = images[is_chosen], labels[is_chosen]
        with_one = np.unique(images * self.num_classes + labels) % self.num_classes
        return np.stack([np.bincount(found, minlength=self.num_classes) for found in (labels, with_one)], axis=1)

    def _images_of_objects(self) -> np.ndarray:
        return np.repeat(np.arange(len(self)), np.diff(self._index.images["first"]))

    def summary(self, chosen: np.ndarray | None = None) -> str:
        boxes = np.diff(self._index.images["first"])
        is_chosen = np.ones(len(self), bool) if chosen is None else np.isin(np.arange(len(self)), chosen)
        labels, is_crowd = (self._index.objects[name][np.repeat(is_chosen, boxes)] for name in ("label", "is_crowd"))
        return format_counts(self.class_names, boxes[is_chosen], labels, is_crowd)

    def require_size(self, index: int, size: Size) -> None:
        height, width = self.size(index)
        if size == (height, width):
            return
        turned = size == (width, height)
        remedy = (
            "the image was turned after it was annotated, or before: try DATA.EXIF_ROTATE "
            f"{'false' if self.reading.exif_rotate else 'true'}, or save it again as it was"
            if turned
            else "boxes would be in wrong places: put the annotated file there, or correct the annotations"
        )
        raise WrongSize(
            self.describe(index),
            f"has {size[1]} x {size[0]} pixels (width x height), but {self.source} says {width} x {height}; {remedy}",
        )


def _names_in(folder: str) -> set[str]:
    try:
        return set(os.listdir(folder))
    except OSError:
        return set()


_PROVING = 300  # images whose sizes are compared with their files, in equal steps


def fill_in(
    sizes: np.ndarray, file: Callable[[int], str], configured: bool | None, source: str, odd: DataWarnings
) -> tuple[bool, np.ndarray, str]:
    """Decide whether boxes are on images as their EXIF orientation turns them, and measure the images of which nobody
    has said how large they are.

    Args:
        sizes: int64 (images, 2), height and width; what is not positive is filled in.
        file: of each image.
        configured: DATA.EXIF_ROTATE; None: boxes are on the images that have the sizes which are said. Where no size
            is said, nobody wrote down those of the stored images, and boxes are on turned ones.
        source: says the sizes, for messages.
        odd: is told of sizes that are those of turned images.
    Returns:
        Whether boxes are taken to be drawn on images as their EXIF orientation turns them. Which images were measured.
        What to tell of that.
    Raises:
        UserError: images and their sizes prove another view than ``configured``, or both views.
    """
    unknown = np.flatnonzero((sizes <= 0).any(axis=1))
    is_turned, told = configured is not False, ""
    if len(unknown) < len(sizes):
        proofs = _proofs(sizes, file)
        is_turned = _decide_view(proofs, configured, source)
        like = f", like those whose size is said (DATA.EXIF_ROTATE {str(not is_turned).lower()} decides otherwise)"
        told = f" as {'EXIF turns them' if is_turned else 'stored'}{like}" if configured is None else ""
        if configured is None:
            odd.note_all("image", "whose size is said as EXIF turns it: all are turned", proofs[1])
    sizes[unknown] = measure([file(row) for row in unknown.tolist()], is_turned)
    return is_turned, unknown, told


def _decide_view(proofs: tuple[list[str], list[str]], configured: bool | None, source: str) -> bool:
    """Whether boxes are on turned images.

    Args:
        proofs: images whose size is said as they are stored, and as they are turned.
    Raises:
        UserError: see ``fill_in``.
    """
    stored, turned = proofs
    if configured is None and stored and turned:
        raise UserError(
            f"{source} says the sizes of some images as they are stored, as of {stored[0]}, and of some as EXIF turns "
            f"them, as of {turned[0]}: correct the sizes, or DATA.EXIF_ROTATE says which are right"
        )
    is_turned = bool(turned) if configured is None else configured
    if (stored or turned) and not (turned if is_turned else stored):
        said = f"as EXIF turns them, as of {turned[0]}" if turned else f"as they are stored, as of {stored[0]}"
        raise UserError(
            f"DATA.EXIF_ROTATE {str(is_turned).lower()}: {source} says the sizes of images {said}: leave it out"
        )
    return is_turned


def _proofs(sizes: np.ndarray, file: Callable[[int], str]) -> tuple[list[str], list[str]]:
    """Compare sizes that are said with images that EXIF turns by a quarter: which images have the said size as they
    are stored, and which as they are turned."""
    said = np.flatnonzero((sizes > 0).all(axis=1) & (sizes[:, 0] != sizes[:, 1]))
    rows = said[:: max(1, -(-len(said) // _PROVING))]
    files = [file(row) for row in rows.tolist()]
    stored, turned = measure_both(files)
    lies = (stored != turned).any(axis=1)
    fits = (np.flatnonzero(lies & (sizes[rows] == measured).all(axis=1)) for measured in (stored, turned))
    as_stored, as_turned = ([files[row] for row in found.tolist()] for found in fits)
    return as_stored, as_turned


def measure(files: Sequence[str], turned: bool) -> np.ndarray:
    """int64 (files, 2): height and width of each; 0 where it cannot be read, which is told when it is opened.

    Args:
        turned: as its EXIF orientation says; else as it is stored.
    """
    return measure_both(files)[int(turned)]


def measure_both(files: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The same of images as they are stored, and as their EXIF orientation turns them."""

    reading = ReadConfig(True, max_pixels=2**31)

    def size(files: list[str], index: int) -> tuple[int, int, int, int]:
        try:
            with open_image(read_file(files[index]), files[index], reading) as image:
                width, height = image.size
                lies = orientation(image) in (5, 6, 7, 8)
        except UnreadableImage:
            return 0, 0, 0, 0
        return (height, width, width, height) if lies else (height, width, height, width)

    sizes = run_in_threads(size, list(files), range(len(files)), "measuring", len(files), np.inf)
    both = np.array(list(sizes), np.int64).reshape(-1, 4)
    return both[:, :2], both[:, 2:]
