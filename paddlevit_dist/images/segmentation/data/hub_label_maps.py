"""Images with label maps in the rows of Parquet and Arrow files: ``-dataset=hub_label_maps``."""

import contextlib
import functools
import hashlib
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ....core.data.path_index import ensure_path_index, make_batch
from ....core.registry.manifest import MASK_LABELS
from ....core.runtime.errors import UserError
from ....core.runtime.printing import count
from ...data.hub.columns import HubChoices
from ...data.hub.hub_images import HubImages
from ...data.hub.opening import (
    LAYOUT,
    HubOptions,
    HubStore,
    StoredImages,
    open_split,
    open_store,
)
from ...data.inspection import run_in_threads
from ...data.label_pixels import MOST_PIXELS, read_label_numbers, read_label_pixels
from ...data.map_layouts import LabelMapLayout, MatchedLayout
from ...data.reading import ReadConfig, UnreadableImage, decode_image, open_image
from ..settings import SegmentationSettings
from .label_maps import LabelChoices, LabelMaps

_ROWS = LabelMapLayout("hub_label_maps", "label maps in the rows of data files")
_LARGE = 1 << 24  # pixels of a label map that is compared with its image before it is searched for classes


class HubLabelMaps(StoredImages, LabelMaps):
    """Images with label maps in another column; classes are listed in a file, or are the numbers in all label maps."""

    layout = LAYOUT
    has_validation = staticmethod(HubImages.has_validation)

    def __init__(
        self,
        data_path: str | None,
        split: str,
        cache_folder: Path,
        options: HubOptions | None = None,
        choices: LabelChoices = LabelChoices(),  # noqa: B008
    ) -> None:
        """Find and index the rows of ``split``: "train", "val" or a published name.

        Raises:
            UserError: nothing is found, several things may be meant, a file is damaged, or label maps have no classes.
        """
        self.split, self._data_path = split, data_path
        self._options = options or HubOptions(HubChoices(), MASK_LABELS)
        self._cache_folder = cache_folder
        opened = open_split(data_path, split, self._options)
        self.root, self._splits = opened.found.root, list(opened.found.splits)
        self._label_column = opened.columns.labels[0]
        self._published = opened.name
        self._store = self._open_store(opened.name)
        told = self._store.index.class_names["notices"]
        whole = f"{self.root}, split {opened.name}: {count(len(self), 'image')} in column {opened.columns.image}"
        self.notices = [*filter(None, [opened.notice]), f"{whole}, label maps in {self._label_column}", *told]
        self.published_as = opened.published_as
        self.reading = ReadConfig(bool(choices.exif_rotate))
        self._find_classes(MatchedLayout(_ROWS, self.root), cache_folder, choices)
        self._require_classes()

    @classmethod
    def open(cls, config: SegmentationSettings, split: str, cache_folder: Path) -> "HubLabelMaps":
        """Open the split with the configuration's keys."""
        data = config.DATA
        choices = LabelChoices(data.CLASS_LIST, data.REDUCE_ZERO_LABEL, exif_rotate=data.EXIF_ROTATE)
        return cls(data.DATA_PATH, split, cache_folder, HubOptions.read(config, MASK_LABELS), choices)

    def _open_store(self, split: str) -> HubStore:
        """Open the images and label maps of a published split."""
        opened = open_split(self._data_path, split, self._options)
        return open_store(f"hub-maps-{split}", opened, self._options, self._cache_folder, MASK_LABELS)

    def _find_numbers(self, match: MatchedLayout, cache_folder: Path) -> tuple[list[int], int]:
        stores = []
        for split in self._splits:
            try:
                stores.append(self._open_store(split))
            except UserError as error:
                if split == self._published:
                    raise
                self.notices.append(f"note: split {split} is not searched for classes: {error}")
        total = sum(len(store.index) for store in stores)
        facts = "\0".join(["hub numbers", *(store.index.class_names["content"] for store in stores)])
        key = hashlib.sha256(b"".join([facts.encode(), *(store.index.key for store in stores)])).digest()

        def find() -> list[int]:
            found = [np.zeros(0, np.int64)]
            for store in stores:
                rows = range(len(store.index))
                found += run_in_threads(_list_numbers, store, rows, "looking for classes", len(rows), np.inf)
            return np.unique(np.concatenate(found)).tolist()

        index = ensure_path_index(cache_folder, "hub-numbers", key, lambda: [make_batch([], 0)], find)
        return list(index.class_names), total

    def __len__(self) -> int:
        return len(self._store.index)

    def _describe_labels(self, index: int) -> str:
        return f"{self._store.describe(index, 1)}, {self._label_column}"

    def read(self, index: int) -> tuple[Image.Image, np.ndarray]:
        """Read image ``index`` and its labels."""
        image = decode_image(self.encoded(index), self.describe(index), self.image_mode, self.reading)
        return image, self._read_labels(index, (image.height, image.width))

    def _read_labels(self, index: int, size: tuple[int, int] | None) -> np.ndarray:
        file, encoded = self._describe_labels(index), self._store.encoded(index, 1)
        check = functools.partial(self._require_equal_sizes, index, size or self._read_size(index))
        return self._table.labels(read_label_pixels(encoded, file, self.reading.max_pixels, check), file)

    def listed(self) -> dict[str, Iterable[Any]]:
        """Return what is listed: the names of the rows."""
        return {"names": self._store.index.buffers()}


def _list_numbers(store: HubStore, index: int) -> np.ndarray:
    """Return the numbers in a label map; none if it is large and not of its image's size, and so is never used."""
    place = f"{store.describe(index, 1)}{os.sep}label map"
    encoded, reading = store.encoded(index, 1), ReadConfig(max_pixels=MOST_PIXELS)
    with contextlib.suppress(UnreadableImage), open_image(encoded, place, reading) as label_map:
        if math.prod(label_map.size) > _LARGE:
            with open_image(store.encoded(index), store.describe(index), reading) as image:
                if sorted(image.size) != sorted(label_map.size):
                    return np.zeros(0, np.int64)
    return np.unique(read_label_numbers(read_label_pixels(encoded, place), place))
