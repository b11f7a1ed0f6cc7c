"""Tables of predicted classes from other programs: a column of image names, and scores, the best class or the best few.

Tables of Kaggle, timm (``inference.py``), notebooks and this package are read: comma, semicolon, tab or space between
columns, with headings or without, UTF-8 or UTF-16 with its mark, any line ends. Needs no Paddle.
"""

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence, Set
from typing import Any, NamedTuple

from ...core.runtime import column_roles as roles
from ...core.runtime.errors import UserError
from ...core.runtime.printing import count, shorten
from ...core.runtime.spelling import compose
from ...core.runtime.tables import TableRow, find_separator, is_number, iterate_rows
from ..data.label_layouts import TableChoices, find_image_column
from ..data.label_rows import read_rows
from ..data.table_columns import open_columns

_KNOWN = roles.Role((*roles.NAME.words, *roles.PREDICTED.words, *roles.TRUE.words))  # no class is called so
_NUMBERED = re.compile(r"(?:(?:prob|probability|logit|score|output|class|label|pred|prediction|p|c)s?[_ ]?)?(\d+)")
_EXPECTED = (
    "expected a column with the image's name, such as 'filename', and a column for each class, or one named 'class'"
)


class ResultTableLayout(NamedTuple):
    """The columns of a table.

    Attributes:
        separator, width: between columns, and number of columns of each row.
        name: column with the image's name.
        scores: column of each class, in the order of the table; empty if it has none.
        classes: headings of these columns, or the numbers in them; None: there are no headings.
        best: columns of the best class, the second and so on; empty if there are scores.
        best_scores: columns of their scores; empty unless each has one.
    """

    separator: str
    width: int
    name: int
    scores: list[int]
    classes: list[str] | None
    best: list[int]
    has_header: bool
    best_scores: list[int] = []

    def rows(self, path: str) -> Iterator[TableRow]:
        """Yield the rows of images; a ``UserError`` if one has other columns than the first, or is damaged."""
        for row in itertools.islice(iterate_rows(path, self.separator), int(self.has_header), None):
            if len(row.cells) != self.width:
                raise UserError(
                    f"{path}, line {row.line}: {len(row.cells):,} columns, but {self.width:,} in the first line; is "
                    "the file complete, and are decimals written with a point?"
                )
            yield row


