"""Clusters as input to the score network, and the selection of predictions among them.

Source: L. Jiang et al., "PointGroup", CVPR 2020, arXiv 2004.01658, sections 3.4 and 3.5, and its published program.
"""

from typing import NamedTuple

import numpy as np

from ..data.voxels import first_occurrences
from .grouping import PointClusters
from .matching import InstancePrediction

_MARGIN = 0.001  # in voxels, between a cluster and the border of its grid


class ClusterVoxels(NamedTuple):
    """The voxels of clusters, each cluster in a separate grid."""

    coordinates: np.ndarray  # int32 (M, 4), cluster number (ascending) and position in its grid
    voxel_rows: np.ndarray  # int32 (S,), the voxel of each member of the clusters


def voxelize_clusters(
    clusters: PointClusters, xyz: np.ndarray, full_scale: int, scale: float, shares: np.ndarray
) -> ClusterVoxels:
    """Fit each cluster into a cube of ``full_scale`` voxels, as large as possible, at most ``scale`` voxels per meter.

    ``xyz`` (N, 3) are all points, meters. ``shares`` (3,), from 0 to 1, is the fraction of the free space in its cube
    that precedes a cluster, the same for all: random in training, one half otherwise.
    """
    if not clusters.number:
        return ClusterVoxels(np.zeros((0, 4), np.int32), np.zeros(0, np.int32))
    places = xyz[clusters.points].astype(np.float64)  # (S, 3)
    starts = clusters.offsets[:-1]
    low, high = np.minimum.reduceat(places, starts), np.maximum.reduceat(places, starts)  # (clusters, 3)
    extent = (high - low).max(axis=1)
    with np.errstate(divide="ignore"):
        cluster_scale = np.minimum(full_scale / extent - 0.01, scale)[:, None]  # (clusters, 1), voxels per meter
    free = np.maximum(full_scale - (high - low) * cluster_scale - _MARGIN, 0.0)
    member_clusters = clusters.cluster_numbers
    voxels = (places - low[member_clusters]) * cluster_scale[member_clusters] + (free * shares)[member_clusters]
    voxels = np.clip(np.floor(voxels), 0, full_scale - 1).astype(np.int32)  # guards against rounding
    rows = np.concatenate([member_clusters[:, None], voxels], axis=1)
    first, inverse = first_occurrences(rows)
    return ClusterVoxels(rows[first], inverse.astype(np.int32))


def score_targets(ious: np.ndarray, background_iou: float, foreground_iou: float) -> np.ndarray:
    """Compute target scores of clusters, float32 (clusters,), from their IoU (clusters, instances) with the best one.

    The target is 0 up to ``background_iou`` or without instances, 1 from ``foreground_iou`` on, and linear in between.
    """
    best = ious.max(axis=1, initial=0.0)
    share = (best - background_iou) / (foreground_iou - background_iou)
    return np.clip(share, 0.0, 1.0).astype(np.float32)


def select_predictions(
    clusters: PointClusters, scores: np.ndarray, classes: np.ndarray, threshold: float, min_points: int, nms_iou: float
) -> list[InstancePrediction]:
    """Select the clusters to predict as instances, best first.

    Clusters with a score, from 0 to 1, above ``threshold`` and more than ``min_points`` points are selected unless a
    selected one with a better score overlaps them with an IoU above ``nms_iou``, regardless of class. A cluster has the
    class of its first point in ``classes`` (N,).
    """
    sizes = np.diff(clusters.offsets)
    shared = _shared_points(clusters)
    order = np.argsort(-scores, kind="stable")
    selected: list[int] = []
    for number in order[(scores[order] > threshold) & (sizes[order] > min_points)].tolist():
        common = shared[number, selected]
        if not (common > nms_iou * (sizes[number] + sizes[selected] - common)).any():
            selected.append(number)
    members = [clusters.points[clusters.offsets[n] : clusters.offsets[n + 1]].astype(np.int64) for n in selected]
    return [
        InstancePrediction(int(classes[points[0]]), float(scores[n]), points) for n, points in zip(selected, members)
    ]


def _shared_points(clusters: PointClusters) -> np.ndarray:
    """Count the points shared by each pair of clusters, int64 (clusters, clusters); 0 on the diagonal."""
    order = np.argsort(clusters.points, kind="stable")
    points, cluster_numbers = clusters.points[order], clusters.cluster_numbers[order].astype(np.int64)
    shared = np.zeros((clusters.number, clusters.number), np.int64)
    distance = 1
    while distance < len(points):  # a point is in few clusters, and its entries are adjacent
        same = np.flatnonzero(points[distance:] == points[:-distance])
        if not len(same):
            break
        np.add.at(shared, (cluster_numbers[same], cluster_numbers[same + distance]), 1)
        distance += 1
    return shared + shared.T
