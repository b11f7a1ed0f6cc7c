"""Crops against OpenCV, and the way from the image to cells and back."""

import numpy as np
import pytest

from paddlevit_dist.images.keypoints.heatmaps.crops import (
    build_matrix,
    crop_image,
    fit_regions,
    invert_matrix,
    map_cells,
    transform_points,
)
from paddlevit_dist.images.keypoints.heatmaps.targets import find_cells


@pytest.mark.parametrize("seed", range(4))
def test_crops_like_opencv(seed):
    cv2 = pytest.importorskip("cv2")
    random = np.random.default_rng(seed)
    height, width = random.integers(20, 200, 2)
    image = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
    crop_size = tuple(random.integers(16, 160, 2).tolist())
    box = [*random.uniform(-20, 100, 2), *random.uniform(10, 150, 2)]
    region = fit_regions(np.array([box]), crop_size)[0]
    matrix = build_matrix(region, crop_size, random.uniform(-60, 60))
    expected = cv2.warpAffine(image, matrix, crop_size[::-1], flags=cv2.INTER_LINEAR).transpose(2, 0, 1)
    found = crop_image(image.transpose(2, 0, 1), matrix, crop_size)
    # Versions of OpenCV before 5 round places to 1/32 of a pixel.
    bound = 1 if int(cv2.__version__.split(".")[0]) >= 5 else 20
    assert np.abs(found.astype(int) - expected).max() <= bound


def test_regions_contain_their_boxes_in_the_proportions_of_crops():
    boxes = np.array([[10.0, 20, 30, 90], [0, 0, 100, 10], [5, 5, 48, 64]])
    regions = fit_regions(boxes, (64, 48))
    np.testing.assert_allclose(regions[:, 2] / regions[:, 3], 0.75)
    np.testing.assert_allclose(regions[:, :2], boxes[:, :2] + boxes[:, 2:] / 2)
    assert (regions[:, 2:] >= 1.25 * boxes[:, 2:] - 1e-9).all()
    np.testing.assert_allclose(regions[2, 2:], 1.25 * boxes[2, 2:])  # nothing is added to fitting proportions


def test_points_return_from_cells_to_the_image():
    random, crop_size, heatmap_size = np.random.default_rng(3), (64, 48), (16, 12)
    regions = fit_regions(random.uniform(5, 80, (6, 4)), crop_size)
    points = random.uniform(-10, 120, (6, 7, 2))
    crops = np.stack([transform_points(build_matrix(region, crop_size), each) for region, each in zip(regions, points)])
    cells = find_cells(crops, crop_size, heatmap_size)
    np.testing.assert_allclose(map_cells(cells, regions, heatmap_size), points, atol=1e-4)


def test_a_rotation_keeps_the_center_and_lengths():
    region, crop_size = np.array([50.0, 40, 47, 63]), (64, 48)  # a pixel of the crop for one of the image
    matrix = build_matrix(region, crop_size, 90)
    np.testing.assert_allclose(transform_points(matrix, region[:2]), [23.5, 31.5])
    np.testing.assert_allclose(transform_points(matrix, region[:2] + [10, 0]), [23.5, 41.5])  # right becomes down
    np.testing.assert_allclose(
        transform_points(invert_matrix(matrix), transform_points(matrix, np.array([[3.0, 4]]))), [[3, 4]]
    )
