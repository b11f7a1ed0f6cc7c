"""What meters ask of outputs and targets: that they are what is counted, and not something that counts as another."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from ..runtime.errors import UserError

_MOST_CLASSES = 255  # of pixels and voxels, which are counted as uint8, 255 for none


@contextlib.contextmanager
def said_of(what: str) -> Iterator[None]:
    """What is refused in the block begins with what it is of."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{what}: {error}") from None


def require(condition: bool, said: str) -> None:
    if not condition:
        raise UserError(said)


def require_few(names: Sequence[str]) -> None:
    require(len(names) <= _MOST_CLASSES, f"{len(names)} classes: at most {_MOST_CLASSES} of pixels and voxels")


def require_parts(one: Any, side: str, names: Sequence[str]) -> None:
    """See that an output or a target is a dictionary with these parts."""
    lacking = [name for name in names if name not in one] if isinstance(one, Mapping) else names
    require(not lacking, f"the {side} is no dictionary of {', '.join(names)}: without {', '.join(lacking)}")


def require_classes(values: np.ndarray, classes: int, what: str, none: Sequence[int] = ()) -> None:
    """See that values are numbers of classes, or one of ``none``."""
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
    """Classes that were found beside the true ones, of the same shape, these also one of ``none``."""
    found, true = host(found), host(true)
    require(
        found.shape == true.shape and found.ndim == len(axes),
        f"outputs of shape {found.shape} beside targets of {true.shape}: expected the class of each, "
        f"({', '.join(axes)}) of both",
    )
    require_classes(found, classes, "outputs")
    require_classes(true, classes, "targets", none)
    return found, true


def corners_of(values: Any) -> np.ndarray:
    """Corners, (n, 4); nothing at all is none."""
    boxes = host(values)
    boxes = boxes.reshape(-1, 4) if boxes.size in (0, 4) else boxes
    require(boxes.ndim == 2 and boxes.shape[1] == 4, f"boxes of shape {boxes.shape}: expected (n, 4)")
    return boxes


def host(values: Any) -> np.ndarray:
    """A tensor, an array or numbers as an array."""
    if isinstance(values, paddle.Tensor) and values.dtype == paddle.bfloat16:
        values = values.astype("float32")  # numpy has no such type, and Paddle would give its bits
    return np.asarray(values.numpy() if hasattr(values, "numpy") else values)
