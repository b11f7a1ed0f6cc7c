"""PyTorch's functions in recorded networks: sizes, changes in place, and drawn numbers."""

import operator

import numpy as np
import paddle
import pytest
from paddle import nn
from support.networks.timm_zoo import needs_compat

from . import test_torch_functions
from .test_torch_functions import normal

pytestmark = needs_compat
functions = test_torch_functions.functions  # a fixture
in_timm = test_torch_functions.in_timm  # a fixture


class RecordedLayer(paddle.nn.Layer):
    """Compute expressions as files of timm do, of images (batch, 4, 6, 8)."""

    def __init__(self, expressions):
        super().__init__()
        self.expressions = expressions

    def forward(self, x):
        from paddlevit_dist.images.models.bridges.torch_functions import attend

        return [in_timm(expression, x=x, attend=attend) for expression in self.expressions]


BATCHES = paddle.static.InputSpec([None, 4, 6, 8], "float32", "x")
RECORDED = {
    "x.view(x.shape[0], -1, 8)": lambda x: x.reshape(len(x), 24, 8),
    "x.reshape(x.shape[0], 4, 2, 3, -1)": lambda x: x.reshape(len(x), 4, 2, 3, 8),
    "x.reshape([x.shape[0] * 4, -1, 8])": lambda x: x.reshape(-1, 6, 8),
    "x.view(x.shape[0] * 4, 48)": lambda x: x.reshape(-1, 48),
    "x.view(-1, 2, 8).view(x.shape[0], -1)": lambda x: x.reshape(len(x), -1),
    "x.reshape(x.shape[:2] + (-1,))": lambda x: x.reshape(len(x), 4, 48),
    "x.reshape(x.size(0), -1)": lambda x: x.reshape(len(x), -1),
    "x.reshape(*x.size()[:3], 2, 4)": lambda x: x.reshape(len(x), 4, 6, 2, 4),
    "x.flatten(0, 1).reshape_as(x)": lambda x: x,
    "x.flatten(1).view_as(x)": lambda x: x,
    "x[:1].expand(x.shape[0], -1, -1, -1)": lambda x: np.repeat(x[:1], len(x), 0),
    "x[:1].repeat(x.shape[0], 1, 2, 1)": lambda x: np.tile(x[:1], (len(x), 1, 2, 1)),
    "x[:1].repeat_interleave(x.shape[0], dim=0)": lambda x: np.repeat(x[:1], len(x), 0),
    "x.repeat_interleave(2, -1)": lambda x: np.repeat(x, 2, -1),
    "x.unfold(2, 2, 2).reshape(x.shape[0], -1)": lambda x: (
        x.reshape(len(x), 4, 3, 2, 8).swapaxes(3, 4).reshape(len(x), -1)
    ),
    "x / x.numel() * x.shape[0]": lambda x: x / 192,
    "attend(*[x.view(x.shape[0], 2, 2, 6, 8)] * 3)": lambda x: attention(x.reshape(-1, 2, 6, 8)).reshape(
        -1, 2, 2, 6, 8
    ),
}


def attention(x):
    scores = np.exp(x @ x.swapaxes(-1, -2) / np.sqrt(x.shape[-1]))
    return scores / scores.sum(-1, keepdims=True) @ x


def test_recorded_sizes_are_those_of_the_batch_that_runs(tmp_path):
    layer = RecordedLayer(list(RECORDED)).eval()
    paddle.jit.save(layer, str(tmp_path / "recorded"), [BATCHES])
    for batch in (1, 3):
        x = normal(batch, 4, 6, 8)
        for compute in (paddle.jit.load(str(tmp_path / "recorded")), RecordedLayer(list(RECORDED))):
            for (expression, expected), found in zip(RECORDED.items(), compute(paddle.to_tensor(x)), strict=True):
                np.testing.assert_allclose(found.numpy(), expected(x), rtol=1e-5, atol=1e-6, err_msg=expression)


def test_a_recorded_view_keeps_the_sizes_that_are_known(tmp_path):
    """Others ask for them with numbers, such as the width of a head."""
    found = []

    class Watched(paddle.nn.Layer):
        def forward(self, x):
            for view in ("x.view(x.shape[0], -1, 8)", "x.view(x.shape[0], 24, 8)", "(x * 2).view(x.shape[0], -1, 8)"):
                found.append(list(operator.attrgetter("shape")(in_timm(view, x=x))))
            return x * 2

    paddle.jit.save(Watched().eval(), str(tmp_path / "watched"), [BATCHES])
    assert found == [[-1, 24, 8]] * 3


