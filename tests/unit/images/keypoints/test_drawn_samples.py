"""Samples with keypoints as images."""

from types import SimpleNamespace

import numpy as np
from PIL import Image

from paddlevit_dist.images.detection.data.samples import HOST
from paddlevit_dist.images.drawing import CELL_PX
from paddlevit_dist.images.keypoints.data.drawn_figures import DrawnFigures
from paddlevit_dist.images.keypoints.drawing import FIRST, MIDDLE, DrawnObjects, fit_in_cell, list_colors
from paddlevit_dist.images.keypoints.drawn_samples import KeypointDrawing, draw_crop
from paddlevit_dist.images.keypoints.keypoint_set import KeypointSet

FACE = KeypointSet(("left", "right", "chin"), ((0, 1),), (0.1,) * 3, ((0, 2),))


def make_drawing(**facts):
    return KeypointDrawing(SimpleNamespace(**facts))


def test_stored_images_have_their_annotations_and_points_are_counted():
    dataset = DrawnFigures(None, "val", None, num_val=3)
    drawing = make_drawing(class_names=dataset.class_names, keypoint_sets=dataset.keypoint_sets)
    samples = SimpleNamespace(dataset=dataset)
    shown = drawing.visualize_eval_samples(samples, [2, 0])
    assert [pixels.shape for pixels, _ in shown] == [(CELL_PX, CELL_PX, 3)] * 2
    for (pixels, caption), index in zip(shown, (2, 0)):
        image, truth = dataset.read(index)
        assert caption == f"{image.width} x {image.height}, {len(truth.labels)} annotated"
        objects = DrawnObjects.from_annotations(truth)
        expected = fit_in_cell(np.asarray(image), objects, dataset.keypoint_sets, dataset.class_names)
        np.testing.assert_array_equal(pixels, expected)
    counts, expected = np.zeros((2, 7, 3), int), ["point                visible    hidden unlabeled"]
    for truth in map(dataset.annotations, range(3)):
        for label, points in zip(truth.labels, truth.points):
            np.add.at(counts[label], (np.arange(7), points[:, 2].astype(int)), 1)
    for category, points, own in zip(dataset.class_names, dataset.keypoint_sets, counts.tolist()):
        for name, row in zip(points.names, own):
            title = f"{category} {name}"
            expected.append(f"{title:18} {row[2]:9} {row[1]:9} {row[0]:9}")
    assert list(drawing.summarize_samples(samples)) == expected and counts.any(axis=(0, 1)).all()
    assert drawing.image_legend() == list_colors(dataset.keypoint_sets)
    assert list(drawing.summarize_samples(SimpleNamespace(dataset="images of a program's own"))) == []


def test_objects_of_other_numbers_of_points_are_counted_each_by_its_own():
    class Uneven(DrawnFigures):
        def count_points(self):
            return np.arange(18).reshape(2, 3, 3) * [1, 10, 1000]  # of two and three points; the spare row is no point

    spider = KeypointSet(("head", "tail"), (), (0.1,) * 2, ((0, 1),))
    drawing = make_drawing(class_names=["spider", "face"], keypoint_sets=(spider, FACE))
    whole = Uneven(None, "val", None, num_val=2)
    assert drawing.summarize_samples(SimpleNamespace(dataset=None, whole=whole)) == [
        "point         visible    hidden unlabeled",
        "spider head     2,000        10         0",
        "spider tail     5,000        40         3",
        "face left      11,000       100         9",
        "face right     14,000       130        12",
        "face chin      17,000       160        15",
    ]


def test_batches_are_drawn_without_their_padding():
    tip = KeypointSet(("tip",), (), (0.1,), ())
    points = np.zeros((2, 2, 3, 3), np.float32)
    points[0, 0] = [(10, 10, 2), (50, 10, 1), (10, 30, 0)]
    points[1] = [[(30, 20, 2), (0, 0, 0), (0, 0, 0)], [(12, 50, 1), (20, 50, 2), (25, 9, 2)]]
    sizes, numbers, labels = np.array([[40, 64], [60, 36]]), np.array([1, 2]), np.array([[0, 0], [1, 0]])
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 64, 80), np.uint8)
    boxes = np.array([[[5, 5, 60, 35], [1, 1, 1, 1]], [[20, 10, 33, 30], [4, 4, 30, 55]]], np.float32)
    facts = {"sizes": sizes, "box_counts": numbers}
    batch = {"images": images, "points": points, "boxes": boxes, "labels": labels, HOST: facts}
    drawing = make_drawing(class_names=["face", "stick"], keypoint_sets=(FACE, tip))
    drawn = drawing.visualize_batch(None, batch, 1)
    assert [caption for _, caption in drawn] == ["64 x 40, 1 object", "36 x 60, 2 objects"]
    assert (drawn[0][0][200:] == 255).all()
    for row, (pixels, _) in enumerate(drawn):
        (height, width), number = sizes[row], numbers[row]
        own = points[row, :number].astype(float)
        objects = DrawnObjects(own[..., :2], own[..., 2], labels[row, :number], boxes[row, :number].astype(float))
        image = np.ascontiguousarray(images[row].transpose(1, 2, 0)[:height, :width])
        np.testing.assert_array_equal(pixels, fit_in_cell(image, objects, (FACE, tip), ("face", "stick")))


def test_crops_show_the_points_that_are_learned():
    crop = np.asarray(Image.new("RGB", (40, 80), (90, 90, 90))).transpose(2, 0, 1)
    places = np.array([[10, 10], [30, 10], [10, 60]], np.float32)
    drawn = draw_crop(crop, places, np.array([True, False, True]), FACE)
    assert drawn.shape == (CELL_PX, CELL_PX, 3)
    assert tuple(drawn[40, 40]) == FIRST and tuple(drawn[240, 40]) == tuple(drawn[140, 40]) == MIDDLE
    assert tuple(drawn[40, 120]) == (90, 90, 90)
