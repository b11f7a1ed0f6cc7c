"""Object detection: training, evaluation and prediction of any detector."""

from __future__ import annotations

from ...contracts.task import Task


class Detection(Task):
    """Trains and evaluates a network that finds objects in pictures."""

    best_metric = ("AP", True)
    sample_name = "pictures"
