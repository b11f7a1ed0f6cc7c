"""Gradients of weights by one operation, which a GPU is asked for once: on a CPU that has it as a test says."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.extensions.gpu_kernels import weight_gradients


@pytest.fixture
def device(monkeypatch):
    """Return a function that says by what each shape's gradients are off, and the shapes that were asked for."""
    asked = []

    def say(errors, dtype="float32"):
        def compute(x, gradient, weight, bias, is_wide, has_bias):
            shape = x.shape[1], gradient.shape[1]
            asked.append((*shape, str(x.dtype).rpartition(".")[2]))
            assert (weight, bias, is_wide, has_bias) == (None, None, True, False) and gradient.dtype == x.dtype
            error = errors.get(shape, 0.0)
            if isinstance(error, Exception):
                raise error
            found = x.astype("float32").numpy().astype("f8").T @ gradient.astype("float32").numpy().astype("f8")
            found[0, 0] += error * np.abs(found).max()
            return paddle.to_tensor(found.astype("f4")).astype(dtype), None

        monkeypatch.setattr(paddle._C_ops, "fused_linear_param_grad_add", compute, raising=False)
        return asked

    monkeypatch.setattr(weight_gradients, "_is_right", {})
    return say


def test_shapes_that_are_right_are_asked_for_once_for_each_dtype(device):
    asked = device({})
    assert not weight_gradients.is_right(4, 6, "float16")
    assert weight_gradients.ask_device([(4, 6), (2, 3), (4, 6)], "float16") == []
    assert asked == [(2, 3, "float16"), (4, 6, "float16")]
    assert weight_gradients.ask_device([(4, 6)], "float16") == [] and len(asked) == 2
    assert weight_gradients.is_right(4, 6, "float16") and not weight_gradients.is_right(6, 4, "float16")
    assert not weight_gradients.is_right(4, 6, "bfloat16")
    assert weight_gradients.ask_device([(4, 6)], "bfloat16") == [] and asked[2:] == [(4, 6, "bfloat16")]
    x, gradient = paddle.rand([8, 4]), paddle.rand([8, 6])
    expected = x.numpy().T @ gradient.numpy()
    np.testing.assert_allclose(weight_gradients.compute(x, gradient).numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize(("error", "is_right"), [(0.9 * 2.0**-12, True), (1.1 * 2.0**-12, False), (-0.5, False)])
def test_gradients_may_be_off_by_sums_in_another_order(device, error, is_right):
    device({(4, 6): error})
    lines = weight_gradients.ask_device([(4, 6)], "float16")
    assert weight_gradients.is_right(4, 6, "float16") is is_right and len(lines) == (not is_right)


def test_what_is_not_used_is_one_line_with_the_worst(device):
    device({(4, 6): 0.25, (2, 3): 0.5, (8, 8): 0.0})
    (line,) = weight_gradients.ask_device([(8, 8), (4, 6), (2, 3)], "float16")
    assert line.startswith("gradients of weights of 2 x 3, 4 x 6: cast to float32 after the product, since with both ")
    assert line.endswith("this GPU is off by 5.0e-01 of the largest value")
    assert [weight_gradients.is_right(*shape, "float16") for shape in ((2, 3), (4, 6), (8, 8))] == [False, False, True]
    assert weight_gradients.ask_device([(4, 6)], "float16") == []  # it was told


@pytest.mark.parametrize("failure", [RuntimeError("no kernel"), np.inf, np.nan])
def test_a_device_without_the_operation_or_that_rounds_is_not_right(device, failure):
    device({(4, 6): failure})
    (line,) = weight_gradients.ask_device([(4, 6)], "float16")
    assert line.endswith("off by inf of the largest value") and not weight_gradients.is_right(4, 6, "float16")
    device({}, dtype="float64")  # not float32
    assert weight_gradients.ask_device([(2, 2)], "float16")[0].endswith("off by inf of the largest value")
