"""Classes, their names and their number in the forms that people have: each is read right, or refused with a reason."""

import decimal
import enum
import fractions
from collections import OrderedDict
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from PIL import Image
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.class_labels import make_class, make_classes, require_class_numbers
from paddlevit_dist.core.tasks.class_names import make_class_names, make_num_classes
from paddlevit_dist.core.tasks.dataset import Dataset, RegisteredDataset
from paddlevit_dist.core.tasks.opened_dataset import OpenedDataset
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.images import DetectionDataset
from paddlevit_dist.points import SceneDataset, ShapeDataset

NAMES = ["ant", "bee", "cow"]
WHOLE, RANGE = "expected the whole number of a class", "is out of range: with 3 classes labels go from 0 to 2"
NAMED = "expected the whole number or the name of a class"


class Animal(enum.IntEnum):
    ANT, BEE, COW = 0, 1, 2


class Color(enum.Enum):
    RED = 1


class Unfriendly:
    def __repr__(self):
        raise RuntimeError("no")

    __array__ = __len__ = __float__ = __repr__


def tensor(value, **options):
    return paddle.to_tensor(value, **options)


# form -> its class, or a part of the message
NUMBERS = [
    (2, 2),
    (True, 1),
    (np.bool_(False), 0),
    *((kind(2), 2) for kind in (np.int8, np.uint8, np.int16, np.int32, np.uint64, np.float16, np.float64)),
    (2.0, 2),
    (np.longdouble(1), 1),
    (Animal.COW, 2),
    (np.array(2), 2),
    (np.array([2]), 2),
    (np.array([[2]], np.uint8), 2),
    ([2], 2),
    ((2,), 2),
    ([np.int64(1)], 1),
    (np.array(2, object), 2),
    (tensor(2), 2),
    (tensor([2]), 2),
    (tensor([0.0, 0.0, 1.0]), 2),
    (np.eye(3)[1], 1),
    ([0, 0, 1], 2),
    ((False, True, False), 1),
    (np.array([[0, 1, 0]]), 1),
    ("2", 2),
    (" 2 ", 2),
    ("2.0", 2),
    (b"2", 2),
    (np.str_("2"), 2),
    (np.array("2"), 2),
    (np.array(["2"]), 2),
    (3, RANGE),
    (-1, RANGE),
    ("3", RANGE),
    (255, RANGE),
    (np.int64(-100), RANGE),
    (10**30, RANGE),
    ([1, 1, 0], WHOLE),
    ([0, 0, 0], WHOLE),
    ([0.2, 0.3, 0.5], WHOLE),
    ([np.nan, 1, 0], WHOLE),
    ([0, 1], WHOLE),
    ([1, 2], WHOLE),
    ([[1], [2, 3]], WHOLE),
    (np.eye(3), WHOLE),
    (1.5, WHOLE),
    (float("nan"), WHOLE),
    (np.float32("nan"), WHOLE),
    (-np.inf, WHOLE),
    ("nan", WHOLE),
    ("1_0", WHOLE),
    ("9" * 5000, WHOLE),
    ("", WHOLE),
    (None, WHOLE),
    ([], WHOLE),
    (np.zeros(0, int), WHOLE),
    ({}, WHOLE),
    ({"label": 1}, WHOLE),
    ({1}, WHOLE),
    (1j, WHOLE),
    (Color.RED, WHOLE),
    (object(), WHOLE),
    (Unfriendly(), "label is Unfriendly, expected"),
    (np.timedelta64(1, "D"), WHOLE),
    (np.datetime64("2020-01-01"), WHOLE),
    (np.ma.masked, WHOLE),
    (np.ma.array([1], mask=[True]), WHOLE),
    (np.void(b"1"), WHOLE),
    (decimal.Decimal(1), WHOLE),
    (fractions.Fraction(1), WHOLE),
    (slice(1), WHOLE),
    (lambda: 1, WHOLE),
    (iter([1]), WHOLE),
]
TEXTS = [
    ("bee", NAMES, 1),
    (" bee\n", NAMES, 1),
    (b"bee", NAMES, 1),
    (np.str_("bee"), NAMES, 1),
    (np.array("bee"), NAMES, 1),
    (["bee"], NAMES, 1),
    (np.array(["bee"], object), NAMES, 1),
    ("1", NAMES, 1),
    ("Bee", NAMES, r"label is 'Bee', expected the name of a class (ant, bee, cow)"),
    ("bee,cow", NAMES, "expected the name of a class"),
    (["bee", "cow"], NAMES, NAMED),
    (None, NAMES, NAMED),
    ("2", ["1", "2", "3"], 1),  # a name, not a number
    (2, ["1", "2", "3"], 2),  # a number, which is never a name
    ("0", ["1", "2", "3"], "expected the name of a class (1, 2, 3)"),  # which of the two is not known
]


