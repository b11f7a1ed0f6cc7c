"""Annotations of an own dataset in the forms that people have: read right, or refused in a line."""

from collections import namedtuple

import numpy as np
import paddle
import pytest
from PIL import Image
from support.refusals import refusal_of

from paddlevit_dist.core.tasks.opened_dataset import OpenedDataset
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.images import DetectionDataset, ImageAnnotations, make_annotations
from paddlevit_dist.images.detection.data.image_annotations import ObjectRules
from paddlevit_dist.images.keypoints.data.keypoint_dataset import KeypointDataset
from paddlevit_dist.images.keypoints.keypoint_set import KeypointSet
from paddlevit_dist.images.run_lengths import decode, encode

NAN = float("nan")
NAMES = ["red", "green"]
BOXES = [[1, 2, 30, 20], [5, 6, 7, 8.5]]
CORNERS = [[1, 2, 31, 22], [5, 6, 12, 14.5]]
CENTERS = [[16, 12, 30, 20], [8.5, 10.25, 7, 8.5]]
AREAS = [600, 59.5]
INSIDE = np.zeros((2, 40, 50), np.uint8)
INSIDE[0, 2:22, 1:31], INSIDE[1, 6:14, 5:12] = 1, 1
PIXELS = INSIDE.sum(axis=(1, 2)).tolist()
POLYGON = [[1, 2, 31, 2, 31, 22, 1, 22]]
HALF = [5, 6, 12, 6, 12, 14]  # a triangle
RUNS = [encode(mask) for mask in INSIDE]
OBJECTS = {"boxes": BOXES, "labels": [0, 1], "box_format": "xywh"}
POINTS = [[[3, 4, 2], [0, 0, 0], [9.5, 8, 1]], [[6, 7, 1], [8, 9, 2], [0, 0, 0]]]
PLAIN = ImageAnnotations(
    np.array(BOXES, np.float64), np.array([0, 1]), np.array(AREAS), np.zeros(2, bool), np.array([1, 2])
)
Other = namedtuple("Other", "boxes labels")


def with_(**changes):
    return {**OBJECTS, **changes}


def without(*names):
    return {name: value for name, value in OBJECTS.items() if name not in names}


def empty(**changes):
    return {"boxes": [], "labels": [], "box_format": "xywh", **changes}


