"""What COCO's panoptic JSON says of its label maps: the category of each segment, whose number is a pixel's colour."""

import os
from collections.abc import Sequence

import msgspec
import numpy as np

from ...runtime.errors import UserError
from ...runtime.files import read_regular
from .annotated_files import readable


class _Category(msgspec.Struct):
    id: int
    name: str
    color: tuple[int, int, int] | None = None


class _Segment(msgspec.Struct):
    id: int
    category_id: int


class _Segments(msgspec.Struct):
    file_name: str
    segments_info: list[_Segment]


class _Panoptic(msgspec.Struct):
    annotations: list[_Segments]
    categories: list[_Category]


def read_panoptic(label_maps: Sequence[str]) -> tuple[list[str], np.ndarray | None, list[bytes]]:
    """Classes and segments of the label maps of a split, from the JSON file that has the name of their folder.

    Returns:
        The categories' names; their colours, uint8 (categories, 3), None where the file has none; and for each label
        map the number and the category's position of each segment, int32 (segments, 2), as bytes.
    Raises:
        UserError: there is no such file, or it does not belong to the label maps.
    """
    folder, name = os.path.split(os.path.dirname(label_maps[0]))
    places = [os.path.join(folder, f"{name}.json"), os.path.join(folder, "annotations", f"{name}.json")]
    file = next(filter(os.path.isfile, places), places[0])
    with readable(file):
        try:
            content = msgspec.json.decode(read_regular(file), type=_Panoptic)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(f"it is not a panoptic file of COCO's: {error}") from None
    colours = [category.color for category in content.categories]
    if any(not 0 <= level <= 255 for colour in colours for level in colour or ()):
        raise UserError(f"{file} has a category with a colour outside of 0 to 255")
    label_of = {category.id: label for label, category in enumerate(content.categories)}
    segments_of = {one.file_name: one.segments_info for one in content.annotations}
    notes = []
    for path in label_maps:
        segments = segments_of.get(os.path.basename(path))
        if segments is None or any(one.category_id not in label_of or not 0 <= one.id < 1 << 24 for one in segments):
            raise UserError(f"{file} does not say the category of each segment of {path}: which file belongs to it?")
        notes.append(np.array([(one.id, label_of[one.category_id]) for one in segments], "<i4").tobytes())
    palette = np.array(colours, np.uint8) if colours and all(colours) else None
    return [category.name for category in content.categories], palette, notes
