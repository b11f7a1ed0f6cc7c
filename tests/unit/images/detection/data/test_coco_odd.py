"""What is odd in COCO's files is kept as COCO's tools do and told; what is wrong is refused in one line."""

import functools
from types import SimpleNamespace

import numpy as np
import pytest
from support.files.coco_writer import BOX, CATEGORIES, annotation, refused_by, write_coco
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.images.detection.data import coco as coco_data
from paddlevit_dist.images.detection.data.coco import Coco
from paddlevit_dist.images.detection.evaluation.scored_files import read_annotations

refused = functools.partial(refused_by, Coco)


ODD = {
    "two objects of one id": ([annotation(1, 11, BOX), annotation(1, 12, BOX)], "1 id shared by several objects", 2),
    "unknown image": (
        [annotation(1, 99, BOX)],
        "1 object of an image that the file lacks, skipped, such as 1",
        0,
    ),
    "unknown category": ([annotation(4, 11, BOX, 4)], "1 object of a category that the file lacks", 0),
    "no box": (
        [annotation(1, 11, None), annotation(2, 11, [])],
        "2 objects without a box: never learned or matched",
        2,
    ),
    "no area": (
        [annotation(1, 11, [1, 1, 0, 5])],
        "1 object whose box has no area, skipped in training and never found by boxes, such as 1",
        1,
    ),
    "negative area": (
        [annotation(1, 11, BOX, area=-4), annotation(2, 11, [5, 5, -2, 3], area=None), annotation(3, 12, BOX)],
        "2 objects with an area below 0 or above 1e+10, excluded from all scores, as by COCO's tools, such as 1",
        3,
    ),
    "only crowds": (
        [annotation(1, 11, BOX, iscrowd=1), annotation(2, 12, BOX, iscrowd=1)],
        "2 objects marked as a crowd, as all are: scores are undefined, such as 1",
        2,
    ),
    "outside": ([annotation(1, 11, [40, 1, 5, 5])], "1 object with a box outside the image, skipped in training", 1),
    "beyond": ([annotation(1, 11, [20, 1, 15, 5])], "1 object with a box that exceeds the image", 1),
    "text for numbers": (
        [annotation("5", "11", BOX, "7")],
        "1 number written as a string or with a decimal point (image_id",
        1,
    ),
    "corners": (
        [annotation(1, 11, [20, 10, 30, 20]), *(annotation(number, 12, [1, 2, 5, 9]) for number in range(2, 6))],
        "5 objects with a box that fits as x0, y0, x1, y1, as all boxes do, although COCO has x, y, width, height",
        5,
    ),
    "area missing": (
        [annotation(1, 11, BOX, area=None)],
        "1 object without an area: the area of its box is used, or of its mask",
        1,
    ),
    "id missing": (
        [annotation(None, 11, BOX)],
        "1 object without a numeric id: its position is us",
        1,
    ),
    "id is a name": ([annotation("a", 11, BOX)], "1 object without a numeric id: its position is", 1),
    "id 0": (
        [annotation(0, 11, BOX)],
        "1 object with id 0: counted here, but as not found by COCO's tools, such as 0",
        1,
    ),
    "point": ([annotation(1.0, 11.0, BOX)], "1 number written as a string or with a decimal point (image_id", 1),
    "text for a crowd": (
        [annotation(1, 11, BOX, iscrowd="1")],
        "1 number written as a string or with a decimal point (iscrowd",
        1,
    ),
}
ONLY_TRAINING = ("outside", "beyond", "corners")  # notes of what is learned, which needs the sizes of images


@pytest.mark.parametrize("case", ODD)
def test_what_is_odd_is_kept_as_coco_s_tools_do_and_told(tmp_path, cache, case):
    annotations, notice, kept = ODD[case]
    path = write_coco(tmp_path, annotations)
    for _ in range(2):  # also where the index is there already
        dataset = Coco(str(tmp_path), "train", cache)
        assert any(notice in line and str(tmp_path) in line for line in dataset.notices), dataset.notices
        found = [dataset.annotations(index) for index in range(3)]
        assert sum(len(one.ids) for one in found) == kept
        assert all(np.isfinite(one.boxes).all() and np.isfinite(one.areas).all() for one in found)
    evaluated = read_annotations(path)
    assert len(evaluated.truth.labels) == kept
    assert any(notice in line for line in evaluated.notices) == (case not in ONLY_TRAINING), evaluated.notices


