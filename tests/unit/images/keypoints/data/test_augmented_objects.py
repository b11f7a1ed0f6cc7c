"""A user's file of Albumentations moves an object's box and points with its image."""

import json
import pickle

import numpy as np
import pytest
from support.samples.marked_points import MIRROR, draw_marked, find_color

from paddlevit_dist.images.keypoints.data.augmented_objects import ObjectAugmentation, hide_outside

pytest.importorskip("albumentations")


def write(tmp_path, *steps, mirrors=MIRROR[None]):
    file = tmp_path / "steps.json"
    file.write_text(json.dumps({"transform": {"__class_fullname__": "Compose", "transforms": list(steps)}}))
    return pickle.loads(pickle.dumps(ObjectAugmentation(str(file), mirrors)))


FLIP = {"__class_fullname__": "HorizontalFlip", "p": 1.0}
CROP = {"__class_fullname__": "Crop", "x_min": 70, "y_min": 0, "x_max": 120, "y_max": 90, "p": 1.0}


def apply(augment, marked, place):
    x0, y0, x1, y1 = marked.boxes[place]
    box = np.array([x0, y0, x1 - x0, y1 - y0])
    return augment(marked.image, box, marked.points.places[place], 0, np.random.default_rng(0))


@pytest.mark.parametrize("place", [0, 1])
def test_box_and_points_follow_the_image(tmp_path, place):
    marked = draw_marked(6)
    image, box, points = apply(write(tmp_path, FLIP), marked, place)
    np.testing.assert_allclose(box, [60 - 60 * place, 0, 60, 90], atol=1e-3)
    for point in range(3):
        if points[point, 2]:
            np.testing.assert_allclose(points[point, :2], find_color(image, 3 * place + MIRROR[point]), atol=1e-6)
    assert (points[:, 2] > 0).sum() == (marked.points.places[place, :, 2] > 0).sum()


def test_a_box_is_cut_at_the_image_and_points_are_exchanged_by_their_category(tmp_path):
    marked, augment = draw_marked(6), write(tmp_path, FLIP, mirrors=np.stack([np.arange(3), MIRROR]))
    places, box = marked.points.places[0], np.array([-6.0, -4, 66, 100])
    for label, mirror in ((0, np.arange(3)), (1, MIRROR)):
        image, moved, points = augment(marked.image, box, places, label, np.random.default_rng(0))
        np.testing.assert_allclose(moved, [60, 0, 60, 90], atol=1e-3)
        expected = (places * (-1, 1, 1) + (119, 0, 0))[mirror]
        np.testing.assert_allclose(points, expected, atol=1e-6)
        assert moved.shape == (4,) and image.size == (120, 90)


def test_an_object_that_would_be_lost_is_not_augmented(tmp_path):
    marked, augment = draw_marked(6), write(tmp_path, CROP)
    image, box, points = apply(augment, marked, 0)
    assert image is marked.image and box.tolist() == [0, 0, 60, 90]
    np.testing.assert_array_equal(points, marked.points.places[0])
    assert apply(augment, marked, 1)[0].size == (50, 90)
    points = marked.points.places[0]
    for box in ([0, 0, 120, 90], [120, 0, 9, 9]):  # only its points are cut off, or it is outside of the image
        found = augment(marked.image, np.array(box, float), points, 0, np.random.default_rng(0))
        assert found[0] is marked.image and found[1].tolist() == box
        np.testing.assert_array_equal(found[2], points)


def test_points_outside_are_not_labeled():
    points = np.array([[3.0, 4, 2], [-1, 4, 2], [3, 9.6, 1], [9.4, 9.4, 1]])
    assert hide_outside(points, 10, 10).tolist() == [[3, 4, 2], [0, 0, 0], [0, 0, 0], [9.4, 9.4, 1]]
