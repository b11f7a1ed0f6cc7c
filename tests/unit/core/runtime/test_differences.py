"""How far two functions are apart, in results and in gradients, against NumPy."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.core.runtime.differences import measure_difference

X, Y = np.array([1.0, -2.0, 3.0], np.float32), np.array([0.5, 4.0, -1.0], np.float32)
GRADIENTS = np.array([2.0, -1.0, 0.5], np.float32), np.array([1.0, 1.0, -3.0], np.float32)


def measure(found, gradients=GRADIENTS):
    inputs = [paddle.to_tensor(values) for values in (X, Y)]
    expected = lambda x, y: (x * y, x + y)  # noqa: E731
    with paddle.no_grad():  # as in an evaluation
        worst = measure_difference(found, expected, inputs, [paddle.to_tensor(values) for values in gradients])
    assert all(tensor.stop_gradient and tensor.grad is None for tensor in inputs)
    return worst


def test_equal_functions_do_not_differ():
    assert measure(lambda x, y: [x * y, y + x]) == 0.0


@pytest.mark.parametrize("scale", [1.01, 0.9])
def test_the_largest_difference_is_a_share_of_the_references_largest_value(scale):
    first, second = GRADIENTS
    pairs = [(X * Y * scale, X * Y), (Y * first * scale + second, Y * first + second)]
    pairs += [(X * first * scale + second, X * first + second)]
    shares = [np.abs(found - right).max() / np.abs(right).max() for found, right in pairs]
    assert measure(lambda x, y: (x * y * scale, x + y)) == pytest.approx(max(shares), rel=1e-4)


def test_gradients_count_where_results_are_equal():
    def found(x, y):
        return x * y, x.detach() + y

    first, second = GRADIENTS
    expected = np.abs(second).max() / np.abs(Y * first + second).max()
    assert measure(found) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_number_that_is_not_finite_is_infinitely_far(number):
    assert measure(lambda x, y: (x * y, x + y + paddle.to_tensor([0.0, number, 0.0]))) == np.inf
    assert measure(lambda x, y: (x * y + paddle.to_tensor([0.0, 0.0, number]), x + y)) == np.inf


def test_results_of_another_type_are_compared_in_float32():
    x = paddle.to_tensor([1.0, 3.0], "bfloat16")
    one = paddle.to_tensor([1.0, 1.0], "bfloat16")
    assert measure_difference(lambda x: [x * 1.5], lambda x: [x * 2.0], [x], [one]) == pytest.approx(0.25)
