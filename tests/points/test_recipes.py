"""Each recipe for point clouds trains on two processes, at reduced size, one after another."""

from pathlib import Path

import pytest
from support.processes import ROOT, run_workers, succeeded

RECIPES = sorted(path for kind in ("mink", "pointgroup") for path in (ROOT / "configs").glob(f"{kind}*.yaml"))
SMALL = (
    "-dataset=synthetic_rooms -batch_size=2 "
    "POINTS.ROOMS.TRAIN 8 POINTS.ROOMS.VAL 3 POINTS.ROOMS.SPACING_M 0.15 DATA.VOXEL_SIZE_M 0.25 DATA.BATCH_SIZE_EVAL 1 "
    "POINTS.MAX_POINTS 1500"
).split()
SHAPES = "-batch_size=4 SHAPES.SOLIDS.TRAIN 16 SHAPES.SOLIDS.VAL 6 SHAPES.POINTS 200 SHAPES.VOXEL_SIZE 0.25".split()
SCORES = {"pointgroup": "AP", "mink_classifier": "top-1"}
CLUSTERS = (
    "POINTS.INSTANCES.PREPARE_EPOCHS 0 POINTS.INSTANCES.RADIUS_M 0.3 DATA.NUM_WORKERS 1 "
    "POINTS.INSTANCES.WIDTH 8 POINTS.INSTANCES.BLOCKS 1"
).split()


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("recipes"))
    words = {str(path): SMALL + (CLUSTERS if path.stem.startswith("pointgroup") else []) for path in RECIPES}
    words.update({path: SHAPES for path in words if "classifier" in path})
    return folder, succeeded(run_workers("support.recipe_steps:run_each", words, folder, timeout=400)).results


@pytest.mark.parametrize("recipe", [path.stem for path in RECIPES])
def test_two_updates_on_two_processes(recipe, results):
    folder, ranks = results
    first, second = (result[recipe] for result in ranks)
    assert len(first["losses"]) == 2 and all(0 < loss < 20 for loss in first["losses"])
    assert first["before"] == second["before"] and first["after"] == second["after"] != first["before"]
    assert first["evaluation"] == second["evaluation"]
    score = next((one for start, one in SCORES.items() if recipe.startswith(start)), "mIoU")
    assert 0 <= first["evaluation"][score] <= 100
    assert (Path(folder) / recipe / "checkpoints" / "last" / "model.pdparams").is_file()
