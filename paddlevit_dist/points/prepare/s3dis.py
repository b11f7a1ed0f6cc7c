"""S3DIS as downloaded (Stanford3dDataset_v1.2_Aligned_Version): its thirteen classes, and its six areas as folds.

``Area_1/office_3/Annotations/chair_2.txt`` is a file of x, y, z, red, green and blue for each object. Source: I. Armeni
et al., "3D Semantic Parsing of Large-Scale Indoor Spaces", CVPR 2016, and its data.
"""

import os
import re
from pathlib import Path

import numpy as np

from ...core.runtime.errors import UserError
from ..data.scene import Scene
from ..data.scene_store import is_hidden
from .listing import RawScene, SceneReader, split_scenes
from .text_tables import read_text

CLASS_NAMES = tuple("ceiling floor wall beam column window door table chair sofa bookcase board clutter".split())
NUM_AREAS = 6
_ANNOTATIONS = "Annotations"
_AREA = re.compile(r"Area_([1-6])")
_COLUMNS = ("x", "y", "z", "red", "green", "blue")


def split_by_area(paths: dict[str, str], val_area: int) -> dict[str, list[str]] | None:
    """Assign scenes to splits by their folder ``Area_N``; return None if some are in no such folder.

    Scenes of ``val_area`` are for validation, all others for training. Each area is also a split, ``area_N``. UserError
    if training or validation would have no scenes.
    """
    areas = {name: _AREA.search(os.path.dirname(path)) for name, path in paths.items()}
    if not all(areas.values()):
        return None
    numbers = {name: int(area[1]) for name, area in sorted(areas.items()) if area}
    splits = {"train": [name for name in numbers if numbers[name] != val_area]}
    splits["val"] = [name for name in numbers if numbers[name] == val_area]
    areas_found = sorted(set(numbers.values()))
    if not splits["train"] or not splits["val"]:
        raise UserError(
            f"there are only scenes of Area_{', Area_'.join(map(str, areas_found))}, and --val_area={val_area} is for "
            "validation: choose one of several existing areas"
        )
    area_splits = {f"area_{area}": [name for name in numbers if numbers[name] == area] for area in areas_found}
    return {**splits, **area_splits}


class S3disReader(SceneReader):
    """Reads rooms; each file of an object is an instance, also walls and floors. All splits have labels."""

    kind = "s3dis"
    meaning = "S3DIS: Area_1/office_1/Annotations/chair_1.txt"
    options = ("val_area",)
    example = f"Area_1/office_1/{_ANNOTATIONS}/chair_1.txt"
    default_classes = CLASS_NAMES
    unlabeled_split = ""

    def identify(self, path: str) -> tuple[str, str] | None:
        """Return the room's name, by area and room, and its folder of annotations."""
        *_, area, room, folder, name = ("", "", "", *Path(path).parts)
        is_object = folder == _ANNOTATIONS and name.lower().endswith(".txt")
        return (f"{area}_{room}", os.path.dirname(path)) if is_object else None

    def find(self, root: str) -> dict[str, str]:
        """Return the folder of annotations of each room below ``root``, by name."""
        paths = super().find(root)
        for folder, subfolders, _ in os.walk(root, followlinks=True):
            subfolders[:] = [name for name in subfolders if not is_hidden(name)]
            if os.path.basename(folder) == _ANNOTATIONS and folder not in paths.values():
                raise UserError(f"{folder} has no file of an object, such as chair_1.txt; extract the data again")
        return paths

    def splits(self, root: str, paths: dict[str, str], lists: dict[str, str | None]) -> dict[str, list[str]]:
        """Return the names of each split, from lists, folders or areas."""
        splits = split_scenes(root, paths, lists) or split_by_area(paths, self.choices.val_area)
        if splits is None:
            raise UserError(f"{next(iter(paths.values()))} is in no folder Area_1 to Area_{NUM_AREAS}; rename its area")
        return splits

    def files(self, path: str, labeled: bool) -> tuple[str, ...]:
        """Return the files of all objects."""
        return tuple(
            os.path.join(path, name)
            for name in sorted(os.listdir(path))
            if name.lower().endswith(".txt") and not is_hidden(name)
        )

    def read(self, source: RawScene) -> Scene:
        """Read a room with its labels."""
        parts = []
        for path in source.files:
            table = read_text(path, self.remarks)
            if not isinstance(table, np.ndarray) or table.shape[1] != len(_COLUMNS):
                raise UserError(f"{path}: expected rows of only {', '.join(_COLUMNS)}, without names; fix the file")
            parts.append(table)
        counts = [len(part) for part in parts]
        classes = np.repeat([_find_class(file) for file in source.files], counts)
        numbers = np.repeat(np.arange(len(parts)), counts)
        return self.build_scene(source, dict(zip(_COLUMNS, np.concatenate(parts).T)), classes, numbers)


def _find_class(path: str) -> int:
    """Return the class of an object by its file's name; stairs and other names are clutter."""
    name = os.path.basename(path).split("_")[0]
    return CLASS_NAMES.index(name if name in CLASS_NAMES else "clutter")
