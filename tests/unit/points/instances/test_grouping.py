"""Clusters of points: against a breadth-first search over all pairs, and on unusual scenes."""

import numpy as np
import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.points.instances.grouping import PointClusters, cluster_points, proposal_ious
from paddlevit_dist.points.instances.pointgroup import GroupingInput, group_points

RADIUS = 0.03


def by_search(xyz, classes, scenes, radius, smallest):
    """Members of each cluster, found from the first point on through all points that are near enough."""
    xyz = np.asarray(xyz, np.float32)
    gaps = xyz[:, None] - xyz[None]
    near = (gaps[..., 0] ** 2 + gaps[..., 1] ** 2 + gaps[..., 2] ** 2) < np.float32(radius) * np.float32(radius)
    near &= (classes[:, None] == classes) & (scenes[:, None] == scenes)
    left, found = set(range(len(xyz))), []
    for start in range(len(xyz)):
        if start not in left:
            continue
        left.remove(start)
        members, queue = [start], [start]
        while queue:
            for neighbor in np.flatnonzero(near[queue.pop(0)]).tolist():
                if neighbor in left:
                    left.remove(neighbor)
                    members.append(neighbor)
                    queue.append(neighbor)
        if len(members) >= smallest:
            found.append(sorted(members))
    return found


def make_members(clusters):
    return [clusters.points[a:b].tolist() for a, b in zip(clusters.offsets[:-1], clusters.offsets[1:])]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("extent, shift", [(0.3, 0.0), (0.6, -3.0), (2.0, 100.0)])
