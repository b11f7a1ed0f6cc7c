"""Conditions that every sample must fulfil before it is computed with: finite numbers, and labels that exist.

Called in the loader process for each sample, so that a bad one is named when it is read, and not when the loss is.
"""

import math
from typing import Any

import numpy as np

from ..runtime.errors import UserError

_DEEPEST = 8  # nesting of lists and dictionaries that is looked into


class BadSample(UserError):
    """A sample that could be read but not be used. The message says what is wrong with it; whoever reads it adds its
    index, its description and the rank."""


def require_finite(value: Any, name: str = "", depth: int = 0) -> None:
    """Check that all floating-point numbers in a sample are finite.

    Args:
        value: numbers, arrays, and tuples, lists and dictionaries of them; anything else is not looked at.
        name: of the value, for the message.

    Raises:
        BadSample: names the first number that is not.
    """
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "fc" and value.size and not _is_finite(value):
            bad = ~np.isfinite(value)
            first = tuple(int(position) for position in np.argwhere(bad)[0])
            raise BadSample(
                f"{name or 'an array'}{list(first) if first else ''} is {value[first]}; {np.count_nonzero(bad):,} of "
                f"its {value.size:,} numbers are not finite: repair or remove the sample"
            )
    elif isinstance(value, (float, np.floating)):
        if not math.isfinite(value):
            raise BadSample(f"{name or 'a number'} is {value}, expected a finite number: repair or remove the sample")
    elif depth < _DEEPEST and isinstance(value, (dict, tuple, list)):
        for key, part in _parts(value):
            require_finite(part, f"{name}.{key}" if name else str(key), depth + 1)


def _parts(value: Any) -> Any:
    if isinstance(value, dict):
        return value.items()
    return zip(getattr(value, "_fields", None) or (f"part {number}" for number in range(len(value))), value)


def _is_finite(array: np.ndarray) -> bool:
    """Without an array of answers: NaN and infinity both reach the minimum or the maximum."""
    if array.dtype.kind == "c":
        return bool(np.isfinite(array).all())
    with np.errstate(invalid="ignore"):
        return bool(np.isfinite(array.min()) and np.isfinite(array.max()))


def require_label(label: Any, num_classes: int | None) -> None:
    """Check the class of a sample. Several numbers, the shares of all classes, must be finite.

    Args:
        label: a whole number of any type.
        num_classes: None: unknown, so that there is no upper limit.

    Raises:
        BadSample: it is no class.
    """
    array = np.asarray(label)
    if array.size > 1:
        require_finite(array, "label")
        return
    try:
        first = array.reshape(-1)[0]
        first = float(first) if array.dtype.kind in "SU" else first  # "3" is a class as well
        is_whole = float(first).is_integer()
    except (TypeError, ValueError, OverflowError, IndexError):
        is_whole = False
    if not is_whole:
        raise BadSample(f"label is {label!r}, expected the whole number of a class: repair or remove the sample")
    if first < 0 or (num_classes is not None and first >= num_classes):
        raise BadSample(f"label {int(first)} is out of range: {_describe_expected(num_classes)}")


def require_labels(
    labels: np.ndarray, num_classes: int | None, ignored: int, what: str, element: str = "point"
) -> None:
    """Check the labels of points, or of other elements.

    Args:
        labels: (points,) of any type.
        num_classes: as in ``require_label``.
        ignored: the label of a point without one.
        what: a point has, for the message.
        element: what has it in place of a point.

    Raises:
        BadSample: names the first element with another label.
    """
    labels = np.asarray(labels)
    wrong = labels < 0
    if num_classes is not None:
        wrong |= labels >= num_classes
    wrong &= labels != ignored
    if wrong.any():
        first = int(wrong.argmax())
        raise BadSample(
            f"{element} {first} has {what} {labels[first]}, which is out of range ({np.count_nonzero(wrong):,} of "
            f"{len(labels):,} {element}s have such): {_describe_expected(num_classes)}, and {ignored} means none"
        )


def _describe_expected(num_classes: int | None) -> str:
    if num_classes is None:
        return "classes count from 0"
    return f"with {num_classes} classes labels go from 0 to {num_classes - 1}"
