"""Biases of products as a GPU computes them, forced on a CPU."""

from collections.abc import Callable

import numpy as np
import paddle
import pytest
from support.networks.plain_layers import plain_layers

from paddlevit_dist import create_model
from paddlevit_dist.core.runtime import autocast, biases


@pytest.fixture
def take_for_gpu(monkeypatch) -> Callable[[], None]:
    """Return a function that takes this CPU for a GPU."""
    return lambda: monkeypatch.setattr(biases, "_is_on_gpu", lambda tensor: True)


@pytest.fixture
def on_gpu(take_for_gpu, other_paddle) -> list[list[int]]:
    """Take this CPU for a GPU; returns the shapes of the gradients whose rows are summed by a product."""
    seen: list[list[int]] = []
    original = paddle._C_ops.matmul

    def matmul(x, y, *options, **named):
        if x.stop_gradient and x.shape[:-1] == [1] and bool((x == 1.0).all()):
            seen.append(y.shape)
        return original(x, y, *options, **named)

    take_for_gpu()
    other_paddle({"_C_ops.matmul": matmul})
    return seen


def parameter(values: np.ndarray, is_trained: bool = True) -> paddle.Tensor:
    return paddle.to_tensor(values, stop_gradient=not is_trained)


@pytest.mark.parametrize("bias_shape", [[5], [1, 5]])
def test_the_gradient_of_a_bias_is_the_sum_over_all_rows(on_gpu, bias_shape):
    generator = np.random.default_rng(0)
    x, weight, gradient = (generator.standard_normal(shape) for shape in ([3, 2, 4], [4, 5], [3, 2, 5]))
    bias = generator.standard_normal(bias_shape)
    inputs = [parameter(one) for one in (x, weight, bias)]
    result = autocast.add_bias(paddle.matmul(inputs[0], inputs[1]), inputs[2])
    np.testing.assert_allclose(result.numpy(), x @ weight + bias, rtol=1e-12)
    found = paddle.grad(result, inputs, paddle.to_tensor(gradient))
    expected = [
        gradient @ weight.T,
        np.einsum("abi,abo->io", x, gradient),
        gradient.sum(axis=(0, 1)).reshape(bias_shape),
    ]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-12, atol=1e-12)
    assert on_gpu == [[6, 5]]


@pytest.mark.parametrize("trained", [(False, False, True), (False, True, True), (True, False, True)])
def test_a_bias_is_trained_alone_or_beside_a_frozen_weight(on_gpu, trained):
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal(shape) for shape in ([6, 4], [4, 5], [5])]
    inputs = [parameter(array, is_trained) for array, is_trained in zip(arrays, trained)]
    autocast.linear(*inputs).sum().backward()
    np.testing.assert_allclose(inputs[2].grad.numpy(), np.full(5, 6.0), rtol=1e-12)
    assert [one.grad is not None for one in inputs] == list(trained) and len(on_gpu) == 1


def test_frozen_biases_evaluations_inputs_without_rows_and_programs_use_the_plain_addition(on_gpu):
    layer = paddle.nn.Linear(4, 5)
    with paddle.no_grad():
        autocast.linear(paddle.ones([2, 4]), layer.weight, layer.bias)
    assert not biases.sums_by_product(paddle.ones([0, 5]), layer.bias)
    layer.bias.stop_gradient = True
    autocast.linear(paddle.ones([2, 4]), layer.weight, layer.bias).sum().backward()
    model = create_model("vit", num_classes=3, image_size=16, patch_size=8, embed_dim=16, depth=1, num_heads=2)
    with plain_layers():
        paddle.jit.to_static(model, full_graph=True)(paddle.ones([2, 3, 16, 16])).sum().backward()
    assert not on_gpu and model.head.bias.grad is not None


