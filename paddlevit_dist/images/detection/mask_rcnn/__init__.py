"""Mask R-CNN: one network proposes boxes, another classifies, refines and masks them (He et al., ICCV 2017).

- ``network``: the model on a pyramid; ``region_proposals``, ``region_heads``: its parts
- ``criterion``: targets and losses; ``rules``: settings of all of these
"""

from ....runtime.lazy_names import lazy_names

_NAMES = {
    "FasterRCNN": "network",
    "MaskRCNN": "network",
}
__all__ = list(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
