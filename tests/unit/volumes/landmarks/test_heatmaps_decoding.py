"""Positions from heatmaps with known centers."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.volumes.landmarks.heatmaps import decode, gaussian_heatmaps

SHAPE = (16, 18, 20)
INSIDE = np.random.default_rng(0).uniform(5, 11, (12, 3))
SIGMA = (1.5, 2.0, 1.2)


def make_maps(points) -> paddle.Tensor:
    return gaussian_heatmaps(paddle.to_tensor(points), SHAPE, SIGMA).astype("float32")


def test_the_parabola_finds_a_gaussians_center_exactly():
    points, confidences = decode(make_maps(INSIDE), "quadratic")
    np.testing.assert_allclose(points, INSIDE, atol=1e-4)
    assert ((confidences > 0.7) & (confidences <= 1.0)).all()


def test_the_parabola_needs_one_neighbor_on_each_side():
    center = (1.2, 16.3, 0.8)
    points, _ = decode(make_maps([center]), "quadratic")
    np.testing.assert_allclose(points[0], center, atol=1e-4)
    points, _ = decode(make_maps([(0.4, 17.0, 18.7)]), "quadratic")
    np.testing.assert_allclose(points[0], (0, 17, 19), atol=1e-6)  # at the border


def test_the_weighted_mean_finds_it_with_a_reach_of_three_deviations():
    points, _ = decode(make_maps(INSIDE), "soft_argmax", np.ceil(3 * np.array(SIGMA)).astype(int))
    np.testing.assert_allclose(points, INSIDE, atol=0.05)


def test_many_small_values_are_summed_in_double_precision():
    values = np.random.default_rng(2).random((1, 41, 43, 45)).astype(np.float32)
    values[0, 20, 21, 22] = 1.0
    points, confidences = decode(paddle.to_tensor(values), "soft_argmax", (20, 21, 22))
    expected = [np.average(axis, weights=values[0].astype(np.float64)) for axis in np.indices(values.shape[1:])]
    np.testing.assert_allclose(points, [expected], rtol=1e-12)
    assert confidences.tolist() == [1.0]


def test_the_weighted_mean_bears_noise_better():
    noise = np.random.default_rng(1).normal(0, 0.1, (12, *SHAPE)).astype("float32")
    noisy = make_maps(INSIDE) * 0.5 + paddle.to_tensor(noise) * 0.5
    error = {
        m: np.linalg.norm(decode(noisy, m, (2, 3, 2))[0] - INSIDE, axis=1).mean() for m in ("quadratic", "soft_argmax")
    }
    assert error["soft_argmax"] < error["quadratic"] < 1.0


@pytest.mark.parametrize("method", ["quadratic", "soft_argmax"])
def test_peaks_at_the_border_and_flat_maps_stay_inside(method):
    maps = paddle.concat([make_maps([[0.0, 0.0, 0.0], [15.0, 17.0, 19.0]]), paddle.zeros([1, *SHAPE])])
    points, confidences = decode(maps, method)
    np.testing.assert_allclose(points[:2], [[0, 0, 0], [15, 17, 19]], atol=1e-6)
    assert confidences.tolist() == [1.0, 1.0, 0.0] and np.isfinite(points).all()


def test_confidence_is_the_peaks_value():
    maps = make_maps([[8.0, 8.0, 8.0]])
    for scale, expected in ((0.25, 0.25), (3.0, 1.0), (-1.0, 0.0)):
        assert decode(maps * scale)[1][0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("method", ["quadratic", "soft_argmax"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_map_that_is_not_finite_has_no_peak(method, value):
    maps = make_maps(INSIDE[:2])
    expected = decode(maps[:1], method)
    maps[1, 3, 4, 5] = value
    points, confidences = decode(maps, method)
    assert np.isnan(points[1]).all() and np.isnan(confidences[1])
    assert points[0].tolist() == expected[0][0].tolist() and confidences[0] == expected[1][0]
