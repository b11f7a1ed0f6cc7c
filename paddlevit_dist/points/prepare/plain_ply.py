"""Any folder of PLY files whose points have x, y, z, colours and a class."""

import numpy as np

from ...runtime.errors import UserError
from ...runtime.files import counted_by_suffix
from ..data.ply import read_vertices
from ..data.scene import CENTRED, IGNORED, Scene
from .coordinates import as_given, centred, coarse_steps
from .listing import (
    RawScene,
    SceneReader,
    check_classes,
    find_files,
    no_labels,
    number_instances,
    points_of,
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


class PlyReader(SceneReader):
    """Reads PLY files, each centred on its mean unless they are to stay as given.

    Args:
        label, instance: property names; None: the first known one; "none": no such property.
        ignore_label: a label that means no class, besides all negative ones.
        grey: use grey if there are no colours.
        coordinates: CENTRED or AS_GIVEN.
    """

    kind = "ply"

    def __init__(
        self,
        class_names: list[str] | None = None,
        label: str | None = None,
        instance: str | None = None,
        ignore_label: int = IGNORED,
        grey: bool = False,
        coordinates: str = CENTRED,
    ) -> None:
        super().__init__(class_names)
        self.label, self.instance, self.ignore_label = label, instance, ignore_label
        self.grey, self.coordinates, self.labelled = grey, coordinates, label != WITHOUT

    @property
    def settings(self) -> tuple[object, ...]:
        classes = None if self.class_names is None else len(self.class_names)
        return classes, self.label, self.instance, self.ignore_label, self.grey

    def find(self, root: str) -> dict[str, str]:
        others: list[str] = []
        found = find_files(root, ".ply", others)
        if others:
            self.remarks.append(f"{root} also holds {counted_by_suffix(others)}, which are not read: only .ply is")
        return found

    def read(self, source: RawScene) -> Scene:
        path = source.files[0]
        columns = read_vertices(path)
        xyz, rgb = points_of(path, columns, self.grey)
        self.remarks += coarse_steps(path, xyz)
        xyz, offset = (centred if self.coordinates == CENTRED else as_given)(path, xyz)
        semantic = instance = no_labels(len(xyz))
        if source.labelled:
            labels = whole_labels(path, "label", columns[self._label_of(path, columns)])
            labels = np.where(labels == self.ignore_label, IGNORED, labels)
            semantic = check_classes(path, labels, None if self.class_names is None else len(self.class_names))
            name = self._instance_of(path, columns)
            if name is not None:
                instance = number_instances(path, whole_labels(path, "instance", columns[name]))
        return Scene(xyz, rgb, semantic, instance, source.name, offset)

    def _label_of(self, path: str, columns: dict[str, np.ndarray]) -> str:
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

    def _instance_of(self, path: str, columns: dict[str, np.ndarray]) -> str | None:
        if self.instance == WITHOUT:
            return None
        wanted = INSTANCE_NAMES if self.instance is None else (self.instance,)
        name = next((name for name in wanted if name in columns), None)
        if name is None and self.instance is not None:
            raise UserError(f"{path} has no property {self.instance} (--instance), only {', '.join(columns)}")
        return name
