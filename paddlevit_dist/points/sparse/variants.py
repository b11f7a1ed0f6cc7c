"""Names and arguments of MinkowskiEngine's networks, read by the registry.

Source: MinkowskiEngine 0.5, examples/minkunet.py.
"""

from typing import Any

_DOWN = (32, 64, 128, 256)
_DEPTHS = {"14": (1,) * 8, "18": (2,) * 8, "34": (2, 3, 4, 6, 2, 2, 2, 2)}
_UP = {
    "14a": (128, 128, 96, 96),
    "14b": (128, 128, 128, 128),
    "14c": (192, 192, 128, 128),
    "18a": (128, 128, 96, 96),
    "18b": (128, 128, 128, 128),
    "18c": (192, 192, 128, 128),  # not in MinkowskiEngine: the widths of 14c
    "34a": (256, 128, 64, 64),
    "34b": (256, 128, 64, 32),
    "34c": (256, 128, 96, 96),
}
MINKUNET: dict[str, dict[str, Any]] = {
    f"minkunet{name}": {"depths": _DEPTHS[name[:2]], "widths": _DOWN + up} for name, up in _UP.items()
}
TUTORIAL: dict[str, dict[str, Any]] = {"minkunet_tutorial": {}}
CLASSIFIER: dict[str, dict[str, Any]] = {
    f"mink_classifier{name}": {"depths": depths[:4]} for name, depths in _DEPTHS.items()
}
