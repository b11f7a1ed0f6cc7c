"""Volumes: 3D landmarks in medical images, found as the peaks of heatmaps."""

from __future__ import annotations

import importlib
from typing import Any, List

_PUBLIC = {
    "Geometry": ".geometry",
    "UNet3D": ".unet3d",
    "decode": ".decoding",
    "gaussian_heatmaps": ".heatmaps",
    "radius_heatmaps": ".heatmaps",
    "read_volume": ".reading",
}
__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that keys can be listed without Paddle."""
    if name not in _PUBLIC:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(_PUBLIC[name], __name__), name)


def __dir__() -> List[str]:
    return __all__
