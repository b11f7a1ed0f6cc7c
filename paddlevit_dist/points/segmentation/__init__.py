"""Semantic segmentation of point clouds.

``task``, ``settings``, ``metrics``; ``fragments``: evaluation in blocks; ``prediction``, ``figures``: aspects.
"""

from ...runtime.lazy_names import lazy_names

_NAMES = {
    "SemanticSegmentation": "task",
}
__all__ = list(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
