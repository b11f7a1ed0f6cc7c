"""Conversion of what people have to the arrays of a sample: lists, all types of numbers, and names of classes.

Each function raises a ``BadSample`` of one line that names the field. Arrays that have the right type are not copied.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..runtime.printing import describe_value, shorten
from .sample_checks import BadSample, has_no_other_negative, require_finite, to_finite


def to_array(value: Any, field: str) -> np.ndarray:
    """Return numbers or texts as an array; nothing, a ragged list and an array with masked gaps are refused."""
    if isinstance(value, (str, bytes, Mapping, set)) or value is None:
        raise BadSample(f"{field} is {describe_value(value)}, expected an array")
    try:
        array = _convert(value)
    except Exception as error:  # of a list whose parts have other lengths, or of another library's type
        raise BadSample(f"{field} cannot become an array: {shorten(str(error))}") from error
    if np.ma.is_masked(array):
        raise BadSample(f"{field} is a masked array: fill its gaps, or remove these elements")
    if array.dtype.kind in "iufbUO":
        return array
    raise BadSample(f"{field} is {describe_value(array)}, expected numbers")


def as_array(value: Any) -> np.ndarray | None:
    """Return numbers or texts as an array; None if they are something else, have gaps, or cannot be converted.

    Tensors are copied to the host.
    """
    try:
        array = _convert(value)
    except Exception:  # rows of different lengths, tensors with gradients, and what users' classes raise
        return None
    return array if array.dtype.kind in "biufUSO" and not np.ma.is_masked(array) else None


def _convert(value: Any) -> np.ndarray:
    """Return a value as an array, with gaps if it has some; raises what users' classes and NumPy raise."""
    if type(value) is np.ndarray:
        return value
    if "bfloat16" in str(getattr(value, "dtype", "")):  # which NumPy lacks
        value = value.astype("float32")
    return value if np.ma.is_masked(value) else np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def to_floats(value: Any, field: str, columns: int, dtype: type = np.float32) -> np.ndarray:
    """Return finite numbers, (rows, columns) of ``dtype``, contiguous; without a number there are no rows."""
    array = to_array(value, field)
    if array.dtype.kind not in "iuf":
        raise BadSample(f"{field} is {describe_value(array)}, expected numbers")
    array = array.reshape(-1, columns) if not array.size or (columns == 1 and array.ndim == 1) else array
    if array.ndim != 2 or array.shape[1] != columns:
        raise BadSample(f"{field} has the shape {array.shape}, expected (n, {columns})")
    return to_finite(array, dtype, field)


def to_classes(
    value: Any, field: str, class_names: Sequence[str] | None, limit: int, none: int | None = None
) -> np.ndarray:
    """Return the classes of elements, an array of integers of the same shape, from whole numbers or names.

    Args:
        value: integers of any type, truth values, whole floating-point numbers, or names.
        field: what the classes are of, for messages.
        class_names: names of the classes; None: they have none.
        limit: number of classes, or of possible ones.
        none: number of an element without a class; a name of None is such an element, too; None: all have one.
    """
    array = to_array(value, field)
    if array.dtype.kind in "UO" and array.size:
        array = _find_names(array, field, class_names, none)
    if array.dtype.kind == "f":
        require_finite(array, field)
        array = array.astype(np.float64)  # a limit may not fit into 16 bits
        if (np.rint(array) != array).any():
            raise BadSample(f"{field} has {array[np.rint(array) != array][0]:g}, expected the whole number of a class")
    require_range(array, field, limit, none)
    return array if array.dtype.kind == "i" else array.astype(np.int64)


def require_range(array: np.ndarray, field: str, limit: int, none: int | None = None) -> None:
    """Raise a BadSample unless all numbers are from 0 to below ``limit``, or ``none``."""
    if not array.size or (array.max() < limit and has_no_other_negative(array, none)):
        return
    wrong = (array < 0) | (array >= limit)
    if none is not None:
        wrong &= array != none
    if wrong.any():
        first = tuple(int(place) for place in np.argwhere(wrong)[0])
        nothing = "" if none is None else f", or {none} for none"
        raise BadSample(
            f"{field}{list(first) if first else ''} is {array[first].item():g}, which is out of range, as "
            f"{np.count_nonzero(wrong):,} of {array.size:,} are: expected 0 to {limit - 1}{nothing}"
        )


def _find_names(array: np.ndarray, field: str, class_names: Sequence[str] | None, none: int | None) -> np.ndarray:
    """Return the class of each name, int64 of the array's shape; numbers are kept."""
    numbers: dict[Any, Any] = {name: number for number, name in enumerate(class_names or ())}
    numbers |= {} if none is None else {None: none}
    result = np.empty(array.shape, np.int64)
    for place, name in zip(np.ndindex(array.shape), array.reshape(-1).tolist()):
        is_number = isinstance(name, (int, np.integer)) and abs(name) < 1 << 62
        if not is_number and (not isinstance(name, (str, type(None))) or name not in numbers):
            nothing = "which have no names here: give class_names"
            known = shorten(", ".join(map(str, class_names))) if class_names else nothing
            raise BadSample(f"{field} has {describe_value(name)}, expected the number or the name of a class ({known})")
        result[place] = name if is_number else numbers[name]
    return result


def require_same_length(fields: Mapping[str, np.ndarray]) -> None:
    """Raise a BadSample unless all arrays have the length of the first one."""
    lengths = {name: len(values) for name, values in fields.items()}
    number = next(iter(lengths.values()))
    if any(length != number for length in lengths.values()):
        listed = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise BadSample(f"its fields have different lengths ({listed}): expected a row for each point")


def read_fields(sample: Any, form: type, required: Sequence[str], what: str) -> dict[str, Any]:
    """Return the fields of a named tuple ``form``, or of a dictionary with names of these fields.

    ``what`` is what has returned the sample, for messages, such as "Rooms.read".
    """
    known: Sequence[str] = form._fields  # type: ignore[attr-defined]
    if isinstance(sample, form):
        return sample._asdict()  # type: ignore[attr-defined]
    if not isinstance(sample, Mapping):
        raise BadSample(f"{what} returns {describe_value(sample)}, expected a {form.__name__}")
    unknown = [name for name in sample if name not in known]
    if unknown:
        raise BadSample(f"{what} returns a field {unknown[0]!r}, which is none of {', '.join(known)}")
    missing = [name for name in required if name not in sample]
    if missing:
        raise BadSample(f"{what} returns a dictionary without {', '.join(missing)}")
    return dict(sample)
