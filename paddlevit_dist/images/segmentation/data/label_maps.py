"""Images with label maps, or with outlines to draw them from, in any layout of ``map_layouts``."""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from PIL import Image

from ....data.path_index import ensure_path_index, make_batch
from ....runtime.errors import UserError
from ....runtime.files import read_regular
from ....runtime.printing import shorten
from ...data.annotated_files import readable, stamp
from ...data.class_lists import ClassList, find_class_list, published_classes, read_class_list
from ...data.formats import SPLIT_WORDS
from ...data.label_pixels import LabelPixels, numbers_in, read_label_file, read_label_numbers
from ...data.map_layouts import MAPS, PANOPTIC, YOLO_TEXT, MatchedLayout, find_layout, find_pairs, find_split_folders
from ...data.outline_files import draw, labelme_files, labelme_names, list_outlines, read_drawing
from ...data.reading import (
    ReadConfig,
    WrongSize,
    decode_image,
    existing_folder,
    open_image,
    orientation,
    read_file,
)
from ..settings import SegmentationSettings
from .segmentation_dataset import IGNORED, SegmentationDataset

_LAYOUT = (
    "with images and label maps, such as images/train and masks/train, or train/images and train/masks, or with the "
    "files of ADE20K, Cityscapes, Pascal VOC, COCO-Stuff, Labelme or YOLO"
)
_BACKGROUND = ("background", "_background_")
_MOST_UNLISTED = 200  # classes that nobody has listed


class LabelChoices(NamedTuple):
    """The configuration's words on labels: DATA.CLASS_LIST, REDUCE_ZERO_LABEL, UNLABELED_PIXELS and EXIF_ROTATE."""

    class_list: str | None = None
    reduce_zero_label: bool | None = None
    is_unlabeled_ignored: bool = False
    exif_rotate: bool | None = None


class _SplitFiles(NamedTuple):
    """The images of a split, the file of each one's labels, and what that says of it where it is of many."""

    images: Sequence[str]
    labels: Sequence[str]
    notes: Sequence[bytes]