def test_a_function_of_a_checkpoint_is_called_again_for_its_gradient(functions):
    seen, x = [], paddle.to_tensor([2.0, 3.0], stop_gradient=False)

    def square(x, factor):
        seen.append(x.numpy().tolist())
        return factor * x * x

    y = functions.checkpoint(square, x, factor=0.5, use_reentrant=True)
    assert y.numpy().tolist() == [2.0, 4.5] and seen == [[2.0, 3.0]]
    y.sum().backward()
    assert x.grad.numpy().tolist() == [2.0, 3.0] and seen == [[2.0, 3.0]] * 2


def test_parameters_are_an_iterator_in_files_of_timm_alone(functions):
    layer, names = paddle.nn.Linear(2, 3), {"__name__": "timm.models.made_up"}
    exec("def first(layer): return next(layer.parameters()), list(layer.buffers())", names)
    assert names["first"](layer) == (layer.weight, [])
    assert layer.parameters() == [layer.weight, layer.bias]


# ---- recorded changes in place --------------------------------------------------------------------------------------


CHANGING = """
def change(x, weight):
    y = x * weight
    before = y + 1
    y.mul_(weight).add_(2, alpha=2)
    y = y.clone()
    y.sub_(1)
    y.masked_fill_(x > 4, 0.5)
    return y * before, y
"""


class ChangingLayer(paddle.nn.Layer):
    """Change tensors in place, as files of timm do, and drop what the methods return."""

    def __init__(self):
        super().__init__()
        names = {"__name__": "timm.models.made_up"}
        exec(CHANGING, names)
        self.change, self.scale = names["change"], self.create_parameter([3])

    def forward(self, x):
        from paddlevit_dist.images.models.bridges.torch_functions import apply_changes

        return apply_changes(self.change(x, self.scale))


def test_recorded_changes_in_place_reach_what_follows():
    x, weight = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([0.5, -1, 3], np.float32)
    layer = ChangingLayer()
    layer.scale.set_value(weight)
    compiled = paddle.jit.to_static(layer, full_graph=True, backend=None)
    product, changed = compiled(paddle.to_tensor(x))
    expected = np.where(x > 4, 0.5, x * weight**2 + 3)
    np.testing.assert_allclose(changed.numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(product.numpy(), expected * (x * weight + 1), rtol=1e-6)
    product.sum().backward()
    slope = np.where(x > 4, 0, 2 * x * weight)
    gradient = (slope * (x * weight + 1) + expected * x).sum(0)
    np.testing.assert_allclose(layer.scale.grad.numpy(), gradient, rtol=1e-5)


def test_recorded_paths_are_dropped_and_the_others_scaled():
    from paddlevit_dist.images.models.bridges.timm_model import TimmModel, load_timm

    network = load_timm().layers.DropPath(0.2)
    network.pretrained_cfg, network.num_features, network.reset_classifier = {}, 1, None
    model = paddle.jit.to_static(TimmModel(network, 1, (1, 1), 3), full_graph=True, backend=None)
    model.train()
    found = model(paddle.ones([2000, 1]))
    assert set(np.round(found.numpy().ravel(), 5)) == {0, 1.25}
    assert float(found.mean()) == pytest.approx(1, abs=5 * 0.5 / 2000**0.5)
    model.eval()
    assert (model(paddle.ones([4, 1])).numpy() == 1).all()


def fill_recorded(call):
    """Return what a recorded network computes that fills 4,000 normal numbers in place."""

    class Filling(nn.Layer):
        def forward(self, x):
            from paddlevit_dist.images.models.bridges.torch_functions import apply_changes, forget_changes

            forget_changes()
            return apply_changes(in_timm(call, x=x * 2))

    paddle.seed(0)
    recorded = paddle.jit.to_static(Filling(), full_graph=True, backend=None)
    return recorded(paddle.to_tensor(normal(4000))).numpy()


@pytest.mark.parametrize(
    "call, low, high, mean",
    [
        ("x.uniform_(-0.5, 2.0)", -0.5, 2.0, 0.75),
        ("x.uniform_()", 0.0, 1.0, 0.5),
        ("x.bernoulli_(0.25)", 0.0, 1.0, 0.25),
        ("x.clamp_(-0.5, 0.75)", -0.5, 0.75, None),
    ],
)
def test_recorded_fillings_have_their_bounds(call, low, high, mean):
    found = fill_recorded(call)
    assert low <= found.min() < low + 0.01 and high - 0.01 < found.max() <= high
    assert mean is None or found.mean() == pytest.approx(mean, abs=0.05)


def test_recorded_normal_numbers_have_mean_and_deviation():
    found = fill_recorded("x.normal_(3.0, 0.5)")
    assert found.mean() == pytest.approx(3, abs=0.05) and found.std() == pytest.approx(0.5, rel=0.05)
