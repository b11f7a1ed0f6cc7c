"""Point features, named by POINTS.FEATURES: color, position, height, and channels such as normals and intensity."""

from collections.abc import Mapping, Sequence

import numpy as np

from ...core.runtime.errors import UserError
from .scene import Scene, channel_width, find_floor, find_middle

COLORS, HEIGHT, POSITION = "rgb", "height", "centered_xyz"
RELATIVE = (HEIGHT, POSITION)  # to an origin that depends on the points at hand
BUILTIN_FEATURES = {COLORS: 3, "xyz": 3, POSITION: 3, HEIGHT: 1, "ones": 1}


def build_channels(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the scene channels that these features use."""
    return tuple(_split_divisor(name)[0] for name in names if name not in BUILTIN_FEATURES)


def feature_channels(names: Sequence[str]) -> int:
    """Return the number of columns of ``point_features``."""
    return sum(BUILTIN_FEATURES.get(name) or channel_width(_split_divisor(name)[0]) for name in names)


def require_channels(
    names: Sequence[str], channels: Sequence[str], owner: str, lacking: Mapping[str, str] | None = None
) -> None:
    """Check that features are built in or among ``channels``, which belong to ``owner``; else UserError lists those.

    ``lacking`` describes the scenes without a channel that others have, by its name.
    """
    missing = [name for name in build_channels(names) if name not in channels]
    partial = next((name for name in missing if name in (lacking or {})), None)
    if partial is not None and lacking is not None:
        raise UserError(
            f"POINTS.FEATURES names {partial}, which {lacking[partial]} does not have: add it to these files and "
            f"prepare them again, remove them from the list of the split, or remove {partial} from POINTS.FEATURES"
        )
    if missing:
        available = f"{', '.join(channels)}, and the built-in" if channels else "no channels, only"
        raise UserError(
            f"POINTS.FEATURES names {', '.join(missing)}, but {owner} have {available} {', '.join(BUILTIN_FEATURES)}; "
            "choose from these, or prepare the scenes again with --channels"
        )


def point_features(
    scene: Scene, points: np.ndarray | slice, names: Sequence[str], color_range: tuple[float, float] | None
) -> np.ndarray:
    """Return the network input for selected points, float32 (points, channels): meters, and colors in ``color_range``.

    ``points`` are indices (int64) or a slice, ``names`` are features, such as "rgb" and "intensity/255".
    ``color_range`` is the network input for 0 and 255; None: the colors are already scaled.
    """
    columns = []
    for name in names:
        if name == COLORS:
            colors = scene.rgb[points].astype(np.float32, copy=False)
            if color_range is not None:
                low, high = color_range
                colors = colors / np.float32(255 / (high - low)) + np.float32(low)
            columns.append(colors)
        elif name == "xyz":
            columns.append(scene.xyz[points])
        elif name == POSITION:
            columns.append(scene.xyz[points] - find_middle(scene))
        elif name == HEIGHT:
            columns.append((scene.xyz[points, 2] - np.float32(find_floor(scene)))[:, None])
        elif name == "ones":
            columns.append(np.ones((len(scene.xyz[points]), 1), np.float32))
        else:
            channel, divisor = _split_divisor(name)
            columns.append(scene.channels[channel][points] / np.float32(divisor))
    return np.concatenate(columns, axis=1).astype(np.float32, copy=False)


def shift_features(names: Sequence[str], origin: np.ndarray) -> np.ndarray:
    """Return by how much features shrink, float32 (1, channels), if measured from ``origin`` (3,), meters."""
    parts = {HEIGHT: origin[2:], POSITION: origin}
    columns = [parts.get(name, np.zeros(feature_channels([name]), np.float32)) for name in names]
    return np.concatenate(columns)[None].astype(np.float32, copy=False)


def _split_divisor(name: str) -> tuple[str, float]:
    """Return the name of a feature's channel, and the number that it is divided by."""
    channel, _, divisor = name.partition("/")
    return channel, float(divisor or 1)
