"""Keypoints move with their image: a square of a color at each point is found where the point is said to be."""

import json

import numpy as np
import pytest
from PIL import Image
from support.samples.marked_points import MIRROR, draw_marked, find_color

from paddlevit_dist.images.detection.data.composition import ImageComposition, ImageObjects, join_images, paste_objects
from paddlevit_dist.images.detection.data.object_points import ObjectPoints
from paddlevit_dist.images.detection.data.transforms import DetectionTrainingTransform, crop, flip, resize, zoom_out
from paddlevit_dist.images.transforms.albumentations_file import AlbumentationsFile


def compare(marked, image, points, objects, is_mirrored, atol=0.6):
    """Check the labeled points in an image; also return how many of them there are."""
    number = 0
    for row, place in enumerate(objects):
        for point in range(3):
            x, y, visibility = points.places[row, point]
            source = MIRROR[point] if is_mirrored else point
            if visibility:
                assert visibility == marked.points.places[place, source, 2]
                found = find_color(image, 3 * place + source)
                if found is not None:
                    np.testing.assert_allclose((x, y), found, atol=atol)
                    number += 1
            else:
                assert x == y == 0
    return number


@pytest.mark.parametrize("is_mirrored", [False, True])
def test_points_of_a_crop_are_where_their_pixels_are(is_mirrored):
    marked = draw_marked(1)
    view = marked.view()
    view = crop(flip(view) if is_mirrored else view, 8, 15, (70, 80))
    assert compare(marked, view.image, view.points, view.objects, is_mirrored, atol=0) >= 2
    for place, points in zip(view.objects, view.points.places):
        moved = marked.points.places[place]
        x = (119 - moved[MIRROR, 0] if is_mirrored else moved[:, 0]) - 15
        moved = moved[MIRROR] if is_mirrored else moved
        is_inside = (x >= 0) & (x <= 79) & (moved[:, 1] >= 8) & (moved[:, 1] <= 77) & (moved[:, 2] > 0)
        assert (points[:, 2] > 0).tolist() == is_inside.tolist()