NOTHING = {"boxes": np.zeros((0, 4)), "labels": [], "areas": [], "is_crowd": [], "ids": []}
#: what is given, and what is read (fields that differ from ``PLAIN``) or the message
BOX_FORMS = {
    # ImageAnnotations, whose boxes are x, y, width, height
    "as stated": (PLAIN, {}),
    "lists": (PLAIN._replace(boxes=BOXES, labels=[0, 1], areas=AREAS, is_crowd=[False, False], ids=[1, 2]), {}),
    "tuples": (PLAIN._replace(boxes=tuple(map(tuple, BOXES)), labels=(0, 1)), {}),
    "float32": (PLAIN._replace(boxes=np.array(BOXES, np.float32)), {}),
    "a list of arrays": (PLAIN._replace(boxes=[np.array(box) for box in BOXES]), {}),
    "columns of Fortran": (PLAIN._replace(boxes=np.asfortranarray(PLAIN.boxes)), {}),
    "labels of uint8": (PLAIN._replace(labels=np.array([0, 1], np.uint8)), {}),
    "labels of whole floats": (PLAIN._replace(labels=[0.0, 1.0]), {}),
    "names": (PLAIN._replace(labels=["red", "green"]), {}),
    "names in an array": (PLAIN._replace(labels=np.array(["green", "red"])), {"labels": [1, 0]}),
    "numbers as text": (PLAIN._replace(labels=["0", "1"]), {}),
    "bool labels of two classes": (PLAIN._replace(labels=np.array([False, True])), {}),
    "names in an object array": (PLAIN._replace(labels=np.array(["green", 0], object)), {"labels": [1, 0]}),
    "no areas": (PLAIN._replace(areas=None), {}),
    "boxes and labels alone": (ImageAnnotations(BOXES, [0, 1]), {"is_crowd": [False, False], "ids": [1, 2]}),
    "no crowds": (PLAIN._replace(is_crowd=None), {}),
    "no ids": (PLAIN._replace(ids=None), {}),
    "crowds as 0 and 1": (PLAIN._replace(is_crowd=[0, 1]), {"is_crowd": [False, True]}),
    "nothing at all": (ImageAnnotations(None, None, None, None, None), NOTHING),
    "empty lists": (ImageAnnotations([], [], [], [], []), NOTHING),
    "an empty array": (PLAIN._replace(boxes=np.array([]), labels=[], areas=[], is_crowd=[], ids=[]), NOTHING),
    "no rows of five": (
        PLAIN._replace(boxes=np.zeros((0, 5)), labels=[], areas=None, is_crowd=None, ids=None),
        NOTHING,
    ),
    "tensors": (PLAIN._replace(boxes=paddle.to_tensor(BOXES), labels=paddle.to_tensor([0, 1])), {}),
    "bfloat16": (PLAIN._replace(boxes=paddle.to_tensor([[1.0, 2, 30, 20], [5, 6, 7, 8.5]]).astype("bfloat16")), {}),
    "no side": (
        PLAIN._replace(boxes=[[1, 2, 30, 20], [5, 6, 0, 8.5]], areas=None),
        {"boxes": [[1, 2, 30, 20], [5, 6, 0, 8.5]], "areas": [600, 0]},
    ),
    # dictionaries, which name their format
    "corners": (with_(boxes=CORNERS, box_format="xyxy"), {}),
    "corners in capitals": (with_(boxes=CORNERS, box_format="XYXY"), {}),
    "centers": (with_(boxes=CENTERS, box_format="cxcywh"), {}),
    "torchvision's": (
        with_(boxes=CORNERS, box_format="xyxy", image_id=7, area=[5, 6], iscrowd=np.array([0, 1])),
        {"areas": [5, 6], "is_crowd": [False, True]},
    ),
    "one box": (
        {"boxes": BOXES[0], "labels": [1], "box_format": "xywh"},
        {"boxes": BOXES[:1], "labels": [1], "areas": AREAS[:1], "is_crowd": [False], "ids": [1]},
    ),
    "an image without objects": (empty(), NOTHING),
    "no boxes": (empty(boxes=None, labels=None, masks=None), NOTHING),
    # masks
    "pixels": (with_(masks=INSIDE), {"masks": RUNS, "areas": PIXELS}),
    "pixels of 255": (with_(masks=255 * INSIDE), {"masks": RUNS, "areas": PIXELS}),
    "bool pixels in a list": (with_(masks=list(INSIDE > 0)), {"masks": RUNS, "areas": PIXELS}),
    "a tensor of pixels": (with_(masks=paddle.to_tensor(INSIDE)), {"masks": RUNS, "areas": PIXELS}),
    "run lengths": (with_(masks=RUNS), {"masks": RUNS, "areas": PIXELS}),
    "polygons": (with_(masks=[POLYGON, [HALF]]), {"masks": [POLYGON, [HALF]], "areas": [600, 28]}),
    "a polygon alone": (with_(masks=[POLYGON, HALF]), {"masks": [POLYGON, HALF], "areas": [600, 28]}),
    "areas with masks": (with_(masks=RUNS, areas=[3, 4]), {"masks": RUNS, "areas": [3, 4]}),
    # what cannot be meant
    "nothing": (None, "annotations are None: expected ImageAnnotations, or a dictionary with boxes, labels and"),
    "an array": (PLAIN.boxes, "annotations are ndarray float64 (2, 4): expected ImageAnnotations, or a dictionary"),
    "a plain tuple": ((BOXES, [0, 1]), "annotations are tuple of 2"),
    "another tuple with names": (Other(BOXES, [0, 1]), "annotations are Other of 2"),
    "a list of COCO's entries": ([{"bbox": BOXES[0], "category_id": 1}], "annotations are list of 1"),
    "no format": (without("box_format"), 'does not name its box_format: add "xywh" (x, y, width, height), "xyxy"'),
    "torchvision's without a format": ({"boxes": CORNERS, "labels": [0, 1], "iscrowd": [0, 0]}, "box_format: add"),
    "an unknown format": (with_(box_format="yolo"), "box_format is 'yolo': expected \"xywh\""),
    "a format that is a number": (with_(box_format=4), "box_format is 4: expected"),
    "an unknown field": (
        with_(bbox=BOXES),
        "annotations have 'bbox', which is not read: expected boxes, labels, areas",
    ),
    "a field twice": (with_(iscrowd=[0, 0], is_crowd=[0, 0]), "'iscrowd' and 'is_crowd' are the same field"),
    "no boxes of labels": (without("boxes"), "labels are ndarray int64 (2,): expected a class of each of 0 boxes"),
    "no labels": (without("labels"), "labels are missing: expected a class of each of 2 boxes"),
    "a set of labels": (with_(labels={0, 1}), "labels are {0, 1}: expected a class of each of 2 boxes"),
    "NaN": (PLAIN._replace(boxes=PLAIN.boxes * NAN), "boxes[0, 0] is nan; 8 of its 8 numbers are not finite"),
    "infinity": (with_(boxes=[[1, 2, 30, np.inf], BOXES[1]]), "boxes[0, 3] is inf"),
    "a negative area": (with_(areas=[1, -2]), "areas[1] is -2: expected square pixels, 0 or more"),
    "NaN area": (PLAIN._replace(areas=np.array([1, NAN])), "areas[1] is nan"),
    "NaN label": (
        with_(labels=[0, NAN]),
        "labels[1]: label is nan, expected the whole number or the name of a class (red, green)",
    ),
    "NaN crowd": (with_(is_crowd=[NAN, 0]), "is_crowd[0] is nan"),
    "corners as sides": (
        with_(boxes=[[9, 9, 2, 2], BOXES[1]], box_format="xyxy"),
        "boxes[0] is 9, 9, 2, 2, and x1 < x0",
    ),
    "a negative side": (PLAIN._replace(boxes=PLAIN.boxes * [1, 1, -1, 1]), "boxes[0] has width -30 and height 20"),
    "labels from 1": (
        PLAIN._replace(labels=PLAIN.labels + 1),
        "labels[1]: label 2 is out of range: with 2 classes labels go from 0 to 1",
    ),
    "a negative label": (with_(labels=[0, -1]), "labels[1]: label -1 is out of range: with 2 classes"),
    "half a label": (with_(labels=[0, 0.5]), "labels[1]: label is 0.5, expected the whole number"),
    "an unknown name": (
        with_(labels=["red", "blue"]),
        "labels[1]: label is 'blue', expected the name of a class (red, green)",
    ),
    "one name of two boxes": (with_(labels="red"), "labels are 'red': expected a class of each of 2 boxes"),
    "one label less": (
        PLAIN._replace(labels=PLAIN.labels[:1]),
        "labels are ndarray int64 (1,): expected a class of each of 2 boxes",
    ),
    "one label of two boxes": (with_(labels=0), "labels are 0: expected a class of each of 2 boxes"),
    "a row for each label": (with_(labels=[[0], [1]]), "labels are ndarray int64 (2, 1): expected a class of each"),
    "ragged boxes": (with_(boxes=[[1, 2, 3, 4], [1, 2]]), "boxes are list of 2"),
    "text": (with_(boxes=[["1", "2", "3", "4"]] * 2), "expected numbers"),
    "boxes with scores": (with_(boxes=[[1, 2, 3, 4, 0.9]] * 2), "boxes are float64 of shape (2, 5): expected numbers"),
    "transposed boxes": (with_(boxes=np.ones((4, 3)), labels=[0] * 3), "of shape (4, 3): expected numbers (n, 4)"),
    "bool boxes": (with_(boxes=np.ones((2, 4), bool)), "boxes are bool of shape (2, 4)"),
    "complex boxes": (with_(boxes=np.ones((2, 4), complex)), "boxes are ndarray complex128 (2, 4): expected numbers"),
    "an object": (with_(boxes=object()), "boxes are <object object at"),
    "areas of one": (with_(areas=[3]), "areas of shape (1,) for 2 boxes"),
    "ids that are names": (with_(ids=["a", "b"]), "ids are list of 2 ('a', 'b'): expected numbers"),
    "half an id": (with_(ids=[0.5, 1]), "ids have to be whole numbers"),
    "crowds of another number": (with_(is_crowd=[0, 3]), "is_crowd[1] is 3: expected true or false, or 1 or 0"),
    "one mask less": (with_(masks=INSIDE[:1]), "1 masks of 2 boxes: expected one for each"),
    "a map of instances": (
        with_(masks=[INSIDE[0] + 2 * INSIDE[1], INSIDE[1]]),
        "masks[0] has values from 1 to 3 inside",
    ),
    "one mask of the image": (with_(masks=INSIDE[0]), "masks of shape (40, 50): expected (n, height, width)"),
    "masks of another size": (
        with_(masks=INSIDE[:, 1:]),
        "masks[0] is of shape (39, 50): expected (40, 50), the image's",
    ),
    "runs of another size": (
        with_(masks=[encode(mask[1:]) for mask in INSIDE]),
        "masks[0] cannot be used: its segment",
    ),
    "a mask that is a file": (with_(masks=["a.png", "b.png"]), "masks[0] are 'a.png': expected numbers"),
    "no mask of one": (with_(masks=[RUNS[0], None]), "masks[1] are None: expected numbers"),
    "soft masks": (with_(masks=INSIDE * np.linspace(0.1, 1, 50)), "masks[0] has values from"),
}
POINT_FORMS = {
    "as stated": (PLAIN._replace(points=np.array(POINTS, np.float64)), {}),
    "lists": (with_(points=POINTS), {}),
    "tuples": (with_(points=tuple(map(tuple, POINTS))), {}),
    "whole numbers": (with_(points=np.array(POINTS).astype(int)), {"points": np.array(POINTS).astype(int)}),
    "float32": (with_(points=np.array(POINTS, np.float32)), {}),
    "torchvision's": (with_(keypoints=POINTS), {}),
    "a tensor": (with_(points=paddle.to_tensor(POINTS)), {}),
    "rows of COCO": (with_(points=np.array(POINTS).reshape(2, 9)), {}),
    "no objects": (empty(), {**NOTHING, "points": np.zeros((0, 3, 3))}),
    "no points of no objects": (empty(points=[]), {**NOTHING, "points": np.zeros((0, 3, 3))}),
    "an empty array": (empty(points=np.array([])), {**NOTHING, "points": np.zeros((0, 3, 3))}),
    "missing": (OBJECTS, "points are missing: expected (2, 3, 3): x, y and visibility of each point"),
    "missing in ImageAnnotations": (PLAIN, "points are missing"),
    "no visibility": (
        with_(points=np.array(POINTS)[:, :, :2]),
        "points are float64 of shape (2, 3, 2): expected (2, 3, 3)",
    ),
    "one point less": (with_(points=np.array(POINTS)[:, :2]), "of shape (2, 2, 3): expected (2, 3, 3)"),
    "one point more": (with_(points=np.zeros((2, 4, 3))), "of shape (2, 4, 3): expected (2, 3, 3)"),
    "one object less": (with_(points=POINTS[:1]), "of shape (1, 3, 3): expected (2, 3, 3)"),
    "of one object alone": (with_(points=POINTS[0]), "of shape (3, 3): expected (2, 3, 3)"),
    "transposed": (with_(points=np.array(POINTS)[None]), "of shape (1, 2, 3, 3)"),
    "NaN": (with_(points=np.array(POINTS) * NAN), "points[0, 0, 0] is nan"),
    "one NaN": (
        PLAIN._replace(points=np.array(POINTS) + [[[0, 0, 0]] * 3, [[0, NAN, 0]] * 3]),
        "points[1, 0, 1] is nan",
    ),
    "NaN where not labeled": (with_(points=[POINTS[0], [*POINTS[1][:2], [NAN, NAN, 0]]]), "points[1, 2, 0] is nan"),
    "infinity": (with_(points=np.array(POINTS) + np.inf), "points[0, 0, 0] is inf"),
    "NaN visibility": (with_(points=[POINTS[0], [*POINTS[1][:2], [1, 2, NAN]]]), "points[1, 2, 2] is nan"),
    "scores": (PLAIN._replace(points=np.array(POINTS) * [1, 1, 0.4]), "points[0, 0] has visibility 0.8: expected 0"),
    "visibility of 3": (with_(points=np.array(POINTS) + [0, 0, 1]), "points[0, 0] has visibility 3: expected 0 (not"),
    "a negative visibility": (with_(points=np.array(POINTS) * [1, 1, -1]), "has visibility -2: expected 0"),
    "ragged": (with_(points=[POINTS[0], POINTS[1][:2]]), "points are list of 2"),
    "text": (with_(points="points"), "points are 'points': expected numbers"),
    "bool": (with_(points=np.ones((2, 3, 3), bool)), "points are bool of shape (2, 3, 3)"),
    "by both names": (with_(points=POINTS, keypoints=POINTS), "'points' and 'keypoints' are the same field"),
}


