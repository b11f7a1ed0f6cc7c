"""Heatmaps against loops over the voxels."""

import math

import numpy as np
import paddle
import pytest

from paddlevit_dist.volumes.landmarks.heatmaps import (
    gaussian_cube,
    gaussian_heatmaps,
    radius_factors,
    radius_heatmaps,
)

SHAPE = (7, 9, 11)
POINTS = np.array(
    [
        [3.0, 4.0, 5.0],
        [2.3, 4.6, 7.9],
        [0.0, 0.0, 0.0],
        [6.4, 8.4, 10.4],
        [-1.5, 3.0, 12.0],  # outside, near enough to be seen
        [40.0, -30.0, 5.0],  # far outside
        [np.nan, np.nan, np.nan],
        [3.0, np.nan, 5.0],
    ]
)


def by_loop(value_at) -> np.ndarray:
    """The four-fold loop: landmark, z, y, x."""
    maps = np.zeros((len(POINTS), *SHAPE))
    for number, point in enumerate(POINTS):
        if not np.isfinite(point).all():
            continue
        for z in range(SHAPE[0]):
            for y in range(SHAPE[1]):
                for x in range(SHAPE[2]):
                    maps[number, z, y, x] = value_at(point, (z, y, x))
    return maps


def gaussian_value(point, voxel, sigma=(1.5, 2.0, 1.2)):
    return math.exp(-0.5 * sum(((v - p) / s) ** 2 for v, p, s in zip(voxel, point, sigma)))


def radius_value(point, voxel, radius):
    offsets = [v - int(p) for v, p in zip(voxel, point)]
    if max(abs(offset) for offset in offsets) > radius:
        return 0.0
    value = math.exp(-sum(offset**2 for offset in offsets) / (2 * ((2 * radius + 1) / 6) ** 2))
    return value if value >= np.finfo(np.float64).eps else 0.0


def test_gaussians_equal_a_loop():
    sigma_mm, spacing = (3.0, 2.0, 2.4), (2.0, 1.0, 2.0)
    maps = gaussian_heatmaps(paddle.to_tensor(POINTS), SHAPE, sigma_mm, spacing)
    np.testing.assert_allclose(maps.numpy(), by_loop(gaussian_value), rtol=1e-12, atol=1e-300)


def test_a_gaussian_is_1_at_a_voxels_center_and_symmetric_between_voxels():
    maps = gaussian_heatmaps(paddle.to_tensor([[3.0, 4.0, 5.0], [3.0, 4.0, 5.5]]), SHAPE, (1.0, 1.0, 1.0)).numpy()
    assert maps[0, 3, 4, 5] == 1.0 == maps[0].max()
    assert maps[1, 3, 4, 5] == maps[1, 3, 4, 6] == maps[1].max() < 1.0


def test_a_batch_of_points_gives_a_batch_of_maps():
    points = paddle.to_tensor(np.stack([POINTS, POINTS[::-1]]).astype("float32"))
    maps = gaussian_heatmaps(points, SHAPE, (1.5, 2.0, 1.2))
    assert maps.shape == [2, 8, 7, 9, 11]
    np.testing.assert_allclose(maps[1].numpy(), maps[0].numpy()[::-1], rtol=1e-6)


@pytest.mark.parametrize("radius", [0, 1, 2, 5])
def test_the_radius_form_equals_a_loop_to_the_last_bit(radius):
    expected = by_loop(lambda point, voxel: radius_value(point, voxel, radius)).astype(np.float32)
    with np.errstate(all="raise"):  # NaN is no index
        np.testing.assert_array_equal(radius_heatmaps(POINTS, SHAPE, radius), expected, strict=True)


@pytest.mark.parametrize("radius", [0, 2, 5])
def test_factors_of_the_radius_form_make_the_same_maps(radius):
    maps = radius_factors(paddle.to_tensor(POINTS[None]), SHAPE, radius).dense()
    np.testing.assert_allclose(maps[0].numpy(), radius_heatmaps(POINTS, SHAPE, radius), rtol=1e-6)


def test_overlapping_landmarks_of_a_channel_keep_the_larger_value():
    points = [[3, 4, 4], [3, 4, 6]]
    shared = radius_heatmaps(np.array(points), SHAPE, 3, channels=[0, 0])
    own = radius_heatmaps(np.array(points), SHAPE, 3)
    assert shared.shape == (1, *SHAPE) and np.array_equal(shared[0], np.maximum(own[0], own[1]))


def test_a_cube_has_the_deviation_of_a_sixth_of_its_diameter():
    cube = gaussian_cube(2)
    assert cube.shape == (5, 5, 5) and cube[2, 2, 2] == 1.0
    assert cube[2, 2, 4] == pytest.approx(math.exp(-(2**2) / (2 * (5 / 6) ** 2)))
    assert gaussian_cube(0).tolist() == [[[1.0]]]


def test_no_points_give_no_maps():
    assert radius_heatmaps(np.zeros((0, 3)), SHAPE, 2).shape == (0, *SHAPE)
