"""Scenes that Pointcept's preprocessing has written: a folder of numpy arrays for each."""

import os
from pathlib import Path

import numpy as np

from ...core.runtime.errors import UserError
from ..data.scannet_classes import CLASS_NAMES, load_scannet200_classes
from ..data.scene import IGNORED, Scene
from ..data.scene_store import is_hidden
from . import s3dis
from .channels import ALL, USUAL
from .listing import SPLITS, RawScene, SceneChoices, SceneReader, hold_out, split_scenes
from .numpy_tables import load_array, split_columns

POINTS = "coord.npy"
_LABELS = ("segment20", "segment", "segment200")  # the first existing one is used
_INSTANCE = "instance"


def _is_array(name: str) -> bool:
    return name.endswith(".npy") and not is_hidden(name)


class PointceptReader(SceneReader):
    """Reads scenes that Pointcept's preprocessing has written.

    A label and channels are files of a scene, by their names. Classes are ScanNet's for segment20 and segment200,
    S3DIS's in its areas, else numbers.
    """

    kind = "pointcept"
    meaning = "Pointcept's folders with coord.npy"
    options = ("class_names", "label", "ignore_label", "gray", "channels", "val_area")
    suffixes = (POINTS,)
    unique_instances = None
    example = f"train/scene0000_00/{POINTS}"

    def __init__(self, choices: SceneChoices | None = None, kind: str | None = None) -> None:
        super().__init__(choices, kind)
        self.label = self.choices.label

    def identify(self, path: str) -> tuple[str, str] | None:
        """Return a folder's name, preceded by its area or room unless it is in the folder of a split."""
        *_, parent, scene, name = ("", "", *Path(path).parts)
        return (scene if parent in SPLITS else f"{parent}_{scene}", path) if name == POINTS else None

    def splits(self, root: str, paths: dict[str, str], lists: dict[str, str | None]) -> dict[str, list[str]]:
        """Return the names of each split: from lists, folders or areas, else every fifth scene is held out."""
        splits = split_scenes(root, paths, lists)
        by_area = None if splits else s3dis.split_by_area(paths, self.choices.val_area)
        splits = splits or by_area or hold_out(paths, self.remarks)
        labeled = [name for split, names in splits.items() if split != "test" for name in names]
        if self.label is None and labeled:
            folder = os.path.dirname(paths[labeled[0]])
            self.label = next((name for name in _LABELS if os.path.exists(os.path.join(folder, f"{name}.npy"))), None)
        if self.class_names is None:
            classes_by_label = {"segment20": CLASS_NAMES, "segment200": tuple(load_scannet200_classes())}
            self.class_names = s3dis.CLASS_NAMES if by_area else classes_by_label.get(self.label or "")
        return splits

    def files(self, path: str, labeled: bool) -> tuple[str, ...]:
        """Return the files of points, of the class if ``labeled``, and of other existing channels."""
        folder, channels = os.path.dirname(path), self.choices.channels or ()
        available = sorted(name.removesuffix(".npy") for name in os.listdir(folder) if _is_array(name))
        if labeled and self.label not in available:
            label_names = self.label or " or ".join(_LABELS)
            raise UserError(
                f"{folder} has no {label_names}.npy with the class of each point, only {', '.join(available)}; name it "
                "with --label, or set --label=none for scenes without labels"
            )
        selected = {"color", *USUAL, *channels, *((self.label, _INSTANCE) if labeled else ())}
        if ALL in channels:
            selected |= {name for name in available if not name.startswith(("segment", _INSTANCE))}
        return (
            path,
            *(os.path.join(folder, f"{name}.npy") for name in available if name in selected and name != "coord"),
        )

    def read(self, source: RawScene) -> Scene:
        """Read a scene, with labels if ``source`` has them."""
        columns: dict[str, np.ndarray] = {}
        for file in source.files:
            columns.update(split_columns(file, Path(file).stem, load_array(file)))
        if len({len(column) for column in columns.values()}) > 1:
            sizes = ", ".join(f"{name} {len(column):,}" for name, column in columns.items())
            raise UserError(
                f"{os.path.dirname(source.files[0])} has arrays of different lengths ({sizes}); write them again"
            )
        if not source.labeled or self.label is None:
            return self.build_scene(source, columns, excluded=(self.label, _INSTANCE))
        scene = self.build_scene(source, columns, columns[self.label], columns.get(_INSTANCE), (self.label, _INSTANCE))
        return scene._replace(instance=np.where(scene.semantic < 0, np.int16(IGNORED), scene.instance))
