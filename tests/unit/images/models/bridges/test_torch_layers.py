"""Layers with PyTorch's arguments: their values against NumPy, their attributes, and what they begin with."""

import math

import numpy as np
import paddle
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from paddle import nn
from support.networks.timm_zoo import needs_compat

pytestmark = needs_compat
X = np.random.default_rng(3).normal(size=(2, 4, 6, 5)).astype(np.float32)


@pytest.fixture(scope="module")
def layers():
    from paddlevit_dist.images.models.bridges import torch_layers

    return torch_layers


def windows(size, stride, padding, fill):
    padded = np.pad(X, ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2), constant_values=fill)
    return sliding_window_view(padded, (size, size), (2, 3))[:, :, ::stride, ::stride]


def test_windows_are_pooled_with_pytorch_s_defaults(layers):
    x = paddle.to_tensor(X)
    for function, layer in ((layers.max_pool2d, layers.MaxPool2d), (layers.avg_pool2d, paddle.compat.nn.AvgPool2d)):
        reduce = np.max if function is layers.max_pool2d else np.mean
        for given in ((2,), (2, 1), (3, 2, 1)):
            size, stride, padding = (*given, given[0], 0)[:2] + (given[2] if len(given) > 2 else 0,)
            fill = -np.inf if reduce is np.max else 0.0
            expected = reduce(windows(size, stride, padding, fill), axis=(-1, -2))
            for found in (function(x, *given), layer(*given)(x)):
                np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)
    ends = paddle.compat.nn.AvgPool2d(2, 2, 0, True)(x).numpy()
    assert ends.shape == (2, 4, 3, 3)
    np.testing.assert_allclose(ends[:, :, :, 2], X[:, :, :, 4].reshape(2, 4, 3, 2).mean(-1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        paddle.compat.nn.AvgPool2d(2, None, 0, False, True, 8)(x).numpy(),
        windows(2, 2, 0, 0).sum((-1, -2)) / 8,
        rtol=1e-5,
        atol=1e-6,
    )
    corner = paddle.compat.nn.AvgPool2d(3, 2, 1, count_include_pad=False)(x).numpy()[:, :, 0, 0]
    np.testing.assert_allclose(corner, X[:, :, :2, :2].mean((-1, -2)), rtol=1e-5, atol=1e-6)
    pool = layers.MaxPool2d(3, None, 1, ceil_mode=True)
    assert (pool.kernel_size, pool.stride, pool.padding, pool.dilation, pool.ceil_mode) == (3, 3, 1, 1, True)
    other = paddle.compat.nn.AvgPool2d(3, 2, 1, True, False, 5)
    assert (other.stride, other.padding, other.ceil_mode, other.count_include_pad, other.divisor_override) == (
        2,
        1,
        True,
        False,
        5,
    )
    for options in ({"dilation": 2}, {"dilation": (1, 2)}, {"return_indices": True}):
        for refused in (lambda **named: layers.MaxPool2d(2, **named), lambda **named: layers.max_pool2d(x, 2, **named)):
            with pytest.raises(NotImplementedError, match="max pooling with dilation or indices"):
                refused(**options)
    layers.MaxPool2d(2, dilation=(1, 1))


def test_linear_layers_multiply_by_outputs_and_inputs(layers):
    paddle.seed(0)
    layer = layers.Linear(400, 300)
    assert layer.weight.shape == [300, 400] and (layer.in_features, layer.out_features) == (400, 300)
    for parameter in (layer.weight, layer.bias):
        values = parameter.numpy()
        assert abs(values).max() <= 0.05 and values.std() == pytest.approx(0.05 / math.sqrt(3), rel=0.1)
        assert values.min() < -0.045
    x = np.random.default_rng(0).normal(size=(3, 400)).astype(np.float32)
    expected = x @ layer.weight.numpy().T + layer.bias.numpy()
    np.testing.assert_allclose(layer(paddle.to_tensor(x)).numpy(), expected, rtol=1e-4, atol=1e-5)
    assert layer.count_products(None) == 400 and layers.Linear(2, 3, False).bias is None


def test_convolutions_have_pytorch_s_attributes_and_first_values(layers):
    paddle.seed(0)
    layer = layers.Conv2d(4, 60, 3, 2, 1, 1, 2)
    names = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups")
    assert [getattr(layer, name) for name in names] == [4, 60, (3, 3), (2, 2), 1, (1, 1), 2]
    bound = 1 / math.sqrt(2 * 9)
    assert abs(layer.weight.numpy()).max() <= bound and layer.weight.numpy().std() == pytest.approx(
        bound / math.sqrt(3), rel=0.1
    )
    assert 0 < abs(layer.bias.numpy()).max() <= bound
    found = layer(paddle.to_tensor(X)).numpy()
    cut = windows(3, 2, 1, 0.0).reshape(2, 2, 2, 3, 3, 3, 3)  # image, group, channel, row, column, window
    weight = layer.weight.numpy().reshape(2, 30, 2, 3, 3)
    expected = np.einsum("ngcyxij,gocij->ngoyx", cut, weight).reshape(2, 60, 3, 3) + layer.bias.numpy()[:, None, None]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)
    around = layers.Conv2d(4, 4, 3, padding=1, groups=4, bias=False, padding_mode="circular")
    around.weight.set_value(np.full((4, 1, 3, 3), 1.0, np.float32))
    wrapped = sliding_window_view(np.pad(X, ((0, 0), (0, 0), (1, 1), (1, 1)), "wrap"), (3, 3), (2, 3)).sum((-1, -2))
    np.testing.assert_allclose(around(paddle.to_tensor(X)).numpy(), wrapped, rtol=1e-4, atol=1e-5)
    wide = layers.ConvTranspose2d(4, 6, 2, 2, 0, 1, 2)
    assert wide(paddle.to_tensor(X)).shape == [2, 6, 13, 11] and wide.bias is not None
    assert layers.ConvTranspose2d(4, 6, 2, dilation=3)(paddle.to_tensor(X)).shape == [2, 6, 9, 8]


