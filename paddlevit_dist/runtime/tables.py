"""Tables that people keep as text: comma, semicolon, tab or space between columns, UTF-8 or UTF-16 with its mark, any
line ends."""

import contextlib
import csv
from collections.abc import Iterator
from typing import NamedTuple, TextIO

from .errors import UserError
from .files import open_regular

_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb": "utf-8-sig"}
_SEPARATORS = ",;\t"
#: headings, in lower case, of a column with the names of samples, the surest first
NAME_HEADINGS = (
    "name file filename file_name filepath file_path path image image_id image_name img img_path image input id "
    "sample case"
).split()


class TableRow(NamedTuple):
    """A row of a table, with the number of its line in the file."""

    line: int
    cells: list[str]


def iterate_rows(path: str, separator: str) -> Iterator[TableRow]:
    """The rows of a table that are not empty, one at a time.

    Raises:
        UserError: the file cannot be read, or is no table.
    """
    with _open(path) as stream:
        reader = csv.reader(stream, delimiter=separator)
        for cells in reader:
            if any(cells):
                yield TableRow(reader.line_num, cells)


@contextlib.contextmanager
def _open(path: str) -> Iterator[TextIO]:
    """A text file in the encoding of its mark, else UTF-8.

    Raises:
        UserError: it cannot be read, or is none; also of what is inside the block.
    """
    try:
        with open_regular(path, "rb") as head:
            encoding = _MARKS.get(head.read(2), "utf-8")
        with open_regular(path, encoding=encoding, newline="") as stream:
            yield stream
    except UnicodeError as error:
        raise UserError(f"{path} is not UTF-8 text; save it as UTF-8") from error
    except csv.Error as error:
        raise UserError(f"{path} is not a table: {error}") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error


def find_separator(path: str) -> str:
    """Find what stands most often between the quoted parts of the first line; a space where nothing else does."""
    with _open(path) as stream:
        line = next((line for line in stream if line.strip()), "")
    if "\0" in line:  # UTF-16 without a mark
        raise UserError(f"{path} is not UTF-8 text; save it as UTF-8")
    outside = "".join(line.split('"')[::2])
    best = max(_SEPARATORS, key=outside.count)
    return best if best in outside else " "
