"""Crops of objects: where their points are, mirrored, turned and shifted."""

import pickle

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.images.detection.data.samples import DetectionSample
from paddlevit_dist.images.keypoints.data.drawn_figures import DrawnFigures
from paddlevit_dist.images.keypoints.heatmaps.boxes import WholeImages
from paddlevit_dist.images.keypoints.heatmaps.channels import PointChannels
from paddlevit_dist.images.keypoints.heatmaps.crops import BOX_SCALE
from paddlevit_dist.images.keypoints.heatmaps.samples import (
    CropConfig,
    ImageInput,
    ObjectCrops,
    change_region,
    crop_object,
    cut_crops,
)
from paddlevit_dist.images.keypoints.keypoint_set import KeypointSet

POINTS = KeypointSet(("left", "right", "middle"), ((0, 1),), (0.05,) * 3, ())
CHANNELS = PointChannels(["thing"], [POINTS])
CONFIG = CropConfig((96, 64), (24, 16), BOX_SCALE, 2.0)
PLACES = np.array([[40.0, 30], [70, 50], [55, 60]])  # in the image
COLORS = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255]], np.uint8)


def draw():
    """Draw a spot of another color at each point."""
    pixels = np.zeros((90, 120, 3), np.uint8)
    for (x, y), color in zip(PLACES.astype(int), COLORS):
        pixels[y - 3 : y + 4, x - 3 : x + 4] = color
    return Image.fromarray(pixels)


def find_spots(crop):
    """Find the center of each color in a crop, x and y."""
    return np.array([np.argwhere(crop[k] > 128).mean(axis=0)[::-1] for k in range(3)])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("flip", [0.0, 1.0])
def test_points_follow_their_pixels(seed, flip):
    config = CONFIG._replace(shift=0.1, scale=0.2, rotation=30.0, flip=flip)
    points = np.column_stack([PLACES, [2, 1, 2]])
    box = np.array([35.0, 25, 40, 40])
    found = crop_object(draw(), box, points, 0, config, CHANNELS, np.random.default_rng(seed))
    assert found.image.shape == (3, 96, 64) and found.weights.tolist() == [1, 1, 1]
    cells = find_spots(found.image) * (np.array([15, 23]) / (63, 95))
    if flip:  # the left point is drawn in red, and a mirrored object has its right point there
        cells = cells[[1, 0, 2]]
    np.testing.assert_allclose(found.cells, cells, atol=0.15)


def test_an_image_without_boxes_has_no_crops_of_the_same_kind():
    planes = np.zeros((3, 9, 7), np.uint8)
    for number in (0, 2):
        crops = cut_crops(planes, np.tile([1.0, 1, 4, 5], (number, 1)), CONFIG)
        assert crops.shape == (number, 3, 96, 64) and crops.dtype == np.uint8


