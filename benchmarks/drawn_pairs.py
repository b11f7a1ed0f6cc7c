"""Models of data of two equally good models on the same samples, for ``interval_comparisons.py``.

What makes a sample easy is shared, so that both err on the same ones more often than by chance.
"""

from collections.abc import Mapping
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from drawn_tables import (
    Arrays,
    Groups,
    Objects,
    answer,
    draw_decisions,
    draw_effects,
    label_maps,
    label_volumes,
    list_shares,
    name_classes,
    segment_maps,
    segment_volumes,
)
from numpy.random import Generator

from paddlevit_dist.core.tasks.sample_groups import SampleGroups
from paddlevit_dist.extensions.compare.tables import RESULTS, EvaluationTable
from paddlevit_dist.volumes.landmarks.metrics import sum_errors

Pair = tuple[Arrays, Arrays]

_OWN = 0.2  # correlation within a group of what is a model's own


def wrap_table(
    run: str, kind: str, score: str, samples: int, classes: int, arrays: Arrays, groups: Groups = None
) -> EvaluationTable:
    """A table as it is read from an evaluation of samples with these arrays."""
    about: Mapping[str, Any] = {
        **{"task": "drawn", "kind": kind, "score": score, "more_is_better": True, "classes": name_classes(classes)},
        **{"split": "val", "dataset": "drawn", "of": f"{RESULTS}{run}", "digest": "", "protocol": {}, "input": {}},
    }
    drawn = None if groups is None else SampleGroups("group", groups.astype(str), "drawn")
    return EvaluationTable(run, dict(about), list(map(str, range(samples))), arrays, Path(f"{run}.npz"), drawn)


def draw_class_pair(
    rng: Generator,
    samples: int,
    classes: int,
    groups: Groups,
    recalls: tuple[float, float] = (0.85, 0.85),
    prior: str = "even",
    likeness: float = 0.7,
) -> Pair:
    """Samples of one class each, right with these probabilities; ``likeness`` is the correlation of both models."""
    labels = rng.choice(classes, samples, p=list_shares(prior, classes))
    shared = np.sqrt(likeness) * draw_effects(rng, samples, groups, 0.4)[:, 0]
    first, second = (
        shared + np.sqrt(1 - likeness) * draw_effects(rng, samples, groups, _OWN)[:, 0] < NormalDist().inv_cdf(recall)
        for recall in recalls
    )
    return answer(rng, labels, first, classes), answer(rng, labels, second, classes)


def draw_label_pair(
    rng: Generator, samples: int, classes: int, groups: Groups, rate: float, distance: float = 1.2, shift: float = 0.0
) -> Pair:
    """Images with several labels; ``shift`` is added to the scores of the second model, whose order stays."""
    has_label = rng.random((samples, classes)) < rate
    shared = rng.normal(size=has_label.shape)
    logits = (
        np.sqrt(0.5) * (shared + rng.normal(size=has_label.shape)) + distance * has_label - distance + own
        for own in (0.0, shift)
    )
    first, second = ({"labels": has_label.astype(np.int8), "logits": each, "chosen": each > 0} for each in logits)
    return first, second


def draw_map_pair(
    rng: Generator, samples: int, classes: int, groups: Groups, presence: float, quality: float = 0.85
) -> Pair:
    """Label maps, see ``segment_maps``."""
    true = label_maps(rng, samples, classes, presence)
    ease = np.log(quality / (1 - quality)) + 0.7 * draw_effects(rng, samples, groups, 0.5)
    ease = ease + 0.7 * rng.normal(size=true.shape)
    first, second = (segment_maps(rng, true, ease + 0.4 * rng.normal(size=true.shape)) for _ in range(2))
    return first, second


def draw_volume_pair(rng: Generator, samples: int, classes: int, groups: Groups, presence: float = 0.9) -> Pair:
    """Volumes with labels, see ``segment_volumes``."""
    true = label_volumes(rng, samples, classes, presence)
    ease = 2.0 + 0.7 * draw_effects(rng, samples, groups, 0.5) + 0.7 * rng.normal(size=true.shape)
    first, second = (segment_volumes(rng, true, ease + 0.7 * rng.normal(size=true.shape)) for _ in range(2))
    return first, second


def draw_box_pair(
    rng: Generator, samples: int, classes: int, groups: Groups, rate: float, crowding: float = 0.0
) -> Pair:
    """Images with the same objects, see ``Objects``; ``crowding`` is the deviation of the logarithm of their number."""
    crowds = np.exp(crowding * rng.normal(size=(samples, 1))) if crowding else 1.0
    true = rng.poisson(rate * crowds, (samples, classes))
    first, second = (
        {**found.match(found.iou), "ids": np.arange(samples), "limits": np.array((1, 10, 100))}
        for found in (Objects(rng, samples, classes, groups, rate, true=true) for _ in range(2))
    )
    return first, second


def draw_landmark_pair(
    rng: Generator, samples: int, classes: int, groups: Groups, deviations: tuple[float, float]
) -> Pair:
    """Volumes with landmarks, whose errors are lognormal with these deviations of the logarithm and equal means."""
    shared = 0.5 * draw_effects(rng, samples, groups, 0.5)
    first, second = (
        {"sums": sum_errors(np.exp(own * rng.normal(size=(samples, classes)) - own**2 / 2 + shared))}
        for own in deviations
    )
    return first, second


def draw_decision_pair(
    rng: Generator, samples: int, classes: int, groups: Groups, right: float, likeness: float
) -> Pair:
    """Images of an object with points, see ``draw_decisions``; both models find an image equally hard."""
    of_all = 1 / likeness - 1
    share = rng.beta(right * of_all, (1 - right) * of_all, (samples, 1))
    first, second = (draw_decisions(rng, samples, classes, groups, share) for _ in range(2))
    return first, second
