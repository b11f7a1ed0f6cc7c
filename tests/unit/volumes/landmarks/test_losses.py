"""The losses on factors against the same formulas on dense maps, values and gradients."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.volumes.landmarks.heatmaps import gaussian_factors
from paddlevit_dist.volumes.landmarks.losses import contract, focal_loss, weighted_squared_error

SHAPE = (5, 6, 7)
POINTS = np.array(
    [[[2.0, 3.0, 4.0], [0.4, 5.3, 6.4], [-3.0, 2.0, 2.0]], [[np.nan] * 3, [4.2, 1.0, 0.0], [2.5, 2.5, 9.0]]]
)


def setting():
    points = paddle.to_tensor(POINTS)
    target = gaussian_factors(points, SHAPE, (1.0, 1.5, 1.2))
    maps = paddle.to_tensor(np.random.default_rng(0).standard_normal((2, 3, *SHAPE)), stop_gradient=False)
    return points, target, maps


def make_gradient(losses: paddle.Tensor, maps: paddle.Tensor) -> np.ndarray:
    weights = paddle.to_tensor([[1.0, 2.0, 0.5], [1.5, 1.0, 3.0]], dtype="float64")
    (losses * weights).sum().backward()
    gradient = maps.grad.numpy().copy()
    maps.clear_gradient()
    return gradient


def test_contraction_sums_over_the_voxels():
    _, target, maps = setting()
    first, second = contract(maps, [target, target.power(2)])
    dense = target.dense()
    np.testing.assert_allclose(first.numpy(), (maps * dense).sum(axis=[2, 3, 4]).numpy(), rtol=1e-10)
    np.testing.assert_allclose(second.numpy(), (maps * dense**2).sum(axis=[2, 3, 4]).numpy(), rtol=1e-10)


@pytest.mark.parametrize("peak_weight", [0.0, 10.0])
def test_the_squared_error_equals_that_of_dense_maps(peak_weight):
    _, target, maps = setting()
    dense = target.dense()
    expected = ((1 + peak_weight * dense) * (maps - dense) ** 2).sum(axis=[2, 3, 4])
    losses = weighted_squared_error(maps, target, peak_weight)
    np.testing.assert_allclose(losses.numpy(), expected.numpy(), rtol=1e-10)
    np.testing.assert_allclose(make_gradient(losses, maps), make_gradient(expected, maps), rtol=1e-9, atol=1e-11)


def test_a_perfect_prediction_costs_nothing():
    _, target, _ = setting()
    assert np.abs(weighted_squared_error(target.dense(), target, 10.0).numpy()).max() < 1e-12


def test_the_focal_loss_equals_that_of_dense_maps():
    points, target, maps = setting()
    share = paddle.nn.functional.sigmoid(maps)
    dense = target.dense().numpy()
    peak = np.zeros_like(dense)
    for case in ((0, 0), (0, 1), (1, 1)):  # the others lie outside or are missing
        peak[(*case, *np.rint(POINTS[case]).astype(int))] = 1.0
    peak, dense = paddle.to_tensor(peak), paddle.to_tensor(dense)
    near = -((1 - share) ** 2) * paddle.log(share)
    far = -((1 - dense) ** 4) * share**2 * paddle.log(1 - share)
    expected = (peak * near + (1 - peak) * far).sum(axis=[2, 3, 4])
    losses = focal_loss(maps, target, points)
    np.testing.assert_allclose(losses.numpy(), expected.numpy(), rtol=1e-9)
    np.testing.assert_allclose(make_gradient(losses, maps), make_gradient(expected, maps), rtol=1e-8, atol=1e-10)
