"""Creation of a ``Scene`` from what people have: lists, all types of numbers, names of classes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...core.runtime.printing import describe_value
from ...core.tasks.class_names import make_class_names
from ...core.tasks.sample_arrays import (
    as_array,
    require_range,
    require_same_length,
    to_array,
    to_classes,
    to_floats,
)
from ...core.tasks.sample_checks import BadSample, has_no_other_negative, require_finite
from .scene import IGNORED, Scene, channel_width

_MAX_CLASSES = np.iinfo(np.int16).max + 1
MAX_INSTANCE = (1 << 24) - 1
_GRAY = 128  # of points without colors
_MAX_16_BITS = 257  # 16 bits by this are 8 bits: 65,535 is 255
_FAR = 8192.0  # units from which steps of float32 are about a thousandth
_ROUNDING = 1e-3  # of colors: the error of a conversion


def make_scene(
    xyz: Any,
    rgb: Any = None,
    semantic: Any = None,
    instance: Any = None,
    name: Any = "",
    offset: Any = (0.0, 0.0, 0.0),
    channels: Mapping[str, Any] | None = None,
    skipped_rows: Any = (),
    floor: Any = None,
    *,
    class_names: Sequence[str] | None = None,
    num_classes: int | None = None,
    rgb_range: tuple[float, float] | None = None,
) -> Scene:
    """Create a scene with arrays of the types that ``Scene`` states, which are not copied if they have these types.

    Labels are never shifted: class 1 stays class 1.

    Args:
        xyz: numbers (points, 3). Numbers of 64 bits from 8,192 on, where 32 bits would lose a thousandth, are centered,
            and ``offset`` becomes the center.
        rgb: colors (points, 3): uint8, other integers from 0 to 255, uint16 from 0 to 65,535, or floating-point numbers
            in ``rgb_range``. None: all points are gray.
        semantic: classes (points,): integers, whole numbers, or names; ``IGNORED`` or None for none. None: no point has
            one.
        instance: objects (points,): integers, negative for none. None: no point has one.
        name: a text, or a number.
        offset: three numbers, see ``Scene``.
        channels: numbers (points,) or (points, 1) by name, (points, 3) for "normal".
        skipped_rows: see ``Scene``.
        floor: a number, or None.
        class_names: names of the classes; None: they have none.
        num_classes: number of classes; None: that of the names, or unknown.
        rgb_range: the numbers of black and of white in colors that are floating-point numbers, such as (0, 1).

    Raises:
        BadSample: a field has another form, or numbers that are not finite or out of range.
    """
    xyz, offset = _place(to_array(xyz, "xyz"), _read_offset(offset))
    number = len(xyz)
    names = [] if class_names is None else make_class_names(class_names, "class_names")
    limit = num_classes or len(names) or _MAX_CLASSES
    if not isinstance(channels, (Mapping, type(None))):
        raise BadSample(f"channels is {describe_value(channels)}, expected a dictionary of arrays")
    odd = next((key for key in channels or () if not isinstance(key, str) or not key.isprintable()), None)
    if odd is not None:
        raise BadSample(f"channels has the name {odd!r}, expected a text")
    fields = {
        "xyz": xyz,
        "rgb": np.full((number, 3), _GRAY, np.uint8) if rgb is None else to_colors(rgb, rgb_range),
        "semantic": _read_classes(semantic, number, names, limit),
        "instance": _read_instances(instance, number),
    }
    read = {channel: to_floats(values, channel, channel_width(channel)) for channel, values in (channels or {}).items()}
    require_same_length({**fields, **read})
    skipped = to_array(skipped_rows, "skipped_rows")
    if floor is not None:
        floor = _read_numbers(floor, "floor", ())[0]
    if skipped.size and (skipped.ndim != 1 or skipped.dtype.kind not in "iu" or not (np.diff(skipped) > 0).all()):
        raise BadSample(f"skipped_rows is {describe_value(skipped)}, expected whole numbers, ascending")
    if not isinstance(name, (str, int, np.integer)):
        raise BadSample(f"name is {describe_value(name)}, expected the name of the scene")
    return Scene(**fields, name=str(name), offset=offset, channels=read, skipped_rows=skipped_rows, floor=floor)


def to_colors(rgb: Any, rgb_range: tuple[float, float] | None = None) -> np.ndarray:
    """Return colors as uint8 (points, 3); see ``make_scene``."""
    colors = to_array(rgb, "rgb")
    colors = colors.reshape(-1, 3) if not colors.size else colors
    if colors.ndim != 2 or colors.shape[1] != 3:
        raise BadSample(f"rgb has the shape {colors.shape}, expected (n, 3): red, green and blue")
    if colors.dtype == np.uint8 or not colors.size:
        return np.ascontiguousarray(colors, np.uint8)
    if colors.dtype == np.uint16:
        return np.rint(colors / _MAX_16_BITS).astype(np.uint8)
    if colors.dtype.kind in "iu":
        require_range(colors, "rgb", 256)
        return colors.astype(np.uint8)
    if colors.dtype.kind != "f":
        raise BadSample(f"rgb is {describe_value(colors)}, expected numbers")
    require_finite(colors, "rgb")
    if rgb_range is None:
        raise BadSample(
            f"rgb is {colors.dtype} from {colors.min():g} to {colors.max():g}: make it uint8, or state the numbers of "
            "black and white, such as rgb_range = (0, 1) in the class of the data set"
        )
    low, high = _read_range(rgb_range)
    shares = (colors.astype(np.float64) - low) / (high - low)
    if shares.min() < -_ROUNDING or shares.max() > 1 + _ROUNDING:
        raise BadSample(f"rgb has numbers from {colors.min():g} to {colors.max():g}, but its rgb_range is {rgb_range}")
    return np.rint(shares.clip(0, 1) * 255).astype(np.uint8)


def _read_range(rgb_range: Any) -> np.ndarray:
    """Return the numbers of black and of white; raises BadSample."""
    ends = as_array(rgb_range)
    if ends is None or ends.shape != (2,) or ends.dtype.kind not in "iuf" or not np.isfinite(ends).all():
        ends = None
    if ends is None or ends[0] == ends[1]:
        what = f"rgb_range is {describe_value(rgb_range)}"
        raise BadSample(f"{what}, expected the numbers of black and of white, such as (0, 1)")
    return ends.astype(np.float64)


def _place(xyz: np.ndarray, offset: tuple[float, float, float]) -> tuple[np.ndarray, tuple[float, float, float]]:
    """Return positions, float32 (points, 3), and the offset of the source's coordinates."""
    if xyz.dtype == np.float32 or not xyz.size:
        return to_floats(xyz, "xyz", 3), offset
    wide = to_floats(xyz, "xyz", 3, np.float64)
    if np.abs(wide).max() < _FAR:
        return wide.astype(np.float32), offset
    middle = wide.mean(axis=0)
    x, y, z = (offset + middle).tolist()
    return to_floats(wide - middle, "xyz", 3), (x, y, z)


