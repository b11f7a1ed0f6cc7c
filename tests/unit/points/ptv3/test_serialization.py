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


@pytest.mark.parametrize(
    ("scenes", "depth", "fits"),
    [(1, 20, True), (7, 20, True), (9, 20, False), (1, 21, False), (63, 19, True), (64, 19, False)],
)
def test_keys_of_large_scenes_and_of_many_have_63_bits(scenes, depth, fits):
    """The corners of each scene's cube are the first and the last of its numbers."""
    places = np.array([[0, 0, 0], [2**depth - 1] * 3])
    voxels = np.concatenate([np.column_stack([np.full(2, number), places]) for number in range(scenes)])
    if not fits:
        with pytest.raises(UserError, match=rf"a scene is 2 \*\* {depth - 1} voxels long"):
            serialize(voxels, np.full(scenes, depth), "z")
        return
    ends = [value for number in range(scenes) for value in (number * 8**depth, (number + 1) * 8**depth - 1)]
    assert serialize(voxels, np.full(scenes, depth), "z").tolist() == ends


def test_scenes_without_voxels_have_no_patches():
    assert [part.tolist() for part in cut_patches([0, 0], 4)] == [[], [], [0]]
    layout = cut_patches([0, 5, 0, 1], 4)
    assert layout.filled.tolist() == [0, 1, 2, 3, 4, 1, 2, 3, 5]
    assert (layout.places.tolist(), layout.starts.tolist()) == ([0, 1, 2, 3, 4, 8], [0, 4, 8, 9])
