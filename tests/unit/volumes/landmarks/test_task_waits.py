"""How often a step on volumes makes the host wait for a GPU, counted on a CPU."""

import numpy as np
import paddle
import pytest
from support.waits import counted_waits

from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.volumes.landmarks.task import LandmarkDetection

SMALL = ["TASK", "landmark_detection", "MODEL.NAME", "unet3d", "VOLUMES.UNET_WIDTH", "4", "VOLUMES.UNET_DEPTH", "1"]


@pytest.mark.parametrize("keys", [["LOSS", "focal"], ["HEATMAP", "gaussian"], ["HEATMAP", "radius"]], ids=" ".join)
def test_a_step_waits_for_nothing(keys):
    task = LandmarkDetection(settings.load([*SMALL, f"VOLUMES.{keys[0]}", keys[1]]).values)
    task.names, task.spacing = ["a", "b"], np.ones(3)
    model = task.build_model()
    points = np.array([[[3.0, 4.0, 5.0], [np.nan, np.nan, np.nan]], [[0.2, 7.9, 2.0], [30.0, 1.0, 1.0]]], np.float32)
    batch = {"volume": paddle.ones([2, 1, 8, 8, 8]), "points": paddle.to_tensor(points)}
    for first in (True, False):  # the first step makes what all share
        with counted_waits() as waits:
            term = task.train_step(model, batch, StepPosition(1, 0, 10))["heatmap"]
            term.sum.backward()
        assert len(waits) == 0 and (first or waits.transfers == 0), str(waits)
    assert np.isfinite(term.sum.item()) and term.count.item() == 3
