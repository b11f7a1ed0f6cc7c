"""Optimizer updates against the papers' formulas in numpy, and their state under structured names."""

import numpy as np
import paddle
import pytest
from yacs.config import CfgNode

from paddlevit_dist.engine.optimizer import (
    OptimizerState,
    build_optimizer,
    decay_groups,
    freeze,
)
from paddlevit_dist.runtime import paddle_versions
from paddlevit_dist.runtime.errors import UserError
from paddlevit_dist.tasks.model import Model

RATE, DECAY, EPSILON, BETAS, MOMENTUM = 0.1, 0.5, 1e-8, (0.9, 0.99), 0.8


class Small(Model):
    def __init__(self):
        super().__init__()
        self.linear = paddle.nn.Linear(3, 2)
        self.norm = paddle.nn.LayerNorm(2)
        self.token = self.create_parameter([1, 1, 2])

    def no_weight_decay(self):
        return {"token"}

    def forward(self, x):
        return self.norm(self.linear(x)) + self.token[0]


def settings(name: str) -> CfgNode:
    return CfgNode({"NAME": name, "EPS": EPSILON, "BETAS": BETAS, "MOMENTUM": MOMENTUM})


def make_gradients(model, step: int) -> dict:
    paddle.seed(step)
    (model(paddle.randn([4, 3])) ** 2).sum().backward()
    return {name: p.grad.numpy().astype(np.float64) for name, p in model.named_parameters()}


def expected_step(name, weight, gradient, state, step, decay):
    """One update by the formulas of Loshchilov and Hutter (AdamW), Kingma and Ba (Adam) and classical momentum."""
    if name != "AdamW":
        gradient = gradient + decay * weight
    if name == "SGD":
        state["v"] = MOMENTUM * state.get("v", 0.0) + gradient
        return weight - RATE * state["v"]
    state["m"] = BETAS[0] * state.get("m", 0.0) + (1 - BETAS[0]) * gradient
    state["s"] = BETAS[1] * state.get("s", 0.0) + (1 - BETAS[1]) * gradient**2
    mean, square = state["m"] / (1 - BETAS[0] ** step), state["s"] / (1 - BETAS[1] ** step)
    shrunk = weight * (1 - RATE * decay) if name == "AdamW" else weight
    return shrunk - RATE * mean / (np.sqrt(square) + EPSILON)


@pytest.mark.parametrize("name", ["AdamW", "Adam", "SGD"])
def test_three_steps_follow_the_formula_and_spare_norms_biases_and_tokens_from_decay(name):
    model = Small()
    optimizer = build_optimizer(settings(name), model, None, DECAY)
    weights = {key: p.numpy().astype(np.float64) for key, p in model.named_parameters()}
    states = {key: {} for key in weights}
    for step in (1, 2, 3):
        gradients = make_gradients(model, step)
        for key in weights:
            decay = DECAY if key == "linear.weight" else 0.0
            weights[key] = expected_step(name, weights[key], gradients[key], states[key], step, decay)
        optimizer.set_lr(RATE)
        optimizer.step()
        optimizer.clear_grad(False)
    for key, p in model.named_parameters():
        # The key bias of a normalized layer has almost no gradient: Adam turns its rounding into steps.
        tolerance = 2e-2 if name != "SGD" and key == "linear.bias" else 2e-4
        np.testing.assert_allclose(p.numpy(), weights[key], rtol=tolerance, atol=tolerance)


def test_groups_cover_every_parameter_once():
    groups = decay_groups(Small(), DECAY)
    names = [name for group in groups for name in group["names"]]
    assert sorted(names) == sorted(name for name, _ in Small().named_parameters())
    assert {group["weight_decay"]: group["names"] for group in groups}[DECAY] == ["linear.weight"]


def test_a_groups_learning_rate_is_a_factor_of_the_schedules():
    model = Small()
    groups = [
        {"names": ["linear.weight"], "weight_decay": 0.0, "learning_rate": 0.5},
        {"names": ["linear.bias", "norm.weight", "norm.bias", "token"], "weight_decay": 0.0},
    ]
    optimizer = build_optimizer(settings("SGD"), model, groups, 0.0)
    before = {name: p.numpy().copy() for name, p in model.named_parameters()}
    gradients = make_gradients(model, 1)
    optimizer.set_lr(RATE)
    optimizer.step()
    for name, factor in (("linear.weight", 0.5), ("norm.bias", 1.0)):
        moved = before[name] - dict(model.named_parameters())[name].numpy()
        np.testing.assert_allclose(moved, RATE * factor * gradients[name], rtol=1e-4, atol=1e-6)


