"""COCO's panoptic JSON: categories, and the segments of each image, whose numbers are the pixels of a PNG file."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.files import read_regular, readable
from ...core.runtime.printing import shorten
from ...core.runtime.text_files import to_utf8
from ...core.tasks.class_names import make_unique
from .map_pairs import LabelMapPairs

_LARGEST = 1 << 24  # number of a segment that three channels hold, exclusive
_LARGEST_AREA = 1 << 40  # pixels, exclusive
NOTE = np.dtype("<i8")  # of the four columns of a segment's row


_Number = Annotated[int, msgspec.Meta(ge=-(1 << 53), le=1 << 53)]
_Area = Annotated[float, msgspec.Meta(ge=0, le=1 << 53)]


class PanopticCategory(msgspec.Struct):
    """A category; without ``isthing`` it is known only as a class of pixels."""

    id: _Number
    name: str
    color: tuple[int, int, int] | None = None
    isthing: int | bool | None = None


class ListedSegment(msgspec.Struct):
    """A segment of an image."""

    id: _Number
    category_id: _Number
    iscrowd: int | bool | None = 0
    area: _Area | None = None
    score: float | None = None  # of predictions


class ImageSegments(msgspec.Struct):
    """The segments of an image."""

    file_name: str
    segments_info: list[ListedSegment]
    image_id: int | str | None = None


class _ListedImage(msgspec.Struct):
    id: int | str | None = None
    file_name: str = ""


class PanopticFile(msgspec.Struct):
    """The content of a file; predictions may lack categories and images."""

    annotations: list[ImageSegments]
    categories: list[PanopticCategory] = []
    images: list[_ListedImage] = []


class Categories(NamedTuple):
    """Categories in the order of their file, whose positions are the classes."""

    ids: list[int]
    names: list[str]  # unique
    palette: np.ndarray | None  # uint8 (categories, 3); None: the file has no colors
    is_thing: list[bool] | None  # None: the file does not say it of each

    def label_of(self) -> dict[int, int]:
        """Return the class of each category's id."""
        return {number: label for label, number in enumerate(self.ids)}


def find_panoptic_json(folder: str) -> str | None:
    """Return the JSON file of a folder of PNG files, which has its name; None if there is none."""
    above, name = os.path.split(folder)
    places = os.path.join(above, f"{name}.json"), os.path.join(above, "annotations", f"{name}.json")
    return next(filter(os.path.isfile, places), None)


def read_panoptic_json(file: str) -> PanopticFile:
    """Read a file of segments, also with whole numbers such as 7.0; a ``UserError`` if it cannot be read."""
    with readable(file):
        try:
            return msgspec.json.decode(to_utf8(read_regular(file)), type=PanopticFile, strict=False)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(f"it is not a COCO panoptic file: {error}") from None


def read_categories(file: str) -> Categories:
    """Read a list of categories, also one under "categories"; a ``UserError`` if it is another file."""
    with readable(file):
        try:
            content = msgspec.json.decode(to_utf8(read_regular(file)))
            rows = content["categories"] if isinstance(content, dict) else content
            categories = msgspec.convert(rows, list[PanopticCategory], strict=False)
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError, KeyError) as error:
            raise ValueError(
                f'it is not a list of categories such as {{"id": 1, "name": "car", "isthing": 1}}: {error}'
            ) from None
    return list_categories(categories, file)


def list_categories(categories: Sequence[PanopticCategory], file: str) -> Categories:
    """Return the categories of a file; a ``UserError`` if two have one id, or a number is out of range."""
    colors = [category.color for category in categories]
    if any(not 0 <= level <= 255 for color in colors for level in color or ()):
        raise UserError(f"{file} has a category with a color outside of 0 to 255")
    ids = [category.id for category in categories]
    repeated = find_repeated(ids)
    if repeated is not None:
        raise UserError(f"{file} has two categories with the id {repeated}: give each its own")
    kinds = [category.isthing for category in categories]
    wrong = next((kind for kind in kinds if kind not in (None, 0, 1)), None)
    if wrong is not None:
        raise UserError(f"{file} has a category with isthing {wrong}: expected 1, or 0 for stuff")
    palette = np.array(colors, np.uint8) if colors and all(colors) else None
    names = make_unique([category.name for category in categories], [f"id {number}" for number in ids])
    are_known = bool(kinds) and all(kind is not None for kind in kinds)
    return Categories(ids, names, palette, [bool(kind) for kind in kinds] if are_known else None)


