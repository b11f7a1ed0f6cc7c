"""Outlines of classes as Labelme and YOLO's labels have them, and label maps drawn from them.

Pixels inside an outline are those that COCO's tools give it (see ``run_lengths``). Later shapes are drawn over earlier
ones: in the order of the file for Labelme, and the smaller over the larger for YOLO.
"""

import base64
import math
import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
import numpy as np
from PIL import Image
from tqdm import tqdm

from ...runtime.compiled import compiled
from ...runtime.errors import UserError
from ...runtime.text_files import read_bytes
from ..run_lengths import parse_segmentation
from .annotated_files import images_in, readable
from .class_lists import FILES
from .formats import SPLIT_WORDS
from .label_pixels import read_label_pixels
from .map_layouts import LABELME_JSON, YOLO_TEXT
from .yolo_files import find_label_file, list_images, parse_names, read_description

_LARGEST_JSON = 1 << 28
_LARGEST_LABELS = 1 << 24
_MOST_CORNERS = 1 << 16  # of a circle
_NOT_AREAS = ("line", "linestrip", "point", "points")


class ObjectOutline(NamedTuple):
    """The pixels of one object: inside of outlines, or of a mask.

    Attributes:
        name: of its class, or its number.
        corners: float64 (n, 2), x and y in pixels; of a mask its upper left corner.
        mask: bool (height, width); None: ``corners`` are an outline.
    """

    name: str
    corners: np.ndarray
    mask: np.ndarray | None = None


class ImageOutlines(NamedTuple):
    """A file's words on one image: its shapes in the order in which they are drawn, and its height and width, if
    the file says them."""

    shapes: list[ObjectOutline]
    size: tuple[int, int] | None


class _LabelmeShape(msgspec.Struct):
    label: str
    points: list[tuple[float, float]]
    shape_type: str | None = None
    mask: str | None = None


class LabelmeFile(msgspec.Struct, rename="camel"):
    """The part of a file of Labelme's that is read."""

    shapes: list[_LabelmeShape]
    image_path: str | None = None
    image_height: int | None = None
    image_width: int | None = None


def read_drawing(kind: str, file: str, size: tuple[int, int]) -> ImageOutlines:
    """The shapes of one image.

    Args:
        kind: LABELME_JSON or YOLO_TEXT.
        size: height and width of the image, of which YOLO's numbers are shares.
    Raises:
        UserError: the file cannot be read, or a shape is none.
    """
    with readable(file):
        if kind == LABELME_JSON:
            return _of_labelme(read_labelme(file), file)
        content = read_bytes(file, _LARGEST_LABELS) if os.path.exists(file) else b""  # without objects there is none
        return ImageOutlines(_of_yolo(content, *size), None)


def draw(drawing: ImageOutlines, size: tuple[int, int], labels: Mapping[str, int], unlabeled: int) -> np.ndarray:
    """The label map of an image, uint8 (height, width).

    Args:
        labels: of the names of shapes.
        unlabeled: label of the pixels outside of all shapes.
    Raises:
        ValueError: a shape is of another class, or has no pixels for certain; continues "... ".
    """
    height, width = size
    columns = np.full(width * height, unlabeled, np.uint8)  # (width, height), one behind the other
    drawn = columns.reshape(width, height).T
    for number, (name, corners, mask) in enumerate(drawing.shapes):
        if name not in labels:
            x, y = corners[0].tolist() if len(corners) else (0, 0)
            raise ValueError(f"shape {number} is of class '{name}', which is not known, at row {y:g}, column {x:g}")
        if mask is not None:
            left, top = np.rint(corners[0]).astype(int).tolist()
            part = drawn[max(top, 0) : max(top + mask.shape[0], 0), max(left, 0) : max(left + mask.shape[1], 0)]
            part[mask[max(-top, 0) :, max(-left, 0) :][: part.shape[0], : part.shape[1]]] = labels[name]
            continue
        try:
            runs = parse_segmentation([corners.ravel().tolist()], height, width)
        except ValueError as error:
            raise ValueError(f"shape {number} of class '{name}' {error}") from None
        _fill(columns, runs.starts, runs.ends, labels[name])
    return np.array(Image.fromarray(columns.reshape(width, height)).transpose(Image.Transpose.TRANSPOSE))


@compiled(needs_numba=False)
def _fill(values, starts, ends, value):
    for run in range(len(starts)):
        for place in range(starts[run], ends[run]):
            values[place] = value


def read_labelme(file: str) -> LabelmeFile:
    """A file of Labelme's.

    Raises:
        ValueError: it is none.
    """
    try:
        return msgspec.json.decode(read_bytes(file, _LARGEST_JSON), type=LabelmeFile)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"it is not as Labelme writes it: {error}") from None


def _of_labelme(content: LabelmeFile, file: str) -> ImageOutlines:
    shapes = []
    for shape in content.shapes:
        kind, corners = shape.shape_type or "polygon", np.array(shape.points, np.float64).reshape(-1, 2)
        mask = None
        if kind in _NOT_AREAS:
            continue
        if kind in ("rectangle", "circle") and (len(corners) < 2 or (kind == "circle" and len(corners) > 2)):
            raise ValueError(f"a {kind} of class '{shape.label}' has {len(corners)} corners; expected 2")
        if kind == "rectangle" and len(corners) == 2:  # others write all four
            (x0, y0), (x1, y1) = corners.tolist()
            corners = np.array([(x0, y0), (x1, y0), (x1, y1), (x0, y1)])
        elif kind == "circle":
            corners = _circle(corners[0], math.dist(*corners.tolist()))
        elif kind == "mask" and shape.mask:
            mask = read_label_pixels(base64.b64decode(shape.mask), file).values > 0
        shapes.append(ObjectOutline(shape.label, corners, mask))
    has_size = content.image_height and content.image_width
    return ImageOutlines(shapes, (content.image_height or 0, content.image_width or 0) if has_size else None)


