"""Images with label maps, or with outlines that are rasterized to label maps, in any layout of ``map_layouts``."""

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ....core.data.path_index import ensure_path_index, make_batch
from ....core.runtime.errors import UserError
from ....core.runtime.printing import count, shorten
from ...data.annotated_files import stamp
from ...data.box_layouts import find_boxes, is_yolo_description
from ...data.class_lists import ClassList, find_class_list, published_classes, read_class_list
from ...data.formats import SPLIT_WORDS
from ...data.label_pixels import LabelPixels, find_label_numbers, read_label_file, read_label_numbers
from ...data.map_files import MapFiles
from ...data.map_layouts import MAPS, PANOPTIC, YOLO_TEXT, MatchedLayout, find_layout, find_split_folders
from ...data.map_pairs import find_pairs
from ...data.outline_files import draw, find_labelme_files, list_outlines, read_drawing, read_labelme_names
from ...data.panoptic_files import NOTE, read_panoptic
from ...data.reading import ReadConfig, decode_image, open_image, orientation, read_file, require_folder
from ..settings import SegmentationSettings
from .segmentation_dataset import IGNORED, SegmentationDataset

_LAYOUT = (
    "with images and label maps, such as images/train and masks/train, or train/images and train/masks, or with the "
    "files of ADE20K, Cityscapes, Pascal VOC, COCO-Stuff, Labelme or YOLO"
)
_BACKGROUND = ("background", "_background_")
_MAX_UNLISTED_CLASSES = 200  # in label maps without a list of classes


class LabelChoices(NamedTuple):
    """The keys of labels: DATA.CLASS_LIST, REDUCE_ZERO_LABEL, UNLABELED_PIXELS and EXIF_ROTATE."""

    class_list: str | None = None
    reduce_zero_label: bool | None = None
    is_unlabeled_ignored: bool = False
    exif_rotate: bool | None = None


class _SplitFiles(NamedTuple):
    """The images of a split, the label file of each, and notes on images for label files of many images."""

    images: Sequence[str]
    labels: Sequence[str]
    notes: Sequence[bytes]


