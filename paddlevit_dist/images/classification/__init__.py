"""Classification of images."""

from ...runtime.lazy_names import lazy_names

_NAMES = {
    "Classification": "task",
}
__all__ = list(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