class OwnBoxes(DetectionDataset):
    class_names, category_ids = NAMES, (1, 2)

    def __init__(self, given):
        self.given = given

    def __len__(self):
        return 1

    def read(self, index):
        return Image.new("RGB", (50, 40)), self.given


class OwnAnnotations(OwnBoxes):
    """Overrides ``annotations`` alone; images have no objects."""

    def read(self, index):
        return Image.new("RGB", (50, 40)), empty()

    def annotations(self, index):
        return self.given


class OwnPoints(OwnBoxes, KeypointDataset):
    keypoint_sets = (KeypointSet(("a", "b", "c"), (), (0.1,) * 3, ()), KeypointSet(("d",), (), (0.1,), ()))


def check(found, changes):
    expected = {**PLAIN._asdict(), **changes}
    assert type(found) is ImageAnnotations
    for name, kind in (("boxes", "f8"), ("labels", "i8"), ("areas", "f8"), ("is_crowd", "?"), ("ids", "i8")):
        array = getattr(found, name)
        assert array.dtype == np.dtype(kind) and array.tolist() == np.array(expected[name], kind).tolist(), name
    assert (found.masks is None) == (expected["masks"] is None)
    if found.masks is not None:
        shapes = [[decode(mask, 40, 50).tolist() for mask in masks] for masks in (found.masks, expected["masks"])]
        assert shapes[0] == shapes[1]
    if expected["points"] is None:
        assert found.points is None
    else:
        points = np.array(expected["points"], float)
        assert found.points.dtype == np.float64 and found.points.shape == points.shape
        assert found.points.tolist() == points.tolist()


