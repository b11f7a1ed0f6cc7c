"""The segments of an image, made from what people have: a map of numbers, and what each number is."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ....core.runtime.printing import count, describe_value, shorten
from ....core.tasks.class_labels import make_class, show_value
from ....core.tasks.sample_arrays import as_array
from ....core.tasks.sample_checks import BadSample

VOID = -1  # row of a pixel without a segment
_MAP, _LIST = "segment_map", "segments"  # keys of a dictionary
_MAP_MODES = ("1", "L", "P", "I", "I;16", "I;16B", "I;16L", "RGB")  # of Pillow
_FIELDS = ("id", "label", "is_crowd", "area", "score")
_OTHER_NAMES = {"iscrowd": "is_crowd"}
_FORM = (
    f'expected a dictionary with "{_MAP}", the number of each pixel\'s segment, and "{_LIST}", a list of dictionaries '
    "with id and label"
)
_LARGEST = 1 << 31  # number of a segment, exclusive
_MOST = 32_767  # segments in an image, so that batches store rows in 16 bits


class Segments(NamedTuple):
    """The segments of an image: each pixel is in one of n segments, or in none (void)."""

    places: np.ndarray  # int32 (height, width), the row of each pixel's segment in the columns below, or ``VOID``
    labels: np.ndarray  # int64 (n,), class of each segment, from 0
    is_crowd: np.ndarray  # bool (n,), a group of things: not learned; predictions of it are neither right nor wrong
    areas: np.ndarray  # int64 (n,), pixels, as the file says, else as counted
    ids: np.ndarray  # int64 (n,), numbers of the segments in their file
    scores: np.ndarray | None = None  # float64 (n,), from 0 to 1, of predictions only

    def choose(self, rows: np.ndarray) -> "Segments":
        """Return the segments of these rows, int64, in this order; pixels of others become void."""
        table = np.full(len(self.labels) + 1, VOID, np.int32)  # the last entry is of void
        table[rows] = np.arange(len(rows))
        columns = (None if column is None else column[rows] for column in self[1:])
        return Segments(table[self.places], *columns)

    @property
    def class_map(self) -> np.ndarray:
        """Class of each pixel, int64 (height, width), -1 where it is void."""
        return np.append(self.labels, -1)[self.places]


def make_segments(
    given: object,
    num_classes: int | None = None,
    class_names: Sequence[str] = (),
    size: tuple[int, int] | None = None,
) -> Segments:
    """Return the segments of an image with arrays of the stated types, from what people have.

    Args:
        given: ``Segments``; or a dictionary with "segment_map" and "segments". The map has the number of each pixel's
            segment: whole numbers (height, width), or an image of them, or colors as in COCO's files, (height, width,
            3), whose number is red + 256 green + 65,536 blue. 0 and -1 are void unless a segment has this number. Each
            of the segments is a dictionary with "id", its number, and "label", its class; and perhaps with "is_crowd"
            (or "iscrowd"), "area" and "score".
        num_classes: number of classes; None: unknown.
        class_names: names of the classes, if they have any, for labels that are names.
        size: height and width of the image; None: unknown.

    Raises:
        BadSample: a field is missing, of another form, or out of range, or numbers of pixels and segments differ.
    """
    if isinstance(given, Segments):
        return _check_segments(given, num_classes, size)
    if not isinstance(given, Mapping):
        raise BadSample(f"segments are {describe_value(given)}: {_FORM}")
    if set(given) != {_MAP, _LIST}:
        wrong = [name for name in (_MAP, _LIST) if name not in given] or [
            name for name in given if name not in (_MAP, _LIST)
        ]
        what = "lack" if wrong[0] in (_MAP, _LIST) else "have"
        raise BadSample(f"segments {what} {show_value(wrong[0])}: {_FORM}")
    rows = given[_LIST]
    if not isinstance(rows, (list, tuple)) or not all(isinstance(row, Mapping) for row in rows):
        raise BadSample(f'"{_LIST}" is {describe_value(rows)}: {_FORM}')
    read = [_read_row(row, place, num_classes, class_names) for place, row in enumerate(rows)]
    numbers = read_segment_map(given[_MAP], size)
    columns = {name: [row[name] for row in read] for name in _FIELDS}
    areas, scores = columns["area"], columns["score"]
    if None in scores and any(score is not None for score in scores):
        raise BadSample(f"segments[{scores.index(None)}] has no score, but others have: give each one a score, or none")
    return number_segments(
        numbers,
        columns["id"],
        columns["label"],
        columns["is_crowd"],
        None if None in areas else areas,
        None if None in scores or not read else scores,
    )


def number_segments(
    numbers: np.ndarray,
    ids: Sequence[int],
    labels: Sequence[int],
    is_crowd: Sequence[bool],
    areas: Sequence[int] | None = None,
    scores: Sequence[float] | None = None,
) -> Segments:
    """Return the segments of a map of numbers, integers (height, width); 0 and -1 are void unless they are ids.

    Without ``areas`` pixels are counted. BadSample: a number in the map is not an id, or an id occurs twice.
    """
    own_ids = np.array(ids, np.int64).reshape(-1)
    order = np.argsort(own_ids, kind="stable")
    known = own_ids[order]
    repeated = np.flatnonzero(known[1:] == known[:-1])
    if len(repeated):
        raise BadSample(f"two segments have the id {known[repeated[0]]}: give each one its own")
    if len(known) > _MOST:
        raise BadSample(f"{len(known):,} segments in an image: at most {_MOST:,} are read")
    table = np.concatenate([known, [0, -1]])  # ids, then void unless a segment has this number
    rows = np.concatenate([order, [VOID, VOID]])
    sorter = np.argsort(table, kind="stable")  # an id comes before the void of the same number
    table, rows = table[sorter], rows[sorter]
    values, inverse = np.unique(numbers, return_inverse=True)
    found = np.searchsorted(table, values).clip(max=len(table) - 1)
    unknown = table[found] != values
    if unknown.any():
        value = int(values[unknown][0])
        row, column = np.argwhere(numbers == value)[0].tolist()
        raise BadSample(
            f"pixel ({row}, {column}) has the number {value}, which no segment has: "
            f"{count(len(known), 'segment')}: {shorten(', '.join(map(str, known.tolist())), 60)}"
        )
    places = rows[found][inverse.reshape(numbers.shape)].astype(np.int32)
    counted = np.bincount(places[places >= 0], minlength=len(known))
    return Segments(
        places,
        np.array(labels, np.int64).reshape(-1),
        np.array(is_crowd, bool).reshape(-1),
        counted if areas is None else np.array(areas, np.int64).reshape(-1),
        own_ids,
        None if scores is None else np.array(scores, np.float64).reshape(-1),
    )


def read_segment_map(given: Any, size: tuple[int, int] | None = None) -> np.ndarray:
    """Return the number of each pixel's segment, integers (height, width); see ``make_segments``; or a BadSample."""
    if isinstance(given, Image.Image) and given.mode not in _MAP_MODES:
        raise BadSample(f'"{_MAP}" is an image of mode {given.mode}: expected numbers, or RGB as in COCO\'s files')
    array = None if isinstance(given, (str, bytes)) else as_array(given)
    if array is not None and array.ndim == 3 and array.shape[2] == 3 and array.dtype == np.uint8:
        array = array.astype(np.int64) @ np.array([1, 256, 65_536])
    if array is None or array.dtype.kind not in "biuf" or array.ndim != 2:
        raise BadSample(
            f'"{_MAP}" is {describe_value(given)}: expected whole numbers (height, width), or colors as in COCO\'s '
            "files, uint8 (height, width, 3)"
        )
    if size is not None and array.shape != size:
        raise BadSample(f'"{_MAP}" is {describe_value(array)}: expected {size}, like the image')
    if array.dtype.kind == "f" and (not np.isfinite(array).all() or (array != np.floor(array)).any()):
        raise BadSample(f'"{_MAP}" is {describe_value(array)} with fractions: expected the numbers of segments')
    if array.size and not -1 <= array.min() <= array.max() < _LARGEST:
        raise BadSample(f'"{_MAP}" has numbers from {array.min()} to {array.max()}: expected 0 to {_LARGEST - 1:,}')
    return array.astype(np.int64)


