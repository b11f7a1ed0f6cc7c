"""Entries of a file in COCO's format: what is normalized, noted once with its number, and refused with its place."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from support.refusals import refusal_of

from paddlevit_dist.images.detection import coco_files
from paddlevit_dist.images.detection.coco_files import CocoFile, as_id, file_name, in_order, short
from paddlevit_dist.images.detection.odd_objects import require_sides


@pytest.fixture
def read(tmp_path):
    """Read a file of these lists: categories 7, 3 and 5, images 20, 10 and 30, and no objects, unless given."""

    def read(allows_text_ids=False, **lists) -> CocoFile:
        content = {
            "annotations": [],
            "images": [{"id": id_, "height": 40 + id_, "width": 50} for id_ in (20, 10, 30)],
            "categories": [{"id": id_, "name": f"c{id_}"} for id_ in (7, 3, 5)],
            **lists,
        }
        (tmp_path / "a.json").write_text(json.dumps(content))
        return CocoFile(str(tmp_path / "a.json"), allows_text_ids)

    return read


def thing(id_=1, image=10, category=3, **values):
    return {"id": id_, "image_id": image, "category_id": category, "bbox": [1, 2, 3, 4], "area": 9.5, **values}


def lines(file: CocoFile) -> list[str]:
    return [line.removeprefix(f"{file.file} has ") for line in file.odd.lines()]


def test_objects_refer_to_images_in_the_files_order_and_to_categories_by_id(read):
    mask = [[1, 2, 3, 4, 5, 7]]
    things = [thing(4, 30, 7), thing(2, 20, 5, iscrowd=1, segmentation=mask), thing(9, 10, 3, bbox=[5, 6, 7, 8.5])]
    file = read(annotations=things)
    assert list(file.categories) == [3, 5, 7] and file.label_map == {3: 0, 5: 1, 7: 2}
    assert file.positions == {20: 0, 10: 1, 30: 2} and file.sizes.tolist() == [[60, 50], [50, 50], [70, 50]]
    numbers, labels, crowds, sizes, starts = file.columns()
    assert (numbers.tolist(), labels.tolist(), crowds.tolist()) == ([4, 2, 9], [2, 1, 0], [0, 1, 0])
    assert list(file.owners) == [2, 0, 1] and list(file.areas) == [9.5] * 3 and file.has_annotations
    assert list(file.boxes) == [1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8.5] and file.has_owner.tolist() == [True] * 3
    assert (sizes > 0).tolist() == (starts > 0).tolist() == [False, True, False] and lines(file) == []
    with open(file.file, "rb") as stream:
        assert coco_files.segmentation_at(stream, int(starts[1]), int(sizes[1]), 2) == mask
        for start, number in ((starts[1], 3), (starts[1] + 1, 2)):
            assert refusal_of(coco_files.segmentation_at, stream, int(start), int(sizes[1]), number) == (
                f"{file.file} has changed since this run started: restart the run"
            )
    assert not read(categories=[{"id": 1, "name": "a"}]).has_owner.size
    assert read().has_annotations and read(annotations=[]).federated == []


def test_what_is_odd_is_told_once_with_its_number_and_the_first_example(read):
    things = [
        thing(5, 99),
        thing(6, 10, 98),
        thing(7, 99, 98),
        thing(8, 10, 98),
        thing(0),
        thing(0),
        thing(11),
        thing(11),
        {**thing(12), "bbox": None},
        {**thing(13), "bbox": []},
        thing(14, bbox=[0, 0, 0, 2]),
        thing(15, bbox=[0, 0, 2, -1]),
        {**thing(16), "area": None},
        {**thing("x")},
        thing(None),
        thing("19", "10", 3.0, area="2.5", iscrowd="0"),
    ]
    images = [
        {"id": 10, "neg_category_ids": [1]},
        {"id": 11, "not_exhaustive_category_ids": [2]},
        {"id": 12, "neg_category_ids": [], "not_exhaustive_category_ids": []},
    ]
    file = read(annotations=things, images=images)
    checked = "not checked for every category, as in LVIS; COCO's rules count unchecked objects as wrong"
    assert file.federated == [10, 11] and file.sizes.tolist() == [[0, 0]] * 3
    string = "written as a string or with a decimal point"
    assert sorted(lines(file)) == sorted(
        [
            "2 objects without a box: never learned or matched, such as 12",
            "2 objects whose box has no area, skipped in training and never found by boxes, such as 14",
            "1 object without an area: the area of its box is used, or of its mask if masks are compared, such as 16",
            "2 objects without a numeric id: its position is used, such as 14",
            f"1 number {string} (id of annotations), such as 19",
            f"1 number {string} (image_id of annotations), such as 10",
            f"1 number {string} (category_id of annotations), such as 3",
            f"1 number {string} (area of annotations), such as 19",
            f"1 number {string} (iscrowd of annotations), such as 19",
            f"2 images {checked}, such as 10",
            "2 objects of an image that the file lacks, skipped, such as 5",
            "2 objects of a category that the file lacks, skipped, such as 6",
            "4 ids shared by several objects: all are used, although COCO's tools mix them up, such as 0",
            "2 objects with id 0: counted here, but as not found by COCO's tools, such as 0",
        ]
    )
    assert file.has_owner.tolist() == [False] * 4 + [True] * 12 and file.numbers[-3:].tolist() == [14, 15, 19]
    assert math.isnan(file.areas[12]) and file.areas[15] == 2.5 and file.boxes[32:36].tolist() == [0.0] * 4


def test_categories_without_a_name_or_with_that_of_another_are_told(read):
    named = [(4, None), (2, ""), (3, 12), (1, "a"), (5, "a"), (6, "e\u0301")]
    file = read(categories=[{"id": id_, "name": name} for id_, name in named])
    assert {id_: category.name for id_, category in file.categories.items()} == {
        **{1: "a", 2: "category 2", 3: "12", 4: "category 4", 5: "a", 6: "\u00e9"},
    }
    assert file.unnamed == {2, 4}
    assert lines(file) == [
        "2 categories without a name: its id is used, such as 4",
        "1 category with the name of another category ('a'), such as 5",
    ]


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ({"categories": []}, " has no categories; expected annotations in COCO's format: an object with images, "),
        ({"images": []}, " has no images; expected annotations in COCO's format"),
        ({"categories": [{"id": "a", "name": "n"}]}, ": categories[0] has id 'a': expected an integer"),
        ({"categories": [{"name": "n"}]}, ": categories[0] has no id: expected an integer"),
        ({"categories": [{"id": 1, "name": " "}]}, ": categories[0] (id 1) has name ' ': expected text"),
        ({"categories": [{"id": 1, "name": [2]}]}, ": categories[0] (id 1) has name [2]: expected text"),
        (
            {"categories": [{"id": 1, "name": "n"}, {"id": 1.0, "name": "m"}]},
            ": categories[1] has id 1: 1 is also the id of category 'n'",
        ),
        (
            {"images": [{"id": 3}, {"id": 4}, {"id": 4}]},
            ": images[2] has id 4: images[1] has it too; give each image its own id",
        ),
        ({"images": [{"id": 3, "height": 2.5}]}, ": images[0] (id 3) has height 2.5: expected an integer number of pi"),
        ({"images": [{"id": 3, "width": -1}]}, ": images[0] (id 3) has width -1: expected an integer number of pixels"),
        ({"images": [{"id": 3, "width": 2**31}]}, f": images[0] (id 3) has width {2**31}: expected an integer number"),
        ({"images": [{"id": 3, "width": "wide"}]}, ": images[0] (id 3) has width 'wide': expected a number"),
        ({"annotations": [thing(image=None)]}, ": annotations[0] (id 1) has no image_id: expected an integer"),
        ({"annotations": [thing(), thing(category="x")]}, ": annotations[1] (id 1) has category_id 'x': expected an i"),
        ({"annotations": [thing(bbox=[1, 2, 3])]}, ": annotations[0] (id 1) has bbox [1, 2, 3]: expected four finite "),
        ({"annotations": [thing(bbox=[1, 2, True, 4])]}, ": expected four finite numbers: x, y, width, height"),
        ({"annotations": [thing(bbox=[1, 2, 3, 1e300])]}, ": expected four finite numbers: x, y, width, height"),
        ({"annotations": [thing(area=1e300)]}, ": annotations[0] (id 1) has area 1e+300: expected a finite number"),
        ({"annotations": [thing(area="nan")]}, ": annotations[0] (id 1) has area 'nan': expected a finite number"),
        ({"annotations": [thing(iscrowd=[1])]}, ": annotations[0] (id 1) has iscrowd [1]: expected a finite number"),
    ],
)
def test_entries_that_mean_nothing_are_refused_with_their_place(read, tmp_path, lists, message):
    told = refusal_of(read, **lists)
    if message.startswith(": expected"):
        assert told.endswith(message)
    else:
        assert told.startswith(f"{tmp_path / 'a.json'}{message}")


def test_a_list_a_missing_file_and_text_are_told(tmp_path):
    path = tmp_path / "a.json"
    assert refusal_of(CocoFile, str(path)) == f"{path} cannot be read: No such file or directory"
    path.write_text("[]")
    assert refusal_of(CocoFile, str(path)).startswith(
        f"{path} is a list, as in files of results; expected annotations in "
    )
    path.write_text("{")
    assert refusal_of(CocoFile, str(path)).startswith(f"{path} is not JSON in COCO's annotation format: ")


@pytest.mark.parametrize(
    ("value", "number", "text"),
    [
        (5, 5, 5),
        (2**53, 2**53, 2**53),
        (2**53 + 1, None, None),
        (-(2**53) - 1, None, None),
        (3.0, 3, 3),
        (3.5, None, None),
        (float(2**54), None, None),
        (-float(2**54), None, None),
        (True, None, None),
        (None, None, None),
        ([1], None, None),
        ("7", 7, 7),
        ("-7", -7, -7),
        ("0", 0, 0),
        ("007", 7, "007"),
        (" 7", 7, " 7"),
        ("7.0", 7, "7.0"),
        ("7.5", None, "7.5"),
        (str(2**53 + 1), 2**53, str(2**53 + 1)),  # which float() rounds
        (str(-(2**54)), None, str(-(2**54))),
        ("x", None, "x"),
        ("", None, None),
    ],
)
def test_ids_are_numbers_in_any_spelling_or_text_where_it_is_allowed(value, number, text):
    assert as_id(value, False) == number and type(as_id(value, False)) is type(number)
    assert as_id(value, True) == text and type(as_id(value, True)) is type(text)


def test_text_ids_are_kept_and_sorted_as_text(read):
    file = read(
        True,
        categories=[{"id": "b", "name": "x"}, {"id": 10, "name": "y"}, {"id": 9, "name": "z"}],
        images=[{"id": "i"}],
        annotations=[thing(1, "i", "b")],
    )
    assert list(file.categories) == [10, 9, "b"] and file.owners[0] == 0 and file.labels[0] == 2
    assert in_order(iter([10, 9])) == [9, 10]


@pytest.mark.parametrize(
    ("name", "url", "expected"),
    [
        ("a\\b.jpg", None, "a/b.jpg"),
        (None, "http://x.org/train/1.jpg", "train/1.jpg"),
        ("a.jpg", "http://x.org/train/1.jpg", "a.jpg"),
        ("", "http://x.org/train/1.jpg", None),
        (3, None, None),
        ("a\0b", None, None),
        (None, 5, None),
        (None, None, None),
    ],
)
def test_files_of_images_have_slashes(name, url, expected):
    assert file_name(SimpleNamespace(file_name=name, coco_url=url)) == expected


def test_values_are_short_in_messages():
    assert short(None) == "null" and short("ä") == "'\\xe4'" and short("a" * 58) == f"'{'a' * 58}'"
    assert short("a" * 59) == f"'{'a' * 56}..." and len(short(["x"] * 99)) == 60


def check_sides(boxes, sizes=((100, 200),)):
    sizes = np.array(sizes, np.int64)
    return require_sides("f.json: bbox", np.array(boxes, float), np.broadcast_to(sizes, (len(boxes), 2)))


def test_boxes_that_are_fractions_or_corners_are_refused():
    start = "f.json: bbox is x, y, width, height in pixels, and all of the "
    assert refusal_of(check_sides, [[0, 0, 1.05, 0.5], [-0.05, 0.5, 0.2, 0.1]]) == (
        f"{start}2 are fractions of the images from 0 to 1: multiply by width and height"
    )
    for boxes, sizes in (
        ([[0, 0, 1.06, 0.5]], (100, 200)),
        ([[-0.06, 0, 1, 0.5]], (100, 200)),
        ([[0, 0, 1, 1]], (8, 200)),  # an image of few pixels
        ([[0, 0, 0.5, 0.5]], (0, 200)),  # of unknown height
        ([[0, 0, 0.5, 0.5]], (100, 0)),
    ):
        check_sides(boxes, [sizes])
    corners = [[150, 60, 190, 90], [10, 10, 20, 20], [0, 0, 10, 10], [5, 5, 9, 9]]
    assert refusal_of(check_sides, corners) == (
        f"{start}4 look like corners x0, y0, x1, y1 (as sides 1 box would exceed the image): write x0, y0, x1 - x0, "
        "y1 - y0"
    )
    assert "(as sides 2 boxes would exceed" in refusal_of(check_sides, [corners[0], *corners[:2]])
    for boxes in (
        [*corners, [5, 5, 9, 9]],  # a fifth of them
        [*corners[:3], [5, 5, 4, 9]],  # no corner lies before the other
        [*corners[:3], [5, 5, 206, 9]],  # beyond the image and a border of 2 % and a pixel
        [[150, 60, 190, 104], [5, 5, 9, 9]],
        [[100, 50, 120, 60]],  # as sides exactly 1.1 times the image
    ):
        check_sides(boxes)
    assert "look like corners" in refusal_of(check_sides, [[150, 60, 205, 103]])
