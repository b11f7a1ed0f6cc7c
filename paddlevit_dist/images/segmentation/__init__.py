"""Semantic segmentation of images: a class for every pixel, scored by one confusion matrix over all pixels.

- ``data``: images with label maps
"""

from ...runtime.lazy_names import lazy_names

_NAMES = {
    "ImageSegmentation": "task",
}
__all__ = list(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
