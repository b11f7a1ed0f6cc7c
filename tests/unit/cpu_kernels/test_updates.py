"""Updates of all parameters at once, by compiled passes and by operations that take lists, against Paddle's own
operations bit for bit and against float64."""

import numpy as np
import paddle
import pytest
from yacs.config import CfgNode

from paddlevit_dist.cpu_kernels import update_kernels, updates
from paddlevit_dist.engine import fused_optimizers, multi_tensor
from paddlevit_dist.engine.model_ema import ModelEma
from paddlevit_dist.engine.multi_tensor import clipping_factor, collect_gradients
from paddlevit_dist.engine.optimizer import OptimizerState, build_optimizer
from paddlevit_dist.runtime import paddle_versions
from paddlevit_dist.tasks.model import Model

RATES = (1e-3, 9e-4, 5e-4)
OPTIMIZER = {"NAME": "AdamW", "EPS": 1e-8, "BETAS": (0.9, 0.99), "MOMENTUM": 0.8, "FUSED": True}
WAYS = pytest.mark.parametrize("worthwhile", [0, 10**9], ids=["compiled", "by lists"])


@pytest.fixture(autouse=True)
def compiled_for_any_size(monkeypatch):
    monkeypatch.setattr(updates, "WORTHWHILE", 0)


class Blocks(Model):
    """Sizes on both sides of a block of the loops, a buffer of whole numbers, two groups and three layers."""

    layer_names = r"blocks\.\d+"

    def __init__(self):
        super().__init__()
        self.embed = paddle.nn.Linear(5, 113)  # 565 weights
        self.blocks = paddle.nn.LayerList([paddle.nn.Linear(113, 113), paddle.nn.Linear(113, 3)])
        self.register_buffer("steps", paddle.zeros([1], dtype="int64"))

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(paddle.tanh(x))
        return x


def make_model(seed: int) -> Blocks:
    paddle.seed(seed)
    return Blocks()


def make_optimizer(model, name: str, is_fused: bool):
    settings = CfgNode({**OPTIMIZER, "NAME": name, "FUSED": is_fused})
    return build_optimizer(settings, model, None, 0.05, layer_decay=0.7)


def train(model, optimizer, rates, first: int = 0) -> None:
    """An update for each rate; the second one has no gradient for one parameter."""
    generator = np.random.default_rng(first)
    for number, rate in enumerate(rates, first):
        for name, p in model.named_parameters():
            if number != 1 or name != "embed.bias":
                p.grad = paddle.to_tensor(generator.standard_normal(p.shape).astype("float32") * 10.0 ** -(number + 1))
        optimizer.set_lr(rate)
        optimizer.step()
        optimizer.clear_grad(False)


def bits(model, optimizer) -> dict:
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    return {name: value.tobytes() for name, value in {**state, **OptimizerState(optimizer, model).state_dict()}.items()}


@pytest.mark.parametrize(
    "worthwhile, name, owner, called",
    [
        (0, "AdamW", update_kernels, "adam"),
        (0, "Adam", update_kernels, "adam"),
        (0, "SGD", update_kernels, "momentum"),
        (10**9, "AdamW", paddle_versions, "fused_adamw"),
        (10**9, "SGD", paddle._C_ops, "merged_momentum_"),
    ],
)
def test_weights_and_moments_have_the_bits_of_paddles_own_update(worthwhile, name, owner, called, monkeypatch):
    monkeypatch.setattr(updates, "WORTHWHILE", worthwhile)
    calls = []
    inner = getattr(owner, called)
    monkeypatch.setattr(owner, called, lambda *arguments: (calls.append(1), inner(*arguments)))
    models = make_model(3), make_model(3)
    optimizers = [make_optimizer(model, name, fused) for model, fused in zip(models, (False, True))]
    for model, optimizer in zip(models, optimizers):
        train(model, optimizer, RATES)
    assert bits(models[1], optimizers[1]) == bits(models[0], optimizers[0])
    assert len(calls) >= len(RATES)


def test_a_list_for_a_gpu_has_one_rate_one_decay_and_one_power_of_the_betas(monkeypatch):
    """There the first parameter's powers count for all: one that had no gradient in the second update stands apart."""
    monkeypatch.setattr(updates, "WORTHWHILE", 10**9)
    lists = []

    def noted(parameters, gradients, rate, accumulators, betas, epsilon, decay):
        powers = {(first.item(), second.item()) for first, second in zip(*accumulators[2:])}
        assert len(powers) == 1
        lists.append((sorted(names[p.name] for p in parameters), round(rate.item() / RATES[0], 3), decay))

    model = make_model(3)
    names = {p.name: name for name, p in model.named_parameters()}
    optimizer = make_optimizer(model, "AdamW", True)
    train(model, optimizer, RATES)
    monkeypatch.setattr(paddle_versions, "fused_adamw", noted)
    train(model, optimizer, RATES[:1])
    assert sorted(lists) == [
        (["blocks.0.bias"], 0.7, 0.0),
        (["blocks.0.weight"], 0.7, 0.05),
        (["blocks.1.bias"], 1.0, 0.0),
        (["blocks.1.weight"], 1.0, 0.05),
        (["embed.bias"], 0.49, 0.0),
        (["embed.weight"], 0.49, 0.05),
    ]
    lists.clear()
    flat = build_optimizer(CfgNode(OPTIMIZER), model, None, 0.05)
    monkeypatch.undo()
    monkeypatch.setattr(updates, "WORTHWHILE", 10**9)
    train(model, flat, RATES)
    monkeypatch.setattr(paddle_versions, "fused_adamw", noted)
    train(model, flat, RATES[:1])
    others = ["blocks.0.bias", "blocks.1.bias"]
    weights = ["blocks.0.weight", "blocks.1.weight", "embed.weight"]
    assert sorted(lists) == [(others, 1.0, 0.0), (weights, 1.0, 0.05), (["embed.bias"], 1.0, 0.0)]


