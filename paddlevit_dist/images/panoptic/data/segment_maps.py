"""Images with maps of segments: COCO's panoptic format, folders of Cityscapes and ADE20K, numbers with the class."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ....core.runtime.errors import UserError
from ....core.runtime.json_format import format_json
from ....core.runtime.printing import count, shorten
from ....core.runtime.text_files import parse_json
from ....core.tasks.sample_checks import BadSample
from ...data.label_pixels import read_label_file
from ...data.map_files import MapFiles
from ...data.map_layouts import MatchedLayout, find_split_folders
from ...data.map_pairs import find_pairs
from ...data.panoptic_files import (
    NOTE,
    Categories,
    PanopticFile,
    find_panoptic_json,
    join_listed,
    list_categories,
    list_segment_rows,
    read_categories,
    read_panoptic_json,
    select_listed,
)
from ...data.reading import ReadConfig, decode_image, read_file, require_folder
from ..settings import PanopticSettings
from . import ade20k
from .layouts import ADE20K, CITYSCAPES, DATASET, IDS, find_segment_layout, list_published
from .panoptic_dataset import PanopticDataset
from .segments import Segments, number_segments

_LAYOUT = (
    "with images and maps of segments, such as images/train, panoptic/train and panoptic/train.json in COCO's format, "
    "or with categories.json instead of it, or with the folders of COCO, Cityscapes or ADE20K"
)
_CATEGORIES = "categories.json"
_ID_END = b"\n"
_CITYSCAPES_VOID = frozenset(range(34))  # numbers of classes that are not evaluated
CITYSCAPES_DIVISOR = 1_000


class SegmentChoices(NamedTuple):
    """The keys of maps of segments."""

    categories: str | None = None  # PANOPTIC.CATEGORIES
    divisor: int = CITYSCAPES_DIVISOR  # PANOPTIC.ID_DIVISOR
    exif_rotate: bool = False
    annotations: str | None = None  # DATA.TRAIN_ANNOTATIONS or VAL_ANNOTATIONS
    images: str | None = None  # DATA.TRAIN_IMAGES or VAL_IMAGES


class _SplitFiles(NamedTuple):
    """The images of a split, the map of each, and the rows of its segments as bytes; empty if numbers tell."""

    images: Sequence[str]
    maps: Sequence[str]
    notes: Sequence[bytes]  # of JSON files, also the image's id in front


class SegmentMaps(MapFiles, PanopticDataset):
    """Images with maps of segments in any layout of ``layouts``, or of a JSON file in COCO's panoptic format."""

    def __init__(
        self,
        data_path: str | None,
        split: str,
        cache_folder: Path,
        choices: SegmentChoices = SegmentChoices(),  # noqa: B008
    ) -> None:
        """Open ``split``: "train", "val" or another.

        Raises:
            UserError: nothing is found, or files or categories do not fit together.
        """
        self.split, self.root = split, require_folder(data_path, DATASET, _LAYOUT)
        self.notices: list[str] = []
        self.reading = ReadConfig(choices.exif_rotate)
        self._divisor, self._void = choices.divisor, frozenset[int]()
        self._read_numbers: Callable[[str, int], np.ndarray] = _read_numbers
        files, place = self._open_listed(choices) if choices.annotations else self._open_layout(choices)
        self._store_files(cache_folder, "segment maps", split, files)
        self.notices.insert(0, f"{split}: {count(len(self), 'image')} in {place}")

    @classmethod
    def open(cls, config: PanopticSettings, split: str, cache_folder: Path) -> "SegmentMaps":
        """Open the split with the configuration's keys."""
        data, word = config.DATA, "TRAIN" if split == "train" else "VAL"
        choices = SegmentChoices(
            config.PANOPTIC.CATEGORIES,
            config.PANOPTIC.ID_DIVISOR,
            bool(data.EXIF_ROTATE),
            data[f"{word}_ANNOTATIONS"],
            data[f"{word}_IMAGES"],
        )
        return cls(data.DATA_PATH, split, cache_folder, choices)

    def read(self, index: int) -> tuple[Image.Image, Segments]:
        """Read image ``index`` and its segments."""
        path = self.describe(index)
        image = decode_image(read_file(path), path, self.image_mode, self.reading)
        segments = self.read_segments(index)
        self._require_equal_sizes(index, (image.height, image.width), segments.places.shape)
        return image, segments

    def read_segments(self, index: int) -> Segments:
        """Read the segments of image ``index``."""
        file, note = self._describe_labels(index), self._note(index)
        try:
            numbers = self._read_numbers(file, self.reading.max_pixels)
            if not self._are_ids:
                rows = np.frombuffer(note.partition(_ID_END)[2], NOTE)
                ids, labels, crowds, areas = rows.reshape(-1, 4).T
                found = number_segments(numbers, ids, labels, crowds == 1)
                return found._replace(areas=np.where(areas < 0, found.areas, areas))
            label_of = dict(zip(self.category_ids or (), range(self.num_classes)))
            return split_ids(numbers, label_of, self.is_thing, self._divisor, self._void)
        except BadSample as error:
            raise UserError(f"{file}: {error.reason}; its image is {self.describe(index)}") from None

    def image_id(self, index: int) -> int | str:
        """Return the id of image ``index`` in the JSON file, if it has one."""
        known = self._note(index).partition(_ID_END)[0]
        return super().image_id(index) if not known else parse_json(known)

    def require_size(self, index: int, size: tuple[int, int]) -> None:
        """Check that image ``index`` and its map have the same size, and that the map can be used."""
        self._require_equal_sizes(index, size, self.read_segments(index).places.shape)

    def _open_layout(self, choices: SegmentChoices) -> tuple[_SplitFiles, str]:
        """Find the files of the split by the folders' names; return them, and where they are."""
        match = find_segment_layout(self.root)
        if match is None:
            raise UserError(f"{self.root}: no maps of segments found; expected a folder {_LAYOUT}")
        pairs = find_pairs(match, self.split)
        place = f"{match.top}: {match.layout.words}"
        _, folder = find_split_folders(match.layout, match.top, self.split) or ("", "")
        file = None if match.layout.classes else find_panoptic_json(folder)
        if file is None and match.layout.kind == IDS:
            self._take_categories(*self._read_id_classes(match, choices))
            self._are_ids = True
            self.notices += pairs.notices
            notes = [_make_note(path) if match.layout.classes == CITYSCAPES else b"" for path in pairs.labels]
            return _SplitFiles(pairs.images, pairs.labels, notes), place
        if choices.categories is not None:
            raise UserError(
                "PANOPTIC.CATEGORIES: COCO's panoptic JSON contains the categories; remove PANOPTIC.CATEGORIES"
            )
        file = file or f"{folder}.json"
        content = read_panoptic_json(file)
        pairs = select_listed(pairs, content, file)
        self.notices += pairs.notices
        return self._list_segments(file, content, pairs.images, pairs.labels), place

    def _list_segments(
        self, file: str, content: PanopticFile, images: Sequence[str], maps: Sequence[str]
    ) -> _SplitFiles:
        """Return the segments of these maps, from the content of a JSON file."""
        categories = list_categories(content.categories, file)
        self._take_categories(categories, file)
        self._are_ids = False
        rows = list_segment_rows(file, maps, categories.label_of(), content)
        id_of = {entry.file_name: entry.image_id for entry in content.annotations}
        known = (id_of[os.path.basename(path)] for path in maps)
        ids = (b"" if number is None else format_json(number).encode() for number in known)
        return _SplitFiles(images, maps, [_ID_END.join([own, each.tobytes()]) for each, own in zip(rows, ids)])

    def _open_listed(self, choices: SegmentChoices) -> tuple[_SplitFiles, str]:
        """Find the files that a JSON file of COCO's format lists, whose maps are in the folder of its name."""
        file = os.path.join(self.root, choices.annotations or "")
        folder = os.path.join(self.root, choices.images or "")
        content = read_panoptic_json(file)
        name_of = {image.id: image.file_name for image in content.images}
        stems = {os.path.splitext(name)[0]: name for name in (os.listdir(folder) if os.path.isdir(folder) else ())}
        pairs = []
        for entry in content.annotations:
            name = name_of.get(entry.image_id) or stems.get(os.path.splitext(entry.file_name)[0], "")
            image = join_listed(file, folder, name, "folders of its data")
            pairs.append((image, join_listed(file, os.path.splitext(file)[0], entry.file_name, "folders of its data")))
        pairs.sort(key=lambda pair: os.fsencode(pair[0]))  # as folders are listed: a seed draws the same samples
        images, maps = [image for image, _ in pairs], [label for _, label in pairs]
        missing = [path for path in (*images, *maps) if not os.path.isfile(path)]
        if missing or not images:
            what = f"names {missing[0]}, which does not exist" if missing else "lists no image"
            more = f" ({len(missing):,} files are missing)" if len(missing) > 1 else ""
            raise UserError(f"{file} {what}{more}; set DATA.TRAIN_IMAGES and VAL_IMAGES to the folders of the images")
        return self._list_segments(file, content, images, maps), file

    def _take_categories(self, categories: Categories, file: str) -> None:
        """Set classes and things; a ``UserError`` if they are not known."""
        if not categories.names:
            raise UserError(f"{file} lists no categories")
        if categories.is_thing is None:
            raise UserError(f"{file} has categories without isthing: 1 for a class with instances, 0 for stuff")
        self.class_names, self.palette = categories.names, categories.palette
        self.is_thing, self.category_ids = categories.is_thing, categories.ids
        self.num_classes = len(categories.names)

    def _read_id_classes(self, match: MatchedLayout, choices: SegmentChoices) -> tuple[Categories, str]:
        """Read the categories of numbers that contain the class, published or of a file."""
        if match.layout.classes == CITYSCAPES and choices.categories is None:
            self._void, self._divisor = _CITYSCAPES_VOID, CITYSCAPES_DIVISOR
            return list_published(CITYSCAPES), CITYSCAPES
        if match.layout.classes == ADE20K:
            if choices.categories is not None:
                raise UserError("PANOPTIC.CATEGORIES: ADE20K's classes are known; remove PANOPTIC.CATEGORIES")
            self._read_numbers, self._divisor = ade20k.read_numbers, ade20k.DIVISOR
            return list_published(ADE20K), ADE20K
        file = os.path.join(match.top, choices.categories or _CATEGORIES)
        if not os.path.isfile(file):
            raise UserError(
                f"{match.top} has maps of segments, but neither a JSON file in COCO's panoptic format next to their "
                f'folder nor {_CATEGORIES}, a list such as [{{"id": 1, "name": "car", "isthing": 1}}], with which a '
                f"number is {self._divisor:,} times an id plus the number of the object"
            )
        return read_categories(file), file