class LabelMaps(MapFiles, SegmentationDataset):
    """Images with label maps or outlines in any layout; three entries of a memory-mapped list, see ``_SplitFiles``."""

    root: str
    class_names: list[str]
    reading: ReadConfig

    def __init__(
        self,
        data_path: str | None,
        split: str,
        cache_folder: Path,
        name: str | None = None,
        choices: LabelChoices = LabelChoices(),  # noqa: B008
    ) -> None:
        """Open ``split``: "train", "val" or another; ``name`` is the registered name of the layout, None: any.

        Raises:
            UserError: nothing is found, or files or classes do not fit together.
        """
        file = os.path.abspath(os.path.expanduser(data_path or ""))
        self._described = file if os.path.isfile(file) and is_yolo_description(file) else None
        folder = os.path.dirname(file) if self._described else data_path
        self.split, self.root = split, require_folder(folder, name or "label_maps", _LAYOUT)
        match = find_layout(self.root, name)
        if match is None:
            other = find_layout(self.root)
            detected = f", but {other.layout.words}: -dataset={other.layout.dataset}" if other is not None else ""
            if not detected and any(boxes.dataset == "coco" for boxes in find_boxes(self.root, self.root)):
                detected = ", but annotations in COCO's format: -dataset=coco_outlines"
            expected = f"; expected a folder {_LAYOUT}"
            raise UserError(f"{self.root}: no {name or 'label maps'} found{detected or expected}")
        self._kind = match.layout.kind
        self.notices: list[str] = []
        is_drawn = self._kind not in (MAPS, PANOPTIC)
        self.reading = ReadConfig(is_drawn if choices.exif_rotate is None else choices.exif_rotate)
        self._table, self._label_by_spelling, self._unlabeled = LabelTable({}, {}, ""), dict[str, int](), IGNORED
        files = (
            self._open_outlines(match, cache_folder, choices)
            if is_drawn
            else self._open_maps(match, cache_folder, choices)
        )
        self._require_classes()
        self._store_files(cache_folder, "label maps", split, files)
        self.notices.insert(0, f"{split}: {count(len(self), 'image')} in {match.top}: {match.layout.words}")

    @classmethod
    def open(cls, config: SegmentationSettings, split: str, cache_folder: Path) -> "LabelMaps":
        """Open the split with the configuration's keys."""
        data = config.DATA
        choices = LabelChoices(
            data.CLASS_LIST, data.REDUCE_ZERO_LABEL, data.UNLABELED_PIXELS == "ignored", data.EXIF_ROTATE
        )
        return cls(data.DATA_PATH, split, cache_folder, data.DATASET, choices)

    def read(self, index: int) -> tuple[Image.Image, np.ndarray]:
        """Read image ``index`` and its labels."""
        path = self.describe(index)
        image = decode_image(read_file(path), path, self.image_mode, self.reading)
        size = image.height, image.width
        labels = self._read_labels(index, size)
        self._require_equal_sizes(index, size, labels.shape)
        return image, labels

    def read_labels(self, index: int) -> np.ndarray:
        """Read the labels of image ``index``."""
        return self._read_labels(index, None)

    def require_size(self, index: int, size: tuple[int, int]) -> None:
        """Check that image ``index`` and its label map have the same size, and that the label map can be used."""
        self._require_equal_sizes(index, size, self._read_labels(index, size).shape)

    def _read_labels(self, index: int, size: tuple[int, int] | None) -> np.ndarray:
        """Read the labels of an image; ``size`` is its height and width, if known."""
        file = self._describe_labels(index)
        if self._kind == MAPS:
            return self._table.labels(read_label_file(file, self.reading.max_pixels), file)
        if self._kind == PANOPTIC:
            rows = np.frombuffer(self._note(index), NOTE).reshape(-1, 4)
            class_of_segment = {0: IGNORED, **dict(rows[:, :2].tolist())}
            table = LabelTable({}, class_of_segment, "COCO's file lists other segments for this image")
            return table.labels(read_label_file(file, self.reading.max_pixels), file)
        size = size or self._read_size(index)
        drawing = read_drawing(self._kind, file, size)
        self._require_equal_sizes(index, size, drawing.size or size)
        try:
            return draw(drawing, size, self._label_by_spelling, self._unlabeled)
        except ValueError as error:
            raise UserError(f"{file}: {os.path.basename(self.describe(index))}: {error}") from None

    def _read_size(self, index: int) -> tuple[int, int]:
        """Read height and width of an image from the beginning of its file."""
        with open_image(self.encoded(index), self.describe(index), self.reading) as image:
            is_turned = self.reading.exif_rotate and orientation(image) in (5, 6, 7, 8)
            return (image.width, image.height) if is_turned else (image.height, image.width)

    def _open_maps(self, match: MatchedLayout, cache_folder: Path, choices: LabelChoices) -> _SplitFiles:
        pairs = find_pairs(match, self.split)
        if self._kind == PANOPTIC:
            if choices.class_list is not None:
                raise UserError(
                    "DATA.CLASS_LIST: COCO's panoptic JSON contains the class names; remove DATA.CLASS_LIST"
                )
            categories, pairs, segments = read_panoptic(pairs)
            self.notices += pairs.notices
            self.class_names, self.palette = categories.names, categories.palette
            return _SplitFiles(pairs.images, pairs.labels, segments)
        self.notices += pairs.notices
        self._find_classes(match, cache_folder, choices)
        return _SplitFiles(pairs.images, pairs.labels, [b""] * len(pairs.labels))

    def _find_classes(self, match: MatchedLayout, cache_folder: Path, choices: LabelChoices) -> None:
        """Set the classes of label maps: listed, published, or the numbers in them."""
        classes = _read_classes(match, choices)
        if not match.layout.classes and (classes is None or (len(classes.names) == 2 and classes.colors is None)):
            classes = self._count_classes(match, classes, cache_folder)
        assert classes is not None
        self._number_classes(match, classes, choices.reduce_zero_label)

    def _require_classes(self) -> None:
        """Set the number of classes; raise a UserError if label maps of bytes cannot have as many."""
        self.num_classes = len(self.class_names)
        if not 0 < self.num_classes <= IGNORED:
            raise UserError(f"{self.root} has {self.num_classes:,} classes; expected 1 to {IGNORED}")

    def _number_classes(self, match: MatchedLayout, classes: ClassList, reduces: bool | None) -> None:
        """Set names, palette and the labels of stored numbers and colors; ``reduces``: 0 is unlabeled."""
        if not classes.is_numbered and (0 in match.layout.ignored if reduces is None else reduces):
            classes = classes._replace(numbers=[number + 1 for number in classes.numbers])
        ignored = {255, *classes.ignored, *match.layout.ignored}
        is_without_zero = 0 in ignored if reduces is None else reduces
        ignored = (ignored - {0, *classes.numbers}) | ({0} if is_without_zero else set())
        rows = [row for row, number in enumerate(classes.numbers) if number not in ignored]
        self.class_names = [classes.names[row] for row in rows]
        self.palette = None if classes.palette is None else classes.palette[rows]
        numbers = dict.fromkeys(ignored, IGNORED) | {classes.numbers[row]: label for label, row in enumerate(rows)}
        colors = dict.fromkeys(classes.ignored_colors, IGNORED)
        if classes.colors is not None and not match.layout.classes:
            colors |= {int(classes.colors[row]): label for label, row in enumerate(rows)}
        source = classes.file or match.layout.words
        remark = f"classes are from {source}; if they count from 1 and 0 is unlabeled, set DATA.REDUCE_ZERO_LABEL true"
        self._table = LabelTable(numbers, colors, remark)
        if classes.file:
            self.notices.append(f"{len(rows)} classes of {classes.file}: {shorten(', '.join(self.class_names), 80)}")

    def _count_classes(self, match: MatchedLayout, listed: ClassList | None, cache_folder: Path) -> ClassList:
        """Find classes in all splits' label maps: each number is one, but masks with 0 and 255 have two."""
        numbers, total = self._find_numbers(match, cache_folder)
        is_binary = numbers == [0, 255]
        numbers = [0, 255] if is_binary else [number for number in numbers if number != 255]
        if listed is not None and (listed.is_numbered or not is_binary):
            return listed
        if listed is None and len(numbers) > _MAX_UNLISTED_CLASSES:
            raise UserError(
                f"{self.root}: label maps with {len(numbers)} numbers and no list of classes: masks that were resized "
                "or saved with smoothing look like this; create them again with nearest neighbors, or list the "
                "classes in classes.txt"
            )
        if listed is None:
            names = ["background", "foreground"] if is_binary else [str(number) for number in numbers]
            listed = ClassList(names, numbers)
            self.notices.append(
                f"no list of classes: {len(numbers)}, from the numbers in all {total:,} label maps "
                f"({shorten(', '.join(map(str, numbers)), 60)}); name them in classes.txt in {self.root}"
            )
        if is_binary:
            self.notices.append(f"all label maps contain only 0 and 255: 255 is the second class, {listed.names[1]}")
        return listed._replace(numbers=numbers, is_numbered=True)

    def _find_numbers(self, match: MatchedLayout, cache_folder: Path) -> tuple[list[int], int]:
        """Return the numbers in the label maps of all splits, ascending, and how many label maps there are."""
        files = []
        for split in SPLIT_WORDS:
            with contextlib.suppress(UserError):  # there is no such split
                files += find_pairs(match, split).labels
        return _cache(cache_folder, files, find_label_numbers), len(files)

    def _open_outlines(self, match: MatchedLayout, cache_folder: Path, choices: LabelChoices) -> _SplitFiles:
        listed = list_outlines(self._kind, self._described or self.root, self.split)
        names, spellings = listed.names, listed.spelled
        if names is None or choices.class_list is not None:
            classes = _read_classes(match, choices)
            everywhere = list(find_labelme_files(self.root)) if classes is None else []
            names = _cache(cache_folder, everywhere, read_labelme_names) if classes is None else classes.names
            spellings = names if self._kind != YOLO_TEXT or classes is None else list(map(str, classes.numbers))
        self._set_class_names(names, spellings, choices)
        return _SplitFiles(listed.images, listed.files, [b""] * len(listed.files))

    def _set_class_names(self, names: Sequence[str], spellings: Sequence[str], choices: LabelChoices) -> None:
        """Set the classes of outlines; ``spellings`` is how their files name them."""
        classes = add_background(names, choices.is_unlabeled_ignored)
        self.class_names, self._unlabeled = classes.names, classes.unlabeled
        self._label_by_spelling = {"__ignore__": IGNORED} | {
            spelling: position + classes.first for position, spelling in enumerate(spellings)
        }
        self.notices += classes.notices
        if self._kind != YOLO_TEXT:
            self.notices.append("points and lines among the outlines have no pixels and are skipped")


