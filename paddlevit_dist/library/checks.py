"""Check what meters get: that outputs and targets are what is counted, and nothing that counts as another."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from ..runtime.errors import UserError

_MOST_CLASSES = 255  # of pixels and voxels, which are counted as uint8, 255 for none


@contextlib.contextmanager
def prefix_errors(what: str) -> Iterator[None]:
    """Begin the message of a ``UserError`` that the block raises with what it is about."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{what}: {error}") from None


def require(condition: bool, said: str) -> None:
    """Raise a ``UserError`` that says ``said`` unless the condition holds."""
    if not condition:
        raise UserError(said)


def require_few(names: Sequence[str]) -> None:
    """Refuse more classes than fit into the uint8 of pixels and voxels."""
    require(len(names) <= _MOST_CLASSES, f"{len(names)} classes: at most {_MOST_CLASSES} of pixels and voxels")


def require_parts(one: Any, side: str, names: Sequence[str]) -> None:
    """Refuse an output or a target that is not a dictionary with these parts."""
    lacking = [name for name in names if name not in one] if isinstance(one, Mapping) else names
    require(not lacking, f"the {side} is no dictionary of {', '.join(names)}: without {', '.join(lacking)}")


def require_classes(values: np.ndarray, classes: int, what: str, none: Sequence[int] = ()) -> None:
    """Refuse values that are neither numbers of classes nor one of ``none``."""
    if not values.size:
        return
    require(values.dtype.kind in "iu", f"{what}: {values.dtype}: expected numbers of classes, whole ones")
    wrong = values[(values < 0) | (values >= classes)]
    wrong = wrong[~np.isin(wrong, none)]
    if wrong.size:
        beside = f", or {none[0]} for none" if none else ""
        raise UserError(f"{what}: class {wrong.flat[0]} of {classes}: expected 0 to {classes - 1}{beside}")


def label_pair(
    found: Any, true: Any, axes: Sequence[str], classes: int, none: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes that were found and the true ones as arrays of the same shape.

    Args:
        found: integers, a class from 0 for each element.
        true: integers of that shape, a class or one of ``none``.
        axes: the names of the axes that both have, for messages.
        classes: the number of classes.
        none: values of ``true`` for elements without a label.

    Raises:
        UserError: they are not such.
    """
    found, true = host(found), host(true)
    require(
        found.shape == true.shape and found.ndim == len(axes),
        f"outputs of shape {found.shape} beside targets of {true.shape}: expected the class of each, "
        f"({', '.join(axes)}) of both",
    )
    require_classes(found, classes, "outputs")
    require_classes(true, classes, "targets", none)
    return found, true


def check_corners(values: Any) -> np.ndarray:
    """Return the corners of boxes, (n, 4); an empty list or a single box is fine."""
    boxes = host(values)
    boxes = boxes.reshape(-1, 4) if boxes.size in (0, 4) else boxes
    require(boxes.ndim == 2 and boxes.shape[1] == 4, f"boxes of shape {boxes.shape}: expected (n, 4)")
    return boxes


def host(values: Any) -> np.ndarray:
    """Return a tensor, an array or numbers as an array."""
    if isinstance(values, paddle.Tensor) and values.dtype == paddle.bfloat16:
        values = values.astype("float32")  # numpy has no such type, and Paddle would give its bits
    return np.asarray(values.numpy() if hasattr(values, "numpy") else values)
