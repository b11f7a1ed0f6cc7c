"""Images with classes, several labels or none in the rows of data files: ``-dataset=hub``."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ....core.registry.lookup import annotation_type
from ....core.registry.manifest import CLASS_LABELS, NO_LABELS, TAG_LABELS
from ....core.runtime.errors import UserError
from ....core.runtime.printing import count, shorten
from ..class_folders import IndexedClassImages
from ..reading import decode_image
from .columns import HubChoices, choose_columns, find_contents
from .features import LIST, Feature, find_column, find_feature
from .layout import HubFiles
from .opening import (
    LAYOUT,
    MATRIX,
    HubOptions,
    HubRows,
    HubSplit,
    StoredImages,
    open_split,
    open_store,
    require_files,
)
from .storage import DataFile, open_data
from .values import NO_NUMBER, UNKNOWN, LabelValues, is_text, list_classes, read_class_columns, read_labels

_HOT = {"0": 0, "1": 1, "-1": UNKNOWN, "False": 0, "True": 1}  # a class in a list of all
_MOST_LABELS = 1 << 33  # images x classes: 8 GiB


def _is_unlabeled(found: HubFiles, split: str, training_file: str) -> bool:
    """Return whether no row of a split has a label in the columns that label the training images."""
    features = open_data(training_file).features(found.features)
    try:
        columns = choose_columns(features, find_contents(features), HubChoices(), training_file)
    except UserError:  # the split that is read reports it
        return False
    names = {find_column(label, features)[0] for label in columns.labels}
    if columns.objects is not None:
        names.add(columns.objects.parent or columns.objects.box)
    for data in map(open_data, found.splits[split]):
        present = sorted(names & data.features(found.features).keys())
        for array in (each for batch in data.batches(present) for each in batch) if present else ():
            values = array.drop_null()
            if len(values) and not (str(values.type).startswith("int") and set(values.to_pylist()) == {UNKNOWN}):
                return False
    return bool(names)


class HubImages(StoredImages, IndexedClassImages):
    """Images with one class each; classes are named by the type of the column, or by training labels, sorted.

    Rows without a class are not used. Without a split of validation images, that of test images is used instead, unless
    a part of the training images is held out.
    """

    layout = LAYOUT
    contents = CLASS_LABELS

    @classmethod
    def open(cls, config: Any, split: str, cache_folder: Path) -> "HubImages":
        """Open the split that the configuration describes, with the labels that its task reads."""
        contents = annotation_type("task", config.TASK)
        kind = {TAG_LABELS: HubLabelSets, NO_LABELS: HubUnlabeled}.get(contents or "", HubImages)
        return kind(config.DATA.DATA_PATH, split, cache_folder, HubOptions.read(config, kind.contents))

    def __init__(
        self, data_path: str | None, split: str, cache_folder: Path, options: HubOptions | None = None
    ) -> None:
        """Find and index the rows of ``split``: "train", "val" or a published name.

        A ``UserError`` says that there are no such files, split or columns, that several may be meant, or that a file
        is damaged.
        """
        self.split = split
        options = options or HubOptions(HubChoices(), self.contents)
        opened = open_split(data_path, split, options)

        def label(files: list[DataFile], rows: HubRows) -> tuple[HubRows, np.ndarray, dict[str, Any]]:
            rows, labels, names = self._find_labels(opened, files, rows)
            whole = f"{opened.found.root}, split {opened.name}: {count(len(rows.names), 'image')}"
            return rows, labels, {"names": names, "notices": [f"{whole}, {opened.columns.describe()}", *rows.notices]}

        store = open_store(f"hub-{split}", opened, options, cache_folder, type(self).__name__, label)
        facts = store.index.class_names
        self._store, self._content, self._names = store, facts["content"], facts["names"]
        super().__init__(opened.found.root, store.index, len(facts["names"] or ()))
        if facts["names"] is None:
            self.num_classes = None  # type: ignore[assignment] # without labels
        self.notices = [*filter(None, [opened.notice]), *facts["notices"]]
        self.published_as = opened.published_as

    @staticmethod
    def has_validation(data_path: str | None) -> bool:
        """Return whether there is a split of validation or test images with labels besides the training images."""
        if data_path is None:
            return False
        found = require_files(data_path, takes_first=True)
        try:
            val, train = found.find_split("val")[0], found.find_split("train")[0]
        except UserError:
            return False
        return val != train and not _is_unlabeled(found, val, found.splits[train][0])

    def _find_labels(
        self, opened: HubSplit, files: list[DataFile], rows: HubRows
    ) -> tuple[HubRows, np.ndarray, list[str] | None]:
        """Return the rows with a label, the class of each, int, and the names of the classes."""
        [column] = require_one(opened)
        feature = find_labels(opened, column)
        values = read_labels(files, column, feature)
        lengths = values.lengths[rows.rows]
        if feature.kind == LIST and (lengths > 1).any():
            several = count(int((lengths > 1).sum()), "image")
            raise UserError(
                f"{opened.found.root}, column {column}: {several} with several labels, expected one of each (TASK "
                "multi_label reads several)"
            )
        codes, names = number_classes(opened, files, column, values)
        labels = values._replace(codes=codes).single()[rows.rows]
        known = labels != UNKNOWN
        if not known.any():
            raise UserError(f"{opened.found.root}: no row of split {opened.name} has a label in column {column}")
        if not known.all():
            rows.notices.append(f"{opened.name}: {count(int((~known).sum()), 'image')} without a label not used")
        return rows.select(known), labels[known], names

    def __getstate__(self) -> Any:
        return {**super().__getstate__(), "notices": ()}

    @property
    def class_names(self) -> list[str] | None:  # type: ignore[override] # stored in the index
        """Name of each class; None without labels."""
        return self._names

    @property
    def content_key(self) -> str:  # type: ignore[override] # stored in the index
        """Hash of the names and labels, independent of their location."""
        return self._content


class HubLabelSets(HubImages):
    """Images with several labels each, in lists or in a column of each class; ``read`` returns ``(image, int8)``."""

    labels = None  # an image has several
    contents = TAG_LABELS

    def _find_labels(
        self, opened: HubSplit, files: list[DataFile], rows: HubRows
    ) -> tuple[HubRows, np.ndarray, list[str] | None]:
        columns = list(opened.columns.labels)
        if len(columns) > 1:
            matrix, names = read_class_columns(files, columns), columns
        else:
            feature = find_labels(opened, columns[0])
            values = read_labels(files, columns[0], feature)
            vectors = find_vectors(values) if feature.kind == LIST else None
            codes, names = number_classes(opened, files, columns[0], values)
            if vectors is not None:
                matrix, names = vectors, list(map(str, range(vectors.shape[1])))
            else:
                matrix = make_matrix(values._replace(codes=codes), len(names), feature.kind == LIST, opened)
        rows.arrays[MATRIX] = np.ascontiguousarray(matrix[rows.rows])
        unknown = int((matrix[rows.rows] < 0).all(axis=1).sum())
        if unknown:
            rows.notices.append(f"{opened.name}: {count(unknown, 'image')} without a known label")
        return rows, np.full(len(rows.names), UNKNOWN), names

    def listed(self) -> dict[str, Iterable[Any]]:
        """Return what identifies the data: names and labels."""
        return {**super().listed(), "labels": [self.label_matrix]}

    def read(self, index: int) -> tuple[Any, np.ndarray]:
        """Decode image ``index``: (RGB image, labels int8 (classes,)); an ``UnreadableImage`` if it is damaged."""
        image = decode_image(self.encoded(index), self.describe(index), self.image_mode, self.reading)
        return image, self.label_matrix[index]

    @property
    def label_matrix(self) -> np.ndarray:  # type: ignore[override] # stored in a file
        """The labels of all images, int8 (images, classes): 1 (has it), 0 (does not), -1 (not known); read-only."""
        return self._store.array(MATRIX)


class HubUnlabeled(HubImages):
    """Images for tasks that read no labels; the score of an evaluation reads classes, if there is a column of them."""

    contents = NO_LABELS

    def _find_labels(
        self, opened: HubSplit, files: list[DataFile], rows: HubRows
    ) -> tuple[HubRows, np.ndarray, list[str] | None]:
        columns = opened.columns.labels
        feature = find_labels(opened, columns[0]) if len(columns) == 1 else None
        if feature is not None and feature.kind != LIST:
            labels = read_labels(files, columns[0], feature).single()[rows.rows]
            if (labels != UNKNOWN).all():  # else all images are learned, and none has a class
                return super()._find_labels(opened, files, rows)
        return rows, np.full(len(rows.names), UNKNOWN), None

    @property
    def labels(self) -> np.ndarray | None:  # type: ignore[override] # stored in the index
        """All labels, (samples,) int32; None if there are none."""
        return None if self._names is None else self._index.labels

    def listed(self) -> dict[str, Iterable[Any]]:
        """Return what identifies the data: the names."""
        return {"names": self._index.buffers()}


def require_one(opened: HubSplit) -> tuple[str, ...]:
    """Return the one column of labels; a ``UserError`` if there are several."""
    columns = opened.columns.labels
    if len(columns) != 1:
        raise UserError(
            f"{opened.found.root}: DATA.TABLE.LABELS {list(columns)}: expected one column (TASK multi_label reads one "
            "of each class)"
        )
    return columns


def number_classes(
    opened: HubSplit, files: list[DataFile], column: str, values: LabelValues
) -> tuple[np.ndarray, list[str]]:
    """Return the class of each label, int64, and the names: of the type, or the training labels, sorted.

    Raises:
        UserError: a label is none of the training labels.
    """
    feature = find_labels(opened, column)
    if values.texts is None:
        return values.codes, list(_names_of(feature))
    training = values
    if opened.training_name != opened.name:
        training = read_labels(opened.open_files(opened.training_name), column, feature)
    assert training.texts is not None
    names = list_classes(training.texts, feature)
    position = {name: number for number, name in enumerate(names)}
    if not is_text(feature):
        position.setdefault(NO_NUMBER, UNKNOWN)
    unknown = [text for text in values.texts if text not in position]
    if unknown:
        raise UserError(
            f"{opened.found.root}, split {opened.name}, column {column}: {count(len(unknown), 'label')} that no "
            f"training image has: {shorten(', '.join(unknown), 80)}; correct them"
        )
    table = np.array([*(position[text] for text in values.texts), UNKNOWN], np.int64)
    return table[values.codes], names


def find_labels(opened: HubSplit, column: str) -> Feature:
    """Return the type of a column of labels, which exists."""
    feature = find_feature(opened.features, column)
    assert feature is not None  # as the columns have been chosen
    return feature


def _names_of(feature: Feature) -> tuple[str, ...]:
    item = feature.item if feature.kind == LIST and feature.item is not None else feature
    assert item.names is not None  # or else labels are texts
    return item.names


def find_vectors(values: LabelValues) -> np.ndarray | None:
    """Return the lists as a matrix, int8, if each has 0, 1 or -1 for each class, such as 0, 1, 0; None for others."""
    lengths, texts = np.unique(values.lengths[values.lengths >= 0]).tolist(), values.texts or []
    known = [_HOT.get(text) for text in texts]
    if len(lengths) != 1 or lengths[0] < 3 or not {0, 1} <= set(known) <= {0, 1, UNKNOWN} or (values.codes < 0).any():
        return None
    matrix = np.full((len(values.lengths), lengths[0]), UNKNOWN, np.int8)
    matrix[values.lengths >= 0] = np.array(known, np.int8)[values.codes].reshape(-1, lengths[0])
    return matrix


def make_matrix(values: LabelValues, num_classes: int, has_lists: bool, opened: HubSplit) -> np.ndarray:
    """Return int8 (rows, classes) of labels: 1, 0, or -1 in all classes where they are missing."""
    if len(values.lengths) * num_classes > _MOST_LABELS:
        raise UserError(
            f"{opened.found.root}: {len(values.lengths):,} images with {num_classes:,} classes are too many"
        )
    matrix = np.zeros((len(values.lengths), num_classes), np.int8)
    matrix[values.lengths < 0 if has_lists else values.single() == UNKNOWN] = UNKNOWN
    rows = np.repeat(np.arange(len(values.lengths)), values.lengths.clip(min=0))
    known = values.codes != UNKNOWN
    matrix[np.setdiff1d(rows, rows[known])] = UNKNOWN  # their only labels are -1
    matrix[rows[known], values.codes[known]] = 1
    return matrix