class LabelMaps(SegmentationDataset):
    """Images whose pixels' classes are in label maps or outlines, found by what lies in the folder.

    The list of files is memory-mapped: three entries for each image, see ``_SplitFiles``.
    """

    def __init__(
        self,
        data_path: str | None,
        split: str,
        cache_folder: Path,
        name: str | None = None,
        choices: LabelChoices = LabelChoices(),  # noqa: B008
    ) -> None:
        """Serve ``split``.

        Args:
            name: registered name of the layout; None: whatever is found.
        Raises:
            UserError: nothing is found, or files or classes do not fit together.
        """
        self.split, self.root = split, existing_folder(data_path, name or "label_maps", _LAYOUT)
        found = find_layout(self.root, name)
        if found is None:
            other = find_layout(self.root)
            there = f", but {other.layout.words}: -dataset={other.layout.dataset}" if other is not None else ""
            expected = f"; expected a folder {_LAYOUT}"
            raise UserError(f"{self.root}: nothing of {name or 'label maps'} found{there or expected}")
        self._kind = found.layout.kind
        self.notices: list[str] = []
        is_drawn = self._kind not in (MAPS, PANOPTIC)
        self.reading = ReadConfig(is_drawn if choices.exif_rotate is None else choices.exif_rotate)
        self._table, self._label_of, self._unlabeled = LabelTable({}, {}, ""), dict[str, int](), IGNORED
        files = self._drawings(found, cache_folder, choices) if is_drawn else self._maps(found, cache_folder, choices)
        self.num_classes = len(self.class_names)
        if not 0 < self.num_classes <= IGNORED:
            raise UserError(f"{self.root} has {self.num_classes:,} classes; expected 1 to {IGNORED}")
        names = [[os.fsencode(path.removeprefix(f"{self.root}{os.sep}")) for path in paths] for paths in files[:2]]
        entries = [entry for row in zip(*names, files.notes) for entry in row]
        key = hashlib.sha256(b"label maps 1\0" + b"\0".join(entries)).digest()
        self._index = ensure_path_index(cache_folder, f"label-maps-{split}", key, lambda: [make_batch(entries, 0)])
        self.notices.insert(0, f"{split}: {len(self):,} images in {found.top}: {found.layout.words}")

    @classmethod
    def open(cls, config: SegmentationSettings, split: str, cache_folder: Path) -> "LabelMaps":
        data = config.DATA
        choices = LabelChoices(
            data.CLASS_LIST, data.REDUCE_ZERO_LABEL, data.UNLABELED_PIXELS == "ignored", data.EXIF_ROTATE
        )
        return cls(data.DATA_PATH, split, cache_folder, data.DATASET, choices)

    def __len__(self) -> int:
        return len(self._index) // 3

    def describe(self, index: int) -> str:
        """The file of image ``index``."""
        return os.path.join(self.root, self._index.path(3 * index))

    def listed(self) -> dict[str, Iterable[Any]]:
        return {"names": self._index.buffers()}

    def read(self, index: int) -> tuple[Image.Image, np.ndarray]:
        path = self.describe(index)
        image = decode_image(read_file(path), path, self.image_mode, self.reading)
        size = image.height, image.width
        labels = self._labels(index, size)
        self._compare(index, size, labels.shape)
        return image, labels

    def read_labels(self, index: int) -> np.ndarray:
        return self._labels(index, None)

    def require_size(self, index: int, size: tuple[int, int]) -> None:
        """Raise an error where image ``index`` has another height and width than its label map, or where that cannot
        be used."""
        self._compare(index, size, self._labels(index, size).shape)

    def _labels(self, index: int, size: tuple[int, int] | None) -> np.ndarray:
        """The labels of an image; ``size`` is its height and width, where these are known."""
        file = os.path.join(self.root, self._index.path(3 * index + 1))
        note = os.fsencode(self._index.path(3 * index + 2))
        if self._kind == MAPS:
            return self._table.labels(read_label_file(file, self.reading.max_pixels), file)
        if self._kind == PANOPTIC:
            of_segments = {0: IGNORED, **dict(np.frombuffer(note, "<i4").reshape(-1, 2).tolist())}
            table = LabelTable({}, of_segments, "the segments of COCO's file for this image have other numbers")
            return table.labels(read_label_file(file, self.reading.max_pixels), file)
        size = size or self._size(index)
        drawing = read_drawing(self._kind, file, size)
        self._compare(index, size, drawing.size or size)
        try:
            return draw(drawing, size, self._label_of, self._unlabeled)
        except ValueError as error:
            raise UserError(f"{file}: {os.path.basename(self.describe(index))}: {error}") from None

    def _size(self, index: int) -> tuple[int, int]:
        """Height and width of an image, from the beginning of its file."""
        path = self.describe(index)
        with open_image(read_file(path), path, self.reading) as image:
            is_turned = self.reading.exif_rotate and orientation(image) in (5, 6, 7, 8)
            return (image.width, image.height) if is_turned else (image.height, image.width)

    def _compare(self, index: int, image: tuple[int, ...], labels: tuple[int, ...]) -> None:
        if image == labels:
            return
        remedy = "labels would be in wrong places: put the labeled image there, or its own label map"
        if image == labels[::-1]:
            value = "false" if self.reading.exif_rotate else "true"
            remedy = f"the image was turned before it was labeled, or after: try DATA.EXIF_ROTATE {value}"
        sizes = [f"{width} x {height}" for height, width in (image, labels)]
        file = os.path.join(self.root, self._index.path(3 * index + 1))
        raise WrongSize(
            self.describe(index), f"has {sizes[0]} pixels (width x height), but {file} has {sizes[1]}; {remedy}"
        )

    def _maps(self, found: MatchedLayout, cache_folder: Path, choices: LabelChoices) -> _SplitFiles:
        pairs = find_pairs(found, self.split)
        self.notices += pairs.notices
        if self._kind == PANOPTIC:
            if choices.class_list is not None:
                raise UserError("DATA.CLASS_LIST: COCO's panoptic JSON names its classes itself: leave it out")
            self.class_names, self.palette, segments = read_panoptic(pairs.labels)
            return _SplitFiles(pairs.images, pairs.labels, segments)
        classes = _read_classes(found, choices)
        if not found.layout.classes and (classes is None or (len(classes.names) == 2 and classes.colors is None)):
            classes = self._count_classes(found, classes, cache_folder)
        assert classes is not None
        reduces = choices.reduce_zero_label
        if not classes.is_numbered and (0 in found.layout.ignored if reduces is None else reduces):
            classes = classes._replace(numbers=[number + 1 for number in classes.numbers])
        ignored = {255, *classes.ignored, *found.layout.ignored}
        is_without_zero = 0 in ignored if reduces is None else reduces
        ignored = (ignored - {0, *classes.numbers}) | ({0} if is_without_zero else set())
        kept = [row for row, number in enumerate(classes.numbers) if number not in ignored]
        self.class_names = [classes.names[row] for row in kept]
        self.palette = None if classes.palette is None else classes.palette[kept]
        numbers = dict.fromkeys(ignored, IGNORED) | {classes.numbers[row]: label for label, row in enumerate(kept)}
        colors = dict.fromkeys(classes.ignored_colors, IGNORED)
        if classes.colors is not None and not found.layout.classes:
            colors |= {int(classes.colors[row]): label for label, row in enumerate(kept)}
        source = classes.file or found.layout.words
        remark = f"classes are those of {source}; if they count from 1 and 0 is none, DATA.REDUCE_ZERO_LABEL true"
        self._table = LabelTable(numbers, colors, remark)
        if classes.file:
            self.notices.append(f"{len(kept)} classes of {classes.file}: {shorten(', '.join(self.class_names), 80)}")
        return _SplitFiles(pairs.images, pairs.labels, [b""] * len(pairs.labels))

    def _count_classes(self, found: MatchedLayout, listed: ClassList | None, cache_folder: Path) -> ClassList:
        """Classes by the numbers in all label maps, of all splits: whether two classes are 0 and 255, and which classes
        there are where nothing lists them."""
        files = []
        for split in SPLIT_WORDS:
            with contextlib.suppress(UserError):  # there is no such split
                files += find_pairs(found, split).labels
        numbers = _cache(cache_folder, files, numbers_in)
        is_binary = numbers == [0, 255]
        numbers = [0, 255] if is_binary else [number for number in numbers if number != 255]
        if listed is not None and (listed.is_numbered or not is_binary):
            return listed
        if listed is None and len(numbers) > _MOST_UNLISTED:
            raise UserError(
                f"{self.root}: label maps with {len(numbers)} numbers and no list of classes: masks that were "
                "resized or saved with smoothing are such; make them again with nearest neighbors, or list the "
                "classes in classes.txt"
            )
        if listed is None:
            names = ["background", "foreground"] if is_binary else [str(number) for number in numbers]
            listed = ClassList(names, numbers)
            self.notices.append(
                f"no list of classes: {len(numbers)}, by the numbers in all {len(files):,} label maps "
                f"({shorten(', '.join(map(str, numbers)), 60)}); classes.txt in {self.root} may name them"
            )
        if is_binary:
            self.notices.append(f"all label maps have 0 and 255 only: 255 is the second class, {listed.names[1]}")
        return listed._replace(numbers=numbers, is_numbered=True)

    def _drawings(self, found: MatchedLayout, cache_folder: Path, choices: LabelChoices) -> _SplitFiles:
        listed = list_outlines(self._kind, self.root, self.split)
        names, spelled = listed.names, listed.spelled
        if names is None or choices.class_list is not None:
            classes = _read_classes(found, choices)
            everywhere = list(labelme_files(self.root)) if classes is None else []
            names = _cache(cache_folder, everywhere, labelme_names) if classes is None else classes.names
            spelled = names if self._kind != YOLO_TEXT or classes is None else list(map(str, classes.numbers))
        self._name(names, spelled, choices)
        return _SplitFiles(listed.images, listed.files, [b""] * len(listed.files))

    def _name(self, names: Sequence[str], spelled: Sequence[str], choices: LabelChoices) -> None:
        """Classes of outlines; ``spelled`` is what their files call them. What is outside of all outlines is the class
        "background", which comes first unless it is listed, or has no class."""
        background = next((name for name in names if name in _BACKGROUND), None)
        more = [] if choices.is_unlabeled_ignored or background is not None else ["background"]
        self.class_names = [*more, *names]
        self._label_of = {"__ignore__": IGNORED} | {one: at + len(more) for at, one in enumerate(spelled)}
        if not choices.is_unlabeled_ignored:
            self._unlabeled = 0 if background is None else list(names).index(background)
            named = self.class_names[self._unlabeled]
            self.notices.append(
                f"pixels outside of outlines are of class {named} (DATA.UNLABELED_PIXELS ignored: of none)"
            )
        if self._kind != YOLO_TEXT:
            self.notices.append("points and lines among the outlines have no pixels and are left out")


