"""Crops of objects with the points of all heatmaps."""

from types import SimpleNamespace

import numpy as np
from PIL import Image

from paddlevit_dist.images.keypoints.drawn_samples import draw_crop
from paddlevit_dist.images.keypoints.heatmaps.channels import PointChannels
from paddlevit_dist.images.keypoints.heatmaps.crops import build_matrix, fit_regions, transform_points
from paddlevit_dist.images.keypoints.heatmaps.drawn_samples import CropDrawing, join_points
from paddlevit_dist.images.keypoints.heatmaps.samples import CropConfig, collate, crop_object
from paddlevit_dist.images.keypoints.keypoint_set import KeypointSet


def test_heatmaps_of_all_categories_have_their_lines_and_each_pair_once():
    hand = KeypointSet(("tip", "nose"), (), (0.05, 0.05), ((1, 0),))
    foot = KeypointSet(("heel", "toe", "ankle"), ((0, 1),), (0.05,) * 3, ((0, 2), (2, 1)))
    sets = [foot, hand, foot]
    joined = join_points(SimpleNamespace(channels=PointChannels(["dog", "hand", "cat"], sets), keypoint_sets=sets))
    assert joined == KeypointSet(
        ("heel", "toe", "ankle", "tip", "nose"), ((0, 1),), (1.0,) * 5, ((0, 2), (2, 1), (4, 3))
    )


def test_a_batch_is_drawn_with_the_points_that_are_learned_at_their_pixels():
    points = KeypointSet(("left", "right", "middle"), ((0, 1),), (0.05,) * 3, ((0, 2),))
    config = CropConfig((96, 64), (24, 16), 1.25, 2.0)
    task = SimpleNamespace(
        crop_size=config.crop_size, crops=config, channels=PointChannels(["thing"], [points]), keypoint_sets=[points]
    )
    random, box, samples, expected = np.random.default_rng(0), np.array([35.0, 25, 40, 30]), [], []
    matrix = build_matrix(fit_regions(box, config.crop_size)[0], config.crop_size)
    for visibilities in ([2, 1, 2], [0, 2, 0]):
        image = Image.fromarray(random.integers(0, 256, (90, 120, 3)).astype(np.uint8))
        places = np.array([[40.0, 30], [70, 41], [55, 50]])
        seen = np.column_stack([places, visibilities])
        samples.append(crop_object(image, box, seen, 0, config, task.channels, np.random.default_rng(0)))
        is_shown = seen[:, 2] > 0
        expected.append(draw_crop(samples[-1].image, transform_points(matrix, places), is_shown, points))
    drawn = CropDrawing(task).visualize_batch(None, collate(samples), 1)
    assert [caption for _, caption in drawn] == ["3 points", "1 point"]
    for (pixels, _), wanted in zip(drawn, expected):
        np.testing.assert_array_equal(pixels, wanted)
