"""Keys, levels, kernel maps and the packed plan, against dictionaries of voxels."""

import pickle

import numpy as np
import pytest
from support.networks import sparse_reference as reference

from paddlevit_dist import UserError
from paddlevit_dist.points.sparse.coordinate_levels import CoordinateLevels, kernel_offsets
from paddlevit_dist.points.sparse.coordinate_plan import CoordinatePlan, MapKey, PlanSpec, build_plan, unpack_plan
from paddlevit_dist.points.sparse.device_plan import Plan

SHAPES = [(1, 3, 1), (2, 2, 1), (2, 3, 1), (1, 5, 1), (1, 3, 2), (2, 3, 3), (3, 3, 1), (3, 2, 2), (1, 2, 1), (2, 1, 1)]


def found_pairs(lists, num_rows: int):
    """{kernel offset: sorted (output row, input row)} of packed lists, with the promises about blocks checked."""
    result = {k: [] for k in range(lists.counts.shape[1])}
    start, out_rows_by_block = 0, []
    for block in lists.counts:
        out_rows_by_block.append(set())
        for k, count in enumerate(block):
            out_rows = lists.out_rows[start : start + count]
            assert len(set(out_rows.tolist())) == count, "an output row occurs twice within one offset"
            out_rows_by_block[-1].update(out_rows.tolist())
            result[k] += zip(out_rows.tolist(), lists.in_rows[start : start + count].tolist())
            start += count
    assert start == len(lists.out_rows) == len(lists.in_rows)
    assert sum(len(rows) for rows in out_rows_by_block) == len(set().union(*out_rows_by_block, set()))
    assert all(0 <= out_row < num_rows for out_row in lists.out_rows.tolist())
    return {k: sorted(meetings) for k, meetings in result.items()}