class OutlineClasses(NamedTuple):
    """The classes of outlines: their names, the label of the first listed one, and that of pixels outside of all."""

    names: list[str]
    first: int
    unlabeled: int
    notices: list[str]


def add_background(names: Sequence[str], is_unlabeled_ignored: bool) -> OutlineClasses:
    """Add the class "background", which comes first, unless it is listed or pixels outside of outlines are ignored."""
    if is_unlabeled_ignored:
        return OutlineClasses(list(names), 0, IGNORED, [])
    background = next((name for name in names if name in _BACKGROUND), None)
    more = ["background"] if background is None else []
    unlabeled = 0 if background is None else list(names).index(background)
    notice = (
        f"pixels outside of outlines are of class {background or 'background'} (DATA.UNLABELED_PIXELS ignored: "
        "unlabeled)"
    )
    return OutlineClasses([*more, *names], len(more), unlabeled, [notice])


def _read_classes(match: MatchedLayout, choices: LabelChoices) -> ClassList | None:
    """Read the classes of the configuration, the published dataset or a file in the folder; None if there are none."""
    layout, top = match
    if choices.class_list is not None:
        return read_class_list(os.path.join(top, choices.class_list))
    if not layout.classes:
        folders = [folder for split in SPLIT_WORDS for folder in find_split_folders(layout, top, split) or ()]
        return find_class_list(dict.fromkeys([top, *folders, *map(os.path.dirname, folders)]))
    return published_classes(layout.classes, layout.first, layout.offset)


