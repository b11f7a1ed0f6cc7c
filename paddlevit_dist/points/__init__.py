"""Point clouds: ``data``, ``sparse`` (tensors, convolution, MinkUNet), ``segmentation`` and ``instances`` (the tasks),
``scene_task`` (shared by both), ``prepare``, ``settings``."""

from __future__ import annotations

from ..lazy_names import lazy_names

_NAMES = {
    "SparseTensor": "sparse",
    "sparse_collate": "data.voxels",
    "sparse_quantize": "data.voxels",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
