"""Steps by lists: which optimizers have one, and what it promises to whoever queues it."""

import paddle
import pytest
from yacs.config import CfgNode

from paddlevit_dist.engine.optimizer import build_optimizer
from paddlevit_dist.engine.sharding import Shards

SETTINGS = {"EPS": 1e-8, "BETAS": (0.9, 0.99), "MOMENTUM": 0.8}


@pytest.mark.parametrize(
    "name, options, has_lists",
    [
        ("AdamW", {}, True),
        ("AdamW", {"FUSED": False}, False),
        ("Adam", {}, False),  # Paddle has no operation for it
        ("SGD", {}, True),
        ("SGD", {"FUSED": False}, False),
        ("SGD", {"DAMPENING": 0.5}, False),
        ("Lion", {}, True),
        ("LAMB", {}, False),
    ],
)
@pytest.mark.parametrize("is_sharded", [False, True])
def test_each_optimizer_says_whether_it_has_a_step_by_lists(name, options, has_lists, is_sharded, monkeypatch):
    exchanges = []
    monkeypatch.setattr(Shards, "exchange_trained", lambda shards: exchanges.append(1))
    model = paddle.nn.Linear(3, 2)
    shards = Shards(model) if is_sharded else None  # of one process: it owns all
    optimizer = build_optimizer(CfgNode({**SETTINGS, "NAME": name, **options}), model, None, 0.05, shards=shards)
    before = {key: p.numpy().copy() for key, p in model.named_parameters()}
    (model(paddle.randn([4, 3])) ** 2).sum().backward()
    step = optimizer.foreach_step()
    assert (step is not None) == has_lists
    if step is not None:
        gradients = step.gradients()
        assert step.accepts(gradients)
        step.snapshot(gradients)()
        step.apply(0.1, gradients)
        assert all((p.numpy() != before[key]).any() for key, p in model.named_parameters())
        assert len(exchanges) == is_sharded
