"""Datasets of picture files whose annotations are in an index, COCO's, Pascal VOC's and YOLO's; and how large their
pictures are, from the beginnings of the files."""

import contextlib
import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from PIL import Image

from ....runtime.errors import UserError
from ...data.formats import names_in, readable_suffixes, suffix_of
from ...data.inspection import in_threads
from ...data.reading import Reading, UnreadablePicture, decode_image, open_image, orientation, read_file
from .annotation_index import AnnotationIndex
from .detection_dataset import Annotations, DetectionDataset, told
from .transforms import Size


class WrongSize(UnreadablePicture):
    """A picture of another size than its annotations say."""

    def __init__(self, path: str, reason: str) -> None:
        UserError.__init__(self, f"{path} {reason}")
        self.path, self.reason = path, reason

    def __reduce__(self) -> Any:
        return WrongSize, (self.path, self.reason)


class IndexedPictures(DetectionDataset):
    """Pictures in a folder, and their annotations in an index.

    Args:
        root: folder that the index's paths begin in.
        index: of the annotations.
        source: the file or folder that says what is in the pictures, for messages.
        turned: boxes are of the pictures as their EXIF orientation turns them.
    """

    def __init__(self, root: str, index: AnnotationIndex, source: str, turned: bool = False) -> None:
        self.root, self.source = root, source
        self.reading = Reading(turned)
        self._index = index
        self.notices = list(index.about.notices)
        self.class_names, self.category_ids = list(index.about.class_names), tuple(index.about.category_ids)
        self.num_classes, self.has_masks = len(self.class_names), index.about.has_masks
        self.labelled = index.about.labelled

    def __getstate__(self) -> Any:
        return {**self.__dict__, "notices": ()}

    def __len__(self) -> int:
        return len(self._index)

    @property
    def image_ids(self) -> np.ndarray:
        return np.asarray(self._index.pictures["id"][:-1], dtype=np.int64)

    def image_id(self, index: int) -> int:
        return int(self._index.pictures["id"][index])

    @property
    def sizes(self) -> np.ndarray:
        pictures = self._index.pictures[:-1]
        return np.stack([pictures["height"], pictures["width"]], axis=1).astype(np.int64)

    def size(self, index: int) -> Size:
        picture = self._index.pictures[index]
        return int(picture["height"]), int(picture["width"])

    def annotations(self, index: int) -> Annotations:
        rows = self._index.objects_of(index)
        return Annotations(
            boxes=np.array(rows["box"], dtype=np.float64),
            labels=rows["label"].astype(np.int64),
            areas=np.array(rows["area"], dtype=np.float64),
            is_crowd=rows["is_crowd"].astype(bool),
            ids=np.array(rows["id"], dtype=np.int64),
            masks=self.masks(index) if self.has_masks else None,
        )

    def masks(self, index: int) -> list[Any]:
        """The masks of picture ``index``, where the dataset has them."""
        raise NotImplementedError

    def read(self, index: int) -> tuple[Image.Image, Annotations]:  # type: ignore[override]
        path = self.describe(index)
        picture = decode_image(read_file(path), path, self.image_mode, self.reading)
        self.require_size(index, (picture.size[1], picture.size[0]))
        return picture, self.annotations(index)

    def describe(self, index: int) -> str:
        """The file of picture ``index``."""
        return os.path.join(self.root, self._index.paths.path(index))

    def listed(self) -> dict[str, Iterable[Any]]:
        columns = [self._index.objects[field] for field in ("box", "label", "is_crowd")]
        boxes = map(np.ascontiguousarray, [*columns, self._index.pictures["first"]])
        return {"names": self._index.paths.buffers(), "sizes": [self.sizes], "boxes": boxes}

    def missing(self) -> Sequence[int]:
        names_of = functools.cache(_names_in)
        places = (os.path.split(self.describe(index)) for index in range(len(self)))
        return [index for index, (folder, name) in enumerate(places) if name not in names_of(folder)]

    def learnable(self) -> np.ndarray:
        objects, first = self._index.objects, self._index.pictures["first"]
        is_learnable = (objects["is_crowd"] == 0) & (objects["box"][:, 2] > 0) & (objects["box"][:, 3] > 0)
        before = np.concatenate([[0], np.cumsum(is_learnable)])
        return before[first[1:]] > before[first[:-1]]

    def summary(self, chosen: np.ndarray | None = None) -> str:
        boxes = np.diff(self._index.pictures["first"])
        is_chosen = np.ones(len(self), bool) if chosen is None else np.isin(np.arange(len(self)), chosen)
        labels, is_crowd = (self._index.objects[name][np.repeat(is_chosen, boxes)] for name in ("label", "is_crowd"))
        return told(self.class_names, boxes[is_chosen], labels, is_crowd)

    def require_size(self, index: int, size: Size) -> None:
        height, width = self.size(index)
        if size == (height, width):
            return
        turned = size == (width, height)
        remedy = (
            "the picture was turned after it was annotated, or before: try DATA.EXIF_ROTATE "
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


def fill_in(sizes: np.ndarray, file: Callable[[int], str], configured: bool | None) -> tuple[bool, np.ndarray, str]:
    """Measure the pictures of which nobody has said how large they are.

    Args:
        sizes: int64 (pictures, 2), height and width; what is not positive is filled in.
        file: of each picture.
        configured: DATA.EXIF_ROTATE.
    Returns:
        Whether boxes are taken to be drawn on pictures as their EXIF orientation turns them: they are where no size is
        said, for nobody wrote down those of the stored pictures; where some are said, these decide for all. Which
        pictures were measured. What to tell of that.
    """
    unknown = np.flatnonzero((sizes <= 0).any(axis=1))
    if configured is not None or len(unknown) == len(sizes):
        is_turned, told = configured is not False, ""
    else:
        is_turned = False
        told = " as stored, like those whose size is said (DATA.EXIF_ROTATE true: as EXIF turns them)"
    sizes[unknown] = measure([file(row) for row in unknown.tolist()], is_turned)
    return is_turned, unknown, told


def measure(files: Sequence[str], turned: bool) -> np.ndarray:
    """int64 (files, 2): height and width of each; 0 where it cannot be read, which is told when it is opened.

    Args:
        turned: as its EXIF orientation says; else as it is stored.
    """

    reading = Reading(turned, max_pixels=2**31)

    def size(files: list[str], index: int) -> Size:
        try:
            with open_image(read_file(files[index]), files[index], reading) as image:
                width, height = image.size
                lies = turned and orientation(image) in (5, 6, 7, 8)
        except UnreadablePicture:
            return 0, 0
        return (width, height) if lies else (height, width)

    sizes = in_threads(size, list(files), range(len(files)), "measuring", len(files), np.inf)
    return np.array(list(sizes), np.int64).reshape(-1, 2)


def pictures_in(folder: str) -> dict[str, str]:
    """The pictures directly in a folder, in the order of their names: name without suffix -> name.

    Raises:
        UserError: it cannot be listed, or two pictures differ in their suffix only.
    """
    found: dict[str, str] = {}
    for name in picture_names(folder):
        stem = os.path.splitext(name)[0]
        if stem in found:
            raise UserError(
                f"{folder} has {found[stem]} and {name}: one file of annotations would be for both; rename one"
            )
        found[stem] = name
    return found


def picture_names(folder: str) -> list[str]:
    """The sorted names of the pictures directly in a folder.

    Raises:
        UserError: it cannot be listed.
    """
    suffixes = readable_suffixes()
    return [name for name in names_in(folder) if suffix_of(os.fsencode(name)) in suffixes]


@contextlib.contextmanager
def readable(file: str) -> Iterator[None]:
    """What says that a file cannot be read, in words for users.

    Raises:
        UserError: in place of what says that ``file`` cannot be read, or holds something else.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{file} cannot be read: {reason}") from error


def stamp(kind: str, files: Iterable[str]) -> bytes:
    """SHA-256 of the names, sizes and times of change of files, which may be missing."""
    key = hashlib.sha256(kind.encode())
    for file in files:
        try:
            status = os.stat(file)
            line = f"{file}\0{status.st_size}\0{status.st_mtime_ns}\n"
        except OSError:
            line = f"{file}\0missing\n"
        key.update(line.encode("utf-8", "surrogateescape"))
    return key.digest()
