"""Two processes, of which one has no object at all, learn what one process learns."""

import numpy as np
import paddle
import pytest
from support import mask_rcnn_batches as batches
from support.processes import run_workers, succeeded
from support.updates import changes_of_an_update

from paddlevit_dist.distributed import rank, world_size
from paddlevit_dist.engine.steps import COUNTS
from paddlevit_dist.images.detection.mask_rcnn.network import MaskRCNN
from paddlevit_dist.tasks.task import Task

COUNTS_OF_OBJECTS = (2, 3, 0, 0)  # the second rank has the last two


class Regions(Task):
    """Mask R-CNN on images that are given."""

    criterion = MaskRCNN.criterion(batches.NAME, batches.CLASSES)
    count_names = criterion.count_names

    def train_step(self, model, batch, step):
        images, targets = batch["images"], batch["targets"]
        return self.criterion.terms(model(images, targets.sizes, targets), targets)


def update_once(micro_batches: int) -> dict:
    """One update on this rank's share of the images; what has become of every parameter that learns."""
    model = batches.model(**batches.EVERY_SAMPLE)
    model.eval()  # batch norms see the same
    arrays, task = batches.images(COUNTS_OF_OBJECTS), Regions(None)
    share = len(COUNTS_OF_OBJECTS) // world_size() // micro_batches
    given = []
    for micro in range(micro_batches):
        first = (rank() * micro_batches + micro) * share
        images, targets = batches.batch(arrays, slice(first, first + share))
        counts = task.criterion.counts({"labels": targets.labels.numpy()})
        counts = paddle.to_tensor(np.array([counts[name] for name in task.count_names], np.float64))
        given.append({"images": images, "targets": targets, COUNTS: counts})
    return changes_of_an_update(task, model, given, len(COUNTS_OF_OBJECTS))


@pytest.mark.long
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_two_processes_change_the_weights_as_one_does(micro_batches):
    alone = update_once(1)
    target = "images.detection.test_mask_rcnn_ranks:update_once"
    ended = succeeded(run_workers(target, micro_batches, processes=2))
    assert len(ended.results) == 2
    for found in ended.results:
        assert set(found) == set(alone)
        for name, change in found.items():
            largest = abs(alone[name]).max()
            assert largest > 0, name
            np.testing.assert_allclose(change, alone[name], atol=1e-6 * largest, err_msg=name)