def test_an_object_without_a_box_gets_the_one_around_its_mask(tmp_path, cache):
    outline = [[5, 4, 11, 4.5, 8, 9], [3, 6, 4, 6, 4, 7]]
    pixels = {"size": [20, 30], "counts": [2 * 20 + 3, 5, 15, 7, 600 - 70]}  # columns 2 and 3, rows 3 to 9
    entries = [
        annotation(1, 11, None, segmentation=outline, area=0),
        annotation(2, 11, [], segmentation=pixels),
        annotation(3, 12, None),
        annotation(4, 12, [3, 3, 0, 5]),
    ]
    path = write_coco(tmp_path, entries)
    dataset, expected = Coco(str(tmp_path), "train", cache), [[3.0, 4.0, 8.0, 5.0], [2.0, 3.0, 2.0, 7.0]]
    found = dataset.annotations(0)
    assert found.boxes.tolist() == read_annotations(path).truth.boxes[:2].tolist() == expected
    assert found.areas[0] == 40
    for line in ("2 objects without a box: the box around its mask is used", "1 object without a box: never learned"):
        assert any(line in notice for notice in dataset.notices), dataset.notices
    assert dataset.summary().startswith("3 images, 2 boxes: ") and dataset.class_counts().sum(axis=0).tolist() == [2, 1]


def test_a_mask_that_gives_no_box_is_refused(tmp_path, cache):
    write_coco(tmp_path, [annotation(1, 11, BOX), annotation(7, 11, None, segmentation=[["a", 2]])])
    with pytest.raises(UserError, match=r"annotations\[1\] \(id 7\): without bbox, and its segmentation has a polygon"):
        Coco(str(tmp_path), "train", cache)


def notices_of(tmp_path, cache, boxes):
    """The notices on boxes in an image of 20 x 30 pixels, apart from the first, on the split."""
    path = write_coco(tmp_path, [annotation(number, 11, box) for number, box in enumerate(boxes, 1)])
    first, *lines = Coco(str(tmp_path), "train", cache).notices
    assert first.startswith("train: ") and all(line.startswith(f"{path} has ") for line in lines)
    return [line.removeprefix(f"{path} has ") for line in lines]


def test_boxes_on_the_edges_of_their_image_are_inside_and_those_beyond_are_counted(tmp_path, cache):
    inside = [[0, 0, 30, 20], [-1, -1, 5, 5], [25, 5, 6, 5], [5, 15, 5, 6], [-4, 3, 4.5, 2], [29.5, 19.5, 1, 1]]
    beyond = [[-1.5, 2, 9, 9], [25, 5, 6.5, 5], [5, 15, 5, 6.5], [2, -1.5, 9, 9]]
    outside = [[-5, 2, 5, 4], [30, 2, 3, 3], [2, 20, 3, 3], [2, -3, 4, 3], [40, -30, 2, 2]]
    assert notices_of(tmp_path, cache, [*inside[:4], *inside[5:]]) == []
    assert notices_of(tmp_path, cache, [*inside, *beyond, *outside]) == [
        "5 objects with a box outside the image, skipped in training, such as 11",
        "5 objects with a box that exceeds the image by more than a pixel, clipped for training, such as 5",
    ]


@pytest.mark.parametrize(
    ("box", "is_told"),
    [
        ([20, 10, 31, 21], True),
        ([20, 10, 31.5, 20], False),
        ([20, 10, 30, 21.5], False),
        ([20, 20, 30, 20], False),
        ([1, 2, 29, 18], False),  # which fits as it is
    ],
)
def test_boxes_that_would_fit_as_corners_are_told(tmp_path, cache, box, is_told):
    lines = notices_of(tmp_path, cache, [box, *([1, 2, 5, 9] for _ in range(4))])
    told = (
        "5 objects with a box that fits as x0, y0, x1, y1, as all boxes do, although COCO has x, y, width, height, "
        "such as 1"
    )
    assert (told in lines) == is_told


