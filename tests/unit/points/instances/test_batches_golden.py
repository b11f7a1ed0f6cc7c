"""PointGroup's voxels, the voxel of each point, and its mean pooling with gradient, reproduced."""

import numpy as np
import paddle
import pytest
from support.networks.golden import arrays, description

from paddlevit_dist.points.data.voxels import first_occurrences, voxel_means
from paddlevit_dist.points.instances.batches import pool_to_voxels

ABOUT = description("pointgroup_voxelize")


@pytest.fixture(scope="module")
def golden():
    return arrays("pointgroup_voxelize")


def test_golden_maps(golden):
    first, inverse = first_occurrences(golden["locs"].astype(np.int32))
    assert (len(inverse), len(first)) == (ABOUT["points"], ABOUT["voxels"])
    assert np.array_equal(golden["locs"][first], golden["voxel_locs"]) and np.array_equal(inverse, golden["p2v_map"])


def test_golden_means_in_the_loader(golden):
    means = voxel_means(golden["feats"], golden["p2v_map"], len(golden["voxel_locs"]))
    assert means.dtype == np.float32
    np.testing.assert_allclose(means, golden["voxel_feats"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_golden_means_and_their_gradient(golden, dtype):
    features = paddle.to_tensor(golden["feats"], dtype=dtype, stop_gradient=False)
    pooled = pool_to_voxels(features, paddle.to_tensor(golden["p2v_map"]), len(golden["voxel_locs"]))
    np.testing.assert_allclose(pooled.numpy(), golden["voxel_feats"], rtol=1e-5, atol=1e-5)
    pooled.backward(paddle.to_tensor(golden["grad_voxel_feats"], dtype=dtype))
    np.testing.assert_allclose(features.grad.numpy(), golden["grad_feats"], rtol=1e-5, atol=1e-6)


def test_no_points_have_no_voxels():
    first, inverse = first_occurrences(np.zeros((0, 4), np.int32))
    assert first.shape == inverse.shape == (0,)
    assert voxel_means(np.zeros((0, 5), np.float32), inverse, 0).shape == (0, 5)
    assert pool_to_voxels(paddle.zeros([0, 3]), paddle.to_tensor(inverse), 0).shape == [0, 3]
