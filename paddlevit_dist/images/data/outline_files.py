"""Outlines of Labelme and YOLO labels, and label maps drawn from them, with the pixels that COCO's tools give them.

Later shapes are drawn over earlier ones: in the order of the file for Labelme, and the smaller over the larger for
YOLO.
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

from ...core.runtime.compiled import compiled
from ...core.runtime.errors import UserError
from ...core.runtime.files import readable
from ...core.runtime.spelling import compose, find_spelling
from ...core.runtime.text_files import read_bytes, to_utf8
from ..run_lengths import MaskRuns, parse_segmentation
from .annotated_files import map_images_by_stem
from .class_lists import FILES
from .formats import split_in_name
from .label_pixels import read_label_pixels
from .map_layouts import LABELME_JSON, YOLO_TEXT
from .yolo_files import find_label_file, list_images, parse_names, read_description

_LARGEST_JSON = 1 << 28
_LARGEST_LABELS = 1 << 24
_MOST_CORNERS = 1 << 16  # of a circle
_NOT_AREAS = ("line", "linestrip", "point", "points")


class ObjectOutline(NamedTuple):
    """The pixels of one object of a class: inside an outline, or a mask.

    ``corners`` are float64 (n, 2), x and y in pixels, of a ``mask``, bool (height, width), the upper left one.
    """

    name: str
    corners: np.ndarray
    mask: np.ndarray | None = None


class ImageOutlines(NamedTuple):
    """The shapes of one image in drawing order, and its height and width if the file has them."""

    shapes: list[ObjectOutline]
    size: tuple[int, int] | None


class _LabelmeShape(msgspec.Struct):
    label: str
    points: list[tuple[float, float]]
    shape_type: str | None = None
    mask: str | None = None


class LabelmeFile(msgspec.Struct, rename="camel"):
    """The fields of a Labelme file that are read."""

    shapes: list[_LabelmeShape]
    image_path: str | None = None
    image_height: int | None = None
    image_width: int | None = None


def read_drawing(kind: str, file: str, size: tuple[int, int]) -> ImageOutlines:
    """Read the shapes of one image from a label file, LABELME_JSON or YOLO_TEXT.

    ``size`` is height and width of the image, which scale YOLO's numbers. A ``UserError`` says that the file cannot be
    read, or that a shape is not valid.
    """
    with readable(file):
        if kind == LABELME_JSON:
            return _parse_labelme(read_labelme(file), file)
        content = to_utf8(read_bytes(file, _LARGEST_LABELS)) if os.path.exists(file) else b""  # no file: no objects
        return ImageOutlines(_parse_yolo(content, *size), None)


def draw(drawing: ImageOutlines, size: tuple[int, int], labels: Mapping[str, int], unlabeled: int) -> np.ndarray:
    """Draw the label map of an image of height and width ``size``, uint8 (height, width).

    ``unlabeled`` is the label outside all shapes. A ``ValueError``, whose text continues "... ", says that a shape's
    class is not in ``labels``, or that its polygon is not valid.
    """
    height, width = size
    columns = np.full(width * height, unlabeled, np.uint8)  # (width, height), one after the other
    label_map = columns.reshape(width, height).T
    for number, (name, corners, mask) in enumerate(drawing.shapes):
        if name not in labels:
            x, y = corners[0].tolist() if len(corners) else (0, 0)
            raise ValueError(f"shape {number} is of class '{name}', which is unknown, at row {y:g}, column {x:g}")
        if mask is not None:
            left, top = np.rint(corners[0]).astype(int).tolist()
            part = label_map[max(top, 0) : max(top + mask.shape[0], 0), max(left, 0) : max(left + mask.shape[1], 0)]
            part[mask[max(-top, 0) :, max(-left, 0) :][: part.shape[0], : part.shape[1]]] = labels[name]
            continue
        try:
            runs = parse_segmentation([corners.ravel().tolist()], height, width)
        except ValueError as error:
            raise ValueError(f"shape {number} of class '{name}' {error}") from None
        _fill(columns, runs.starts, runs.ends, labels[name])
    return _turn(columns, size)


def draw_runs(parts: Iterable[tuple[MaskRuns, int]], size: tuple[int, int], unlabeled: int) -> np.ndarray:
    """Draw the label map, uint8 (height, width), of masks with their labels, later ones over earlier ones."""
    columns = np.full(size[0] * size[1], unlabeled, np.uint8)
    for runs, label in parts:
        _fill(columns, runs.starts, runs.ends, label)
    return _turn(columns, size)


def _turn(columns: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return the label map (height, width) of labels column by column."""
    return np.array(Image.fromarray(columns.reshape(size[::-1])).transpose(Image.Transpose.TRANSPOSE))


@compiled(needs_numba=False)
def _fill(values, starts, ends, value):
    for run in range(len(starts)):
        for place in range(starts[run], ends[run]):
            values[place] = value


def read_labelme(file: str) -> LabelmeFile:
    """Read a Labelme file; a ``ValueError`` if it is not valid."""
    try:
        return msgspec.json.decode(to_utf8(read_bytes(file, _LARGEST_JSON)), type=LabelmeFile)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"it is not in Labelme's format: {error}") from None