def test_resizing_keeps_shares_of_the_sides():
    view = draw_marked(2).view()
    resized = resize(view, (45, 240))
    shares = view.points.places[:, :, :2] / (120, 90)
    np.testing.assert_allclose(resized.points.places[:, :, :2] / (240, 45), shares, rtol=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_the_training_transform_takes_points_along(seed):
    marked, generator = draw_marked(seed), np.random.default_rng(seed)
    transform = DetectionTrainingTransform(
        shortest=(90, 100), longest=160, shortest_to_crop=(80, 110), crop_sides=(60, 90), ssd=True, flip_probability=0
    )
    view = transform(marked.view(), generator)
    assert len(view.points.places) == len(view.boxes)
    labeled = view.points.places[view.points.places[:, :, 2] > 0]
    assert (labeled[:, :2] >= -0.5).all() and (labeled[:, :2] <= np.array(view.image.size) - 0.5).all()
    for x, y, _ in labeled:
        color = np.asarray(view.image, int)[min(round(y), view.size[0] - 1), min(round(x), view.size[1] - 1)]
        assert color.max() - color.min() > 25  # the square's color is saturated, the background is gray


def test_a_larger_canvas_moves_points():
    marked = draw_marked(3)
    view = zoom_out(marked.view(), np.random.default_rng(0))
    assert compare(marked, view.image, view.points, view.objects, False, atol=0) == 5


def test_a_mosaic_keeps_the_points_of_its_images():
    images = [draw_marked(seed) for seed in range(4)]
    joined = join_images(images, 200, np.random.default_rng(3))
    labeled = joined.points.places[:, :, 2] > 0
    assert len(joined.points.places) == len(joined.boxes) and labeled.any()
    pixels = np.asarray(joined.image, int)
    for (x, y, _), is_labeled in zip(joined.points.places.reshape(-1, 3), labeled.reshape(-1)):
        if is_labeled:  # the square's color is saturated, the background is gray
            color = pixels[min(round(y), 199), min(round(x), 199)]
            assert color.max() - color.min() > 60


def test_pasted_objects_hide_points():
    plain = draw_marked(4)
    whole = [np.ones((90, 120), np.uint8), np.ones((90, 120), np.uint8)]
    marked = plain._replace(masks=whole)
    for seed in range(6):
        pasted = paste_objects(marked, draw_marked(5)._replace(masks=whole), np.random.default_rng(seed))
        if len(pasted.boxes) > 2:
            break
    covered = np.asarray(pasted.image) != np.asarray(plain.image)
    for row in range(2):
        for before, after in zip(plain.points.places[row], pasted.points.places[row]):
            hides = covered[int(before[1]), int(before[0])].any()
            assert after[2] == (min(before[2], 1) if hides else before[2])


def test_a_point_on_the_border_is_hidden_by_the_last_pixel():
    places = np.array([[[5.5, 3.5, 2], [5.5, 0, 2], [2.0, 3.5, 2]]])
    for row, column, hidden in ((3, 5, 0), (0, 5, 1), (3, 2, 2)):
        mask = np.zeros((4, 6), np.uint8)
        mask[row, column] = 1
        covered = ObjectPoints(places, MIRROR[None], np.ones(1)).cover(mask)
        assert covered.places[0, :, 2].tolist() == [1 if point == hidden else 2 for point in range(3)]


def test_a_point_between_pixels_is_hidden_by_the_nearest():
    places = np.array([[[1.6, 0.4, 2], [1.4, 0.6, 2], [0.6, 0.6, 2], [1.6, 1.4, 2]]])
    covered = ObjectPoints(places, np.arange(4)[None], np.ones(1)).cover(np.uint8([[0, 0, 1], [0, 1, 0]]))
    assert covered.places[0, :, 2].tolist() == [1, 1, 1, 2]


@pytest.mark.parametrize(
    ("height", "width", "inside"),
    [(4, 6, [[1, 1, 0], [0, 0, 0]]), (4, 7, [[1, 1, 1], [0, 0, 0]]), (5, 6, [[1, 1, 0], [1, 0, 0]])],
)
def test_points_on_the_edge_of_an_image_are_inside(height, width, inside):
    places = np.array([[[-0.5, -0.5, 2], [5.5, 3.5, 1], [5.6, 3, 2]], [[5, 3.6, 2], [-0.6, 0, 2], [0, -0.6, 1]]])
    points = ObjectPoints(places, np.tile(MIRROR, (2, 1)), np.array([0.5, 1.0]))
    found = points.hide_outside(height, width).places
    np.testing.assert_array_equal(found, places * np.array(inside)[:, :, None])


STEPS = {
    "mirror": [{"__class_fullname__": "HorizontalFlip", "p": 1.0}],
    "turn": [{"__class_fullname__": "Rotate", "limit": [30, 30], "p": 1.0}],
    "turn and mirror": [
        {"__class_fullname__": "Affine", "rotate": [-20, -20], "scale": [0.95, 0.95], "p": 1.0},
        {"__class_fullname__": "HorizontalFlip", "p": 1.0},
    ],
    "upside down": [{"__class_fullname__": "VerticalFlip", "p": 1.0}],
    "crop": [{"__class_fullname__": "CenterCrop", "height": 60, "width": 70, "p": 1.0}],
}


@pytest.mark.parametrize("name", STEPS)
def test_albumentations_moves_points_and_exchanges_left_and_right(tmp_path, name):
    pytest.importorskip("albumentations")
    file = tmp_path / "steps.json"
    file.write_text(json.dumps({"transform": {"__class_fullname__": "Compose", "transforms": STEPS[name]}}))
    composition = ImageComposition(0, 0, 90, 0, AlbumentationsFile(str(file), has_boxes=True))
    number = 0
    for seed in range(3):
        marked = draw_marked(seed)
        composed = composition.compose(lambda _, marked=marked: marked, 0, 1, np.random.default_rng(seed))
        objects = range(2) if len(composed.boxes) == 2 else [1]
        is_mirrored = "mirror" in name or name == "upside down"
        number += compare(marked, composed.image, composed.points, objects, is_mirrored, atol=1.0)
    assert number >= 6


def test_objects_without_labeled_points_stay_without():
    points = ObjectPoints(np.zeros((2, 3, 3)), np.tile(MIRROR, (2, 1)), np.ones(2))
    assert points.encode().shape == (0, 3)
    followed = points.follow(points.encode(), np.array([1]), np.array([[0.0, 0, 5, 5]]))
    assert followed.places.shape == (1, 3, 3) and not followed.places.any()


def test_repeated_objects_have_the_points_near_them():
    points = ObjectPoints(np.array([[[10.0, 10, 2], [14, 10, 2], [0, 0, 0]]]), MIRROR[None], np.ones(1))
    codes = points.encode()
    reflected = codes * (-1, 1, 1)
    boxes = np.array([[5.0, 5, 20, 20], [-20, 5, -5, 20]])
    followed = points.follow(np.concatenate([codes, reflected]), np.array([0, 0]), boxes).places
    assert followed[0].tolist() == [[10, 10, 2], [14, 10, 2], [0, 0, 0]]
    assert followed[1].tolist() == [[-10, 10, 2], [0, 0, 0], [-14, 10, 2]]  # the copy is a mirror image


def test_objects_without_points_are_as_before():
    image = ImageObjects(Image.new("RGB", (20, 10)), np.array([[1.0, 1, 5, 5]]), np.zeros(1, np.int64), None)
    assert flip(resize(image.view(), (5, 10))).points is None
