"""DETR: a transformer predicts objects as a set (Carion et al., ECCV 2020).

- ``network``: the model; ``transformer``: its parts
- ``criterion``: the matching of queries with objects, and the losses
"""

from ....runtime.lazy_names import lazy_names

_NAMES = {
    "Detr": "network",
}
__all__ = list(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
