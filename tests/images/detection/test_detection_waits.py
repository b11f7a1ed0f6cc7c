"""How often a training step of a detector makes the host wait for a GPU, counted on a CPU."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from support import small_detections
from support.waits import counted_waits

from paddlevit_dist import config
from paddlevit_dist.contracts.task import Step, make_task
from paddlevit_dist.engine.steps import loss_of
from paddlevit_dist.images.detection.data.samples import DetectionSample

_SIDES = [(64, 96), (96, 64), (64, 64), (80, 64)]


def sample(number: int, objects: int) -> DetectionSample:
    generator = np.random.default_rng(number)
    height, width = _SIDES[number % len(_SIDES)]
    low = generator.integers(0, 32, (objects, 2))
    corners = np.concatenate([low, low + generator.integers(8, 32, (objects, 2))], axis=1)
    masks = np.zeros((objects, height, width), np.uint8)
    for mask, (left, top, right, bottom) in zip(masks, corners):
        mask[top:bottom, left:right] = 1
    image = generator.integers(1, 255, (3, height, width)).astype(np.uint8)
    labels = generator.integers(0, 3, objects)
    return DetectionSample(number, True, image, (height, width), corners.astype(np.float32), labels, masks)


def waits_of_a_step(words: list, pictures: int):
    """The waits of forward and backward pass over a batch, in the second step."""
    values = config.load([*small_detections.SHAPES, "-num_classes=3", *words]).values
    task = make_task(values)
    model = task.build_model()
    batch = task.collate([sample(number, 1 + number % 4) for number in range(pictures)])
    counts = {name: max(number, 1) for name, number in task.counts(batch).items()}
    batch = {name: paddle.to_tensor(v) if isinstance(v, np.ndarray) else v for name, v in batch.items()}
    for update in range(2):
        with counted_waits() as waits:
            terms = task.train_step(model, dict(batch), Step(1, update, 2))
            loss_of(terms, counts, 1, 1).backward()
    assert all(p.grad is not None for p in model.parameters() if not p.stop_gradient)
    return waits


@pytest.mark.parametrize("words", [[], ["MODEL.NAME", "detr_small"]], ids=["resnet", "small"])
@pytest.mark.parametrize("pictures", [1, 4])
def test_detr_waits_once_for_the_costs_of_its_matching(words, pictures):
    waits = waits_of_a_step(words, pictures)
    assert len(waits) == 1, str(waits)


@pytest.mark.parametrize("pictures", [1, 8])
def test_mask_rcnn_waits_once_a_picture_and_twice_a_batch_besides_its_roi_aligns(pictures):
    words = ["MODEL.NAME", "mask_rcnn_small", "MODEL.MASK_PADDING", "False"]
    waits = waits_of_a_step(words, pictures)
    assert len(waits) - waits.of("roi_align") == waits.of("nms", "read") <= pictures + 2, str(waits)
    levels = 4
    assert waits.of("roi_align") <= 2 * 2 * levels + pictures, str(waits)  # boxes and masks; forward and backward
    assert waits.transfers == 7  # whatever the number of pictures
