"""Frozen parameters: by key or by the rate of their group; batch norms that are frozen keep their statistics."""

import math

import numpy as np
import paddle
import pytest
from paddle import nn
from support.networks.optimized_layers import NamedBlocks
from support.networks.optimized_layers import settings as settings_of
from support.refusals import refusal_of

from paddlevit_dist import create_model
from paddlevit_dist.core import settings
from paddlevit_dist.core.distributed import (
    DistributedBatchNorm,
    convert_batch_norm,
    has_batch_norm,
    unbias_running_variance,
)
from paddlevit_dist.core.engine.freezing import GroupRate, ParameterRates, freeze, keep_frozen_statistics
from paddlevit_dist.core.engine.optimizer import build_optimizer, complete_groups
from paddlevit_dist.core.engine.startup_log import describe_batch_norm
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.images.models.bridges.torch_layers import BatchNorm2d

KINDS = [nn.BatchNorm2D, nn.BatchNorm, nn.SyncBatchNorm, DistributedBatchNorm, BatchNorm2d]


class UsersBatchNorm(nn.BatchNorm2D):
    """A subclass with a forward pass of its own."""

    def forward(self, x):
        return super().forward(x) + 0.0


def build(kind: type[nn.Layer]) -> nn.Layer:
    paddle.seed(0)
    norm = kind(4)
    statistics = {"_mean": np.arange(4, dtype=np.float32), "_variance": np.arange(1, 5, dtype=np.float32)}
    norm.set_state_dict({**norm.state_dict(), **statistics})
    return nn.Sequential(("part", nn.Sequential(nn.Conv2D(3, 4, 1), norm)), ("head", nn.Conv2D(4, 2, 1)))


@pytest.mark.parametrize("prepare", [lambda model: model, unbias_running_variance, convert_batch_norm])
@pytest.mark.parametrize("kind", [*KINDS, UsersBatchNorm])
def test_a_frozen_batch_norm_normalizes_by_statistics_that_stay(kind, prepare):
    model = build(kind)
    assert freeze(model, ["part.*"]) == 4
    assert keep_frozen_statistics(model) == 1
    assert not has_batch_norm(model)
    prepare(model)
    model.eval()
    model.train()
    norm = model.part[1]
    x = paddle.randn([2, 4, 5, 5]) * 7
    channels = np.arange(4, dtype=np.float32).reshape([1, 4, 1, 1])
    expected = (x.numpy() - channels) / np.sqrt(channels + 1 + 1e-5)
    np.testing.assert_allclose(norm(x).numpy(), expected, rtol=1e-4, atol=1e-5)
    kept = norm.state_dict()
    assert (kept["_mean"].tolist(), kept["_variance"].tolist()) == ([0, 1, 2, 3], [1, 2, 3, 4])


@pytest.mark.parametrize("patterns", [["part.1.bias"], ["*.bias"], ["part.0.*"], ["head.*"], []])
def test_a_batch_norm_with_a_trained_parameter_goes_on(patterns):
    model = build(nn.BatchNorm2D)
    freeze(model, patterns)
    assert keep_frozen_statistics(model) == 0
    assert has_batch_norm(model)
    model(paddle.randn([2, 3, 5, 5]))
    assert model.part[1].state_dict()["_mean"].tolist() != [0, 1, 2, 3]


@pytest.mark.parametrize("pattern, kept", [("part.*", 1), ("head.*", 0)])
def test_a_batch_norm_without_parameters_follows_the_layer_around_it(pattern, kept):
    model = build(lambda channels: nn.BatchNorm2D(channels, weight_attr=False, bias_attr=False))
    freeze(model, [pattern])
    assert keep_frozen_statistics(model) == kept


@pytest.mark.parametrize(
    "words, kind, line",
    [
        (["-batch_size=8"], "local", "batch norm: statistics of 8 samples at a time"),
        (
            ["-batch_size=1", "-accum_iter=8"],
            "sync",
            "batch norm: statistics of 1 sample at a time, each of the 8 accumulated micro-batches separately",
        ),
    ],
)
def test_the_line_says_which_samples_statistics_are_of_with_one_process(words, kind, line):
    assert describe_batch_norm(settings.load(words).values, kind, "the default for this task") == line


