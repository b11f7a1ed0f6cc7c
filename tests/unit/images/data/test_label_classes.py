"""Lines about labels that are read otherwise than their author may have meant."""

import pytest

from paddlevit_dist.images.data.label_classes import describe_odd_labels


def describe(*labels):
    return describe_odd_labels(sorted(labels), [(label,) for label in labels])


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
    assert describe_odd_labels(["a, b", "a", "b"], [("a, b", "a"), ("b",)]) == []  # lists are separated
    assert describe_odd_labels(["a b", "a", "b"], []) == []  # columns of classes


def test_labels_that_differ_in_case_or_spaces_are_told():
    assert describe("Cat", "cat", "polar_bear", "Polar  bear", "dog") == [
        "2 pairs of labels differ only in case or spaces: Cat and cat, Polar  bear and polar_bear"
    ]
