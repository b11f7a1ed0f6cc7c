"""Weights of other programs for sparse networks, by their names and the order of their kernels' voxels."""

import itertools

import numpy as np
import paddle
import pytest
from paddle import nn
from support.networks import sparse_reference as reference
from support.networks.sparse_reference import given_by, list_offsets

from paddlevit_dist import UserError, load_weights
from paddlevit_dist.points import sparse

TOLERANCE = 1e-10


@pytest.fixture(autouse=True)
def float64():
    paddle.set_default_dtype("float64")
    yield
    paddle.set_default_dtype("float32")


def make_tensor():
    coordinates = reference.scene(np.random.default_rng(0), 120)
    return sparse.SparseTensor(np.random.default_rng(1).standard_normal((len(coordinates), 3)), coordinates)


def test_weights_of_spconv_1_and_2(tmp_path):
    class Network(sparse.SparseNetwork):
        key_maps = {"spconv": sparse.from_spconv}

        def __init__(self):
            super().__init__(3)
            self.first = sparse.PaddedConvolution(3, 8, 3, 2, 1, bias=True)
            self.norm = sparse.BatchNorm(8)
            self.second = sparse.SubmanifoldConv3D(8, 4, 3, bias=True)
            self.head = sparse.Pointwise(nn.Linear(4, 5))

        def forward(self, x):
            return self.head(self.second(self.norm(self.first(x))))

    generator = np.random.default_rng(0)
    state = {
        "first.weight": generator.standard_normal((3, 3, 3, 3, 8)),
        "first.bias": generator.standard_normal(8),
        "second.weight": generator.standard_normal((3, 3, 3, 8, 4)),
        "second.bias": generator.standard_normal(4),
        "head.layer.weight": generator.standard_normal((5, 4)),
        "head.layer.bias": generator.standard_normal(5),
        **{f"norm.{name}": generator.uniform(0.5, 1, 8) for name in ("weight", "bias", "running_mean", "running_var")},
    }
    second = {name: np.moveaxis(one, -1, 0) if one.ndim == 5 else one for name, one in state.items()}
    outputs, x = [], make_tensor()
    for name, arrays in (("one", state), ("two", second)):
        np.savez(tmp_path / f"{name}.npz", **arrays)
        network = Network()
        report = load_weights(network, str(tmp_path / f"{name}.npz"))
        assert len(report.loaded) == len(state), report.summary()
        network.eval()
        outputs.append(network(x).features.numpy())
    assert np.array_equal(*outputs)
    np.testing.assert_array_equal(network.second.weight.numpy(), state["second.weight"], strict=True)
    np.testing.assert_array_equal(network.head.layer.weight.numpy(), state["head.layer.weight"].T, strict=True)


def test_weights_of_torchsparse(tmp_path):
    """Its offsets: of odd kernels the first axis runs fastest, of even ones the last."""

    class Network(sparse.SparseNetwork):
        key_maps = {"torchsparse": sparse.from_torchsparse}

        def __init__(self):
            super().__init__(3)
            self.stem, self.norm = sparse.Convolution(3, 4, 3, bias=True), sparse.BatchNorm(4)
            self.down, self.up = sparse.Convolution(4, 4, 2, 2), sparse.TransposedConvolution(4, 2, 2, 2)
            self.head = sparse.Convolution(2, 2, 1)

    generator, network = np.random.default_rng(0), Network()
    shapes = {"stem": (27, 3, 4), "down": (8, 4, 4), "up": (8, 4, 2), "head": (2, 2)}
    state = {f"{name}.kernel": generator.standard_normal(shape) for name, shape in shapes.items()}
    state |= {
        "stem.bias": generator.standard_normal(4),
        "norm.running_mean": np.arange(4.0),
        "norm.running_var": np.ones(4),
    }
    state |= {"norm.weight": np.ones(4), "norm.bias": np.zeros(4)}
    np.savez(tmp_path / "theirs.npz", **state)
    report = load_weights(network, str(tmp_path / "theirs.npz"))
    assert len(report.loaded) == len(state), report.summary()
    x = make_tensor()
    y = network.stem(x)
    expected = np.tile(state["stem.bias"], (len(x.C), 1))
    for k, u, v in given_by(list_offsets(3, 3), x.coordinates, x.coordinates):
        expected[u] += x.F.numpy()[v] @ state["stem.kernel"][k]
    assert np.abs(y.F.numpy() - expected).max() < TOLERANCE
    z = network.down(y)
    expected = np.zeros((len(z.C), 4))
    for k, u, v in given_by(list(itertools.product((0, 1), repeat=3)), x.coordinates, z.coordinates):
        expected[u] += y.F.numpy()[v] @ state["down.kernel"][k]
    assert np.abs(z.F.numpy() - expected).max() < TOLERANCE
    with pytest.raises(UserError, match="up.kernel has 64 kernel voxels"):
        sparse.from_torchsparse({"up.kernel": np.ones((64, 2, 2))})
