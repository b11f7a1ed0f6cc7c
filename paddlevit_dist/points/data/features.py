"""Features of a point, named by POINTS.FEATURES: its colors, position and height, and whatever channels
its scene has, such as normals and intensity."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.errors import UserError
from .scene import Scene, channel_width

COLORS = "rgb"
_OF_ALL_SCENES = {COLORS: 3, "xyz": 3, "height": 1, "ones": 1}


def build_channels(names: Sequence[str]) -> tuple[str, ...]:
    """The channels of a scene that these features show."""
    return tuple(_split_divisor(name)[0] for name in names if name not in _OF_ALL_SCENES)


def feature_channels(names: Sequence[str]) -> int:
    """Number of columns of ``point_features``."""
    return sum(_OF_ALL_SCENES.get(name) or channel_width(_split_divisor(name)[0]) for name in names)


def require_channels(names: Sequence[str], channels: Sequence[str], whose: str) -> None:
    """Check that the features are channels that there are, or what all scenes have.

    Args:
        whose: channels they are, for the message.

    Raises:
        UserError: one is not; lists what there is.
    """
    absent = [name for name in build_channels(names) if name not in channels]
    if absent:
        there = f"{', '.join(channels)}, and as all scenes" if channels else "no channels, only"
        raise UserError(
            f"POINTS.FEATURES names {', '.join(absent)}, but {whose} have {there} {', '.join(_OF_ALL_SCENES)}; choose "
            "of these, or prepare the scenes again with --channels"
        )


def point_features(
    scene: Scene, points: Any, names: Sequence[str], color_range: tuple[float, float] | None
) -> np.ndarray:
    """Network input for selected points, float32 (points, channels): lengths in meters, colors in ``color_range``.

    Args:
        points: indices (int64) or a slice.
        names: of the features, such as "rgb" and "intensity/255", all of which the scene has.
        color_range: what 0 and 255 are mapped to; None: the colors are mapped already.
    """
    columns = []
    for name in names:
        if name == COLORS:
            shown = scene.rgb[points].astype(np.float32, copy=False)
            if color_range is not None:
                low, high = color_range
                shown = shown / np.float32(255 / (high - low)) + np.float32(low)
            columns.append(shown)
        elif name == "xyz":
            columns.append(scene.xyz[points])
        elif name == "height":
            floor = scene.xyz[:, 2].min() if len(scene.xyz) else np.float32(0)
            columns.append((scene.xyz[points, 2] - floor)[:, None])
        elif name == "ones":
            columns.append(np.ones((len(scene.xyz[points]), 1), np.float32))
        else:
            channel, divisor = _split_divisor(name)
            columns.append(scene.channels[channel][points] / np.float32(divisor))
    return np.concatenate(columns, axis=1).astype(np.float32, copy=False)


def _split_divisor(name: str) -> tuple[str, float]:
    """The name of a feature, and the number that it is divided by."""
    channel, _, divisor = name.partition("/")
    return channel, float(divisor or 1)
