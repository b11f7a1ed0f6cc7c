"""TRAIN.SHARDING gradients with everything that changes a backward pass, and on three ranks whose shares are uneven."""

from pathlib import Path

import pytest
from integration.distributed.test_sharding import GRADIENTS, MODULE, require_equal, saved
from support.processes import run_together

OPTIONS = {
    "none": [],
    "accumulation": ["TRAIN.ACCUM_ITER", "2"],
    "recomputation": ["TRAIN.RECOMPUTE", "True"],
    "compiled passes": ["TO_STATIC", "True"],
    "unused parameters": ["TRAIN.FIND_UNUSED_PARAMETERS", "True"],
    "frozen parameters": ["TRAIN.FREEZE", "[blocks.0.*]"],
    # Lion takes the sign of gradients near zero, too, and clipping rounds them otherwise.
    "Lion": "TRAIN.OPTIMIZER.NAME Lion TRAIN.BASE_LR 1e-4 TRAIN.GRAD_CLIP None".split(),
    "Muon": ["TRAIN.OPTIMIZER.NAME", "Muon"],
}


@pytest.mark.parametrize("processes", [2, 3])
def test_sharded_gradients_train_to_the_weights_moments_and_averages_without_sharding(tmp_path: Path, processes):
    names = OPTIONS if processes == 2 else ("none", "Muon")
    calls = {}
    for name in names:
        for kind, words in (("plain", []), ("gradients", GRADIENTS)):
            given = ["-batch_size=8", *OPTIONS[name], *words]
            calls[f"{name} {kind}"] = f"{MODULE}:train", (str(tmp_path / f"{name} {kind}"), given)
    for kind, words in (("plain", []), ("gradients", GRADIENTS)):  # as on a GPU in half precision, with skipped updates
        given = str(tmp_path / f"queued {kind}"), ["-batch_size=8", *words], (4, 5, 12), False, True
        calls[f"queued {kind}"] = f"{MODULE}:train", given
    runs = run_together(calls, processes)
    for name in (*names, "queued"):
        require_equal(saved(tmp_path / f"{name} plain"), saved(tmp_path / f"{name} gradients"), 1e-4)
        first, *others = runs[f"{name} gradients"]
        for other in others:
            require_equal(first["weights"], other["weights"])
        assert first["skipped"] == (3 if name == "queued" else 0)
    whole = runs["none plain"][0]["gradient bytes"][0]
    shares = [found["gradient bytes"][0] for found in runs["none gradients"]]
    assert sum(shares) == whole and max(shares) < 1.2 * whole / processes
