"""Labelme's files belong to the split that a folder's name says; outlines that are not valid are refused."""

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.images.data.outline_files import (
    LABELME_JSON,
    YOLO_TEXT,
    draw,
    find_labelme_files,
    list_outlines,
    read_drawing,
    read_labelme_names,
)


@pytest.mark.parametrize(
    ("folder", "split"),
    [("Test", "test"), ("val_set", "val"), ("seg_train", "train"), ("x/Validation/y", "val"), ("station", "train")],
)
def test_folders_of_splits_have_usual_names(tmp_path, folder, split):
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "a.json").write_text("{}", encoding="utf-8")
    assert find_labelme_files(str(tmp_path)) == {str(tmp_path / folder / "a.json"): split}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("2 0 0 0.5 0 0.5 1", [("2", [[0, 0], [10, 0], [10, 8]])]),
        ("2.0 0 -1.9 1.9 0 0.5 1", [("2", [[0, -15.2], [38, 0], [10, 8]])]),
        ("2 0 0 0.5 0", "line 2 is a box, not an outline"),
        ("2 0 0 0.5", "line 2 has 4 numbers; expected class x1 y1"),
        ("2 0 0 0.5 0 0.5", "line 2 has 6 numbers; expected class x1 y1"),
        ("2 0 0 0.5 0 0.5 1 1", "line 2 has 8 numbers; expected class x1 y1"),
        ("2.5 0 0 0.5 0 0.5 1", "line 2 does not begin with the number of a class"),
        ("nan 0 0 0.5 0 0.5 1", "line 2 does not begin with the number of a class"),
        ("2 0 0 0.5 0 0.5 2", "line 2: expected shares of the image from 0 to 1, not pixels"),
        ("2 -2 0 0.5 0 0.5 1", "line 2: expected shares of the image from 0 to 1, not pixels"),
    ],
)
def test_a_line_of_yolo_is_a_class_and_corners(tmp_path, line, expected):
    (tmp_path / "a.txt").write_text(f"\n{line}\n")
    if isinstance(expected, str):
        with pytest.raises(UserError, match=f"a.txt.*{expected}"):
            read_drawing(YOLO_TEXT, str(tmp_path / "a.txt"), (8, 20))
        return
    [(name, corners, _)] = read_drawing(YOLO_TEXT, str(tmp_path / "a.txt"), (8, 20)).shapes
    [(expected_name, expected_corners)] = expected
    assert name == expected_name
    np.testing.assert_allclose(corners, expected_corners)


def test_the_image_of_a_file_is_next_to_it_or_at_the_path_in_it(tmp_path):
    place = tmp_path / "train" / "deep"
    place.mkdir(parents=True)
    for name in ("train/other.jpg", "train/deep/b.jpg", "train/photo.jpg"):
        (tmp_path / name).write_bytes(b"")
    (place / "b.json").write_text(json.dumps({"shapes": [], "imagePath": "../other.jpg"}))
    (place / "c.json").write_text(json.dumps({"shapes": [], "imagePath": "..\\photo.jpg"}))
    listed = list_outlines(LABELME_JSON, str(tmp_path), "train")
    assert listed.images == [f"{place}/b.jpg", f"{tmp_path}/train/photo.jpg"]
    for path, shown in (("../none.jpg", "../none.jpg"), ("../../../outside.jpg", "outside.jpg"), (None, "c")):
        (tmp_path.parent / "outside.jpg").write_bytes(b"")
        (place / "c.json").write_text(json.dumps({"shapes": [], "imagePath": path}))
        with pytest.raises(UserError, match=rf"c\.json: its image .*{shown} is missing; put it next to the file"):
            list_outlines(LABELME_JSON, str(tmp_path), "train")


@pytest.mark.parametrize(
    ("split", "remedy"), [("val", "; set DATA.VAL_FRACTION to split the training set"), ("train", "")]
)
def test_a_split_without_outlines_is_refused(tmp_path, split, remedy):
    message = refusal_of(list_outlines, LABELME_JSON, str(tmp_path), split)
    assert message == f"{tmp_path} has no {split} images with outlines{remedy}"


def test_labels_with_keypoints_are_not_outlines(tmp_path):
    (tmp_path / "train" / "images").mkdir(parents=True)
    (tmp_path / "train" / "images" / "1.jpg").write_bytes(b"")
    description = "train: train/images\nnames: [cow, ant]\n"
    (tmp_path / "data.yaml").write_text(description)
    listed = list_outlines(YOLO_TEXT, str(tmp_path), "train")
    assert listed.names == ["cow", "ant"] and listed.files == [f"{tmp_path}/train/labels/1.txt"]
    (tmp_path / "data.yaml").write_text(f"{description}kpt_shape: [4, 3]\n")
    with pytest.raises(UserError, match=r"data\.yaml: labels with keypoints \(kpt_shape\) are boxes"):
        list_outlines(YOLO_TEXT, str(tmp_path), "train")


