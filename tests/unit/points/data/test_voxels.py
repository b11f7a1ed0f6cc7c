"""Voxelizing points: which are kept, their labels, and batches of them."""

import itertools

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.points import sparse_collate, sparse_quantize
from paddlevit_dist.points.data.voxels import first_occurrences


def by_dictionary(voxels):
    """The maps, one row at a time."""
    numbers, index, inverse = {}, [], []
    for position, row in enumerate(map(tuple, voxels.tolist())):
        if row not in numbers:
            numbers[row] = len(index)
            index.append(position)
        inverse.append(numbers[row])
    return index, inverse


def check(rows):
    index, inverse = first_occurrences(rows)
    expected = by_dictionary(rows)
    assert index.tolist() == expected[0] and inverse.tolist() == expected[1]


@pytest.mark.parametrize("dimensions, extent", itertools.product((1, 2, 3, 4), (1, 3, 40)))
def test_first_occurrences_are_those_of_a_dictionary(dimensions, extent):
    check(np.random.default_rng(dimensions).integers(-extent, extent, (500, dimensions), dtype=np.int32))


@pytest.mark.parametrize("dimensions", (1, 2, 3, 6))
def test_rows_at_the_limits_of_int32_are_told_apart(dimensions):
    generator = np.random.default_rng(dimensions)
    values = np.array([-(2**31), -(2**31) + 1, -1, 0, 1, 2**31 - 2, 2**31 - 1], np.int32)
    check(generator.choice(values, (300, dimensions)))
    check(generator.integers(-(2**31), 2**31, (300, dimensions)).astype(np.int32))


def test_a_box_too_large_for_key_and_position_together():
    # 3 x 20 bits of cells fit an int64, but not with the position of a row beside them.
    rows = np.random.default_rng(0).integers(0, 2**20, (200, 3), dtype=np.int32)
    check(np.concatenate([rows, rows[::-1], rows]))


def test_boxes_are_too_large_for_keys_in_one_or_two_steps():
    """Columns as wide as int32 are replaced by ranks where the cells so far, or the next ones, are too many."""
    generator = np.random.default_rng(0)
    wide = generator.integers(-(2**31), 2**31, (400, 4))
    check(np.concatenate([wide, wide[::-3], wide[::2] + [0, 0, 0, 1]]))
    dense = np.stack([np.arange(3_000) * 700_000, np.arange(3_000) % 7 * 300_000_000], axis=1)
    check(np.concatenate([dense, dense[::-7]]))
    farther = [(row, 0) for row in range(20)] + [(3, 2**61 - 1)]  # beyond int32: eight of such widths are 2 ** 64
    check(np.array(farther + farther[::-1]))
    narrow = generator.integers(0, 3, (4_000, 12)) * 178_000_000
    check(narrow)


def test_coordinates_are_rounded_down_and_the_first_point_of_a_voxel_is_kept():
    points = np.array([[0.4], [-0.1], [0.5], [-0.5], [-0.6], [0.0]], np.float32)
    features = np.arange(6, dtype=np.float32)[:, None]
    voxels, kept, index, inverse = sparse_quantize(
        points, features, return_index=True, return_inverse=True, quantization_size=0.5
    )
    assert voxels.dtype == np.int32
    assert voxels[:, 0].tolist() == [0, -1, 1, -2]
    assert kept[:, 0].tolist() == [0, 1, 2, 4]
    assert index.tolist() == [0, 1, 2, 4]
    assert inverse.tolist() == [0, 1, 2, 1, 3, 0]


def test_labels_that_differ_are_ignored_in_their_own_voxel_also_after_earlier_duplicates():
    # A map from points to voxels that is taken for one from voxels to voxels marks voxel 0 here.
    voxels = np.array([[5, 5], [5, 5], [7, 7], [8, 8], [7, 7], [9, 9], [9, 9]])
    labels = np.array([1, 1, 2, 3, 4, -100, 6], np.int16)
    unique, found = sparse_quantize(voxels, labels=labels)
    assert unique.tolist() == [[5, 5], [7, 7], [8, 8], [9, 9]]
    assert found.tolist() == [1, -100, 3, -100] and found.dtype == np.int16


def test_the_ignore_label_is_the_users_and_widens_a_dtype_that_cannot_hold_it():
    voxels, labels = np.zeros((2, 3), int), np.array([0, 1], np.uint8)
    assert sparse_quantize(voxels, labels=labels, ignore_label=255)[1].dtype == np.uint8
    found = sparse_quantize(voxels, labels=labels)[1]
    assert found.tolist() == [-100] and found.dtype == np.int32


