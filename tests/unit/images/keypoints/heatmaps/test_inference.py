"""Objects from heatmaps: their places and scores, and those that are found twice."""

import math
import warnings

import numpy as np
import paddle

from paddlevit_dist.core import settings
from paddlevit_dist.images.keypoints.detected_keypoints import DetectedKeypoints
from paddlevit_dist.images.keypoints.heatmaps.boxes import ObjectBoxes
from paddlevit_dist.images.keypoints.heatmaps.channels import PointChannels
from paddlevit_dist.images.keypoints.heatmaps.inference import KeypointFinder, score_objects, suppress_similar
from paddlevit_dist.images.keypoints.heatmaps.samples import CropConfig, ImageCrops, collate
from paddlevit_dist.images.keypoints.heatmaps.targets import flip_back
from paddlevit_dist.images.keypoints.keypoint_set import KeypointSet

SETS = [KeypointSet(("a", "b"), (), (0.05, 0.1), ()), KeypointSet(("a",), (), (0.05,), ())]


def test_the_score_is_the_mean_of_points_that_are_seen():
    scores = np.array([[0.9, 0.5, 0.1], [0.2, 0.1, 0.0], [0.3, 0.2, 0.2]])
    np.testing.assert_allclose(score_objects(scores, 0.2), [0.7, 0, 0.3])


def detect(points, scores, labels):
    points = np.array(points, np.float32)
    boxes = np.tile(np.array([0, 0, 100, 100], np.float32), (len(points), 1))
    return DetectedKeypoints(points, np.array(scores, np.float32), np.array(labels), boxes)


def test_the_worse_of_similar_objects_of_a_category_is_removed():
    first, near, far = [[10, 10, 1], [50, 50, 1]], [[12, 10, 1], [50, 50, 1]], [[30, 10, 1], [80, 50, 1]]
    found = detect([first, near, far, near], [0.5, 0.8, 0.1, 0.3], [0, 0, 0, 1])
    # OKS of the first two: exp(-4 / (2 * 0.01 * 10000)) and 1
    similarity = (np.exp(-4 / 200) + 1) / 2
    assert suppress_similar(found, SETS, similarity + 1e-6).tolist() == [1, 0, 3, 2]
    assert suppress_similar(found, SETS, similarity - 1e-6).tolist() == [1, 3, 2]


def test_objects_of_equal_scores_stay_in_their_order():
    scores = np.random.default_rng(0).integers(0, 3, 60) / 2
    found = detect([[[500 * place, 10, 1], [500 * place, 60, 1]] for place in range(60)], scores, [0] * 60)
    assert suppress_similar(found, SETS, 0.5).tolist() == sorted(range(60), key=lambda place: -scores[place])


def test_objects_that_are_equal_or_have_no_points_stay():
    sets = [*SETS, KeypointSet((), (), (), ())]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for label in range(3):
            found = detect([[[10, 10, 1], [50, 50, 1]]] * 2, [0.5, 0.8], [label] * 2)
            assert suppress_similar(found, sets, 1.0).tolist() == [1, 0]


def test_similarity_depends_on_the_mean_area_of_both_boxes():
    found = detect([[[10, 10, 1]], [[22, 10, 1]]], [0.5, 0.8], [1, 1])
    found.boxes[0, 2:] = 200, 150
    similarity = math.exp(-(12**2) / (2 * 0.1**2 * (10_000 + 30_000) / 2))
    assert suppress_similar(found, SETS, similarity + 1e-6).tolist() == [1, 0]
    assert suppress_similar(found, SETS, similarity - 1e-6).tolist() == [1]


