"""Text tables of users: comma, semicolon, tab or space between columns, UTF-8 or UTF-16 with a BOM, any line end."""

import contextlib
import csv
from collections.abc import Iterator
from typing import NamedTuple, TextIO

from .errors import UserError
from .files import open_regular, readable
from .spelling import compose

_BOMS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb": "utf-8-sig"}
_SEPARATORS = ",;\t"


class TableRow(NamedTuple):
    """A row of a table, with the number of its line in the file."""

    line: int
    cells: list[str]


def iterate_rows(path: str, separator: str) -> Iterator[TableRow]:
    """Yield the rows of a table that are not empty, with text in composed Unicode form.

    Raises:
        UserError: the file cannot be read, or is not a table.
    """
    with open_table(path) as stream:
        reader = csv.reader(stream, delimiter=separator)
        for cells in reader:
            if any(cells):
                yield TableRow(reader.line_num, [compose(cell) for cell in cells])


@contextlib.contextmanager
def open_table(path: str) -> Iterator[TextIO]:
    """Open a text table in the encoding of its BOM, else as UTF-8; errors, also of the block, are UserErrors."""
    with csv_errors_as_user_errors(path), readable(path):
        with open_regular(path, "rb") as head:
            encoding = _BOMS.get(head.read(2), "utf-8")
        with open_regular(path, encoding=encoding, newline="") as stream:
            yield stream


@contextlib.contextmanager
def csv_errors_as_user_errors(path: str) -> Iterator[None]:
    """Raise a UserError where the block meets cells that Python's ``csv`` cannot read, such as a very long one."""
    try:
        yield
    except csv.Error as error:
        raise UserError(f"{path} is not a table: {error}") from error


def is_number(text: str) -> bool:
    """Return whether a text is a number, infinite or NaN."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def find_separator(path: str) -> str:
    """Return the most frequent separator in the first line, outside of quotes; a space if there is none."""
    with open_table(path) as stream:
        line = next((text for text in stream if text.strip()), "")
    if "\0" in line:  # UTF-16 without a BOM
        raise UserError(f"{path} is not UTF-8 text; save it as UTF-8")
    outside = "".join(line.split('"')[::2])
    best = max(_SEPARATORS, key=outside.count)
    return best if best in outside else " "
