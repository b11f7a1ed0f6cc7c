"""``sparse_collate`` as MinkowskiEngine's programs call it: a dtype of coordinates, labels that are not integers."""

import numpy as np
import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.points import sparse_collate

PLACES = [np.array([[0.5, 1.25], [-0.5, 3.0]], np.float32), np.array([[7.75, 2.0]], np.float32)]
ROWS = [np.ones((2, 3), np.float32), np.ones((1, 3), np.float32)]


@pytest.mark.parametrize("dtype", [np.float32, "float32", paddle.float32])
def test_coordinates_of_a_floating_type_keep_their_fractions(dtype):
    found = sparse_collate(PLACES, ROWS, dtype=dtype)[0]
    assert found.dtype == np.float32 and found.tolist() == [[0, 0.5, 1.25], [0, -0.5, 3], [1, 7.75, 2]]


def test_coordinates_are_rounded_down_to_integers():
    for dtype in ({}, {"dtype": np.int64}):
        found = sparse_collate(PLACES, ROWS, **dtype)[0]
        assert found.tolist() == [[0, 0, 1], [0, -1, 3], [1, 7, 2]] and found.dtype == dtype.get("dtype", np.int32)


def test_labels_may_be_of_any_type_and_of_points_or_scenes():
    labels = [np.array([0.5, 1.5], np.float32), np.array([2.5], np.float32)]
    assert sparse_collate(PLACES, ROWS, labels)[2].tolist() == [0.5, 1.5, 2.5]
    assert sparse_collate(PLACES, ROWS, [np.array([4]), np.array([9])])[2].tolist() == [4, 9]
    with pytest.raises(ValueError, match=r"labels have shape \(3,\), expected \(2,\) or \(1,\)"):
        sparse_collate(PLACES, ROWS, [np.zeros(3), np.zeros(1)])
    with pytest.raises(ValueError, match="dtype bool: expected a type of coordinates"):
        sparse_collate(PLACES, ROWS, dtype=bool)


@pytest.mark.parametrize("dtype, held", [("float16", 2**11), ("float32", 2**24), ("int16", 2**15 - 1), ("int8", 127)])
def test_whole_coordinates_are_kept_or_refused(dtype, held):
    assert sparse_collate([np.array([[held, 1]])], ROWS[1:], dtype=dtype)[0].tolist() == [[0, held, 1]]
    for far in (held + 1, 100_001 if dtype == "float16" else 2**25 + 1):
        with pytest.raises(UserError, match=rf"^{dtype} cannot hold the voxel coordinate {far}; use int32 or float64"):
            sparse_collate([np.array([[1, far]])], ROWS[1:], dtype=dtype)
    between = sparse_collate([np.array([[0.1, 1999.9]])], ROWS[1:], dtype="float16")[0]  # for TensorField
    assert between[0, 1:] == pytest.approx([0.1, 1999.9], rel=1e-3)
