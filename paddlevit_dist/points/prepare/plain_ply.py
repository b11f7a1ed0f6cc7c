"""Any folder of PLY files whose points have x, y, z, colours and a class."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

import numpy as np

from ...errors import UserError
from ...files import counted_by_suffix
from ..data.ply import read_vertices
from ..data.scene import CENTRED, IGNORED, Scene
from .coordinates import centred, coarse_steps
from .listing import (
    Source,
    check_classes,
    find_files,
    hold_out,
    number_instances,
    points_of,
    split_scenes,
    whole_labels,
)

LABEL_NAMES = (
    "label",
    "class",
    "semantic",
    "category",
    "scalar_label",
    "scalar_Label",
    "scalar_Classification",
    "scalar_classification",
    "Classification",
    "classification",
)
INSTANCE_NAMES = ("instance", "instance_id", "object", "object_id", "scalar_instance", "scalar_Instance")
WITHOUT = "none"


class PlyReader:
    """Reads PLY files, each centred on its mean.

    Args:
        class_names: None: as many classes as the labels imply, named by their numbers.
        label, instance: property names; None: the first known one; "none": no such property.
        ignore_label: a label that means no class, besides all negative ones.
        grey: use grey if there are no colours.
    """

    kind = "ply"
    coordinates = CENTRED

    def __init__(
        self,
        class_names: Optional[List[str]] = None,
        label: Optional[str] = None,
        instance: Optional[str] = None,
        ignore_label: int = IGNORED,
        grey: bool = False,
    ) -> None:
        self.class_names = class_names
        self.label = label
        self.instance = instance
        self.ignore_label = ignore_label
        self.grey = grey
        self.remarks: List[str] = []  # on the scenes read

    @property
    def settings(self) -> Tuple[object, ...]:
        """What the prepared scenes depend on besides their files."""
        classes = None if self.class_names is None else len(self.class_names)
        return classes, self.label, self.instance, self.ignore_label, self.grey

    def sources(self, root: str, lists: Dict[str, Optional[str]]) -> Dict[str, List[Source]]:
        """The scenes of each split; without lists or folders every fifth is held out."""
        others: List[str] = []
        found = find_files(root, ".ply", others)
        if others:
            self.remarks.append(f"{root} also holds {counted_by_suffix(others)}, which are not read: only .ply is")
        splits = split_scenes(root, found, lists, "{}.txt") or hold_out(found)
        return {
            split: [Source(name, (found[name],), split != "test" and self.label != WITHOUT) for name in names]
            for split, names in splits.items()
        }

    def read(self, source: Source) -> Scene:
        """A scene with its labels, if ``source`` has them."""
        path = source.files[0]
        columns = read_vertices(path)
        xyz, rgb = points_of(path, columns, self.grey)
        self.remarks += coarse_steps(path, xyz)
        xyz, offset = centred(path, xyz)
        semantic = instance = np.full(len(xyz), IGNORED, np.int16)
        if source.labelled:
            labels = whole_labels(path, "label", columns[self._label_of(path, columns)])
            labels = np.where(labels == self.ignore_label, IGNORED, labels)
            semantic = check_classes(path, labels, None if self.class_names is None else len(self.class_names))
            name = self._instance_of(path, columns)
            if name is not None:
                instance = number_instances(path, whole_labels(path, "instance", columns[name]))
        return Scene(xyz, rgb, semantic, instance, source.name, offset)

    def _label_of(self, path: str, columns: Dict[str, np.ndarray]) -> str:
        wanted = LABEL_NAMES if self.label is None else (self.label,)
        found = [name for name in wanted if name in columns]
        if not found:
            raise UserError(
                f"{path} has no property {' or '.join(wanted)} with a class for each point, only {', '.join(columns)}; "
                f"name it with --label, or give --label={WITHOUT} for scenes without labels"
            )
        if len(found) > 1:
            self.remarks.append(
                f"{path} has several properties that may hold the class ({', '.join(found)}): '{found[0]}' is taken; "
                "choose another with --label"
            )
        return found[0]

    def _instance_of(self, path: str, columns: Dict[str, np.ndarray]) -> Optional[str]:
        if self.instance == WITHOUT:
            return None
        wanted = INSTANCE_NAMES if self.instance is None else (self.instance,)
        name = next((name for name in wanted if name in columns), None)
        if name is None and self.instance is not None:
            raise UserError(f"{path} has no property {self.instance} (--instance), only {', '.join(columns)}")
        return name