def test_clusters_are_those_of_a_search(seed, extent, shift):
    generator = np.random.default_rng(seed)
    number = 900
    xyz = (generator.random((number, 3)) * [extent, extent, extent / 8] + shift).astype(np.float32)
    classes, scenes = generator.integers(0, 3, number), np.sort(generator.integers(0, 2, number))
    clusters = cluster_points(xyz, classes, scenes, RADIUS, 4)
    assert make_members(clusters) == by_search(xyz, classes, scenes, RADIUS, 4)
    assert np.array_equal(clusters.cluster_numbers, np.repeat(np.arange(clusters.number), np.diff(clusters.offsets)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_things_are_grouped_at_their_positions_and_then_at_their_shifted_ones(dtype):
    generator = np.random.default_rng(0)
    number, is_thing = 500, np.array([True, False, True])
    xyz = (generator.random((number, 3)) * [0.5, 0.3, 0.05]).astype(np.float32)
    scenes = np.sort(generator.integers(0, 2, number))
    logits = paddle.to_tensor(generator.standard_normal((number, 3)), "float32")
    moves = paddle.to_tensor(generator.normal(0, 0.02, (number, 3)), dtype)
    found = group_points(logits, moves, GroupingInput(xyz, scenes, is_thing, RADIUS, 4, 14, 50.0, np.zeros(3)))
    classes, shifted = logits.numpy().argmax(axis=1), xyz + moves.astype("float32").numpy()
    things = np.flatnonzero(classes != 1)
    expected = [
        things[members].tolist()
        for places in (xyz, shifted)
        for members in by_search(places[things], classes[things], scenes[things], RADIUS, 4)
    ]
    assert make_members(found) == expected
    assert [part.dtype for part in found] == [np.int32] * 3


def test_distances_at_the_radius_are_decided_as_in_float32():
    # A chain whose links are the radius, a little less and a little more.
    for gap in (np.float32(RADIUS), np.nextafter(np.float32(RADIUS), 0), np.nextafter(np.float32(RADIUS), 1)):
        for axis in range(3):
            xyz = np.zeros((40, 3), np.float32)
            xyz[:, axis] = np.arange(40) * gap
            ones = np.zeros(40, int)
            assert make_members(cluster_points(xyz, ones, ones, RADIUS, 1)) == by_search(xyz, ones, ones, RADIUS, 1)


def test_cells_of_a_wide_scene_are_numbered_exactly():
    """More cells than float64 has whole numbers: neighbors beyond the radius stay apart, in either corner."""
    radius, steps = 0.01, np.arange(40, dtype=np.float64)[:, None] * [0, 0, 0.013]
    xyz = np.concatenate([sign * (900 - steps) - [0, 0, 0.004 * (sign > 0)] for sign in (-1, 1)]).astype(np.float32)
    ones = np.ones(80, int)
    found = make_members(cluster_points(xyz, ones, ones, radius, 1))
    assert found == by_search(xyz, ones, ones, radius, 1) == [[number] for number in range(80)]


def test_points_that_were_shifted_onto_one_place_stay_one_cluster():
    # 5,000 points in a ball of half the radius: each has more neighbors than the original lists.
    xyz = np.random.default_rng(0).normal(0.0, 0.003, (5000, 3)).astype(np.float32)
    xyz[2500:] += 0.5
    zeros = np.zeros(5000, int)
    assert make_members(cluster_points(xyz, zeros, zeros, RADIUS, 50)) == [list(range(2500)), list(range(2500, 5000))]


def test_no_points_and_points_that_are_nowhere():
    none = cluster_points(np.zeros((0, 3)), np.zeros(0, int), np.zeros(0, int), RADIUS, 1)
    assert none.number == 0 and none.offsets.tolist() == [0]
    xyz = np.zeros((6, 3))
    xyz[1], xyz[3, 2], xyz[4, 0] = np.nan, np.inf, -np.inf
    zeros = np.zeros(6, int)
    assert make_members(cluster_points(xyz, zeros, zeros, RADIUS, 1)) == [[0, 2, 5]]
    assert cluster_points(xyz, zeros, zeros, RADIUS, 4).number == 0
    assert cluster_points(np.full((2, 3), np.nan), zeros[:2], zeros[:2], RADIUS, 1).number == 0


@pytest.mark.parametrize("distance", [1.5e3, 2.0**17, 1e30])
def test_clusters_do_not_depend_on_how_far_parts_of_a_scene_are_apart(distance):
    """At 2^17 m float32 has steps of 1/64 m, at 1e30 m the points of a part coincide."""
    generator = np.random.default_rng(0)
    xyz = generator.random((300, 3)) * [0.2, 0.2, 0.02]
    xyz = np.concatenate([xyz, xyz - distance * np.ones(3), xyz + [0, distance, 0]]).astype(np.float32)
    zeros = np.zeros(len(xyz), int)
    assert make_members(cluster_points(xyz, zeros, zeros, RADIUS, 4)) == by_search(xyz, zeros, zeros, RADIUS, 4)


def test_more_cells_than_keys_are_refused():
    xyz = np.random.default_rng(0).random((40_000, 3)) * 1e6
    with pytest.raises(UserError, match="INSTANCES.RADIUS_M"):
        cluster_points(xyz, np.zeros(40_000, int), np.arange(40_000), 1e-3, 1)


def test_two_sets_of_clusters_are_numbered_one_after_the_other():
    one = PointClusters(*(np.array(a, np.int32) for a in ([0, 0, 1], [3, 5, 1], [0, 2, 3])))
    two = PointClusters(*(np.array(a, np.int32) for a in ([0, 0], [1, 3], [0, 2])))
    both = one.concat(two)
    assert both.cluster_numbers.tolist() == [0, 0, 1, 2, 2] and both.offsets.tolist() == [0, 2, 3, 5]
    assert make_members(both) == [[3, 5], [1], [1, 3]]
    ious = proposal_ious(both, np.array([-100, 0, 0, 1, 0, 1]), np.array([3, 2]))
    np.testing.assert_allclose(ious, [[0, 1], [1 / 3, 0], [1 / 4, 1 / 3]], atol=1e-4)
    assert proposal_ious(both, np.full(6, -100), np.zeros(0, int)).shape == (3, 0)
    beyond = proposal_ious(both, np.array([0, 0, 0, 1, 0, 2]), np.array([3, 2]))  # of instances without a size
    without = proposal_ious(both, np.array([0, 0, 0, 1, 0, -1]), np.array([3, 2]))
    np.testing.assert_array_equal(beyond, without)
