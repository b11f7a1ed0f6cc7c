"""Folders of Pointcept: ``train/scene0000_00/coord.npy``, ``color.npy``, ``normal.npy``, ``segment20.npy``,
``segment200.npy`` or ``segment.npy``, ``instance.npy``; and of S3DIS ``Area_1/office_1/coord.npy`` and so on."""

import os
from pathlib import Path

import numpy as np

from ...runtime.errors import UserError
from ..data.scannet_classes import CLASS_NAMES, scannet200
from ..data.scene import IGNORED, Scene
from . import s3dis
from .channels import ALL, USUAL
from .listing import SPLITS, Choices, RawScene, SceneReader, hold_out, split_scenes
from .numpy_tables import columns_of, load_array

POINTS = "coord.npy"
_LABELS = ("segment20", "segment", "segment200")  # the first that is there is taken
_INSTANCE = "instance"


class PointceptReader(SceneReader):
    """Reads scenes that Pointcept's preprocessing has written. A label and channels are files of a scene, by their
    names; classes are ScanNet's for segment20 and segment200, S3DIS's in its areas, else numbers."""

    kind = "pointcept"
    example = f"train/scene0000_00/{POINTS}"

    def __init__(self, choices: Choices | None = None, kind: str | None = None) -> None:
        super().__init__(choices, kind)
        self.label = self.choices.label

    def scene_at(self, path: str) -> tuple[str, str] | None:
        """A folder's name, after that of its area or room unless it is the folder of a split."""
        *_, parent, scene, name = ("", "", *Path(path).parts)
        return (scene if parent in SPLITS else f"{parent}_{scene}", path) if name == POINTS else None

    def splits(self, root: str, found: dict[str, str], lists: dict[str, str | None]) -> dict[str, list[str]]:
        splits = split_scenes(root, found, lists)
        by_area = None if splits else s3dis.splits_by_area(found, self.choices.val_area)
        splits = splits or by_area or hold_out(found)
        labelled = [name for split, names in splits.items() if split != "test" for name in names]
        if self.label is None and labelled:
            folder = os.path.dirname(found[labelled[0]])
            self.label = next((name for name in _LABELS if os.path.exists(os.path.join(folder, f"{name}.npy"))), None)
        if self.class_names is None:
            known = {"segment20": CLASS_NAMES, "segment200": tuple(scannet200())}
            self.class_names = s3dis.CLASS_NAMES if by_area else known.get(self.label or "")
        return splits

    def files(self, path: str, labelled: bool) -> tuple[str, ...]:
        """Points, the class if ``labelled``, and the others that are there."""
        folder, channels = os.path.dirname(path), self.choices.channels or ()
        there = sorted(name.removesuffix(".npy") for name in os.listdir(folder) if name.endswith(".npy"))
        if labelled and self.label not in there:
            wanted = self.label or " or ".join(_LABELS)
            raise UserError(
                f"{folder} has no {wanted}.npy with the class of each point, only {', '.join(there)}; name it with "
                "--label, or give --label=none for scenes without labels"
            )
        wanted = {"color", *USUAL, *channels, *((self.label, _INSTANCE) if labelled else ())}
        if ALL in channels:
            wanted |= {name for name in there if not name.startswith(("segment", _INSTANCE))}
        return (path, *(os.path.join(folder, f"{name}.npy") for name in there if name in wanted and name != "coord"))

    def read(self, source: RawScene) -> Scene:
        columns: dict[str, np.ndarray] = {}
        for file in source.files:
            columns.update(columns_of(file, Path(file).stem, load_array(file)))
        if len({len(column) for column in columns.values()}) > 1:
            sizes = ", ".join(f"{name} {len(column):,}" for name, column in columns.items())
            raise UserError(
                f"{os.path.dirname(source.files[0])} has arrays of different lengths ({sizes}); write them again"
            )
        if not source.labelled or self.label is None:
            return self.scene_of(source, columns, others=(self.label, _INSTANCE))
        scene = self.scene_of(source, columns, columns[self.label], columns.get(_INSTANCE), (self.label, _INSTANCE))
        return scene._replace(instance=np.where(scene.semantic < 0, np.int16(IGNORED), scene.instance))
