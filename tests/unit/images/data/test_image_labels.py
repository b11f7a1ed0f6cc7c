"""Several labels and label maps in the forms that people have: each is read right, or refused with a reason."""

import numpy as np
import paddle
import pytest
from PIL import Image

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks import BadSample
from paddlevit_dist.core.tasks.opened_dataset import OpenedDataset
from paddlevit_dist.images import ImageDataset, SegmentationDataset
from paddlevit_dist.images.data.held_out import DatasetPart, write_rows
from paddlevit_dist.images.data.image_labels import CLASS, LABELS, make_label_map, make_label_matrix, make_labels
from paddlevit_dist.images.data.inspection import find_only_class

NAMES = ["hull", "wing", "antenna"]
PLAIN = np.array([1, 0, -1], np.int8)
MARKED = np.array([1, 0, 1], np.int8)
ROW = "expected a row of 3 numbers, 1, 0, or -1"

SEVERAL = [
    ([1, 0, -1], PLAIN),
    ((1, 0, -1), PLAIN),
    *((np.array([1, 0, -1], kind), PLAIN) for kind in (np.int64, np.int8, np.float32)),
    (np.array([[1, 0, -1]]), PLAIN),
    (np.array([[1], [0], [-1]]), PLAIN),
    (paddle.to_tensor([1, 0, -1]), PLAIN),
    ([True, False, True], MARKED),
    (np.array([1, 0, 1], bool), MARKED),
    (np.array([1, 0, 1], np.uint8), MARKED),
    (["antenna", "hull"], MARKED),
    ({"antenna", "hull"}, MARKED),
    (np.array(["hull", "antenna", "hull"]), MARKED),
    ([" hull", np.str_("antenna")], MARKED),
    ({0, 2}, MARKED),
    (frozenset([np.int64(0), 2]), MARKED),
    ({"hull": 1, "wing": 0, "antenna": -1}, PLAIN),
    ({"wing": False, "antenna": True, "hull": True}, MARKED),
    ([], np.zeros(3, np.int8)),
    (set(), np.zeros(3, np.int8)),
    ([0, 2], ROW),  # may be numbers of classes
    ([0, 1], ROW),
    ([1, 0, 1, 0], ROW),
    ([2, 0, 1], r"its labels are [2, 0, 1], expected 1, 0, or -1"),
    ([0.5, 0, 1], "expected 1, 0, or -1"),
    ([np.nan, 0, 1], "its labels are [nan, 0.0, 1.0], expected 1, 0, or -1"),
    ([None, 0, 1], ROW),
    (["hull", "keel"], "its labels are ['hull', 'keel'], expected a row of 3 numbers"),
    ("hull", ROW),
    ("hull,wing", ROW),
    ({"hull": 1}, ROW),
    ({3}, ROW),
    ({True}, ROW),
    (1, ROW),
    (None, ROW),
    (np.zeros(0), ROW),
    (np.ones((3, 3)), ROW),
    ([[1], [0, 1]], ROW),
    (["1", "0", "1"], ROW),
    (np.ma.array([1, 0, 1], mask=[0, 0, 1]), ROW),
    (object(), ROW),
]


def check(make, form, expected):
    if isinstance(expected, str):
        with pytest.raises(UserError) as caught:
            make(form)
        assert expected in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 300
    else:
        np.testing.assert_array_equal(make(form), expected, strict=True)


@pytest.mark.parametrize("form, expected", SEVERAL, ids=lambda value: type(value).__name__)
def test_several_labels_are_read_right_or_refused(form, expected):
    check(lambda labels: make_labels(labels, 3, NAMES), form, expected)