def _read_numbers(file: str, max_pixels: int) -> np.ndarray:
    """Return the numbers of a map's pixels, int64 (height, width)."""
    return read_label_file(file, max_pixels).values.astype(np.int64)


def _make_note(path: str) -> bytes:
    """Return the note of one of Cityscapes' maps: the image's id in the files of Cityscapes' own tools."""
    return format_json(os.path.basename(path).partition("_gtFine")[0]).encode() + _ID_END


def split_ids(
    numbers: np.ndarray, label_of: Mapping[int, int], is_thing: Sequence[bool], divisor: int, void: frozenset[int]
) -> Segments:
    """Return the segments of a map whose numbers contain the class, integers (height, width).

    A number is ``divisor`` times the category's id plus the number of the object, as in Cityscapes' files; an id alone
    is stuff, or a crowd of things. 0 is void unless it is an id, as are the ids of ``void``. All of a class of stuff is
    one segment. A BadSample names a pixel whose number is of no category.
    """
    values, inverse = np.unique(numbers, return_inverse=True)
    categories = np.where(values < divisor, values, values // divisor)
    rows: dict[tuple[int, int], int] = {}
    row_of = np.full(len(values), -1, np.int64)
    for place, (value, category) in enumerate(zip(values.tolist(), categories.tolist())):
        label = label_of.get(category)
        if label is None:
            if category not in void and value != 0:
                row, column = np.argwhere(numbers == value)[0].tolist()
                known = shorten(", ".join(map(str, label_of)), 60)
                raise BadSample(
                    f"pixel ({row}, {column}) has the number {value}, of category {category}, which is unknown: the "
                    f"categories are {known}, and a number is {divisor:,} times one of them plus that of the object "
                    "(PANOPTIC.ID_DIVISOR)"
                )
            continue
        segment = (label, value if is_thing[label] else -1)
        row_of[place] = rows.setdefault(segment, len(rows))
    places = row_of[inverse.reshape(numbers.shape)]
    labels = [label for label, _ in rows]
    is_crowd = [is_thing[label] and value < divisor for label, value in rows]
    ids: list[Any] = [next(iter(values[row_of == row].tolist())) for row in range(len(rows))]
    found = number_segments(places + 1, range(1, len(rows) + 1), labels, is_crowd)
    return found._replace(ids=np.array(ids, np.int64).reshape(-1))
