"""Clusters in their grids, their targets, and which become predictions."""

import numpy as np
import pytest

from paddlevit_dist.points.instances.grouping import PointClusters
from paddlevit_dist.points.instances.proposals import score_targets, select_predictions, voxelize_clusters


def make_clusters(members):
    offsets = np.cumsum([0, *(len(points) for points in members)])
    cluster_of = np.repeat(np.arange(len(members)), np.diff(offsets))
    points = np.concatenate([*members, []])
    return PointClusters(*(np.asarray(array, np.int32) for array in (cluster_of, points, offsets)))


@pytest.mark.parametrize("shares", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("extent_m", [0.0, 0.01, 0.28, 0.5, 3.0, 40.0])
def test_every_cluster_fits_its_cube_and_fills_it_if_it_is_large(extent_m, shares):
    generator = np.random.default_rng(0)
    xyz = (generator.random((300, 3)) * extent_m - 7.0).astype(np.float32)
    members = [generator.choice(300, 80, replace=False) for _ in range(3)]
    clusters = make_clusters(members)
    voxels = voxelize_clusters(clusters, xyz, 14, 50.0, np.full(3, shares))
    assert [part.dtype for part in voxels] == [np.int32] * 2
    places = voxels.coordinates[voxels.voxel_rows]  # (S, 4)
    np.testing.assert_array_equal(places[:, 0], clusters.cluster_numbers, strict=True)
    assert voxels.coordinates[:, 1:].min() >= 0 and voxels.coordinates[:, 1:].max() <= 13
    assert (np.diff(voxels.coordinates[:, 0]) >= 0).all()
    assert len(np.unique(voxels.coordinates, axis=0)) == len(voxels.coordinates)
    for number, points in enumerate(members):
        spans = np.ptp(xyz[points].astype(np.float64), axis=0)
        scale = min(14 / spans.max() - 0.01, 50.0) if spans.max() else 50.0
        found = np.ptp(places[clusters.cluster_numbers == number, 1:], axis=0)
        assert (abs(found - spans * scale) <= 1.0).all()


def test_the_shares_say_where_a_small_cluster_lies_in_its_cube():
    xyz = np.array([[0.0, 0.0, 0.0], [0.1, 0.0, 0.0]])  # five voxels long, nine are free
    voxels = voxelize_clusters(make_clusters([[0, 1]]), xyz, 14, 50.0, np.array([0.0, 0.5, 1.0]))
    assert voxels.coordinates[0].tolist() == [0, 0, 6, 13] and voxels.coordinates[1, 1] in (4, 5)


def test_no_clusters():
    none = make_clusters([])
    voxels = voxelize_clusters(none, np.zeros((5, 3)), 14, 50.0, np.zeros(3))
    assert voxels.coordinates.shape == (0, 4) and voxels.voxel_rows.shape == (0,)
    assert select_predictions(none, np.zeros(0), np.zeros(5, int), 0.09, 1, 0.3) == []
    assert score_targets(np.zeros((0, 4)), 0.25, 0.75).shape == (0,)


def test_targets_rise_from_background_to_foreground():
    best = np.array([0.0, 0.25, 0.375, 0.5, 0.75, 1.0])
    ious = np.stack([best / 2, best], axis=1)
    assert score_targets(ious, 0.25, 0.75).tolist() == [0.0, 0.0, 0.25, 0.5, 1.0, 1.0]
    assert score_targets(np.zeros((2, 0)), 0.25, 0.75).tolist() == [0.0, 0.0]


def by_plain_suppression(members, scores, threshold, smallest, nms_iou):
    kept = []
    for number in sorted(range(len(members)), key=lambda n: (-scores[n], n)):
        points = set(members[number])
        if scores[number] > threshold and len(points) > smallest:
            ious = [len(points & set(members[k])) / len(points | set(members[k])) for k in kept]
            if not any(iou > nms_iou for iou in ious):
                kept.append(number)
    return kept


@pytest.mark.parametrize("seed", range(5))
def test_predictions_are_those_of_plain_suppression(seed):
    generator = np.random.default_rng(seed)
    members = []
    for _ in range(30):  # of three overlapping sets, so that a point is in several clusters
        first = int(generator.integers(0, 150))
        members.append(np.arange(first, first + int(generator.integers(2, 40))))
    scores = np.round(generator.random(30), 1)
    classes = generator.integers(0, 5, 200)
    predictions = select_predictions(make_clusters(members), scores, classes, 0.2, 6, 0.3)
    expected = by_plain_suppression([m.tolist() for m in members], scores, 0.2, 6, 0.3)
    assert len(expected) > 3
    assert [p.points.tolist() for p in predictions] == [members[n].tolist() for n in expected]
    assert [p.confidence for p in predictions] == scores[expected].tolist()
    assert [p.class_number for p in predictions] == [classes[members[n][0]] for n in expected]


def test_a_prediction_has_more_points_than_the_smallest():
    """As the original's test.py: ``proposals_pointnum > TEST_NPOINT_THRESH``, 100."""
    members = [np.arange(100), np.arange(200, 301), np.arange(400, 499)]
    found = select_predictions(make_clusters(members), np.full(3, 0.9), np.zeros(500, int), 0.09, 100, 0.3)
    assert [len(prediction.points) for prediction in found] == [101]
