"""What is told of the labels of a data set before a run: each line in whole."""

import numpy as np
import pytest

from paddlevit_dist.images.segmentation.data.segmentation_dataset import IGNORED, SegmentationDataset, summarize_labels


class CountedLabelMaps(SegmentationDataset):
    """Label maps of one row, from the number of pixels of each label in each of them."""

    labeled = True

    def __init__(self, counts, names) -> None:
        self.counts, self.class_names, self.num_classes = counts, names, len(names)

    def __len__(self):
        return len(self.counts)

    def read_labels(self, index):
        return np.repeat(*map(np.array, zip(*self.counts[index].items()))).astype(np.uint8)[None]


def test_the_most_frequent_of_many_classes_are_named_and_those_that_are_absent():
    names = [f"c{number}" for number in range(16)]
    counts = [{number: 10 + number for number in range(9)}, {number: 40 - number for number in range(6, 14)}]
    counts[1][IGNORED] = 62  # 126 + 244 labeled pixels beside
    totals = {number: sum(image.get(number, 0) for image in counts) for number in range(16)}
    frequent = sorted(range(14), key=lambda number: -totals[number])[:12]
    assert sum(totals.values()) == 370 and totals[6] == totals[7] == totals[8]  # which keep their order
    shares = ", ".join(f"c{number} {100 * totals[number] / 370:.3g} %" for number in frequent)
    assert summarize_labels(CountedLabelMaps(counts, names), "val") == [
        f"labels of val, in all 2 label maps: {shares}, and 2 more; unlabeled {100 * 62 / 432:.3g} % of all pixels",
        "warning: 2 of 16 classes do not occur in them: c14, c15",
    ]
    (twelve,) = summarize_labels(CountedLabelMaps([dict.fromkeys(range(12), 5)], names[:12]), "val")
    assert twelve.endswith("c11 8.33 %; unlabeled 0 % of all pixels")  # all are named


@pytest.mark.parametrize(
    ("counts", "names", "warnings"),
    [
        ({0: 1, 1: 99}, "ab", []),
        ({0: 1, 1: 100}, "ab", ["nearly all labeled pixels are b; check the label maps"]),
        ({0: 7}, "a", []),
        ({0: 1, 1: 1, IGNORED: 198}, "ab", []),
        (
            {0: 1, 1: 1, IGNORED: 199},
            "ab",
            ["nearly all pixels are unlabeled: is 255 a class, or 0 (REDUCE_ZERO_LABEL)?"],
        ),
    ],
)
def test_labels_that_are_nearly_all_the_same_are_told(counts, names, warnings):
    lines = summarize_labels(CountedLabelMaps([counts], list(names)), "train")
    assert lines[1:] == [f"warning: {warning}" for warning in warnings]


def test_classes_without_names_are_called_by_their_numbers():
    dataset = CountedLabelMaps([{0: 3, 2: 1}], ["a", "b", "c"])
    dataset.class_names = None
    assert summarize_labels(dataset, "train") == [
        "labels of train, in all 1 label maps: 0 75 %, 2 25 %; unlabeled 0 % of all pixels",
        "warning: 1 of 3 classes do not occur in them: 1",
    ]
    dataset.labeled = False
    assert summarize_labels(dataset, "train") == []
