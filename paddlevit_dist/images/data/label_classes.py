"""The classes of a table of labels, and the labels of a split as numbers: one of each image, or a matrix."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.printing import count, shorten
from .data_warnings import first_names
from .image_dataset import name_folders, read_class_names
from .label_rows import LabelRows, is_number, require_size

TableSplit = tuple[LabelRows, np.ndarray]  # a table and the rows of a split, int64


class TableClasses(NamedTuple):
    """Classes in the order of their numbers: as the table calls them, and their names."""

    labels: list[str]
    names: list[str]


def find_classes(parts: Mapping[str, TableSplit], split: str, root: str) -> TableClasses:
    """Return the classes of the training rows, with folds also of validation; without training, of ``split``.

    Classes in columns keep their order, others are sorted, numbers by value. ``classes.txt`` in ``root`` names them as
    it names folders; if it lists the labels themselves, they have its order, and it may list more.

    Raises:
        UserError: ``classes.txt`` does not name these classes.
    """
    rows, selected = parts.get("train", parts[split])
    if rows.has_folds:
        selected = np.concatenate([selected, parts["val"][1]])
    if rows.codes is None:
        return TableClasses(rows.classes, name_folders(root, rows.classes))
    found = {label for number in np.unique(rows.codes[selected]).tolist() for label in rows.sets[number]}
    labels = sorted(found, key=lambda label: (float(label), label)) if all(map(is_number, found)) else sorted(found)
    names = read_class_names(root)
    if names is not None and found <= set(names):
        return TableClasses(names, names)
    return TableClasses(labels, name_folders(root, labels) if labels else [])


def number_labels(part: TableSplit, classes: TableClasses) -> np.ndarray:
    """Return the one label of each row of a split, int32 (rows,).

    Raises:
        UserError: images have no label, several, or one that no training image has; with the first names.
    """
    rows, selected = part
    if rows.codes is None:
        is_one = _reorder(rows, classes)[selected] == 1
        labels, numbers = is_one.argmax(axis=1), is_one.sum(axis=1)
    else:
        require_known(part, classes)
        place = {label: number for number, label in enumerate(classes.labels)}
        numbers = np.array(list(map(len, rows.sets)))[rows.codes[selected]]
        first = np.array([place.get(labels[0], 0) if labels else 0 for labels in rows.sets])
        labels = first[rows.codes[selected]]
    several = "expected one (TASK multi_label reads several)"
    for is_wrong, what, remedy in (
        (numbers == 0, "no label", f"add them, or remove the rows{f'; {several}' if rows.codes is None else ''}"),
        (numbers > 1, "several labels", several),
    ):
        if is_wrong.any():
            wrong = [rows.names[row] for row in selected[is_wrong].tolist()]
            have = "has" if len(wrong) == 1 else "have"
            raise UserError(f"{rows.path}: {count(len(wrong), 'image')} {have} {what}: {first_names(wrong)}; {remedy}")
    return labels.astype(np.int32)


def number_label_sets(part: TableSplit, classes: TableClasses) -> np.ndarray:
    """Return the labels of each row of a split, int8 (rows, classes): 1, 0 or UNKNOWN.

    Raises:
        UserError: there are labels that no training image has; with the first ones.
    """
    rows, selected = part
    require_size(len(selected), len(classes.labels), rows.path)
    if rows.codes is None:
        return np.ascontiguousarray(_reorder(rows, classes)[selected])
    require_known(part, classes)
    place = {label: number for number, label in enumerate(classes.labels)}
    of_set = np.zeros((len(rows.sets), len(place)), np.int8)
    for row, labels in zip(of_set, rows.sets):
        row[[place[label] for label in labels if label in place]] = 1
    return of_set[rows.codes[selected]]


def _reorder(rows: LabelRows, classes: TableClasses) -> np.ndarray:
    """Return the matrix of a table with the columns of the classes; a UserError if it has others."""
    assert rows.matrix is not None
    if rows.classes == classes.labels:
        return rows.matrix
    wrong = sorted(set(rows.classes) ^ set(classes.labels))
    if wrong:
        raise UserError(
            f"{rows.path}: class {shorten(', '.join(wrong), 120)} is not in both the training and this table"
        )
    place = {label: column for column, label in enumerate(rows.classes)}
    return rows.matrix[:, [place[label] for label in classes.labels]]


def require_known(part: TableSplit, classes: TableClasses) -> None:
    """Raise a UserError if rows of a split have labels that no training row has; with the first ones."""
    rows, selected = part
    assert rows.codes is not None
    used = np.unique(rows.codes[selected]).tolist()
    known = set(classes.labels)
    unknown: list[str] = sorted({label for number in used for label in rows.sets[number] if label not in known})
    if unknown:
        raise UserError(
            f"{rows.path}: {count(len(unknown), 'label')} that no training image has: {first_names(unknown)}; correct "
            "them, or list all classes in classes.txt"
        )


def describe_odd_labels(names: Sequence[str], sets: Sequence[Sequence[str]], has_several: bool) -> list[str]:
    """Return lines about labels that may be lists with another separator, or one label in two spellings.

    They may be lists if at least half of those with a comma, or else with a space, have only parts that others have.

    Args:
        names: of the classes.
        sets: distinct lists of labels; empty if the table has a column of each class.
        has_several: an image may have several labels.
    """
    notices = []
    if not any(len(labels) > 1 for labels in sets):
        separators = ((",", "commas"), (None, "spaces")) if has_several else ((";", "semicolons"), ("|", "bars"))
        remedy = "separate their labels by semicolons" if has_several else "TASK multi_label reads them"
        for separator, name in separators:
            parts = {label: [part.strip() for part in label.split(separator)] for labels in sets for label in labels}
            listed = [label for label, own in parts.items() if len(own) > 1]
            uses = Counter(part for own in parts.values() for part in own)
            shared = [label for label in listed if all(uses[part] > 1 for part in parts[label])]
            if shared and 2 * len(shared) >= len(listed):
                notices.append(
                    f"{count(len(listed), 'label')} with {name}, such as {shorten(shared[0], 60)}, are one class "
                    f"each: if they are lists, {remedy}"
                )
                break
    spellings: dict[str, list[str]] = {}
    for label in names:
        spellings.setdefault(" ".join(label.casefold().replace("_", " ").split()), []).append(label)
    twice = [" and ".join(labels[:2]) for labels in spellings.values() if len(labels) > 1]
    if twice:
        notices.append(f"{count(len(twice), 'pair')} of labels differ only in case or spaces: {first_names(twice)}")
    return notices


def describe_unknown(matrix: np.ndarray, names: Sequence[str], path: str) -> list[str]:
    """Return a line about images without a known label."""
    without = [names[row] for row in np.flatnonzero((matrix < 0).all(axis=1)).tolist()]
    if not without:
        return []
    return [f"{path}: {count(len(without), 'image')} without a known label: {first_names(without)}"]
