"""Checks of each sample before it is used: finite numbers and valid labels.

They run in the loader process, so that a bad sample is reported when it is read, and not when the loss is NaN.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..runtime.errors import UserError

_DEEPEST = 8  # levels of nested lists and dictionaries that are checked


class BadSample(UserError):
    """A sample that was read but must not be used, and why; who knows its index and description adds them.

    Attributes:
        reason: the message without the sample's name.
    """

    def __init__(self, reason: str, sample: str = "") -> None:
        super().__init__(f"{sample}: {reason}" if sample else reason)
        self.reason, self.sample = reason, sample

    def name(self, sample: str) -> "BadSample":
        """Return the error with the sample's name, unless it has one."""
        return self if self.sample else type(self)(self.reason, sample)


class UnlikeSamples(UserError):
    """Samples that no batch can hold, and the positions in it of two that differ, which the loader names."""

    def __init__(self, reason: str, positions: tuple[int, int] = (0, 0)) -> None:
        super().__init__(reason)
        self.positions = positions


_FAST_PRODUCTS = (np.float32, np.float64)  # that a library of linear algebra adds up


def require_finite(value: Any, name: str = "", depth: int = 0) -> None:
    """Check that all floating-point numbers in a sample are finite.

    ``value`` are numbers, arrays, and tuples, lists and dictionaries of them; other values are ignored. Raises
    BadSample: names the first number that is NaN or infinite.
    """
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "fc" and value.size and not _is_finite(value):
            bad = ~np.isfinite(value)
            first = tuple(int(position) for position in np.argwhere(bad)[0])
            raise BadSample(
                f"{name or 'an array'}{list(first) if first else ''} is {value[first]}; {np.count_nonzero(bad):,} of "
                f"its {value.size:,} numbers are not finite; repair or remove the sample"
            )
    elif isinstance(value, (float, np.floating)):
        if not math.isfinite(value):
            raise BadSample(f"{name or 'a number'} is {value}, expected a finite number; repair or remove the sample")
    elif depth < _DEEPEST and isinstance(value, (dict, tuple, list)):
        for key, part in _parts(value):
            require_finite(part, f"{name}.{key}" if name else str(key), depth + 1)


def to_finite(array: np.ndarray, dtype: Any, name: str) -> np.ndarray:
    """Return real numbers as ``dtype``, contiguous; raises BadSample: one is not finite, or too large for this type."""
    with np.errstate(over="ignore"):  # refused below
        converted = np.ascontiguousarray(array, dtype)
    if array.dtype.kind != "f" or converted.dtype.kind != "f" or not converted.size or _is_finite(converted):
        return converted
    require_finite(array, name)
    is_large = np.isinf(converted)
    first = tuple(int(position) for position in np.argwhere(is_large)[0])
    raise BadSample(
        f"{name}{list(first)} is {array[first]:g}; {np.count_nonzero(is_large):,} of its {array.size:,} numbers are "
        f"too large for {converted.dtype.name}, whose largest is {np.finfo(converted.dtype).max:.2g}; scale the "
        "numbers, or repair or remove the sample"
    )


def _parts(value: Any) -> Iterable[tuple[object, Any]]:
    if isinstance(value, dict):
        return value.items()
    return zip(getattr(value, "_fields", None) or (f"part {number}" for number in range(len(value))), value)


def _is_finite(array: np.ndarray) -> bool:
    """Check without a temporary array: NaN and infinity both show in the sum of squares.

    Where finite squares are too large for the type, they show in the minimum or the maximum, which takes two passes.
    """
    if array.dtype.kind == "c":
        return bool(np.isfinite(array).all())
    with np.errstate(invalid="ignore", over="ignore"):
        if array.dtype in _FAST_PRODUCTS and array.flags.c_contiguous and np.isfinite(np.vdot(array, array)):
            return True
        return bool(np.isfinite(array.min()) and np.isfinite(array.max()))


def require_labels(
    labels: np.ndarray, num_classes: int | None, ignored: int, what: str, element: str = "point"
) -> None:
    """Check the labels of points, or of other elements.

    Args:
        labels: (points,) of any integer type.
        num_classes: number of classes; None: unknown, so that there is no upper limit.
        ignored: label of a point without a class.
        what: name of the label in the message.
        element: singular noun for a point in the message.

    Raises:
        BadSample: names the first element with an invalid label.
    """
    labels = np.asarray(labels)
    if labels.size and has_no_other_negative(labels, ignored) and (num_classes is None or labels.max() < num_classes):
        return
    wrong = labels < 0
    if num_classes is not None:
        wrong |= labels >= num_classes
    wrong &= labels != ignored
    if wrong.any():
        first = int(wrong.argmax())
        raise BadSample(
            f"{element} {first} has {what} {labels[first]}, which is out of range, as {np.count_nonzero(wrong):,} of "
            f"{len(labels):,} {element}s are: {describe_classes(num_classes)}, and {ignored} means no class"
        )


def has_no_other_negative(array: np.ndarray, none: int | None) -> bool:
    """Return True if no number is negative, or only ``none`` is; False if it is not known from the extremes."""
    lowest = array.min()
    if lowest >= 0 or none is None or lowest != none or array.dtype.kind != "i" or not array.flags.c_contiguous:
        return bool(lowest >= 0)
    # As numbers without a sign, negative ones are the largest ones, in their order.
    return bool(array.view(f"u{array.itemsize}").max() == array.dtype.type(none).view(f"u{array.itemsize}"))


def describe_classes(num_classes: int | None) -> str:
    """Return which labels there are, for a message."""
    if num_classes is None:
        return "classes count from 0"
    return f"with {num_classes} classes labels go from 0 to {num_classes - 1}"
