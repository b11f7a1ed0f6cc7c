"""Drawn pictures with segments, and predictions of them: void, crowds, segments of one class beside each other."""

import numpy as np

from paddlevit_dist.images.panoptic.data.segments import Segments, number_segments

CLASSES = ["car", "person", "truck", "road", "grass", "sky"]
IS_THING = np.array([True, True, True, False, False, False])


def draw_truth(number: int, height: int = 40, width: int = 56) -> Segments:
    """Rectangles in front of each other, some of them void, some crowds; at most one of a class of stuff."""
    generator = np.random.default_rng([number, 0])
    numbers, ids, labels = np.zeros((height, width), np.int64), [], []
    for identity in generator.choice(np.arange(1, 1 << 24), 12, replace=False).tolist():
        top, left = int(generator.integers(height - 6)), int(generator.integers(width - 6))
        rows, columns = generator.integers(5, 24, 2)
        label = int(generator.integers(len(CLASSES)))
        if not IS_THING[label] and label in labels:
            identity = ids[labels.index(label)]
        elif generator.random() < 0.15:
            identity = 0  # void
        else:
            ids.append(identity)
            labels.append(label)
        numbers[top : top + rows, left : left + columns] = identity
    is_crowd = [bool(IS_THING[label] and generator.random() < 0.3) for label in labels]
    drawn = number_segments(numbers, ids, labels, is_crowd)
    return drawn.choose(np.flatnonzero(drawn.areas))  # without hidden ones


def draw_prediction(number: int, truth: Segments) -> Segments:
    """The truth moved and changed: other classes, joined and divided segments, pixels without a segment."""
    generator = np.random.default_rng([number, 1])
    shift = tuple(generator.integers(-3, 4, 2).tolist())
    numbers = np.roll(truth.places, shift, (0, 1)).astype(np.int64) + 1
    divided = generator.random(len(truth.labels) + 1) < 0.2
    half = np.arange(numbers.shape[1]) % 9 < 4
    numbers = np.where(divided[numbers] & half & (numbers > 0), numbers + 100, numbers)
    numbers[generator.random(numbers.shape) < 0.03] = 0
    ids = [value for value in np.unique(numbers).tolist() if value]
    labels = [int(truth.labels[value % 100 - 1]) for value in ids]
    labels = [int(generator.integers(len(CLASSES))) if generator.random() < 0.2 else label for label in labels]
    return number_segments(numbers, ids, labels, [False] * len(ids))


def brute_force(pictures: list[tuple[Segments, Segments]]) -> dict[int, tuple[float, int, int, int]]:
    """Sum of IoU, matched, false and missed segments of each class, by comparing sets of pixels pair by pair."""
    totals = {label: [0.0, 0, 0, 0] for label in range(len(CLASSES))}
    for truth, found in pictures:
        pixels = [
            [set(np.flatnonzero(side.places.ravel() == row).tolist()) for row in range(len(side.labels))]
            for side in (truth, found)
        ]
        void = set(np.flatnonzero(truth.places.ravel() < 0).tolist())
        taken, used = set(), set()
        for row, true in enumerate(pixels[0]):
            for other, own in enumerate(pixels[1]):
                iou = len(true & own) / max(len((true | own) - (own & void)), 1)
                if not truth.is_crowd[row] and truth.labels[row] == found.labels[other] and iou > 0.5:
                    totals[int(truth.labels[row])][0] += iou
                    totals[int(truth.labels[row])][1] += 1
                    taken.add(row)
                    used.add(other)
        for other, own in enumerate(pixels[1]):
            crowds = [row for row in range(len(truth.labels)) if truth.is_crowd[row]]
            crowds = [row for row in crowds if truth.labels[row] == found.labels[other]][-1:]
            unscored = len(own & void) + sum(len(own & pixels[0][row]) for row in crowds)
            if other not in used and not unscored / len(own) > 0.5:
                totals[int(found.labels[other])][2] += 1
        for row in range(len(truth.labels)):
            totals[int(truth.labels[row])][3] += row not in taken and not truth.is_crowd[row]
    return {label: tuple(numbers) for label, numbers in totals.items()}