def _read_classes(found: MatchedLayout, choices: LabelChoices) -> ClassList | None:
    """Read what the configuration, the published set or a file in the folder lists; None: nothing does."""
    layout, top = found
    if choices.class_list is not None:
        return read_class_list(os.path.join(top, choices.class_list))
    if not layout.classes:
        folders = [folder for split in SPLIT_WORDS for folder in find_split_folders(layout, top, split) or ()]
        return find_class_list(dict.fromkeys([top, *folders, *map(os.path.dirname, folders)]))
    return published_classes(layout.classes, layout.first, layout.offset)


def _cache(cache_folder: Path, files: Sequence[str], find: Callable[[Sequence[str]], list[Any]]) -> list[Any]:
    """Find what is found in all files, looked for again only after one of them has changed."""
    what = find.__name__
    index = ensure_path_index(cache_folder, what, stamp(what, files), lambda: [make_batch([], 0)], lambda: find(files))
    return list(index.class_names or ())


class LabelTable(NamedTuple):
    """Which number, or which color, stands for which class.

    Attributes:
        numbers: of label maps -> class, or ``IGNORED``.
        colors: red + 256 green + 65,536 blue -> class, or ``IGNORED``; empty: label maps have numbers.
        remark: what to do about an unknown label, for the message.
    """

    numbers: Mapping[int, int]
    colors: Mapping[int, int]
    remark: str

    def labels(self, pixels: LabelPixels, path: str) -> np.ndarray:
        """uint8 (height, width), the class of each pixel or ``IGNORED``.

        Raises:
            UserError: a pixel has another number or color; names the file, the row and the column, from 0.
        """
        values, is_color = pixels.values, pixels.is_color
        known = self.colors if is_color else self.numbers
        if is_color and not self.colors:
            values, is_color, known = read_label_numbers(pixels, path), False, self.numbers
        elif not is_color and self.colors:
            known, is_color = self._of_numbers(pixels.palette)
        found = _of_bytes(values, known) if values.dtype == np.uint8 else _of_any(values, known)
        if isinstance(found, np.ndarray):
            return found
        row, column = found
        raise UserError(self._unknown(int(values[row, column]), is_color, path, row, column))

    def _of_numbers(self, palette: np.ndarray | None) -> tuple[Mapping[int, int], bool]:
        """Return what numbers stand for where classes have colors: those of the palette; where there is none, gray
        levels if all colors are gray, else the numbers of the list."""
        if palette is not None:
            return {at: self.colors[one] for at, one in enumerate(palette.tolist()) if one in self.colors}, False
        if all(one == (one & 255) * 0x010101 for one in self.colors):
            return {one & 255: label for one, label in self.colors.items()}, False
        return self.numbers, False

    def _unknown(self, value: int, is_color: bool, path: str, row: int, column: int) -> str:
        shown = str(_channels(value)) if is_color else str(value)
        known = [str(_channels(one)) for one in self.colors] if is_color else [str(one) for one in sorted(self.numbers)]
        what = "color" if is_color else "label"
        return (
            f"{path} has the {what} {shown} at row {row}, column {column}, which is not known: {what}s are "
            f"{shorten(', '.join(known), 80)}; {self.remark}"
        )


