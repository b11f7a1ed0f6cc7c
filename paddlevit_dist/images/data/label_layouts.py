"""What the columns of a table of labels mean: images, labels, splits and folds, by headings and first rows."""

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...core.runtime import column_roles as roles
from ...core.runtime.errors import UserError
from ...core.runtime.printing import shorten
from ...core.runtime.spelling import compose
from .class_cells import ClassValues, has_class_values, has_known_values, has_marks, has_vectors
from .formats import get_suffix, readable_suffixes, split_in_name
from .table_columns import Column, LabelColumns, open_columns

LABEL, LABELS, COLUMNS, ROWS, VECTOR = "label", "labels", "columns", "rows", "vector"  # kinds of layouts
_LOOKED_AT = 20  # cells that show whether a column has paths of images


class TableChoices(NamedTuple):
    """What the user says about a table, DATA.TABLE: headings of the columns with images and labels, fold, empty cells.

    Attributes:
        image: None: found by its heading and content.
        labels: one column of labels, or one of each class; empty: found.
        fold: value of the column of folds that is validation; None: the first one.
        is_empty_absent: an empty cell in the column of a class means that the image does not have it.
    """

    image: str | None = None
    labels: tuple[str, ...] = ()
    fold: str | None = None
    is_empty_absent: bool = False


class LabelLayout(NamedTuple):
    """The columns of a table.

    Attributes:
        kind: LABEL (one in each cell), LABELS (a list in each cell), VECTOR (0 or 1 of each class in it), COLUMNS
            (one of each class), or ROWS (one label of an image in each row, with its confidence).
        image, split, fold, confidence: columns; None: there is none.
        labels: the column of labels, or the column of each class.
        unused: headings of the others; "column 3" if there is none.
    """

    kind: str
    image: int
    labels: list[int]
    split: int | None
    fold: int | None
    confidence: int | None
    unused: list[str]


def find_layout(table: LabelColumns, has_several: bool, choices: TableChoices) -> LabelLayout:
    """Find what the columns of a table mean.

    Args:
        table: whose first rows are read.
        has_several: the task reads several labels of an image.
        choices: the user's, before anything that is found.

    Raises:
        UserError: a chosen column does not exist, or there are no images or no labels; with the headings.
    """
    image = find_image_column(table, chosen=choices.image)
    chosen = require_columns(table, choices.labels, "DATA.TABLE.LABELS")
    split, fold = find_split_columns(table, chosen)
    others = [column for column in range(len(table.headings)) if column not in (image, split, fold)]
    boxes = next((table.headings[column] for column in others if _is_box(table.headings[column])), None)
    if boxes is not None and not chosen:
        raise UserError(
            f"{table.path} has boxes (column {shorten(boxes, 60)}), which are not read from tables, but from COCO, VOC "
            "and YOLO; to read classes of whole images from it, set DATA.TABLE.LABELS to their column"
        )
    found = _chosen_labels(table, chosen, has_several) if chosen else _find_labels(table, others, has_several)
    if found is None:
        raise UserError(
            f"{table.path}: no column of labels among {shorten(', '.join(table.headings), 120)}: name it label, or set "
            "DATA.TABLE.LABELS to the column of labels, or to the columns of the classes"
            f"{_show_first(table, others) if has_several else ''}"
        )
    kind, labels = found
    if kind in (LABEL, LABELS) and has_vectors(table.head[labels[0]]):
        kind = VECTOR
    if kind in (ROWS, VECTOR) and not has_several:
        raise UserError(
            f"{table.path}: column {table.headings[labels[0]]} has several labels of an image; expected one (TASK "
            "multi_label reads several)"
        )
    confidence = roles.CONFIDENCE.find(table.headings) if kind == ROWS else None
    used = {*labels, confidence}
    rest = [column for column in others if column not in used and (table.headings[column] or any(table.head[column]))]
    unused = [table.headings[column] or f"column {column + 1}" for column in rest]
    return LabelLayout(kind, image, labels, split, fold, confidence, unused)


