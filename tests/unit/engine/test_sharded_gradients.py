"""Buckets of sharded gradients: when they are sent, what is left of them, and what cannot be sharded."""

import gc
import weakref

import numpy as np
import paddle
import pytest
from paddle.distributed.fleet.utils import recompute
from support import small_classifiers

from paddlevit_dist.engine import sharded_gradients, sharding
from paddlevit_dist.engine.sharded_gradients import GradientReducer
from paddlevit_dist.engine.sharding import Shards
from paddlevit_dist.runtime.errors import UserError


@pytest.fixture
def sent(monkeypatch) -> list[tuple[int, int]]:
    """Owner and values of each bucket that rank 0 of 2 sends; rank 1 has the same gradients."""
    buckets: list[tuple[int, int]] = []

    def start_reduce(values, owner):
        buckets.append((owner, values.size))
        return lambda: paddle.assign(values * 2, output=values)

    for module in (sharding, sharded_gradients):
        monkeypatch.setattr(module, "world_size", lambda: 2)
        monkeypatch.setattr(module, "rank", lambda: 0)
    monkeypatch.setattr(sharded_gradients, "start_reduce", start_reduce)
    monkeypatch.setattr(sharded_gradients, "all_gather", lambda data: [data, data])
    monkeypatch.setattr(sharded_gradients, "_MIB_VALUES", 4000)
    return buckets


def build(model, **options) -> tuple[GradientReducer, Shards]:
    shards = Shards(model)
    return GradientReducer(model, shards, 1, **options), shards


def test_buckets_have_one_owner_and_leave_while_the_backward_pass_continues(sent):
    model = small_classifiers.build("vit_tiny_patch16_224", depth=3)
    reducer, shards = build(model)
    alone = small_classifiers.gradients(model)
    assert sent == []
    model.clear_gradients()
    sent_before_the_end = []
    first = model.parameters()[0]
    first.register_hook(lambda gradient: sent_before_the_end.append(len(sent)))
    with reducer.reducing():
        small_classifiers.gradients(model)
    sizes = {name: p.size for name, p in model.named_parameters()}
    assert sum(size for _, size in sent) == sum(sizes.values())
    for owner in (0, 1):
        owned = sum(size for name, size in sizes.items() if (name in shards.owned) == (owner == 0))
        assert sum(size for number, size in sent if number == owner) == owned
    largest = max(sizes.values())
    assert max(size for _, size in sent) <= max(4000, largest) and len(sent) > 4
    assert sent_before_the_end[0] > len(sent) / 2
    for name, parameter in model.named_parameters():
        gradient = parameter._grad_ivar()
        assert (gradient is None) == (name not in shards.owned)
        if gradient is not None:
            np.testing.assert_array_equal(gradient.numpy(), alone[name])


def test_a_parameter_that_no_rank_uses_has_no_gradient_and_must_stay_unused(sent):
    model = paddle.nn.LayerList([paddle.nn.Linear(3, 3) for _ in range(4)])
    reducer, shards = build(model)
    for _ in range(2):
        with reducer.reducing():
            model[0](paddle.ones([1, 3])).sum().backward()
        used = {name for name, p in model.named_parameters() if p._grad_ivar() is not None}
        assert used == {name for name in shards.owned if name.startswith("0.")} != set()
    with (
        pytest.raises(UserError, match="'1.bias' has a gradient in some updates and none in others"),
        reducer.reducing(),
    ):
        (model[0](paddle.ones([1, 3])) + model[1](paddle.ones([1, 3]))).sum().backward()


def test_a_share_without_any_gradient_is_refused(sent):
    model = paddle.nn.LayerList([paddle.nn.Linear(3, 3, bias_attr=False) for _ in range(2)])
    reducer, shards = build(model)
    other = next(int(name[0]) for name, _ in model.named_parameters() if name not in shards.owned)
    with pytest.raises(UserError, match="no parameter of this process's share has a gradient"), reducer.reducing():
        model[other](paddle.ones([1, 3])).sum().backward()


def test_a_gradient_in_several_parts_is_refused(sent):
    layer = paddle.nn.Linear(3, 3)
    reducer, _ = build(layer)
    inputs = paddle.ones([1, 3])
    inputs.stop_gradient = False
    with (
        pytest.raises(UserError, match=r"gradient of '(weight|bias)' is computed in several parts; set"),
        reducer.reducing(),
    ):
        recompute(layer, recompute(layer, inputs)).sum().backward()


def test_a_sparse_gradient_is_refused(sent):
    model = paddle.nn.Sequential(paddle.nn.Embedding(5, 3, sparse=True), paddle.nn.Linear(3, 3))
    reducer, _ = build(model)
    with (
        pytest.raises(UserError, match=r"gradient of '0.weight' is sparse; set TRAIN.SHARDING optimizer"),
        reducer.reducing(),
    ):
        model(paddle.to_tensor([1, 2])).sum().backward()


def test_hooks_do_not_keep_the_model(sent):
    model = paddle.nn.Linear(3, 3)
    reducer, shards = build(model)
    parameter, dead = model.weight, weakref.ref(model)
    del model, reducer, shards
    gc.collect()
    assert dead() is None
    (parameter * 2).sum().backward()
    assert parameter.grad is not None