def check(make, form, expected, plain=lambda value: value):
    """Compare what is made of a form with the plain form, or its refusal with a part of the message."""
    if isinstance(expected, str):
        with pytest.raises(UserError) as caught:
            make(form)
        assert expected in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 300
    else:
        made = make(form)
        assert type(made) is type(expected) and plain(made) == plain(expected)


@pytest.mark.parametrize("form, expected", NUMBERS, ids=lambda value: type(value).__name__)
def test_a_class_is_read_right_or_refused(form, expected):
    check(lambda label: make_class(label, 3), form, expected)


@pytest.mark.parametrize("form, names, expected", TEXTS, ids=lambda value: type(value).__name__)
def test_a_name_is_the_class_with_that_name(form, names, expected):
    check(lambda label: make_class(label, 3, names), form, expected)


def test_without_a_number_of_classes_there_is_no_upper_limit():
    assert make_class(2**62, None) == 2**62
    with pytest.raises(BadSample, match="label -1 is out of range: classes count from 0"):
        make_class(-1, None)


@pytest.mark.parametrize(
    "labels, expected",
    [
        ([0, 2, 1], [0, 2, 1]),
        (("ant", "cow", "bee"), [0, 2, 1]),
        (np.array(["ant", "cow", "bee"]), [0, 2, 1]),
        (np.array([[0], [2], [1]]), [0, 2, 1]),  # as of Keras
        (np.array([0.0, 2.0, 1.0]), [0, 2, 1]),
        (["ant", 2, "1"], [0, 2, 1]),
        (np.eye(3)[[0, 2, 1]], [0, 2, 1]),
        (tensor([0, 2, 1]), [0, 2, 1]),
        ([0, None, 1], "photo 1: label is None"),
        (np.array([0.0, np.nan, 1.0]), "photo 1: label is nan"),
        ([0, "dog", 1], "photo 1: label is 'dog'"),
        (1, "labels are 1, expected the number of each sample's class"),
        ({"a": 1}, "labels are {'a': 1}, expected"),
    ],
)
def test_labels_of_all_samples_are_read_right_or_the_first_wrong_one_is_named(labels, expected):
    expected = np.array(expected) if isinstance(expected, list) else expected
    check(lambda labels: make_classes(labels, 3, NAMES, "photo {}".format), labels, expected, np.ndarray.tolist)


def test_integers_are_not_copied():
    labels = np.array([0, 2, 1], np.uint8)
    assert make_classes(labels, 3, (), str) is labels


LIST = "expected a list of texts, one for each class"


@pytest.mark.parametrize(
    "names, expected",
    [
        (NAMES, NAMES),
        (("ant", "bee", "cow"), ("ant", "bee", "cow")),
        (np.array(NAMES), NAMES),
        (np.unique(["cow", "bee", "ant"]), NAMES),
        (np.array(NAMES, object), NAMES),
        (list(np.array(NAMES)), NAMES),
        (np.array([b"ant", b"bee", b"cow"]), NAMES),
        (["ant\n", " bee", "cow "], NAMES),
        (dict.fromkeys(NAMES).keys() and dict(enumerate(NAMES)), NAMES),
        (OrderedDict(enumerate(NAMES)), NAMES),
        (range(3), ["0", "1", "2"]),
        (np.arange(3), ["0", "1", "2"]),
        ([True, False], ["True", "False"]),
        ({1: "ant", 2: "bee"}, LIST),
        ({"ant": 0, "bee": 1}, LIST),
        ("ant", LIST),
        (b"ant", LIST),
        ({"ant", "bee"}, LIST),
        (iter(NAMES), LIST),
        (map(str, NAMES), LIST),
        (3, LIST),
        (["ant", None], "contain None; expected"),
        (["ant", float("nan")], "contain nan; expected"),
        (["ant", 1.5], "contain 1.5; expected"),
        (["ant", ""], "contain ''; expected"),
        ([["ant"], ["bee"]], "contain ['ant']; expected"),
        (np.array([["ant"], ["bee"]]), "contain array(['ant'], dtype='<U3'); expected"),
    ],
)
def test_class_names_are_read_right_or_refused(names, expected):
    check(lambda names: make_class_names(names, "dataset bars: class_names"), names, expected)


@pytest.mark.parametrize(
    "number, expected",
    [
        (3, 3),
        (np.int64(3), 3),
        (np.array([0, 2]).max() + 1, 3),
        (np.float64(3), 3),
        (np.array(3), 3),
        (np.array([3]), 3),
        (tensor(3), 3),
        *((wrong, "; expected a whole number from 1 up") for wrong in (0, -1, 2.5, np.nan, np.inf, "3", True, [1, 2])),
        *((wrong, "; expected a whole number from 1 up") for wrong in ({}, len, np.timedelta64(3), 3j)),
    ],
)
def test_a_number_of_classes_is_read_right_or_refused(number, expected):
    check(lambda number: make_num_classes(number, "dataset bars: num_classes"), number, expected)


