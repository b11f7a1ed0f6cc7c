"""Shards of a model's state: each tensor has one owner, shares are alike, and what cannot be shared is refused."""

import paddle
import pytest
from support.networks import small_classifiers
from support.trainings import small_runs

from paddlevit_dist.distributed import DistributedBatchNorm
from paddlevit_dist.engine import sharding
from paddlevit_dist.engine.sharding import Shards
from paddlevit_dist.runtime.errors import UserError


def shards_of(model, processes: int, monkeypatch) -> list[Shards]:
    monkeypatch.setattr(sharding, "world_size", lambda: processes)
    shares = []
    for number in range(processes):
        monkeypatch.setattr(sharding, "rank", lambda number=number: number)
        shares.append(Shards(model))
    return shares


@pytest.mark.parametrize("processes", [2, 3])
def test_each_float_tensor_has_one_owner_and_shares_are_alike(processes, monkeypatch):
    model = small_classifiers.build("vit_tiny_patch16_224", depth=6)
    model.register_buffer("statistics", paddle.zeros([1000]))
    model.register_buffer("steps", paddle.zeros([1], dtype="int64"))
    shares = shards_of(model, processes, monkeypatch)
    names = sorted(name for share in shares for name in share.owned)
    assert names == sorted(name for name in model.state_dict() if name != "steps")
    assert "statistics" in shares[0].owned
    sizes = {name: p.size for name, p in model.named_parameters()}
    totals = [sum(sizes.get(name, 0) for name in share.owned) for share in shares]
    assert max(totals) < 1.05 * sum(totals) / processes
    assert shares[1].describe() == (
        f"TRAIN.SHARDING: this process keeps the optimizer's state of {totals[1]:,} of {sum(totals):,} values"
    )


def test_frozen_parameters_do_not_make_the_shares_of_trained_ones_uneven(monkeypatch):
    model = small_classifiers.build("vit_tiny_patch16_224", depth=4)
    for name, parameter in model.named_parameters():
        parameter.stop_gradient = not name.startswith(("blocks.2.", "blocks.3."))
    shares = shards_of(model, 2, monkeypatch)
    sizes = {name: p.size for name, p in model.named_parameters() if not p.stop_gradient}
    totals = [sum(sizes.get(name, 0) for name in share.owned) for share in shares]
    assert abs(totals[0] - totals[1]) < 0.02 * sum(totals)


def test_fewer_parameters_than_processes_are_refused(monkeypatch):
    with pytest.raises(UserError, match="TRAIN.SHARDING: 2 trained parameters are fewer than 3 processes"):
        shards_of(paddle.nn.Linear(2, 2), 3, monkeypatch)


def test_tensors_are_sent_in_their_order_in_buckets_of_a_limited_size(monkeypatch):
    monkeypatch.setattr(sharding, "_BUCKET_VALUES", 10)
    sizes = {"a": 4, "b": 6, "c": 1, "d": 30, "e": 2}
    assert list(sharding._buckets(sizes)) == [["a", "b"], ["c"], ["d"], ["e"]]


def test_one_process_keeps_all_and_says_so(tmp_path, capsys):
    trainer = small_runs.build(str(tmp_path), "-batch_size=32", "-epochs=1", "TRAIN.SHARDING", "optimizer")
    trainer.prepare_training()
    assert trainer.state.shards is None
    assert "TRAIN.SHARDING optimizer has no effect on one process" in capsys.readouterr().out


def test_the_first_rank_owns_all_statistics_that_training_changes(monkeypatch):
    model = paddle.nn.Sequential(
        paddle.nn.Conv2D(3, 8, 1), paddle.nn.BatchNorm2D(8), paddle.nn.Conv2D(8, 8, 1), DistributedBatchNorm(8)
    )
    model[2].weight.stop_gradient = True
    first, second = shards_of(model, 2, monkeypatch)
    statistics = {f"{layer}.{name}" for layer in (1, 3) for name in ("_mean", "_variance")}
    assert statistics <= first.owned
    assert statistics.isdisjoint(second.owned)
    assert first.owned | second.owned == set(model.state_dict())
