"""Batches for PointGroup: the instance fields that its losses need, and the means of voxels.

Source: the data pipeline of the published program of L. Jiang et al., "PointGroup", CVPR 2020, arXiv 2004.01658.
"""

from collections.abc import Sequence

import numpy as np
import paddle

from ..data.scene import IGNORED
from .input import InstanceSample


def instance_fields(samples: Sequence[InstanceSample]) -> dict[str, np.ndarray]:
    """Return the fields that losses and grouping need for N >= 1 points, in addition to ``collate_samples``.

    They are ``xyz`` float32 (N, 3), meters; ``instance_labels`` int32 (N,), instance from 0 over all scenes, or -100;
    and ``instance_centers`` float32 (N, 3), mean of the point's instance, all -100 if it has none.
    """
    return {
        "xyz": np.concatenate([sample.scene.xyz for sample in samples]),
        "instance_labels": _shift_instances(samples),
        "instance_centers": np.concatenate(
            [sample.table.gather_for_points(sample.scene.instance, 3) for sample in samples]
        ),
    }


def _shift_instances(samples: Sequence[InstanceSample]) -> np.ndarray:
    """Return instances numbered over all scenes, int32 (N,)."""
    parts: list[np.ndarray] = []
    offset = 0
    for sample in samples:
        instances = sample.scene.instance
        parts.append(np.where(instances >= 0, instances + np.int32(offset), np.int32(IGNORED)))
        offset += len(sample.table.sizes)
    return np.concatenate(parts)


def pool_to_voxels(features: paddle.Tensor, p2v_map: paddle.Tensor, num_voxels: int) -> paddle.Tensor:
    """Return the differentiable mean (M, C) of (N, C) over each voxel's points, int (N,); every voxel occurs."""
    channels = features.shape[1]
    if not features.shape[0]:
        return features  # (0, C); kernels may not accept empty input
    rows = p2v_map.unsqueeze(1)
    sums = paddle.scatter_nd_add(paddle.zeros([num_voxels, channels], dtype=features.dtype), rows, features)
    ones = paddle.ones([features.shape[0]], dtype=features.dtype)
    counts = paddle.scatter_nd_add(paddle.zeros([num_voxels], dtype=features.dtype), rows, ones)
    return sums / counts.unsqueeze(1)