@pytest.mark.parametrize(
    "boxes, part",
    [
        ([[0.1, 0.2, 0.5, 0.5], [0.5, 0.5, 0.5, 0.5]], "all of the 2 are fractions of the images from 0 to 1"),
        ([[20, 10, 30, 20], [1, 2, 5, 9]], "look like corners x0, y0, x1, y1 (as sides 1 box would exceed the"),
    ],
)
@pytest.mark.parametrize("more", [[], [annotation(9, 13, [0, 0, 0, 0]), annotation(10, 99, [9, 9, 9, 9])]])
def test_boxes_that_all_are_shares_or_corners_are_refused(tmp_path, cache, boxes, part, more):
    """In training as in an evaluation; boxes without an area, and those of no image, do not count."""
    path = write_coco(tmp_path, [*(annotation(number, 11, box) for number, box in enumerate(boxes, 1)), *more])
    assert part in refused_by(Coco, tmp_path, cache)
    message = refusal_of(read_annotations, path)
    assert part in message and message.startswith(str(path))


WRONG = {
    "two images of one id": (
        {"images": [{"id": 1, "file_name": f"{n}.png", "height": 2, "width": 2} for n in (1, 2)]},
        "images[1] has id 1: images[0] has it too; give each image its own",
    ),
    "id of an image is half": ({"images": [{"id": 1.5, "file_name": "1.png"}]}, "images[0] has id 1.5: expected a"),
    "half a pixel": ({"images": [{"id": 1, "file_name": "1.png", "height": 1.5}]}, "height 1.5: expected an integer"),
    "text in a box": ({"annotations": [annotation(1, 11, [1, 2, "3", 4])]}, "expected four finite numbers"),
    "area without end": ({"annotations": [annotation(1, 11, BOX, area=1e301)]}, "expected a finite number"),
    "crowd is a word": ({"annotations": [annotation(1, 11, BOX, iscrowd="no")]}, "has iscrowd 'no': expected a number"),
    "nameless category": ({"categories": [{"id": 1, "name": " "}]}, "categories[0] (id 1) has name ' ': expected text"),
    "id is a name": ({"images": [{"id": "x1", "file_name": "1.png"}]}, "images[0] has id 'x1': expected a"),
    "no file name": ({"images": [{"id": 1}]}, "images[0] (id 1) has no file_name: expected the name"),
    "three numbers": (
        {"annotations": [annotation(1, 11, [1, 2, 3])]},
        "annotations[0] (id 1) has bbox [1, 2, 3]: expec",
    ),
    "not a number": (
        {"annotations": [annotation(1, 11, [1, 2, 3, float("nan")])]},
        "is not JSON in COCO's annotation format: JSON is malformed: invalid character (byte ",
    ),
    "no image": ({"annotations": [{"id": 1, "category_id": 7, "bbox": BOX}]}, "has no image_id: expected an integer"),
    "twice the category": ({"categories": [CATEGORIES[0], CATEGORIES[0]]}, "7 is also the id of category 'cat'"),
    "no categories": ({"categories": None}, "has no categories; expected annotations in COCO's format"),
    "empty categories": ({"categories": []}, "has no categories; expected annotations in COCO's format"),
    "no images": ({"images": ()}, "has no images; expected annotations in COCO's format"),
    "an object for a list": ({"annotations": {"1": 2}}, "annotations: expected a list of objects"),
    "numbers for objects": ({"annotations": [3]}, "annotations[0]: Expected `object`, got `int`"),
}


ONLY_IMAGES = ("id is a name", "no file name")  # an evaluation reads no images, and compares any ids


@pytest.mark.parametrize("case", WRONG)
def test_a_file_that_is_not_as_coco_says_is_refused_in_one_line(tmp_path, cache, case):
    content, message = WRONG[case]
    content = {"annotations": [], "categories": CATEGORIES, **content}
    write_coco(tmp_path, [])  # the images
    images = content.pop("images", [{"id": 11, "file_name": "1.png", "height": 20, "width": 30}])
    path = write_coco(tmp_path, **content, images=images)
    if images == ():
        path.write_text(path.read_text().replace('"images"', '"pictures"'))
    assert message in refused(tmp_path, cache)
    assert not [path for path in cache.iterdir() if "coco" in path.name]
    if case in ONLY_IMAGES:
        assert read_annotations(path).image_ids
        return
    assert refusal_of(read_annotations, path) == refused(tmp_path, cache)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"images": [', "is not JSON in COCO's annotation format: Input data was truncated"),
        ('[{"image_id": 1}]', "is a list, as in files of results; expected annotations in COCO's format"),
    ],
)
def test_other_files_are_named(tmp_path, cache, text, message):
    write_coco(tmp_path, []).write_text(text)
    said = refused(tmp_path, cache)
    assert message in said and "instances_train2017.json" in said
    with pytest.raises(UserError, match="instances_train2017.json is"):
        read_annotations(tmp_path / "annotations" / "instances_train2017.json")


