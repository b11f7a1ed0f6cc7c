"""Drawn scenes of segments with imperfect predictions, as panoptic quality takes them."""

import numpy as np

NAMES = ["car", "person", "truck", "road", "grass", "sky"]
THINGS = [0, 1, 2]


def draw_scene(number, points=2000):
    """True class and instance, then predicted class and instance, int64 (points,) each, -100 for none."""
    generator = np.random.default_rng(number)
    cuts = np.sort(generator.choice(np.arange(1, points), 17, replace=False))
    cuts[:3] = 50, 99, 149  # segments of 50, 49 and 50 points
    piece = np.searchsorted(np.sort(cuts), np.arange(points), side="right")
    true_class = generator.integers(-1, len(NAMES), 18)[piece]
    true_instance = np.where(generator.random(18) < 0.8, np.arange(18) // 2, -1)[piece]
    shift = generator.integers(0, 60)
    moved = np.roll(np.arange(points), shift)
    classes, instances = true_class[moved].copy(), true_instance[moved].copy()
    wrong = generator.random(18) < 0.3
    classes = np.where(wrong[piece], generator.integers(-1, len(NAMES), 18)[piece], classes)
    instances = np.where(generator.random(18)[piece] < 0.2, 17, instances)
    return tuple(np.where(values < 0, -100, values) for values in (true_class, true_instance, classes, instances))
