"""Batch norms whose parameters are frozen normalize by their running statistics, which stay."""

import numpy as np
import paddle
import pytest
from paddle import nn

from paddlevit_dist import create_model
from paddlevit_dist.core import settings
from paddlevit_dist.core.distributed import (
    DistributedBatchNorm,
    convert_batch_norm,
    has_batch_norm,
    unbias_running_variance,
)
from paddlevit_dist.core.engine.optimizer import freeze, keep_frozen_statistics
from paddlevit_dist.core.engine.startup_log import describe_batch_norm
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
