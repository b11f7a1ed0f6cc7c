"""Updates of all parameters at once, by operations that take lists, against Paddle's own operations bit for bit and
against float64."""

import numpy as np
import paddle
import pytest
from support.trainings.updates import update_one_by_one
from yacs.config import CfgNode

from paddlevit_dist.core.engine import fused_optimizers, multi_tensor
from paddlevit_dist.core.engine.model_ema import ModelEma
from paddlevit_dist.core.engine.optimizer import OptimizerState, build_optimizer
from paddlevit_dist.core.runtime import paddle_versions
from paddlevit_dist.core.tasks.model import Model

RATES = (1e-3, 9e-4, 5e-4)
OPTIMIZER = {"NAME": "AdamW", "EPS": 1e-8, "BETAS": (0.9, 0.99), "MOMENTUM": 0.8}


class Blocks(Model):
    """Weights of several sizes, a buffer of whole numbers, two groups and three layers."""

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
    optimizer = build_optimizer(CfgNode({**OPTIMIZER, "NAME": name}), model, None, 0.05, layer_decay=0.7)
    return optimizer if is_fused else update_one_by_one(optimizer)


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


FUSED_ADAMW, MERGED_MOMENTUM = paddle_versions.fused_adamw, paddle._C_ops.merged_momentum_


@pytest.fixture
def update_lists(monkeypatch):
    """Return a function that sets what updates lists of parameters in place of Paddle's AdamW."""
    return lambda update: monkeypatch.setattr(paddle_versions, "fused_adamw", update)


@pytest.mark.parametrize("name", ["AdamW", "SGD"])
def test_weights_and_moments_have_the_bits_of_paddles_own_update(name, update_lists, other_paddle):
    calls = []

    def note(name, update):
        return lambda *arguments: (calls.append(name), update(*arguments))[1]

    update_lists(note("AdamW", FUSED_ADAMW))
    other_paddle({"_C_ops.merged_momentum_": note("SGD", MERGED_MOMENTUM)})
    models = make_model(3), make_model(3)
    optimizers = [make_optimizer(model, name, fused) for model, fused in zip(models, (False, True))]
    for model, optimizer in zip(models, optimizers):
        train(model, optimizer, RATES)
    assert bits(models[1], optimizers[1]) == bits(models[0], optimizers[0])
    assert len(calls) >= len(RATES) and set(calls) == {name}


def test_a_list_for_a_gpu_has_one_rate_one_decay_and_one_power_of_the_betas(update_lists):
    """There the first parameter's powers count for all: one that had no gradient in the second update stands apart."""
    lists = []

    def noted(parameters, gradients, rate, accumulators, betas, epsilon, decay):
        powers = {(first.item(), second.item()) for first, second in zip(*accumulators[2:])}
        assert len(powers) == 1
        lists.append((sorted(names[p.name] for p in parameters), round(rate.item() / RATES[0], 3), decay))

    model = make_model(3)
    names = {p.name: name for name, p in model.named_parameters()}
    optimizer = make_optimizer(model, "AdamW", True)
    train(model, optimizer, RATES)
    update_lists(noted)
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
    update_lists(FUSED_ADAMW)
    train(model, flat, RATES)
    update_lists(noted)
    train(model, flat, RATES[:1])
    others = ["blocks.0.bias", "blocks.1.bias"]
    weights = ["blocks.0.weight", "blocks.1.weight", "embed.weight"]
    assert sorted(lists) == [(others, 1.0, 0.0), (weights, 1.0, 0.05), (["embed.bias"], 1.0, 0.0)]