def test_many_objects_are_found_in_several_passes_in_their_order():
    """The pixels of crop k are 2 * k and the peak of its map is k / 100; the first map is negative."""
    words = ["TASK", "keypoint_heatmaps", "HEATMAPS.KERNEL", "1", "HEATMAPS.POINT_SCORE", "0.305"]
    keys, tip = settings.load(words).values.HEATMAPS, KeypointSet(("tip",), (), (0.1,), ())
    peak = np.outer([0.5, 1, 0.5, 0.3], [0.5, 1, 0.75, 0.3, 0.2]).astype(np.float32)
    passes = []

    def model(images):
        passes.append(len(images))
        values = images[:, :1, :1, :1] / 200
        return paddle.where(values > 0, values, paddle.full_like(values, -1.0)) * paddle.to_tensor(peak)

    samples = []
    for index, (first, end) in enumerate([(0, 50), (50, 50), (50, 66)]):
        numbers = np.arange(first, end)
        boxes = numbers[:, None] + [0.0, 10, 40, 30]
        objects = ObjectBoxes(boxes, np.zeros(len(numbers), int), np.full(len(numbers), 0.5))
        pixels = np.ones((1, 3, 8, 10), np.uint8) * (2 * numbers[:, None, None, None]).astype(np.uint8)
        samples.append(ImageCrops(index, (90, 90), objects, pixels))
    batch = {**collate(samples), "images": paddle.to_tensor(collate(samples)["images"])}
    config, channels = CropConfig((8, 10), (4, 5), 1.25, 1.0), PointChannels(["thing"], [tip])
    finder = KeypointFinder(keys, config, channels, [tip], lambda pixels: pixels.astype("float32"), None, False, False)
    found = finder(model, batch)
    assert passes == [64, 2] and [len(each.labels) for each in found] == [50, 0, 16]
    k = np.arange(66.0)
    points, scores = (np.concatenate([each[place] for each in found]) for place in range(2))
    np.testing.assert_allclose(points[:, 0, 2], k / 100, rtol=1e-5)
    np.testing.assert_allclose(scores, np.where(k > 30, 0.5 * k / 100, 0), rtol=1e-5)
    assert {column.dtype for each in found for column in (each.points, each.scores, each.boxes)} == {np.dtype("f4")}
    corners = np.concatenate([each.boxes for each in found])
    np.testing.assert_allclose(corners, np.stack([k, k + 10, 2 * k + 40, 2 * k + 40], 1))
    # Newton's step of the logarithms of the largest row; the largest value of a negative map is in its last cell
    cells = np.where(k[:, None] > 0, [1 - 0.5 * math.log(0.75 / 0.5) / math.log(0.75 * 0.5), 1], [4, 3])
    sides = np.maximum(k[:, None] + [40, 30], (k[:, None] + [30, 40]) * [1.25, 0.8])  # with the crop's proportions
    centers = np.stack([k + (k + 40) / 2, k + 10 + (k + 30) / 2], 1)
    np.testing.assert_allclose(points[:, 0, :2], centers + 1.25 * sides * (cells / [4, 3] - 0.5), rtol=1e-5)


def test_heatmaps_of_crops_and_of_mirrored_crops_are_averaged():
    """The network returns twice its input as heatmaps, so that mirrored ones differ by the exchange of points alone."""
    keys = settings.load(["TASK", "keypoint_heatmaps"]).values.HEATMAPS
    points = KeypointSet(("left", "right", "middle"), ((0, 1),), (0.1,) * 3, ())
    config, channels = CropConfig((4, 5), (4, 5), 1.25, 1.0), PointChannels(["thing"], [points])
    crops = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 5)).astype(np.uint8)
    for mirrors, expected in ((False, 2.0 * crops), (True, 1.0 * crops + crops[:, [1, 0, 2]])):
        finder = KeypointFinder(keys, config, channels, [points], lambda pixels: pixels / 2, None, mirrors, False)
        found = finder.compute_maps(lambda images: 4 * images, paddle.to_tensor(crops).astype("float32")).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_mirrored_heatmaps_return():
    maps = np.arange(24.0).reshape(1, 3, 2, 4)
    found = flip_back(paddle.to_tensor(maps), [1, 0, 2]).numpy()
    np.testing.assert_array_equal(found, maps[:, [1, 0, 2], :, ::-1])
