"""The fast decoder on two ranks with synchronized statistics."""

import numpy as np
import paddle
import pytest
from support.networks.fast_layers import build_decoder
from support.processes import run_together

from paddlevit_dist.core.distributed import convert_batch_norm, rank, world_size
from paddlevit_dist.extensions.cpu_kernels import decoders
from paddlevit_dist.extensions.cpu_kernels.accelerate import is_available

pytestmark = pytest.mark.skipif(not is_available(), reason="Paddle has no MKL here")


def synchronized_part():
    """What a rank computes of its part of a batch, the first one of two maps, the second of three."""
    values = np.random.default_rng(1).standard_normal((5, 12, 4, 6)).astype(np.float32)
    weights = np.random.default_rng(2).standard_normal((5, 5, 16, 24)).astype(np.float32)
    part = slice(None) if world_size() == 1 else (slice(2) if rank() == 0 else slice(2, 5))
    decoder, x = build_decoder(unbias=False), paddle.to_tensor(values[part], stop_gradient=False)
    convert_batch_norm(decoder)
    assert decoders._fits(decoder, x)
    out = decoder(x)
    (out * paddle.to_tensor(weights[part])).sum().backward()
    gradients = {name: value.grad.numpy() for name, value in decoder.named_parameters() if value.grad is not None}
    statistics = {name: value.numpy() for name, value in decoder.state_dict().items() if "batchnorm" in name}
    return {"out": out.numpy(), "input": x.grad.numpy(), "gradients": gradients, "statistics": statistics}


def test_two_ranks_with_synchronized_statistics_compute_what_one_does():
    module = "integration.extensions.cpu_kernels.test_decoders"
    first, second = run_together({"parts": (f"{module}:synchronized_part", ())})["parts"]
    whole = synchronized_part()

    def assert_near(found, expected, name):
        assert np.abs(found - expected).max() <= 4e-6 * np.abs(expected).max(), name

    for name in ("out", "input"):
        assert_near(np.concatenate([first[name], second[name]]), whole[name], name)
    for name, value in whole["gradients"].items():
        assert_near(first["gradients"][name] + second["gradients"][name], value, name)
    for name, value in whole["statistics"].items():
        assert_near(first["statistics"][name], value, name)
        np.testing.assert_array_equal(first["statistics"][name], second["statistics"][name], err_msg=name)
