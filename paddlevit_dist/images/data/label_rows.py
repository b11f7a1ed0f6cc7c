"""Reads the rows of a table of labels: image, labels and split of each, in any of the usual layouts."""

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.printing import count, shorten
from ...core.runtime.spelling import compose
from ...core.runtime.text_files import parse_json
from .class_cells import ClassValues, parse_vector
from .data_warnings import first_names
from .formats import SPLIT_WORDS
from .label_layouts import (
    COLUMNS,
    LABEL,
    ROWS,
    VECTOR,
    LabelLayout,
    TableChoices,
    find_layout,
    find_split_columns,
    find_split_words,
)
from .table_columns import Column, LabelColumns, open_columns
from .table_files import ImageFinder

Rows = TypeVar("Rows", bound=Any)  # of a table

UNKNOWN = -1  # label of a class that is not known
_NO_LABEL = "no finding"  # what NIH's lists have for an image without a label
_NO_CELL = ("nan", "<na>")  # what pandas writes for a cell that is missing
_QUOTED = r"""(?:'[^'\\]*'|"[^"\\]*")"""
_PYTHON_LIST = re.compile(rf"{_QUOTED}(?:\s*,\s*{_QUOTED})*\s*,?")  # in what pandas writes for a list, tuple or set
_BRACKETS = ("[]", "()", "{}")
_MOST_COMPARED = 200  # rows of a table, with the class folders
_MOST_SHOWN = 8  # columns of classes in the log
_MOST_LABELS = 1 << 33  # images x classes: 8 GiB


class LabelRows(NamedTuple):
    """The rows of a table, all splits together.

    Attributes:
        path: of the table.
        names: image of each row, as written.
        codes: int32 (rows,), place of each row's labels in ``sets``; None: there is a matrix.
        sets: distinct labels of a row.
        matrix: int8 (rows, classes): 1, 0 or UNKNOWN; None: there are codes.
        classes: of the matrix.
        splits: split of each row, texts (rows,), "" if it has none; None: the table has no such column.
        has_folds: training and validation rows are folds.
        notices: log lines.
    """

    path: str
    names: list[str]
    codes: np.ndarray | None
    sets: list[tuple[str, ...]]
    matrix: np.ndarray | None
    classes: list[str]
    splits: np.ndarray | None
    has_folds: bool
    notices: list[str]


class DistinctValues(dict[Any, int]):
    """The distinct values of a column, numbered in the order of their first use."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[np.ndarray] = []

    def __missing__(self, value: Any) -> int:
        number = self[value] = len(self)
        return number

    def add(self, column: Column) -> None:
        """Add the next rows; a TypeError if a cell is a structure, or a list of others."""
        self._parts.append(np.fromiter(map(self.__getitem__, column), np.int32, len(column)))

    @property
    def codes(self) -> np.ndarray:
        """The number of each row's value, int32 (rows,)."""
        return np.concatenate(self._parts)

    def texts(self) -> list[str]:
        """Return the distinct values as texts."""
        return ["" if value is None else str(value).strip() for value in self]


def read_rows(path: str, has_several: bool, choices: TableChoices) -> LabelRows:
    """Read images, labels and splits of all rows of a table.

    Args:
        path: of the table.
        has_several: whether an image may have several labels.
        choices: what the user says about the table.

    Raises:
        UserError: the table is damaged, its columns are not found, or a cell is not what its column has.
    """
    table = open_columns(path)
    layout = find_layout(table, has_several, choices)
    classes = layout.labels if layout.kind == COLUMNS else []
    single = [] if classes else layout.labels
    marks = [column for column in (layout.split, layout.fold, layout.confidence, *single) if column is not None]
    distinct: dict[int | None, DistinctValues] = {column: DistinctValues() for column in marks}
    names, matrices, values = list[str](), list[np.ndarray](), ClassValues(choices.is_empty_absent)
    for batch in table.batches([layout.image, *marks, *classes]):
        if classes:
            matrices.append(_convert(table, len(names), values, classes, batch[1 + len(marks) :]))
        for column, cells in zip(marks, batch[1:]):
            try:
                distinct[column].add(cells)
            except TypeError:  # of Parquet
                odd = shorten(repr(next(cell for cell in cells if isinstance(cell, (dict, tuple)))), 60)
                expected = f"{table.headings[column]}: {odd}: expected text, a number or a list of texts"
                raise UserError(f"{path}, column {expected}; convert the column") from None
        names += read_names(table, len(names), batch[0])
    if not names:
        raise UserError(f"{path} has headings, but no rows")
    headings = [table.headings[column] for column in classes]
    notices = [f"{path}: {count(len(names), 'row')}, {_describe(table, layout)}"]
    splits, has_folds = read_splits(table, layout.split, layout.fold, distinct, choices.fold, notices)
    rows = LabelRows(path, names, None, [], None, headings, splits, has_folds, notices)
    if classes:
        matrix, written = np.concatenate(matrices), {str(value).strip().removesuffix(".0") for value in values}
        if has_several and written == {"1", "-1"} and (matrix.min(axis=0) < matrix.max(axis=0)).all():
            raise UserError(
                f"{path}: its classes have 1 and -1 alone, and -1 means not known: write 0 where a class is absent, as "
                "in CelebA, or nothing where it is not known"
            )
        return rows._replace(matrix=matrix)
    labels = distinct[single[0]]
    if layout.kind == VECTOR:
        matrix = _parse_vectors(table, labels, values[""])
        return rows._replace(matrix=matrix, classes=list(map(str, range(matrix.shape[1]))))
    is_list = layout.kind != LABEL and layout.kind != ROWS
    rows = rows._replace(codes=labels.codes, sets=[_parse_cell(cell, is_list, path) for cell in labels])
    return rows if layout.confidence is None else _join_rows(rows, distinct[layout.confidence])