def _parse_labelme(content: LabelmeFile, file: str) -> ImageOutlines:
    shapes = []
    for shape in content.shapes:
        kind, corners = shape.shape_type or "polygon", np.array(shape.points, np.float64).reshape(-1, 2)
        mask = None
        if kind in _NOT_AREAS or (kind == "polygon" and not len(corners)):
            continue
        if kind in ("rectangle", "circle") and (len(corners) < 2 or (kind == "circle" and len(corners) > 2)):
            raise ValueError(f"a {kind} of class '{shape.label}' has {len(corners)} corners; expected 2")
        if kind == "rectangle" and len(corners) == 2:  # other programs write all four
            (x0, y0), (x1, y1) = corners.tolist()
            corners = np.array([(x0, y0), (x1, y0), (x1, y1), (x0, y1)])
        elif kind == "circle":
            corners = _circle(corners[0], math.dist(*corners.tolist()))
        elif kind == "mask" and shape.mask:
            mask = read_label_pixels(base64.b64decode(shape.mask), file).values > 0
        shapes.append(ObjectOutline(compose(shape.label), corners, mask))
    height, width = content.image_height, content.image_width
    return ImageOutlines(shapes, (height, width) if height and width else None)


def _circle(middle: np.ndarray, radius: float) -> np.ndarray:
    turns = np.linspace(0, 2 * np.pi, max(16, math.ceil(min(2 * np.pi * radius, _MOST_CORNERS))), endpoint=False)
    return middle + radius * np.stack([np.cos(turns), np.sin(turns)], axis=1)


def _parse_yolo(content: bytes, height: int, width: int) -> list[ObjectOutline]:
    shapes = []
    for number, line in enumerate(content.splitlines(), 1):
        words = line.split()
        if len(words) == 1:  # an outline without points
            continue
        if len(words) == 5:
            raise ValueError(f"line {number} is a box, not an outline: boxes define no pixel's class")
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
    """Compute twice the area inside an outline."""
    x, y = corners.T
    return abs(float(x[:-1] @ y[1:] - x[1:] @ y[:-1] + x[-1] * y[0] - x[0] * y[-1]))


class OutlineList(NamedTuple):
    """The images of a split with the outline file of each.

    ``names`` are of the classes, None if only the outlines contain them; ``spelled`` are the classes in the files'
    spelling.
    """

    images: list[str]
    files: list[str]
    names: list[str] | None
    spelled: list[str]


def list_outlines(kind: str, root: str, split: str) -> OutlineList:
    """List the images of a split in a folder with their outline files, LABELME_JSON or YOLO_TEXT.

    ``root`` may also be the file that describes YOLO data.

    A ``UserError`` says that there are none, a file cannot be read, or an image is missing.
    """
    if kind == YOLO_TEXT:
        description = read_description(root)
        if description is not None and description.keypoint_values:
            raise UserError(f"{description.file}: labels with keypoints (kpt_shape) are boxes, not outlines")
        names = description.names if description else parse_names(root)
        images = list_images(root if os.path.isdir(root) else os.path.dirname(root), split, description)
        return OutlineList(images, list(map(find_label_file, images)), list(names.values()), list(map(str, names)))
    files = [file for file, file_split in find_labelme_files(root).items() if file_split == split]
    if not files:
        remedy = "; set DATA.VAL_FRACTION to split the training set" if split == "val" else ""
        raise UserError(f"{root} has no {split} images with outlines{remedy}")
    images_of_folder: dict[str, dict[str, str]] = {}
    return OutlineList([_find_image(file, root, images_of_folder) for file in files], files, None, [])


def find_labelme_files(root: str) -> dict[str, str]:
    """List the Labelme files in a folder and its subfolders, each with the split in its path, else "train"."""
    split_of_file = {}
    for place, folders, names in os.walk(root):
        folders[:] = sorted(folder_name for folder_name in folders if not folder_name.startswith("."))
        splits = map(split_in_name, os.path.relpath(place, root).split(os.sep))
        split = next(filter(None, splits), "train")
        for name in sorted(names):
            if name.lower().endswith(".json") and not name.startswith(".") and name not in FILES:
                split_of_file[os.path.join(place, name)] = split
    return split_of_file


def read_labelme_names(files: Iterable[str]) -> list[str]:
    """Return the classes of all areas in Labelme files, sorted; a ``UserError`` if a file cannot be read."""
    names: set[str] = set()
    for file in tqdm(files, desc="reading classes", unit="file", delay=1.0, disable=None, leave=False):
        with readable(file):
            names.update(
                compose(shape.label) for shape in read_labelme(file).shapes if shape.shape_type not in _NOT_AREAS
            )
    return sorted(names - {"__ignore__"})


def _find_image(file: str, root: str, images_of_folder: dict[str, dict[str, str]]) -> str:
    """Find the image of a Labelme file: next to it or in a folder of images, under its name, else at the path in it.

    ``images_of_folder`` caches the images of folders by their names without suffix.
    """
    folder, stem = os.path.dirname(file), compose(os.path.splitext(os.path.basename(file))[0])
    for place in (folder, *(os.path.join(os.path.dirname(folder), name) for name in ("images", "imgs", "JPEGImages"))):
        if place not in images_of_folder:
            images_of_folder[place] = map_images_by_stem(place) if os.path.isdir(place) else {}
        if stem in images_of_folder[place]:
            return os.path.join(place, images_of_folder[place][stem])
    with readable(file):
        path_in_file = (read_labelme(file).image_path or "").replace("\\", "/")
    path = find_spelling(os.path.normpath(os.path.join(folder, path_in_file)))
    if path.startswith(root + os.sep) and os.path.isfile(path):
        return path
    raise UserError(f"{file}: its image {path_in_file or stem} is missing; put it next to the file, with the same name")
