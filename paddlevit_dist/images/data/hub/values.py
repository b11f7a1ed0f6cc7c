"""Labels in columns: one of each row, or a list of them, as class numbers, texts or numbers without names."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....core.runtime.errors import UserError
from ....core.runtime.printing import shorten
from ....core.runtime.spelling import compose
from ..class_cells import ClassValues
from .features import CLASS, LIST, Feature, find_column, is_list
from .storage import DataFile, OddData, readable_data

UNKNOWN = -1
NO_NUMBER = str(UNKNOWN)
_WHOLE = re.compile("-?[0-9]+")


class LabelValues(NamedTuple):
    """The labels of rows.

    Attributes:
        lengths: int64 (rows,), labels of each row, together in ``codes``; -1: not known.
        codes: int64 (labels,), class numbers, or places in ``texts``; -1: no label.
        texts: distinct labels in the order of their first use; None: the codes are class numbers.
    """

    lengths: np.ndarray
    codes: np.ndarray
    texts: list[str] | None = None

    def single(self) -> np.ndarray:
        """Return the one label of each row, int64 (rows,); -1 for none."""
        codes = np.full(len(self.lengths), UNKNOWN, np.int64)
        codes[self.lengths > 0] = self.codes
        return codes


class _LabelCodes(dict[Any, int]):
    """The code of each label of a type; texts in the order of their first use. An OddData for another value."""

    def __init__(self, feature: Feature) -> None:
        super().__init__()
        self._feature, self.texts = feature, dict[str, int]()

    def __missing__(self, value: Any) -> int:
        names = self._feature.names if self._feature.kind == CLASS else None
        if value is None or value != value:  # NaN, as pandas writes a missing number
            return UNKNOWN
        if isinstance(value, float):
            if not value.is_integer() or abs(value) > 2**53:
                raise OddData(f"its labels have {value:g}, expected whole numbers of classes")
            value = int(value)
        if not isinstance(value, int | str):
            raise OddData(f"labels are {shorten(repr(value), 60)}, expected {self._feature}; choose DATA.TABLE.LABELS")
        if names is not None and isinstance(value, int):
            if not UNKNOWN <= value < len(names):
                raise OddData(f"class {value}, expected 0 to {len(names) - 1}, or -1 for none: its names")
            return self.setdefault(value, value)
        text = compose(str(value)).strip()
        is_label = text and not (self._feature.kind == CLASS and isinstance(value, int) and value < 0)
        self[value] = self.texts.setdefault(text, len(self.texts)) if is_label else UNKNOWN
        return self[value]


def read_labels(files: Sequence[DataFile], path: str, feature: Feature) -> LabelValues:
    """Read the labels of all rows of ``files`` in a column, or in a field of it (``objects.category``).

    Raises:
        UserError: they are of another type than ``feature``, or class numbers are out of range.
    """
    has_lists = feature.kind == LIST
    item = feature.item if has_lists and feature.item is not None else feature
    known = _LabelCodes(item)
    lengths, codes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for data in files:
        for array in read_arrays(data, path):
            with readable_data(f"{data.path}, column {path}"):
                own, values = _flatten(array) if has_lists else (_count_values(array), array.drop_null())
                places: Any = slice(None)
                if str(values.type).startswith("dictionary"):  # pandas may have categories without rows
                    used, places = np.unique(values.indices, return_inverse=True)
                    values = values.dictionary.take(used)
                codes.append(np.fromiter(map(known.__getitem__, values.to_pylist()), np.int64, len(values))[places])
            lengths.append(own)
    is_numbered = item.kind == CLASS and item.names is not None
    return LabelValues(np.concatenate(lengths), np.concatenate(codes), None if is_numbered else list(known.texts))


def read_numbers(files: Sequence[DataFile], path: str, width: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Read the numbers in a column of them, or of lists of them or of rows of ``width`` numbers.

    Returns:
        Their number in each row, int64 (rows,), -1 for none; and all together, float64 (n,) or (n, width), NaN for a
        missing one.

    Raises:
        UserError: the column has something else.
    """
    import pyarrow

    lengths, numbers = [np.zeros(0, np.int64)], [np.zeros((0, width) if width else 0)]
    for data in files:
        for array in read_arrays(data, path):
            with readable_data(f"{data.path}, column {path}"):
                own, values = _flatten(array) if is_list(array.type) else (_count_values(array), array.drop_null())
                if width:
                    widths, values = _flatten(values)
                    if (widths != width).any():
                        raise OddData(f"a list of {widths[widths != width][0]} numbers, expected {width}")
                if not str(values.type).startswith(("int", "uint", "bool", "half", "float", "double", "dec", "null")):
                    raise OddData(f"expected numbers, found {shorten(values.type, 60)}")
                values = values.cast(pyarrow.int8()) if pyarrow.types.is_boolean(values.type) else values
                values = np.asarray(values.cast(pyarrow.float64(), safe=False).fill_null(np.nan), np.float64)
            lengths.append(own)
            numbers.append(values.reshape((-1, width) if width else -1))
    return np.concatenate(lengths), np.concatenate(numbers)


