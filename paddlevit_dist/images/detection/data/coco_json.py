"""What a file of annotations in COCO's format holds, as the index of a dataset has it."""

from __future__ import annotations

import os
from array import array
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Set

import numpy as np
from tqdm import tqdm

from ..coco_files import CocoReader, Element
from .annotation_index import OBJECT, PICTURE, About, Source
from .indexed_pictures import fill_in

_TICK_BYTES = 1 << 22
_SLACK = 0.01  # of shares: rounding


def read_coco(file: str, folder: str, turned: Optional[bool], inside: Optional[Sequence[str]] = None) -> Source:
    """The pictures, objects and categories of a file.

    Args:
        folder: of the pictures.
        turned: boxes were drawn on the pictures as their EXIF orientation turns them; None: if the file does not say
            how large any picture is. Pictures whose size is missing are measured accordingly.
        inside: folders of which one has to hold each picture; None: they may be anywhere.
    Raises:
        UserError: it cannot be read, or is not as COCO describes it; the message names the file and the entry.
    """
    reader = _Reader(file, folder, inside)
    size = os.path.getsize(file) if os.path.isfile(file) else 0
    label = f"reading {Path(file).name}"
    with tqdm(total=size, desc=label, unit="B", unit_scale=True, delay=1.0, disable=None, leave=False) as bar:
        reader.read(lambda element: bar.update(element.end - bar.n) if element.end - bar.n > _TICK_BYTES else None)
    return reader.source(turned)


class _Reader(CocoReader):
    """Gathers rows of the index."""

    def __init__(self, file: str, folder: str, inside: Optional[Sequence[str]]) -> None:
        super().__init__(file)
        self.folder, self.inside = folder, inside
        self.paths: List[bytes] = []
        self.starts, self.bytes = array("q"), array("q")  # of each object's text in the file, if it has a mask

    def picture(self, element: Element) -> None:
        entry = element.value
        name = file_name(entry)
        try:
            path = os.fsencode(name or "")
        except UnicodeEncodeError:
            path = b""
        if not path:
            raise self.error(element, "file_name", "expected the name of a file")
        if self.inside is not None and (os.path.isabs(path) or b".." in path):
            place = os.path.normpath(os.path.join(self.folder, name or ""))
            if not any(place.startswith(os.path.join(folder, "")) for folder in self.inside):
                expected = f"expected a picture below {self.inside[0]}; DATA.PICTURES_ANYWHERE true allows others"
                raise self.error(element, "file_name", expected)
        if "file_name" not in entry:
            self.note("picture", "without file_name: the end of coco_url is taken", self.image_ids[-1])
        elif "\\" in entry["file_name"]:
            self.note("picture", "whose file_name has backslashes: taken for slashes", self.image_ids[-1])
        self.paths.append(path)

    def object(self, element: Element) -> None:
        has_mask = bool(element.value.get("segmentation"))
        self.starts.append(element.start if has_mask else 0)
        self.bytes.append(element.end - element.start if has_mask else 0)

    def source(self, turned: Optional[bool]) -> Source:
        """All that was read, in the form of the index."""
        self._note_files()
        pictures, sizes = np.zeros(len(self.image_ids), PICTURE), np.array(self.sizes).reshape(-1, 2)
        is_turned, unknown, told = fill_in(
            sizes, lambda row: os.path.join(self.folder, os.fsdecode(self.paths[row])), turned
        )
        pictures["id"], pictures["height"], pictures["width"] = self.image_ids, sizes[:, 0], sizes[:, 1]
        self.note_all("picture", f"without height or width: both were measured{told}", pictures["id"][unknown])
        objects = np.zeros(len(self.numbers), OBJECT)
        objects["box"], objects["area"] = np.array(self.boxes).reshape(-1, 4), self.areas
        objects["area"] = np.where(np.isnan(objects["area"]), objects["box"][:, 2:].prod(axis=1), objects["area"])
        objects["id"], objects["label"], objects["is_crowd"] = self.numbers, self.labels, self.crowds
        objects["bytes"], objects["start"] = self.bytes, self.starts
        objects, owners = objects[self.kept], np.array(self.owners)[self.kept]
        self._note_odd_boxes(objects, pictures[owners])
        has_masks = bool((objects["bytes"] > 0).any())
        if has_masks:
            self.note_all("object", "without a mask: the box is taken", objects["id"][objects["bytes"] == 0])
        names, numbers = list(self.categories.values()), list(map(int, self.categories))
        about = About(names, numbers, has_masks, self.has_annotations, self.notices(), is_turned)
        return Source(about, self.paths, pictures, owners, objects)

    def _note_files(self) -> None:
        seen: Set[bytes] = set()
        again = [own for path, own in zip(self.paths, self.image_ids) if path in seen or seen.add(path)]  # type: ignore[func-returns-value]
        self.note_all("picture", "whose file another one has too", again)

    def _note_odd_boxes(self, objects: np.ndarray, pictures: np.ndarray) -> None:
        box = objects["box"]
        right, bottom = box[:, 0] + box[:, 2], box[:, 1] + box[:, 3]
        is_box = (box[:, 2] > 0) & (box[:, 3] > 0)
        outside = (right <= 0) | (bottom <= 0) | (box[:, 0] >= pictures["width"]) | (box[:, 1] >= pictures["height"])
        beyond = (
            (box[:, 0] < -1) | (box[:, 1] < -1) | (right > pictures["width"] + 1) | (bottom > pictures["height"] + 1)
        )
        self._note_other_boxes(objects[is_box], pictures[is_box], bool((beyond & is_box).any()))
        self.note_all("object", "with a box outside the picture: not learnt", objects["id"][is_box & outside])
        self.note_all(
            "object",
            "with a box that reaches beyond the picture by more than a pixel: cut off for training",
            objects["id"][is_box & beyond & ~outside],
        )

    def _note_other_boxes(self, objects: np.ndarray, pictures: np.ndarray, is_beyond: bool) -> None:
        """Boxes that all look as other programs write them."""
        if not len(objects):
            return
        first, second = objects["box"][:, :2], objects["box"][:, 2:]
        sides = np.stack([pictures["width"], pictures["height"]], axis=1)
        if (first + second).max() <= 1.0 + _SLACK and sides.min() > 2:
            text = "with a box inside the first pixel, as all have: COCO's are in pixels, not shares of the picture"
            self.note_all("object", text, objects["id"])
        elif is_beyond and (second > first).all() and (second <= sides + 1).all():
            text = "with a box that would fit as x0, y0, x1, y1, as all would: COCO's are x, y, width, height"
            self.note_all("object", text, objects["id"])


def file_name(entry: Dict[str, Any]) -> Optional[str]:
    """The file of a picture, relative to the folder of pictures: as the entry has it, with slashes; or the folder and
    file at the end of LVIS's ``coco_url``. None: it has neither."""
    name = entry.get("file_name")
    if name is None and isinstance(entry.get("coco_url"), str):
        name = "/".join(entry["coco_url"].split("/")[-2:])
    if not isinstance(name, str) or not name or "\0" in name:
        return None
    return name.replace("\\", "/")
