"""Each recipe for point clouds trains on two processes, at reduced size."""

from __future__ import annotations

import json

import pytest
from support.processes import ROOT, run_main, succeeded

RECIPES = sorted(path for kind in ("minkunet", "pointgroup") for path in (ROOT / "configs").glob(f"{kind}*.yaml"))
SMALL = (
    "-dataset=synthetic_rooms -epochs=1 -batch_size=2 -ngpus=2 TRAIN.WARMUP_STEPS 0 TRAIN.WARMUP_EPOCHS 0 "
    "POINTS.ROOMS.TRAIN 8 POINTS.ROOMS.VAL 3 POINTS.ROOMS.SPACING_M 0.15 DATA.VOXEL_SIZE_M 0.25 DATA.BATCH_SIZE_EVAL 1 "
    "POINTS.MAX_POINTS 1500"
).split()
CLUSTERS = "POINTS.INSTANCES.PREPARE_EPOCHS 0 POINTS.INSTANCES.RADIUS_M 0.3 DATA.NUM_WORKERS 1".split()


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_two_updates_on_two_processes(recipe, tmp_path):
    has_instances = recipe.stem.startswith("pointgroup")
    more = CLUSTERS if has_instances else ["DATA.NUM_WORKERS", "0"]
    ended = succeeded(run_main(f"-cfg={recipe}", f"-output={tmp_path / 'out'}", *SMALL, *more, timeout=200))
    lines = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    trained = [line for line in lines if line["kind"] == "training"]
    assert trained[-1]["update"] == 2 and 0 < trained[-1]["semantic" if has_instances else "loss"] < 20
    assert ended.out.strip().splitlines()[-1].startswith("AP 0." if has_instances else "mIoU 0.")
    assert (tmp_path / "out" / "checkpoints" / "last" / "model.pdparams").is_file()