def holds_labels(path: str) -> bool:
    """Return whether a table has a column of images, and labels, one or several of each."""
    return bool(_find_label_headings(path))


def is_labeled_as(path: str, other: str) -> bool:
    """Return whether a table has labels, in a column like that of another table or under a word for labels.

    A test.csv with the age of each image has no labels if train.csv has a column label.
    """
    headings, others = _find_label_headings(path), _find_label_headings(other)
    words = set(map(roles.simplify_heading, (*roles.LABEL.words, *roles.LABELS.words)))
    return bool(headings & (others | words)) or not others & words


def _find_label_headings(path: str) -> set[str]:
    """Return the simplified headings of labels; none if a table has no images or no labels."""
    try:
        table = open_columns(path)
        image = find_image_column(table)
    except UserError:  # the table that is read reports it
        return set()
    apart = {image, *find_split_columns(table)}
    apart |= {*roles.SPLIT.find_all(table.headings), *roles.FOLD.find_all(table.headings)}
    others = [column for column in range(len(table.headings)) if column not in apart]
    if any(_is_box(table.headings[column]) for column in others):
        return set()
    found = [_find_labels(table, others, has_several) for has_several in (False, True)]
    columns = {column for each in found if each for column in each[1]}
    filled = [column for column in columns if any(str(cell or "").strip() for cell in table.head[column])]
    return {roles.simplify_heading(table.headings[column]) for column in filled}


def holds_boxes(path: str) -> bool:
    """Return whether a table has columns of boxes."""
    try:
        return find_boxes(open_columns(path).headings) is not None
    except UserError:  # the table that is read reports it
        return False


def find_boxes(headings: Sequence[str]) -> tuple[str, list[int]] | None:
    """Return the form of boxes, and the columns of their four sides, or the one with all of them; None: no boxes.

    The form of boxes in words, as competitions write them, is "".
    """
    groups = ((form, roles.find_together(groups, headings)) for form, groups in roles.BOX_SIDES.items())
    whole = ((form, role.find_all(headings)[:1]) for form, role in (*roles.BOXES.items(), ("", roles.BOXES_IN_WORDS)))
    return next(((form, columns) for form, columns in (*groups, *whole) if columns), None)


def find_image_column(table: LabelColumns, default: int | None = None, chosen: str | None = None) -> int:
    """Return the column of images: ``chosen``, the likeliest, or ``default``; else a UserError with the headings."""
    if chosen is not None:
        return require_columns(table, [chosen], "DATA.TABLE.IMAGE")[0]
    column = roles.NAME._replace(is_cell=_has_image_paths).find(table.headings, None, table.head)
    column = default if column is None else column
    if column is None:
        raise UserError(
            f"{table.path}: no column of images among {shorten(', '.join(table.headings), 120)}: name it image, or set "
            "DATA.TABLE.IMAGE"
        )
    return column


def find_split_columns(table: LabelColumns, labels: Sequence[int] = ()) -> tuple[int | None, int | None]:
    """Return the columns of splits and of folds, not among ``labels``; None for none, or a class."""
    headings, texts = table.headings, table.head
    columns = [column for column in range(len(headings)) if column not in labels]
    splits, marks, folds = (role.find_all(headings, columns) for role in (roles.SPLIT, roles.VALIDATION, roles.FOLD))
    apart = {*splits, *marks, *folds}
    named = [column for column in columns if column not in apart and roles.simplify_heading(headings[column])]

    def is_class(column: int) -> bool:
        """Return whether a column has 0 and 1 only, as has one that is neither split nor fold."""
        return has_marks(texts[column]) and any(has_marks(texts[other]) for other in named)

    def is_split(column: int) -> bool:
        """Return whether a column contains words for splits, or tells validation rows; "split" unless a class."""
        if column in marks:
            return len(headings) > 2 and {ClassValues().get_known(cell) for cell in texts[column]} <= {0, 1, -1}
        if roles.Role(roles.SPLIT.words[:1]).has(headings[column]):
            return not is_class(column)
        return any(isinstance(cell, str) and split_in_name(cell) for cell in texts[column])

    split, fold = next(filter(is_split, [*splits, *marks]), None), next(iter(folds), None)
    return split, None if fold is not None and split is not None and is_class(fold) else fold


