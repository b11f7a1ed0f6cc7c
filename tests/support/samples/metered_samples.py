"""Meters of each kind with outputs and targets for them."""

import numpy as np
import pytest

import paddlevit_dist as pv

SAMPLES, BATCH = 11, 2
NAMES = ["sky", "tree", "road"]


def images(index: int) -> tuple:
    generator = np.random.default_rng(index)
    return generator.normal(size=7).astype(np.float32), index % 7


def boxes(index: int) -> tuple:
    generator = np.random.default_rng(index)
    corners = generator.integers(0, 50, (4, 2))
    true = np.concatenate([corners, corners + generator.integers(20, 60, (4, 2))], axis=1)
    found = true + generator.integers(-3, 4, (4, 4))
    scores = generator.permutation(4 * SAMPLES)[:4] / 64 + index / 4096  # none twice
    return {"boxes": found, "scores": scores, "labels": np.arange(4) % 3}, {"boxes": true, "labels": np.arange(4) % 3}


def label_maps(index: int) -> tuple:
    generator = np.random.default_rng(index)
    true = np.kron(generator.integers(0, 3, (5, 4 + index)), np.ones((6, 5), int))
    return np.roll(true, 1 + index % 3, axis=1), np.where(generator.random(true.shape) < 0.1, 255, true)


def points(index: int) -> tuple:
    generator = np.random.default_rng(index)
    true = generator.integers(0, 3, 50 + index)
    return (true + (generator.random(len(true)) < 0.3)) % 3, np.where(generator.random(len(true)) < 0.1, 255, true)


def scenes(index: int) -> tuple:
    generator = np.random.default_rng(index)
    instances = np.repeat(np.arange(6), 150)
    classes = np.repeat(generator.integers(0, 3, 6), 150)
    found = [(classes[150 * one], generator.random(), np.arange(150 * one, 150 * one + 130)) for one in range(6)]
    wrong = np.where(generator.random(900) < 0.2, 1, classes)
    return {"classes": wrong, "instances": found}, {"classes": classes, "instances": instances}


def landmarks(index: int) -> tuple:
    generator = np.random.default_rng(index)
    true = generator.normal(0, (40, 30, 20), (4, 3))
    true[index % 4] = np.nan if index % 3 == 0 else 1.0
    return true + generator.normal(0, 1.5, (4, 3)), true


def volumes(index: int) -> tuple:
    generator = np.random.default_rng(index)
    true = np.kron(generator.integers(0, 3, (2, 2, 3)), np.ones((4, 5, 3), int))
    predicted = np.roll(true, index % 3, axis=2)
    true[:3, 2:4, 1:5] = 255  # unknown, whatever is predicted there
    return predicted, true


KINDS = {
    "images": (lambda: pv.Accuracy(7), images),
    "boxes": (lambda: pv.CocoAP(["hat", "cup", "bat"]), boxes),
    "label maps": (lambda: pv.MeanIoU(NAMES), label_maps),
    "points": (lambda: pv.MeanIoU(NAMES, of="points"), points),
    "scenes": (lambda: pv.ScanNetAP(NAMES, instance_classes=[1, 2]), scenes),
    "landmarks": (lambda: pv.RadialError(4), landmarks),
    "volumes": (lambda: pv.VolumeDice(3, spacing_mm=(2.0, 1.0, 0.7)), volumes),
}


def make_meter(kind: str, indices, number_them: bool = True, meter=None):
    make, draw = KINDS[kind]
    meter = make() if meter is None else meter
    for first in range(0, len(indices), BATCH):
        part = list(indices[first : first + BATCH])
        outputs, targets = zip(*map(draw, part))
        stack = np.stack if kind in ("images", "landmarks") else list
        meter.update(stack(outputs), stack(targets), part if number_them else None)
    return meter


def plain(scores) -> list:
    return [scores.values, {name: interval.plain() for name, interval in scores.intervals.items()}]


def close(found, expected) -> None:
    """Sums of floats are added in another order."""
    for one, other in zip(found, expected):
        assert list(one) == list(other) and one
        for name, value in one.items():
            assert value == pytest.approx(other[name], rel=1e-6, abs=1e-9, nan_ok=True), name