@pytest.mark.parametrize("problem", [RuntimeError("kernel fused_adam is not registered"), None])
def test_where_lists_fail_or_differ_paddle_makes_the_update_and_the_log_says_so(problem, monkeypatch):
    monkeypatch.setattr(updates, "WORTHWHILE", 10**9)
    fused_optimizers._try_lists.cache_clear()

    def broken(parameters, *rest):
        if problem is not None:
            raise problem
        for parameter in parameters:
            parameter.add_(paddle.full_like(parameter, 1e-5))

    monkeypatch.setattr(paddle_versions, "fused_adamw", broken)
    lines = []
    models = make_model(3), make_model(3)
    own = build_optimizer(CfgNode({**OPTIMIZER, "FUSED": False}), models[0], None, 0.05)
    fallen_back = build_optimizer(CfgNode(OPTIMIZER), models[1], None, 0.05, log=lines.append)
    for model, optimizer in zip(models, (own, fallen_back)):
        train(model, optimizer, RATES)
    fused_optimizers._try_lists.cache_clear()
    assert bits(models[1], fallen_back) == bits(models[0], own)
    (line,) = lines
    assert "one parameter after the other" in line and (problem is None or str(problem) in line)


def test_a_run_goes_on_from_the_other_kind_of_update(name="AdamW"):
    straight, parted = make_model(4), make_model(4)
    whole, first = make_optimizer(straight, name, True), make_optimizer(parted, name, False)
    train(straight, whole, RATES[:2])
    train(straight, whole, RATES[2:], first=2)
    train(parted, first, RATES[:2])
    second = make_optimizer(parted, name, True)
    OptimizerState(second, parted).load_state_dict(OptimizerState(first, parted).state_dict())
    train(parted, second, RATES[2:], first=2)
    assert bits(parted, second) == bits(straight, whole)


@WAYS
def test_a_strided_gradient_is_read_in_its_order(worthwhile, monkeypatch):
    monkeypatch.setattr(updates, "WORTHWHILE", worthwhile)
    models = make_model(5), make_model(5)
    transposed = np.random.default_rng(0).standard_normal((113, 113)).astype("float32")
    for model, fused in zip(models, (False, True)):
        optimizer = make_optimizer(model, "AdamW", fused)
        model.blocks[0].weight.grad = paddle.to_tensor(transposed).t()
        optimizer.set_lr(1e-2)
        optimizer.step()
    np.testing.assert_array_equal(*(model.blocks[0].weight.numpy() for model in models))
    assert (models[0].blocks[0].weight.numpy() != make_model(5).blocks[0].weight.numpy()).all()


def test_tensors_whose_memory_is_not_a_row_of_float32_are_left_to_paddle():
    plain = paddle.ones([4, 6])
    turned = paddle.to_tensor(np.ones((6, 4), "float32")).t()
    places = updates.ParameterAddresses()
    assert places.addresses([plain]).tolist() == [plain.data_ptr()] and places.sizes.tolist() == [24]
    for other in (plain.astype("float64"), plain.astype("int32")):
        assert places.addresses([plain, other]) is None and updates.ParameterAddresses().addresses([other]) is None
    assert (places.addresses([turned]) is None) == (not turned.is_contiguous())  # a view, or a copy without them
    assert places.addresses([]) is None


def test_moved_weights_moments_and_averages_are_found_where_they_are(monkeypatch):
    models = make_model(8), make_model(8)
    optimizers = [make_optimizer(model, "AdamW", fused) for model, fused in zip(models, (False, True))]
    averages = [ModelEma(model, 0.9) for model in models]
    with monkeypatch.context() as patch:
        patch.setattr(updates, "WORTHWHILE", 10**9)
        averages[0].restart()
    for first in (0, 2):
        for model, optimizer, average in zip(models, optimizers, averages):
            train(model, optimizer, RATES[:2], first=first)
            average.update()
            with average.in_place():  # exchanges the tensors of the averages
                assert average.state_dict()
            state = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
            OptimizerState(optimizer, model).load_state_dict(OptimizerState(optimizer, model).state_dict())
            model.set_state_dict({name: paddle.to_tensor(value * 2) for name, value in state.items()})
            average.load_state_dict({name: tensor.numpy() * 3 for name, tensor in average.state_dict().items()})
    assert bits(models[1], optimizers[1]) == bits(models[0], optimizers[0])
    plain = averages[0].state_dict()
    for name, average in averages[1].state_dict().items():
        assert average.numpy().tobytes() == plain[name].numpy().tobytes(), name


