"""Classification of shapes: ``task``, ``settings``, ``data`` (base class, ModelNet) and ``solids`` (synthetic).

``prediction``, ``figures`` and ``checks`` have the aspects of the task.
"""

from ...runtime.lazy_names import lazy_names

_NAMES = {
    "ModelNet10": "data",
    "ModelNet40": "data",
    "ShapeClassification": "task",
    "ShapeDataset": "data",
}
__all__ = list(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