@pytest.mark.parametrize(
    "matrix, expected",
    [
        ([[1, 0, -1], [1, 0, 1]], [PLAIN, MARKED]),
        (np.array([[1, 0, -1], [1, 0, 1]], np.float64), [PLAIN, MARKED]),
        ([["hull", "antenna"], []], [MARKED, np.zeros(3)]),
        (np.array([["hull", "antenna"]]), [MARKED]),
        ([[1, 0, -1], {0, 2}], [PLAIN, MARKED]),
        (np.array([[1, 0, -1], [1, np.nan, 1]]), "photo 1: its labels are [1.0, nan, 1.0], expected 1, 0, or -1"),
        (np.zeros((2, 4)), "label_matrix has 4 columns, but there are 3 classes"),
        ([["hull"], ["keel"]], "photo 1: its labels are ['keel'], expected a row"),
        ("hull", "label_matrix is 'hull', expected a row of labels for each sample"),
        (1, "label_matrix is 1, expected a row of labels for each sample"),
        ([1, 0, 1], "photo 0: its labels are 1, expected a row of 3"),
    ],
)
def test_labels_of_all_images_are_read_right_or_the_first_wrong_row_is_named(matrix, expected):
    expected = np.array(expected, np.int8) if isinstance(expected, list) else expected
    check(lambda matrix: make_label_matrix(matrix, 3, NAMES, "photo {}".format), matrix, expected)


MAP = np.array([[0, 1, 2], [255, 2, 0]], np.uint8)
HALVES = np.array([[0, 1, 1], [1, 0, 0]], np.uint8)
SHAPE, NUMBERS = "expected (2, 3), like the image", "expected the number of a class for each pixel"


def in_mode(mode, array=MAP):
    return Image.fromarray(array).convert(mode) if mode != "P" else Image.fromarray(array, "P")


MAPS = [
    (MAP, MAP),
    *((MAP.astype(kind), MAP) for kind in (np.int16, np.uint16, np.int32, np.int64, np.float32, np.float64)),
    (MAP.tolist(), MAP),
    (np.asfortranarray(MAP), MAP),
    (MAP[..., None], MAP),
    (MAP[None], MAP),
    (paddle.to_tensor(MAP.astype("int64")), MAP),
    (Image.fromarray(MAP), MAP),
    (in_mode("P"), MAP),
    (in_mode("I"), MAP),
    (Image.fromarray(MAP.astype(np.uint16)), MAP),
    (HALVES.astype(bool), HALVES),
    (Image.fromarray(HALVES.astype(bool)), HALVES),
    (np.full((2, 3), 255), np.full((2, 3), 255, np.uint8)),
    (np.full((2, 3), 3, np.uint8), "pixel (0, 0) has class 3, as 6 of 6 pixels are out of range: with 3 classes"),
    (np.where(MAP == 255, 254, MAP), "pixel (1, 0) has class 254, as 1 of 6"),
    (np.where(MAP == 255, -1, MAP.astype(int)), "pixel (1, 0) has class -1, as 1 of 6"),
    (np.where(MAP == 255, 256, MAP.astype(int)), "pixel (1, 0) has class 256, as 1 of 6"),
    (np.where(MAP == 255, np.nan, MAP), "pixel (1, 0) has class nan, as 1 of 6"),
    (np.where(MAP == 255, np.inf, MAP), "pixel (1, 0) has class inf, as 1 of 6"),
    (MAP / 2.0, "pixel (1, 0) has class 127.5, as 1 of 6"),
    (HALVES / 2.0, "with fractions: expected the numbers of classes"),
    (MAP.T, SHAPE),
    (MAP[:, :2], SHAPE),
    (MAP.ravel(), SHAPE),
    (np.stack([MAP] * 3, axis=2), SHAPE),
    (np.eye(3)[np.minimum(MAP, 2)], SHAPE),
    (np.zeros((0, 0), np.uint8), SHAPE),
    ([], SHAPE),
    (1, SHAPE),
    (in_mode("RGB"), "its labels are an image of mode RGB: expected the number of a class in each pixel"),
    (in_mode("LA"), "mode LA"),
    (in_mode("F"), "mode F"),
    ([[0, 1, 2], [0, 1]], NUMBERS),
    (np.array([["hull"] * 3] * 2), NUMBERS),
    (MAP.astype(object), NUMBERS),
    (MAP + 1j, NUMBERS),
    (np.ma.array(MAP, mask=MAP == 255), NUMBERS),
    ("labels.png", NUMBERS),
    (None, NUMBERS),
    ({"map": MAP}, NUMBERS),
]


