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


def read_labels(files: Sequence[DataFile], path: str, feature: Feature) -> LabelValues:
    """Read the labels of all rows of ``files`` in a column, or in a field of it (``objects.category``).

    Raises:
        UserError: they are of another type than ``feature``, or class numbers are out of range.
    """
    has_lists = feature.kind == LIST
    item = feature.item if has_lists and feature.item is not None else feature
    coder = _Coder(item)
    lengths, codes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for data in files:
        first = 0
        for array in read_arrays(data, path):
            with readable_data(f"{data.path}, column {path}"):
                numbers, values = _flatten(array) if has_lists else (_count_values(array), array.drop_null())
            lengths.append(numbers)
            codes.append(coder.encode(values, f"{data.path}, column {path}, rows {first} to {first + len(array) - 1}"))
            first += len(array)
    return LabelValues(np.concatenate(lengths), np.concatenate(codes), coder.texts())


def read_numbers(files: Sequence[DataFile], path: str, width: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Read the numbers in a column of them, or of lists of them or of rows of ``width`` numbers.

    Returns:
        Their number in each row, int64 (rows,), -1 for none; and all together, float64 (n,) or (n, width), NaN for a
        missing one.

    Raises:
        UserError: the column has something else.
    """
    lengths, numbers = [np.zeros(0, np.int64)], [np.zeros((0, width) if width else 0)]
    for data in files:
        for array in read_arrays(data, path):
            with readable_data(f"{data.path}, column {path}"):
                own, values = _flatten(array) if is_list(array.type) else (_count_values(array), array.drop_null())
                if width:
                    widths, values = _flatten(values)
                    if (widths != width).any():
                        raise OddData(f"a list of {widths[widths != width][0]} numbers, expected {width}")
                lengths.append(own)
                numbers.append(_to_floats(values).reshape((-1, width) if width else -1))
    return np.concatenate(lengths), np.concatenate(numbers)


def _to_floats(values: Any) -> np.ndarray:
    import pyarrow
    from pyarrow import types

    if types.is_null(values.type):
        return np.full(len(values), np.nan)
    if types.is_boolean(values.type):
        values = values.cast(pyarrow.int8())
    if not (types.is_integer(values.type) or types.is_floating(values.type) or types.is_decimal(values.type)):
        raise OddData(f"expected numbers, found {shorten(values.type, 60)}")
    return np.asarray(values.cast(pyarrow.float64(), safe=False).fill_null(np.nan), np.float64)


def read_arrays(data: DataFile, path: str) -> Iterator[Any]:
    """Yield the arrays of a column, or of a field of it: of lists, if it is a list of structs or a struct of lists."""
    top, field = find_column(path, data.schema.names)
    for (array,) in data.batches([top]):
        array = getattr(array, "storage", array)
        if not field:
            yield array
            continue
        with readable_data(f"{data.path}, column {path}"):
            yield _field_of_list(array, field) if is_list(array.type) else _field(array, field)


def _field(array: Any, name: str) -> Any:
    kind = array.type
    names = [kind.field(number).name for number in range(kind.num_fields)]
    if name not in names:
        raise OddData(f"it has no field {shorten(name, 60)}, only {shorten(', '.join(names), 80)}")
    return array.flatten()[names.index(name)]


def _field_of_list(array: Any, name: str) -> Any:
    """Return lists of a field of the structs in lists."""
    import pyarrow

    lengths, values = _flatten(array)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths.clip(min=0))])
    mask = pyarrow.array(lengths < 0) if (lengths < 0).any() else None
    return pyarrow.LargeListArray.from_arrays(pyarrow.array(offsets), _field(values, name), mask=mask)


def _flatten(array: Any) -> tuple[np.ndarray, Any]:
    """Return the lengths of lists, -1 for none, and all their values."""
    from pyarrow import compute

    if not is_list(array.type):
        raise OddData(f"expected lists, found {shorten(array.type, 60)}")
    lengths = compute.fill_null(compute.list_value_length(array), -1)
    return np.asarray(lengths).astype(np.int64), array.flatten()


def _to_whole(array: Any) -> Any:
    """Return floating-point numbers as whole numbers; NaN, as pandas writes it, is a missing one."""
    import pyarrow

    numbers = _to_floats(array)
    known = np.isfinite(numbers)
    wrong = numbers[(known & (numbers != np.rint(numbers))) | np.isinf(numbers) | (np.abs(numbers) > 2**53)]
    if len(wrong):
        raise OddData(f"its labels have {wrong[0]:g}, expected whole numbers of classes")
    return pyarrow.array(np.where(known, numbers, 0).astype(np.int64), mask=~known)


def _count_values(array: Any) -> np.ndarray:
    return np.asarray(array.is_valid()).astype(np.int64)


class _Coder:
    """Numbers labels of a type; texts in the order of their first use."""

    def __init__(self, feature: Feature) -> None:
        self._feature = feature
        self._numbers: dict[str, int] = {}

    def texts(self) -> list[str] | None:
        return None if self._feature.kind == CLASS and self._feature.names is not None else list(self._numbers)

    def encode(self, array: Any, place: str) -> np.ndarray:
        """Return a number for each value, int64; -1 for a value that is missing, or the class -1."""
        import pyarrow
        from pyarrow import types

        kind = array.type
        if types.is_null(kind):
            return np.full(len(array), UNKNOWN, np.int64)
        if types.is_dictionary(kind):
            array = array.dictionary_decode()
            kind = array.type
        with readable_data(place):
            if types.is_floating(kind):
                array = _to_whole(array)
                kind = array.type
            if self._feature.kind == CLASS and types.is_integer(kind):
                return self._check(np.asarray(array.cast(pyarrow.int64()).fill_null(UNKNOWN)), place)
            if types.is_integer(kind) or types.is_boolean(kind) or str(kind).startswith(("string", "large_string")):
                is_text = str(kind).startswith(("string", "large_string"))
                plain = array.cast(pyarrow.large_string()) if is_text else array
                encoded = plain.dictionary_encode()
                places = [self._number(value) for value in encoded.dictionary.to_pylist()]
                indices = np.asarray(encoded.indices.cast(pyarrow.int64()).fill_null(len(places)))
                return np.array([*places, UNKNOWN], np.int64)[indices]
        raise UserError(f"{place}: labels are {shorten(kind, 60)}, expected {self._feature}; choose DATA.TABLE.LABELS")

    def _check(self, codes: np.ndarray, place: str) -> np.ndarray:
        names = self._feature.names
        if names is None:
            return np.array([UNKNOWN if code < 0 else self._number(code) for code in codes.tolist()], np.int64)
        if len(codes) and not UNKNOWN <= codes.min() <= codes.max() < len(names):
            wrong = codes[(codes < UNKNOWN) | (codes >= len(names))][0]
            raise UserError(f"{place}: class {wrong}, expected 0 to {len(names) - 1}, or -1 for none: its names")
        return codes

    def _number(self, value: Any) -> int:
        text = compose(str(value)).strip()
        return self._numbers.setdefault(text, len(self._numbers)) if text else UNKNOWN


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
