"""Any folder of files that are tables of points: x, y, z, and perhaps colors, a class, an object and channels."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...runtime.errors import UserError
from ...runtime.files import count_by_suffix
from ..data.ply import read_vertices
from ..data.scene import Scene
from .channels import WITHOUT, plain_name
from .las import read_las
from .listing import RawScene, SceneChoices, SceneReader
from .numpy_tables import read_arrays
from .pcd import read_pcd
from .text_tables import read_text

LABEL_NAMES = ("label", "class", "semantic", "category", "classification")
INSTANCE_NAMES = ("instance", "instance_id", "object", "object_id")
_USUAL = {3: ("x", "y", "z"), 6: ("x", "y", "z", "red", "green", "blue")}

Columns = dict[str, np.ndarray]


class TableFormat(NamedTuple):
    """A format: ends of its files, and what reads them: columns by name, (points,) each, or else (points, columns)."""

    suffixes: tuple[str, ...]  # in lower case
    read: Callable[[str], Columns | np.ndarray]


TABLES = {
    "ply": TableFormat((".ply",), read_vertices),
    "las": TableFormat((".las", ".laz"), read_las),
    "pcd": TableFormat((".pcd",), read_pcd),
    "numpy": TableFormat((".npy", ".npz"), read_arrays),
    "text": TableFormat((".txt", ".xyz", ".csv", ".pts", ".asc"), read_text),
}


def read_table(
    path: str, kind: str, names: Sequence[str] | None = None, usual: Mapping[int, Sequence[str]] = _USUAL
) -> Columns:
    """The columns of a file, by name.

    Args:
        kind: of ``TABLES``.
        names: of the columns, for files that do not name them; a dash for each that is to be left out.
        usual: names of so many columns, if there are no others.

    Raises:
        UserError: the file is damaged, or ``names`` are not as many, missing and needed, or given twice.
    """
    table = TABLES[kind].read(path)
    if not isinstance(table, np.ndarray):
        if names is not None:
            raise UserError(f"{path} names its columns itself ({', '.join(table)}); leave --columns out")
        return table
    number = table.shape[1]
    names = names or usual.get(number)
    if not names:
        raise UserError(
            f"{path} has {number} columns without names: name them in its first line, or with --columns, such as "
            "x,y,z,intensity, and a dash for each that is to be left out"
        )
    if len(names) != number:
        raise UserError(f"{path} has {number} columns, but --columns names {len(names)} ({','.join(names)})")
    kept = [name for name in names if name != "-"]
    if len(set(kept)) < len(kept):
        raise UserError(f"--columns={','.join(names)} has a name twice; a dash is for columns that are to be left out")
    return {name: column for name, column in zip(names, table.T) if name != "-"}


class TableReader(SceneReader):
    """Reads scenes of one format of ``TABLES``, each centered on its mean unless they are to stay as given."""

    kind = "ply"
    unique_instances = False

    def __init__(self, choices: SceneChoices | None = None, kind: str | None = None) -> None:
        super().__init__(choices, kind)
        self.ends = TABLES[self.kind].suffixes

    def find(self, root: str) -> dict[str, str]:
        found = super().find(root)
        if self.others:
            only = f"{' and '.join(self.ends)} {'are' if len(self.ends) > 1 else 'is'}"
            others = count_by_suffix(self.others)
            self.remarks.append(f"{root} also holds {others}, which are not read: only {only}")
        return found

    def read(self, source: RawScene) -> Scene:
        path, chosen = source.files[0], self.choices
        columns = read_table(path, self.kind, chosen.columns)
        label = self._column(path, columns, "label", chosen.label, LABEL_NAMES) if source.labeled else None
        name = self._column(path, columns, "instance", chosen.instance, INSTANCE_NAMES) if source.labeled else None
        if source.labeled and label is None:
            wanted = chosen.label or " or ".join(LABEL_NAMES)
            raise UserError(
                f"{path} has no property {wanted} with a class for each point, only {', '.join(columns)}; "
                f"name it with --label, or give --label={WITHOUT} for scenes without labels"
            )
        labels, instances = (None if one is None else columns[one] for one in (label, name))
        return self.build_scene(source, columns, labels, instances, (label, name))

    def _column(
        self, path: str, columns: Columns, meaning: str, chosen: str | None, known: Sequence[str]
    ) -> str | None:
        """The column of this meaning: the one that was chosen, or the first with a known name, also CloudCompare's and
        with capitals; None if there is none."""
        if chosen == WITHOUT:
            return None
        if chosen is not None:
            if chosen not in columns and meaning == "instance":
                raise UserError(f"{path} has no property {chosen} (--instance), only {', '.join(columns)}")
            return chosen if chosen in columns else None
        found = [column for name in known for column in columns if plain_name(column) == name]
        if len(found) > 1 and meaning == "label":
            self.remarks.append(
                f"{path} has several properties that may hold the class ({', '.join(found)}): '{found[0]}' is taken; "
                "choose another with --label"
            )
        return found[0] if found else None