class Blocks(Model):
    """Named as ViTs are: an embedding, two blocks, a head."""

    layer_names, classifier_layers = r"blocks\.\d+", ("head",)

    def __init__(self):
        super().__init__()
        self.embed = paddle.nn.Linear(3, 3)
        self.blocks = paddle.nn.LayerList([paddle.nn.Linear(3, 3) for _ in range(2)])
        self.head = paddle.nn.Linear(3, 2)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = paddle.tanh(block(x))
        return self.head(x)


@pytest.mark.parametrize("name", ["AdamW", "Adam", "SGD"])
def test_layer_decay_makes_earlier_layers_learn_slower_by_the_formula(name):
    model = Blocks()
    optimizer = build_optimizer(settings(name), model, None, DECAY, layer_decay=0.5)
    weights = {key: p.numpy().astype(np.float64) for key, p in model.named_parameters()}
    factors = {"embed": 0.125, "blocks.0": 0.25, "blocks.1": 0.5, "head": 1.0}
    states = {key: {} for key in weights}
    for step in (1, 2):
        gradients = make_gradients(model, step)
        for key in weights:
            decay = DECAY if key.endswith("weight") else 0.0
            factor = factors[key.rsplit(".", 1)[0]]
            full = expected_step(name, weights[key], gradients[key], states[key], step, decay)
            weights[key] = weights[key] + factor * (full - weights[key])  # every formula is linear in the rate
        optimizer.set_lr(RATE)
        optimizer.step()
        optimizer.clear_grad(False)
    for key, p in model.named_parameters():
        np.testing.assert_allclose(p.numpy(), weights[key], rtol=2e-4, atol=2e-4, err_msg=key)


def test_layer_decay_needs_layers():
    with pytest.raises(UserError, match="LAYER_DECAY.* no numbered blocks"):
        build_optimizer(settings("SGD"), Small(), None, DECAY, layer_decay=0.9)


def test_frozen_parameters_are_those_that_fit():
    model = Blocks()
    assert freeze(model, ["embed.*", "blocks.0.weight"]) == 3
    assert [name for name, p in model.named_parameters() if p.stop_gradient] == [
        "embed.weight",
        "embed.bias",
        "blocks.0.weight",
    ]
    assert freeze(Blocks(), []) == 0
    with pytest.raises(UserError, match="TRAIN.FREEZE blocs.* matches no parameter"):
        freeze(Blocks(), ["blocs.*"])
    with pytest.raises(UserError, match="leaves no parameter"):
        freeze(Blocks(), ["*"])


@pytest.mark.parametrize("name", ["AdamW", "Adam", "SGD"])
def test_state_goes_back_into_a_model_whose_automatic_names_differ(name):
    def trained(steps, start=None):
        Small(), Small()  # automatic names count up with every layer ever built
        paddle.seed(0)
        model = Small()
        optimizer = build_optimizer(settings(name), model, None, DECAY)
        if start is not None:
            model.set_state_dict(start[0])
            OptimizerState(optimizer, model).load_state_dict(start[1])
        for step in steps:
            make_gradients(model, step)
            optimizer.set_lr(RATE)
            optimizer.step()
            optimizer.clear_grad(False)
        weights = {key: value.numpy().copy() for key, value in model.state_dict().items()}
        return weights, OptimizerState(optimizer, model).state_dict()

    straight = trained([1, 2, 3, 4])
    resumed = trained([3, 4], start=trained([1, 2]))
    for left, right in zip(straight, resumed):
        assert left.keys() == right.keys() and left
        for key in left:
            np.testing.assert_array_equal(left[key], right[key], err_msg=key)


def test_a_state_of_another_optimizer_is_refused():
    model = Small()
    adam = build_optimizer(settings("Adam"), model, None, DECAY)
    make_gradients(model, 1)
    adam.step()
    with pytest.raises(ValueError, match="does not fit"):
        sgd = build_optimizer(settings("SGD"), model, None, DECAY)
        OptimizerState(sgd, model).load_state_dict(OptimizerState(adam, model).state_dict())


def settings_with_dampening(dampening: float) -> CfgNode:
    return CfgNode({"NAME": "SGD", "MOMENTUM": MOMENTUM, "DAMPENING": dampening})