def read_arrays(data: DataFile, path: str) -> Iterator[Any]:
    """Yield the arrays of a column, or of a field of it: of lists, if it is a list of structs or a struct of lists."""
    import pyarrow

    top, field = find_column(path, data.schema.names)
    for (array,) in data.batches([top]):
        array = getattr(array, "storage", array)
        if not field:
            yield array
        elif is_list(array.type):  # of structs: lists of a field of these
            lengths, values = _flatten(array)
            offsets = pyarrow.array(np.append(0, np.cumsum(lengths.clip(min=0))))
            parts = _find_field(data, values, path)
            yield pyarrow.LargeListArray.from_arrays(offsets, parts, mask=pyarrow.array(lengths < 0))
        else:
            yield _find_field(data, array, path)


def _find_field(data: DataFile, array: Any, path: str) -> Any:
    name = path.partition(".")[2]
    fields = [array.type.field(number).name for number in range(array.type.num_fields)]
    if name not in fields:
        shown = shorten(", ".join(fields), 80)
        raise UserError(f"{data.path}, column {path}: it has no field {shorten(name, 60)}, only {shown}")
    return array.flatten()[fields.index(name)]


def _flatten(array: Any) -> tuple[np.ndarray, Any]:
    """Return the lengths of lists, -1 for none, and all their values."""
    from pyarrow import compute

    if not is_list(array.type):
        raise OddData(f"expected lists, found {shorten(array.type, 60)}")
    lengths = compute.fill_null(compute.list_value_length(array), -1)
    return np.asarray(lengths).astype(np.int64), array.flatten()


def _count_values(array: Any) -> np.ndarray:
    return np.asarray(array.is_valid()).astype(np.int64)


def read_class_columns(files: Sequence[DataFile], columns: Sequence[str]) -> np.ndarray:
    """Read one column of each class, int8 (rows, classes): 1, 0, or -1 for not known; a UserError for other cells."""
    values, rows = ClassValues(), [np.zeros((0, len(columns)), np.int8)]
    for data in files:
        read = []
        for name in columns:
            cells = [cell for array in read_arrays(data, name) for cell in array.to_pylist()]
            wrong = next((cell for cell in cells if not values.accepts(cell)), None)
            if wrong is not None:
                raise UserError(
                    f"{data.path}, column {name} (DATA.TABLE.LABELS): {shorten(repr(wrong), 60)}, expected 1, 0 or "
                    "nothing for a class"
                )
            read.append([values[cell] for cell in cells])
        rows.append(np.array(read, np.int8).reshape(len(columns), -1).T)
    return np.concatenate(rows)


def list_classes(texts: Iterable[str], feature: Feature) -> list[str]:
    """Return labels in the order of classes: numbers by their value, else by their text.

    Among numbers, -1 means that there is no label, unless the only other one is 1.
    """
    classes = set(texts)
    if not is_text(feature) and classes != {NO_NUMBER, "1"}:
        classes.discard(NO_NUMBER)
    return sorted(classes, key=int) if are_numbers(classes) else sorted(classes)


def are_numbers(texts: Iterable[str]) -> bool:
    """Return whether all labels are whole numbers."""
    return all(_WHOLE.fullmatch(text) for text in texts)


def is_text(feature: Feature) -> bool:
    """Return whether labels, or those in lists, are texts."""
    return (feature.item if feature.kind == LIST and feature.item is not None else feature).is_text
