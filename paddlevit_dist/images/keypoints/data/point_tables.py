"""Tables of keypoints: a row for each image with columns of coordinates (wide), or a row for each point (long)."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....core.runtime import column_roles as roles
from ....core.runtime.errors import UserError
from ....core.runtime.printing import count, shorten
from ....core.runtime.spelling import compose
from ....core.runtime.text_files import is_whole
from ...data.class_cells import read_numbers, wrong_cell
from ...data.data_warnings import first_names
from ...data.label_layouts import find_image_column, find_split_columns, find_split_words
from ...data.label_rows import group_by_split
from ...data.table_columns import LabelColumns, open_columns

_VISIBILITY = "|".join(roles.VISIBILITY.words)
_BEFORE = re.compile(rf"(x|y|{_VISIBILITY})(?:[ _.\-]+(.+)|(\d+))", re.IGNORECASE)  # x1, x_nose
_BEHIND = re.compile(rf"(.+?)(?:[ _.\-]+(x|y|{_VISIBILITY})|([XYV]))", re.IGNORECASE)  # nose_x, LeftEyeX
_LONGEST_HEADING = 200  # characters; the forms take a time that grows with the square
_POINT_CELL = "a number, or an empty cell for a point that is not labeled"
_SEEN = {"true": 2.0, "false": 0.0}  # visibilities
_FORMS = (
    "expected columns image, x1, y1, x2, y2 and so on, or nose_x, nose_y and so on; or a row for each point with the "
    "columns image, point, x, y"
)


class PointRows(NamedTuple):
    """The images of a table, all splits together, with one object each.

    Attributes:
        path: of the table.
        names: of the images, as written.
        point_names: of K points; those with numbers, such as x1, are point 1 and so on, in the order of their numbers.
        points: float64 (images, K, 3), x, y in pixels and visibility: 0 where a cell is empty, else 2 without a column.
        splits: split of each image, "" if it has none; None: the table has no such column.
        spacings: float64 (images, 2), width and height of a pixel in millimeters; None: the table does not say.
        unused: headings of the columns that are none of these.
    """

    path: str
    names: list[str]
    point_names: list[str]
    points: np.ndarray
    splits: np.ndarray | None
    spacings: np.ndarray | None
    unused: list[str]


class _Columns(NamedTuple):
    """The columns of a table: its image, split and spacing, and of each point x, y and visibility (None: no column)."""

    image: int
    split: int | None
    spacing: list[int]
    point: int | None  # column with the name of the point; None: wide
    names: list[str]  # of points of a wide table
    places: list[tuple[int, int, int | None]]
    lone: str = ""  # a column with one coordinate of a point that has no other


def read_points(path: str) -> PointRows:
    """Read a table in wide or long form.

    Raises:
        UserError: the table is damaged, its columns are not found, a cell is not a number, a point has only one
            coordinate, or an image or a point of an image has two rows.
    """
    table = open_columns(path)
    columns = _find_columns(table)
    if columns.lone:
        raise UserError(
            f"{path}: column {shorten(columns.lone, 60)} is one coordinate of a point whose other has no column: "
            "expected x and y of each point; rename the column, or remove it"
        )
    cells = {column: list[Any]() for column in (columns.image, columns.split, columns.point) if column is not None}
    places = {column for place in (columns.spacing, *columns.places) for column in place if column is not None}
    seen, parts = {visibility for *_, visibility in columns.places}, {column: list[np.ndarray]() for column in places}
    for batch in table.batches([*cells, *parts]):
        first = len(cells[columns.image])
        for texts, part in zip(cells.values(), batch):
            texts += part
        for (column, arrays), part in zip(parts.items(), batch[len(cells) :]):
            arrays.append(read_numbers(table, column, first, part, _POINT_CELL, _SEEN if column in seen else {}))
    images = [compose(str(cell).strip()) if cell is not None else "" for cell in cells[columns.image]]
    if not images:
        raise UserError(f"{path} has headings, but no rows")
    if not all(images):
        raise UserError(f"{table.locate(images.index(''))}: no image is named; correct or remove the row")
    numbers = {column: np.concatenate(arrays) for column, arrays in parts.items()}
    values = np.stack([_read_point(table, numbers, *place) for place in columns.places], axis=1)  # (rows, points, 3)
    if columns.point is None:
        firsts = _require_once(table, images, "image")
        order, names = _order_points(columns.names)
        values = values[:, order]
    else:
        labels = ["" if cell is None else _join_words(str(cell)) for cell in cells[columns.point]]
        if not all(labels):
            raise UserError(f"{table.locate(labels.index(''))}: no point is named; correct or remove the row")
        _require_once(table, list(zip(images, labels)), "point of an image")
        names, values, firsts = _gather(images, labels, values[:, 0])
    first_rows = list(firsts.values())
    return PointRows(
        path,
        list(firsts),
        names,
        values,
        _read_splits(table, columns.split, cells, first_rows),
        _read_spacings(table, columns.spacing, numbers, first_rows),
        [heading for column, heading in enumerate(table.headings) if heading and column not in {*cells, *parts}],
    )


def holds_points(path: str) -> bool:
    """Return whether a table has columns of images and of points."""
    try:
        return bool(_find_columns(open_columns(path)).places)
    except UserError:
        return False


def group_splits(tables: Mapping[str, PointRows]) -> dict[str, tuple[PointRows, np.ndarray]]:
    """Return table and rows of each split; ``tables`` are one for each split, or under "" one for all.

    All have the points in the order of the first. A ``UserError`` says that tables of splits have other points.
    """
    first = tables.get("train", next(iter(tables.values())))
    for rows in tables.values():
        if set(rows.point_names) != set(first.point_names):
            names = f"{first_names(rows.point_names)}, but {first.path} {first_names(first.point_names)}"
            raise UserError(f"{rows.path} has the points {names}: all splits need the same points")
    return group_by_split({word: _arrange(rows, first) for word, rows in tables.items()})


def _arrange(rows: PointRows, first: PointRows) -> PointRows:
    """Return a table with the points in the order of another with the same names."""
    order = [rows.point_names.index(name) for name in first.point_names]
    return rows._replace(point_names=first.point_names, points=rows.points[:, order])


def _order_points(names: Sequence[str]) -> tuple[list[int], list[str]]:
    """Return the order of points, by number if all are numbers, and their names in this order."""
    if not all(map(is_whole, names)):
        return list(range(len(names))), list(names)
    order = sorted(range(len(names)), key=lambda place: int(names[place]))
    return order, [f"point {names[place]}" for place in order]


def _join_words(text: str) -> str:
    """Return a name on one line."""
    return " ".join(compose(text).split())


def _find_columns(table: LabelColumns) -> _Columns:
    headings = table.headings
    image, (split, _) = find_image_column(table), find_split_columns(table)
    spacing = roles.SPACING.find_all(headings)[:1] or roles.find_together(roles.SPACINGS, headings)
    point, x, y = (role.find(headings) for role in (roles.POINT, roles.Role(("x",)), roles.Role(("y",))))
    if point is not None and x is not None and y is not None:
        if point == image:
            image = next(iter(roles.IMAGE_OF_POINT.find_all(headings)), image)
        return _Columns(image, split, spacing, point, [], [(x, y, roles.VISIBILITY.find(headings))])
    taken = {image, split, *spacing}
    forms = [_pair_columns(headings, form, taken) for form in (_BEFORE, _BEHIND)]
    found, lone = max(forms, key=lambda columns: len(columns[0]))
    if not found:
        raise UserError(f"{table.path}: no points among its columns {shorten(', '.join(headings), 120)}: {_FORMS}")
    return _Columns(image, split, spacing, None, list(found), list(found.values()), lone)


def _pair_columns(
    headings: Sequence[str], form: re.Pattern[str], taken: set[int | None]
) -> tuple[dict[str, tuple[int, int, int | None]], str]:
    """Return name -> columns of x, y and visibility, for points with both coordinates; and a column of one with one."""
    parts: dict[str, dict[str, int]] = {}
    for column, heading in enumerate(headings):
        is_name = column not in taken and len(heading) <= _LONGEST_HEADING
        match = form.fullmatch(heading.strip()) if is_name else None
        if match is None:
            continue
        one, two, three = match.groups()
        if form is _BEHIND and two is None and not (three.isupper() and one[-1].isalpha() and not one[-1].isupper()):
            continue  # a word that ends in x or y
        axis, name = (one, two or three) if form is _BEFORE else (two or three, one)
        parts.setdefault(_join_words(name), {}).setdefault(axis[0].lower(), column)
    lone = [at[axis] for at in parts.values() if len({"x", "y"} & set(at)) == 1 for axis in ("x", "y") if axis in at]
    pairs = {name: (at["x"], at["y"], at.get("v")) for name, at in parts.items() if {"x", "y"} <= set(at)}
    return pairs, headings[lone[0]] if lone else ""


def _read_point(
    table: LabelColumns, numbers: Mapping[int, np.ndarray], x: int, y: int, visibility: int | None
) -> np.ndarray:
    """Return a point of all rows, float64 (rows, 3); zeros where it is not labeled."""
    places = np.stack([numbers[x], numbers[y]], axis=1)
    is_given = ~np.isnan(places).any(axis=1)
    seen = np.full(len(places), 2.0)
    if visibility is not None:
        seen = np.nan_to_num(numbers[visibility])
        wrong = np.flatnonzero(~np.isin(seen, (0, 1, 2)))
        if len(wrong):
            row = int(wrong[0])
            raise wrong_cell(table, row, visibility, f"{seen[row]:g}", "0 (not labeled), 1 (hidden) or 2 (visible)")
    lone = np.flatnonzero((np.isnan(places).sum(axis=1) == 1) & (seen > 0))
    if len(lone):
        row = int(lone[0])
        empty, other = (x, y) if np.isnan(places[row, 0]) else (y, x)
        heading = shorten(table.headings[other], 60)
        raise wrong_cell(table, row, empty, "", f"a number, as in column {heading}, or both cells empty")
    point = np.concatenate([places, seen[:, None]], axis=1)
    return np.where((is_given & (seen > 0))[:, None], point, 0.0)


def _require_once(table: LabelColumns, keys: Sequence[Any], noun: str) -> dict[Any, int]:
    """Return the first row of each key; raise UserError if one has two rows."""
    firsts: dict[Any, int] = {}
    for row, key in enumerate(keys):
        if firsts.setdefault(key, row) != row:
            shown = key if isinstance(key, str) else ", ".join(key)
            raise UserError(f"{table.locate(row)}: {shorten(shown, 80)} again: expected one row for each {noun}")
    return firsts


def _gather(
    images: Sequence[str], labels: Sequence[str], values: np.ndarray
) -> tuple[list[str], np.ndarray, dict[str, int]]:
    """Return names of points, points of each image, float64 (images, K, 3), and the first row of each image."""
    firsts: dict[str, int] = {}
    for row, image in enumerate(images):
        firsts.setdefault(image, row)
    place_of = {image: place for place, image in enumerate(firsts)}
    found = list(dict.fromkeys(labels))
    order, names = _order_points(found)
    number_of = {found[place]: number for number, place in enumerate(order)}
    points = np.zeros((len(firsts), len(names), 3))
    points[[place_of[image] for image in images], [number_of[label] for label in labels]] = values
    return names, points, firsts


def _read_splits(
    table: LabelColumns, column: int | None, cells: Mapping[int, list[Any]], rows: Sequence[int]
) -> np.ndarray | None:
    if column is None:
        return None
    texts = ["" if cells[column][row] is None else str(cells[column][row]).strip() for row in rows]
    return np.array(find_split_words(table, column, texts))


def _read_spacings(
    table: LabelColumns, columns: Sequence[int], numbers: Mapping[int, np.ndarray], rows: Sequence[int]
) -> np.ndarray | None:
    """Return the width and height of a pixel of each image, float64 (images, 2); None without such columns."""
    if not columns:
        return None
    sizes = np.stack([numbers[column][list(rows)] for column in columns], axis=1)
    wrong = np.flatnonzero(~(sizes > 0).all(axis=1))
    if len(wrong):
        row, column = rows[int(wrong[0])], columns[int(np.argmin(sizes[wrong[0]] > 0))]
        cell = "" if np.isnan(numbers[column][row]) else f"{numbers[column][row]:g}"
        raise wrong_cell(table, row, column, cell, "millimeters of a pixel, above 0, for each image")
    return np.broadcast_to(sizes, (len(sizes), 2))


def describe_rows(rows: PointRows) -> str:
    """Return what a table has, for the log."""
    labeled = int((rows.points[:, :, 2] > 0).sum())
    spacing = "; sizes of pixels in millimeters" if rows.spacings is not None else ""
    named = f"{count(rows.points.shape[1], 'point')} each, {labeled:,} labeled"
    unused = f"; not used: {shorten(', '.join(rows.unused), 120)}" if rows.unused else ""
    return f"{rows.path}: {count(len(rows.names), 'image')}, {named}{spacing}{unused}"