def run_network(images: np.ndarray, use_recompute: bool = False) -> list[np.ndarray]:
    paddle.seed(1)
    model = create_model("vit", num_classes=3, image_size=16, patch_size=8, embed_dim=16, depth=2, num_heads=2)
    with plain_layers():
        if use_recompute:
            tokens = model.patch_embed(paddle.to_tensor(images))
            for block in model.blocks:
                tokens = paddle.distributed.fleet.utils.recompute(
                    block, tokens, use_reentrant=False, preserve_rng_state=False
                )
            result = model.head(tokens.mean(axis=1))
        else:
            result = model(paddle.to_tensor(images))
        (result * paddle.arange(1.0, 4.0)).sum().backward()
    return [result.numpy(), *(p.grad.numpy() for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("use_recompute", [False, True])
def test_a_network_has_the_same_gradients_as_with_plain_biases(take_for_gpu, use_recompute):
    """On a CPU to float32's rounding. On a GPU with TF32 each summand is rounded to 11 bits first."""
    images = np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype("f4")
    expected = run_network(images, use_recompute)
    take_for_gpu()
    for one, other in zip(expected, run_network(images, use_recompute), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)


def add_after(x: paddle.Tensor, weight: paddle.Tensor, bias: paddle.Tensor) -> paddle.Tensor:
    return paddle.matmul(x, weight) + bias


def with_wrong_bias_gradient(x: paddle.Tensor, weight: paddle.Tensor, bias: paddle.Tensor) -> paddle.Tensor:
    return paddle.matmul(x, weight) + 0.98 * bias + 0.02 * bias.detach()


def without_bias(x: paddle.Tensor, weight: paddle.Tensor, bias: paddle.Tensor) -> paddle.Tensor:
    return paddle.matmul(x, weight) + 0.0 * bias


def fail(*inputs: paddle.Tensor) -> paddle.Tensor:
    raise RuntimeError("no kernel")


def give_nan(*inputs: paddle.Tensor) -> paddle.Tensor:
    return add_after(*inputs) * float("nan")


@pytest.mark.parametrize(
    ("linear", "least", "most"),
    [
        (add_after, 0.0, 0.0),
        (with_wrong_bias_gradient, 0.019, 0.021),
        (without_bias, 0.1, 1.0),
        (fail, np.inf, np.inf),
        (give_nan, np.inf, np.inf),
    ],
)
def test_a_device_is_off_by_the_largest_difference_of_result_and_gradients(linear: Callable, least: float, most: float):
    assert least <= biases.measure_difference(linear, add_after, 12, 8, paddle.float32) <= most


@pytest.fixture
def asked(monkeypatch) -> list[tuple[int, int]]:
    """A device of which nothing was asked yet, off as in ``OFF_BY``; returns the shapes for which it is asked."""
    shapes: list[tuple[int, int]] = []

    def measure(linear: Callable, reference: Callable, num_in: int, num_out: int, dtype: object) -> float:
        shapes.append((num_in, num_out))
        return OFF_BY.get((num_out, dtype), 1e-3)

    monkeypatch.setattr(biases, "measure_difference", measure)
    monkeypatch.setattr(biases, "_may_add", {})
    return shapes


OFF_BY = {
    (64, paddle.bfloat16): 0.25,
    (5, paddle.float16): 2e-3,
    (7, paddle.float16): np.nan,
    (7, paddle.bfloat16): 1e-2,
    (10, paddle.float16): 4 / 2**11,
    (11, paddle.float16): 4.001 / 2**11,
    (10, paddle.bfloat16): 4 / 2**8,
    (11, paddle.bfloat16): 4.001 / 2**8,
}


def test_a_device_is_asked_once_for_each_shape_and_differences_are_reported(asked):
    model = create_model("vit", num_classes=3, image_size=16, patch_size=8, embed_dim=16, depth=2, num_heads=2)
    model.head.weight.stop_gradient = True
    (line,) = autocast.ask_device_for_biases(model, "bfloat16")
    assert line.startswith("biases of 16 x 64: added after the product") and "2.5e-01" in line
    assert sorted(asked) == [(16, 16), (16, 48), (16, 64), (64, 16)]
    assert autocast.ask_device_for_biases(model, "bfloat16") == [] and len(asked) == 4


def test_only_shapes_that_agree_in_this_precision_add_their_bias_themselves(asked):
    model = paddle.nn.Sequential(*[paddle.nn.Linear(4, num_out) for num_out in (5, 6, 7)])
    lines = autocast.ask_device_for_biases(model, "float16")
    assert [line.split(":")[0] for line in lines] == ["biases of 4 x 5", "biases of 4 x 7"]

    def ask(num_out: int, dtype: object = paddle.float16, fixed: str = "") -> bool:
        layer = paddle.nn.Linear(4, num_out)
        if fixed:
            getattr(layer, fixed).stop_gradient = True
        return biases.has_epilogue(layer.weight, layer.bias, dtype)

    assert [ask(5), ask(6), ask(7), ask(8)] == [False, True, False, False]
    assert not ask(6, fixed="weight") and not ask(6, fixed="bias")
    assert not ask(7, paddle.bfloat16)  # the device has been asked in the other precision only
    assert autocast.ask_device_for_biases(model, "bfloat16") == [] and ask(7, paddle.bfloat16)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_difference_of_four_roundings_is_allowed(asked, precision):
    model = paddle.nn.Sequential(*[paddle.nn.Linear(4, num_out) for num_out in (10, 11)])
    (line,) = autocast.ask_device_for_biases(model, precision)
    assert line.startswith("biases of 4 x 11:")