def test_blocks_with_frozen_batch_norms_can_be_recomputed():
    model = create_model("resnet18", num_classes=2)
    freeze(model, ["conv1*", "bn1*", "layer*"])
    assert model.recomputed_layers() == []
    assert keep_frozen_statistics(model) == 20
    assert len(model.recomputed_layers()) == 8


@pytest.mark.parametrize("is_trained", [True, False])
def test_a_batch_norm_without_parameters_follows_the_whole_model_if_nothing_is_nearer(is_trained):
    norm = nn.BatchNorm2D(4, weight_attr=False, bias_attr=False)
    model = nn.Sequential(norm, nn.Conv2D(4, 2, 1))
    for parameter in model[1].parameters():
        parameter.stop_gradient = not is_trained
    assert keep_frozen_statistics(model) == (0 if is_trained else 1)


POSITIONS = [StepPosition(1 + update // 2, update, 6, 0, 2 - update // 2, 0.5) for update in range(6)]


def complete(groups, model, fixed=(), log=print):
    return complete_groups(groups, model, 0.1, set(fixed), lambda warmup: lambda step: float(warmup), log)


def rate_of(function, model):
    learning = [parameter for parameter in model.part.parameters() if not parameter.stop_gradient]
    return GroupRate(function, ["part.0.weight"], learning)


def test_a_group_has_the_usual_decays_and_what_no_rate_thaws_is_frozen_for_the_whole_run():
    model, lines = NamedBlocks(), []
    model.blocks[1].bias.stop_gradient = model.embed.bias.stop_gradient = True
    own = lambda step: 0.5  # noqa: E731
    groups = [
        {"names": ["embed.weight", "embed.bias", "blocks.1.bias", "blocks.1.weight"], "learning_rate": own},
        {"names": ["head.weight"], "weight_decay": 0.3, "learning_rate": 0.2, "second_warmup": 7},
        {"names": ["blocks.0.bias"], "learning_rate": None},
    ]
    found, rates = complete(groups, model, fixed=["blocks.1.bias"], log=lines.append)
    assert [(group["names"], group["weight_decay"], group["learning_rate"], group["rate"]) for group in found] == [
        (["embed.weight", "blocks.1.weight"], 0.1, 1.0, rates[0]),
        (["embed.bias"], 0.0, 1.0, rates[0]),
        (["head.weight"], 0.3, 0.2, rates[1]),
    ]
    assert rates[0].function is own and rates[1].function(POSITIONS[0]) == 7.0 and not rates[1].may_freeze
    learning = {name for name, parameter in model.named_parameters() if not parameter.stop_gradient}
    assert learning == {"embed.weight", "embed.bias", "blocks.1.weight", "head.weight"}
    assert lines == ["blocks.0.weight and 1 more learn nothing: parameter_groups has no group of them"]


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ([{"names": ["heads.weight"]}], ["no parameter heads.weight", "'head.weight'"]),
        ([{"names": ["head.bias"]}, {"names": ["head.bias"]}], ["head.bias is in two groups"]),
        ([{"names": ["head.bias", "embed.bias"], "learning_rate": "0.1"}], ["head.bias and 1 more", "'0.1'", "None"]),
        ([{"names": ["head.bias"], "learning_rate": None}], ["no parameter learns"]),
    ],
)
def test_groups_that_are_none_are_refused(groups, said):
    message = refusal_of(complete, groups, NamedBlocks())
    assert all(part in message for part in ("parameter_groups", *said)), message


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf, "0.1", [0.1]])
def test_a_rate_that_is_none_is_refused_before_the_first_step(value):
    model = build(nn.BatchNorm2D)
    function = lambda step: value if step.update == 4 else 0.1  # noqa: E731
    message = refusal_of(ParameterRates, [rate_of(function, model)], model, POSITIONS)
    assert "part.0.weight" in message and "update 4" in message and "None" in message, message