def is_outcome(dataset, read, outcome, where="sample 0: "):
    if isinstance(outcome, str):
        message = refusal_of(read, 0)
        assert message.startswith(where) and outcome in message, message
        with pytest.raises(BadSample):
            read(0)
    else:
        check(read(0), outcome)


@pytest.mark.parametrize("form", BOX_FORMS)
def test_boxes_in_odd_forms_are_read_right_or_refused(form):
    given, outcome = BOX_FORMS[form]
    dataset = OpenedDataset(OwnBoxes(given))
    is_outcome(dataset, lambda index: dataset.read(index)[1], outcome)
    is_outcome(dataset, dataset.annotations, outcome)
    alone = OpenedDataset(OwnAnnotations(given))
    if "image's" not in str(outcome) and "runs of another size" != form:  # the image is not opened
        is_outcome(alone, alone.annotations, outcome)


@pytest.mark.parametrize("form", POINT_FORMS)
def test_points_in_odd_forms_are_read_right_or_refused(form):
    given, outcome = POINT_FORMS[form]
    dataset = OpenedDataset(OwnPoints(given))
    outcome = outcome if isinstance(outcome, str) else {"points": POINTS, **outcome}
    is_outcome(dataset, lambda index: dataset.read(index)[1], outcome)
    is_outcome(dataset, dataset.annotations, outcome)


