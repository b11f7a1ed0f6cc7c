"""What color and height alone tell about the class of a point in the embedded rooms.

    python benchmarks/color_height_baseline.py [--train_rooms 100] [--val_rooms 25]

A table over height and color is filled with the classes of the training rooms' points; a point of a held-out room gets
the class that is most frequent in its cell. No network is worth its name that does not beat this by far.
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.rounds import print_result  # noqa: E402
from benchmarks.smallest import sized  # noqa: E402
from paddlevit_dist.points.data.rooms import SyntheticRooms  # noqa: E402

HEIGHT_BIN_M = 0.05
HEIGHT_BINS = 60
# Fine colors see more, coarse ones have more points in a cell; 1: height alone.
BINS_PER_CHANNEL = (1, 2, 4, 8)
# How far a frequent class is held back in favor of rare ones: not at all, by the root of its points, fully.
BALANCES = (0.0, 0.5, 1.0)


def cells(rgb: np.ndarray, height: np.ndarray, bins: int) -> np.ndarray:
    """Number of the cell of each point, (points,) int64."""
    level = np.clip((height / HEIGHT_BIN_M).astype(np.int64), 0, HEIGHT_BINS - 1)
    color = (rgb.astype(np.int64) * bins) // 256
    return ((level * bins + color[:, 0]) * bins + color[:, 1]) * bins + color[:, 2]


def count(scenes: Iterable[Any], num_classes: int, bins: int) -> np.ndarray:
    """Labeled points by cell and class, (cells, classes)."""
    size = HEIGHT_BINS * bins**3 * num_classes
    total = np.zeros(size, np.int64)
    for scene in scenes:
        valid = scene.semantic >= 0
        cell = cells(scene.rgb[valid], scene.xyz[valid, 2], bins)
        total += np.bincount(cell * num_classes + scene.semantic[valid], minlength=size)
    return total.reshape(-1, num_classes)


def mean_iou(found: np.ndarray, counts: np.ndarray) -> float:
    """Mean over classes of intersection over union, when cell c is given the class ``found[c]``; ``counts`` are the
    true classes of the cells' points."""
    num_classes = counts.shape[1]
    confusion = np.zeros((num_classes, num_classes))  # prediction, truth
    np.add.at(confusion, found, counts)
    intersection = np.diag(confusion)
    union = confusion.sum(axis=0) + confusion.sum(axis=1) - intersection
    return float(np.mean(intersection[union > 0] / union[union > 0]))


def baseline(train_rooms: int, val_rooms: int, **options: Any) -> tuple[float, dict[str, float]]:
    """The best mIoU on held-out rooms over all tables, and that of each."""
    train = SyntheticRooms(None, "train", None, num_train=train_rooms, **options)
    val = SyntheticRooms(None, "val", None, num_val=val_rooms, **options)
    train_scenes = [train.read(index) for index in range(len(train))]
    val_scenes = [val.read(index) for index in range(len(val))]
    results = {}
    for bins in BINS_PER_CHANNEL:
        seen = count(train_scenes, train.num_classes, bins)
        truth = count(val_scenes, train.num_classes, bins)
        for balance in BALANCES:
            found = np.argmax(seen / np.maximum(seen.sum(axis=0), 1) ** balance, axis=1)
            results[f"colors_{bins**3}_balance_{balance:g}"] = mean_iou(found, truth)
    return max(results.values()), results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train_rooms", type=int, default=sized(100, 2))
    parser.add_argument("--val_rooms", type=int, default=sized(25, 2))
    options = parser.parse_args()
    best, results = baseline(options.train_rooms, options.val_rooms)
    print_result({"best_miou": best, **results})


if __name__ == "__main__":
    main()
