"""Images with boxes in a table, as competitions publish them: ``-dataset=box_table``."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ....core.runtime import column_roles as roles
from ....core.runtime.errors import UserError
from ....core.runtime.printing import count, shorten
from ....core.runtime.tables import is_number
from ....core.tasks.dataset import require_split
from ...data.annotated_files import stamp
from ...data.class_cells import EMPTY, read_numbers, wrong_cell
from ...data.data_warnings import DataWarnings
from ...data.formats import stems
from ...data.label_classes import find_classes, require_known
from ...data.label_layouts import (
    TableChoices,
    find_boxes,
    find_image_column,
    find_split_columns,
    holds_boxes,
    require_columns,
)
from ...data.label_rows import DistinctValues, LabelRows, describe_other_splits, group_by_split, read_names, read_splits
from ...data.label_tables import describe_others, find_images, find_tables_of_objects, has_validation
from ...data.reading import require_folder
from ...data.table_columns import Column, LabelColumns, open_columns
from ...data.table_files import ImageFinder
from ..odd_objects import are_fractions, note_boxes, require_sides
from ..settings import DetectionSettings
from .indexed_images import (
    OBJECT,
    VERSION,
    AnnotationSource,
    IndexedDetectionImages,
    SourceFacts,
    ensure_annotation_index,
)
from .stored_sizes import measure

_CELL = "a number, or all sides of the box empty for an image without boxes"
_BRACKETS = str.maketrans("[](),;", " " * 6)
_IN_WORDS = {6: roles.XYXY, 5: roles.XYWH}  # words of a box after which there is another -> form of its last four


class BoxRows(NamedTuple):
    """The boxes of a table, all splits together; an image without boxes has a row without one.

    Attributes:
        labels: image, class and split of each box.
        boxes: float64 (boxes, 4), as the table writes them; NaN: the row has no box.
        is_crowd: bool (boxes,), whether a box is around a group of objects.
        form: of the boxes.
    """

    labels: LabelRows
    boxes: np.ndarray
    is_crowd: np.ndarray
    form: str


class BoxTable(IndexedDetectionImages):
    """Images with the boxes that a table names, one in each row, or all of an image in a cell; without masks.

    Sides are columns such as ``xmin, ymin, xmax, ymax`` or ``x, y, width, height``, in pixels or, if all are from 0 to
    1, as fractions of the image; or a column such as ``bbox`` with text like ``[834, 222, 56, 36]``. An image whose
    sides are empty has no boxes. A column ``split`` or ``fold``, or a table for each split, divides the images; "test"
    replaces a missing "val".
    """

    layout = "with a table such as boxes.csv (columns image,class,xmin,ymin,xmax,ymax), or the table itself"

    def __init__(
        self,
        data_path: str | None,
        split: str,
        cache_folder: Path,
        choices: TableChoices = TableChoices(),  # noqa: B008 - it is not changed
        form: str | None = None,
        table: str | None = None,
        images: str | None = None,
        turned: bool = True,
    ) -> None:
        """Open ``split``, with boxes on images ``turned`` by EXIF or not; most programs display them turned.

        Args:
            data_path: folder with a table for all splits or for each, or a table.
            choices: columns that the user names.
            form: of boxes, "xyxy", "xywh" or "cxcywh"; None: as the headings say.
            table: the split's table, absolute or below ``data_path``; None: found by its name.
            images: folder of the images; None: that of the table.

        Raises:
            UserError: there is no table or split, its columns or cells are wrong, or images are missing.
        """
        self.split = split
        tables, base = find_tables_of_objects(data_path, "box_table", self.layout, holds_boxes, split, table)
        read = {word: read_boxes(path, choices, form) for word, path in tables.items()}
        parts = group_by_split({word: rows.labels for word, rows in read.items()})
        used = "test" if split == "val" and "val" not in parts and "test" in parts else split
        remark = ": add a column split or a table val.csv, or set DATA.VAL_FRACTION 0.2" if split == "val" else ""
        require_split(used, list(parts), f"box_table ({base})", remark)
        classes = find_classes(parts, used, base)
        require_known(parts[used], classes)
        if not classes.labels:
            raise UserError(f"{parts[used][0].path}: no row has a box")
        (labels, selected), rows = parts[used], read.get(used) or read[""]
        assert labels.codes is not None
        root = base if images is None else require_folder(images, "images", "of images")
        place: dict[str, int] = {}
        owners = np.array([place.setdefault(labels.names[row], len(place)) for row in selected.tolist()])
        finder, known = ImageFinder(root), used if len(tables) > 1 else ""
        files = find_images(finder, labels.path, list(place), root, known, "DATA.TABLE.IMAGES")
        number_of = {label: number for number, label in enumerate(classes.labels)}
        of_set = np.array([number_of.get(own[0], -1) if own else -1 for own in labels.sets])
        numbers = of_set[labels.codes[selected]]
        given = ~np.isnan(rows.boxes[selected]).any(axis=1)
        arrays = owners[given], numbers[given], rows.boxes[selected][given], rows.is_crowd[selected][given]
        ids = list(map(int, classes.labels)) if all(map(str.isdecimal, classes.labels)) else []
        ids = ids if len(set(ids)) == len(ids) > 0 else list(range(len(classes.labels)))
        content = hashlib.sha256(repr((classes, rows.form, form)).encode())
        for array in arrays:
            content.update(array.tobytes())
        key = stamp(f"box_table {VERSION} {turned} {content.hexdigest()}\n", files)
        facts = SourceFacts(classes.names, ids, False, True, ())
        index = ensure_annotation_index(
            cache_folder,
            f"box_table-{split}",
            key,
            lambda: _build(labels.path, facts, root, files, arrays, rows.form, form is None, turned),
        )
        super().__init__(root, index, labels.path, turned)
        self.published_as = {"split": used}
        note = [f"note: the {split} images are the {used} images of {labels.path}"] if used != split else []
        is_first = used == "train" or "train" not in parts
        if is_first:
            named = {
                word: finder.find(
                    sorted(set(each.labels.names)),
                    finder.find_folder(each.labels.path),
                    word if len(tables) > 1 else "",
                )
                for word, each in read.items()
            }
            note += describe_others(finder, named, labels.path)
        divided = describe_other_splits(labels) if is_first and "" in tables else []
        self.notices = [*labels.notices, *divided, *note, *self.notices]

    @classmethod
    def open(cls, config: DetectionSettings, split: str, cache_folder: Path) -> "BoxTable":
        """Open the split of a configuration."""
        data, table = config.DATA, config.DATA.TABLE
        chosen = {"train": data.TRAIN_ANNOTATIONS, "val": data.VAL_ANNOTATIONS}.get(split)
        choices = TableChoices(table.IMAGE, tuple(table.LABELS), table.FOLD)
        turned = data.EXIF_ROTATE is not False
        return cls(data.DATA_PATH, split, cache_folder, choices, table.BOXES, chosen, table.IMAGES, turned)

    @staticmethod
    def has_validation(data_path: str | None) -> bool:
        """Return whether there are rows or a table of validation images, or else of test images."""
        return has_validation(data_path, holds_boxes)


def read_boxes(path: str, choices: TableChoices, form: str | None) -> BoxRows:
    """Read the boxes of a table; ``form`` is the user's.

    Raises:
        UserError: the table is damaged, its columns are not found, or a cell is not what its column has.
    """
    table = open_columns(path)
    found = find_boxes(table.headings)
    if found is None:
        raise UserError(
            f"{path}: no boxes among its columns {shorten(', '.join(table.headings), 120)}: expected xmin, ymin, xmax, "
            "ymax, or x, y, width, height, or bbox with text such as [834, 222, 56, 36]"
        )
    image, sides = find_image_column(table, chosen=choices.image), found[1]
    others = [column for column in range(len(table.headings)) if column not in (image, *sides)]
    if len(choices.labels) > 1:
        raise UserError(f"{path}: DATA.TABLE.LABELS {', '.join(choices.labels)}: expected one column, of classes")
    chosen = require_columns(table, choices.labels, "DATA.TABLE.LABELS")
    label = chosen[0] if chosen else roles.LABEL.find(table.headings, others)
    split, fold = find_split_columns(table, [] if label is None else [label])
    crowd = roles.CROWD.find(table.headings, others)
    marks = [column for column in (label, split, fold) if column is not None]
    distinct: dict[int | None, DistinctValues] = {column: DistinctValues() for column in marks}
    names, numbers, crowds, cells = list[str](), list[np.ndarray](), list[np.ndarray](), list[Any]()
    for batch in table.batches([image, *marks, *([] if crowd is None else [crowd]), *sides]):
        first = len(names)
        names += read_names(table, first, batch[0])
        for values, part in zip(distinct.values(), batch[1:]):
            values.add(["" if cell is None else str(cell).strip() for cell in part])
        if crowd is None:
            crowds.append(np.zeros(len(batch[0]), bool))
        else:
            marked = read_numbers(table, crowd, first, batch[1 + len(marks)], "1 or 0", {"true": 1.0, "false": 0.0})
            crowds.append(marked == 1)
        if len(sides) == 1:
            cells += batch[-1]
        else:
            numbers.append(_read_sides(table, sides, first, batch[-4:]))
    if not names:
        raise UserError(f"{path} has headings, but no rows")
    notices = list[str]()
    splits, has_folds = read_splits(table, split, fold, distinct, choices.fold, notices)
    if splits is not None and len(set(pairs := list(zip(names, splits.tolist())))) > len(set(names)):
        split_of = dict(reversed(pairs))
        wrong = next(name for name, word in pairs if split_of[name] != word)
        raise UserError(f"{path} gives rows of one image several splits: {shorten(wrong, 80)}; correct them")
    rows, texts = np.arange(len(names)), ["object"] * len(names)
    if label is not None:
        known = distinct[label].texts()
        texts = [known[code] for code in distinct[label].codes.tolist()]
    if numbers:
        boxes, own_form = np.concatenate(numbers), found[0]
    else:
        boxes, rows, words, own_form = _parse_cells(table, sides[0], cells, found[0])
        texts = words or [texts[row] for row in rows.tolist()]
    has_box = ~np.isnan(boxes).any(axis=1)
    classes = DistinctValues()
    classes.add([text if is_given else "" for text, is_given in zip(texts, has_box.tolist())])
    without = len(set(names) - {names[row] for row in rows[has_box].tolist()})
    listed = ", ".join(table.headings[side] for side in sides)
    labeled = "" if label is None else f", classes in column {table.headings[label]}"
    notices[:0] = [
        f"{path}: {count(int(has_box.sum()), 'box')} ({form or own_form}) in {listed}{labeled}; "
        f"{count(without, 'image')} without boxes"
    ]
    labels = LabelRows(
        path,
        [names[row] for row in rows.tolist()],
        classes.codes,
        [(text,) if text else () for text in classes],
        None,
        [],
        None if splits is None else splits[rows],
        has_folds,
        notices,
    )
    return BoxRows(labels, boxes, np.concatenate(crowds)[rows], form or own_form)


def _read_sides(table: LabelColumns, sides: Sequence[int], first: int, parts: Sequence[Column]) -> np.ndarray:
    """Return the sides of the rows from ``first`` on, float64 (rows, 4); NaN where all four are empty."""
    boxes = np.stack([read_numbers(table, side, first, part, _CELL) for side, part in zip(sides, parts)], axis=1)
    is_empty = np.isnan(boxes)
    lone = np.flatnonzero(is_empty.any(axis=1) & ~is_empty.all(axis=1))
    if len(lone):
        raise wrong_cell(table, first + int(lone[0]), sides[int(is_empty[lone[0]].argmax())], "", _CELL)
    return boxes


def _parse_cells(
    table: LabelColumns, column: int, cells: Sequence[Any], form: str
) -> tuple[np.ndarray, np.ndarray, list[str], str]:
    """Parse text with all boxes of a row.

    Returns:
        boxes float64 (boxes, 4), NaN for a row without; the row of each, int64; their classes, empty if the text has
        none; and their form, which is "" before if a box has words for class and confidence, too.
    """
    texts = ["" if cell is None else str(cell).strip() for cell in cells]
    words = [[] if text.lower() in EMPTY else text.translate(_BRACKETS).split() for text in texts]
    width, expected = 4, "[x, y, width, height] of each box, or nothing"
    if not form:
        expected = "class confidence xmin ymin xmax ymax, or confidence x y width height, of each box"
        width = next((number for number in _IN_WORDS if all(_has_confidences(own, number) for own in words)), 0)
        form = _IN_WORDS.get(width, form)
    boxes, rows, classes = list[Any](), list[int](), list[str]()
    for row, own in enumerate(words):
        if not width or len(own) % width or not all(is_number(word) for word in own[width - 4 :: width]):
            raise wrong_cell(table, row, column, cells[row], expected)
        for start in range(0, max(len(own), 1), width):
            sides = own[start + width - 4 : start + width]
            if not all(map(is_number, sides)):
                raise wrong_cell(table, row, column, cells[row], expected)
            boxes.append(list(map(float, sides)) or [np.nan] * 4)
            rows.append(row)
            classes += [own[start] if own else ""] * (width == 6)
    return np.array(boxes), np.array(rows), classes, form


def _has_confidences(words: Sequence[str], width: int) -> bool:
    """Return whether a cell has boxes of ``width`` words, with a number from 0 to 1 before the four sides of each."""
    confidences = words[width - 5 :: width]
    return len(words) % width == 0 and all(is_number(word) and 0 <= float(word) <= 1 for word in confidences)


def _build(
    path: str,
    facts: SourceFacts,
    root: str,
    files: Sequence[str],
    arrays: tuple[np.ndarray, ...],
    form: str,
    is_guessed: bool,
    turned: bool,
) -> AnnotationSource:
    """Return the source of the images of a split, whose sizes are measured.

    Args:
        path: of the table, for messages.
        arrays: position of the image, class, four numbers and crowd of each box.
        form: of the four numbers; ``is_guessed``: the headings say so, not the user.
    """
    (owners, labels, boxes, is_crowd), odd = arrays, DataWarnings()
    sizes = measure(files, turned)
    odd.note_all("image", "that cannot be read: its boxes are lost", np.array(files)[sizes[:, 0] == 0].tolist())
    limits, examples = sizes[owners], np.array(files)[owners]
    is_known = limits[:, 0] > 0
    if is_known.any() and are_fractions(boxes[is_known], limits[is_known]):
        if is_guessed and form == roles.XYWH:
            raise UserError(
                f"{path}: all sides of boxes are from 0 to 1, and x and y may be a corner or the center: set "
                "DATA.TABLE.BOXES xywh, or cxcywh as in YOLO"
            )
        odd.note_all("box", "with sides from 0 to 1, taken as parts of the image", examples.tolist())
        boxes = boxes * limits[:, [1, 0, 1, 0]]
    if form == roles.XYXY:
        boxes = np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1)
    elif form == roles.CXCYWH:
        boxes = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, 2:]], axis=1)
    elif is_guessed:
        require_sides(f"{path}: its column of boxes", boxes, limits, ", or set DATA.TABLE.BOXES xyxy")
    has_area = (boxes[:, 2:] > 0).all(axis=1)
    odd.note_all("object", "without an area, skipped in training", examples[~has_area].tolist())
    odd.note_all("object", "without a class, not used", examples[labels < 0].tolist())
    note_boxes(odd, examples[has_area & is_known], boxes[has_area & is_known], limits[has_area & is_known])
    kept = labels >= 0
    objects = np.zeros(int(kept.sum()), OBJECT)
    objects["box"], objects["area"] = boxes[kept], boxes[kept, 2:].clip(min=0).prod(axis=1)
    objects["is_crowd"], objects["label"], objects["id"] = is_crowd[kept], labels[kept], np.arange(1, len(objects) + 1)
    facts = facts._replace(notices=odd.lines())
    source = AnnotationSource.from_files(facts, root, files, stems(files), sizes, [objects[:0]] * len(files))
    return source._replace(owners=owners[kept], objects=objects)
