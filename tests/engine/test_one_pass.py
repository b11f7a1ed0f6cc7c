"""Compiled passes over all parameters, against Paddle's own operations bit for bit and against float64."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from yacs.config import CfgNode

from paddlevit_dist.engine import memory_loops, one_pass
from paddlevit_dist.engine.model_ema import ModelEma
from paddlevit_dist.engine.one_pass import GradientNorm
from paddlevit_dist.engine.optimizer import build_optimizer, optimizer_state, restore_optimizer

RATES = (1e-3, 9e-4, 5e-4)


@pytest.fixture(autouse=True)
def compiled_for_any_size(monkeypatch):
    monkeypatch.setattr(one_pass, "WORTHWHILE", 0)


class Blocks(paddle.nn.Layer):
    """Sizes on both sides of a block of the loops, a buffer of whole numbers, two groups and three layers."""

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


def model_of(seed: int) -> Blocks:
    paddle.seed(seed)
    return Blocks()


def optimizer_of(model, name: str, is_fused: bool):
    values = {"NAME": name, "EPS": 1e-8, "BETAS": (0.9, 0.99), "MOMENTUM": 0.8, "FUSED": is_fused}
    return build_optimizer(CfgNode(values), model, None, 0.05, layer_decay=0.7)


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
    return {name: value.tobytes() for name, value in {**state, **optimizer_state(optimizer, model)}.items()}


@pytest.mark.parametrize("name, loop", [("AdamW", "adam"), ("Adam", "adam"), ("SGD", "momentum")])
def test_weights_and_moments_have_the_bits_of_paddles_own_update(name, loop, monkeypatch):
    calls = []
    inner = getattr(memory_loops, loop)
    monkeypatch.setattr(memory_loops, loop, lambda *arguments: (calls.append(1), inner(*arguments)))
    models = model_of(3), model_of(3)
    optimizers = [optimizer_of(model, name, fused) for model, fused in zip(models, (False, True))]
    for model, optimizer in zip(models, optimizers):
        train(model, optimizer, RATES)
    assert bits(models[1], optimizers[1]) == bits(models[0], optimizers[0])
    assert len(calls) >= len(RATES)


def test_a_run_goes_on_from_the_other_kind_of_update(name="AdamW"):
    straight, parted = model_of(4), model_of(4)
    whole, first = optimizer_of(straight, name, True), optimizer_of(parted, name, False)
    train(straight, whole, RATES[:2])
    train(straight, whole, RATES[2:], first=2)
    train(parted, first, RATES[:2])
    second = optimizer_of(parted, name, True)
    restore_optimizer(second, parted, optimizer_state(first, parted))
    train(parted, second, RATES[2:], first=2)
    assert bits(parted, second) == bits(straight, whole)


def test_a_strided_gradient_is_read_in_its_order():
    models = model_of(5), model_of(5)
    transposed = np.random.default_rng(0).standard_normal((113, 113)).astype("float32")
    for model, fused in zip(models, (False, True)):
        optimizer = optimizer_of(model, "AdamW", fused)
        model.blocks[0].weight.grad = paddle.to_tensor(transposed).t()
        optimizer.set_lr(1e-2)
        optimizer.step()
    np.testing.assert_array_equal(*(model.blocks[0].weight.numpy() for model in models))
    assert (models[0].blocks[0].weight.numpy() != model_of(5).blocks[0].weight.numpy()).all()


def test_tensors_whose_memory_is_not_a_row_of_float32_are_left_to_paddle():
    plain = paddle.ones([4, 6])
    turned = paddle.to_tensor(np.ones((6, 4), "float32")).t()
    places = one_pass.Places()
    assert places.addresses([plain]).tolist() == [plain.data_ptr()] and places.sizes.tolist() == [24]
    for other in (plain.astype("float64"), plain.astype("int32")):
        assert places.addresses([plain, other]) is None and one_pass.Places().addresses([other]) is None
    assert (places.addresses([turned]) is None) == (not turned.is_contiguous())  # a view, or a copy without them
    assert places.addresses([]) is None


def test_moved_weights_moments_and_averages_are_found_where_they_are(monkeypatch):
    models = model_of(8), model_of(8)
    optimizers = [optimizer_of(model, "AdamW", fused) for model, fused in zip(models, (False, True))]
    averages = [ModelEma(model, 0.9) for model in models]
    with monkeypatch.context() as patch:
        patch.setattr(one_pass, "WORTHWHILE", 10**9)
        averages[0].restart()
    for first in (0, 2):
        for model, optimizer, average in zip(models, optimizers, averages):
            train(model, optimizer, RATES[:2], first=first)
            average.update()
            with average.in_place():  # exchanges the tensors of the averages
                assert average.state_dict()
            state = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
            restore_optimizer(optimizer, model, optimizer_state(optimizer, model))
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


WAYS = pytest.mark.parametrize(
    "worthwhile, on_host", [(0, True), (10**9, True), (0, False)], ids=["compiled", "by operations", "on a device"]
)


@WAYS
@pytest.mark.parametrize("largest", [None, 1.5, 1e6])
def test_the_norm_and_what_is_clipped_follow_the_formula(worthwhile, on_host, largest, monkeypatch):
    monkeypatch.setattr(one_pass, "WORTHWHILE", worthwhile)
    generator = np.random.default_rng(7)
    values = [generator.standard_normal(size).astype("float32") for size in (1, 16, 1037)]
    parameters = [*with_gradients(*values), paddle.create_parameter([4], "float32")]  # the last has no gradient
    norm = GradientNorm(parameters, largest, on_host)()
    expected = np.sqrt(sum((value.astype(np.float64) ** 2).sum() for value in values))
    assert norm.shape == [1] and norm.item() == pytest.approx(expected, rel=1e-6)
    factor = 1.0 if largest is None else min(1.0, largest / (expected + 1e-6))
    assert (factor < 1) == (largest == 1.5)
    for parameter, value in zip(parameters, values):
        np.testing.assert_allclose(parameter.grad.numpy(), value * factor, rtol=2e-6)
    assert parameters[-1].grad is None


@WAYS
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e20])
def test_a_norm_that_float32_cannot_hold_is_not_finite_and_nothing_is_scaled(worthwhile, on_host, bad, monkeypatch):
    monkeypatch.setattr(one_pass, "WORTHWHILE", worthwhile)
    parameters = with_gradients(np.array([1.0, bad, 2.0]))
    assert not np.isfinite(GradientNorm(parameters, 1.0, on_host)().item())
    np.testing.assert_array_equal(parameters[0].grad.numpy(), np.array([1.0, bad, 2.0], "float32"))


def test_without_gradients_the_norm_is_0():
    assert GradientNorm([paddle.create_parameter([4], "float32")], 1.0)().item() == 0


def test_averages_have_the_bits_of_paddles_operations_and_follow_the_formula(monkeypatch):
    model = model_of(6)
    compiled, plain = ModelEma(model, 0.9), ModelEma(model, 0.9)
    monkeypatch.setattr(one_pass, "WORTHWHILE", 10**9)
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
