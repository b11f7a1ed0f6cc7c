"""TRAIN.SHARDING on three ranks, whose shares are uneven, against three ranks and one process without it."""

from pathlib import Path

import pytest
from integration.core.distributed.test_sharding import MODULE, SHARDING, require_equal, saved
from support.processes import run_together


@pytest.mark.parametrize("optimizer", ["AdamW", "Muon"])
def test_three_ranks_train_to_the_weights_moments_and_averages_without_sharding(tmp_path: Path, optimizer):
    def call(name: str, *words: str) -> tuple:
        return f"{MODULE}:train", (str(tmp_path / name), [*words, "TRAIN.OPTIMIZER.NAME", optimizer])

    def call_queued(name: str, *words: str) -> tuple:  # as on a GPU
        target, given = call(name, *words)
        return target, (*given, (), False)

    three = {
        "plain": call("plain", "-batch_size=8"),
        "sharded": call("sharded", "-batch_size=8", *SHARDING),
        "queued": call_queued("queued", "-batch_size=8", *SHARDING),
    }
    runs = {**run_together(three, 3), **run_together({"alone": call("alone", "-batch_size=24")}, 1)}
    for name in ("sharded", "queued"):
        require_equal(saved(tmp_path / "plain"), saved(tmp_path / name), 1e-7)
        first, *others = runs[name]
        for other in others:
            require_equal(first["weights"], other["weights"])
    require_equal(saved(tmp_path / "sharded"), saved(tmp_path / "alone"), 1e-4)
    whole = runs["plain"][0]["state bytes"]
    assert sum(rank["state bytes"] for rank in runs["sharded"]) == pytest.approx(whole, rel=0.01)
    assert max(rank["state bytes"] for rank in runs["sharded"]) < 0.4 * whole
