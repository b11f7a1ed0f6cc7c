"""DETR's update is that of one batch, however its images are spread over processes and micro-batches."""

import numpy as np
import paddle
from support.processes import run_together
from support.updates import changes_of_an_update

from paddlevit_dist.distributed import rank, world_size
from paddlevit_dist.engine.steps import COUNTS
from paddlevit_dist.images.detection.detector import Targets
from paddlevit_dist.images.detection.detr.network import Detr
from paddlevit_dist.models import create_model
from paddlevit_dist.tasks.task import Task

OPTIONS = {
    "backbone": "resnet18",
    "backbone_options": {"depths": (1,), "dims": (4,)},
    "frozen_stages": 0,
    "embed_dim": 8,
    "num_heads": 2,
    "feedforward": 8,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "num_queries": 4,
}
OBJECTS = (0, 3, 0, 0, 1, 6, 0, 2)  # of each image: some halves and quarters have many, some none
SIDE = 24


class OnlyLosses(Task):
    """Nothing but DETR's losses."""

    def __init__(self):
        super().__init__(None)
        self.criterion = Detr.criterion("detr_resnet18", 3, **OPTIONS)
        self.count_names = self.criterion.count_names

    def train_step(self, model, batch, step):
        targets = Targets(batch["boxes"], batch["labels"], batch["sizes"])
        return self.criterion.terms(model(batch["images"], batch["sizes"], targets), targets)


def drawn_images() -> dict:
    random, number = np.random.default_rng(0), len(OBJECTS)
    boxes, labels = np.zeros((number, max(OBJECTS), 4), np.float32), np.full((number, max(OBJECTS)), -1)
    for image, objects in enumerate(OBJECTS):
        boxes[image, :objects] = np.sort(random.random((objects, 2, 2)), axis=1).reshape(objects, 4) * SIDE
        labels[image, :objects] = random.integers(3, size=objects)
    images = random.standard_normal((number, 3, SIDE, SIDE)).astype(np.float32)
    return {"images": images, "boxes": boxes, "labels": labels, "sizes": np.full((number, 2), SIDE)}


def batch_of(part: slice, task: OnlyLosses) -> dict:
    arrays = {name: array[part] for name, array in drawn_images().items()}
    counts = task.criterion.counts(arrays)
    arrays[COUNTS] = np.array([counts[name] for name in task.count_names])
    return {name: paddle.to_tensor(array) for name, array in arrays.items()}


def update_once(micro_batches: int) -> dict:
    """What one SGD update on this rank's share of the images adds to the weights."""
    paddle.seed(0)
    model, task = create_model("detr_resnet18", 3, **OPTIONS), OnlyLosses()
    size = len(OBJECTS) // world_size() // micro_batches
    first = rank() * micro_batches
    batches = [batch_of(slice((first + i) * size, (first + i + 1) * size), task) for i in range(micro_batches)]
    return changes_of_an_update(task, model, batches, len(OBJECTS))


def test_the_update_is_that_of_one_batch_of_all_images():
    expected = update_once(1)
    largest = max(np.abs(change).max() for change in expected.values())
    assert largest > 0.1
    calls = {str(number): ("distributed.test_detr_updates:update_once", (number,)) for number in (1, 2)}
    for changes in [update_once(4), *sum(run_together(calls, processes=2).values(), [])]:
        assert set(changes) == set(expected)
        for name, change in changes.items():
            np.testing.assert_allclose(change, expected[name], atol=1e-5 * largest, err_msg=name)
