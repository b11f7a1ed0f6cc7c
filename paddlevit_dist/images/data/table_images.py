"""Images whose labels are in a table: CSV, text with other separators, or Parquet; one label or several of each."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ...core.data.checked_files import DamagedCacheError, map_verified, write_array
from ...core.data.path_index import PathIndex, ensure_path_index, make_batch
from ...core.registry.lookup import annotation_type
from ...core.registry.manifest import TAG_LABELS
from ...core.runtime.files import map_array
from .class_folders import IndexedClassImages
from .label_layouts import TableChoices
from .label_rows import UNKNOWN
from .label_tables import LAYOUT, LabeledImages, TableOptions, has_validation, read_table
from .reading import decode_image


class TableImages(IndexedClassImages):
    """Images with one label each, which a table names: ``-dataset=table``.

    Without a "val" split, "test" is used instead, unless a part of "train" is held out.
    """

    layout = LAYOUT

    @classmethod
    def open(cls, config: Any, split: str, cache_folder: Path) -> "TableImages":
        """Open the table that the configuration describes; a ``MultiLabelTable`` if the task reads several labels."""
        table, data = config.DATA.TABLE, config.DATA
        choices = TableChoices(table.IMAGE, tuple(table.LABELS), table.FOLD, table.EMPTY == "absent")
        options = TableOptions(choices, table.IMAGES, data.ALLOW_SKIPPED_FILES)
        has_several = annotation_type("task", config.TASK) == TAG_LABELS
        kind: type[TableImages] = MultiLabelTable if has_several else TableImages
        return kind(data.DATA_PATH, split, cache_folder, options)

    def __init__(
        self,
        data_path: str | None,
        split: str,
        cache_folder: Path,
        options: TableOptions = TableOptions(),  # noqa: B008 - it is not changed
    ) -> None:
        """Read the table and list the folders of its images; the index goes to ``cache_folder``.

        A ``UserError`` says that the table is damaged or has other columns, or names the first images that are
        missing, have no label, or have different labels.
        """
        self.split = split
        table = read_table(data_path, split, options, has_several=isinstance(self, MultiLabelTable))
        super().__init__(table.root, self._store(table, cache_folder), len(table.class_names), table.skipped_files)
        self.notices = table.notices
        self.published_as = {"split": table.split}

    def _store(self, table: LabeledImages, cache_folder: Path) -> PathIndex:
        return _index(table, table.labels, cache_folder, f"table-{self.split}")

    has_validation = staticmethod(has_validation)


def _index(table: LabeledImages, labels: np.ndarray, cache_folder: Path, name: str, more: str = "") -> PathIndex:
    batch = make_batch([os.fsencode(path) for path in table.paths], labels)
    key = hashlib.sha256("\0".join(["table", more, *table.class_names, ""]).encode("utf-8", "surrogateescape"))
    for part in (batch.lengths.data, batch.labels.tobytes(), batch.blob):
        key.update(part)
    return ensure_path_index(cache_folder, name, key.digest(), lambda: [batch], table.class_names)


class MultiLabelTable(TableImages):
    """Images with several labels each, which a table names; ``read`` returns ``(image, int8 (classes,))``."""

    labels = None  # an image has several

    def _store(self, table: LabeledImages, cache_folder: Path) -> PathIndex:
        key = hashlib.sha256(table.labels.tobytes()).hexdigest()[:16]
        self._matrix_file = str(Path(cache_folder, f"labels-{self.split}-{key}.npy"))
        self._matrix: np.ndarray | None = None
        try:
            is_stored = map_verified(self._matrix_file).shape == table.labels.shape
        except DamagedCacheError:
            is_stored = False
        if not is_stored:
            write_array(Path(self._matrix_file), table.labels)
        unused = np.full(len(table.paths), UNKNOWN, np.int32)
        return _index(table, unused, cache_folder, f"labels-{self.split}", key)

    def __getstate__(self) -> Any:
        return {**super().__getstate__(), "_matrix": None}

    def listed(self) -> dict[str, Iterable[Any]]:
        """Return what ``content_key`` covers: paths and labels."""
        return {**super().listed(), "labels": [self.label_matrix]}

    def read(self, index: int) -> tuple[Image.Image, np.ndarray]:
        """Decode image ``index``: (RGB image, labels int8 (classes,)); an ``UnreadableImage`` if it is damaged."""
        image = decode_image(self.encoded(index), self.describe(index), self.image_mode, self.reading)
        return image, self.label_matrix[index]

    @property
    def label_matrix(self) -> np.ndarray:  # type: ignore[override] # stored in a file
        """The labels of all images, int8 (images, classes): 1 (has it), 0 (does not), -1 (not known); read-only."""
        if self._matrix is None:
            self._matrix = map_array(self._matrix_file)
        return self._matrix
