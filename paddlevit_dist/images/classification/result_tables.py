"""Classes of pictures in somebody else's table: a column with the name of the picture, and one for each class, or the
best class, or the best few. Needs no Paddle.

Kaggle's, timm's (``inference.py``), notebooks' and our own tables are read: comma, semicolon, tab or space between
columns, with headings or without, UTF-8 or UTF-16 with its mark, any line ends.
"""

import contextlib
import csv
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TextIO

from ...runtime.errors import UserError
from ...runtime.files import open_regular
from ...runtime.printing import shortened

_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb": "utf-8-sig"}
_SEPARATORS = ",;\t"
_NAMES = (
    "name file filename file_name filepath file_path path image image_id image_name img img_path picture input id "
    "sample case"
).split()
_BEST = (
    "class label prediction predicted pred predicted_class predicted_label predicted_labels class_name class_id "
    "category index y_pred target"
).split()
_NUMBERED = re.compile(r"(?:(?:prob|probability|logit|score|output|class|label|pred|prediction|p|c)s?[_ ]?)?(\d+)")
_EXPECTED = (
    "expected a column with the picture's name, such as 'filename', and a column for each class, or one called 'class'"
)


class Row(NamedTuple):
    """A row of a table, with the number of its line in the file."""

    line: int
    cells: list[str]


class Layout(NamedTuple):
    """Where a table has what.

    Attributes:
        separator: between columns.
        width: columns of each row.
        name: column with the picture's name.
        scores: column of each class, in the order of the table; empty where it has none.
        classes: what these are called: headings, or numbers in their headings; None: there are no headings.
        best: columns of the best class, the second and so on; empty where there are scores.
        has_header: the first row is none of a picture.
    """

    separator: str
    width: int
    name: int
    scores: list[int]
    classes: list[str] | None
    best: list[int]
    has_header: bool

    def rows(self, path: str) -> Iterator[Row]:
        """The rows of pictures.

        Raises:
            UserError: one has more or fewer columns than the first; or as ``rows_of``.
        """
        for row in itertools.islice(rows_of(path, self.separator), int(self.has_header), None):
            if len(row.cells) != self.width:
                raise UserError(
                    f"{path}, line {row.line}: {len(row.cells):,} columns, but {self.width:,} in the first line; is "
                    "the file complete, and are decimals written with a point?"
                )
            yield row


def rows_of(path: str, separator: str) -> Iterator[Row]:
    """The rows of a table that are not empty, one at a time.

    Raises:
        UserError: the file cannot be read, or is no table.
    """
    with _opened(path) as stream:
        reader = csv.reader(stream, delimiter=separator)
        for cells in reader:
            if any(cells):
                yield Row(reader.line_num, cells)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[TextIO]:
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


def _separator_of(path: str) -> str:
    """What stands most often between the quoted parts of the first line; a space where nothing else does."""
    with _opened(path) as stream:
        line = next((line for line in stream if line.strip()), "")
    if "\0" in line:  # UTF-16 without a mark
        raise UserError(f"{path} is not UTF-8 text; save it as UTF-8")
    outside = "".join(line.split('"')[::2])
    best = max(_SEPARATORS, key=outside.count)
    return best if best in outside else " "


def layout_of(path: str, classes: Sequence[str] | None) -> Layout:
    """Find out where a table has names and classes.

    Args:
        classes: of the truth; None: not known yet.
    Raises:
        UserError: it cannot be read, is empty, or has no such columns.
    """
    separator = _separator_of(path)
    first = next(rows_of(path, separator), None)
    if first is None:
        raise UserError(f"{path} is empty; {_EXPECTED}")
    cells = [cell.strip() for cell in first.cells]
    width = len(cells)
    if width < 2:
        raise UserError(f"{path}, line {first.line}: one column; {_EXPECTED}")
    lowered = [cell.lower() for cell in cells]
    if not _is_header(lowered):
        numeric = [_is_number(cell) for cell in cells]
        if all(numeric) and width > 2:
            raise UserError(f"{path}, line {first.line}: numbers only; {_EXPECTED}")
        columns = list(range(1, width))
        best = [] if all(numeric[1:]) and width > 2 else columns
        if len(best) > 1:
            raise UserError(f"{path}, line {first.line}: {shortened(first.cells, 80)}: {_EXPECTED}; add a first line")
        return Layout(separator, width, 0, [] if best else columns, None, best, False)
    name = next((lowered.index(word) for word in _NAMES if word in lowered), 0)
    best = _ranked(lowered, name)
    scores, called = _class_columns(path, cells, name, classes, is_ranked=len(best) > 1)
    if scores:
        return Layout(separator, width, name, scores, called, [], True)
    if not best:
        raise UserError(f"{path}, line {first.line}: columns {shortened(', '.join(cells), 80)}; {_EXPECTED}")
    return Layout(separator, width, name, [], None, best, True)


