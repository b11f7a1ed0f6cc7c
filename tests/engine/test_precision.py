"""Mixed precision: what AMP, AMP_DTYPE and AMP_LEVEL request from Paddle. No half-precision kernel runs on a CPU."""

from __future__ import annotations

import inspect

import paddle
import pytest

from paddlevit_dist import config
from paddlevit_dist.engine.precision import Precision
from paddlevit_dist.errors import UserError


@pytest.mark.parametrize(
    "dtype, level, scales, expected",
    [
        ("float16", "O1", True, {"dtype": "float16", "level": "O1"}),
        ("float16", "O2", True, {"dtype": "float16", "level": "O2", "use_promote": False}),
        ("bfloat16", "O1", False, {"dtype": "bfloat16", "level": "O1"}),
        ("bfloat16", "O2", False, {"dtype": "bfloat16", "level": "O2", "use_promote": False}),
    ],
)
def test_on_a_gpu_the_keys_choose_cast_and_scaler(dtype, level, scales, expected):
    precision = Precision(True, dtype, level, on_gpu=True)
    assert precision.enabled and precision.options == expected
    assert (precision.scaler is not None) == scales
    assert precision.notice == f"mixed precision: {dtype}, level {level}"
    assert set(expected) <= set(inspect.signature(paddle.amp.auto_cast).parameters)


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