def _read_offset(offset: Any) -> tuple[float, float, float]:
    x, y, z = _read_numbers(offset, "offset", (3,))
    return x, y, z


def _read_numbers(value: Any, field: str, shape: tuple[int, ...]) -> list[float]:
    array = to_array(value, field)
    if array.dtype.kind not in "iuf" or array.shape != shape:
        raise BadSample(f"{field} is {describe_value(value)}, expected {'three numbers' if shape else 'a number'}")
    require_finite(array, field)
    return array.astype(np.float64).reshape(-1).tolist()


def _read_classes(semantic: Any, number: int, class_names: Sequence[str] | None, limit: int) -> np.ndarray:
    if semantic is None:
        return np.full(number, IGNORED, np.int16)
    return _as_column(to_classes(semantic, "semantic", class_names, limit, IGNORED), "semantic").astype(
        np.int16, copy=False
    )


def _read_instances(instance: Any, number: int) -> np.ndarray:
    if instance is None:
        return np.full(number, IGNORED, np.int16)
    array = _as_column(to_array(instance, "instance"), "instance")
    if array.dtype.kind == "f":
        require_finite(array, "instance")
        array = array.astype(np.float64)  # a larger number may not fit into 16 bits
    if array.dtype.kind not in "iuf" or (array.dtype.kind == "f" and (np.rint(array) != array).any()):
        raise BadSample(f"instance is {describe_value(array)}, expected whole numbers, negative for none")
    highest = array.max() if array.size else 0
    if highest > MAX_INSTANCE:
        raise BadSample(f"instance {highest:.0f} is out of range, expected 0 to {MAX_INSTANCE}")
    if array.size and not has_no_other_negative(array, IGNORED):
        array = np.where(array < 0, array.dtype.type(IGNORED), array)
    return array.astype(np.int16 if highest < _MAX_CLASSES else np.int32, copy=False)


def _as_column(array: np.ndarray, field: str) -> np.ndarray:
    array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if array.ndim != 1:
        raise BadSample(f"{field} has the shape {array.shape}, expected (n,)")
    return array
