"""Batch normalisation in one process: against Paddle's layer, and gradients against finite differences."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from paddlevit_dist.parallel import BatchNorm, batch_norm, convert_batch_norm

SHAPES = [(7, 3), (4, 3, 5), (2, 3, 4, 5), (2, 3, 2, 4, 3)]
PLAIN = {2: paddle.nn.BatchNorm1D, 3: paddle.nn.BatchNorm1D, 4: paddle.nn.BatchNorm2D, 5: paddle.nn.BatchNorm3D}


def rows(shape, seed=0) -> np.ndarray:
    return 2.0 * np.random.default_rng(seed).standard_normal(shape) + 1.0


def with_own_path(plain: paddle.nn.Layer, dtype: str) -> BatchNorm:
    """The same parameters and statistics in new tensors, computed by our operations instead of Paddle's kernel."""
    layer = BatchNorm(3, plain._momentum, plain._epsilon, unbiased_running_variance=True).to(dtype=dtype)
    layer.set_state_dict(plain.state_dict())
    return layer


def run(layer, x: np.ndarray, slope: np.ndarray, dtype: str) -> dict:
    inputs = paddle.to_tensor(x, dtype=dtype, stop_gradient=False)
    outputs = layer(inputs)
    (outputs * paddle.to_tensor(slope, dtype=dtype)).sum().backward()
    gradients = {"x": inputs.grad, "weight": layer.weight.grad, "bias": layer.bias.grad}
    return {"y": outputs, **gradients, "mean": layer._mean, "variance": layer._variance}


def randomised(plain: paddle.nn.Layer) -> paddle.nn.Layer:
    for name, tensor in plain.state_dict().items():
        tensor.set_value(np.random.default_rng(len(name)).uniform(0.5, 1.5, tensor.shape).astype("float32"))
    return plain


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype, tolerance", [("float32", 2e-5), ("float64", 1e-11)])
def test_own_operations_agree_with_paddles_layer(shape, dtype, tolerance):
    # Paddle keeps the momentum in float32, where 0.75 is exact.
    plain = randomised(PLAIN[len(shape)](3, momentum=0.75)).to(dtype=dtype)
    layer = with_own_path(plain, dtype)
    slope = rows(shape, seed=1)
    before = plain._variance.numpy().copy()
    ours, theirs = run(layer, rows(shape), slope, dtype), run(plain, rows(shape), slope, dtype)
    count = np.prod(shape) // 3
    unbiased = 0.75 * before + (theirs.pop("variance").numpy() - 0.75 * before) * count / (count - 1)
    np.testing.assert_allclose(ours.pop("variance").numpy(), unbiased, rtol=tolerance)
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name].numpy(), value.numpy(), rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_agree_with_finite_differences(shape):
    layer = with_own_path(randomised(PLAIN[len(shape)](3)).to(dtype="float64"), "float64")
    x, slope = rows(shape), rows(shape, seed=1)
    gradient = run(layer, x, slope, "float64")["x"].numpy()

    def loss(values):
        return float((layer(paddle.to_tensor(values)).numpy() * slope).sum())

    for position in np.random.default_rng(2).integers(0, x.size, 12):
        step = np.zeros(x.size)
        step[position] = 1e-5
        step = step.reshape(shape)
        difference = (loss(x + step) - loss(x - step)) / 2e-5
        assert gradient.reshape(-1)[position] == pytest.approx(difference, rel=1e-6, abs=1e-8)


def test_a_mean_far_from_zero_costs_no_digits():
    layer = BatchNorm(3, unbiased_running_variance=True).to(dtype="float64")
    x = np.random.default_rng(0).standard_normal((50, 3))
    far = layer(paddle.to_tensor(x + 1e7)).numpy()
    np.testing.assert_allclose(far, layer(paddle.to_tensor(x)).numpy(), atol=1e-7)


def test_statistics_never_pass_through_the_host(monkeypatch):
    monkeypatch.setattr(paddle.Tensor, "set_value", None)  # Paddle 2.6 copies the value to the host and back
    layer, x = BatchNorm(3, unbiased_running_variance=True), rows((7, 3))
    layer(paddle.to_tensor(x, dtype="float32"))
    expected = 0.9 + 0.1 * x.var(axis=0, ddof=1)
    np.testing.assert_allclose(layer._variance.numpy(), expected, rtol=1e-5)