def find_repeated(ids: Iterable[int | str]) -> int | str | None:
    """Return the first id that occurs a second time; None if there is none."""
    seen: set[int | str] = set()
    for number in ids:
        if number in seen:
            return number
        seen.add(number)
    return None


def join_listed(file: str, folder: str, name: str, inside: str) -> str:
    """Return the path of what ``file`` lists; a ``UserError`` if it is outside of ``inside``, in words."""
    if os.path.isabs(name) or os.path.normpath(name).split(os.sep)[0] == os.pardir:
        raise UserError(f"{file} names {shorten(name, 80)}, which is outside of the {inside}")
    return os.path.join(folder, name)


def list_segment_rows(
    file: str, label_maps: Sequence[str], label_of: Mapping[int, int], content: PanopticFile
) -> Iterator[np.ndarray]:
    """Yield the segments of each label map: int64 (segments, 4), number, class, crowd (1) and area (-1: unknown).

    Raises UserError: the file does not list the segments of a label map, or lists them twice or with wrong numbers.
    """
    segments_of_file: dict[str, list[ListedSegment]] = {}
    for entry in content.annotations:
        if entry.file_name in segments_of_file:
            raise UserError(f"{file} lists the segments of {shorten(entry.file_name, 80)} twice: remove one of them")
        segments_of_file[entry.file_name] = entry.segments_info
    for path in label_maps:
        segments = segments_of_file.get(os.path.basename(path))
        if segments is None or not _are_known(segments, label_of):
            raise UserError(
                f"{file} has no category for each segment of {path}, or two of one id: does it belong to these label "
                "maps?"
            )
        yield make_segment_rows(file, path, segments, label_of)


def make_segment_rows(
    file: str, path: str, segments: Sequence[ListedSegment], label_of: Mapping[int, int]
) -> np.ndarray:
    """Return the segments of a label map, whose categories are known, as ``list_segment_rows`` does."""
    rows = []
    for each in segments:
        if each.iscrowd not in (None, 0, 1) or not (each.area is None or 0 <= each.area < _LARGEST_AREA):
            raise UserError(
                f"{file}: {shorten(os.path.basename(path), 80)}: segment {each.id} has iscrowd {each.iscrowd} and "
                f"area {each.area}: expected 0 or 1, and pixels"
            )
        area = -1 if each.area is None else int(each.area)
        rows.append((each.id, label_of[each.category_id], bool(each.iscrowd), area))
    return np.array(rows, NOTE).reshape(-1, 4)


def _are_known(segments: Sequence[ListedSegment], label_of: Mapping[int, int]) -> bool:
    """Return whether each segment has its own number that colors can hold, and a known category."""
    ids = {each.id for each in segments if 0 <= each.id < _LARGEST}
    return len(ids) == len(segments) and all(each.category_id in label_of for each in segments)


def select_listed(pairs: LabelMapPairs, content: PanopticFile, file: str) -> LabelMapPairs:
    """Return the images and label maps that a file lists; a ``UserError`` if it lists none of them."""
    listed = {entry.file_name for entry in content.annotations}
    kept = [number for number, path in enumerate(pairs.labels) if os.path.basename(path) in listed]
    if not kept:
        raise UserError(f"{file} lists none of the label maps, such as {pairs.labels[0]}: does it belong to them?")
    images, labels = ([paths[number] for number in kept] for paths in (pairs.images, pairs.labels))
    is_part = len(kept) < len(pairs.labels)
    told = [f"{file} lists {len(kept):,} of {len(pairs.labels):,} label maps; the others are not used"]
    return LabelMapPairs(images, labels, [*pairs.notices, *(told if is_part else [])])


def read_panoptic(pairs: LabelMapPairs) -> tuple[Categories, LabelMapPairs, list[bytes]]:
    """Read classes and segments of a split's label maps from the JSON file with the name of their folder.

    Returns:
        The categories; the images and label maps that the file lists; and of each its rows of ``list_segment_rows``.

    Raises:
        UserError: there is no such file, or it does not belong to the label maps.
    """
    folder = os.path.dirname(pairs.labels[0])
    file = find_panoptic_json(folder) or f"{folder}.json"
    content = read_panoptic_json(file)
    categories = list_categories(content.categories, file)
    pairs = select_listed(pairs, content, file)
    rows = list_segment_rows(file, pairs.labels, categories.label_of(), content)
    return categories, pairs, [each.tobytes() for each in rows]