@pytest.mark.parametrize("form, expected", MAPS, ids=lambda value: type(value).__name__)
def test_a_label_map_is_read_right_or_refused(form, expected):
    check(lambda labels: make_label_map(labels, 3, (2, 3)), form, expected)


@pytest.mark.parametrize("last", [1, 2, 253, 254])
def test_each_byte_is_a_class_or_none_or_refused(last):
    for value in range(256):
        labels, is_right = np.full((2, 2), value, np.uint8), value <= last or value == 255
        if is_right:
            assert make_label_map(labels, last + 1, (2, 2)) is labels
        else:
            with pytest.raises(BadSample, match=f"has class {value}, as 4 of 4"):
                make_label_map(labels, last + 1)


class Photos(ImageDataset):
    class_names, num_classes = NAMES, 3
    truth_is = 1

    def __init__(self, *where):
        pass

    def __len__(self):
        return 1

    def read(self, index):
        return Image.new("L", (3, 2)), self.truth_is


class Maps(SegmentationDataset):
    class_names, num_classes, truth_is = NAMES, 3, MAP.tolist()
    __init__, __len__, read = Photos.__init__, Photos.__len__, Photos.read

    def read_labels(self, index):
        return self.truth_is


@pytest.mark.parametrize("truth, form, expected", [(CLASS, "wing", 1), (LABELS, ["wing"], [0, 1, 0]), ("", "w", "w")])
def test_a_users_dataset_returns_the_label_that_its_task_reads(truth, form, expected):
    dataset = OpenedDataset(type("Own", (Photos,), {"truth_is": form})())
    dataset.read_as(truth)
    made = dataset.read(0)[1]
    assert (made.tolist() if isinstance(made, np.ndarray) else made) == expected


def test_a_users_label_maps_are_made_with_and_without_their_image():
    assert OpenedDataset(Maps()).read(0)[1].tolist() == OpenedDataset(Maps()).read_labels(0).tolist() == MAP.tolist()
    wrong = OpenedDataset(type("Own", (Maps,), {"truth_is": [[0, 7, 1], [0, 0, 0]]})())
    for read in (wrong.read, wrong.read_labels):
        with pytest.raises(BadSample, match=r"^sample 0: pixel \(0, 1\) has class 7, as 1 of 6 pixels are out of"):
            read(0)


class Halves(Photos):
    class_names, num_classes, read_labels = ["top", "bottom"], 2, [1] * 40

    def __len__(self):
        return len(self.read_labels)

    def read(self, index):
        self.opened = index
        return Image.new("L", (3, 2)), self.read_labels[index]


@pytest.mark.parametrize(
    "attributes, truth, lines",
    [
        ({}, CLASS, ["note: all 32 images of train that were read are of class bottom, of 2 classes"]),
        ({"class_names": None}, CLASS, ["note: all 32 images of train that were read are of class 1, of 2 classes"]),
        ({"read_labels": [1, 0] * 20}, CLASS, []),
        ({"labels": np.ones(40, int)}, CLASS, []),  # said of the listed labels
        ({}, "", []),
        ({"read_labels": [1]}, CLASS, []),
    ],
)
def test_images_of_one_class_alone_are_told_if_labels_are_not_listed(attributes, truth, lines):
    dataset = type("Own", (Halves,), attributes)()
    dataset.read_as(truth)
    assert find_only_class(dataset, "train", 2) == lines
    assert not hasattr(dataset, "opened")  # what reading opens is not pickled to other processes


def test_images_of_one_class_in_a_part_are_told(tmp_path):
    dataset = Halves()
    part = DatasetPart(dataset, write_rows(tmp_path, "rows", np.arange(5)))
    part.read_as(CLASS)
    assert find_only_class(part, "val", 2) == [
        "note: all 5 images of val that were read are of class bottom, of 2 classes"
    ]
    assert not hasattr(dataset, "opened")


def test_a_label_that_is_no_class_is_refused_before_a_run():
    dataset = OpenedDataset(type("Own", (Halves,), {"read_labels": [0, "left"]})())
    dataset.read_as(CLASS)
    with pytest.raises(BadSample, match=r"^sample 1: label is 'left', expected the name of a class \(top, bottom\)"):
        find_only_class(dataset, "train", 2)