def _circle(middle: np.ndarray, radius: float) -> np.ndarray:
    turns = np.linspace(0, 2 * np.pi, max(16, math.ceil(min(2 * np.pi * radius, _MOST_CORNERS))), endpoint=False)
    return middle + radius * np.stack([np.cos(turns), np.sin(turns)], axis=1)


def _of_yolo(content: bytes, height: int, width: int) -> list[ObjectOutline]:
    shapes = []
    for number, line in enumerate(content.splitlines(), 1):
        words = line.split()
        if len(words) == 5:
            raise ValueError(f"line {number} is a box, not an outline: boxes say no pixel's class")
        if words and (len(words) < 7 or len(words) % 2 == 0):
            raise ValueError(f"line {number} has {len(words)} numbers; expected class x1 y1 x2 y2 x3 y3 ...")
        if words:
            corners = np.array(words[1:], np.float64).reshape(-1, 2)
            if not float(words[0]).is_integer():
                raise ValueError(f"line {number} does not begin with the number of a class")
            if not (np.abs(corners) < 2).all():
                raise ValueError(f"line {number}: expected shares of the image from 0 to 1, not pixels")
            shapes.append(ObjectOutline(str(int(float(words[0]))), corners * (width, height)))
    return sorted(shapes, key=lambda shape: -_area(shape.corners))


def _area(corners: np.ndarray) -> float:
    """Twice the area inside an outline."""
    x, y = corners.T
    return abs(float(x[:-1] @ y[1:] - x[1:] @ y[:-1] + x[-1] * y[0] - x[0] * y[-1]))


class OutlineList(NamedTuple):
    """A list of the outlines of a split.

    Attributes:
        images: their files.
        files: that have the outlines of each.
            names: of the classes; None: only the outlines themselves say them.
        spelled: what the files call these.
    """

    images: list[str]
    files: list[str]
    names: list[str] | None
    spelled: list[str]


def list_outlines(kind: str, root: str, split: str) -> OutlineList:
    """The images of a split in a folder, and where their outlines are.

    Args:
        kind: LABELME_JSON or YOLO_TEXT.
    Raises:
        UserError: there are none, or a file cannot be read, or an image is missing.
    """
    if kind == YOLO_TEXT:
        described = read_description(root)
        names = described.names if described else parse_names(root)
        images = list_images(root, split, described)
        return OutlineList(images, list(map(find_label_file, images)), list(names.values()), list(map(str, names)))
    listed = _list_labelme(root, split)
    if not listed.images:
        helps = "; DATA.VAL_FRACTION divides the training set" if split == "val" else ""
        raise UserError(f"{root} has no {split} images with outlines{helps}")
    return listed


def _list_labelme(root: str, split: str) -> OutlineList:
    files = [file for file, of in labelme_files(root).items() if of == split]
    there: dict[str, dict[str, str]] = {}
    return OutlineList([_find_image(file, root, there) for file in files], files, None, [])


def labelme_files(root: str) -> dict[str, str]:
    """The files of Labelme's in a folder and below it, each with its split: that which folders are called after, else
    "train"."""
    found = {}
    for place, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        words = os.path.relpath(place, root).lower().split(os.sep)
        of = next((one for one, known in SPLIT_WORDS.items() if set(known) & set(words)), "train")
        for name in sorted(names):
            if name.lower().endswith(".json") and not name.startswith(".") and name not in FILES:
                found[os.path.join(place, name)] = of
    return found


def labelme_names(files: Iterable[str]) -> list[str]:
    """The classes of all shapes with pixels in files of Labelme's, sorted.

    Raises:
        UserError: one cannot be read.
    """
    names: set[str] = set()
    for file in tqdm(files, desc="reading classes", unit="file", delay=1.0, disable=None, leave=False):
        with readable(file):
            names.update(shape.label for shape in read_labelme(file).shapes if shape.shape_type not in _NOT_AREAS)
    return sorted(names - {"__ignore__"})


def _find_image(file: str, root: str, there: dict[str, dict[str, str]]) -> str:
    """The image of a file of Labelme's: beside it, or in a folder of images, under the same name; else where the
    file says, within ``root``. ``there`` are the images of folders that were looked into, by their names without
    suffix."""
    folder, stem = os.path.dirname(file), os.path.splitext(os.path.basename(file))[0]
    for place in (folder, *(os.path.join(os.path.dirname(folder), name) for name in ("images", "imgs", "JPEGImages"))):
        if place not in there:
            there[place] = images_in(place) if os.path.isdir(place) else {}
        if stem in there[place]:
            return os.path.join(place, there[place][stem])
    with readable(file):
        said = (read_labelme(file).image_path or "").replace("\\", "/")
    path = os.path.normpath(os.path.join(folder, said))
    if said and path.startswith(root + os.sep) and os.path.isfile(path):
        return path
    raise UserError(f"{file}: its image {said or stem} is not there; put it beside the file, under the same name")
