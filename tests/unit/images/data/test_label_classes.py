"""Classes and numbers of labels in tables, and lines about labels that their author may have meant otherwise."""

import numpy as np
import pytest
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.images.data.label_classes import (
    TableClasses,
    describe_odd_labels,
    describe_unknown,
    find_classes,
    number_label_sets,
    number_labels,
)
from paddlevit_dist.images.data.label_rows import LabelRows


def describe(*labels, has_several=True):
    return describe_odd_labels(sorted(labels), [(label,) for label in labels], has_several)


@pytest.mark.parametrize(
    "labels, line",
    [
        (("cat,dog", "cat", "dog, bird", "bird"), "2 labels with commas, such as cat,dog, are one class each"),
        (("a,b", "a", "b", "c,d", "c", "d", "e,f"), "3 labels with commas, such as a,b, are one class each"),
        (("a,b", "a", "b", "c,d"), "2 labels with commas, such as a,b, are one class each"),
        (("horse person", "chair", "person", "horse"), "1 label with spaces, such as horse person, are one class"),
        (("16 0", "0", "7 1 0", "1 16", "7"), "3 labels with spaces, such as 16 0, are one class each"),
    ],
)
def test_lists_with_another_separator_are_told(labels, line):
    (found,) = describe(*labels)
    assert found.startswith(line) and found.endswith("if they are lists, separate their labels by semicolons")


@pytest.mark.parametrize(
    "labels",
    [
        *((), ("",), ("cat",), ("black cat", "brown bear"), ("cat, big", "dog, small"), ("polar bear", "bear")),
        ("a,b", "a", "b", "c,d", "e,f"),
    ],
)
def test_names_of_several_words_are_not(labels):
    assert describe(*labels) == []
    assert describe_odd_labels(["a, b", "a", "b"], [("a, b", "a"), ("b",)], True) == []  # lists are separated
    assert describe_odd_labels(["a b", "a", "b"], [], True) == []  # columns of classes


def test_lists_under_a_recipe_of_one_class_are_told():
    (found,) = describe("cat|dog", "cat", "dog", has_several=False)
    assert found.startswith("1 label with bars, such as cat|dog,") and found.endswith("TASK multi_label reads them")
    assert describe("cat,dog", "cat", "dog", has_several=False) == []


def test_labels_that_differ_in_case_or_spaces_are_told():
    assert describe("Cat", "cat", "polar_bear", "Polar  bear", "dog") == [
        "2 pairs of labels differ only in case or spaces: Cat and cat, Polar  bear and polar_bear"
    ]
    assert describe("CAT", "Cat", "cat") == ["1 pair of labels differ only in case or spaces: CAT and Cat"]


def make_rows(codes, sets, has_folds=False):
    names = [f"{number}.png" for number in range(len(codes))]
    return LabelRows("t.csv", names, np.array(codes, np.int32), sets, None, [], None, has_folds, [])


def make_matrix(classes, matrix):
    names = [f"{number}.png" for number in range(len(matrix))]
    return LabelRows("t.csv", names, None, [], np.array(matrix, np.int8), classes, None, False, [])


@pytest.mark.parametrize(
    ("labels", "listed", "expected"),
    [
        (["10", "9", "2.5", "1e1"], None, (["2.5", "9", "10", "1e1"],) * 2),
        (["10", "9", "b"], None, (["10", "9", "b"],) * 2),
        (["b", "a"], "c\nb\na\n", (["c", "b", "a"],) * 2),
        (["10", "9"], "dog\ncat\n", (["9", "10"], ["dog", "cat"])),
        ([], "dog\ncat\n", (["dog", "cat"],) * 2),
        ([], None, ([], [])),
    ],
)
def test_classes_are_sorted_or_in_the_order_of_their_list(tmp_path, labels, listed, expected):
    if listed is not None:
        (tmp_path / "classes.txt").write_text(listed)
    rows = make_rows(range(len(labels) + 1), [(), *((label,) for label in labels)])
    for split in ("train", "val"):  # also without training rows
        parts = {split: (rows, np.arange(len(labels) + 1))}
        assert find_classes(parts, split, str(tmp_path)) == TableClasses(*expected)


