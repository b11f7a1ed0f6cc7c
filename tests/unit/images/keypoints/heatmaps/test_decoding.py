"""Decoding of heatmaps with known peaks."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.images.keypoints.heatmaps.decoding import decode_heatmaps
from paddlevit_dist.images.keypoints.heatmaps.targets import draw_targets, weigh_points


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_targets_are_decoded_to_their_places(dtype):
    cells = np.random.default_rng(0).uniform(6, 25, (4, 5, 2)).astype(dtype)
    maps = draw_targets(paddle.to_tensor(cells), (32, 40), 2.0).numpy()
    assert maps.dtype == dtype and maps.shape == (4, 5, 32, 40)
    places, scores = decode_heatmaps(maps, 11)
    np.testing.assert_allclose(places, cells, atol=1e-3)
    assert (scores > 0.88).all() and (scores <= 1).all()


def test_maps_without_a_positive_value_score_below_0_or_0():
    maps = -np.ones((1, 3, 8, 6))
    maps[0, 0, 2, 3], maps[0, 1] = -0.5, 0.0
    maps[0, 2, 5, 1] = np.nan
    places, scores = decode_heatmaps(maps)
    np.testing.assert_array_equal(places[0], [[3, 2], [0, 0], [1, 5]])
    np.testing.assert_array_equal(scores[0, :2], [-0.5, 0])
    assert np.isnan(scores[0, 2])


def test_flat_peaks_stay_in_their_cells():
    places, scores = decode_heatmaps(np.full((1, 1, 1, 1), 0.25))  # smaller than the smoothing
    assert places.tolist() == [[[0.0, 0.0]]] and scores.item() == 0.25
    places, _ = decode_heatmaps(np.full((1, 1, 12, 12), 0.25))
    assert np.isfinite(places).all()


@pytest.mark.parametrize(("shape", "place"), [((6, 12), [6, 7]), ((6, 5), [1, 2]), ((5, 6), [1, 2]), ((6, 6), [6, 7])])
def test_a_step_beyond_the_size_of_the_map_is_not_taken(shape, place):
    """The gradient is (-1/4, -1/4), the second derivatives are -1, -1 and across 0.95: a step of 5 in both."""
    logs = np.full(shape, -3.0)
    # the peak at x 1 and y 2, its neighbors, and those along the ridge
    logs[1:4, :3] = [[-0.05, -0.75, -1], [-0.75, 0, -0.25], [-1, -0.25, -0.05]]
    places, scores = decode_heatmaps(np.exp(logs)[None, None], 1)
    np.testing.assert_allclose(places[0, 0], place, atol=1e-3)
    assert scores.item() == 1


def test_points_far_from_the_map_have_no_weight():
    cells = np.array([[-6, -6], [-6.1, 3], [3, -6.1], [17, 21], [18, 3], [18.1, 3], [3, 22], [3, 3]])
    visible = np.array([True] * 7 + [False])
    assert weigh_points(cells, visible, (16, 12), 2.0).tolist() == [1, 0, 0, 1, 0, 0, 0, 0]
    assert weigh_points(cells, visible, (17, 13), 2.0).tolist() == [1, 0, 0, 1, 1, 0, 1, 0]
