"""Scenes of instances with imperfect predictions, as metrics of instances take them."""

import numpy as np

from paddlevit_dist.points.instances.matching import InstancePrediction

NAMES = ["wall", "chair", "table", "lamp"]


def scene(number: int):
    """Labels of 2,000 points in ten pieces, of which some are void or small, and imperfect predictions with ties."""
    generator = np.random.default_rng(number)
    piece = np.searchsorted(np.sort(generator.integers(0, 2000, 9)), np.arange(2000))
    true_class = generator.integers(0, 3, 10)[piece]
    true_instance = np.where(true_class == 0, -100, piece)
    predictions = []
    for _ in range(12):
        chosen = (piece == generator.integers(0, 10)) & (generator.random(2000) < generator.uniform(0.5, 1.0))
        score = round(float(generator.random()), 1)
        predictions.append(InstancePrediction(int(generator.integers(0, 3)), score, np.flatnonzero(chosen)))
    return true_class, true_instance, predictions
