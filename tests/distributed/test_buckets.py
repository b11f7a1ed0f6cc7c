"""TRAIN.BUCKET_MEGABYTES: in how many messages gradients travel, and that it does not change them."""

from __future__ import annotations

import numpy as np
import paddle
from support.processes import run_workers, succeeded

from paddlevit_dist.parallel import rank
from paddlevit_dist.parallel.wrapping import data_parallel


def gradients_by_bucket():
    """For buckets of 1 and 25 MiB: how many there are for four matrices of 1 MiB, and the gradients."""
    found = []
    for megabytes in (1, 25):
        paddle.seed(7)
        model = paddle.nn.Sequential(*[paddle.nn.Linear(512, 512, bias_attr=False) for _ in range(4)])
        parallel = data_parallel(model, bucket_megabytes=megabytes)
        rows = np.random.default_rng(rank()).standard_normal((3, 512)).astype(np.float32)
        parallel(paddle.to_tensor(rows)).square().mean().backward()
        found.append((len(parallel.group_indices), [p.grad.numpy() for p in model.parameters()]))
    return found


def test_smaller_buckets_are_more_messages_with_the_same_gradients():
    ranks = succeeded(run_workers("distributed.test_buckets:gradients_by_bucket", processes=2)).results
    for small, large in ranks:
        assert small[0] == 4 and large[0] < 4
        assert all(np.array_equal(a, b) and a.any() for a, b in zip(small[1], large[1]))
    assert all(np.array_equal(a, b) for a, b in zip(ranks[0][0][1], ranks[1][0][1]))