def find_split_words(table: LabelColumns, column: int, texts: Sequence[str]) -> list[str]:
    """Return the split that each text in the column of splits means, or the text itself."""
    if roles.VALIDATION.has(table.headings[column]):
        words: dict[int | None, str] = {0: "train", 1: "val"}
        return [words.get(value, text) for text, value in zip(texts, map(ClassValues().get_known, texts))]
    return [split_in_name(text) or text for text in texts]


def _is_box(heading: str) -> bool:
    return roles.BOX_SIGN.has(heading) or roles.simplify_heading(heading).startswith("bbox")


def _show_first(table: LabelColumns, columns: Sequence[int]) -> str:
    """Return the first cell, with its place, that is not one in the column of a class; empty if there is none."""
    for column in columns:
        wrong = next((row for row, cell in enumerate(table.head[column]) if not ClassValues().accepts(cell)), None)
        if wrong is not None:
            shown = f"{shorten(table.headings[column], 60)}: {shorten(repr(table.head[column][wrong]), 60)}"
            return f" with 1 and 0 ({table.locate(wrong)}, column {shown})"
    return ""


def require_columns(table: LabelColumns, headings: Sequence[str], key: str) -> list[int]:
    """Return the columns with these headings, which a key sets; a ``UserError`` if there is none."""
    places = {heading: column for column, heading in enumerate(table.headings)}
    for heading in headings:
        if compose(heading) not in places:
            raise UserError(
                f"{table.path} has no column {shorten(heading, 60)} ({key}), only "
                f"{shorten(', '.join(table.headings), 120)}"
            )
    return [places[compose(heading)] for heading in headings]


def _has_image_paths(cells: Column) -> bool:
    given = [cell for cell in cells[:_LOOKED_AT] if cell]
    return bool(given) and all(
        isinstance(cell, str) and get_suffix(os.fsencode(cell.strip())) in readable_suffixes() for cell in given
    )


def _chosen_labels(table: LabelColumns, chosen: list[int], has_several: bool) -> tuple[str, list[int]]:
    is_class = [has_class_values(table.head[column]) for column in chosen]
    if len(chosen) > 1 or (has_several and all(is_class)):
        return COLUMNS, chosen
    return (LABELS if has_several else LABEL), chosen


def _find_labels(table: LabelColumns, others: Sequence[int], has_several: bool) -> tuple[str, list[int]] | None:
    """Return kind and columns of the labels; None if none are found."""
    classes = [
        column
        for column in others
        if has_class_values(table.head[column])
        and table.headings[column]
        and (not roles.ROW_NUMBER.fullmatch(table.headings[column].lower()) or has_marks(table.head[column]))
    ]
    if not any(has_known_values(table.head[column]) for column in classes):  # columns without any content
        classes = []
    for kind, columns in _candidates(table, others, classes if len(classes) > 1 else [], has_several):
        if columns:
            return kind, columns
    if len(others) == 1:
        return (LABELS if has_several else LABEL), list(others)
    return (COLUMNS, classes) if classes and has_several else None


def _candidates(
    table: LabelColumns, others: Sequence[int], classes: list[int], has_several: bool
) -> Iterator[tuple[str, list[int]]]:
    """Yield kinds of layouts with their columns, none if there are none, the most likely first."""
    of_row, label, labels = (
        role.find_all(table.headings, others)[:1] for role in (roles.LABEL_OF_ROW, roles.LABEL, roles.LABELS)
    )
    if of_row and roles.CONFIDENCE.find(table.headings) is not None:
        yield ROWS, of_row
    single, lists = (LABELS if has_several else LABEL, label), (LABELS, labels)
    if has_several and set(labels) <= set(classes):  # a class among others that is called so
        lists = (LABELS, [])
    yield from (lists, (COLUMNS, classes), single) if has_several else (single, lists, (COLUMNS, classes))
