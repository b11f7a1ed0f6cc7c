"""Images with boxes in the rows of Parquet and Arrow files: ``-dataset=hub_boxes``."""

import threading
from pathlib import Path

import numpy as np
from PIL import Image

from ....core.registry.manifest import BOX_LABELS
from ....core.runtime.column_roles import CXCYWH, XYWH, XYXY
from ....core.runtime.errors import UserError
from ....core.runtime.printing import count
from ...data.data_warnings import DataWarnings
from ...data.hub.columns import HubChoices, ObjectColumns
from ...data.hub.hub_images import HubImages, find_labels
from ...data.hub.opening import (
    LAYOUT,
    HubOptions,
    HubSplit,
    HubStore,
    StoredImages,
    open_split,
    open_store,
)
from ...data.hub.storage import DataFile
from ...data.hub.values import UNKNOWN, are_numbers, list_classes, read_labels, read_numbers
from ...data.reading import decode_image
from ..odd_objects import require_sides
from ..settings import DetectionSettings
from .image_annotations import ImageAnnotations
from .indexed_images import (
    IMAGE,
    OBJECT,
    AnnotationSource,
    IndexedDetectionImages,
    SourceFacts,
    ensure_annotation_index,
)
from .stored_sizes import fill_in_sizes

_ONLY_CLASS = "object"  # of boxes without labels


class HubBoxes(StoredImages, IndexedDetectionImages):
    """Images with boxes in a column of objects, or in columns of boxes and labels; without masks."""

    layout = LAYOUT
    has_validation = staticmethod(HubImages.has_validation)

    def __init__(
        self,
        data_path: str | None,
        split: str,
        cache_folder: Path,
        options: HubOptions | None = None,
        turned: bool | None = None,
    ) -> None:
        """Find and index the rows of ``split``: "train", "val" or a published name.

        Args:
            turned: whether boxes refer to the images after their EXIF rotation; None: unless columns of height and
                width say otherwise.

        Raises:
            UserError: nothing is found, several things may be meant, a file is damaged, or boxes are not what their
                column says.
        """
        self.split = split
        options = options or HubOptions(HubChoices(), BOX_LABELS)
        opened = open_split(data_path, split, options)

        self._store = open_store(f"hub-boxes-{split}", opened, options, cache_folder, BOX_LABELS)
        place, key = f"{opened.found.root}, split {opened.name}", opened.key(BOX_LABELS, turned)
        index = ensure_annotation_index(
            cache_folder, f"hub-objects-{split}", key, lambda: _read_source(opened, self._store, turned, place)
        )
        super().__init__(opened.found.root, index, place, index.about.is_turned)
        whole = f"{place}: {count(len(self), 'image')}, {opened.columns.describe()}"
        told = self._store.index.class_names["notices"]
        objects = opened.columns.objects
        if objects is not None and objects.mask:
            self.masks_note = (
                f", as {_path(objects, objects.mask)} is not read (write a file in COCO's format for masks)"
            )
        self.notices = [*filter(None, [opened.notice]), whole, *told, *self.notices]
        self.published_as = opened.published_as

    @classmethod
    def open(cls, config: DetectionSettings, split: str, cache_folder: Path) -> "HubBoxes":
        """Open the split of a configuration."""
        data = config.DATA
        return cls(data.DATA_PATH, split, cache_folder, HubOptions.read(config, BOX_LABELS), data.EXIF_ROTATE)

    def read(self, index: int) -> tuple[Image.Image, ImageAnnotations]:
        """Return image ``index`` and its annotations."""
        image = decode_image(self.encoded(index), self.describe(index), self.image_mode, self.reading)
        self.require_size(index, (image.size[1], image.size[0]))
        return image, self.annotations(index)

    def missing(self) -> list[int]:
        """Return the images whose files are missing: none that is in a row."""
        return [index for index in range(len(self)) if self.num_bytes(index) < 0]


def _read_source(opened: HubSplit, store: HubStore, turned: bool | None, place: str) -> AnnotationSource:
    """Read the objects of the images in a store, whose labels are the numbers of their rows."""
    objects = opened.columns.objects
    assert objects is not None
    files, kept, odd = opened.open_files(opened.name), store.index.labels.astype(np.int64), DataWarnings(place)
    lengths, rows = _read_boxes(files, objects)
    names, category_ids, labels = _read_classes(opened, files, objects, lengths)
    rows["label"] = labels
    owners = np.repeat(np.arange(len(lengths)), lengths)
    position = np.full(len(lengths), -1, np.int64)
    position[kept] = np.arange(len(kept))
    odd.note_all("object", "without a class, not used", owners[labels == UNKNOWN])
    chosen = (labels != UNKNOWN) & (position[owners] >= 0)
    rows, owners = rows[chosen], position[owners[chosen]]
    ids = np.unique(rows["id"])
    if len(ids) < len(rows) or (len(ids) and ids[0] < 1):
        rows["id"] = np.arange(1, len(rows) + 1)
    images = np.zeros(len(kept), IMAGE)
    sizes = np.stack([_read_column(files, name, kept) for name in (objects.height, objects.width)], axis=1)
    is_turned = _fill_in(sizes, store, turned, place, odd)
    images["height"], images["width"] = sizes[:, 0], sizes[:, 1]
    numbers = _read_column(files, objects.image_id, kept)
    is_unique = bool(objects.image_id) and len(np.unique(numbers)) == len(numbers) and numbers.min() >= 0
    images["id"] = numbers if is_unique else np.arange(1, len(kept) + 1)
    if objects.form == XYWH:
        require_sides(f"{place}: bbox", rows["box"], sizes[owners])
    low, high, limits = rows["box"][:, :2], rows["box"][:, :2] + rows["box"][:, 2:], sizes[owners][:, ::-1]
    has_no_area = (rows["box"][:, 2:] <= 0).any(axis=1)
    odd.note_all("object", "without an area, skipped in training", rows["id"][has_no_area])
    is_outside = ((high <= 0) | (low >= limits)).any(axis=1) & ~has_no_area
    odd.note_all("object", "with a box outside the image, skipped in training", rows["id"][is_outside])
    facts = SourceFacts(names, category_ids, False, True, odd.lines(), is_turned)
    paths = [store.index.path(index).encode("utf-8", "surrogateescape") for index in range(len(kept))]
    return AnnotationSource(facts, paths, images, owners, rows)


