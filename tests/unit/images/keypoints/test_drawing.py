"""Skeletons on images, pixel by pixel."""

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.images.detection.data.image_annotations import ImageAnnotations
from paddlevit_dist.images.detection.drawing import CROWD, CanvasPen, get_label_colors
from paddlevit_dist.images.drawing import CELL_PX
from paddlevit_dist.images.keypoints import drawing
from paddlevit_dist.images.keypoints.detected_keypoints import DetectedKeypoints
from paddlevit_dist.images.keypoints.drawing import FIRST, MIDDLE, SECOND, DrawnObjects
from paddlevit_dist.images.keypoints.keypoint_set import COCO_PERSON, KeypointSet

FACE = KeypointSet(("left", "right", "chin"), ((0, 1),), (0.1,) * 3, ((0, 1), (0, 2)))
PLACES = np.array([[[100, 100], [200, 100], [100, 300]]], float)
BACKGROUND = np.full((400, 400, 3), 90, np.uint8)


def draw(marks, places=PLACES, points=FACE, **options):
    labels, boxes = np.zeros(len(places), int), np.tile([20.0, 20, 300, 350], (len(places), 1))
    return drawing.draw_keypoints(
        BACKGROUND, DrawnObjects(places, np.array(marks), labels, boxes, **options), [points], ["face"]
    )


def test_points_and_lines_have_the_colors_of_their_side():
    drawn = draw([[2, 2, 2]])
    assert tuple(drawn[100, 100]) == FIRST and tuple(drawn[100, 200]) == SECOND and tuple(drawn[300, 100]) == MIDDLE
    assert tuple(drawn[100, 150]) == tuple(drawn[200, 100]) == MIDDLE  # lines between different colors
    assert (drawn[200, 200] == 90).all()
    for edge in (drawn[:, 150], drawn[200]):  # seen on a background of any color
        assert (edge == 0).all(axis=1).sum() >= 2
    same = draw([[2, 2, 2]], points=FACE._replace(pairs=((0, 2), (1, 1))))
    assert tuple(same[100, 200]) == MIDDLE and tuple(same[200, 100]) == MIDDLE


def test_hidden_points_are_hollow_and_unlabeled_ones_and_their_lines_are_not_drawn():
    drawn = draw([[2, 1, 0]], points=FACE._replace(skeleton=((0, 2),)))
    assert tuple(drawn[100, 100]) == FIRST and (drawn[100, 200] == 90).all()
    ring = drawn[90:111, 190:211].reshape(-1, 3)
    assert (ring == SECOND).all(axis=1).any()
    assert (drawn[200:] == 90).all() and (drawn[:80] == 90).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e12])
def test_points_far_away_are_not_drawn(bad):
    places = PLACES.copy()
    places[0, 2, 0] = bad
    np.testing.assert_array_equal(draw([[2, 2, 2]], places), draw([[2, 2, 0]]))


def test_the_most_certain_object_is_in_front_and_small_images_are_enlarged():
    both = np.concatenate(
        [PLACES, PLACES[:, [1, 0, 2]]]
    )  # the left point of one is where the right one of the other is
    for scores, color in (((0.1, 0.9), SECOND), ((0.9, 0.1), FIRST)):
        assert tuple(draw([[2, 2, 2]] * 2, both, scores=np.array(scores))[100, 100]) == color
    small = drawing.draw_keypoints(BACKGROUND[:40, :40], DrawnObjects.from_annotations(annotate([2])), [FACE], ["face"])
    assert small.shape == (CELL_PX, CELL_PX, 3) and tuple(small[80, 80]) == FIRST


