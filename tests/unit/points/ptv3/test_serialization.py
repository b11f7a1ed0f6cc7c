"""Curves through voxels: neighbors, scenes, and limits."""

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.points.ptv3.serialization import ORDERS, cut_patches, find_depths, serialize


def cube(side, scene=0):
    places = np.indices((side,) * 3).reshape(3, -1).T
    return np.column_stack([np.full(len(places), scene), places])


@pytest.mark.parametrize("order", ORDERS)
def test_a_curve_visits_every_cell_once_and_hilberts_has_no_jumps(order):
    voxels = cube(8)
    codes = serialize(voxels, np.array([3]), order)
    assert np.array_equal(np.sort(codes), np.arange(512))
    steps = np.abs(np.diff(voxels[np.argsort(codes)], axis=0)).sum(axis=1)
    assert (steps.max() == 1) == order.startswith("hilbert")


@pytest.mark.parametrize("order", ORDERS)
def test_a_scene_has_the_same_order_in_every_batch(order):
    random = np.random.default_rng(0)
    small, large = (random.permutation(cube(side))[:40] for side in (4, 60))
    large[:, 0] = 1
    both = np.concatenate([small, large])
    codes = serialize(both, find_depths(both, 3), order)
    assert codes[:40].max() < codes[40:].min()
    alone = serialize(large - [1, 0, 0, 0], find_depths(large - [1, 0, 0, 0], 1), order)
    assert np.array_equal(np.argsort(codes[40:]), np.argsort(alone))


def test_what_cannot_be_sorted_is_told():
    with pytest.raises(ValueError, match="subtract the lowest"):
        find_depths(np.array([[0, 0, -1, 0]]), 1)
    far = np.array([[0, 2**21, 0, 0]])
    with pytest.raises(UserError, match="use larger voxels"):
        serialize(far, find_depths(far, 1), "z")


def test_scenes_without_voxels_have_no_patches():
    assert [part.tolist() for part in cut_patches([0, 0], 4)] == [[], [], [0]]
    layout = cut_patches([0, 5, 0, 1], 4)
    assert layout.filled.tolist() == [0, 1, 2, 3, 4, 1, 2, 3, 5]
    assert (layout.places.tolist(), layout.starts.tolist()) == ([0, 1, 2, 3, 4, 8], [0, 4, 8, 9])
