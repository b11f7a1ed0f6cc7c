"""S3DIS as it is downloaded (Stanford3dDataset_v1.2_Aligned_Version): ``Area_1/office_3/Annotations/chair_2.txt``, one
file of x, y, z, red, green and blue for each object; its thirteen classes, and its six areas as folds.

Source: I. Armeni et al., "3D Semantic Parsing of Large-Scale Indoor Spaces", CVPR 2016, and its data.
"""

import os
import re
from pathlib import Path

import numpy as np

from ...runtime.errors import UserError
from ..data.scene import Scene
from .listing import RawScene, SceneReader, split_scenes
from .text_tables import read_text

CLASS_NAMES = tuple("ceiling floor wall beam column window door table chair sofa bookcase board clutter".split())
NUM_AREAS = 6
_ANNOTATIONS = "Annotations"
_AREA = re.compile(r"Area_([1-6])")
_COLUMNS = ("x", "y", "z", "red", "green", "blue")


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
    """Reads rooms; each file of an object is an instance, of walls and floors too. All splits have labels."""

    kind = "s3dis"
    example = f"Area_1/office_1/{_ANNOTATIONS}/chair_1.txt"
    own_classes = CLASS_NAMES
    hidden = ""

    def scene_at(self, path: str) -> tuple[str, str] | None:
        """The folder of annotations of a room, by area and room."""
        *_, area, room, folder, name = ("", "", "", *Path(path).parts)
        return (f"{area}_{room}", os.path.dirname(path)) if folder == _ANNOTATIONS and name.endswith(".txt") else None

    def find(self, root: str) -> dict[str, str]:
        found = super().find(root)
        for folder, subfolders, _ in os.walk(root, followlinks=True):
            subfolders[:] = [name for name in subfolders if not name.startswith(".")]
            if os.path.basename(folder) == _ANNOTATIONS and folder not in found.values():
                raise UserError(f"{folder} has no file of an object, such as chair_1.txt; extract the data again")
        return found

    def splits(self, root: str, found: dict[str, str], lists: dict[str, str | None]) -> dict[str, list[str]]:
        splits = split_scenes(root, found, lists) or splits_by_area(found, self.choices.val_area)
        if splits is None:
            raise UserError(f"{next(iter(found.values()))} is in no folder Area_1 to Area_{NUM_AREAS}; rename its area")
        return splits

    def files(self, path: str, labeled: bool) -> tuple[str, ...]:
        return tuple(os.path.join(path, name) for name in sorted(os.listdir(path)) if name.endswith(".txt"))

    def read(self, source: RawScene) -> Scene:
        parts = []
        for path in source.files:
            table = read_text(path, self.remarks)
            if not isinstance(table, np.ndarray) or table.shape[1] != len(_COLUMNS):
                raise UserError(f"{path}: expected rows of {', '.join(_COLUMNS)} without names, no others; mend it")
            parts.append(table)
        counts = [len(part) for part in parts]
        classes = np.repeat([_find_class(path) for path in source.files], counts)
        numbers = np.repeat(np.arange(len(parts)), counts)
        return self.build_scene(source, dict(zip(_COLUMNS, np.concatenate(parts).T)), classes, numbers)


def _find_class(path: str) -> int:
    """The class of an object by its file's name; stairs, and all else that is none of the thirteen, are clutter."""
    name = os.path.basename(path).split("_")[0]
    return CLASS_NAMES.index(name if name in CLASS_NAMES else "clutter")