@pytest.mark.parametrize("problem", [RuntimeError("kernel fused_adam is not registered"), None])
def test_where_lists_fail_or_differ_paddle_makes_the_update_and_the_log_says_so(problem, update_lists):
    fused_optimizers.try_lists.cache_clear()

    def broken(parameters, *rest):
        if problem is not None:
            raise problem
        for parameter in parameters:
            parameter.add_(paddle.full_like(parameter, 1e-5))

    update_lists(broken)
    lines = []
    models = make_model(3), make_model(3)
    own = update_one_by_one(build_optimizer(CfgNode(OPTIMIZER), models[0], None, 0.05))
    fallen_back = build_optimizer(CfgNode(OPTIMIZER), models[1], None, 0.05, log=lines.append)
    for model, optimizer in zip(models, (own, fallen_back)):
        train(model, optimizer, RATES)
    fused_optimizers.try_lists.cache_clear()
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


def test_a_strided_gradient_is_read_in_its_order():
    models = make_model(5), make_model(5)
    transposed = np.random.default_rng(0).standard_normal((113, 113)).astype("float32")
    for model, fused in zip(models, (False, True)):
        optimizer = make_optimizer(model, "AdamW", fused)
        model.blocks[0].weight.grad = paddle.to_tensor(transposed).t()
        optimizer.set_lr(1e-2)
        optimizer.step()
    np.testing.assert_array_equal(*(model.blocks[0].weight.numpy() for model in models))
    assert (models[0].blocks[0].weight.numpy() != make_model(5).blocks[0].weight.numpy()).all()


def test_moved_weights_and_moments_are_found_where_they_are():
    models = make_model(8), make_model(8)
    optimizers = [make_optimizer(model, "AdamW", fused) for model, fused in zip(models, (False, True))]
    for first in (0, 2):
        for model, optimizer in zip(models, optimizers):
            train(model, optimizer, RATES[:2], first=first)
            state = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
            OptimizerState(optimizer, model).load_state_dict(OptimizerState(optimizer, model).state_dict())
            model.set_state_dict({name: paddle.to_tensor(value * 2) for name, value in state.items()})
    assert bits(models[1], optimizers[1]) == bits(models[0], optimizers[0])


def test_a_gradient_that_begins_inside_other_memory_is_copied_for_a_gpu():
    memory = paddle.arange(9, dtype="float32")
    inside = memory[1:]
    copy = multi_tensor.align(inside)
    assert copy.data_ptr() % 16 == 0 and multi_tensor.align(memory) is memory
    np.testing.assert_array_equal(copy.numpy(), inside.numpy())
    strided = paddle.as_strided(memory, [2, 3], [1, 3])
    assert not strided.is_contiguous() and multi_tensor.align(strided).is_contiguous()
    assert multi_tensor.align(strided).tolist() == [[0, 3, 6], [1, 4, 7]]


def test_views_are_made_anew_once_a_tensor_has_moved():
    tensors = [paddle.ones([2, 2]), paddle.zeros([]), paddle.full([3], 2.0)]
    views = multi_tensor.FlatBuffer()
    assert views(tensors).tolist() == [1.0] * 4 + [0.0] + [2.0] * 3
    tensors[1].add_(paddle.ones([]))
    tensors[0].scale_(3.0)
    tensors[2] = paddle.full([3], 7.0)
    assert views(tensors).tolist() == [3.0] * 4 + [1.0] + [7.0] * 3


def test_averages_follow_the_formula_also_after_tensors_moved():
    model = make_model(6)
    averages = ModelEma(model, 0.9)
    exact = {name: tensor.numpy().astype(np.float64) for name, tensor in model.state_dict().items()}
    for number in range(1, 4):
        for p in model.parameters():
            p.set_value(paddle.randn(p.shape))
        model.steps.set_value(paddle.to_tensor([number]))
        averages.update()
        with averages.in_place():  # exchanges the tensors of the averages
            pass
        for name, tensor in model.state_dict().items():
            exact[name] = 0.9 * exact[name] + 0.1 * tensor.numpy()
        averages.load_state_dict({name: tensor.numpy() * 3 for name, tensor in averages.state_dict().items()})
        exact = {name: value * 3 for name, value in exact.items()}
    assert averages.state_dict()["steps"].item() == 9
    for name, average in averages.state_dict().items():
        if name != "steps":
            np.testing.assert_allclose(average.numpy(), exact[name], rtol=1e-5, atol=1e-6)