@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize("stride, kernel_size, dilation", SHAPES)
def test_kernel_maps_hold_the_pairs_that_a_dictionary_finds(dimension, stride, kernel_size, dilation):
    coordinates = reference.scene(np.random.default_rng(stride + kernel_size), 300, dimension)
    plan = CoordinatePlan(coordinates, block_rows=64)
    key = MapKey(1, stride, kernel_size, dilation)
    arrays = plan.kernel_map(key)
    coarse = plan.level(stride).coordinates
    expected = reference.pairs(coordinates, coarse, kernel_size, dilation)
    if key.is_symmetric:
        assert len(arrays) == 1
        expected[len(expected) // 2] = []  # every voxel meets itself: not stored
    else:
        reverse = {k: sorted((v, u) for u, v in meetings) for k, meetings in expected.items()}
        assert found_pairs(arrays[1], len(coordinates)) == reverse
    assert found_pairs(arrays[0], len(coarse)) == {k: sorted(v) for k, v in expected.items()}


def test_kernel_map_between_two_coarse_levels():
    coordinates = reference.scene(np.random.default_rng(3), 400, reach=20)
    plan = CoordinatePlan(coordinates)
    fine, coarse = plan.level(4).coordinates, plan.level(8).coordinates
    found = found_pairs(plan.kernel_map(MapKey(4, 8, 3))[0], len(coarse))
    assert found == {k: sorted(v) for k, v in reference.pairs(fine, coarse, 3, 4).items()}


@pytest.mark.parametrize("stride", [2, 3, 4, 6, 16])
def test_levels_are_floors_also_below_zero(stride):
    coordinates = reference.scene(np.random.default_rng(stride), 200, reach=30)
    plan = CoordinatePlan(coordinates)
    np.testing.assert_array_equal(plan.level(stride).coordinates, reference.coarse(coordinates, stride), strict=True)
    assert np.array_equal(plan.level(1).coordinates, coordinates), "the order of the given rows is kept"


def test_kernel_offsets_have_the_first_axis_fastest():
    assert kernel_offsets(3, 3)[:4].tolist() == [[-1, -1, -1], [0, -1, -1], [1, -1, -1], [-1, 0, -1]]
    assert kernel_offsets(2, 2).tolist() == [[0, 0], [1, 0], [0, 1], [1, 1]]


@pytest.mark.parametrize("kind", ["far scene", "extreme corner", "single voxel", "no voxel"])
def test_coordinates_at_the_limits(kind):
    limits = np.iinfo(np.int32)
    coordinates = {
        "far scene": np.array([[0, limits.max, 0, 0], [0, limits.max - 1, 0, 0], [1, limits.max, 0, 0]]),
        "extreme corner": np.array([[0] + [limits.min] * 3, [0] + [limits.min + 1] * 3, [0] + [limits.min + 2] * 3]),
        "single voxel": np.array([[4, -7, 0, 9]]),
        "no voxel": np.zeros((0, 4), np.int32),
    }[kind]
    plan = CoordinatePlan(coordinates)
    for key in (MapKey(1, 1, 3), MapKey(1, 2, 2), MapKey(2, 4, 3)):
        fine, coarse = (plan.level(stride).coordinates for stride in (key.fine, key.coarse))
        expected = reference.pairs(fine, coarse, key.kernel_size, key.fine)
        if key.is_symmetric:
            expected[13] = []
        found = found_pairs(plan.kernel_map(key)[0], len(coarse))
        assert found == {k: sorted(v) for k, v in expected.items()}


def test_voxels_too_far_apart_for_a_key_are_the_users_to_mend():
    limits = np.iinfo(np.int32)
    with pytest.raises(UserError, match="span 4294967296 x 4294967296 x 4294967296, too large for a 63-bit key"):
        CoordinatePlan(np.array([[0] + [limits.min] * 3, [0] + [limits.max] * 3]))
    with pytest.raises(UserError, match="beyond int32"):
        CoordinatePlan(np.array([[0, 1 << 40, 0, 0]]))


@pytest.mark.parametrize(
    "coordinates, message",
    [
        (np.array([[0, 1, 1, 1], [0, 2, 2, 2], [0, 1, 1, 1]]), "voxels 0 and 2 have the same coordinates"),
        (np.zeros((3, 4), bool), "expected integers"),
        (np.zeros((3, 6), np.int64), "expected integers"),
        (np.array([[-1, 0, 0, 0]]), "scene number -1"),
    ],
)
def test_coordinates_that_make_no_plan_are_refused(coordinates, message):
    with pytest.raises(ValueError, match=message):
        CoordinatePlan(coordinates)


@pytest.mark.parametrize("bad", [0.5, np.nan, -1e-3])
def test_coordinates_between_voxels_are_refused(bad):
    coordinates = np.array([[0, 1, 1, 1], [0, 2, bad, 2]], np.float32)
    with pytest.raises(UserError, match="row 1 of the coordinates is .*expected whole numbers of voxels"):
        CoordinatePlan(coordinates)
    for kind in (np.float16, np.float32, np.float64):
        with pytest.raises(UserError, match="beyond int32"):
            CoordinatePlan(np.array([[0, np.inf if kind == np.float16 else 2.0**31, 0, 0]], kind))


def test_a_scene_number_beyond_the_batch_is_refused():
    with pytest.raises(ValueError, match="scene number 2, the batch has 2 scenes"):
        CoordinatePlan(np.array([[2, 0, 0, 0]]), num_scenes=2)


def test_a_packed_plan_says_the_same_after_a_journey():
    coordinates = reference.scene(np.random.default_rng(1), 500)
    spec = PlanSpec((MapKey(1, 1, 3), MapKey(1, 2, 2), MapKey(2, 2, 3)), scene_levels=(2,), block_rows=64)
    arrays = pickle.loads(pickle.dumps(build_plan(coordinates, pickle.loads(pickle.dumps(spec)), num_scenes=5)))
    assert {name: type(value) for name, value in arrays.items()} == {"plan_pairs": np.ndarray, "plan_header": bytes}
    assert arrays["plan_pairs"].dtype == np.int32

    packed, fresh = Plan.of_batch(arrays), CoordinatePlan(coordinates, num_scenes=5, block_rows=64)
    assert (packed.num_scenes, packed.rows(1), packed.rows(2)) == (5, len(coordinates), len(fresh.level(2).order))
    assert np.array_equal(packed.scenes(2).numbers.numpy(), fresh.level(2).coordinates[:, 0])
    for key in spec.maps:
        lists, kernel_map = fresh.kernel_map(key)[0], packed.kernel_map(key)
        out_rows = [pairs.out_rows.numpy() for block in kernel_map.to_coarse.blocks for pairs in block]
        in_rows = [pairs.in_rows.numpy() for block in kernel_map.to_coarse.blocks for pairs in block]
        np.testing.assert_array_equal(np.concatenate(out_rows), lists.out_rows, strict=True)
        np.testing.assert_array_equal(np.concatenate(in_rows), lists.in_rows, strict=True)
        assert kernel_map.to_coarse.is_exclusive == lists.is_exclusive
    with pytest.raises(ValueError, match="no MapKey"):
        packed.kernel_map(MapKey(1, 1, 5))


def test_only_maps_without_overlap_are_exclusive():
    plan = CoordinatePlan(reference.scene(np.random.default_rng(2), 300))
    assert plan.kernel_map(MapKey(1, 2, 2))[1].is_exclusive
    assert not plan.kernel_map(MapKey(1, 2, 2))[0].is_exclusive
    assert not plan.kernel_map(MapKey(1, 2, 3))[1].is_exclusive


def test_the_header_of_something_else_is_refused():
    with pytest.raises(ValueError, match="not the header of a coordinate plan"):
        unpack_plan(np.zeros(1, np.int32), np.array([99, 3, 1]).tobytes())


@pytest.mark.parametrize("side", [1, -1])
def test_voxels_are_found_also_after_the_keys_have_changed(side):
    coordinates = reference.scene(np.random.default_rng(0), 80, 3)
    plan = CoordinateLevels(coordinates)
    level, expected = plan.level(1).coordinates, np.arange(len(coordinates))
    rows = {tuple(voxel): row for row, voxel in enumerate(level.tolist())}
    asked = np.concatenate([level[::3], level[::2] + [0, 1, 0, 0], level[:4] + [0, 90, 0, 0]])
    wanted = [rows.get(tuple(voxel), -1) for voxel in asked.tolist()]
    assert plan.find(1, asked).tolist() == wanted and plan.find(1, level).tolist() == expected.tolist()
    far = np.array(
        [[0, 0, 0], *([0, 0, side * step] for step in range(490, 560))]
    )  # beyond twice the keys' first margin
    for k, level_rows, _ in plan.pairs_with(1, level, far):
        assert level_rows.tolist() == [rows.get((scene, x, y, z + far[k, 2]), -1) for scene, x, y, z in level.tolist()]
    assert plan.find(1, asked).tolist() == wanted
    shifted = level + [0, 0, 0, side * 300]  # within reach of the new margin alone
    assert plan.find(1, shifted).tolist() == [rows.get(tuple(voxel), -1) for voxel in shifted.tolist()]
