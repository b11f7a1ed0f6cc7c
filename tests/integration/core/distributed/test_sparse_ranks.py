"""Ranks with different numbers of voxels learn what one process learns from all of them."""

import numpy as np
import paddle
import pytest
from paddle import nn
from support.processes import run_together

from paddlevit_dist.core.distributed import build_zero, convert_batch_norm, data_parallel, rank, world_size
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.points import sparse
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
        total = build_zero(logits)
    (total * world_size() / len(voxels)).backward()
    result = {name: p.grad.numpy() for name, p in model.named_parameters() if not p.stop_gradient}
    return {**result, **{name: p.numpy() for name, p in model.state_dict().items() if name.endswith("_variance")}}


class Making(nn.Layer):
    """Layers whose voxels follow from the coordinates while it runs, and those of whole scenes."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(sparse.Convolution(3, 4, 3), sparse.BatchNorm(4), sparse.DepthwiseConvolution(4))
        self.norm, self.pool = sparse.InstanceNorm(4), sparse.GlobalPooling("average")
        self.down = sparse.PaddedConvolution(4, 6, 3, 2, 1, bias=True)
        self.up = sparse.GenerativeConvolution(6, 4, 2, 2)
        self.head = sparse.Pointwise(nn.Linear(4, 2))

    def forward(self, x):
        x = self.norm(self.stem(x))
        x = sparse.broadcast(x, self.pool(x), "multiply") + self.up(self.down(x))
        return self.head(sparse.prune(x, x.coordinates.sum(axis=1) % 3 > 0)).features


def gradients_of_making(voxels: np.ndarray) -> dict[str, np.ndarray]:
    """As ``gradients``, of the mean square over all made voxels."""
    paddle.set_default_dtype("float64")
    paddle.seed(0)
    model = convert_batch_norm(Making())
    chosen = np.flatnonzero((voxels[:, 0] == rank()) | (world_size() == 1))
    wrapped = data_parallel(model)
    rows = wrapped(SparseTensor(paddle.to_tensor(FEATURES[chosen]), voxels[chosen], num_scenes=2))
    total = (rows**2).sum() if rows.shape[0] else build_zero(rows)
    (total * world_size() / len(voxels)).backward()
    return {name: p.grad.numpy() for name, p in model.named_parameters() if not p.stop_gradient}


def voxels_with(of_second_rank: int) -> np.ndarray:
    return np.concatenate([SCENES[0], SCENES[1][:of_second_rank]])


def train_with_a_sparse_result() -> list[np.ndarray]:
    """A network that returns a sparse tensor, under Paddle's own ``DataParallel``; gradients of a second pass."""
    paddle.set_default_dtype("float32")
    paddle.seed(0)
    layers = sparse.Convolution(1, 4, 3), sparse.BatchNorm(4), sparse.ReLU(), sparse.Convolution(4, 2, 1)
    network = nn.Sequential(*layers)
    model = paddle.DataParallel(network)
    places = np.c_[np.zeros(50, np.int32), np.arange(150).reshape(50, 3) % 7 + np.arange(50)[:, None]]
    for _ in range(2):
        model(SparseTensor(np.ones((50, 1), np.float32), places)).F.square().sum().backward()
    return [parameter.grad.numpy() for parameter in network.parameters() if not parameter.stop_gradient]


FUNCTIONS = {"gradients": gradients, "gradients_of_making": gradients_of_making}


@pytest.fixture(scope="module")
def together() -> dict:
    module = "integration.core.distributed.test_sparse_ranks"
    calls = [(function, number) for function in FUNCTIONS for number in (40, 0)]
    sparse_result = {"sparse result": (f"{module}:train_with_a_sparse_result", ())}
    return run_together({f"{name} {n}": (f"{module}:{name}", (voxels_with(n),)) for name, n in calls} | sparse_result)


@pytest.mark.parametrize("of_second_rank", [40, 0])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradients_of_uneven_ranks_are_those_of_one_process_on_the_union(function, of_second_rank, together):
    voxels = voxels_with(of_second_rank)
    try:
        alone = FUNCTIONS[function](voxels)
    finally:
        paddle.set_default_dtype("float32")
    results = together[f"{function} {of_second_rank}"]
    assert len(results) == 2
    for of_rank in results:
        assert of_rank.keys() == alone.keys()
        for name, value in alone.items():
            assert of_rank[name] == pytest.approx(value, rel=1e-7, abs=1e-10), name


def test_every_parameter_of_a_network_with_a_sparse_result_has_the_same_gradient_on_both_ranks(together):
    one, other = together["sparse result"]
    for first, second in zip(one, other):
        np.testing.assert_array_equal(first, second)
    assert all(np.abs(gradient).max() > 0 for gradient in (one[0], one[-1]))
