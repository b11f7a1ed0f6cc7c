"""Scores of the classes of single elements (points or pixels) and of whole samples.

The package ``losses`` has the losses that such tasks are trained with.

- ``confidence``: intervals of an evaluation from the results of all ranks
- ``counts``: confusion counts, also near boundaries; without Paddle
- ``segments``: matches of segments, of points or pixels; without Paddle
- ``confusion``: the metrics of a task that labels elements
- ``tables``: the tables of a report about them
- ``classification``, ``classifier_prediction``, ``classifier_figures``: scores, common task methods, predictions and
  figures for samples with one class each
"""

from ..runtime.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
