"""Drawn images of several digits are the same in every process, and are named by split and number."""

import pickle

import numpy as np

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