def note_boxes(*boxes):
    """What is noted of boxes of images of 100 x 80 pixels, by the end of the note: numbers of the boxes."""
    kinds = np.dtype([("id", np.int64), ("box", np.float64, 4)])
    objects = np.array([(number, box) for number, box in enumerate(boxes)], kinds)
    images = np.zeros(len(boxes), [("height", np.int32), ("width", np.int32)])
    images["height"], images["width"] = 80, 100
    noted = {}
    odd = SimpleNamespace(note_all=lambda what, text, ids: noted.update({text: (what, ids.tolist())}))
    coco_data._check_boxes(SimpleNamespace(file="f", odd=odd), objects, images)
    assert {what for what, _ in noted.values()} == {"object"}
    return {text: ids for text, (_, ids) in noted.items() if ids}


OUTSIDE = "with a box outside the image, skipped in training"
CLIPPED = "with a box that exceeds the image by more than a pixel, clipped for training"
CORNERS = "with a box that fits as x0, y0, x1, y1, as all boxes do, although COCO has x, y, width, height"


def test_boxes_may_exceed_their_image_by_a_pixel():
    inside = [[0, 0, 100, 80], [90, 70, 11, 11], [-1, -1, 5, 5], [99.9, 79.9, 1, 1]]
    over = [[90, 70, 11.5, 10], [90, 70, 10, 11.5], [-1.5, 5, 5, 5], [5, -1.5, 5, 5]]
    out = [[-10, 5, 10, 5], [5, -10, 5, 10], [100, 5, 3, 3], [5, 80, 3, 3]]
    flat = [[-50, 5, 0, 5], [5, 5, 5, 0]]
    assert note_boxes(*inside, *over, *out, *flat) == {CLIPPED: [4, 5, 6, 7], OUTSIDE: [8, 9, 10, 11]}
    assert note_boxes(*inside) == {}


def test_boxes_that_fit_as_corners_are_told():
    both = {CORNERS: [0, 1], CLIPPED: [0, 1]}
    assert note_boxes([1.5, 1, 101, 81], [1.5, 1, 101, 81]) == both
    assert note_boxes([1.5, 1, 101, 81], [1.5, 1, 101.5, 81]) == {CLIPPED: [0, 1]}
    assert note_boxes([1.5, 1, 101, 81], [40, 1, 40, 60]) == {CLIPPED: [0]}
    assert note_boxes([1, 1, 50, 70]) == {}


def test_categories_of_one_name_are_told_apart_by_their_ids_as_an_evaluation_does(tmp_path, cache):
    categories = [{"id": 40, "name": "thing"}, {"id": 11, "name": "thing"}, {"id": 3, "name": "dog"}]
    file = write_coco(tmp_path, [annotation(1, 11, BOX, 40), annotation(2, 11, BOX, 11)], categories=categories)
    data = Coco(str(tmp_path), "train", cache)
    assert data.class_names == ["dog", "thing (id 11)", "thing (id 40)"] and data.category_ids == (3, 11, 40)
    assert data.class_names == read_annotations(file).names
    assert data.annotations(0).labels.tolist() == [2, 1]


def test_sides_below_0_are_no_area_and_keep_the_area_of_the_file(tmp_path, cache):
    write_coco(tmp_path, [annotation(1, 11, [5, 5, -2, 3], area=6), annotation(2, 11, BOX)])
    found = Coco(str(tmp_path), "train", cache).annotations(0)
    assert found.boxes.tolist() == [[5, 5, 0, 3], BOX] and found.areas.tolist()[0] == 6
    assert found.has_area.tolist() == [False, True]