def test_norms_begin_with_ones_and_zeros_and_count_as_pytorch_does(layers):
    norm = layers.BatchNorm2d(4, 1e-3, 0.25)
    assert (norm.num_features, norm.affine, norm.eps, norm.momentum) == (4, True, 1e-3, 0.25)
    assert norm.running_mean is norm._mean and norm.running_var is norm._variance and norm.track_running_stats is True
    norm.weight.set_value(np.full(4, 3.0, np.float32))
    norm.bias.set_value(np.full(4, 2.0, np.float32))
    norm.reset_parameters()
    assert norm.weight.tolist() == [1.0] * 4 and norm.bias.tolist() == [0.0] * 4
    norm(paddle.to_tensor(X))
    np.testing.assert_allclose(norm.running_mean.numpy(), 0.25 * X.mean((0, 2, 3)), rtol=1e-4, atol=1e-6)
    plain = layers.BatchNorm1d(3, affine=False)
    assert (
        plain.weight is None and plain.bias is None and plain.affine is False and plain.momentum == pytest.approx(0.1)
    )
    plain.reset_parameters()
    for options in ({"momentum": None}, {"track_running_stats": False}):
        with pytest.raises(NotImplementedError, match="a batch norm without a moving average of its statistics"):
            layers.BatchNorm2d(4, **options)
    layer = layers.LayerNorm((6, 5), 1e-3)
    assert (layer.normalized_shape, layer.eps, layer.elementwise_affine) == ((6, 5), 1e-3, True)
    assert layers.LayerNorm(5, weight_attr=False, bias_attr=False).elementwise_affine is False
    group = layers.GroupNorm(2, 4, 1e-3)
    assert (group.num_groups, group.num_channels, group.eps, group.affine) == (2, 4, 1e-3, True)
    parts = X.reshape(2, 2, 60)
    expected = (parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + 1e-3)
    np.testing.assert_allclose(group(paddle.to_tensor(X)).numpy(), expected.reshape(X.shape), rtol=1e-4, atol=1e-5)


def test_an_lstm_reads_its_first_axis_as_time_unless_told(layers):
    paddle.seed(0)
    layer = layers.LSTM(3, 16, 2, bidirectional=True)
    assert layer(paddle.zeros([7, 2, 3]))[0].shape == [7, 2, 32] and len(layer.parameters()) == 16
    assert all(abs(parameter.numpy()).max() <= 0.25 for parameter in layer.parameters())
    assert max(abs(parameter.numpy()).max() for parameter in layer.parameters()) > 0.24
    found = layers.LSTM(3, 16, batch_first=True)(paddle.zeros([7, 2, 3]))[1][0]
    assert found.shape == [1, 7, 16]
    with pytest.raises(NotImplementedError, match="an LSTM without biases"):
        layers.LSTM(3, 4, bias=False)


def test_activations_take_an_argument_that_changes_no_number(layers):
    kind = layers.without_inplace(nn.LeakyReLU)
    layer = kind(0.5, inplace=True)
    assert kind.__name__ == kind.__qualname__ == "LeakyReLU" and layer.inplace and not kind().inplace
    assert layer(paddle.to_tensor([-2.0])).tolist() == [-1.0]
