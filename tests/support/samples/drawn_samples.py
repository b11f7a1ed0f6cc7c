"""Samples of known truth, and how often intervals of theirs cover it."""

import numpy as np

from paddlevit_dist.core.intervals import (
    ClassificationCounts,
    ProportionRecompute,
    bootstrap,
    confusion_scores,
)


def shares_that_cover(draw, truths: dict, percent: float, sets: int) -> dict:
    """Of so many sets of samples, those whose interval contains the truth.

    Args:
        draw: from a generator to ``Recompute`` and the number of samples.
    """
    generator, hits = np.random.default_rng(1), dict.fromkeys(truths, 0)
    for _ in range(sets):
        found = bootstrap(*draw(generator), percent=percent, resamples=400)
        for name, truth in truths.items():
            hits[name] += found[name].low <= truth <= found[name].high
    return {name: number / sets for name, number in hits.items()}


def drawn_labels(generator):
    labels = generator.choice(4, 400, p=[0.4, 0.3, 0.2, 0.1])
    found = ClassificationCounts(
        labels, (generator.random(400) >= np.array([0.9, 0.8, 0.7, 0.6])[labels]).astype(int), 4
    )
    return ProportionRecompute(found, found.rates()), 400


def drawn_confusions(generator):
    """Scenes of very different sizes whose points are right with a share that differs from scene to scene."""
    true = generator.poisson(generator.gamma(2.0, 50.0, (150, 1)), (150, 2))
    right = generator.binomial(true, generator.beta(8, 2, (150, 2)))
    wrong = true - right
    return confusion_scores(np.stack([right, true, right + wrong[:, ::-1]], axis=1), ["b", "a"]), 150


OF_LABELS = {"top-1": 100 * (0.36 + 0.24 + 0.14 + 0.06), "balanced accuracy": 75.0, "recall 1": 80.0}
