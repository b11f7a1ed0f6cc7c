"""Images of figures: the same everywhere, with boxes and points that are where they are drawn."""

import hashlib

import numpy as np
import pytest

from paddlevit_dist.core.settings import load
from paddlevit_dist.images.keypoints.data.drawn_figures import DrawnFigures, _fill
from paddlevit_dist.images.keypoints.data.figures import Line


@pytest.fixture(scope="module")
def figures():
    return DrawnFigures(None, "train", None, num_train=40, per_image=(1, 4))


def test_images_are_the_same_on_every_machine(figures):
    digest = hashlib.sha256()
    for index in range(4):
        image, annotations = figures.read(index)
        digest.update(np.asarray(image).tobytes())
        digest.update(annotations.points.tobytes() + annotations.boxes.tobytes())
    assert digest.hexdigest()[:16] == "659ca81af4b88abd"
    digest = hashlib.sha256()
    crowded = DrawnFigures(None, "train", None, num_train=40, sides=(24, 40), per_image=(3, 6))
    for annotations in (crowded.annotations(index) for index in range(40)):
        digest.update(annotations.points.tobytes() + annotations.boxes.tobytes() + annotations.labels.tobytes())
    assert digest.hexdigest()[:16] == "c4de64d6beb23b90"


def test_keys_say_what_is_drawn():
    words = "TRAIN 7 VAL 5 SIDES [20,31] OBJECTS_PER_IMAGE [2,3]".split()
    words = [f"DATA.SHAPES.{word}" if word.isalpha() or "_" in word else word for word in words]
    config = load(["-cfg=heatmap_figures", *words, "KEYPOINTS.FIGURES", "[hand,person]"]).values
    for split, number in (("train", 7), ("val", 5)):
        opened = DrawnFigures.open(config, split, None)
        own = DrawnFigures(None, split, None, 7, 5, sides=(20, 31), per_image=(2, 3), categories=("hand", "person"))
        assert opened.summary() == own.summary() == f"{number} drawn images of 2 to 3 figures each: hand, person"
        assert opened.category_ids == (1, 2) and opened.class_names == ["hand", "person"]
        assert opened.read(number - 1)[0].tobytes() == own.read(number - 1)[0].tobytes()


def test_images_are_counted_and_figures_are_not(figures):
    assert figures.summary() == "40 drawn images of 1 to 4 figures each: person, hand"
    one = DrawnFigures(None, "val", None, num_val=9, per_image=(2, 2))
    assert one.summary(np.array([3, 7, 8])) == "3 drawn images of 2 figures each: person, hand"


def test_more_images_and_another_split_leave_the_first_ones(figures):
    more = DrawnFigures(None, "train", None, num_train=50, per_image=(1, 4))
    other = DrawnFigures(None, "val", None, num_val=40, per_image=(1, 4))
    np.testing.assert_array_equal(more.annotations(7).points, figures.annotations(7).points)
    assert not np.array_equal(np.asarray(other.read(7)[0]), np.asarray(figures.read(7)[0]))


def test_points_of_each_visibility_are_where_the_figures_are(figures):
    found = np.zeros(3, int)
    for index in range(len(figures)):
        scene = figures.draw_scene(index)
        owner = np.full((scene.height, scene.width), -1)  # figure in front at each pixel
        for place, figure in enumerate(scene.figures):
            owner[_fill(figure.body, scene.height, scene.width)] = place
        for bar in scene.bars:
            owner[_fill([bar], scene.height, scene.width)] = 99
        annotations = figures.annotations(index)
        for place, (label, points) in enumerate(zip(annotations.labels, annotations.points)):
            for x, y, visibility in points[: len(figures.keypoint_sets[label].names)]:
                found[int(visibility)] += 1
                if visibility:
                    near = (
                        owner[round(y), round(x)]
                        if 0 <= round(y) < scene.height and 0 <= round(x) < scene.width
                        else -1
                    )
                    around = owner[max(0, int(y) - 1) : int(y) + 3, max(0, int(x) - 1) : int(x) + 3]
                    assert (
                        near == place
                        or (visibility == 2 and place in around)
                        or (visibility == 1 and (around > place).any())
                    )
                else:
                    assert x == y == 0
    assert found.min() > 0