NAME_FORMS = [NAMES, np.array(NAMES), dict(enumerate(NAMES)), np.array([name.encode() for name in NAMES])]
READ = {
    DetectionDataset: (
        (Image.new("RGB", (8, 8)), {"boxes": [[1, 1, 4, 4]], "labels": ["cow"], "box_format": "xyxy"}),
        lambda made: made[1].labels.tolist(),
    ),
    SceneDataset: (
        {"xyz": np.zeros((1, 3)), "semantic": ["cow"], "name": "field"},
        lambda made: made.semantic.tolist(),
    ),
    ShapeDataset: ({"xyz": np.zeros((1, 3)), "label": "cow"}, lambda made: [made.label]),
}


@pytest.mark.parametrize("names", NAME_FORMS, ids=lambda names: type(names).__name__)
@pytest.mark.parametrize("base", READ)
def test_the_adapter_reads_names_of_any_form(base, names):
    sample, find_labels = READ[base]

    class Own(base):
        class_names = names

        def __len__(self):
            return 1

        def read(self, index):
            return sample

    assert find_labels(OpenedDataset(Own(None, "val", None))[0]) == [2]
    Own.class_names = "cow"
    with pytest.raises(UserError, match="^Own: class_names are 'cow'; expected a list of texts"):
        OpenedDataset(Own(None, "val", None))[0]


class Bars(Dataset):
    def __init__(self, data_path, split, cache_folder):
        pass

    def __len__(self):
        return 2


def open_with(**attributes):
    config = SimpleNamespace(DATA=SimpleNamespace(DATA_PATH=None, DATASET="bars"))
    return RegisteredDataset(type("Own", (Bars,), attributes)).open(config, "train", None)


def test_an_opened_dataset_has_what_tasks_expect():
    opened = open_with(class_names=np.unique(NAMES), num_classes=np.int64(3), labels=["cow", "ant"])
    assert (opened.class_names, opened.num_classes, opened.labels.tolist()) == (NAMES, 3, [2, 0])
    assert type(opened.num_classes) is int and opened.labels.dtype == np.int64
    own = open_with(open=classmethod(lambda cls, config, split, folder: cls(None, split, None)), class_names=range(2))
    assert own.class_names == ["0", "1"] and own.num_classes is None


@pytest.mark.parametrize(
    "attributes, said",
    [
        ({"class_names": "ant"}, "^dataset bars: class_names are 'ant'; expected a list of texts"),
        ({"class_names": NAMES, "num_classes": 4}, "^dataset bars has 3 class_names, but num_classes is 4"),
        (
            {"class_names": property(lambda self: np.array(["ant"]))},
            r"^dataset bars: its property class_names returns array\(\['ant'\], dtype='<U3'\); return \['ant'\]$",
        ),
        ({"labels": [0, 1.5]}, "^sample 1: label is 1.5, expected the whole number"),
    ],
)
def test_classes_that_cannot_be_used_are_refused_when_a_dataset_is_opened(attributes, said):
    with pytest.raises(UserError, match=said):
        open_with(**attributes)


@pytest.mark.parametrize(
    ("found", "known", "right", "is_closed", "parts"),
    [
        ({1, 2}, (0, 1), {}, True, ("1 to 2, but data 0 to 1", "subtract 1 ")),
        ({0, 1}, (1, 2), {}, True, ("0 to 1, but data 1 to 2", "add 1 ")),
        ({5, 7}, (0, 1), {}, True, ("5 to 7, but data 0 to 1: name them",)),
        ({2, 4}, (2, 7), {}, True, ("has classes 4, but data only 2, 7: name them",)),
        (
            {1, 2},
            (0, 1, 2),
            {0: 3, 1: 1_204},
            True,
            ("1 to 2", "0 to 2", "1,204 are right", "lower, 3 unch", "subtract"),
        ),
        ({0, 1}, (0, 1, 2), {0: 3, -1: 4}, True, ("4 are right", "higher, 3 unchanged", "add 1")),
        ({1, 3}, (0, 1, 2), {0: 3, 1: 4}, False, ("1 to 3, but data 0 to 2, and 4 are right", "subtract 1 ")),
        ({1, 2}, (0, 1, 2), {0: 4, 1: 4}, True, ()),
        ({0, 2}, (0, 1, 2), {0: 0, 1: 9, -1: 9}, True, ()),  # both ends are found
        ({1, 9}, (0, 1, 2), {0: 4, 1: 0}, False, ()),
        ({2}, (1, 2, 4), {0: 0, 1: 9, -1: 9}, True, ()),  # ids with gaps are not positions
        (set(), (0, 1), {}, True, ()),
    ],
)
def test_results_that_number_the_classes_in_another_way_are_refused(found, known, right, is_closed, parts):
    def check():
        require_class_numbers("results", found, "data", known, lambda off: right.get(off, 0), "name them", is_closed)

    if not parts:
        return check()
    told = refusal_of(check)
    assert all(part in told for part in parts)
