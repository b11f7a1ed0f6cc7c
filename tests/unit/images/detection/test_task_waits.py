"""How often an update of a detector makes the host wait for a GPU, counted on a CPU."""

import numpy as np
import pytest
from support.trainings import small_detections
from support.trainings.updates import waits_of_an_update
from support.waits import Waits

from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.task_factory import make_task
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


def make_waits(words: list, images: int) -> Waits:
    task = make_task(settings.load([*small_detections.SHAPES, "-num_classes=3", *words]).values)
    batch = task.collate([sample(number, 1 + number % 4) for number in range(images)])
    return waits_of_an_update(task, task.build_model(), batch, images)


@pytest.mark.parametrize("words", [[], ["MODEL.NAME", "detr_small"]], ids=["resnet", "small"])
@pytest.mark.parametrize("images", [1, 4])
def test_detr_waits_for_the_costs_of_its_matching_and_for_the_norm(words, images):
    waits = make_waits(words, images)
    assert len(waits) == 2, str(waits)
    assert waits.transfers == 1  # assignments of all layers


@pytest.mark.parametrize("name", ["rtdetr_small", "dfine_small"])
@pytest.mark.parametrize("images", [1, 4])
def test_rtdetr_waits_for_the_assignments_of_all_layers_at_once_and_for_the_norm(name, images):
    words = ["MODEL.NAME", name, "MODEL.MASK_PADDING", "False"]
    words += [
        "DATA.RESIZE_TO_SQUARE",
        "True",
        "DATA.SHORTEST_SIDES",
        "[64]",
        "DATA.BATCH_SIDES",
        "[96]",
    ]  # resized on the device
    task = make_task(settings.load([*small_detections.SHAPES, "-num_classes=3", *words]).values)
    noise, samples = task.criterion.noise, []
    for number in range(images):
        one = sample(number, 1 + number % 4)._replace(image=np.zeros((3, 64, 64), np.uint8), masks=None)
        drawn = noise.draw(one.boxes, one.labels, (64, 64), np.random.default_rng(number))
        samples.append(one._replace(noise=drawn))
    waits = waits_of_an_update(task, task.build_model(), task.collate(samples), images)
    assert len(waits) == 2, str(waits)
    assert waits.transfers == 1


@pytest.mark.parametrize("images", [1, 8])
def test_mask_rcnn_waits_once_an_image_twice_a_batch_and_for_the_norm(images):
    words = ["MODEL.NAME", "mask_rcnn_small", "MODEL.MASK_PADDING", "False"]
    waits = make_waits(words, images)
    assert waits.of("nms") == images and len(waits) == images + 3, str(waits)
    assert waits.transfers == 5  # whatever the number of images
