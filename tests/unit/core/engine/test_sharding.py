"""Shards of a model's state: each tensor has one owner, shares are alike, and what cannot be shared is refused."""

from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.networks import small_classifiers
from support.thread_ranks import acting_as
from support.trainings import small_runs

from paddlevit_dist import UserError
from paddlevit_dist.core.distributed import DistributedBatchNorm
from paddlevit_dist.core.engine import sharding
from paddlevit_dist.core.engine.sharding import Shards


def shards_of(model, processes: int) -> list[Shards]:
    shares = []
    for number in range(processes):
        with acting_as(number, processes):
            shares.append(Shards(model))
    return shares


@pytest.mark.parametrize("processes", [2, 3])
def test_each_float_tensor_has_one_owner_and_shares_are_alike(processes):
    model = small_classifiers.build("vit_tiny_patch16_224", depth=6)
    model.register_buffer("statistics", paddle.zeros([1000]))
    model.register_buffer("steps", paddle.zeros([1], dtype="int64"))
    shares = shards_of(model, processes)
    names = sorted(name for share in shares for name in share.owned)
    assert names == sorted(name for name in model.state_dict() if name != "steps")
    assert "statistics" in shares[0].owned
    sizes = {name: p.size for name, p in model.named_parameters()}
    totals = [sum(sizes.get(name, 0) for name in share.owned) for share in shares]
    assert max(totals) < 1.05 * sum(totals) / processes
    assert shares[1].describe() == (
        f"TRAIN.SHARDING: this process keeps the optimizer's state of {totals[1]:,} of {sum(totals):,} values"
    )


def test_frozen_parameters_do_not_make_the_shares_of_trained_ones_uneven():
    model = small_classifiers.build("vit_tiny_patch16_224", depth=4)
    for name, parameter in model.named_parameters():
        parameter.stop_gradient = not name.startswith(("blocks.2.", "blocks.3."))
    shares = shards_of(model, 2)
    sizes = {name: p.size for name, p in model.named_parameters() if not p.stop_gradient}
    totals = [sum(sizes.get(name, 0) for name in share.owned) for share in shares]
    assert abs(totals[0] - totals[1]) < 0.02 * sum(totals)


def test_fewer_parameters_than_processes_are_refused():
    with pytest.raises(UserError, match="TRAIN.SHARDING: 2 trained parameters are fewer than 3 processes"):
        shards_of(paddle.nn.Linear(2, 2), 3)


def test_weights_in_double_precision_are_refused():
    model = paddle.nn.Linear(2, 3)
    model.own = model.create_parameter([1], dtype="float64")
    with pytest.raises(UserError, match=r"^TRAIN.SHARDING: expected float32 parameters"):
        Shards(model)


def test_tensors_are_sent_in_their_order_in_buckets_of_a_limited_size():
    sizes = {"a": 4, "b": 6, "c": 1, "d": 30, "e": 2}
    assert list(sharding.make_buckets(sizes, 10)) == [["a", "b"], ["c"], ["d"], ["e"]]


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
    first, second = shards_of(model, 2)
    statistics = {f"{layer}.{name}" for layer in (1, 3) for name in ("_mean", "_variance")}
    assert statistics <= first.owned
    assert statistics.isdisjoint(second.owned)
    assert first.owned | second.owned == set(model.state_dict())


class OtherRank:
    """The rest of two processes: what it sends is given, or zeros; what this one sends is kept."""

    def __init__(self, monkeypatch, number, flat=(), gathered=None):
        self.number, self.flat, self.sent, self.own = number, list(flat), [], None
        self.gathered = gathered
        monkeypatch.setattr(sharding, "_BUCKET_VALUES", 5)
        for name in ("world_size", "rank", "broadcast_flat", "all_gather"):
            monkeypatch.setattr(sharding, name, getattr(self, name))

    def world_size(self):
        return 2

    def rank(self):
        return self.number

    def broadcast_flat(self, values, size, owner):
        assert (values is None) == (owner != self.number)
        if values is None:
            return self.flat.pop(0) if self.flat else paddle.zeros([size])
        assert values.shape == [size]
        self.sent.append(values.clone())
        return values

    def all_gather(self, own):
        self.own = own
        return [({}, {}), own] if self.number else [own, self.gathered]


def make_model(start):
    model = paddle.nn.Sequential(paddle.nn.Linear(3, 2), paddle.nn.BatchNorm1D(2), paddle.nn.Linear(2, 2))
    for number, tensor in enumerate(model.state_dict().values()):
        tensor.set_value(start + number + paddle.arange(float(tensor.size)).reshape(tensor.shape) / 100)
    return model


@pytest.mark.parametrize("exchange", ["exchange_trained", "exchange_state"])
def test_weights_come_from_their_owners(monkeypatch, exchange):
    models = [make_model(0.0), make_model(100.0)]
    other = OtherRank(monkeypatch, 1)
    theirs = Shards(models[1])
    before = {name: tensor.numpy().copy() for name, tensor in models[1].state_dict().items()}
    getattr(theirs, exchange)()
    this = OtherRank(monkeypatch, 0, other.sent)
    ours = Shards(models[0])
    own = {name: tensor.numpy().copy() for name, tensor in models[0].state_dict().items()}
    getattr(ours, exchange)()
    assert this.flat == [] and len(this.sent) > 1
    assert ours.owned | theirs.owned == set(own) and not ours.owned & theirs.owned
    for name, tensor in models[0].state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), (before if name in theirs.owned else own)[name], err_msg=name)


def test_moments_of_all_ranks_are_collected_on_the_first(monkeypatch):
    theirs = {"c": paddle.arange(6.0).reshape([2, 3]), "d": paddle.full([1], 7.0), "e": paddle.arange(2.0)}
    theirs["g"] = paddle.arange(3.0)  # in one bucket with the one before
    other = OtherRank(monkeypatch, 1)
    assert Shards(make_model(0.0)).collect(theirs) == {}
    ours = {
        "a": paddle.ones([2, 2]),
        "b": paddle.full([], 3.0),
        "steps": paddle.zeros([2], "int64"),
        "f": paddle.ones([3]),
    }
    OtherRank(monkeypatch, 0, other.sent, other.own)
    found = Shards(make_model(0.0)).collect(ours)
    expected = {name: tensor.numpy() for name, tensor in {**ours, **theirs}.items() if name != "steps"}
    assert sorted(found) == sorted(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name].shape == value.shape


def test_a_step_of_a_share_ends_with_the_exchange_and_all_gradients_are_cleared(monkeypatch):
    model, calls = make_model(0.0), []
    inner = SimpleNamespace(step=lambda: calls.append("step"), get_lr=None, set_lr=None)
    optimizer = sharding.ShardedOptimizer(
        inner, model, SimpleNamespace(exchange_trained=lambda: calls.append("exchange"))
    )
    optimizer.step()
    assert calls == ["step", "exchange"]
    model[2](paddle.ones([1, 2])).sum().backward()
    optimizer.clear_grad()
    assert not model[2].weight.grad.any()
    optimizer.clear_grad(False)
    assert model[2].weight.grad is None