def test_a_step_that_freezes_all_and_a_function_that_changes_its_mind_are_refused():
    model = build(nn.BatchNorm2D)
    other = GroupRate(lambda step: None if step.epoch == 2 else 1.0, ["head.weight"], model.head.parameters())
    never = rate_of(lambda step: None, model)
    assert "frozen in update 2" in refusal_of(ParameterRates, [never, other], model, POSITIONS)
    answers = iter([0.1] * 7 + [None])
    rates = ParameterRates([rate_of(lambda step: next(answers), model)], model, POSITIONS)
    assert not rates.can_freeze and not rates.begin(POSITIONS[0])
    assert "update 1" in refusal_of(rates.begin, POSITIONS[1])


def test_the_rates_of_the_first_groups_are_told():
    model = build(nn.BatchNorm2D)
    own = [rate_of(lambda step, first=first: first / (1 + step.update), model) for first in range(6)]
    lines = ParameterRates(own, model, POSITIONS).lines
    expected = [f"part.0.weight: rate from {first} to {first / 6:.3g} (parameter_groups)" for first in range(4)]
    assert lines == [*expected, "2 more groups with rates that are functions"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_norm_keeps_its_statistics_in_the_steps_in_which_it_is_frozen(kind):
    model, x = build(kind), paddle.randn([2, 3, 5, 5])
    function = lambda step: None if step.epoch != 2 else 0.1 * step.learning_rate  # noqa: E731
    rate = rate_of(function, model)
    rates = ParameterRates([rate], model, POSITIONS)
    said = ["part.0.weight: rate from 0.05 to 0.05, frozen in 4 of 6 updates (parameter_groups)"]
    assert (
        rates.lines == said
        and rates.can_freeze
        and not any(parameter.stop_gradient for parameter in model.part[0].parameters())
    )
    changes, found = [], []
    for position in POSITIONS:
        if rates.begin(position):
            changes.append((position.update, rates.freeze()))
        before = model.part[1].state_dict()["_mean"].tolist()
        model(x)
        is_kept = model.part[1].state_dict()["_mean"].tolist() == before
        found.append((rate.is_frozen, rate.value, model.part[0].weight.stop_gradient, is_kept))
    assert found == 2 * [(True, 0.0, True, True)] + 2 * [(False, 0.05, False, False)] + 2 * [(True, 0.0, True, True)]
    assert [update for update, _ in changes] == [0, 2, 4]
    assert changes[1][1] == "none of 6 parameters are frozen" and changes[2][1].startswith("4 of 6")


@pytest.mark.parametrize("name", ["AdamW", "Adam", "SGD", "Muon"])
def test_layer_decay_is_a_factor_of_a_rate_that_is_a_function(name):
    """Also where the run's own rate is 0."""
    results = []
    for has_function in (True, False):
        model = NamedBlocks()
        start = np.random.default_rng(0)
        for parameter in model.parameters():
            parameter.set_value(start.standard_normal(parameter.shape).astype("float32"))
        names = [key for key, _ in model.named_parameters()]
        groups, rates = complete(
            [{"names": names, "learning_rate": (lambda step: 0.3) if has_function else 1.0}], model
        )
        optimizer = build_optimizer(settings_of(name), model, groups, 0.1, layer_decay=0.5)
        for rate in rates:
            rate.begin(POSITIONS[0])
        for _ in range(2):
            (model(paddle.ones([4, 3])) ** 2).sum().backward()
            optimizer.set_lr(0.0 if has_function else 0.3)
            optimizer.step()
            optimizer.clear_grad(False)
        results.append({key: parameter.numpy() for key, parameter in model.named_parameters()})
    for key, value in results[1].items():
        np.testing.assert_allclose(results[0][key], value, rtol=1e-5, atol=1e-6, err_msg=key)
