"""Annotations and imperfect detections of images without pixels, drawn at random, and the same as COCO's files."""

from typing import Any

import numpy as np

from paddlevit_dist.images.detection.data.image_annotations import ImageAnnotations
from paddlevit_dist.images.detection.detections import DetectedObjects, boxes_to_corners

NAMES = ["owl", "cat", "dog", "yak"]  # nothing is ever annotated as a yak
CATEGORY_IDS = [3, 7, 8, 90]
NOTHING_FOUND = DetectedObjects(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64))


def drawn(number: int) -> tuple[ImageAnnotations, DetectedObjects]:
    """Image ``number``: every fifth has no boxes, every seventh no detections; equal scores are frequent.

    Some boxes are exactly as large as the limit between small and medium ones.
    """
    generator = np.random.default_rng(number)
    boxes = generator.uniform(0, 60, (0 if number % 5 == 0 else generator.integers(1, 8), 4)).round(1)
    boxes[:, 2:] += 8
    boxes[::4, 2:] = 32.0
    labels = generator.integers(0, 3, len(boxes))
    crowd = generator.random(len(boxes)) < 0.15
    truth = ImageAnnotations(boxes, labels, boxes[:, 2] * boxes[:, 3], crowd, 100 * number + 1 + np.arange(len(boxes)))
    found = np.repeat(boxes, 3, axis=0) + generator.normal(0, 2.5, (3 * len(boxes), 4))
    found = np.concatenate([found, generator.uniform(0, 60, (3, 4))])
    found[:, 2:] = np.maximum(found[:, 2:], 1)
    found[::6] = found[::6].round()
    found[::6, 2:] = 32.0
    chosen = np.flatnonzero(generator.random(len(found)) < (0.0 if number % 7 == 0 else 0.7))
    wrong = generator.random(len(found)) < 0.2
    all_labels = np.concatenate([np.repeat(labels, 3), generator.integers(0, 4, 3)])
    all_labels = np.where(wrong, generator.integers(0, 4, len(found)), all_labels)
    scores = generator.random(len(found)).round(1).astype(np.float32)
    corners = boxes_to_corners(found).astype(np.float32)
    return truth, DetectedObjects(corners[chosen], scores[chosen], all_labels[chosen].astype(np.int64))


def as_coco(images: int) -> dict[str, list[dict[str, Any]]]:
    """The annotations of images 0, 1, ... as COCO's JSON."""
    annotations = []
    for number in range(images):
        truth, _ = drawn(number)
        for box, label, area, crowd, own in zip(*(column.tolist() for column in truth[:5])):
            annotations.append(
                {
                    "id": own,
                    "image_id": number + 1,
                    "category_id": CATEGORY_IDS[label],
                    "bbox": box,
                    "area": area,
                    "iscrowd": int(crowd),
                }
            )
    return {
        "images": [{"id": number + 1, "height": 100, "width": 130} for number in range(images)],
        "annotations": annotations,
        "categories": [{"id": own, "name": name} for own, name in zip(CATEGORY_IDS, NAMES)],
    }
