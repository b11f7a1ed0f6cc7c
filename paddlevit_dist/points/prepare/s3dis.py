"""S3DIS as it is downloaded (Stanford3dDataset_v1.2_Aligned_Version): ``Area_1/office_3/Annotations/chair_2.txt``, one
file of x, y, z, red, green and blue for each object; its thirteen classes, and its six areas as folds.

Source: I. Armeni et al., "3D Semantic Parsing of Large-Scale Indoor Spaces", CVPR 2016, and its data.
"""

import io
import os
import re

import numpy as np

from ...runtime.errors import UserError
from ...runtime.files import read_regular
from ..data.scene import CENTRED, Scene
from .coordinates import centred
from .listing import RawScene, SceneReader, points_of, split_scenes
from .text_tables import why_no_table

CLASS_NAMES = "ceiling floor wall beam column window door table chair sofa bookcase board clutter".split()
NUM_AREAS = 6
USUAL_VAL_AREA = 5
_AREA = re.compile(r"Area_([1-6])")
_ANNOTATIONS = "Annotations"
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r"))  # stand between two numbers in a line of Area_5/hallway_6
_SPACES = bytes.maketrans(_CONTROL, b" " * len(_CONTROL))


def splits_by_area(found: dict[str, str], val_area: int) -> dict[str, list[str]] | None:
    """Scenes by the folder ``Area_N`` that they are in: those of ``val_area`` for validation, all others for training,
    and each area by itself, as ``area_N``; None if some are in no such folder.

    Raises:
        UserError: all scenes are in one of training and validation.
    """
    areas = {name: _AREA.search(os.path.join(os.path.dirname(path), "")) for name, path in found.items()}
    if not all(areas.values()):
        return None
    numbers = {name: int(area[1]) for name, area in sorted(areas.items()) if area}
    splits = {"train": [name for name in numbers if numbers[name] != val_area]}
    splits["val"] = [name for name in numbers if numbers[name] == val_area]
    there = sorted(set(numbers.values()))
    if not splits["train"] or not splits["val"]:
        raise UserError(
            f"there are scenes of Area_{', Area_'.join(map(str, there))} alone, and --val_area={val_area} is for "
            "validation: choose an area that is there, and have others for training"
        )
    of_each = {f"area_{area}": [name for name in numbers if numbers[name] == area] for area in there}
    return {**splits, **of_each}


class S3disReader(SceneReader):
    """Reads rooms; each file of an object is an instance, of walls and floors too.

    Args:
        val_area: the area that is for validation.
    """

    kind = "s3dis"
    coordinates = CENTRED

    def __init__(self, val_area: int = USUAL_VAL_AREA) -> None:
        super().__init__(list(CLASS_NAMES))
        self.val_area = val_area

    def find(self, root: str) -> dict[str, str]:
        """The folder of annotations of each room, by area and room."""
        found = {}
        for folder, subfolders, _ in os.walk(root, followlinks=True):
            subfolders.sort()
            if _ANNOTATIONS in subfolders:
                area, room = os.path.split(folder)
                found[f"{os.path.basename(area)}_{room}"] = os.path.join(folder, _ANNOTATIONS)
                subfolders.clear()
        if not found:
            raise UserError(f"{root} has no rooms with a folder {_ANNOTATIONS}, such as Area_1/office_1/{_ANNOTATIONS}")
        return found

    def sources(self, root: str, lists: dict[str, str | None]) -> dict[str, list[RawScene]]:
        found = self.find(root)
        splits = split_scenes(root, found, lists, "{}.txt") or splits_by_area(found, self.val_area)
        if splits is None:
            raise UserError(f"{next(iter(found.values()))} is in no folder Area_1 to Area_{NUM_AREAS}; rename its area")
        rooms = {name: RawScene(name, _objects(found[name]), True) for name in found}
        return {split: [rooms[name] for name in names] for split, names in splits.items()}

    def read(self, source: RawScene) -> Scene:
        parts = [self._object(path) for path in source.files]
        table = np.concatenate(parts)  # (points, 6)
        counts = [len(part) for part in parts]
        xyz, rgb = points_of(source.files[0], dict(zip(("x", "y", "z", "red", "green", "blue"), table.T)))
        xyz, offset = centred(source.files[0], xyz)
        classes = [_class_of(path) for path in source.files]
        numbers = np.arange(len(parts), dtype=np.int16)
        labels = np.repeat(np.array(classes, np.int16), counts), np.repeat(numbers, counts)
        return Scene(xyz, rgb, *labels, source.name, offset)

    def _object(self, path: str) -> np.ndarray:
        """The rows of a file, float64 (points, 6)."""
        try:
            content = read_regular(path)
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
        mended = content.translate(_SPACES)
        if mended != content:
            self.remarks.append(f"{path} has control characters, as one line of Area_5/hallway_6 has: taken for spaces")
        try:
            table = np.loadtxt(io.BytesIO(mended), np.float64, ndmin=2)
        except ValueError as error:
            table, reason = np.empty((0, 0)), why_no_table(error)
        else:
            reason = f"{table.shape[1]} numbers in a row"
        if table.shape[1] != 6:
            raise UserError(f"{path}: expected rows of x, y, z, red, green and blue, but {reason}; mend it")
        return table


def _objects(folder: str) -> tuple[str, ...]:
    files = sorted(name for name in os.listdir(folder) if name.endswith(".txt") and not name.startswith("."))
    if not files:
        raise UserError(f"{folder} has no file of an object, such as chair_1.txt; extract the data again")
    return tuple(os.path.join(folder, name) for name in files)


def _class_of(path: str) -> int:
    """The class of an object by its file's name; stairs, and all else that is none of the thirteen, are clutter."""
    name = os.path.basename(path).split("_")[0]
    return CLASS_NAMES.index(name if name in CLASS_NAMES else "clutter")
