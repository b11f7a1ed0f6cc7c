"""What a cell of a table says: a number; or about a class, that the image has it, does not, or is not known to.

Programs and spreadsheets of several languages write this in several ways, also for all classes in one cell.
"""

import contextlib
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.printing import shorten
from ...core.runtime.spelling import compose
from .table_columns import Column, LabelColumns

EMPTY = ("", "nan", "na", "n/a", "null", "none", "<na>")  # what programs write for a value that is missing
_DECIMAL_COMMA = re.compile(r"(-?[01]),0{1,2}")
_WORDS = {  # of truth, as people and spreadsheets of several languages write them
    **dict.fromkeys("true yes y x wahr ja vrai oui verdadero sí si vero sì sim verdadeiro истина да 是 真".split(), 1),
    **dict.fromkeys("false no n falsch nein faux non falso não ложь нет 否 假".split(), 0),
}
_CLASS_SHARE = 0.9  # of the cells that the column of a class may have


class ClassValues(dict[Any, int]):
    """Converts a cell in the column of a class: 1 (has it), 0 (does not) or -1 (not known); a ValueError for others."""

    def __init__(self, is_empty_absent: bool = False) -> None:
        super().__init__()
        self._empty = 0 if is_empty_absent else -1

    def __missing__(self, cell: Any) -> int:
        text = "" if cell is None else compose(str(cell)).strip().lower()
        if cell != cell:  # each NaN of Parquet would be another key
            return self._empty
        if text in EMPTY:
            value = self._empty
        elif text in _WORDS:
            value = _WORDS[text]
        else:
            value = {0.0: 0, 1.0: 1, -1.0: -1}.get(float(_DECIMAL_COMMA.sub(r"\1", text)), -2)
        if value == -2:
            raise ValueError(text)
        self[cell] = value
        return value

    def accepts(self, cell: Any) -> bool:
        """Return whether a cell is one of these values."""
        return self.get_known(cell) is not None

    def get_known(self, cell: Any) -> int | None:
        """Return the value of a cell; None for other cells."""
        try:
            return self[cell]
        except (TypeError, ValueError):  # a list, or another text
            return None


def has_known_values(cells: Column) -> bool:
    """Return whether a cell in the column of a class is 1 or 0."""
    values = ClassValues()
    return any(values.get_known(cell) in (0, 1) for cell in cells)


def has_class_values(cells: Column) -> bool:
    """Return whether nearly all cells are ones that the column of a class may have; others are reported later."""
    return bool(cells) and sum(map(ClassValues().accepts, cells)) >= _CLASS_SHARE * len(cells)


def has_marks(cells: Column) -> bool:
    """Return whether a column has 0 and 1 only, some of them twice, unlike numbers of rows."""
    return {0, 1} <= set(map(ClassValues().get_known, cells)) <= {0, 1, -1} and len(set(map(str, cells))) < len(cells)


def parse_vector(cell: Any) -> tuple[int, ...] | None:
    """Return 0 or 1 of each class, at least two, in a cell such as ``0,1,0`` or a list; None for any other cell."""
    text = ",".join(map(str, cell)) if isinstance(cell, tuple) else str(cell).strip().strip("[]()")
    parts = [part.strip() for part in text.split(",")]
    return tuple(map(int, parts)) if len(parts) > 1 and set(parts) <= {"0", "1"} else None


def has_vectors(cells: Column) -> bool:
    """Return whether all cells have 0 or 1 of each class, and cannot be numbers such as 1,0."""
    vectors = [parse_vector(cell) or () for cell in cells if cell not in ("", None)]
    return all(vectors) and any(len(vector) > 2 or vector[1] for vector in vectors)


def read_numbers(
    table: LabelColumns, column: int, first: int, cells: Column, expected: str, words: Mapping[str, float] | None = None
) -> np.ndarray:
    """Return the numbers of the rows from ``first`` on, float64 (rows,); NaN where a cell is empty.

    ``words`` stand for some numbers. A ``UserError`` names the first cell that is not ``expected``.
    """
    with contextlib.suppress(TypeError, ValueError):  # other cells are read one by one
        if (not words or isinstance(cells[0], str)) and (
            np.abs(numbers := np.fromiter(map(float, cells), np.float64)) < 1e9
        ).all():
            return numbers
    numbers = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells):
        text = "" if cell is None else str(cell).strip().lower()
        if text in EMPTY:
            continue
        try:
            numbers[row] = words[text] if words and text in words else float(text.replace(",", "."))
        except ValueError:
            numbers[row] = math.inf
        if not abs(numbers[row]) < 1e9:
            raise wrong_cell(table, first + row, column, cell, expected)
    return numbers


def wrong_cell(table: LabelColumns, row: int, column: int, cell: object, expected: str) -> UserError:
    """Return the error that a cell of a row, from 0, is not what is expected."""
    place = f"{table.locate(row)}, column {table.headings[column]}"
    return UserError(f"{place}: {shorten(repr(cell), 60)}: expected {expected}")
