"""Scenes in files with tables of points: x, y, z, and optionally colors, a class, an object and channels."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...core.runtime.column_roles import CLASS_OF_POINT, INSTANCE, Role
from ...core.runtime.errors import UserError
from ...core.runtime.files import count_by_suffix
from ..data.ply import read_comments, read_vertices
from ..data.scene import Scene
from .channels import WITHOUT, normalize_name
from .las import find_las_unit, read_las
from .listing import RawScene, SceneReader
from .numpy_tables import read_arrays
from .pcd import find_pcd_unit, read_pcd
from .text_tables import read_text, read_text_comments
from .units import DeclaredUnit, convert_units, find_in_comments

_DEFAULT_NAMES = {3: ("x", "y", "z"), 6: ("x", "y", "z", "red", "green", "blue")}

Columns = dict[str, np.ndarray]


class TableFormat(NamedTuple):
    """A file format: its suffixes, its reader, which returns columns by name, or (points, columns), and its unit."""

    suffixes: tuple[str, ...]  # in lower case
    read: Callable[[str], Columns | np.ndarray]
    #: returns the unit that a file's header declares, if any, and appends remarks on what is not applied
    find_unit: Callable[[str, list[str]], DeclaredUnit | None] = lambda path, remarks: None


TABLES = {
    "ply": TableFormat((".ply",), read_vertices, lambda path, told: find_in_comments(path, read_comments(path), told)),
    "las": TableFormat((".las", ".laz"), read_las, find_las_unit),
    "pcd": TableFormat((".pcd",), read_pcd, find_pcd_unit),
    "numpy": TableFormat((".npy", ".npz"), read_arrays),
    "text": TableFormat(
        (".txt", ".xyz", ".csv", ".pts", ".asc"),
        read_text,
        lambda path, told: find_in_comments(path, read_text_comments(path), told),
    ),
}


def read_table(
    path: str,
    kind: str,
    names: Sequence[str] | None = None,
    default_names: Mapping[int, Sequence[str]] = _DEFAULT_NAMES,
) -> Columns:
    """Read the columns of a file of ``kind``, a key of ``TABLES``, by name.

    ``names`` are for files that do not name their columns; "-" for each column to skip. ``default_names``, by number of
    columns, are used if there are no others. UserError if the file is damaged, or ``names`` has the wrong length, is
    missing, not needed, or has duplicates.
    """
    table = TABLES[kind].read(path)
    if not isinstance(table, np.ndarray):
        if names is not None:
            raise UserError(f"{path} already names its columns ({', '.join(table)}); drop --columns")
        return table
    number = table.shape[1]
    names = names or default_names.get(number)
    if not names:
        raise UserError(
            f"{path} has {number} columns without names: name them in its first line, or with --columns, such as "
            "x,y,z,intensity, with a dash for each column to skip"
        )
    if len(names) != number:
        raise UserError(f"{path} has {number} columns, but --columns names {len(names)} ({','.join(names)})")
    used_names = [name for name in names if name != "-"]
    if len(set(used_names)) < len(used_names):
        raise UserError(f"--columns={','.join(names)} has a name twice; use a dash for columns to skip")
    return {name: column for name, column in zip(names, table.T) if name != "-"}


class TableReader(SceneReader):
    """Reads scenes in files with tables, each centered on its mean unless coordinates are AS_GIVEN."""

    options: tuple[str, ...] = ("class_names", "label", "instance", "ignore_label", "gray", "channels")
    unique_instances = False

    @abstractmethod
    def read_columns(self, path: str) -> Columns:
        """Read the columns of a file, (points,) each, by name; UserError if it is damaged."""

    def find(self, root: str) -> dict[str, str]:
        """Return the path of each scene below ``root``, by name; add a remark on other files."""
        paths = super().find(root)
        if self.other_files:
            supported = " and ".join(self.suffixes)
            other_files = count_by_suffix(self.other_files)
            self.remarks.append(f"{root} also contains {other_files}, not read as scenes: only {supported}")
        return paths

    def read(self, source: RawScene) -> Scene:
        """Read a scene, with labels if ``source`` has them."""
        path, choices = source.files[0], self.choices
        columns = self.read_columns(path)
        label = name = None
        if source.labeled is not False:
            label = self._column(path, columns, "label", choices.label, CLASS_OF_POINT)
            name = self._column(path, columns, "instance", choices.instance, INSTANCE)
        if source.labeled is None and label is not None and len(columns[label]) and np.ptp(columns[label]) == 0:
            self.remarks.append(f"{path}: {label} is {columns[label][0]:g} at each point: taken as not labeled")
            label = name = None
        if source.labeled and label is None:
            label_names = choices.label or " or ".join(CLASS_OF_POINT.words)
            raise UserError(
                f"{path} has no property {label_names} with a class for each point, only {', '.join(columns)}; "
                f"name it with --label, or set --label={WITHOUT} for scenes without labels"
            )
        labels, instances = (None if column is None else columns[column] for column in (label, name))
        return self.build_scene(source, columns, labels, instances, (label, name))

    def _column(self, path: str, columns: Columns, meaning: str, requested: str | None, role: Role) -> str | None:
        """Return the column with this meaning: the requested one, or the first with a known name; None for none.

        Names are compared without case, and without CloudCompare's prefix.
        """
        if requested == WITHOUT:
            return None
        if requested is not None:
            if requested not in columns and meaning == "instance":
                raise UserError(f"{path} has no property {requested} (--instance), only {', '.join(columns)}")
            return requested if requested in columns else None
        names = list(columns)
        matches = [names[place] for place in role.find_all(list(map(normalize_name, names)))]
        if len(matches) > 1 and meaning == "label":
            self.remarks.append(
                f"{path} has several properties that may contain the class ({', '.join(matches)}): '{matches[0]}' is "
                "used; "
                "choose another with --label"
            )
        return matches[0] if matches else None


class KnownTableReader(TableReader):
    """Reads files of one format of ``TABLES``, by its ``kind``."""

    def read_columns(self, path: str) -> Columns:
        """Read the columns of a file as ``read_table`` does, with x, y and z in the unit that readers return."""
        columns = read_table(path, self.kind, self.choices.columns)
        unit = TABLES[self.kind].find_unit(path, self.remarks)
        return convert_units(path, columns, unit, self.choices.unit_m, self.remarks)


class PlyReader(KnownTableReader):
    """Reads PLY."""

    kind, suffixes = "ply", TABLES["ply"].suffixes
    meaning = "PLY"


class LasReader(KnownTableReader):
    """Reads LAS and LAZ."""

    kind, suffixes = "las", TABLES["las"].suffixes
    meaning = "LAS and LAZ, through laspy"


class PcdReader(KnownTableReader):
    """Reads PCD."""

    kind, suffixes = "pcd", TABLES["pcd"].suffixes
    meaning = "PCD"


class NumpyReader(KnownTableReader):
    """Reads arrays of NumPy."""

    kind, suffixes = "numpy", TABLES["numpy"].suffixes
    meaning = " and ".join(suffixes)
    options = (*TableReader.options, "columns")


class TextReader(KnownTableReader):
    """Reads tables as text."""

    kind, suffixes = "text", TABLES["text"].suffixes
    meaning = " and ".join((", ".join(suffixes[:-1]), suffixes[-1]))
    options = (*TableReader.options, "columns")
