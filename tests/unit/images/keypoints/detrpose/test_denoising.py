"""Denoising queries of poses: how far they are from the objects, and in which directions."""

import numpy as np
from support.networks.rtdetr_networks import SIZE
from support.samples.pose_batches import NOISE, POINTS, SIGMAS, make_objects

from paddlevit_dist.images.keypoints.detrpose.denoising import PoseNoise


def test_similarities_are_high_for_positive_and_low_for_negative_queries():
    noise, (points, areas, labels) = PoseNoise(SIGMAS, 200), make_objects((2,))
    points[0, ..., :2] = points[0, ..., :2] / 4 + np.array(SIZE[::-1]) / 4  # so that no moved point is cut
    points[0, ..., 2] = 1
    drawn = noise.draw(points[0], areas[0] / 20, labels[0], SIZE, np.random.default_rng(0))
    moved = drawn.places.reshape(100, 2, 2, POINTS, 2) * SIZE[::-1]
    shifts = moved - points[0, ..., :2]
    variances = (2 * np.array(SIGMAS)[labels[0]]) ** 2
    similarity = np.exp(-(shifts**2).sum(-1) / (2 * areas[0][:, None] / 20 * variances))
    positive, negative = similarity[:, 0], similarity[:, 1]
    assert positive.min() > 0.499 and positive.max() > 0.95 and positive.min() < 0.55
    assert negative.min() > 0.099 and negative.max() < 0.501 and negative.min() < 0.15
    directions = np.arctan2(shifts[..., 1], shifts[..., 0]).ravel()
    shares = np.histogram(directions, 8, (-np.pi, np.pi))[0] / len(directions)
    assert np.abs(shares - 1 / 8).max() < 0.03
    assert 0.05 < (drawn.labels.reshape(-1, 2) != labels[0]).mean() < 0.2  # a quarter drawn, half of them the same


def test_points_without_a_label_are_in_the_middle_of_the_others():
    points = np.array([[[10.0, 20.0, 2.0], [0.0, 0.0, 0.0], [30.0, 40.0, 1.0], [0.0, 0.0, 0.0]]])
    drawn = NOISE.draw(points, np.array([1e-12]), np.array([1]), SIZE, np.random.default_rng(0))
    expected = np.array([[10, 20], [20, 30], [30, 40], [20, 30]]) / SIZE[::-1]
    np.testing.assert_allclose(drawn.places.reshape(-1, POINTS, 2), np.tile(expected, (8, 1, 1)), atol=1e-6)


def test_moved_points_are_cut_at_the_borders_and_many_objects_have_one_group():
    points = np.tile(np.array([[1.0, 2, 2], [95, 63, 1], [0, 0, 0], [1, 63, 1]]), (5, 1, 1))
    drawn = NOISE.draw(points, np.full(5, 1e5), np.zeros(5, int), SIZE, np.random.default_rng(1))
    assert drawn.labels.shape == (10,) and drawn.labels.dtype == np.int64 and set(drawn.labels.tolist()) == {0, 1}
    assert drawn.places.shape == (10, 2 * POINTS) and drawn.places.dtype == np.float32
    assert (drawn.places.min(), drawn.places.max()) == (0, 1)
    middle = (points[0, :, :2] * (points[0, :, 2:] > 0)).sum(axis=0) / 3 / SIZE[::-1]
    np.testing.assert_allclose(drawn.places[:, 4:6], np.tile(middle, (10, 1)), rtol=1e-6)  # of the one without a label
    none = NOISE.draw(points[:0], np.zeros(0), np.zeros(0, int), SIZE, np.random.default_rng(0))
    assert none.labels.shape == (0,) and none.places.shape == (0, 2 * POINTS)


def test_an_image_has_the_groups_of_its_own_objects():
    points, areas, labels = make_objects((3, 0, 1))
    numbers = (3, 0, 1)
    drawn = [
        NOISE.draw(points[row, :number], areas[row, :number], labels[row, :number], SIZE, np.random.default_rng(0))
        for row, number in enumerate(numbers)
    ]
    batch = NOISE.collate(drawn, numbers, 3)
    assert batch["denoising_places"].shape == (3, 8, 2 * POINTS) and batch["denoising_places"].dtype == np.float32
    assert batch["denoising_objects"].tolist() == [[0, 1, 2, 3, 3, 3, 3, 3], [3] * 8, [0, 3, 0, 3, 0, 3, 0, 3]]
    np.testing.assert_array_equal(batch["denoising_weights"], [[1] * 6 + [0] * 2, [0] * 8, [0.25] * 8])
    assert (batch["denoising_labels"][1] == len(SIGMAS)).all() and (batch["denoising_places"][1] == 0.5).all()