def _read_boxes(files: list[DataFile], objects: ObjectColumns) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of objects of each row, int64, and their rows of OBJECT without classes."""
    lengths, boxes = read_numbers(files, _path(objects, objects.box), 4)
    lengths = lengths.clip(min=0)
    if not np.isfinite(boxes).all():
        row = int(np.repeat(np.arange(len(lengths)), lengths)[~np.isfinite(boxes).all(axis=1)][0])
        raise UserError(f"{files[0].path}: row {row} of its split has a box that is not four numbers")
    if objects.form == XYXY:
        boxes[:, 2:] -= boxes[:, :2]
    elif objects.form == CXCYWH:
        boxes[:, :2] -= boxes[:, 2:] / 2
    rows = np.zeros(len(boxes), OBJECT)
    rows["box"], rows["area"] = boxes, boxes[:, 2] * boxes[:, 3]
    for field, name in (("area", objects.area), ("is_crowd", objects.crowd), ("id", objects.id)):
        if name:
            numbers, values = read_numbers(files, _path(objects, name))
            _require_equal(files, objects, name, lengths, numbers.clip(min=0))
            known = np.isfinite(values)
            rows[field][known] = values[known]
    return lengths, rows


def _read_classes(
    opened: HubSplit, files: list[DataFile], objects: ObjectColumns, lengths: np.ndarray
) -> tuple[list[str], list[int], np.ndarray]:
    """Return names and ids of the categories, and the label of each object, -1 for none."""
    if not objects.label:
        return [_ONLY_CLASS], [0], np.zeros(int(lengths.sum()), np.int64)
    path = _path(objects, objects.label)
    feature = find_labels(opened, path)
    values = read_labels(files, path, feature)
    _require_equal(files, objects, objects.label, lengths, values.lengths.clip(min=0))
    if values.texts is None:
        names = list(objects.names or ())
        return names, list(range(len(names))), values.codes
    others = opened.training_name != opened.name
    training = read_labels(opened.open_files(opened.training_name), path, feature) if others else values
    texts = list_classes([*(training.texts or ()), *values.texts], feature)
    place = np.array([*(texts.index(text) if text in texts else UNKNOWN for text in values.texts), UNKNOWN], np.int64)
    return texts, list(map(int, texts)) if are_numbers(texts) else list(range(len(texts))), place[values.codes]


def _path(objects: ObjectColumns, name: str) -> str:
    return f"{objects.parent}.{name}" if objects.parent else name


def _require_equal(
    files: list[DataFile], objects: ObjectColumns, name: str, boxes: np.ndarray, found: np.ndarray
) -> None:
    if (boxes != found).any():
        row = int((boxes != found).argmax())
        raise UserError(
            f"{files[0].path}: row {row} of its split has {count(int(boxes[row]), 'box')}, but {found[row]} in "
            f"{_path(objects, name)}: expected one for each box"
        )


def _read_column(files: list[DataFile], name: str, kept: np.ndarray) -> np.ndarray:
    """Return the whole numbers of a column in the rows that are kept, int64; 0 where there is none."""
    if not name:
        return np.zeros(len(kept), np.int64)
    lengths, numbers = read_numbers(files, name)
    values = np.zeros(len(lengths), np.int64)
    values[lengths > 0] = np.nan_to_num(numbers).astype(np.int64)
    return values[kept]


def _fill_in(sizes: np.ndarray, store: HubStore, turned: bool | None, place: str, odd: DataWarnings) -> bool:
    """Measure images without a size, and return whether boxes refer to the images after their EXIF rotation."""
    lock = threading.Lock()  # open files are not for several threads

    def read(row: str) -> bytes:
        with lock:
            return store.encoded(int(row.rpartition(" ")[2]))

    def name(row: int) -> str:
        return f"{store.describe(row)}, image {row}"

    is_turned, unknown, note = fill_in_sizes(sizes, name, turned, place, odd, read)
    if 0 < len(unknown) < len(sizes):
        odd.note_all("image", f"without height or width, both measured{note}", list(map(store.describe, unknown)))
    return is_turned