def _is_header(cells: Sequence[str]) -> bool:
    """Whether lower-case cells are headings: known words, the numbers of classes, or no number at all."""
    if any(cell in (*_NAMES, *_BEST) for cell in cells):
        return True
    numbers = [_is_number(cell) for cell in cells[1:]]
    if all(numbers):
        return len(cells) > 2 and sorted(cells[1:]) == sorted(map(str, range(len(numbers))))
    return len(cells) > 2 and not any(numbers)


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True


def _ranked(headings: Sequence[str], name: int) -> list[int]:
    """Columns of the best class, the second and so on: ``class, class_2``, ``label_0, label_1`` or the like."""
    for word in _BEST:
        first = next((one for one in (word, f"{word}_0", f"{word}_1") if one in headings), None)
        if first is None or headings.index(first) == name:
            continue
        start = 0 if first.endswith("_0") else 1
        further = [f"{word}_{number}" for number in range(start + 1, start + len(headings))]
        there = list(itertools.takewhile(headings.__contains__, further))
        return [headings.index(one) for one in (first, *there)]
    return []


def _class_columns(
    path: str, headings: Sequence[str], name: int, classes: Sequence[str] | None, is_ranked: bool
) -> tuple[list[int], list[str]]:
    """The columns with a score for each class, and what their classes are called; none where the table has no such."""
    others = [column for column in range(len(headings)) if column != name]
    if classes is not None and len(set(classes)) == len(classes):
        known = {headings[column]: column for column in others}
        missing = [one for one in classes if one not in known]
        if not missing:
            return [known[one] for one in classes], list(classes)
        if 2 * len(missing) < len(classes):
            raise UserError(f"{path}: no column for {shortened(', '.join(missing), 80)} of {len(classes):,} classes")
    if is_ranked:
        return [], []
    numbered = {}
    for column in others:
        found = _NUMBERED.fullmatch(headings[column].lower())
        if found:
            numbered.setdefault(int(found[1]), column)
    if len(numbered) > 1:
        start = 1 if 0 not in numbered and classes is None else 0
        if sorted(numbered) == list(range(start, start + len(numbered))):
            return [numbered[number] for number in sorted(numbered)], [str(number) for number in sorted(numbered)]
        raise UserError(f"{path}: columns of classes {shortened(sorted(numbered), 80)}: expected 0, 1, 2 and so on")
    plain = [column for column in others if headings[column] and headings[column].lower() not in (*_NAMES, *_BEST)]
    if classes is None and len(plain) > 1 and not any(headings[column].lower() in _BEST for column in others):
        return plain, [headings[column] for column in plain]
    return [], []


def numbers_of(path: str, row: Row, columns: Sequence[int], separator: str) -> list[float]:
    """The scores of a row; a decimal comma counts where columns are separated by something else.

    Raises:
        UserError: a cell is no number.
    """
    found: list[float] = []
    for column in columns:
        cell = row.cells[column]
        try:
            found.append(float(cell if separator == "," else cell.replace(",", ".")))
        except ValueError:
            where = f"{path}, line {row.line}, column {column + 1}"
            raise UserError(f"{where}: {shortened(repr(cell), 60)} is no number") from None
    return found


class Truth(NamedTuple):
    """The classes of the pictures.

    Attributes:
        names: of the pictures.
        labels: int64 (pictures,), from 0.
        classes: their names.
        source: where this is from, for messages.
    """

    names: Sequence[str]
    labels: Any
    classes: list[str]
    source: str


def listed_classes(path: str) -> dict[str, str]:
    """Class of each picture, by its name, in a table with one class a row.

    Raises:
        UserError: it cannot be read, has scores in place of a class, or names a picture twice.
    """
    layout = layout_of(path, None)
    if layout.scores:
        raise UserError(
            f"{path} has scores for {len(layout.scores):,} classes; the truth is one class for each picture"
        )
    found: dict[str, str] = {}
    for row in layout.rows(path):
        name, own = row.cells[layout.name].strip(), row.cells[layout.best[0]].strip()
        if name in found:
            raise UserError(f"{path}, line {row.line}: {name} is there twice; keep one")
        if not name or not own:
            raise UserError(
                f"{path}, line {row.line}: no {'class' if name else 'name'}; fill it in, or remove the line"
            )
        found[name] = own
    if not found:
        raise UserError(f"{path} names no picture; {_EXPECTED}")
    return found