def test_there_are_forms_enough():
    assert len(BOX_FORMS) >= 41 and len(POINT_FORMS) >= 21


@pytest.mark.parametrize("number", [0, 1, 7, 64, 65, 300])
def test_stated_arrays_are_returned_as_they_are_and_each_wrong_number_is_found(number):
    """Few objects are checked in another way than many."""
    generator = np.random.default_rng(number)
    boxes, points = generator.uniform(0, 90, (number, 4)), generator.integers(0, 3, (number, 5, 3)).astype(float)
    labels, flags = generator.integers(0, 9, number), np.zeros(number, bool)
    made = ImageAnnotations(boxes, labels, boxes[:, 2] * boxes[:, 3], flags, np.arange(number), points=points)
    rules = ObjectRules(9, num_points=5)
    assert make_annotations(made, rules) is made
    for field, value, said in (
        (
            *(
                (field, value, f"is {value}")
                for field in ("boxes", "areas", "points")
                for value in (NAN, np.inf, -np.inf)
            ),
            *(
                ("boxes", -1.0, "expected 0 or more"),
                ("labels", 9, "label 9 is out of range"),
                ("labels", -1, "label -1 is out"),
            ),
            ("points", 0.5, "has visibility 0.5"),
        )
        if number
        else ()
    ):
        array = getattr(made, field).copy()
        array.flat[-1] = value
        message = refusal_of(make_annotations, made._replace(**{field: array}), rules)
        assert said in message and message.startswith(field), message


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        ((), (1, 2)),
        ([3, 7], (3, 7)),
        (np.array([3, 7]), (3, 7)),
        ((0, 5), (0, 5)),
        ((1,), "dataset own has 1 category_ids for 2 classes: expected ascending whole numbers, one for each class"),
        ((2, 1), "dataset own: category_ids are (2, 1): expected ascending whole numbers"),
        ((1, 1), "category_ids are (1, 1): expected"),
        (("a", "b"), "category_ids are ('a', 'b'): expected"),
        ((0.5, 1), "category_ids are (0.5, 1): expected"),
        (7, "category_ids are 7: expected"),
    ],
)
def test_ids_of_categories_are_counted_from_1_or_are_whole_numbers(given, outcome):
    dataset = OwnBoxes(PLAIN)
    dataset.category_ids = given
    if isinstance(outcome, str):
        assert outcome in refusal_of(dataset.make_facts, "dataset own")
    else:
        dataset.make_facts("dataset own")
        assert dataset.category_ids == outcome and dataset.num_classes == 2
        assert dataset.read(0)[1].labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("ids", "outcome"),
    [
        ([7, 3], [7, 3]),
        (np.array([7, 3], np.uint16), [7, 3]),
        ([7, 7], "dataset own: images 0 and 1 both have the id 7: give each image another, as files of predictions"),
        ([7], "dataset own: image_ids are [7]: expected a whole number for each image"),
        (["a", "b"], "expected a whole number for each image"),
    ],
)
def test_ids_of_own_images_differ_as_their_results_would_be_one_anothers(ids, outcome):
    class Numbered(OwnBoxes):
        image_ids = ids

        def __len__(self):
            return 2

    dataset = Numbered(PLAIN)
    if isinstance(outcome, str):
        assert outcome in refusal_of(dataset.make_facts, "dataset own")
    else:
        dataset.make_facts("dataset own")
        assert dataset.image_ids.tolist() == list(map(dataset.image_id, range(2))) == outcome
