"""Mixed precision: what AMP, AMP_DTYPE and AMP_LEVEL request from Paddle. No half-precision kernel runs on a CPU."""

from __future__ import annotations

import importlib
import inspect
from typing import Tuple

import paddle
import pytest

from paddlevit_dist import config
from paddlevit_dist.engine.precision import Precision
from paddlevit_dist.errors import UserError


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("dtype, scales", [("float16", True), ("bfloat16", False)])
def test_on_a_gpu_the_keys_choose_cast_and_scaler(dtype, level, scales):
    precision = Precision(True, dtype, level, on_gpu=True)
    assert precision.enabled and (precision.options["dtype"], precision.options["level"]) == (dtype, level)
    assert (precision.scaler is not None) == scales
    assert precision.notice == f"mixed precision: {dtype}, level {level}"
    assert set(precision.options) <= set(inspect.signature(paddle.amp.auto_cast).parameters)


def on_a_gpu(monkeypatch, capability: Tuple[int, int]) -> None:
    """Let this process believe that it computes on a GPU."""
    monkeypatch.setattr(paddle, "get_device", lambda: "gpu:0")
    monkeypatch.setattr(paddle.device.cuda, "get_device_capability", lambda *_: capability)
    monkeypatch.setattr(paddle.version, "cuda", lambda: "11.8")


@pytest.mark.parametrize("dtype, capability", [("float16", (6, 1)), ("bfloat16", (7, 5)), ("bfloat16", (6, 0))])
def test_a_gpu_that_paddle_would_leave_in_float32_is_refused(monkeypatch, dtype, capability):
    on_a_gpu(monkeypatch, capability)
    with pytest.raises(UserError, match=f"AMP_DTYPE {dtype}: .* this one has {capability[0]}.{capability[1]}") as told:
        Precision(True, dtype)
    assert ("or AMP_DTYPE float16" in str(told.value)) == (capability == (7, 5))
    Precision(False, dtype)


@pytest.mark.parametrize("dtype, least", [("float16", (7, 0)), ("bfloat16", (8, 0))])
def test_the_least_capability_is_that_of_paddles_autocast(monkeypatch, dtype, least):
    can_compute = getattr(importlib.import_module("paddle.amp.auto_cast"), f"_is_gpu_{dtype}_supported")
    for capability, expected in ((least, True), ((least[0] - 1, 9), False)):
        on_a_gpu(monkeypatch, capability)
        assert bool(can_compute()) == expected
    on_a_gpu(monkeypatch, least)
    assert Precision(True, dtype).enabled


def test_without_a_gpu_training_goes_on_in_float32_and_says_so():
    precision = Precision(True, "bfloat16", "O2")
    assert not precision.enabled and precision.scaler is None and "float32" in precision.notice
    weight = paddle.create_parameter([2, 2], "float32")
    with precision.autocast():
        assert paddle.matmul(weight, weight).dtype == paddle.float32


def test_without_amp_nothing_is_said():
    assert Precision(False).notice == "" and not Precision(False, on_gpu=True).enabled


@pytest.mark.parametrize("key, value", [("AMP_DTYPE", "float8"), ("AMP_LEVEL", "O3")])
def test_unknown_values_are_refused_by_name(key, value):
    with pytest.raises(UserError, match=f"{key} is .*{value}"):
        config.load([key, value])
