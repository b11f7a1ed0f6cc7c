"""Tasks of volumes in captured passes (TRAIN.CAPTURE), by a graph for CPUs."""

import pytest
from support.files.landmark_folders import TINY
from support.processes import ROOT
from support.trainings.captured_runs import require_the_same_run

RUN = [*TINY, "-epochs=1", "-batch_size=2", "TRAIN.WARMUP_STEPS", "0", "REPORT_FREQ", "1", "REPORT", "False"]
SIZES = {"train": 10, "val": 1}
RECIPES = {
    "organs": "volume_unet3d_phantoms VOLUMES.UNET_DEPTH 3",
    "landmarks": "landmark_unet3d VOLUMES.LOSS mse",
    "landmarks, focal": "landmark_unet3d VOLUMES.LOSS focal",
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_tasks_train_in_a_graph_as_without_one(tmp_path, recipe):
    name, *words = RECIPES[recipe].split()
    require_the_same_run(tmp_path, [f"-cfg={ROOT}/configs/{name}.yaml", *RUN, *words], SIZES)