def find_layout(path: str, classes: Sequence[str] | None, occurring: Set[str] = frozenset()) -> ResultTableLayout:
    """Find the columns of names and classes in a table; a ``UserError`` if it is damaged, empty or has none.

    Args:
        classes: all classes, in their order; None: not known yet.
        occurring: the classes in the ground truth, if ``classes`` is None.
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
    if not _is_header(cells):
        scores, best = _find_unnamed_columns(cells, f"{path}, line {first.line}")
        return ResultTableLayout(separator, width, 0, scores, None, best, False)
    name = roles.NAME.find(cells) or 0
    best = _rank_columns(cells, name, roles.PREDICTED)
    scores = [] if len(best) > 1 else _score_columns(path, cells, name, classes, occurring, bool(best))
    if scores:
        matches = [_NUMBERED.fullmatch(lowered[column]) for column in scores]
        names = [match[1] for match in matches if match]
        names = names if len(set(names)) == len(scores) else [cells[column] for column in scores]
        return ResultTableLayout(separator, width, name, scores, names, [], True)
    if not best:
        raise UserError(f"{path}, line {first.line}: columns {shorten(', '.join(cells), 80)}; {_EXPECTED}")
    best_scores = _rank_columns(cells, name, roles.SCORE)
    best_scores = best_scores if len(best_scores) == len(best) else []
    return ResultTableLayout(separator, width, name, [], None, best, True, best_scores)


def _find_unnamed_columns(cells: Sequence[str], place: str) -> tuple[list[int], list[int]]:
    """Return the columns of scores, and of the best class, of a table without headings; one of them is empty."""
    numeric = [is_number(cell.replace(",", ".")) for cell in cells]
    if all(numeric) and len(cells) > 2:
        raise UserError(f"{place}: numbers only; {_EXPECTED}; add a first line with headings")
    columns = list(range(1, len(cells)))
    if all(numeric[1:]) and len(cells) > 2:
        return columns, []
    if len(columns) > 1:
        raise UserError(f"{place}: {shorten(', '.join(cells), 80)}: {_EXPECTED}; add a first line with headings")
    return [], columns


def _is_header(cells: Sequence[str]) -> bool:
    """Return whether cells are headings: known words, numbers of classes, or no number at all."""
    if any(map(_KNOWN.has, cells)):
        return True
    numbers = [is_number(cell.replace(",", ".")) for cell in cells[1:]]
    if all(numbers):
        return len(cells) > 2 and sorted(cells[1:]) == sorted(map(str, range(len(numbers))))
    return len(cells) > 2 and not any(numbers)


def _rank_columns(headings: Sequence[str], name: int, role: roles.Role) -> list[int]:
    """Return the columns of the best class, the second and so on: ``class, class_2``, ``label_0, label_1`` etc."""
    places: dict[tuple[str, int], int] = {}
    for column, heading in enumerate(headings):
        stem, _, number = heading.rpartition("_")
        is_ranked = bool(stem) and number.isdecimal()
        word = roles.simplify_heading(stem if is_ranked else heading)
        places.setdefault((word, int(number) if is_ranked else -1), column)
    for word in map(roles.simplify_heading, role.words):
        first = next((number for number in (-1, 0, 1) if (word, number) in places), None)
        if first is None or places[word, first] == name:
            continue
        further = ((word, number) for number in itertools.count(1 if first == 0 else 2))
        return [places[word, first], *(places[each] for each in itertools.takewhile(places.__contains__, further))]
    return []


def _score_columns(
    path: str, headings: Sequence[str], name: int, classes: Sequence[str] | None, occurring: Set[str], has_best: bool
) -> list[int]:
    """Return the score column of each class, in the order of the classes if known; empty without such columns."""
    others = [index for index in range(len(headings)) if index != name]
    twice = next((heading for heading, number in Counter(headings).items() if heading and number > 1), None)
    if twice is not None:
        raise UserError(f"{path}: two columns are named {shorten(twice, 60)}; keep one")
    column_of = {headings[index]: index for index in others}
    missing = _find_missing(path, column_of, classes or ())
    if classes and not missing:
        return [column_of[class_name] for class_name in classes]
    plain = [index for index in others if headings[index] in occurring or _may_be_class(headings[index].lower())]
    if occurring and occurring <= {headings[index] for index in plain}:
        are_numbers = all(map(str.isdecimal, occurring))
        return [index for index in plain if headings[index].isdecimal() or not are_numbers]
    numbered = _find_numbered_columns(path, headings, others, classes is None)
    return numbered or (plain if classes is None and len(plain) > 1 and not has_best else [])


def _may_be_class(heading: str) -> bool:
    return heading != "" and not _KNOWN.has(heading) and not roles.ROW_NUMBER.fullmatch(heading)


def _find_missing(path: str, headings: Collection[str], classes: Sequence[str]) -> list[str]:
    """Return the classes without a column; raise a ``UserError`` if these are less than half of them."""
    missing = [name for name in classes if name not in headings]
    if missing and 2 * len(missing) < len(classes):
        raise UserError(f"{path}: no column for {shorten(', '.join(missing), 80)} of {len(classes):,} classes")
    return missing


def _find_numbered_columns(
    path: str, headings: Sequence[str], columns: Sequence[int], may_start_at_1: bool
) -> list[int]:
    """Return the columns that are named by numbers of classes, in their order; empty if there are less than two."""
    numbered: dict[int, int] = {}
    for column in columns:
        match = _NUMBERED.fullmatch(headings[column].lower())
        if match:
            numbered.setdefault(int(match[1]), column)
    if len(numbered) < 2:
        return []
    first = min(numbered) if may_start_at_1 else 0
    if sorted(numbered) != list(range(first, first + len(numbered))) or first > 1:
        raise UserError(f"{path}: columns of classes {shorten(sorted(numbered), 80)}: expected 0, 1, 2 and so on")
    return [numbered[number] for number in sorted(numbered)]


def parse_scores(path: str, row: TableRow, columns: Sequence[int], separator: str) -> list[float]:
    """Parse the scores of a row, with a decimal comma unless commas separate columns; a ``UserError`` if one is bad."""
    scores: list[float] = []
    for column in columns:
        cell = row.cells[column]
        try:
            scores.append(float(cell if separator == "," else cell.replace(",", ".")))
        except ValueError:
            where = f"{path}, line {row.line}, column {column + 1}"
            raise UserError(f"{where}: {shorten(repr(cell), 60)} is not a number") from None
    return scores


class ClassGroundTruth(NamedTuple):
    """The true classes of the images: ``labels`` are int64 (images,), from 0; messages have ``source``."""

    names: Sequence[str]
    labels: Any
    classes: list[str]
    source: str
    notices: Sequence[str] = ()


def read_listed_classes(path: str, split: str = "val") -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Read the class of each image from a table with one class per row, as training reads it.

    Returns classes by the names of images, classes of other splits, and log lines. With a column of splits, images of
    ``split`` are chosen; "test" replaces a missing "val". A column of folds alone chooses none. A ``UserError`` says
    that the table cannot be read, has not one class for each image or no such split, or names an image twice.
    """
    table = open_columns(path)
    image = find_image_column(table, None if roles.TRUE.find(table.headings) is None else 0)
    truth = [table.headings[column] for column in _rank_columns(table.headings, image, roles.TRUE)[:1]]
    rows = read_rows(path, False, TableChoices(table.headings[image], tuple(truth)))
    if rows.codes is None:
        raise UserError(f"{path} has columns of classes: expected one with the true class, named 'class' or 'truth'")
    names = list(map(compose, rows.names))
    labels = [rows.sets[code] for code in rows.codes.tolist()]
    wrong = next((name for name, own in zip(names, labels) if len(own) != 1), None)
    if wrong is not None:
        raise UserError(f"{path}: {wrong} has {len(labels[names.index(wrong)])} classes: expected one")
    (name, number), *_ = Counter(names).most_common(1)
    if number > 1:
        raise UserError(f"{path}: {name} occurs {'twice' if number == 2 else f'{number} times'}; keep one")
    listed = {name: label for name, (label,) in zip(names, labels)}
    if rows.splits is None and split not in ("train", "val"):
        raise UserError(f"{path} has no column of splits: remove -split={split}, or add the column")
    if rows.splits is None or (rows.has_folds and split == "val"):
        return listed, {}, []
    words = Counter(rows.splits.tolist())
    used = "test" if split == "val" and "val" not in words and "test" in words else split
    number = words.pop(used, 0)
    others = ", ".join(f"{number:,} {f'of {word}' if word else 'without a split'}" for word, number in words.items())
    if not number:
        raise UserError(f"{path} has no image of split '{split}' (-split), only {others}")
    parts: tuple[dict[str, str], dict[str, str]] = ({}, {})  # of the split, and others
    for (name, label), word in zip(listed.items(), rows.splits.tolist()):
        parts[word != used][name] = label
    left = f"; not scored: {others}" if others else ""
    return *parts, [f"{path}: {count(number, 'image')} of split {used} (-split){left}"]