def torch_sgd(weight, gradient, buffer, decay, dampening, rate=RATE):
    """One update as ``torch.optim.SGD`` documents it: the first gradient becomes the buffer undamped."""
    gradient = gradient + decay * weight
    buffer = gradient if buffer is None else MOMENTUM * buffer + (1 - dampening) * gradient
    return weight - rate * buffer, buffer


@pytest.mark.parametrize("dampening", [0.0, 0.1, 0.75])
def test_dampening_is_torchs_formula_with_its_undamped_first_step(dampening):
    model = Small()
    optimizer = build_optimizer(settings_with_dampening(dampening), model, None, DECAY)
    weights = {key: p.numpy().astype(np.float64) for key, p in model.named_parameters()}
    buffers = dict.fromkeys(weights)
    for step in (1, 2, 3, 4):
        gradients = make_gradients(model, step)
        for key in weights:
            decay = DECAY if key == "linear.weight" else 0.0
            weights[key], buffers[key] = torch_sgd(weights[key], gradients[key], buffers[key], decay, dampening)
        optimizer.set_lr(RATE)
        optimizer.step()
        optimizer.clear_grad(False)
    for key, p in model.named_parameters():
        np.testing.assert_allclose(p.numpy(), weights[key], rtol=2e-4, atol=2e-4, err_msg=key)


def test_a_parameter_that_is_used_later_has_its_own_undamped_first_step():
    model = Blocks()
    optimizer = build_optimizer(settings_with_dampening(0.5), model, None, 0.0)
    optimizer.set_lr(RATE)
    head, buffer = model.head.weight.numpy().astype(np.float64), None
    for step in range(4):
        hidden = paddle.to_tensor(np.random.default_rng(step).normal(size=(5, 3)).astype(np.float32))
        loss = (model.embed(hidden) ** 2).sum() + ((model.head(hidden) ** 2).sum() if step >= 2 else 0.0)
        loss.backward()
        if step >= 2:
            head, buffer = torch_sgd(head, model.head.weight.grad.numpy(), buffer, 0.0, 0.5)
        optimizer.step()
        optimizer.clear_grad(False)
    np.testing.assert_allclose(model.head.weight.numpy(), head, rtol=1e-4, atol=1e-5)


def test_a_damped_run_resumes_bit_equal_also_before_its_first_step():
    def steps(model, optimizer, first, last):
        for step in range(first, last):
            make_gradients(model, step)
            optimizer.set_lr(RATE)
            optimizer.step()
            optimizer.clear_grad(False)

    for stop in (0, 1, 3):
        whole, first, second = Small(), Small(), Small()
        for other in (first, second):
            other.set_state_dict({key: p.numpy() for key, p in whole.state_dict().items()})
        optimizers = [
            build_optimizer(settings_with_dampening(0.3), model, None, DECAY) for model in (whole, first, second)
        ]
        steps(whole, optimizers[0], 0, 5)
        steps(first, optimizers[1], 0, stop)
        if stop:
            second.set_state_dict({key: p.numpy() for key, p in first.state_dict().items()})
            OptimizerState(optimizers[2], second).load_state_dict(OptimizerState(optimizers[1], first).state_dict())
        steps(second, optimizers[2], stop, 5)
        for key, p in whole.named_parameters():
            assert np.array_equal(p.numpy(), dict(second.named_parameters())[key].numpy()), (stop, key)


def test_restored_powers_of_the_betas_stay_on_the_host(monkeypatch):
    """On a GPU, where they are made on the host, what sets a tensor by default moves it to this process's device."""
    model = paddle.nn.Linear(3, 2)
    first, second = (build_optimizer(settings("AdamW"), model, None, DECAY) for _ in range(2))
    model(paddle.ones([1, 3])).sum().backward()
    first.step()
    state = OptimizerState(first, model).state_dict()

    def moved() -> None:
        raise AssertionError("moved to the device of this process")

    paddle_versions.create_accumulators(second)
    monkeypatch.setattr(paddle.base.framework, "_current_expected_place", moved)
    monkeypatch.setattr(paddle.framework, "_current_expected_place", moved)
    monkeypatch.setattr(paddle_versions, "create_accumulators", lambda optimizer: None)
    OptimizerState(second, model).load_state_dict(state)
    for name, value in OptimizerState(second, model).state_dict().items():
        np.testing.assert_array_equal(value, state[name])
