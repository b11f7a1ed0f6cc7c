"""The comparison with Paddle's operations notices what is wrong."""

import paddle
import pytest
from support.trainings.fused_kernels import interpreted_kernels

from paddlevit_dist.extensions.gpu_kernels import device_check
from paddlevit_dist.extensions.gpu_kernels.hook import BOUNDS
from paddlevit_dist.extensions.gpu_kernels.launches import DropRates


@pytest.fixture(autouse=True)
def few_rows():
    with interpreted_kernels():
        yield


@pytest.mark.parametrize("kernel, width", [("norm", 24), ("gelu", 40)])
def test_right_kernels_agree(kernel, width):
    assert device_check.MEASURES[kernel](width, "float32") < BOUNDS["float32"] / 8


def test_wrong_values_and_wrong_gradients_are_noticed(monkeypatch):
    class WithoutBias(device_check.AddNorm):
        def __call__(self, x, branch, bias, weight, shift, seeds):
            return super().__call__(x, branch, bias * 0.0, weight, shift, seeds)

    class NotFinite(device_check.AddNorm):
        def __call__(self, *tensors):
            found = super().__call__(*tensors)
            return found._replace(normal=found.normal / 0.0)

    class WithoutDropout(device_check.AddNorm):
        def __init__(self, *arguments):
            super().__init__(*arguments[:-1], DropRates(site=1))

    class WrongShift(device_check.AddNormBackward):
        def __call__(self, *tensors):
            found = super().__call__(*tensors)
            return found._replace(shift=found.shift * 0.9)

    class OtherDropout(device_check.AddNormBackward):
        def __call__(self, *tensors):
            return super().__call__(*tensors[:-1], tensors[-1] + 1)

    for wrong in (WithoutBias, NotFinite, WithoutDropout, WrongShift, OtherDropout):
        with monkeypatch.context() as patch:
            patch.setattr(device_check, wrong.__mro__[1].__name__, wrong)
            assert device_check.measure_norm(8, "float32") > BOUNDS["float32"]
    monkeypatch.setattr(device_check, "add_bias_and_gelu", lambda x, bias: paddle.nn.functional.relu(x + bias))
    assert device_check.measure_gelu(8, "float32") > 0.01