def _cache(cache_folder: Path, files: Sequence[str], find: Callable[[Sequence[str]], list[Any]]) -> list[Any]:
    """Return the result of ``find`` for the files, cached until one of them changes."""
    kind = find.__name__
    index = ensure_path_index(cache_folder, kind, stamp(kind, files), lambda: [make_batch([], 0)], lambda: find(files))
    return list(index.class_names or ())


class LabelTable(NamedTuple):
    """The class of each number or color in label maps."""

    numbers: Mapping[int, int]  # number -> class, or ``IGNORED``
    colors: Mapping[int, int]  # red + 256 green + 65,536 blue -> class, or ``IGNORED``; empty: label maps have numbers
    remark: str  # what to do about an unknown label, for the message

    def labels(self, pixels: LabelPixels, path: str) -> np.ndarray:
        """Return the class of each pixel or ``IGNORED``, uint8 (height, width).

        Raises:
            UserError: a pixel has an unknown number or color; the message names file, row and column, from 0.
        """
        values, is_color = pixels.values, pixels.is_color
        classes = self.colors if is_color else self.numbers
        if is_color and not self.colors:
            values, is_color, classes = read_label_numbers(pixels, path), False, self.numbers
        elif not is_color and self.colors:
            classes, is_color = self._map_numbers(pixels.palette)
        labels = _look_up_bytes(values, classes) if values.dtype == np.uint8 else _look_up_numbers(values, classes)
        if isinstance(labels, np.ndarray):
            return labels
        row, column = labels
        raise UserError(self._unknown(int(values[row, column]), is_color, path, row, column))

    def _map_numbers(self, palette: np.ndarray | None) -> tuple[Mapping[int, int], bool]:
        """Return the classes of numbers if the list has colors.

        Uses the colors of the palette; without one, gray levels if all colors are gray, else the numbers of the list.
        """
        if palette is not None:
            return {
                index: self.colors[color] for index, color in enumerate(palette.tolist()) if color in self.colors
            }, False
        if all(color == (color & 255) * 0x010101 for color in self.colors):
            return {color & 255: label for color, label in self.colors.items()}, False
        return self.numbers, False

    def _unknown(self, value: int, is_color: bool, path: str, row: int, column: int) -> str:
        shown = str(_channels(value)) if is_color else str(value)
        labels = (
            [str(_channels(label)) for label in self.colors]
            if is_color
            else [str(label) for label in sorted(self.numbers)]
        )
        kind = "color" if is_color else "label"
        return (
            f"{path} has the {kind} {shown} at row {row}, column {column}, which is unknown: {kind}s are "
            f"{shorten(', '.join(labels), 80)}; {self.remark}"
        )


def _channels(packed: int) -> tuple[int, int, int]:
    return packed & 255, packed >> 8 & 255, packed >> 16


def _look_up_bytes(values: np.ndarray, classes: Mapping[int, int]) -> np.ndarray | tuple[int, int]:
    """Look up numbers up to 255, uint8 (height, width); return row and column of the first unknown number instead."""
    raw = bytearray(np.ascontiguousarray(values))
    if raw.translate(None, bytes(number for number in classes if number < 256)):
        is_listed = np.isin(np.arange(256), list(classes))
        row, column = np.argwhere(~is_listed[values])[0].tolist()
        return row, column
    table = bytes(classes.get(number, 0) for number in range(256))
    return np.frombuffer(raw.translate(table), np.uint8).reshape(values.shape)


def _look_up_numbers(values: np.ndarray, classes: Mapping[int, int]) -> np.ndarray | tuple[int, int]:
    """Look up numbers of any size, once for each run of equal ones; see ``_look_up_bytes`` for the result."""
    flat = np.ascontiguousarray(values).reshape(-1)
    starts = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(flat[1:] != flat[:-1]) + 1])[: len(flat)]
    numbers = np.array(sorted(classes), np.int64)
    labels = np.array([classes[number] for number in numbers.tolist()], np.uint8)
    places = np.searchsorted(numbers, flat[starts]).clip(max=len(numbers) - 1)
    unknown = numbers[places] != flat[starts]
    if unknown.any():
        row, column = divmod(int(starts[unknown.argmax()]), values.shape[1])
        return row, column
    return np.repeat(labels[places], np.diff(starts, append=len(flat))).reshape(values.shape)