def _channels(packed: int) -> tuple[int, int, int]:
    return packed & 255, packed >> 8 & 255, packed >> 16


def _of_bytes(values: np.ndarray, known: Mapping[int, int]) -> np.ndarray | tuple[int, int]:
    """The classes of numbers up to 255, uint8 (height, width); or row and column of the first that is not known."""
    raw = bytearray(np.ascontiguousarray(values))
    if raw.translate(None, bytes(number for number in known if number < 256)):
        is_known = np.isin(np.arange(256), list(known))
        row, column = np.argwhere(~is_known[values])[0].tolist()
        return row, column
    table = bytes(known.get(number, 0) for number in range(256))
    return np.frombuffer(raw.translate(table), np.uint8).reshape(values.shape)


def _of_any(values: np.ndarray, known: Mapping[int, int]) -> np.ndarray | tuple[int, int]:
    """The same for whole numbers of any size: looked up once for each run of equal ones."""
    flat = np.ascontiguousarray(values).reshape(-1)
    starts = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(flat[1:] != flat[:-1]) + 1])[: len(flat)]
    numbers = np.array(sorted(known), np.int64)
    labels = np.array([known[number] for number in numbers.tolist()], np.uint8)
    places = np.searchsorted(numbers, flat[starts]).clip(max=len(numbers) - 1)
    unknown = numbers[places] != flat[starts]
    if unknown.any():
        row, column = divmod(int(starts[unknown.argmax()]), values.shape[1])
        return row, column
    return np.repeat(labels[places], np.diff(starts, append=len(flat))).reshape(values.shape)


