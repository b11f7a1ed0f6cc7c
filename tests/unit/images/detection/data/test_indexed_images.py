"""Counts of boxes agree with a slow loop over the images."""

from types import SimpleNamespace

import numpy as np
import pytest

from paddlevit_dist.images.detection.data.indexed_images import IndexedDetectionImages


class DrawnIndex(IndexedDetectionImages):
    """Images of the drawn boxes ``labels``, a list of each image."""

    def __init__(self, labels) -> None:
        self.num_classes, self.labels = 4, labels
        joined = [label for image in labels for label in image]
        first = np.cumsum([0, *map(len, labels)])
        generator = np.random.default_rng(0)
        crowd, sizes = generator.random(len(joined)) < 0.2, generator.integers(0, 4, (len(joined), 4))
        objects = {"label": np.array(joined, np.int32), "is_crowd": crowd.astype(np.uint8), "box": sizes}
        self._index = SimpleNamespace(objects=objects, images={"first": first})

    def __len__(self) -> int:
        return len(self.labels)


LABELS = [[0, 1, 1], [1], [], [3, 1, 3, 3], [0, 3], [1, 3, 0, 0, 0, 1]]  # no image has class 2


@pytest.mark.parametrize("chosen", [None, [0, 3, 5], [2], [4, 1]])
def test_boxes_and_images_of_each_class_are_counted(chosen):
    drawn, expected, place = DrawnIndex(LABELS), np.zeros((4, 2), int), 0
    for image, labels in enumerate(LABELS):
        boxes = drawn._index.objects["box"][place : place + len(labels)]
        labels = [label for label, box in zip(labels, boxes) if min(box[2:]) > 0]
        place += len(boxes)
        if chosen is None or image in chosen:
            for label in labels:
                expected[label, 0] += 1
            for label in set(labels):
                expected[label, 1] += 1
    found = drawn.class_counts(None if chosen is None else np.array(chosen))
    assert found.tolist() == expected.tolist()


def test_learnable_boxes_of_each_image_are_counted():
    drawn = DrawnIndex(LABELS)
    objects, expected, place = drawn._index.objects, [], 0
    for labels in LABELS:
        learnable = []
        for label in labels:
            if not objects["is_crowd"][place] and min(objects["box"][place, 2:]) > 0:
                learnable.append(label)
            place += 1
        expected.append([len(learnable), max(map(learnable.count, learnable), default=0)])
    assert drawn.object_counts().tolist() == expected
