"""Point clouds: scenes and their preparation, voxels, sparse convolution, segmentation."""

from __future__ import annotations

import importlib
from typing import Any, List

_PUBLIC = {
    "SparseTensor": ".sparse",
    "sparse_collate": ".voxels",
    "sparse_quantize": ".voxels",
}
__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that data can be prepared without Paddle."""
    if name not in _PUBLIC:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(_PUBLIC[name], __name__), name)


def __dir__() -> List[str]:
    return __all__