class _PanopticCategory(msgspec.Struct):
    id: int
    name: str
    color: tuple[int, int, int] | None = None


class _PanopticSegment(msgspec.Struct):
    id: int
    category_id: int


class _ImageSegments(msgspec.Struct):
    file_name: str
    segments_info: list[_PanopticSegment]


class _PanopticFile(msgspec.Struct):
    annotations: list[_ImageSegments]
    categories: list[_PanopticCategory]


def read_panoptic(label_maps: Sequence[str]) -> tuple[list[str], np.ndarray | None, list[bytes]]:
    """Classes and segments of the label maps of a split, from the JSON file that has the name of their folder.

    Returns:
        The categories' names; their colors, uint8 (categories, 3), None where the file has none; and for each label
        map the number and the category's position of each segment, int32 (segments, 2), as bytes.
    Raises:
        UserError: there is no such file, or it does not belong to the label maps.
    """
    folder, name = os.path.split(os.path.dirname(label_maps[0]))
    places = [os.path.join(folder, f"{name}.json"), os.path.join(folder, "annotations", f"{name}.json")]
    file = next(filter(os.path.isfile, places), places[0])
    with readable(file):
        try:
            content = msgspec.json.decode(read_regular(file), type=_PanopticFile)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(f"it is not a panoptic file of COCO's: {error}") from None
    colors = [category.color for category in content.categories]
    if any(not 0 <= level <= 255 for color in colors for level in color or ()):
        raise UserError(f"{file} has a category with a color outside of 0 to 255")
    label_of = {category.id: label for label, category in enumerate(content.categories)}
    segments_of = {one.file_name: one.segments_info for one in content.annotations}
    notes = []
    for path in label_maps:
        segments = segments_of.get(os.path.basename(path))
        if segments is None or any(one.category_id not in label_of or not 0 <= one.id < 1 << 24 for one in segments):
            raise UserError(f"{file} does not say the category of each segment of {path}: which file belongs to it?")
        notes.append(np.array([(one.id, label_of[one.category_id]) for one in segments], "<i4").tobytes())
    palette = np.array(colors, np.uint8) if colors and all(colors) else None
    return [category.name for category in content.categories], palette, notes
