"""What a run says of itself before its first update."""

from __future__ import annotations

from types import SimpleNamespace

from paddle import nn

from paddlevit_dist.engine.introduction import describe_training


def said_of(model):
    config = SimpleNamespace(DATA=SimpleNamespace(CLASS_BALANCED=False))
    sampler = SimpleNamespace(dataset=range(8), updates_per_epoch=4, global_batch_size=2, repeats=1)
    return describe_training(config, SimpleNamespace(sample_name="images"), model, sampler)


def test_only_parameters_that_learn_are_counted():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm2D(4), nn.Linear(4, 2))
    assert said_of(model) == "training 34 parameters, 4 updates per epoch"  # 12 + 4, 4 + 4 without statistics, 8 + 2
    for parameter in model[0].parameters():
        parameter.stop_gradient = True
    assert said_of(model) == "training 18 parameters (16 more are fixed), 4 updates per epoch"
