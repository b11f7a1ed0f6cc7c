"""Samples with keypoints as images."""

from types import SimpleNamespace

import numpy as np
from PIL import Image

from paddlevit_dist.images.detection.data.samples import HOST
from paddlevit_dist.images.drawing import CELL_PX
from paddlevit_dist.images.keypoints.data.drawn_figures import DrawnFigures
from paddlevit_dist.images.keypoints.drawing import FIRST, MIDDLE
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
    image, truth = dataset.read(2)
    assert shown[0][1] == f"{image.width} x {image.height}, {len(truth.labels)} annotated"
    lines = drawing.summarize_samples(samples)
    counts = dataset.count_points()
    label, name = 0, dataset.keypoint_sets[0].names[0]
    row = next(line for line in lines if line.startswith(f"{dataset.class_names[0]} {name} "))
    assert [int(word) for word in row.split()[-3:]] == counts[label, 0, ::-1].tolist()
    assert len(lines) == 1 + sum(len(points.names) for points in dataset.keypoint_sets)
    assert drawing.image_legend()[0][1] == FIRST
    assert list(drawing.summarize_samples(SimpleNamespace(dataset="images of a program's own"))) == []


def test_a_batch_is_drawn_without_its_padding():
    image = np.full((1, 3, 64, 80), 90, np.uint8)
    points = np.zeros((1, 2, 3, 3), np.float32)
    points[0, 0] = [(10, 10, 2), (50, 10, 1), (10, 30, 0)]
    batch = {
        "images": image, "points": points, "boxes": np.ones((1, 2, 4), np.float32),
        "labels": np.zeros((1, 2), np.int64), HOST: {"sizes": np.array([[40, 64]]), "box_counts": np.array([1])},
    }  # fmt: skip
    batch["images"][0, :, 40:] = 0
    ((drawn, caption),) = make_drawing(class_names=["face"], keypoint_sets=(FACE,)).visualize_batch(None, batch, 1)
    assert caption == "64 x 40, 1 object"
    assert tuple(drawn[50, 50]) == FIRST and tuple(drawn[150, 50]) == (90, 90, 90)
    assert (drawn[200:] == 255).all()


def test_crops_show_the_points_that_are_learned():
    crop = np.asarray(Image.new("RGB", (40, 80), (90, 90, 90))).transpose(2, 0, 1)
    places = np.array([[10, 10], [30, 10], [10, 60]], np.float32)
    drawn = draw_crop(crop, places, np.array([True, False, True]), FACE)
    assert drawn.shape == (CELL_PX, CELL_PX, 3)
    assert tuple(drawn[40, 40]) == FIRST and tuple(drawn[240, 40]) == tuple(drawn[140, 40]) == MIDDLE
    assert tuple(drawn[40, 120]) == (90, 90, 90)