def read_first_labels(path: str, root: str, split: str) -> list[tuple[str, str | None]]:
    """Return path below ``root``, and label, of the images of the first rows that exist; None: it has several labels.

    ``split`` is that of the table, "" if it is for all. No image is returned if a name may be that of several.
    """
    table = open_columns(path)
    try:
        layout = find_layout(table, False, TableChoices())
    except UserError:  # a table of several labels
        layout = find_layout(table, True, TableChoices())
    names = [str(cell).strip() for cell in table.head[layout.image][:_MOST_COMPARED]]
    labels = [str(cell).strip() if layout.kind == LABEL else None for cell in table.head[layout.labels[0]]]
    folder = os.path.relpath(os.path.dirname(path), root)
    try:
        found = ImageFinder(root).find(names, "" if folder == "." else folder, split)
    except UserError:  # the table that is read reports it
        return []
    return [(path, label) for path, label in zip(found, labels) if path]


def read_split_words(path: str) -> set[str]:
    """Return the splits that the columns of splits and folds of a table have; "train" without such columns."""
    table = open_columns(path)
    split, fold = find_split_columns(table)
    words = {"train"}
    if split is not None:
        values = DistinctValues()
        for (cells,) in table.batches([split]):
            values.add(cells)
        words = set(find_split_words(table, split, values.texts()))
    return words | {"val"} if fold is not None and "train" in words else words


def _describe(table: LabelColumns, layout: LabelLayout) -> str:
    """Return what the columns mean, for the log."""
    headings = [table.headings[column] for column in layout.labels]
    labels = f"labels in column {headings[0]}"
    if layout.kind == COLUMNS:
        shown = [shorten(heading, 40) for heading in headings[:_MOST_SHOWN]] + ["..."] * (len(headings) > _MOST_SHOWN)
        labels = f"{count(len(headings), 'column')} of classes ({', '.join(shown)})"
    unused = f"; not used: {shorten(', '.join(layout.unused), 120)}" if layout.unused else ""
    return f"images in column {table.headings[layout.image]}, {labels}{unused}"


def _parse_vectors(table: LabelColumns, labels: DistinctValues, empty: int) -> np.ndarray:
    """Return the labels of all rows, int8 (rows, classes), where a cell has 0 or 1 of each class; else ``empty``."""
    vectors = [parse_vector(cell) for cell in labels]
    width = max(len(vector) for vector in vectors if vector)
    for number, cell in enumerate(labels):
        if cell not in ("", None) and len(vectors[number] or ()) != width:
            place = table.locate(int(np.argmax(labels.codes == number)))
            raise UserError(f"{place}: labels {shorten(cell, 80)}: expected 0 or 1 of each of {width:,} classes")
    return np.array([vector or (empty,) * width for vector in vectors], np.int8)[labels.codes]


def read_names(table: LabelColumns, first: int, cells: Column) -> list[str]:
    """Return the names of images in the next rows, from row ``first``."""
    names = ["" if cell is None else str(cell).strip() for cell in cells]
    if not all(names) or isinstance(cells[0], (dict, bytes, tuple, list)):
        wrong = names.index("") if not all(names) else 0
        shown = "no image is named" if not names[wrong] else "expected the path of an image, found its content"
        raise UserError(f"{table.locate(first + wrong)}: {shown}; correct or remove the row")
    return names