def _read_row(row: Mapping[str, Any], place: int, num_classes: int | None, names: Sequence[str]) -> dict[str, Any]:
    """Return the fields of one of the segments; a BadSample says which is missing or wrong."""
    where = f"{_LIST}[{place}]"
    fields = {_OTHER_NAMES.get(name, name): value for name, value in row.items()}
    unknown = [name for name in fields if name not in _FIELDS]
    if unknown or len(fields) < len(row):
        wrong = show_value(unknown[0]) if unknown else '"is_crowd" twice'
        hint = ", and label, a class from 0, instead of a category's id" if unknown == ["category_id"] else ""
        raise BadSample(f"{where} has {wrong}, which is not read: expected {', '.join(_FIELDS)}{hint}")
    missing = [name for name in _FIELDS[:2] if name not in fields]
    if missing:
        raise BadSample(f"{where} has no {missing[0]}: each segment needs id and label")
    try:
        label = make_class(fields["label"], num_classes, names)
        number = make_class(fields["id"], _LARGEST)
    except BadSample as error:
        raise BadSample(f"{where}: {error.reason}") from None
    flag, area, score = (fields.get(name) for name in _FIELDS[2:])
    if flag not in (None, 0, 1):
        raise BadSample(f"{where}.is_crowd is {show_value(flag)}: expected true or false, or 1 or 0")
    for name, value, limit in (("area", area, np.inf), ("score", score, 1.0)):
        is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
        if value is not None and not (is_number and 0 <= value <= limit and value < np.inf):
            bounds = "0 or more" if limit > 1 else "0 to 1"
            raise BadSample(f"{where}.{name} is {show_value(value)}: expected a number, {bounds}")
    return {"id": number, "label": label, "is_crowd": bool(flag), "area": area, "score": score}


def _check_segments(given: Segments, num_classes: int | None, size: tuple[int, int] | None) -> Segments:
    """Return segments unchanged; a BadSample if an array has another type, length or range than is stated."""
    number = len(given.labels)
    shapes = {"labels": "iu", "is_crowd": "b", "areas": "iu", "ids": "iu"}
    if given.scores is not None:
        shapes["scores"] = "f"
    for name, kinds in shapes.items():
        column = np.asarray(getattr(given, name))
        if column.shape != (number,) or column.dtype.kind not in kinds:
            raise BadSample(f"{name} are {describe_value(column)}: expected ({number},), a value for each segment")
    places = np.asarray(given.places)
    if places.dtype.kind not in "i" or places.ndim != 2 or (size is not None and places.shape != size):
        expected = "(height, width)" if size is None else f"{size}, like the image"
        raise BadSample(f"places are {describe_value(places)}: expected integers with a sign, {expected}")
    if places.size and not VOID <= places.min() <= places.max() < number:
        raise BadSample(f"places go from {places.min()} to {places.max()}: expected {VOID} to {number - 1}")
    limit = num_classes or _LARGEST
    wrong = np.flatnonzero((given.labels < 0) | (given.labels >= limit))
    if len(wrong):
        raise BadSample(f"labels[{wrong[0]}] is {given.labels[wrong[0]]}: expected a class from 0 to {limit - 1}")
    return given
