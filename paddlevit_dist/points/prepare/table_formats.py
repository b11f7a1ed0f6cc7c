"""Files that are tables of points, by format: what their names end in, and what reads their columns."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ...runtime.errors import UserError
from ..data.ply import read_vertices
from .las import read_las
from .pcd import read_pcd
from .text_tables import named_columns, read_arrays, read_text

Columns = dict[str, np.ndarray]


class TableFormat(NamedTuple):
    """A format. Attributes:
    suffixes: of its files, in lower case.
    read: the columns of a file by name, (points,) each; a table whose columns have no names as (points, columns).
    """

    suffixes: tuple[str, ...]
    read: Callable[[str], Columns | np.ndarray]


TABLES = {
    "ply": TableFormat((".ply",), read_vertices),
    "las": TableFormat((".las", ".laz"), read_las),
    "pcd": TableFormat((".pcd",), read_pcd),
    "text": TableFormat((".txt", ".xyz", ".csv", ".pts", ".asc"), read_text),
    "numpy": TableFormat((".npy", ".npz"), read_arrays),
}


def read_table(path: str, kind: str, names: Sequence[str] | None = None) -> Columns:
    """The columns of a file, by name.

    Args:
        kind: of ``TABLES``.
        names: of the columns, for files that do not name them.

    Raises:
        UserError: the file is damaged, or does not have as many columns as ``names``.
    """
    table = TABLES[kind].read(path)
    if isinstance(table, np.ndarray):
        return named_columns(path, table, names)
    if names is not None:
        raise UserError(f"{path} names its columns itself ({', '.join(table)}); leave --columns out")
    return table
