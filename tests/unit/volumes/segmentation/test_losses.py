"""How often a step on regions makes the host wait for a GPU, counted on a CPU."""

import numpy as np
import paddle
from support.waits import counted_waits

from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.volumes.segmentation.regions import LabelRegion
from paddlevit_dist.volumes.segmentation.task import VolumeSegmentation

SMALL = ["VOLUMES.UNET_WIDTH", "2", "VOLUMES.UNET_KERNELS", "[1x3x3,1x3x3,3x3x3,3x3x3]"]
SMALL += ["VOLUMES.UNET_STRIDES", "[1x2x2,1x2x2,2x2x2]"]


def test_a_step_waits_for_nothing():
    task = VolumeSegmentation(load(["-cfg=configs/volume_unet3d_phantoms.yaml", *SMALL]).values)
    task.class_names, task.numbers = ["whole", "core"], [0, 1, 2]
    task.regions = [LabelRegion((1, 2), 1), LabelRegion((2,), 2)]
    model, labels = task.build_model(), np.random.default_rng(0).integers(0, 3, (2, 4, 8, 12)).astype(np.uint8)
    batch = {"volume": paddle.ones([2, 1, 4, 8, 12]), "labels": paddle.to_tensor(labels)}
    for first in (True, False):  # the first step makes what all share
        with counted_waits() as waits:
            terms = task.train_step(model, batch, StepPosition(1, 0, 10))
            sum(term.sum * term.weight for term in terms.values()).backward()
        assert len(waits) == 0 and (first or waits.transfers == 0), str(waits)
    assert all(np.isfinite(term.sum.item()) for term in terms.values())
