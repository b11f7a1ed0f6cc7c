"""Classes of images in somebody else's table: a column with the name of the image, and one for each class, or the
best class, or the best few. Needs no Paddle.

Kaggle's, timm's (``inference.py``), notebooks' and our own tables are read: comma, semicolon, tab or space between
columns, with headings or without, UTF-8 or UTF-16 with its mark, any line ends.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from typing import Any, NamedTuple

from ...runtime.errors import UserError
from ...runtime.printing import shorten
from ...runtime.tables import NAME_HEADINGS, TableRow, find_separator, iterate_rows

_BEST = (
    "prediction predicted pred predicted_class predicted_label predicted_labels y_pred class label class_name class_id "
    "category index"
).split()
_TRUE = "truth true y_true true_class true_label ground_truth target label class class_name class_id category".split()
_NO_CLASS = (*NAME_HEADINGS, *_BEST, *_TRUE)
_ROWS = re.compile(r"unnamed: \d+|level_\d+")  # what pandas calls columns with numbers of rows
_NUMBERED = re.compile(r"(?:(?:prob|probability|logit|score|output|class|label|pred|prediction|p|c)s?[_ ]?)?(\d+)")
_EXPECTED = (
    "expected a column with the image's name, such as 'filename', and a column for each class, or one called 'class'"
)


class ResultTableLayout(NamedTuple):
    """Where a table has what.

    Attributes:
        separator: between columns.
        width: columns of each row.
        name: column with the image's name.
        scores: column of each class, in the order of the table; empty where it has none.
        classes: what these are called: headings, or the numbers in them; None: there are no headings.
        best: columns of the best class, the second and so on; empty where there are scores.
        has_header: the first row is none of an image.
    """

    separator: str
    width: int
    name: int
    scores: list[int]
    classes: list[str] | None
    best: list[int]
    has_header: bool

    def rows(self, path: str) -> Iterator[TableRow]:
        """The rows of images.

        Raises:
            UserError: one has more or fewer columns than the first; or as ``iterate_rows``.
        """
        for row in itertools.islice(iterate_rows(path, self.separator), int(self.has_header), None):
            if len(row.cells) != self.width:
                raise UserError(
                    f"{path}, line {row.line}: {len(row.cells):,} columns, but {self.width:,} in the first line; is "
                    "the file complete, and are decimals written with a point?"
                )
            yield row


def find_layout(
    path: str, classes: Sequence[str] | None, occurring: Set[str] = frozenset(), of_truth: bool = False
) -> ResultTableLayout:
    """Find out where a table has names and classes.

    Args:
        classes: all, in their order; None: not known yet.
        occurring: then those that the truth has.
        of_truth: the class that is looked for is the true one; scores are passed over.
    Raises:
        UserError: it cannot be read, is empty, or has no such columns.
    """
    separator = find_separator(path)
    first = next(iterate_rows(path, separator), None)
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
            raise UserError(f"{path}, line {first.line}: numbers only; {_EXPECTED}; add a first line with headings")
        columns = list(range(1, width))
        best = [] if all(numeric[1:]) and width > 2 else columns
        if len(best) > 1:
            shown = shorten(", ".join(cells), 80)
            raise UserError(f"{path}, line {first.line}: {shown}: {_EXPECTED}; add a first line with headings")
        return ResultTableLayout(separator, width, 0, [] if best else columns, None, best, False)
    name = next((lowered.index(word) for word in NAME_HEADINGS if word in lowered), 0)
    best = _rank_columns(lowered, name, _TRUE if of_truth else _BEST)
    scores = [] if of_truth or len(best) > 1 else _score_columns(path, cells, name, classes, occurring, bool(best))
    if scores:
        found = [_NUMBERED.fullmatch(lowered[column]) for column in scores]
        called = [one[1] for one in found if one] if all(found) else [cells[column] for column in scores]
        return ResultTableLayout(separator, width, name, scores, called, [], True)
    if not best:
        expected = "expected one with the true class, called 'class' or 'truth'" if of_truth else _EXPECTED
        raise UserError(f"{path}, line {first.line}: columns {shorten(', '.join(cells), 80)}; {expected}")
    return ResultTableLayout(separator, width, name, [], None, best, True)


def _is_header(cells: Sequence[str]) -> bool:
    """Whether lower-case cells are headings: known words, the numbers of classes, or no number at all."""
    if any(cell in _NO_CLASS for cell in cells):
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


def _rank_columns(headings: Sequence[str], name: int, words: Sequence[str]) -> list[int]:
    """Columns of the best class, the second and so on: ``class, class_2``, ``label_0, label_1`` or the like."""
    for word in words:
        first = next((one for one in (word, f"{word}_0", f"{word}_1") if one in headings), None)
        if first is None or headings.index(first) == name:
            continue
        start = 0 if first.endswith("_0") else 1
        further = [f"{word}_{number}" for number in range(start + 1, start + len(headings))]
        there = list(itertools.takewhile(headings.__contains__, further))
        return [headings.index(one) for one in (first, *there)]
    return []


def _score_columns(
    path: str, headings: Sequence[str], name: int, classes: Sequence[str] | None, occurring: Set[str], has_best: bool
) -> list[int]:
    """The column with the score of each class, in the order of the classes where they are known; none where the table
    has no such columns."""
    others = [column for column in range(len(headings)) if column != name]
    twice = next((heading for heading, number in Counter(headings).items() if heading and number > 1), None)
    if twice is not None:
        raise UserError(f"{path}: two columns are called {shorten(twice, 60)}; keep one")
    column_of = {headings[column]: column for column in others}
    missing = [one for one in classes or () if one not in column_of]
    if classes and not missing:
        return [column_of[one] for one in classes]
    if classes and 2 * len(missing) < len(classes):
        raise UserError(f"{path}: no column for {shorten(', '.join(missing), 80)} of {len(classes):,} classes")
    plain = [column for column in others if headings[column] and headings[column].lower() not in _NO_CLASS]
    plain = [column for column in plain if not _ROWS.fullmatch(headings[column].lower())]
    if occurring and occurring <= {headings[column] for column in plain}:
        are_numbers = all(map(str.isdecimal, occurring))
        return [column for column in plain if headings[column].isdecimal() or not are_numbers]
    numbered: dict[int, int] = {}
    for column in others:
        found = _NUMBERED.fullmatch(headings[column].lower())
        if found:
            numbered.setdefault(int(found[1]), column)
    if len(numbered) > 1:
        first = min(numbered) if classes is None else 0
        if sorted(numbered) != list(range(first, first + len(numbered))) or first > 1:
            raise UserError(f"{path}: columns of classes {shorten(sorted(numbered), 80)}: expected 0, 1, 2 and so on")
        return [numbered[number] for number in sorted(numbered)]
    return plain if classes is None and len(plain) > 1 and not has_best else []


def parse_scores(path: str, row: TableRow, columns: Sequence[int], separator: str) -> list[float]:
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
            raise UserError(f"{where}: {shorten(repr(cell), 60)} is no number") from None
    return found


class ClassGroundTruth(NamedTuple):
    """The classes of the images.

    Attributes:
        names: of the images.
        labels: int64 (images,), from 0.
        classes: their names.
        source: where this is from, for messages.
        notices: lines.
    """

    names: Sequence[str]
    labels: Any
    classes: list[str]
    source: str
    notices: Sequence[str] = ()


def read_listed_classes(path: str) -> dict[str, str]:
    """Class of each image, by its name, in a table with one class a row.

    Raises:
        UserError: it cannot be read, has scores in place of a class, or names an image twice.
    """
    layout = find_layout(path, None, of_truth=True)
    if not layout.best:
        said = f"{path} has no column with the true class, but {len(layout.scores):,} of scores"
        raise UserError(f"{said}; the truth is one class for each image, and stands before the results")
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
        raise UserError(f"{path} names no image; {_EXPECTED}")
    return found