def test_an_image_without_annotations_is_one_object_of_each_category_or_waits_for_a_detector():
    image, whole = draw(), WholeImages([2, 0])
    planes = np.asarray(image).transpose(2, 0, 1)
    sample = ImageInput(CONFIG, whole)(image, None)
    assert (sample.index, sample.size, sample.stored, sample.detected) == (-1, (90, 120), None, None)
    for found, expected in zip(sample.objects, whole(0, (90, 120), None), strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(sample.crops, cut_crops(planes, np.array([[0.0, 0, 120, 90]] * 2), CONFIG))

    def prepare(given, generator):
        assert given is image
        size = given.height, given.width
        return DetectionSample(generator, False, planes[:1], size, np.zeros((0, 4)), np.zeros(0, int))

    sample = ImageInput(CONFIG, None, prepare)(image, 7)
    assert (sample.index, sample.size, sample.objects, len(sample.crops)) == (-1, (90, 120), None, 0)
    assert sample.detected.index == -1
    np.testing.assert_array_equal(sample.stored, planes)


def test_points_without_a_label_have_no_weight():
    points = np.column_stack([PLACES, [2, 0, 1]])
    found = crop_object(draw(), np.array([35.0, 25, 40, 40]), points, 0, CONFIG, CHANNELS, np.random.default_rng(0))
    assert found.weights.tolist() == [1, 0, 1]
    mirrored = CONFIG._replace(flip=1.0)
    found = crop_object(draw(), np.array([35.0, 25, 40, 40]), points, 0, mirrored, CHANNELS, np.random.default_rng(0))
    assert found.weights.tolist() == [0, 1, 1]


def test_colors_change_and_places_stay_where_the_key_says_so():
    points, box = np.column_stack([PLACES, [2, 1, 2]]), np.array([35.0, 25, 40, 40])
    plain, changed = (
        crop_object(
            Image.eval(draw(), lambda level: 40 + level // 2),
            *(box, points, 0, CONFIG._replace(jitter=jitter), CHANNELS, np.random.default_rng(0)),
        )
        for jitter in (0.0, 0.4)
    )
    np.testing.assert_array_equal(changed.cells, plain.cells)
    assert plain.image.max() == 167 and (changed.image != plain.image).mean() > 0.01


def test_each_object_with_points_is_a_sample_of_its_image_before_and_after_changes_of_it(tmp_path):
    dataset = DrawnFigures(None, "train", tmp_path, num_train=4)
    channels = PointChannels(dataset.class_names, dataset.keypoint_sets)
    samples = pickle.loads(pickle.dumps(ObjectCrops(dataset, CONFIG, channels, tmp_path)))
    objects = [(image, place) for image in range(4) for place in range(len(dataset.annotations(image).labels))]
    assert len(samples) == len(objects) > 4
    number_outside = 0

    def widen(image, box, points, label, generator):
        """Move an object to the right of the square below, and cut the image at its second point."""
        shift = (image.width + label, 0, 0, 0)
        wide = Image.new("RGB", (shift[0] + int(points[1, 0] - 5 * label - 0.5 * generator.random()), image.height))
        wide.paste(image, shift[:2])
        return wide, box + shift, points + shift[:3]

    for index, (image, place) in enumerate(objects):
        stored, truth = dataset.read(image)
        box, points, label = truth.boxes[place], truth.points[place], int(truth.labels[place])
        for augment in (None, widen):
            samples.augment = augment
            found = samples.read_sample(index, np.random.default_rng(index))
            generator, own = np.random.default_rng(index), (stored, box, points)
            if augment is not None:
                own = augment(*own, label, generator)
                own[2][own[2][:, 0] >= own[0].width] = 0  # not labeled
                number_outside += int(np.sum(own[2][1, 2] == 0))
            expected = crop_object(*own, label, CONFIG, channels, generator)
            np.testing.assert_array_equal(found.image, expected.image)
            np.testing.assert_array_equal(found.weights, expected.weights)
            is_known = expected.weights > 0
            np.testing.assert_array_equal(found.cells[is_known], expected.cells[is_known])
            assert is_known.any() or augment is not None
    assert number_outside > 1


def test_changes_of_regions_have_their_shares_and_limits():
    config = CONFIG._replace(shift=0.16, scale=0.3, rotation=40.0)
    generator, region = np.random.default_rng(0), np.array([50.0, 40, 30, 20])
    changed, angles = zip(*(change_region(region, config, generator) for _ in range(4000)))
    changed, angles = np.array(changed), np.array(angles)
    assert (angles != 0).mean() == pytest.approx(0.6, abs=0.03) and np.abs(angles).max() == pytest.approx(80)
    assert (changed[:, 0] != 50).mean() == pytest.approx(0.3, abs=0.03)
    assert np.abs(changed[:, 0] - 50).max() <= 0.32 * 30 + 1e-9
    np.testing.assert_allclose(changed[:, 2] / changed[:, 3], 1.5)
    assert changed[:, 2].min() == pytest.approx(21) and changed[:, 2].max() == pytest.approx(39)
