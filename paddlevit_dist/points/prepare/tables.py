"""Any folder of files that are tables of points: x, y, z, and perhaps colours, a class, an object and channels."""

from collections.abc import Sequence

import numpy as np

from ...runtime.errors import UserError
from ...runtime.files import counted_by_suffix
from ..data.scene import CENTRED, IGNORED, Scene
from .channels import channels_in, plain_name
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
from .table_formats import TABLES, read_table

LABEL_NAMES = ("label", "class", "semantic", "category", "classification")
INSTANCE_NAMES = ("instance", "instance_id", "object", "object_id")
WITHOUT = "none"


class TableReader(SceneReader):
    """Reads scenes of one format, each centred on its mean unless they are to stay as given.

    Args:
        label, instance: column names; None: the first known one; "none": no such column.
        ignore_label: a label that means no class, besides all negative ones.
        grey: use grey if there are no colours.
        coordinates: CENTRED or AS_GIVEN.
        kind: a format of ``TABLES``.
        channels: see ``channels_in``.
        columns: names of the columns of files that do not name them.
    """

    def __init__(
        self,
        class_names: list[str] | None = None,
        label: str | None = None,
        instance: str | None = None,
        ignore_label: int = IGNORED,
        grey: bool = False,
        coordinates: str = CENTRED,
        kind: str = "ply",
        channels: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__(class_names)
        self.label, self.instance, self.ignore_label = label, instance, ignore_label
        self.grey, self.coordinates, self.labelled = grey, coordinates, label != WITHOUT
        self.kind, self.channels, self.columns = kind, channels, columns

    @property
    def settings(self) -> tuple[object, ...]:
        classes = None if self.class_names is None else len(self.class_names)
        return classes, self.label, self.instance, self.ignore_label, self.grey, self.channels, self.columns

    def find(self, root: str) -> dict[str, str]:
        others: list[str] = []
        suffixes = TABLES[self.kind].suffixes
        found = find_files(root, suffixes, others)
        if others:
            read = " and ".join(suffixes)
            verb = "are" if len(suffixes) > 1 else "is"
            self.remarks.append(
                f"{root} also holds {counted_by_suffix(others)}, which are not read: only {read} {verb}"
            )
        return found

    def read(self, source: RawScene) -> Scene:
        path = source.files[0]
        columns = read_table(path, self.kind, self.columns)
        xyz, rgb = points_of(path, columns, self.grey)
        self.remarks += coarse_steps(path, xyz)
        xyz, offset = (centred if self.coordinates == CENTRED else as_given)(path, xyz)
        semantic = instance = no_labels(len(xyz))
        label = self._label_of(path, columns) if source.labelled else None
        name = self._instance_of(path, columns) if source.labelled else None
        if label is not None:
            labels = whole_labels(path, "label", columns[label])
            labels = np.where(labels == self.ignore_label, IGNORED, labels)
            semantic = check_classes(path, labels, None if self.class_names is None else len(self.class_names))
        if name is not None:
            instance = number_instances(path, whole_labels(path, "instance", columns[name]))
        channels = channels_in(path, columns, self.channels, (label, name))
        return Scene(xyz, rgb, semantic, instance, source.name, offset, channels)

    def _label_of(self, path: str, columns: dict[str, np.ndarray]) -> str:
        wanted = LABEL_NAMES if self.label is None else (self.label,)
        found = _named(columns, wanted, self.label is not None)
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
        found = _named(columns, wanted, self.instance is not None)
        if not found and self.instance is not None:
            raise UserError(f"{path} has no property {self.instance} (--instance), only {', '.join(columns)}")
        return found[0] if found else None


def _named(columns: dict[str, np.ndarray], wanted: Sequence[str], exactly: bool) -> list[str]:
    """The columns with one of the names, in the order of these; unless ``exactly`` also CloudCompare's and capitals."""
    if exactly:
        return [name for name in wanted if name in columns]
    return [column for name in wanted for column in columns if plain_name(column) == name]
