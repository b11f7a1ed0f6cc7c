"""TO_STATIC: running statistics of a compiled batch norm against PyTorch's formula, and what does not give them."""

import contextlib

import numpy as np
import paddle
import pytest
from paddle import nn
from support.thread_ranks import acting_as

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.distributed import DistributedBatchNorm, convert_batch_norm, unbias_running_variance
from paddlevit_dist.core.engine import precision
from paddlevit_dist.core.engine.compatibility import compare, facts_from_settings, to_plain_settings
from paddlevit_dist.core.engine.precision import compile_model, compile_passes
from paddlevit_dist.core.registry.lookup import resolve

MOMENTUM = 0.9


@pytest.mark.parametrize("kind", [nn.BatchNorm2D, nn.BatchNorm, DistributedBatchNorm])
def test_a_compiled_batch_norm_keeps_the_unbiased_variance_of_every_shape(kind):
    norm = kind(2)
    model = unbias_running_variance(nn.Sequential(norm))
    compile_passes(model)
    generator, mean, variance = np.random.default_rng(0), np.zeros(2), np.ones(2)
    for shape in ((2, 2, 1, 2), (3, 2, 1, 1), (2, 2, 1, 2)):
        x = generator.standard_normal(shape).astype("float32") * 5
        model(paddle.to_tensor(x)).sum().backward()
        mean = MOMENTUM * mean + (1 - MOMENTUM) * x.mean(axis=(0, 2, 3))
        variance = MOMENTUM * variance + (1 - MOMENTUM) * x.var(axis=(0, 2, 3), ddof=1)
    for _ in range(2):
        kept = norm.state_dict()
        np.testing.assert_allclose(kept["_mean"].numpy(), mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(kept["_variance"].numpy(), variance, rtol=1e-5)
        model.eval()
        model(paddle.to_tensor(x))


def test_a_device_whose_programs_keep_other_statistics_is_refused_for_training(monkeypatch):
    monkeypatch.setattr(precision, "compile_passes", lambda model: model.eval())  # keeps the first statistics
    for words, is_refused in (([], True), (["-eval", "-pretrained=x"], False)):
        config = settings.load(["TO_STATIC=True", *words]).values
        task = resolve("task", config.TASK)(config)
        if is_refused:
            with pytest.raises(UserError, match="TO_STATIC: .* other running statistics.*remove TO_STATIC"):
                compile_model(config, task, nn.Sequential(nn.BatchNorm2D(2)))
        else:
            assert compile_model(config, task, nn.Sequential(nn.BatchNorm2D(2))).startswith("passes: compiled")
        assert compile_model(config, task, nn.Sequential(nn.Conv2D(3, 2, 1))).startswith("passes: compiled")


def test_a_resume_with_another_to_static_lists_it():
    before, now = (settings.load(["-cfg=vit_digits", "TO_STATIC", word]).values for word in ("False", "True"))
    changes = compare("resume", *(facts_from_settings(to_plain_settings(one)) for one in (before, now)))
    assert [(change.name, change.before, change.now) for change in changes] == [("TO_STATIC", False, True)]


@pytest.mark.parametrize("kind, is_refused", [("sync", True), ("local", False)])
def test_a_compiled_model_whose_batch_norms_exchange_statistics_is_refused(kind, is_refused):
    config = settings.load(["TO_STATIC=True"]).values
    model = nn.Sequential(DistributedBatchNorm(2))
    if kind == "sync":
        convert_batch_norm(model)
    refusal = pytest.raises(UserError, match="set TRAIN.BATCH_NORM local") if is_refused else contextlib.nullcontext()
    with acting_as(0, 2), refusal:
        precision.require_compilable_norms(config, model)