def test_classes_are_those_of_training_rows_and_of_folds(tmp_path):
    for has_folds, expected in ((False, ["b", "d"]), (True, ["b", "c", "d"])):
        rows = make_rows([0, 1, 2, 1], [("d", "b"), ("c",), ("a",)], has_folds)
        parts = {"train": (rows, np.array([0])), "val": (rows, np.array([3, 1])), "test": (rows, np.array([2]))}
        assert find_classes(parts, "val", str(tmp_path)) == TableClasses(expected, expected)
    columns = make_matrix(["b", "a"], [[1, 0]])
    assert find_classes({"train": (columns, np.array([0]))}, "train", str(tmp_path)).labels == ["b", "a"]


CLASSES = TableClasses(["a", "b", "c"], ["A", "B", "C"])
SETS = [("c",), ("a", "c"), ("b",), ()]


def test_labels_are_numbered_by_their_classes():
    rows = make_rows([0, 1, 2, 0, 3], SETS)
    expected = {"one": np.array([2, 1], np.int32), "several": np.array([[0, 0, 0], [0, 0, 1], [1, 0, 1]], np.int8)}
    np.testing.assert_array_equal(number_labels((rows, np.array([3, 2])), CLASSES), expected["one"], strict=True)
    found = number_label_sets((rows, np.array([4, 0, 1])), CLASSES)
    np.testing.assert_array_equal(found, expected["several"], strict=True)
    columns = make_matrix(["c", "a", "b"], [[1, 0, 0], [1, 1, 0], [0, 0, 1], [-1, 0, -1]])
    np.testing.assert_array_equal(number_labels((columns, np.array([0, 2])), CLASSES), expected["one"], strict=True)
    found = number_label_sets((columns, np.array([3, 0, 1])), CLASSES)
    np.testing.assert_array_equal(found, np.array([[0, -1, -1], [0, 0, 1], [1, 0, 1]], np.int8), strict=True)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (make_rows([3, 0], SETS), "1 image has no label: 0.png; add them, or remove the rows"),
        (
            make_rows([0, 3, 3, 3, 3], SETS),
            "4 images have no label: 1.png, 2.png, 3.png, ...; add them, or remove the rows",
        ),
        (
            make_matrix(["a", "b", "c"], [[1, 0, 1], [0, 0, 1], [-1, 1, 1], [1, 1, 1]]),
            "3 images have several labels: 0.png, 2.png, 3.png; expected one (TASK multi_label reads several)",
        ),
        (
            make_rows([0, 2], [("y",), ("z",), ("x", "a")]),
            "2 labels that no training image has: x, y; correct them, or list all classes in classes.txt",
        ),
        (make_matrix(["b", "d", "a"], [[1, 0, 0]]), "class c, d is not in both the training and this table"),
    ],
)
def test_labels_that_cannot_be_numbered_are_refused_with_the_first_names(rows, message):
    assert refusal_of(number_labels, (rows, np.arange(len(rows.names))), CLASSES) == f"t.csv: {message}"
    if "image" not in message.partition(":")[0]:
        with pytest.raises(UserError, match="^t.csv: "):
            number_label_sets((rows, np.arange(len(rows.names))), CLASSES)


def test_images_without_a_known_label_are_named():
    names = [f"{number}.png" for number in range(6)]
    matrix = np.array([[-1, -1], [0, -1], [-1, -1], [1, 1], [-1, -1], [-1, -1]], np.int8)
    assert describe_unknown(matrix, names, "t.csv") == [
        "t.csv: 4 images without a known label: 0.png, 2.png, 4.png, ..."
    ]
    assert describe_unknown(matrix[:2], names, "t.csv") == ["t.csv: 1 image without a known label: 0.png"]
    assert describe_unknown(matrix[1:2], names, "t.csv") == []
