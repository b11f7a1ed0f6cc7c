"""Fast decoders of heatmaps compute what Paddle's layers do, and leave to these what is not theirs."""

import numpy as np
import paddle
import pytest
from support.networks.fast_layers import build_decoder
from support.networks.plain_layers import plain_layers

from paddlevit_dist.extensions.cpu_kernels import decoders
from paddlevit_dist.extensions.cpu_kernels.accelerate import is_available

pytestmark = pytest.mark.skipif(not is_available(), reason="Paddle has no MKL here")


def compute_all(decoder, values, cast=None):
    """Heatmaps, gradients, running statistics after the step, and heatmaps of an evaluation."""
    state = {name: value.numpy() for name, value in decoder.state_dict().items()}
    decoder.train()
    for parameter in decoder.parameters():
        parameter.clear_gradient(False)
    x = paddle.to_tensor(values, stop_gradient=False)
    out = decoder(x)
    weights = np.random.default_rng(2).standard_normal(out.shape).astype(np.float32)
    (out * paddle.to_tensor(weights)).sum().backward()
    result = {"heatmaps": out, "input": x.grad}
    result |= {name: value.grad for name, value in decoder.named_parameters() if value.grad is not None}
    result |= {f"{name} after": value for name, value in decoder.state_dict().items()}
    decoder.eval()
    with paddle.no_grad():
        result["evaluation"] = decoder(paddle.to_tensor(values))
    result = {name: value.numpy() for name, value in result.items()}
    decoder.set_state_dict(state)
    return result


@pytest.mark.parametrize(
    ("shape", "scale"), [((3, 12, 4, 6), 4), ((2, 12, 5, 3), 8), ((2, 12, 1, 7), 2), ((9, 12, 8, 8), 2)]
)
def test_values_gradients_and_statistics_are_those_of_the_plain_layers(shape, scale, monkeypatch):
    decoder, values = build_decoder(scale), np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    called = []
    original = decoders._decode
    monkeypatch.setattr(decoders, "_decode", lambda *arguments: called.append(1) or original(*arguments))
    with plain_layers():
        expected = compute_all(decoder, values)
    assert not called
    found = compute_all(decoder, values)
    assert len(called) == 2 and found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].shape == value.shape
        assert np.abs(found[name] - value).max() <= 4e-6 * np.abs(value).max(), name
    for name, value in compute_all(decoder, values).items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_a_frozen_part_gets_no_gradient():
    decoder, values = build_decoder(), np.random.default_rng(1).standard_normal((2, 12, 3, 4)).astype(np.float32)
    expected = compute_all(decoder, values)
    for layer in (decoder.deconv1, decoder.batchnorm2, decoder.conv):
        layer.weight.stop_gradient = True
    found = compute_all(decoder, values)
    frozen = {f"{name}.weight" for name in ("deconv1", "batchnorm2", "conv")}
    assert expected.keys() - found.keys() == frozen
    for name, value in found.items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


def is_fast(decoder, x):
    return decoders._fits(decoder, x)


def test_what_it_does_not_compute_is_left_to_paddle():
    x = paddle.ones([2, 12, 3, 4])
    assert is_fast(build_decoder(), x)
    assert not is_fast(build_decoder(scale=1), x)  # only a convolution
    assert not is_fast(build_decoder(unbias=False), x)  # Paddle's own running variance
    assert not is_fast(build_decoder(), x.astype("float64"))
    decoder = build_decoder()
    decoder.eval()  # gradients by fixed statistics
    assert not is_fast(decoder, x)
    with paddle.no_grad():
        assert is_fast(decoder, x)
    decoder = build_decoder()
    decoder.deconv2.register_forward_post_hook(lambda layer, inputs, output: None)
    assert not is_fast(decoder, x)
    decoder = build_decoder()
    decoder.batchnorm1._use_global_stats = True
    assert not is_fast(decoder, x)
    decoder = build_decoder(unbias=False)
    decoder.eval()  # the running variance does not change
    with paddle.no_grad():
        assert is_fast(decoder, x)


def test_a_mean_far_from_zero_costs_no_digits():
    from paddlevit_dist.extensions.cpu_kernels import batch_norm_kernels

    values = (np.random.default_rng(0).standard_normal((5000, 3)) + [0.0, 100.0, 3000.0]).astype(np.float32)
    found = np.empty(7)
    batch_norm_kernels.moments(values.ctypes.data, found.ctypes.data, *values.shape)
    exact = values.astype(np.float64)
    assert found[0] == 5000
    np.testing.assert_allclose(found[1:4], exact.mean(0), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found[4:], ((exact - exact.mean(0)) ** 2).sum(0), rtol=2e-6)