def test_boxes_surround_the_drawn_pixels(figures):
    for index in range(len(figures)):
        scene, boxes = figures.draw_scene(index), figures.annotations(index).boxes
        for figure, (x, y, width, height) in zip(scene.figures, boxes):
            rows, columns = np.nonzero(_fill(figure.body, scene.height, scene.width))
            drawn = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
            np.testing.assert_allclose((x, y, x + width, y + height), drawn, atol=3)
            assert x >= 0 and y >= 0 and x + width <= scene.width and y + height <= scene.height


def test_annotations_are_known_without_drawing(figures):
    for column, expected in zip(figures.annotations(3), figures.read(3)[1], strict=True):
        np.testing.assert_array_equal(column, expected)
    truth = figures.annotations(3)
    assert truth.ids.tolist() == [400 + place for place in range(len(truth.labels))] and not truth.is_crowd.any()
    np.testing.assert_allclose(truth.areas, truth.boxes[:, 2] * truth.boxes[:, 3], rtol=1e-12)
    assert figures.posed_objects()[0].tolist() == [0, 0] and figures.size(3) == figures.read(3)[0].size[::-1]
    assert figures.can_mirror and figures.mirrors.tolist() == [[0, 1, 3, 2, 4, 6, 5], [0, 1, 2, 3, 4, 5, 6]]


@pytest.mark.parametrize(
    ("kind", "lines", "pairs"),
    [
        (
            "person",
            "head-neck neck-left_hand neck-right_hand neck-hip hip-left_foot hip-right_foot",
            "head neck left_hand-right_hand hip left_foot-right_foot",
        ),
        (
            "hand",
            "wrist-thumb wrist-index_finger wrist-middle_finger wrist-ring_finger wrist-little_finger",
            "wrist thumb index_finger middle_finger ring_finger little_finger",
        ),
    ],
)
def test_lines_of_a_drawing_and_mirrored_points_are_those_of_the_names(figures, kind, lines, pairs):
    points = figures.keypoint_sets[figures.class_names.index(kind)]
    assert points.sigmas == (0.05,) * len(points.names)
    for links, expected in ((points.skeleton, lines), (points.pairs, pairs)):
        assert ["-".join(dict.fromkeys(points.names[end] for end in link)) for link in links] == expected.split()


def test_lines_are_filled_as_distances_say():
    line, grid = Line((100, 40), (40, 160), 30), np.arange(0, 200, 7)
    x, y = np.meshgrid(grid, grid)
    start, along = np.array(line.start), np.subtract(line.end, line.start)
    share = np.clip(((x - start[0]) * along[0] + (y - start[1]) * along[1]) / (along @ along), 0, 1)
    distances = np.hypot(x - start[0] - share * along[0], y - start[1] - share * along[1])
    np.testing.assert_array_equal(line.fill(x, y), distances <= 30)


@pytest.mark.parametrize(
    ("start", "end", "extent"),
    [
        ((-900, 50), (60, 50), (0, 40, 70, 60)),
        ((-900, 50), (-60, 50), None),
        ((140, 30), (900, 50), None),
        ((30, -20), (20, -70), None),
        ((-50, 0), (-50, 40), None),
        ((0, 99), (40, 99), None),
        ((50, 95), (60, 95), None),
        ((-10, 10), (-40, 50), None),  # only its round end touches the border
        ((50, 90), (60, 99), None),
        ((50, 89), (60, 90), (40, 79, 70, 80)),
        ((20, 40), (20, 30), (10, 20, 30, 50)),
        ((-40, 20), (60, 120), (0, 40, 40, 80)),  # first at x -10, to y 50, and then at y 90, to x 30
        ((60, 120), (-40, 20), (0, 40, 40, 80)),
        ((150, -50), (90, 10), (80, 0, 120, 20)),  # first at x 130, to y -30, and then at y -10, to x 110
        ((150, -90), (127, 30), (117, 4, 120, 40)),  # at x 130, to y 14.3
    ],
)
def test_a_line_is_cut_where_it_leaves_the_image_by_more_than_its_radius(start, end, extent):
    assert Line(start, end, 10).find_extent(80, 120) == extent