def test_what_is_returned_follows_the_arguments():
    voxels = np.array([[1, 2], [1, 2], [3, 4]])
    features, labels = np.ones((3, 2)), np.zeros(3, int)
    assert isinstance(sparse_quantize(voxels), np.ndarray)
    assert len(sparse_quantize(voxels, features)) == 2
    assert len(sparse_quantize(voxels, features, labels)) == 3
    assert len(sparse_quantize(voxels, features, labels, return_index=True, return_inverse=True)) == 5
    assert sparse_quantize(voxels, return_maps_only=True).tolist() == [0, 2]
    index, inverse = sparse_quantize(voxels, return_maps_only=True, return_inverse=True)
    assert index.tolist() == [0, 2] and inverse.tolist() == [0, 0, 1]
    assert [part.tolist() for part in sparse_quantize(voxels, return_inverse=True)] == [[[1, 2], [3, 4]], [0, 0, 1]]


def test_a_size_for_each_dimension():
    points = np.array([[1.0, 1.0], [1.9, 1.0], [1.0, 1.9]])
    assert sparse_quantize(points, quantization_size=[1.0, 0.5]).tolist() == [[1, 2], [1, 3]]


def test_no_point_at_all():
    voxels, features, labels, index, inverse = sparse_quantize(
        np.empty((0, 3), np.float32), np.empty((0, 4)), np.empty(0, int), -100, True, True, quantization_size=0.1
    )
    assert voxels.shape == (0, 3) and features.shape == (0, 4) and len(labels) == len(index) == len(inverse) == 0


def test_collate_puts_the_scene_in_front_and_keeps_empty_scenes_places():
    coordinates = [np.array([[1, -2]]), np.empty((0, 2), int), np.array([[3.7, -0.5], [5, 6]])]
    features = [np.full((len(rows), 2), scene, np.float32) for scene, rows in enumerate(coordinates)]
    labels = [np.full(len(rows), scene, np.int16) for scene, rows in enumerate(coordinates)]
    batch, rows, joined = sparse_collate(coordinates, features, labels)
    assert batch.tolist() == [[0, 1, -2], [2, 3, -1], [2, 5, 6]] and batch.dtype == np.int32
    assert rows.tolist() == [[0, 0], [2, 2], [2, 2]] and rows.dtype == np.float32
    assert joined.tolist() == [0, 2, 2] and joined.dtype == np.int16
    assert len(sparse_collate(coordinates, features)) == 2
    alone = sparse_collate(coordinates)
    assert alone.dtype == np.int32 and np.array_equal(alone, batch)


@pytest.mark.parametrize("size", (0, 0.0, -0.02, float("nan"), float("inf"), [0.1, 0.0, 0.1]))
def test_a_voxel_size_that_is_not_positive_is_refused(size):
    with pytest.raises(UserError, match="voxel size .*: expected a positive number"):
        sparse_quantize(np.zeros((2, 3), np.float32), quantization_size=size)


@pytest.mark.parametrize("value", (np.nan, np.inf, -np.inf))
def test_a_point_that_is_not_finite_is_named(value):
    points = np.zeros((5, 3), np.float32)
    points[3, 1] = value
    for quantize in (sparse_quantize, lambda rows: sparse_collate([rows], [rows])):
        with pytest.raises(UserError, match="point 3 has a coordinate that is not a finite number"):
            quantize(points)


@pytest.mark.parametrize("value", (2.0**31, -(2.0**31) - 1, 2**31, -(2**31) - 1))
def test_voxels_beyond_int32_are_refused_and_the_limits_are_not(value):
    with pytest.raises(UserError, match="beyond int32; use a larger voxel size"):
        sparse_quantize(np.array([[0, value]]))
    with pytest.raises(UserError, match="beyond int32; use a larger voxel size"):  # float32 has no largest int32
        sparse_quantize(np.array([[0, 1.0001 * value if value < 0 else value]], np.float32))
    inside = np.array([[0, value - 1 if value > 0 else value + 1]])
    assert sparse_quantize(inside).tolist() == inside.tolist()


def test_a_size_so_small_that_the_division_overflows_is_refused():
    with pytest.raises(UserError):
        sparse_quantize(np.full((1, 3), 1e30, np.float32), quantization_size=1e-30)


def test_shapes_that_do_not_belong_together_are_errors():
    points = np.zeros((3, 3))
    with pytest.raises(ValueError, match=r"coordinates have shape \(3, 0\), expected \(points, dimensions\)"):
        sparse_quantize(points[:, :0])
    for arguments in ((points[0],), (points, points[:2]), (points, None, np.zeros(2, int)), (points, None, points[0])):
        with pytest.raises(ValueError):
            sparse_quantize(*arguments)
    for arguments in (([], []), ([points], []), ([points, points[:, :2]], [points, points])):
        with pytest.raises(ValueError):
            sparse_collate(*arguments)


def test_sizes_are_one_number_or_one_for_each_axis():
    points = np.array([[0.5, 2.5, 9.0]])
    assert sparse_quantize(points, quantization_size=[0.5, 1, 3]).tolist() == [[1, 2, 3]]
    for size, shape in (([0.5, 1], r"\(2,\)"), ([[0.5, 1, 3]], r"\(1, 3\)")):
        with pytest.raises(ValueError, match=rf"quantization_size has shape {shape}, expected one number or 3"):
            sparse_quantize(points, quantization_size=size)