def with_gradients(*values):
    parameters = [paddle.create_parameter([len(value)], "float32") for value in values]
    for parameter, value in zip(parameters, values):
        parameter.grad = paddle.to_tensor(value.astype("float32"))
    return parameters


@WAYS
@pytest.mark.parametrize("largest, scale", [(None, 1.0), (1.5, 1.0), (1e6, 1.0), (1.5, 65536.0), (None, 65536.0)])
def test_the_norm_and_what_is_clipped_follow_the_formula(worthwhile, largest, scale, monkeypatch):
    """As an update does it, with gradients that a loss scaler has multiplied."""
    monkeypatch.setattr(updates, "WORTHWHILE", worthwhile)
    generator = np.random.default_rng(7)
    values = [generator.standard_normal(size).astype("float32") for size in (1, 16, 1037)]
    parameters = with_gradients(*(value * np.float32(scale) for value in values))
    gradients = collect_gradients([*parameters, paddle.create_parameter([4], "float32")])  # the last has no gradient
    norm = gradients.norm() / np.float32(scale)
    expected = np.sqrt(sum((value.astype(np.float64) ** 2).sum() for value in values))
    assert norm.dtype == np.float32 and norm == pytest.approx(expected, rel=1e-6)
    clipping = clipping_factor(norm, largest)
    factor = 1.0 if largest is None else min(1.0, largest / (expected + 1e-6))
    assert (clipping < 1) == (largest == 1.5)
    gradients.scale(clipping / np.float32(scale))
    for parameter, value in zip(parameters, values):
        np.testing.assert_allclose(parameter.grad.numpy(), value * factor, rtol=2e-6)


def test_gradients_of_other_types_and_orders_count_and_are_scaled():
    parameters = with_gradients(np.array([3.0, 4.0]))
    other = paddle.create_parameter([2, 3], "float64")
    other.grad = paddle.to_tensor(np.arange(6.0).reshape(3, 2)).t()
    gradients = collect_gradients([*parameters, other])
    assert gradients.norm() == pytest.approx(np.sqrt(25 + 55), rel=1e-6)
    gradients.scale(np.float32(0.5))
    np.testing.assert_array_equal(parameters[0].grad.numpy(), [1.5, 2.0])
    np.testing.assert_array_equal(other.grad.numpy(), np.arange(6.0).reshape(3, 2).T / 2)


@WAYS
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e20])
def test_a_norm_that_float32_cannot_hold_is_not_finite(worthwhile, bad, monkeypatch):
    monkeypatch.setattr(updates, "WORTHWHILE", worthwhile)
    assert not np.isfinite(collect_gradients(with_gradients(np.array([1.0, bad, 2.0]))).norm())


def test_without_gradients_the_norm_is_0():
    gradients = collect_gradients([paddle.create_parameter([4], "float32")])
    assert gradients.norm() == 0
    gradients.scale(np.float32(0.5))


def test_a_gradient_that_begins_inside_other_memory_is_copied_for_a_gpu():
    memory = paddle.arange(9, dtype="float32")
    inside = memory[1:]
    copy = multi_tensor._align(inside)
    assert copy.data_ptr() % 16 == 0 and multi_tensor._align(memory) is memory
    np.testing.assert_array_equal(copy.numpy(), inside.numpy())


def test_views_are_made_anew_once_a_tensor_has_moved():
    tensors = [paddle.ones([2, 2]), paddle.zeros([]), paddle.full([3], 2.0)]
    views = multi_tensor.FlatBuffer()
    assert views(tensors).tolist() == [1.0] * 4 + [0.0] + [2.0] * 3
    tensors[1].add_(paddle.ones([]))
    tensors[0].scale_(3.0)
    tensors[2] = paddle.full([3], 7.0)
    assert views(tensors).tolist() == [3.0] * 4 + [1.0] + [7.0] * 3


def test_averages_have_the_bits_of_paddles_operations_and_follow_the_formula(monkeypatch):
    model = make_model(6)
    compiled, plain = ModelEma(model, 0.9), ModelEma(model, 0.9)
    monkeypatch.setattr(updates, "WORTHWHILE", 10**9)
    plain.restart()
    exact = {name: tensor.numpy().astype(np.float64) for name, tensor in model.state_dict().items()}
    for number in range(1, 4):
        for p in model.parameters():
            p.set_value(paddle.randn(p.shape))
        model.steps.set_value(paddle.to_tensor([number]))
        compiled.update()
        plain.update()
        for name, tensor in model.state_dict().items():
            exact[name] = 0.9 * exact[name] + 0.1 * tensor.numpy()
    assert compiled.state_dict()["steps"].item() == 3
    for name, average in compiled.state_dict().items():
        assert average.numpy().tobytes() == plain.state_dict()[name].numpy().tobytes(), name
        if name != "steps":
            np.testing.assert_allclose(average.numpy(), exact[name], rtol=1e-5, atol=1e-6)