def _convert(
    table: LabelColumns, first: int, values: ClassValues, classes: Sequence[int], columns: Sequence[Column]
) -> np.ndarray:
    """Convert the columns of classes in the next rows, from row ``first``: int8 (rows, classes)."""
    matrix = np.empty((len(columns), len(columns[0])), np.int8)
    for number, (cells, row) in enumerate(zip(columns, matrix)):
        try:
            row[:] = np.fromiter(map(values.__getitem__, cells), np.int8, len(cells))
        except (TypeError, ValueError):
            wrong = next(at for at, cell in enumerate(cells) if not values.accepts(cell))
            raise UserError(
                f"{table.locate(first + wrong)}, column {table.headings[classes[number]]}: "
                f"{shorten(repr(cells[wrong]), 60)}: expected 1, 0, or for not known -1 or nothing; name the "
                "columns of classes with DATA.TABLE.LABELS if it is another column"
            ) from None
    return matrix.T


def read_splits(
    table: LabelColumns,
    split: int | None,
    fold: int | None,
    distinct: Mapping[int | None, DistinctValues],
    chosen: str | None,
    notices: list[str],
) -> tuple[np.ndarray | None, bool]:
    """Return the split of each row, texts (rows,), None without such a column, and whether folds divide the rows.

    Args:
        split, fold: columns.
        distinct: values of these columns.
        chosen: DATA.TABLE.FOLD.
        notices: log lines, to which some are added.
    """
    path, splits = table.path, None
    if split is not None:
        words = find_split_words(table, split, distinct[split].texts())
        if not set(words) & set(SPLIT_WORDS):
            found = shorten(", ".join(filter(None, words)), 80) or "no words"
            raise UserError(f"{path}: the column of splits has {found}: expected train and val")
        splits = np.array(words)[distinct[split].codes]
    if fold is not None and (splits is None or "val" not in splits):
        return _divide(path, splits, distinct[fold], chosen, notices), True
    if chosen is not None or fold is not None:
        what = "its column of folds" if chosen is None else f"DATA.TABLE.FOLD {chosen}"
        reason = "it has no column of folds" if fold is None else "its column of splits has validation rows"
        notices.append(f"{path}: {what} is not used: {reason}")
    return splits, False


def _divide(
    path: str, splits: np.ndarray | None, fold: DistinctValues, chosen: str | None, notices: list[str]
) -> np.ndarray:
    """Return the split of each row, texts (rows,), where training rows are divided by the column of folds."""
    folds = sorted(set(filter(None, fold.texts())), key=lambda text: (float(text) if is_number(text) else 0.0, text))
    if not folds:
        raise UserError(f"{path}: its column of folds is empty; fill or remove it")
    held_out = folds[0] if chosen is None else chosen
    if is_number(held_out):  # pandas writes 2 as 2.0 where a row has no fold
        equal = (text for text in folds if is_number(text) and float(text) == float(held_out))
        held_out = held_out if held_out in folds else next(equal, held_out)
    if held_out not in folds:
        raise UserError(f"{path}: DATA.TABLE.FOLD {held_out}: its folds are {shorten(', '.join(folds), 80)}")
    words = ["val" if text == held_out else "train" if text else "" for text in fold.texts()]
    notices.append(f"{path}: fold {held_out} of {', '.join(folds)} is validation (DATA.TABLE.FOLD)")
    divided = np.array(words)[fold.codes]
    return divided if splits is None else np.where(splits == "train", divided, splits)


def is_number(text: str) -> bool:
    """Return whether a text is a number."""
    try:
        return float(text) == float(text)
    except ValueError:
        return False


def _parse_cell(cell: Any, is_list: bool, path: str) -> tuple[str, ...]:
    """Return the distinct labels in a cell: one, or a list as ``a;b``, ``a|b``, JSON or Parquet's."""
    if isinstance(cell, tuple):
        labels: Sequence[object] = cell
    else:
        text = "" if cell is None or cell != cell else str(cell).strip()
        text = "" if text.lower() in _NO_CELL else text
        labels = _split(text, path) if is_list else [text]
    texts = dict.fromkeys(compose(str(label).strip()) for label in labels if label is not None)
    return tuple(text for text in texts if text and not (is_list and text.lower() == _NO_LABEL))


