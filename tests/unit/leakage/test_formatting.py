"""What is said of copies: each pair with two classes is told, and those of one class are not."""

from types import SimpleNamespace

import numpy as np
import pytest

from paddlevit_dist.leakage.formatting import find_label_conflicts


class Labeled:
    def __init__(self, split: str, labels, class_names=None) -> None:
        self.split, self.labels, self.class_names = split, np.array(labels), class_names

    def describe(self, index: int) -> str:
        return f"{self.split}/{index}.png"


PAIRS = [SimpleNamespace(val=val, train=train) for val, train in ((0, 3), (1, 0), (2, 4), (3, 1), (4, 2), (0, 0))]
SEARCH = SimpleNamespace(pairs=PAIRS)


@pytest.mark.parametrize("names", [None, (["ant", "bee", "cow"], ["cow", "ant", "bee"])])
def test_every_pair_of_two_classes_is_told(names):
    val_labels, train_labels = [0, 1, 2, 2, 1], [2, 1, 1, 0, 0]
    of_val, of_train = names or (None, None)
    val, train = Labeled("val", val_labels, of_val), Labeled("train", train_labels, of_train)
    expected = []
    for pair in PAIRS:
        one, other = val_labels[pair.val], train_labels[pair.train]
        if names:
            one, other = of_val[one], of_train[other]
        if one != other:
            expected.append(f"val/{pair.val}.png is {one}, train/{pair.train}.png is {other}")
    assert len(expected) > 2 and find_label_conflicts(SEARCH, val, train) == expected


def test_samples_without_one_class_each_have_no_conflict():
    labeled = Labeled("val", [0, 1, 2, 2, 1])
    for others in (
        Labeled("train", np.zeros((5, 3), int)),
        SimpleNamespace(describe=str),
        SimpleNamespace(labels=None),
    ):
        assert find_label_conflicts(SEARCH, labeled, others) == []