def test_masks_are_drawn_where_they_are_in_the_image_and_later_shapes_over_earlier_ones(tmp_path):
    random, (height, width) = np.random.default_rng(0), (7, 10)
    shapes = [{"label": "whole", "points": [[0, 0], [width, height]], "shape_type": "rectangle"}]
    shapes.append({"label": "nothing", "points": [[1, 1], [3, 3]], "shape_type": "line"})
    expected, corners = np.full((height, width), 2), [(-2, -1), (8, 5), (4, -3), (-1, 6), (-4, -4), (12, 2), (3, 9)]
    for number, (left, top) in enumerate(corners):
        mask, out = random.random((4, 3)) < 0.6, io.BytesIO()
        Image.fromarray(mask).save(out, "PNG")
        content, places = (
            base64.b64encode(out.getvalue()).decode("ascii"),
            [[left + 0.4, top - 0.3], [left + 2, top + 3]],
        )
        shapes.append({"label": f"m{number % 3}", "points": places, "shape_type": "mask", "mask": content})
        for row, column in np.argwhere(mask):
            if 0 <= top + row < height and 0 <= left + column < width:
                expected[top + row, left + column] = 3 + number % 3
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"shapes": shapes, "imageHeight": height, "imageWidth": width}))
    drawing, labels = read_drawing(LABELME_JSON, str(file), (1, 1)), {"whole": 2, "m0": 3, "m1": 4, "m2": 5}
    assert drawing.size == (height, width)
    found = draw(drawing, drawing.size, labels, 255)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="shape 0 is of class 'whole', which is unknown, at row 0, column 0"):
        draw(drawing, drawing.size, {}, 255)
    assert read_labelme_names([str(file)]) == ["m0", "m1", "m2", "whole"]
    file.write_text(json.dumps({"shapes": [{"label": "__ignore__", "points": []}], "imageHeight": height}))
    assert read_drawing(LABELME_JSON, str(file), (1, 1)).size is None and read_labelme_names([str(file)]) == []


def turn_around(x, y, radius, number):
    angles = 2 * np.pi * np.arange(number) / number
    return np.stack([x + radius * np.cos(angles), y + radius * np.sin(angles)], axis=1)


@pytest.mark.parametrize(
    ("kind", "points", "expected"),
    [
        (None, [[1, 2], [3, 4], [5, 7]], [[1, 2], [3, 4], [5, 7]]),
        ("polygon", [], None),
        ("rectangle", [[1, 2], [3, 5]], [[1, 2], [3, 2], [3, 5], [1, 5]]),
        ("rectangle", [[1, 2], [3, 2], [4, 5], [1, 5]], [[1, 2], [3, 2], [4, 5], [1, 5]]),
        ("rectangle", [[1, 2]], "a rectangle of class 'a' has 1 corners; expected 2"),
        ("circle", [[5, 4], [8, 8]], turn_around(5, 4, 5, 32)),  # a corner for each pixel around it
        ("circle", [[5, 4], [5, 5]], turn_around(5, 4, 1, 16)),
        ("circle", [[0, 0], [0, 20_000]], turn_around(0, 0, 20_000, 65_536)),
        ("circle", [[5, 4]], "a circle of class 'a' has 1 corners; expected 2"),
        ("circle", [[5, 4], [5, 5], [5, 6]], "a circle of class 'a' has 3 corners; expected 2"),
        *((kind, [[1, 2], [3, 4]], None) for kind in ("line", "linestrip", "point", "points")),
    ],
)
def test_shapes_of_labelme_are_polygons(tmp_path, kind, points, expected):
    file = tmp_path / "a.json"
    shape = {"label": "a", "points": points, "shape_type": kind}
    file.write_text(json.dumps({"shapes": [shape], "imageHeight": 6, "imageWidth": 0}))
    if isinstance(expected, str):
        with pytest.raises(UserError, match=f"^{file} cannot be read: {expected}$"):
            read_drawing(LABELME_JSON, str(file), (1, 1))
        return
    shapes, size = read_drawing(LABELME_JSON, str(file), (1, 1))
    assert size is None and len(shapes) == (expected is not None)
    for name, corners, mask in shapes:
        assert (name, mask, corners.shape) == ("a", None, np.shape(expected))
        np.testing.assert_allclose(corners, expected, rtol=1e-12, atol=1e-9)


def test_smaller_outlines_of_yolo_follow_larger_ones_whichever_way_they_turn(tmp_path):
    file = tmp_path / "a.txt"
    small, square, dart = "0 0 0.2 0 0 0.2", "0 0 0 0.7 0.7 0.7 0.7 0", "0.1 0.1 0.9 0.1 0.5 0.3 0.5 0.9"
    file.write_text(f"0 {small}\n1 {dart}\n\n2 {square}\n3 {small}\n4 0.9 0.9 0.5 0.9 0.9 0.5\n")
    shapes = read_drawing(YOLO_TEXT, str(file), (8, 20)).shapes
    assert [name for name, *_ in shapes] == ["2", "1", "4", "0", "3"]
    assert read_drawing(YOLO_TEXT, str(tmp_path / "none.txt"), (8, 20)) == ([], None)


def test_outlines_without_points_are_no_shapes(tmp_path):
    labelme, yolo = tmp_path / "a.json", tmp_path / "a.txt"
    shapes = [{"label": "a", "points": points} for points in ([], [[1, 1], [5, 1], [5, 5]])]
    labelme.write_text(json.dumps({"shapes": shapes, "imageHeight": 8, "imageWidth": 20}))
    yolo.write_text("1\n0 0.05 0.125 0.25 0.125 0.25 0.625\n")
    for kind, file, name in ((LABELME_JSON, labelme, "a"), (YOLO_TEXT, yolo, "0")):
        [shape] = read_drawing(kind, str(file), (8, 20)).shapes
        assert shape.name == name
        np.testing.assert_allclose(shape.corners, [[1, 1], [5, 1], [5, 5]])


def test_endings_of_labelme_may_be_in_capitals(tmp_path):
    for name in ("a.json", "B.JSON", "c.Json", ".d.json", "e.jsonl"):
        (tmp_path / name).write_text("{}", encoding="utf-8")
    assert find_labelme_files(str(tmp_path)) == {
        str(tmp_path / name): "train" for name in ("B.JSON", "a.json", "c.Json")
    }