def test_names_and_scores_are_at_their_boxes_the_most_certain_first():
    boxes = np.array([[20.0, 60, 150, 200], [30, 62, 160, 210], [200, 60, 300, 90], [210, 150, 300, 250]])
    labels, names = np.array([0, 1, -1, 1]), ["face", "mask"]
    marks, places = np.zeros((4, 3), int), np.tile(PLACES, (4, 1, 1))  # no point is drawn
    for scores, texts, order in (
        ([0.25, 0.756, 0.5, 0.75], ["face 0.25", "mask 0.76", "0.50", "mask 0.75"], (1, 3, 2, 0)),
        (None, ["face", "mask", "", "mask"], (3, 1, 0)),
    ):
        objects = DrawnObjects(places, marks, labels, boxes, None if scores is None else np.array(scores))
        canvas, plates = Image.fromarray(BACKGROUND), []
        pen, colors = CanvasPen(canvas), get_label_colors(labels, 2)
        pen.frame(boxes[2], CROWD)
        for place in order:
            pen.name(boxes[place], texts[place], colors[place], plates)
        drawn = drawing.draw_keypoints(BACKGROUND, objects, [FACE], names)  # masks have no points
        np.testing.assert_array_equal(drawn, np.asarray(canvas))


def test_points_and_lines_of_large_images_are_larger_and_points_beyond_a_skeleton_are_not_drawn():
    image = np.full((300, 1100, 3), 90, np.uint8)
    places = np.array([[[100, 100], [500, 100], [800, 200], [50, 250]]], float)
    objects = DrawnObjects(places, np.array([[2, 1, 2, 2]]), np.zeros(1, int), np.zeros((1, 4)))
    face = FACE._replace(skeleton=((0, 1), (0, 4)))
    drawn = drawing.draw_keypoints(image, objects, [face], ["face"])
    is_drawn = (drawn != 90).any(axis=2)
    assert is_drawn[:, 100].sum() == 21 and is_drawn[:, 300].sum() == 7  # radius 10, width 5 and a border of 1
    assert (drawn[90:111, 800] == 90).all() and is_drawn[190:211, 800].all() and not is_drawn[240:].any()
    ring = (drawn[90:111, 500] == SECOND).all(axis=1)
    assert ring.tolist() == [True] * 3 + [False] * 15 + [True] * 3


def annotate(seen, is_crowd=False):
    points = np.zeros((1, 3, 3))
    points[0, : len(seen)] = [(10, 10, visibility) for visibility in seen]
    return ImageAnnotations(
        np.array([[5.0, 5, 20, 20]]), np.zeros(1, int), np.ones(1), np.array([is_crowd]), np.ones(1, int), points=points
    )


def test_crowds_are_gray_boxes():
    drawn = drawing.draw_keypoints(BACKGROUND, DrawnObjects.from_annotations(annotate([2], True)), [FACE], ["face"])
    assert tuple(drawn[5, 15]) == CROWD and (drawn[10, 10] == 90).all()


def test_what_is_detected_is_filled_from_a_score_on_and_named_if_there_are_several_categories():
    points = np.array([[[10, 10, 0.31], [30, 10, 0.29], [10, 30, 0.9]], [[np.nan, 1, 1]] * 3], np.float32)
    shown = DrawnObjects.from_detected(DetectedKeypoints(points, np.ones(2, np.float32), np.zeros(2, int)))
    assert shown.marks.tolist() == [[2, 1, 2]] and shown.boxes.tolist() == [[10, 10, 30, 30]]
    cell = drawing.fit_in_cell(BACKGROUND[:100, :50], shown, [FACE, FACE], ["face", "mask"])
    assert cell.shape == (CELL_PX, CELL_PX, 3) and (cell[:, 161:] == 255).all()
    assert tuple(cell[32, 32]) == FIRST and (cell[:, :160] != 90).any()
    assert drawing.list_colors([FACE._replace(pairs=((2, 2),)), COCO_PERSON]) == [
        ("left_eye and so on", FIRST),
        ("right_eye and so on", SECOND),
        ("other points, and lines between colors", MIDDLE),
        ("a crowd", CROWD),
    ]
    assert drawing.list_colors([FACE._replace(pairs=((2, 2),))]) == [("points", MIDDLE), ("a crowd", CROWD)]
