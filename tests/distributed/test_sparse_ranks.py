"""Ranks that hold different numbers of voxels learn what one process learns from all of them."""

from __future__ import annotations

from typing import Dict

import numpy as np
import paddle
import pytest

from paddlevit_dist.models import create_model
from paddlevit_dist.parallel import data_parallel, rank, world_size
from paddlevit_dist.parallel.batch_norm import convert_batch_norm
from paddlevit_dist.points.sparse import SparseTensor

from .harness import run_workers, succeeded

GENERATOR = np.random.default_rng(0)
VOXELS = np.unique(GENERATOR.integers(-6, 6, (500, 4)) % [2, 99, 99, 99] - [0, 3, 0, 0], axis=0)
VOXELS = np.concatenate([VOXELS[VOXELS[:, 0] == 0], VOXELS[VOXELS[:, 0] == 1][:40]])  # the second scene is small
FEATURES = GENERATOR.standard_normal((len(VOXELS), 3))
LABELS = GENERATOR.integers(0, 4, len(VOXELS))


def gradients() -> Dict[str, np.ndarray]:
    """Gradients of the mean loss over all ranks' voxels, and the running statistics; a scene for each rank."""
    paddle.set_default_dtype("float64")
    paddle.seed(0)
    model = convert_batch_norm(create_model("minkunet_tutorial", num_classes=4, in_channels=3))
    chosen = np.flatnonzero((VOXELS[:, 0] == rank()) | (world_size() == 1))
    x = SparseTensor(paddle.to_tensor(FEATURES[chosen]), VOXELS[chosen], num_scenes=2)
    wrapped = data_parallel(model)  # must outlive the backward pass
    logits = wrapped(x)
    total = paddle.nn.functional.cross_entropy(logits, paddle.to_tensor(LABELS[chosen]), reduction="sum")
    (total * world_size() / len(VOXELS)).backward()
    result = {name: p.grad.numpy() for name, p in model.named_parameters() if not p.stop_gradient}
    return {**result, **{name: p.numpy() for name, p in model.state_dict().items() if name.endswith("_variance")}}


def test_gradients_of_uneven_ranks_are_those_of_one_process_on_the_union():
    try:
        alone = gradients()
    finally:
        paddle.set_default_dtype("float32")
    ended = succeeded(run_workers("distributed.test_sparse_ranks:gradients"))
    assert len(ended.results) == 2
    for of_rank in ended.results:
        assert of_rank.keys() == alone.keys()
        for name, value in alone.items():
            assert of_rank[name] == pytest.approx(value, rel=1e-7, abs=1e-10), name
