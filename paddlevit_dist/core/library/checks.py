"""Checks of the outputs and targets that meters receive."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from ..runtime.errors import UserError
from ..runtime.printing import describe_value, shorten

_MOST_CLASSES = 255  # pixels and voxels are counted as uint8, with 255 for no label


@contextlib.contextmanager
def prefix_errors(subject: str) -> Iterator[None]:
    """Prefix the message of a ``UserError`` from the block with ``subject``."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{subject}: {error}") from None


def require(condition: bool, message: str) -> None:
    """Raise a ``UserError`` with ``message`` unless the condition is true."""
    if not condition:
        raise UserError(message)


def require_few(names: Sequence[str]) -> None:
    """Raise a ``UserError`` for more classes than fit into the uint8 of pixels and voxels."""
    require(len(names) <= _MOST_CLASSES, f"{len(names)} classes: expected at most {_MOST_CLASSES}")


def require_parts(value: object, side: str, names: Sequence[str]) -> None:
    """Raise a ``UserError`` unless an output or a target is a dictionary with these keys."""
    missing = [name for name in names if name not in value] if isinstance(value, Mapping) else names
    require(not missing, f"the {side} has to be a dictionary with {', '.join(names)}: {', '.join(missing)} missing")


def require_classes(values: np.ndarray, classes: int, what: str, none: Sequence[int] = ()) -> None:
    """Raise a ``UserError`` unless all values are class numbers or one of ``none``."""
    if not values.size:
        return
    require(values.dtype.kind in "iu", f"{what}: {values.dtype}: expected class numbers, of an integer type")
    wrong = values[(values < 0) | (values >= classes)]
    wrong = wrong[~np.isin(wrong, none)]
    if wrong.size:
        no_label = f", or {none[0]} for no label" if none else ""
        raise UserError(f"{what}: class {wrong.flat[0]} of {classes}: expected 0 to {classes - 1}{no_label}")


def check_label_pair(
    predicted: Any, true: Any, axes: Sequence[str], classes: int, none: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return predicted and true classes as arrays of the same shape.

    Args:
        predicted: integers, a class from 0 for each element.
        true: integers of that shape, a class or one of ``none``.
        axes: names of the axes, for messages.
        classes: the number of classes.
        none: values of ``true`` for elements without a label.

    Raises:
        UserError: the arguments do not have this form.
    """
    predicted, true = host(predicted), host(true)
    require(
        predicted.shape == true.shape and predicted.ndim == len(axes),
        f"outputs of shape {predicted.shape} and targets of shape {true.shape}: expected classes "
        f"({', '.join(axes)}) for both",
    )
    require_classes(predicted, classes, "outputs")
    require_classes(true, classes, "targets", none)
    return predicted, true


def check_corners(values: object) -> np.ndarray:
    """Return the corners of boxes, (n, 4); accept an empty list or a single box."""
    boxes = host(values)
    boxes = boxes.reshape(-1, 4) if boxes.size in (0, 4) else boxes
    require(boxes.ndim == 2 and boxes.shape[1] == 4, f"boxes of shape {boxes.shape}: expected (n, 4)")
    return boxes


def host(values: object) -> np.ndarray:
    """Convert a tensor, an array or numbers to an array; UserError if rows have different lengths."""
    if isinstance(values, paddle.Tensor) and values.dtype == paddle.bfloat16:
        values = values.astype("float32")  # numpy has no bfloat16, and Paddle would return its bits
    try:
        return np.asarray(values.numpy() if hasattr(values, "numpy") else values)
    except ValueError as error:
        raise UserError(f"{describe_value(values)} cannot become an array: {shorten(str(error))}") from error
