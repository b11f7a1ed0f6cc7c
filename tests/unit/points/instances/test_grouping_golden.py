"""PointGroup's clusters and their overlap with true instances, reproduced."""

import numpy as np
from support.networks.golden import arrays, description

from paddlevit_dist.points.instances.grouping import cluster_points, proposal_ious

ABOUT = description("pointgroup_clusters")


def clustered():
    golden = arrays("pointgroup_clusters")
    inputs = (golden[name] for name in ("xyz", "semantic_label", "batch_idxs", "radius", "npoint_threshold"))
    xyz, classes, scenes, radius, smallest = inputs
    return golden, cluster_points(xyz, classes, scenes, float(radius), int(smallest))


def test_golden_clusters():
    golden, clusters = clustered()
    assert (len(golden["xyz"]), clusters.number) == (ABOUT["points"], ABOUT["clusters"])
    cluster_of = np.full(len(golden["xyz"]), -1)
    cluster_of[clusters.points] = clusters.cluster_numbers
    assert np.array_equal(cluster_of, golden["cluster_id"])
    np.testing.assert_array_equal(clusters.offsets, golden["proposals_offset"], strict=True)
    for first, end in zip(clusters.offsets[:-1], clusters.offsets[1:]):
        expected = golden["proposals_idx"][first:end]
        assert clusters.points[first] == expected[0, 1]  # the point that a search would begin at
        np.testing.assert_array_equal(clusters.points[first:end], np.sort(expected[:, 1]), strict=True)


def test_golden_ious_of_proposals():
    golden, clusters = clustered()
    ious = proposal_ious(clusters, golden["instance_labels"], golden["instance_pointnum"])
    assert ious.dtype == np.float32
    np.testing.assert_allclose(ious, golden["proposal_iou"], rtol=1e-6, atol=1e-7)
