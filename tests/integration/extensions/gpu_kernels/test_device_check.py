"""The comparison with Paddle's operations notices what is wrong."""

import paddle
import pytest
from support.trainings.fused_kernels import interpreted_kernels

from paddlevit_dist.extensions.gpu_kernels import device_check
from paddlevit_dist.extensions.gpu_kernels.hook import BOUNDS


@pytest.fixture(autouse=True)
def few_rows():
    with interpreted_kernels():
        yield


@pytest.mark.parametrize("kernel, width", [("norm", 24), ("gelu", 40)])
def test_right_kernels_agree(kernel, width):
    assert device_check.MEASURES[kernel](width, "float32") < BOUNDS["float32"] / 8


def test_wrong_values_and_wrong_gradients_are_noticed(monkeypatch):
    right = device_check.add_and_normalize

    def without_bias(x, branch, weight, shift, epsilon, bias, keep):
        return right(x, branch, weight, shift, epsilon, bias * 0.0, keep)

    def without_gradient_of_shift(x, branch, weight, shift, epsilon, bias, keep):
        return right(x, branch, weight, shift.detach() + 0.9 * shift - 0.9 * shift.detach(), epsilon, bias, keep)

    def not_finite(x, branch, weight, shift, epsilon, bias, keep):
        total, normal = right(x, branch, weight, shift, epsilon, bias, keep)
        return total, normal / 0.0

    for wrong in (without_bias, without_gradient_of_shift, not_finite):
        monkeypatch.setattr(device_check, "add_and_normalize", wrong)
        assert device_check.measure_norm(8, "float32") > BOUNDS["float32"]
    monkeypatch.setattr(device_check, "add_bias_and_gelu", lambda x, bias: paddle.nn.functional.relu(x + bias))
    assert device_check.measure_gelu(8, "float32") > 0.01
