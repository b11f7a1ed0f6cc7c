"""Ranks with different numbers of voxels learn what one process learns from all of them."""

import numpy as np
import paddle
import pytest
from support.processes import run_together

from paddlevit_dist.models import create_model
from paddlevit_dist.parallel import convert_batch_norm, data_parallel, rank, world_size, zero_of
from paddlevit_dist.points.sparse import SparseTensor

GENERATOR = np.random.default_rng(0)
VOXELS = np.unique(GENERATOR.integers(-6, 6, (500, 4)) % [2, 99, 99, 99] - [0, 3, 0, 0], axis=0)
SCENES = [VOXELS[VOXELS[:, 0] == scene] for scene in (0, 1)]
FEATURES = GENERATOR.standard_normal((len(VOXELS), 3))
LABELS = GENERATOR.integers(0, 4, len(VOXELS))


def gradients(voxels: np.ndarray) -> dict[str, np.ndarray]:
    """Gradients of the mean loss over all ranks' voxels, and the running statistics; a scene for each rank."""
    paddle.set_default_dtype("float64")
    paddle.seed(0)
    model = convert_batch_norm(create_model("minkunet_tutorial", num_classes=4, in_channels=3))
    chosen = np.flatnonzero((voxels[:, 0] == rank()) | (world_size() == 1))
    x = SparseTensor(paddle.to_tensor(FEATURES[chosen]), voxels[chosen], num_scenes=2)
    wrapped = data_parallel(model)  # must outlive the backward pass
    logits = wrapped(x)
    if len(chosen):
        total = paddle.nn.functional.cross_entropy(logits, paddle.to_tensor(LABELS[chosen]), reduction="sum")
    else:
        total = zero_of(logits)
    (total * world_size() / len(voxels)).backward()
    result = {name: p.grad.numpy() for name, p in model.named_parameters() if not p.stop_gradient}
    return {**result, **{name: p.numpy() for name, p in model.state_dict().items() if name.endswith("_variance")}}


def voxels_with(of_second_rank: int) -> np.ndarray:
    return np.concatenate([SCENES[0], SCENES[1][:of_second_rank]])


@pytest.fixture(scope="module")
def together() -> dict:
    target = "distributed.test_sparse_ranks:gradients"
    return run_together({str(number): (target, (voxels_with(number),)) for number in (40, 0)})


@pytest.mark.parametrize("of_second_rank", [40, 0])
def test_gradients_of_uneven_ranks_are_those_of_one_process_on_the_union(of_second_rank, together):
    voxels = voxels_with(of_second_rank)
    try:
        alone = gradients(voxels)
    finally:
        paddle.set_default_dtype("float32")
    results = together[str(of_second_rank)]
    assert len(results) == 2
    for of_rank in results:
        assert of_rank.keys() == alone.keys()
        for name, value in alone.items():
            assert of_rank[name] == pytest.approx(value, rel=1e-7, abs=1e-10), name
