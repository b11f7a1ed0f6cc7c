"""The handwritten digits shipped with the package."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from paddlevit_dist.images.data import small_sets
from paddlevit_dist.images.data.small_sets import Digits

# The first line of optdigits.tes as published, without its label.
FIRST_PUBLISHED_SAMPLE = [
    [0, 0, 5, 13, 9, 1, 0, 0],
    [0, 0, 13, 15, 10, 15, 5, 0],
    [0, 3, 15, 2, 0, 11, 8, 0],
    [0, 4, 12, 0, 0, 8, 8, 0],
    [0, 5, 8, 0, 0, 9, 8, 0],
    [0, 4, 11, 0, 1, 12, 7, 0],
    [0, 2, 14, 5, 10, 12, 0, 0],
    [0, 0, 6, 13, 10, 0, 0, 0],
]
PUBLISHED_CLASS_COUNTS = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


@pytest.fixture(scope="module")
def stored():
    with np.load(Path(small_sets.DIGITS_FILE), allow_pickle=False) as file:
        return dict(file)


def all_samples(split):
    dataset = Digits(None, split, None)
    images, labels = zip(*(dataset.read(i) for i in range(len(dataset))))
    return np.stack([np.asarray(image) for image in images]), np.array(labels)


def test_stored_arrays_are_the_published_ones(stored):
    assert stored["images"].shape == (1797, 8, 8) and stored["images"].dtype == np.uint8
    assert stored["images"][0].tolist() == FIRST_PUBLISHED_SAMPLE
    assert np.bincount(stored["labels"]).tolist() == PUBLISHED_CLASS_COUNTS
    assert "UCI" in str(stored["source"]) and "CC BY 4.0" in str(stored["licence"])
    assert "10.24432/C50P49" in str(stored["citation"]) and "Alpaydin" in str(stored["citation"])
    assert (
        hashlib.sha256(stored["images"].tobytes()).hexdigest()
        == "8f26b2bd9d135c256808f68f14fdabddde6d9c7f869ae419704b051f0f14b3b3"
    )
    assert (
        hashlib.sha256(stored["labels"].tobytes()).hexdigest()
        == "8ba4f891220f5e4c9c819638d1602d74b83618f167043c6da52a2a247841ddf0"
    )


def test_every_fifth_sample_is_held_out_and_none_is_lost(stored):
    held_out, held_out_labels = all_samples("val")
    rest, rest_labels = all_samples("train")
    assert len(held_out) == 360 and len(rest) == 1437
    assert held_out_labels.tolist() == stored["labels"][::5].tolist()
    assert rest_labels.tolist() == [label for row, label in enumerate(stored["labels"].tolist()) if row % 5]

    scaled = np.array([round(value * 255 / 16) for value in range(17)])
    np.testing.assert_array_equal(held_out, scaled[stored["images"][::5]])
    np.testing.assert_array_equal(rest, scaled[np.delete(stored["images"], np.s_[::5], axis=0)])


def test_describe_gives_the_published_position():
    for split, is_held_out in (("val", True), ("train", False)):
        dataset = Digits(None, split, None)
        rows = [row for row in range(1797) if (row % 5 == 0) == is_held_out]
        assert [dataset.describe(index) for index in range(len(dataset))] == [
            f"sample {row} of {small_sets.DIGITS_FILE}" for row in rows
        ]
        assert dataset.identity(3) == f"{split} 3"
