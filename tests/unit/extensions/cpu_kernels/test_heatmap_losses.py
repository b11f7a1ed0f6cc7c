"""Losses of heatmaps whose targets are never stored are those of their drawn targets."""

import numpy as np
import paddle
import pytest
from support.networks.plain_layers import plain_layers

from paddlevit_dist.extensions.cpu_kernels.accelerate import is_available
from paddlevit_dist.images.keypoints.heatmaps.targets import draw_targets, gaussian_losses, heatmap_losses

pytestmark = pytest.mark.skipif(not is_available(), reason="Paddle has no MKL here")


@pytest.mark.parametrize("size", [(9, 14), (1, 3)])
def test_losses_of_gaussians_are_those_of_their_drawn_targets(size):
    random = np.random.default_rng(0)
    maps = paddle.to_tensor(random.standard_normal((4, 3, *size)).astype(np.float32), stop_gradient=False)
    cells = paddle.to_tensor(random.uniform(-5, 17, (4, 3, 2)).astype(np.float32))
    weights = paddle.to_tensor(random.random((4, 3)).round().astype(np.float32))
    factors = paddle.to_tensor(random.random(4).astype(np.float32))
    results = []
    for losses in (
        gaussian_losses(maps, cells, weights, 1.5),
        heatmap_losses(maps, draw_targets(cells, size, 1.5), weights),
    ):
        (losses * factors).sum().backward()
        results.append((losses.numpy(), maps.grad.numpy()))
        maps.clear_gradient(False)
    for found, expected in zip(*results):
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6 * np.abs(expected).max())
    with paddle.no_grad():
        np.testing.assert_array_equal(gaussian_losses(maps, cells, weights, 1.5).numpy(), results[0][0])
    with plain_layers():
        np.testing.assert_array_equal(gaussian_losses(maps, cells, weights, 1.5).numpy(), results[1][0])
