"""Samples of masks at points are those that Paddle's own operation interpolates."""

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F

from paddlevit_dist.extensions.cpu_kernels import map_points
from paddlevit_dist.extensions.cpu_kernels.accelerate import is_available
from paddlevit_dist.images.mask_queries.points import sample_between

pytestmark = pytest.mark.skipif(not is_available(), reason="Paddle has no MKL here")


@pytest.mark.parametrize("padding", ["border", "zeros"])
@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (3, 1, 1, 2)])
def test_samples_are_those_of_grid_sample_inside_and_outside(shape, padding, monkeypatch):
    random = np.random.default_rng(0)
    maps = paddle.to_tensor(random.standard_normal(shape).astype(np.float32))
    points = paddle.to_tensor(random.uniform(-0.3, 1.3, (shape[0], 200, 2)).astype(np.float32))
    expected = F.grid_sample(maps, (2 * points - 1).unsqueeze(2), padding_mode=padding, align_corners=False)
    used = []
    monkeypatch.setattr(map_points, "sample", lambda *words, own=map_points.sample: (used.append(1), own(*words)))
    found = sample_between(maps, points, padding == "border")
    np.testing.assert_allclose(found.numpy(), expected.squeeze(3).numpy(), atol=2e-6)
    assert used == [1]
    maps.stop_gradient = False  # a gradient is Paddle's
    sample_between(maps, points, padding == "border").sum().backward()
    assert used == [1] and np.isfinite(maps.grad.numpy()).all()


def test_what_is_not_finite_stays_so():
    maps = paddle.ones([1, 1, 2, 2])
    places = paddle.to_tensor([[[float("nan"), 0.5], [0.5, 0.5]]])
    found = sample_between(maps, places).numpy()
    assert np.isnan(found[0, 0, 0]) and found[0, 0, 1] == 1.0