def _split(text: str, path: str) -> Sequence[object]:
    if text[:1] + text[-1:] in _BRACKETS and _PYTHON_LIST.fullmatch(text[1:-1].strip()):
        return [quoted[1:-1] for quoted in re.findall(_QUOTED, text)]
    if not text.startswith("["):
        return text.replace("|", ";").split(";")
    try:
        labels = parse_json(text)
    except ValueError:
        labels = None
    if not isinstance(labels, list) or not all(isinstance(label, (str, int)) for label in labels):
        raise UserError(f'{path}: labels {shorten(text, 80)}: expected a;b, a|b or a list such as ["a", "b"]')
    return labels


def _join_rows(rows: LabelRows, confidence: DistinctValues) -> LabelRows:
    """Join rows of one label each, as Open Images has them: labels that are not named are not known."""
    values = ClassValues()
    wrong = next((text for text in confidence.texts() if not values.accepts(text) or values[text] < 0), None)
    if wrong is not None:
        raise UserError(
            f"{rows.path}: confidence {shorten(repr(wrong), 40)}: expected 1 or 0; write these into the column, by a "
            "threshold of your choice (no key sets one)"
        )
    given = np.array([values[text] for text in confidence.texts()], np.int8)[confidence.codes]
    if not all(map(len, rows.sets)):
        raise UserError(f"{rows.path}: a row has no label; correct or remove it")
    assert rows.codes is not None
    numbers = {label: number for number, label in enumerate(sorted({labels[0] for labels in rows.sets}))}
    label_of_row = np.array([numbers[labels[0]] for labels in rows.sets])[rows.codes]
    images = DistinctValues()
    images.add(rows.names)
    require_size(len(images), len(numbers), rows.path)
    matrix = np.full((len(images), len(numbers)), UNKNOWN, np.int8)
    matrix[images.codes, label_of_row] = given
    wrong_rows = np.flatnonzero(matrix[images.codes, label_of_row] != given)
    if len(wrong_rows):
        shown = _show_images(rows, wrong_rows)
        raise UserError(f"{rows.path} says of one label that it is and is not in an image: {shown}; keep one row")
    first_rows = np.unique(images.codes, return_index=True)[1]
    splits = None if rows.splits is None else rows.splits[first_rows]
    if splits is not None and len(wrong_rows := np.flatnonzero(splits[images.codes] != rows.splits)):
        shown = _show_images(rows, wrong_rows)
        raise UserError(f"{rows.path} gives rows of one image several splits: {shown}; correct them")
    return rows._replace(names=list(images), codes=None, sets=[], matrix=matrix, classes=list(numbers), splits=splits)


def _show_images(rows: LabelRows, wrong_rows: np.ndarray) -> str:
    return first_names(list(dict.fromkeys(rows.names[row] for row in wrong_rows.tolist())))


def require_size(images: int, classes: int, path: str) -> None:
    """Raise a UserError if a matrix of labels would fill the memory."""
    if images * classes > _MOST_LABELS:
        raise UserError(
            f"{path}: {count(images, 'image')} of {classes:,} classes each; expected at most 8 GiB of labels: is it "
            "the column of labels (DATA.TABLE.LABELS)?"
        )


def group_by_split(tables: Mapping[str, Rows]) -> dict[str, tuple[Rows, np.ndarray]]:
    """Return table and rows of each split, int64 (rows,).

    ``tables``, of ``names`` and ``splits``, are one for each split, or one for all under "": by its splits, or all of
    its rows are "train".
    """
    if "" not in tables:
        return {split: (rows, np.arange(len(rows.names))) for split, rows in tables.items()}
    rows = tables[""]
    splits = np.full(len(rows.names), "train") if rows.splits is None else rows.splits
    return {word: (rows, np.flatnonzero(splits == word)) for word in np.unique(splits).tolist() if word}


def describe_other_splits(rows: Any) -> list[str]:
    """Return lines about images that neither training nor evaluation reads, with the words of their splits.

    ``rows`` have ``path``, ``names`` and ``splits``, as ``group_by_split`` takes under "".
    """
    if rows.splits is None:
        return []
    numbers, notices = Counter(rows.splits.tolist()), []
    if without := numbers.pop("", 0):
        images = first_names([rows.names[row] for row in np.flatnonzero(rows.splits == "").tolist()])
        notices.append(f"{rows.path}: {count(without, 'image')} without a split, not used: {images}")
    evaluated = "val" if "val" in numbers else "test"
    others = {word: number for word, number in numbers.most_common() if word not in ("train", evaluated)}
    if others:
        listed = shorten(", ".join(f"{number:,} of {word}" for word, number in others.items()), 120)
        notices.append(
            f"{rows.path}: {count(sum(others.values()), 'image')} of other splits than train and {evaluated}, not used "
            f"unless -split names theirs: {listed}"
        )
    return notices