def test_channels_last():
    x = rows((2, 4, 5, 3))
    last = BatchNorm(3, data_format="NHWC", unbiased_running_variance=True).to(dtype="float64")
    first = paddle.nn.BatchNorm2D(3).to(dtype="float64")
    expected = first(paddle.to_tensor(x.transpose(0, 3, 1, 2))).numpy().transpose(0, 2, 3, 1)
    np.testing.assert_allclose(last(paddle.to_tensor(x)).numpy(), expected, rtol=1e-11)
    last.eval(), first.eval()
    assert last(paddle.to_tensor(x)).shape == list(x.shape)


def test_conversion_keeps_tensors_names_and_shared_layers():
    shared = paddle.nn.BatchNorm2D(4, data_format="NHWC", momentum=0.7, epsilon=1e-3)
    model = paddle.nn.Sequential(
        paddle.nn.Linear(3, 4),
        paddle.nn.Sequential(shared, paddle.nn.BatchNorm(4, act="relu", use_global_stats=True)),
        shared,
        paddle.nn.BatchNorm1D(4, weight_attr=False, bias_attr=False),
        paddle.nn.SyncBatchNorm(4),
    )
    before = {name: id(tensor) for name, tensor in model.state_dict().items()}
    assert convert_batch_norm(model) is model
    assert {name: id(tensor) for name, tensor in model.state_dict().items()} == before
    assert model[1][0] is model[2] and isinstance(model[2], BatchNorm)
    assert (model[2]._momentum, model[2]._epsilon, model[2]._channels_last) == (float(np.float32(0.7)), 1e-3, True)
    assert [type(layer) for layer in (model[1][1], model[3], model[4])] == [BatchNorm] * 3
    assert model[1][1](paddle.to_tensor([[-1.0] * 4])).numpy().tolist() == [[0.0] * 4]
    assert all(tensor.stop_gradient for name, tensor in model.named_parameters() if name.endswith("_mean"))


def test_converting_a_bare_layer_returns_its_replacement():
    plain = paddle.nn.BatchNorm1D(4)
    converted = convert_batch_norm(plain)
    assert converted is not plain and converted.weight is plain.weight


def test_a_converted_layer_of_one_process_computes_what_paddles_does():
    plain, same = paddle.nn.BatchNorm3D(3), paddle.nn.BatchNorm3D(3)
    converted = convert_batch_norm(same)
    x = paddle.to_tensor(rows(SHAPES[3]).astype("float32"))
    assert np.array_equal(plain(x).numpy(), converted(x).numpy())
    assert np.array_equal(plain._variance.numpy(), converted._variance.numpy())
    plain.eval(), converted.eval()
    assert np.array_equal(plain(x).numpy(), converted(x).numpy())


def test_no_rows_leave_the_statistics_and_give_zero_gradients():
    from paddlevit_dist.parallel import zero_of

    layer = BatchNorm(3)
    x = paddle.zeros([0, 3])
    x.stop_gradient = False
    y = layer(x)
    assert y.shape == [0, 3]
    zero_of(y, layer.weight).backward()
    assert layer.weight.grad.numpy().tolist() == [0.0] * 3 == layer.bias.grad.numpy().tolist()
    assert layer._mean.numpy().tolist() == [0.0] * 3 and layer._variance.numpy().tolist() == [1.0] * 3
    layer.eval()
    assert layer(x).shape == [0, 3]


@pytest.mark.parametrize("shape", [(7, 3), (4, 3, 5)])
def test_both_ways_to_moments_agree(shape):
    x = paddle.to_tensor(rows(shape) + 100.0)
    axes = (0,) if len(shape) == 2 else (0, 2)
    squares = rows(shape).var(axis=axes) * np.prod(shape) / 3
    for moments in (batch_norm.moments_by_kernel, batch_norm.moments_by_sums):
        mean, sum_of_squares = moments(x)
        np.testing.assert_allclose(mean.numpy(), (rows(shape) + 100.0).mean(axis=axes), rtol=1e-12)
        np.testing.assert_allclose(sum_of_squares.numpy(), squares, rtol=1e-9)


def test_a_single_row_gives_the_bias():
    layer = BatchNorm(3, unbiased_running_variance=True)
    layer.bias.set_value(paddle.to_tensor([1.0, 2.0, 3.0]))
    assert layer(paddle.to_tensor([[5.0, -5.0, 0.0]])).numpy().tolist() == [[1.0, 2.0, 3.0]]
    np.testing.assert_allclose(layer._mean.numpy(), [0.5, -0.5, 0.0], rtol=1e-6)
