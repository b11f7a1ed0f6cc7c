"""RF-DETR: DINOv2 with windowed attention, and LW-DETR's decoder.

- ``network``: the model; ``projector``: from the backbone's maps to one; ``key_names``: the authors' names
- ``criterion``: the losses
"""

from ....runtime.lazy_names import lazy_names

_NAMES = {
    "RfDetr": "network",
}
__all__ = list(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
