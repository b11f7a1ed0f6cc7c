"""Score the classes of single elements, points or pixels, and of whole samples.

``losses.py`` beside this package has what such tasks are trained with.

- ``counts``: counts what was taken for what, and how near to boundaries; without Paddle
- ``confusion``: the metrics of a task that labels elements
- ``tables``: tables of a report about them
- ``classification``, ``classifier``, ``classifier_figures``: the same for samples that have one class each
"""

from ..runtime.lazy_names import lazy_names

_NAMES = {
    "ClassificationMetrics": "classification",
    "ClassifierTask": "classifier",
    "ConfusionMetrics": "confusion",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
