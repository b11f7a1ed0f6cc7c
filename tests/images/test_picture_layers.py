"""Layers on pictures with channels last: the fast functions compute what Paddle's layers compute."""

from __future__ import annotations

import copy

import numpy as np
import paddle
import pytest
from paddle import nn

from paddlevit_dist.images.kernels.pictures import Convolution, DepthwiseConvolution, add_scaled
from paddlevit_dist.images.kernels.switch import plain_layers


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def results(function, *arrays, parameters=()):
    """A function's value, and the gradients of its product with random numbers by its arguments and parameters."""
    tensors = [paddle.to_tensor(array, stop_gradient=False) for array in arrays]
    value = function(*tensors)
    (value * paddle.to_tensor(random(*value.shape, seed=9))).sum().backward()
    found = [value, *(source.grad for source in (*tensors, *parameters))]
    for parameter in parameters:
        parameter.clear_gradient(set_to_zero=False)
    return [one.numpy() for one in found]


def assert_fast_is_plain(function, *arrays, parameters=()):
    """... up to rounding, and the fast one to the bit when repeated; without gradients the value is the same."""
    fast, again = (results(function, *arrays, parameters=parameters) for _ in range(2))
    with plain_layers():
        plain = results(function, *arrays, parameters=parameters)
    with paddle.no_grad():
        value = function(*(paddle.to_tensor(array) for array in arrays)).numpy()
    for one, other, expected in zip([*fast, value], [*again, fast[0]], [*plain, plain[0]]):
        np.testing.assert_array_equal(one, other)
        assert one.shape == expected.shape
        np.testing.assert_allclose(one, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("batch", "height", "width", "channels", "kernel_size"),
    [
        (2, 14, 14, 16, 7),  # whole tiles of 7 columns
        (2, 9, 11, 80, 7),  # a last tile that overlaps; five vectors of 16 channels, copied four and one
        (1, 3, 20, 16, 7),  # less high than the kernel
        (3, 20, 2, 32, 7),  # narrower than kernel and tile
        (1, 1, 1, 16, 7),
        (1, 90, 52, 32, 3),  # so high that it is copied in two bands
        (2, 7, 5, 48, 3),
    ],
)
def test_a_depthwise_convolution_is_paddles(batch, height, width, channels, kernel_size):
    layer = DepthwiseConvolution(channels, kernel_size)
    layer.bias.set_value(random(channels))
    assert_fast_is_plain(layer, random(batch, height, width, channels), parameters=layer.parameters())


@pytest.mark.parametrize(
    ("shape", "out_channels", "side", "stride", "padding", "is_channels_last"),
    [
        ((2, 3, 16, 24), 32, 4, 4, 0, False),  # ConvNeXt's first
        ((2, 10, 7, 5), 6, 2, 2, 0, True),  # between its stages; a column is left over
        ((2, 3, 17, 22), 8, 7, 4, 3, False),  # PVTv2's first
        ((1, 2, 9, 4), 5, 3, 2, 1, True),  # between its stages; less high than the kernel
        ((2, 4, 4, 6), 6, 1, 1, 0, True),
    ],
)
def test_a_convolution_is_paddles(shape, out_channels, side, stride, padding, is_channels_last):
    channels = shape[3 if is_channels_last else 1]
    layer = Convolution(channels, out_channels, side, stride, padding, is_channels_last)
    layer.bias.set_value(random(out_channels))
    assert_fast_is_plain(layer, random(*shape), parameters=layer.parameters())


@pytest.mark.parametrize(
    "layer", [DepthwiseConvolution(16, 3, bias_attr=False), Convolution(16, 4, 2, bias_attr=False)]
)
def test_a_convolution_without_bias_is_paddles(layer):
    assert_fast_is_plain(layer, random(2, 6, 5, 16), parameters=layer.parameters())


@pytest.mark.parametrize("layer", [DepthwiseConvolution(16, 3), Convolution(16, 4, 2, 2)])
@pytest.mark.parametrize("trained", ["input", "weight", "bias"])
def test_only_what_learns_receives_a_gradient(layer, trained):
    gradients = []
    for is_alone in (False, True):
        own, x = copy.deepcopy(layer), paddle.to_tensor(random(1, 6, 4, 16))
        sources = {"input": x, "weight": own.weight, "bias": own.bias}
        for name, source in sources.items():
            source.stop_gradient = is_alone and name != trained
        (own(x) ** 2).sum().backward()
        assert all((source.grad is None) == source.stop_gradient for source in sources.values())
        gradients.append(sources[trained].grad.numpy())
    np.testing.assert_array_equal(*gradients)


@pytest.mark.parametrize("drops", [False, True])
def test_a_scaled_branch_is_added_as_by_paddle(drops):
    factors = paddle.to_tensor([[[[0.0]]], [[[1.25]]], [[[1.25]]]]) if drops else None
    x, branch, scale = random(3, 9, 8, 20), random(3, 9, 8, 20, seed=1), random(20, seed=2)
    assert_fast_is_plain(lambda *given: add_scaled(*given, factors), x, branch, scale)


@pytest.mark.parametrize(
    ("layer", "plain"),
    [
        (lambda: DepthwiseConvolution(32, 7), lambda: nn.Conv2D(32, 32, 7, padding=3, groups=32)),
        (lambda: Convolution(8, 32, 3, 2, 1), lambda: nn.Conv2D(8, 32, 3, stride=2, padding=1)),
    ],
)
def test_names_and_initial_values_are_those_of_paddles_convolution(layer, plain):
    states = []
    for make in (layer, plain):
        paddle.seed(4)
        states.append({name: value.numpy() for name, value in make().state_dict().items()})
    assert list(states[0]) == list(states[1]) == ["weight", "bias"]
    for name in states[0]:
        np.testing.assert_array_equal(states[0][name], states[1][name])


def test_a_copy_computes_with_its_own_weights():
    layer, x = DepthwiseConvolution(16, 3), paddle.to_tensor(random(1, 5, 5, 16))
    other = copy.deepcopy(layer)
    other.weight.set_value(2 * layer.weight)
    np.testing.assert_array_equal(other(x).numpy(), 2 * layer(x).numpy())


def test_other_types_channels_and_views_are_computed_too():
    for channels in (16, 10):
        layer, x = DepthwiseConvolution(channels, 3), random(2, 6, 4, channels)
        expected = nn.Conv2D.forward(layer, paddle.to_tensor(x.transpose(0, 3, 1, 2))).numpy().transpose(0, 2, 3, 1)
        turned = paddle.to_tensor(x.transpose(0, 2, 1, 3)).transpose([0, 2, 1, 3])  # Paddle may make a view
        np.testing.assert_allclose(layer(turned).numpy(), expected, atol=1e-6)
        layer.to(dtype="float64")
        found = layer(paddle.to_tensor(x.astype("float64")))
        assert found.dtype == paddle.float64
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)


def test_a_hook_sees_the_layer_at_work():
    layer, x, seen = DepthwiseConvolution(16, 3), paddle.to_tensor(random(1, 4, 4, 16)), []
    expected = layer(x).numpy()
    layer.register_forward_post_hook(lambda layer, inputs, output: seen.append(output))
    np.testing.assert_allclose(layer(x).numpy(), expected, atol=1e-6)
    assert len(seen) == 1 and seen[0].shape == [1, 4, 4, 16]
