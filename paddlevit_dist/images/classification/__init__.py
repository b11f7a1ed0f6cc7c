"""Classification of images.

``task`` has training, evaluation, prediction and export, with the help of ``opening`` (of datasets), ``samples``,
``augmentation``, ``distillation`` (a teacher), ``class_balance`` (rare classes), ``figures`` (for the report) and
``prediction`` (drawings). ``settings`` has the keys.
"""

from ...runtime.lazy_names import lazy_names

_NAMES = {
    "Classification": "task",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
