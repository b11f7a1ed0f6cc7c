"""Drawn images of several digits are the same in every process, and are named by split and number."""

import pickle

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.images.data.small_sets import Digits
from paddlevit_dist.images.multi_label.digits import MultiDigits


def test_a_copy_draws_the_same_images_and_does_not_carry_them():
    images = MultiDigits(None, "val", None)
    (first, labels), size = images.read(5), len(pickle.dumps(images))
    copy = pickle.loads(pickle.dumps(images))
    again, same = copy.read(5)
    np.testing.assert_array_equal(np.asarray(first), np.asarray(again))
    assert same.tolist() == labels.tolist() == images.label_matrix[5].tolist()
    other = MultiDigits(None, "val", None)
    assert len(pickle.dumps(other)) == size  # nothing is drawn yet
    assert (other.identity(5), other.describe(5)) == ("val 5", "val 5 of multi_digits")
    assert (np.asarray(first) != np.asarray(MultiDigits(None, "train", None).read(5)[0])).any()


def find_digits(quarter: np.ndarray, copies: dict[int, dict[bytes, int]]) -> set[int]:
    """The digits of which an enlarged copy lies in a quarter, by trying all sizes and places; -1: nothing is there."""
    found = set()
    for size, digits in copies.items():
        for top, left in np.ndindex(17 - size, 17 - size):
            window = quarter[top : top + size, left : left + size]
            if window.sum() == quarter.sum() and window.tobytes() in digits:
                found.add(digits[window.tobytes()])
    return found if quarter.any() else {-1}


@pytest.mark.parametrize("split", ["train", "val"])
def test_an_image_has_two_to_four_digits_of_its_split_one_in_a_quarter(split):
    images, digits = MultiDigits(None, split, None), Digits(None, split, None)
    assert (images.label_matrix.shape, images.label_matrix.dtype) == ((len(images), 10), np.int8)
    pixels = [np.asarray(images.read(index)[0]) for index in range(50)]
    quarters = [array.reshape(2, 16, 2, 16).swapaxes(1, 2).reshape(4, 16, 16) for array in pixels]
    is_filled = np.array([[quarter.any() for quarter in each] for each in quarters])
    assert set(is_filled.sum(axis=1)) == {2, 3, 4} and not is_filled.all(axis=0).any()
    bounds = [np.flatnonzero(quarter.any(axis=axis))[[0, -1]] for each in quarters for quarter in each
              if quarter.any() for axis in (0, 1)]  # fmt: skip
    assert min(first for first, _ in bounds) == 0 and max(last for _, last in bounds) == 15
    covered = np.any(quarters, axis=0)  # (4, 16, 16): digits are anywhere in each quarter
    assert (covered.any(axis=1).sum(axis=1) >= 14).all() and (covered.any(axis=2).sum(axis=1) >= 14).all()
    if split == "val":  # there are fewer digits to compare with
        copies = {
            size: {np.asarray(digits.read(row)[0].resize((size, size), Image.Resampling.BICUBIC)).tobytes(): int(label)
                   for row, label in enumerate(digits.labels)} for size in range(8, 15)}  # fmt: skip
        for index in (0, 7, 49):  # the last has the first digit of the split
            found = [find_digits(quarter, copies) for quarter in quarters[index]]
            assert all(len(each) == 1 for each in found)
            labels = set(np.flatnonzero(images.label_matrix[index]))
            assert set.union(*found) - {-1} == labels == set(np.flatnonzero(images.read(index)[1]))
