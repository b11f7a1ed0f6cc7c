"""Classification of images.

``task`` trains and scores, with the help of ``opening`` (of datasets), ``samples``, ``augmentation``, ``distillation``
(a teacher) and ``class_balance`` (rare classes). Its aspects are in ``checks``, ``figures``, ``prediction`` and
``export``. ``probes`` measure features, with ``probe_features`` and ``probe_figures``. ``settings`` has the keys.
"""

from ...runtime.lazy_names import lazy_names

_NAMES = {
    "Classification": "task",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
