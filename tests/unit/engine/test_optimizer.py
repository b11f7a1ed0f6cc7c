"""Optimizer updates against the papers' formulas in numpy, and their state under structured names."""

from typing import get_args, get_type_hints

import numpy as np
import paddle
import pytest
from support.trainings.updates import update_one_by_one
from yacs.config import CfgNode

from paddlevit_dist import UserError
from paddlevit_dist.engine.list_optimizers import JointOptimizer
from paddlevit_dist.engine.optimizer import (
    OptimizerState,
    block_matrices,
    build_optimizer,
    decay_groups,
    freeze,
)
from paddlevit_dist.engine.schedule import RateSchedule, ScaledRates
from paddlevit_dist.runtime import paddle_versions
from paddlevit_dist.settings.optimizer_keys import OptimizerSection
from paddlevit_dist.tasks.model import Model

RATE, DECAY, EPSILON, BETAS, MOMENTUM = 0.1, 0.5, 1e-8, (0.9, 0.99), 0.8
ONE_BY_ONE = {"one_by_one": True}  # Paddle's own update


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


def build(chosen: dict, model, options: dict, *arguments, **more):
    values = CfgNode({**chosen, **{key: value for key, value in options.items() if key not in ONE_BY_ONE}})
    optimizer = build_optimizer(values, model, None, DECAY, *arguments, **more)
    return update_one_by_one(optimizer) if set(ONE_BY_ONE) & set(options) else optimizer


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


def update_from(start, model, optimizer, steps, first_of_last=1):
    """Make updates, after restoring weights and state of ``start`` if given; return both at the end.

    The last parameter has no gradient before the step ``first_of_last``.
    """
    if start is not None:
        model.set_state_dict(start[0])
        OptimizerState(optimizer, model).load_state_dict(start[1])
    for step in steps:
        make_gradients(model, step)
        if step < first_of_last:
            model.parameters()[-1].clear_gradient(False)
        optimizer.set_lr(RATE)
        optimizer.step()
        optimizer.clear_grad(False)
    weights = {key: value.numpy().copy() for key, value in model.state_dict().items()}
    return weights, OptimizerState(optimizer, model).state_dict()


def require_equal(expected, found):
    for left, right in zip(expected, found):
        assert left.keys() == right.keys() and left
        for key in left:
            np.testing.assert_array_equal(left[key], right[key], err_msg=key)


@pytest.mark.parametrize("name", ["AdamW", "Adam", "SGD"])
def test_state_goes_back_into_a_model_whose_automatic_names_differ(name):
    def trained(steps, start=None):
        Small(), Small()  # automatic names count up with every layer ever built
        paddle.seed(0)
        model = Small()
        optimizer = build_optimizer(settings(name), model, None, DECAY)
        return update_from(start, model, optimizer, steps)

    straight = trained([1, 2, 3, 4])
    resumed = trained([3, 4], start=trained([1, 2]))
    require_equal(straight, resumed)


@pytest.fixture
def renaming():
    """Sets whether each operation in place renames its tensor, as with GLOG_v=6."""
    flag = "FLAGS_enable_unique_name"
    try:
        paddle.get_flags(flag)
    except ValueError:
        pytest.skip("this Paddle renames no tensors")
    yield lambda value: paddle.set_flags({flag: value})
    paddle.set_flags({flag: False})


@pytest.mark.parametrize(
    "name, options",
    [
        ("AdamW", {}),
        ("AdamW", ONE_BY_ONE),
        ("Adam", {}),
        ("SGD", {}),
        ("SGD", ONE_BY_ONE),
        ("SGD", {"DAMPENING": 0.5}),
        ("LAMB", {}),
        ("Lion", {}),
    ],
)
@pytest.mark.parametrize("when", ["model", "optimizer", "updates"])
def test_updates_and_state_do_not_depend_on_the_names_of_tensors(name, options, when, renaming):
    def trained(begins, steps, start=None):
        renaming(begins == "model")
        paddle.seed(0)
        model = Small()
        renaming(begins in ("model", "optimizer"))
        optimizer = build(settings(name), model, options)
        renaming(begins is not None)
        return update_from(start, model, optimizer, steps)

    expected = trained(None, [1, 2, 3, 4])
    for found in (trained(when, [1, 2, 3, 4]), trained(when, [3, 4], trained(when, [1, 2]))):
        require_equal(expected, found)


@pytest.mark.parametrize("name", ["AdamW", "Adam", "SGD", "LAMB", "Lion"])
def test_a_parameter_that_has_had_no_gradient_yet_starts_after_a_resume(name):
    def trained(steps, start=None):
        paddle.seed(0)
        model = Small()
        optimizer = build_optimizer(settings(name), model, None, DECAY)
        return update_from(start, model, optimizer, steps, first_of_last=3)

    straight = trained([1, 2, 3, 4])
    resumed = trained([3, 4], start=trained([1, 2]))
    require_equal(straight, resumed)


def test_a_state_of_another_optimizer_is_refused():
    model = Small()
    adam = build_optimizer(settings("Adam"), model, None, DECAY)
    make_gradients(model, 1)
    adam.step()
    state, sgd = (
        OptimizerState(adam, model),
        OptimizerState(build_optimizer(settings("SGD"), model, None, DECAY), model),
    )
    saved = state.state_dict()
    problem = "the saved optimizer state does not fit"
    with pytest.raises(ValueError) as refused:
        sgd.load_state_dict(saved)
    first, *more = sorted(saved.keys() ^ sgd.state_dict().keys())
    assert str(refused.value) == f"{problem}: {first} and {len(more)} more differ"
    key = next(name for name, value in saved.items() if value.shape == (3, 2))
    for other, message in ((saved[key].T, r"\(2, 3\)"), (saved[key].astype(np.float64), "of type float64")):
        with pytest.raises(ValueError, match=f"^{problem}: {key} is {message}$"):
            state.load_state_dict({**saved, key: other})


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


def test_without_momentum_nothing_is_damped():
    model = Small()
    values = CfgNode({"NAME": "SGD", "MOMENTUM": 0.0, "DAMPENING": 0.5})
    optimizer = build_optimizer(values, model, None, 0.0)
    optimizer.set_lr(RATE)
    for step in (1, 2, 3):
        before, gradients = model.linear.weight.numpy(), make_gradients(model, step)
        optimizer.step()
        optimizer.clear_grad(False)
        expected = before - RATE * gradients["linear.weight"]
        np.testing.assert_allclose(model.linear.weight.numpy(), expected, rtol=1e-5, atol=1e-6)


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


class Stem(Blocks):
    """Blocks with a wide, a tall and a square matrix, and a table among them."""

    def __init__(self):
        super().__init__()
        self.blocks.append(paddle.nn.Linear(3, 5))
        self.blocks.append(paddle.nn.Linear(5, 3))
        self.blocks[0].table = self.create_parameter([4, 2], default_initializer=paddle.nn.initializer.Normal())

    def no_weight_decay(self):
        return ("blocks.0.table",)


def ten_updates(name: str, rule, layer_decay: float | None = None, momentum_now=None, **options) -> None:
    """Make ten updates and compare the weights with those of a rule in float64.

    ``rule(weight, gradient, state, number, rate, decay, is_matrix)`` returns the new weight; ``state`` starts empty.
    """
    paddle.seed(5)
    model, draws = Stem(), np.random.default_rng(7)
    chosen = {"NAME": name, "EPS": 1e-6, "BETAS": BETAS, "MOMENTUM": MOMENTUM}
    numbers: list[int] = []
    now = None if momentum_now is None else lambda: momentum_now(len(numbers))
    optimizer = build(chosen, model, options, layer_decay, momentum_now=now)
    weights = {key: p.numpy().astype(np.float64) for key, p in model.named_parameters()}
    states: dict[str, dict] = {key: {} for key in weights}
    layers = {key: number for number, keys in enumerate(model.layer_groups()) for key in keys}
    last = max(layers.values())
    for number in range(10):
        optimizer.set_lr(RATE / (number + 1))
        for key, p in model.named_parameters():
            gradient = draws.standard_normal(p.shape).astype(np.float32)
            p.grad = paddle.to_tensor(gradient)
            is_decayed = gradient.ndim > 1 and not key.endswith("table")
            rate = RATE / (number + 1) * (layer_decay or 1.0) ** (last - layers[key])
            is_matrix = is_decayed and 0 < layers[key] < last
            decay = DECAY if is_decayed else 0.0
            weights[key] = rule(weights[key], gradient.astype(np.float64), states[key], number, rate, decay, is_matrix)
        optimizer.step()
        optimizer.clear_grad(False)
        numbers.append(number)
    for key, p in model.named_parameters():
        np.testing.assert_allclose(p.numpy(), weights[key], rtol=1e-4, atol=1e-5, err_msg=key)


def lion_rule(weight, gradient, state, number, rate, decay, is_matrix):
    """Algorithm 2 of X. Chen et al., arXiv 2302.06675."""
    momentum = state.get("m", 0.0)
    state["m"] = BETAS[1] * momentum + (1 - BETAS[1]) * gradient
    return weight - rate * (np.sign(BETAS[0] * momentum + (1 - BETAS[0]) * gradient) + decay * weight)


def lamb_rule(weight, gradient, state, number, rate, decay, is_matrix):
    """Algorithm 2 of Y. You et al., arXiv 1904.00962; as in timm, the trust ratio is 1 without weight decay."""
    state["m"] = BETAS[0] * state.get("m", 0.0) + (1 - BETAS[0]) * gradient
    state["v"] = BETAS[1] * state.get("v", 0.0) + (1 - BETAS[1]) * gradient**2
    mean, square = state["m"] / (1 - BETAS[0] ** (number + 1)), state["v"] / (1 - BETAS[1] ** (number + 1))
    change = mean / (np.sqrt(square) + 1e-6) + decay * weight
    ratio = np.linalg.norm(weight) / np.linalg.norm(change) if decay else 1.0
    return weight - rate * ratio * change


def muon_rule(weight, gradient, state, number, rate, decay, is_matrix, momentum=MOMENTUM):
    """The post of K. Jordan and equation 4 of arXiv 2502.16982 by singular values; AdamW for the other parameters.

    The iteration with coefficients a, b, c maps each singular value s to ``a s + b s^3 + c s^5``.
    """
    if not is_matrix:
        state["m"] = BETAS[0] * state.get("m", 0.0) + (1 - BETAS[0]) * gradient
        state["v"] = BETAS[1] * state.get("v", 0.0) + (1 - BETAS[1]) * gradient**2
        mean, square = state["m"] / (1 - BETAS[0] ** (number + 1)), state["v"] / (1 - BETAS[1] ** (number + 1))
        return weight * (1 - rate * decay) - rate * mean / (np.sqrt(square) + 1e-6)
    state["m"] = momentum * state.get("m", 0.0) + (1 - momentum) * gradient
    nesterov = (1 - momentum) * gradient + momentum * state["m"]
    left, values, right = np.linalg.svd(nesterov, full_matrices=False)
    values = values / np.sqrt((values**2).sum())
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    direction = (left * values) @ right
    return weight * (1 - rate * decay) - rate * 0.2 * np.sqrt(max(weight.shape)) * direction


def sgd_rule(weight, gradient, state, number, rate, decay, is_matrix, momentum=MOMENTUM):
    """Nesterov's momentum as the documentation of torch.optim.SGD states it."""
    gradient = gradient + decay * weight
    state["v"] = momentum * state.get("v", 0.0) + gradient
    return weight - rate * (gradient + momentum * state["v"])


@pytest.mark.parametrize("layer_decay", [None, 0.6], ids=["one rate", "layer decay"])
@pytest.mark.parametrize(
    "name, rule, options",
    [
        ("Lion", lion_rule, {}),
        ("LAMB", lamb_rule, {}),
        ("Muon", muon_rule, {}),
        ("SGD", sgd_rule, {"NESTEROV": True}),
        ("SGD", sgd_rule, {"NESTEROV": True, **ONE_BY_ONE}),
    ],
)
def test_ten_updates_follow_the_papers_formulas_in_float64(name, rule, options, layer_decay):
    ten_updates(name, rule, layer_decay, **options)


@pytest.mark.parametrize(
    "name, rule, options",
    [
        ("SGD", sgd_rule, {"NESTEROV": True}),
        ("SGD", sgd_rule, {"NESTEROV": True, **ONE_BY_ONE}),
        ("Muon", muon_rule, {}),
    ],
)
def test_the_momentum_rises_over_the_warm_up(name, rule, options):
    schedule = RateSchedule("constant", ScaledRates(RATE, 0.0, 0.0), total_updates=10, warmup_updates=4)

    def scheduled(number: int) -> float:
        schedule.update = number
        return schedule.momentum(0.2, MOMENTUM)

    expected = [0.2, 0.35, 0.5, 0.65, *[MOMENTUM] * 6]
    ten_updates(
        name,
        lambda *arguments: rule(*arguments, momentum=expected[arguments[3]]),
        momentum_now=scheduled,
        **options,
    )


def test_muon_says_which_parameters_it_updates_and_refuses_a_model_without_blocks():
    lines: list[str] = []
    model = Stem()
    build_optimizer(settings("Muon"), model, None, DECAY, log=lines.append)
    assert sorted(block_matrices(model)) == [f"blocks.{number}.weight" for number in range(4)]
    assert lines == [
        "Muon updates 4 matrices of the blocks (48 values); AdamW updates the other 9 parameters (embeddings, head, "
        "norms, biases; 42 values)"
    ]
    with pytest.raises(UserError, match="no trained matrices in numbered blocks"):
        build_optimizer(settings("Muon"), Small(), None, DECAY)


def test_each_name_of_the_settings_builds_an_optimizer_and_no_other_does():
    names = get_args(get_type_hints(OptimizerSection)["NAME"])
    classes = {name: type(build_optimizer(settings(name), Stem(), None, DECAY)).__name__ for name in names}
    assert classes == {
        "AdamW": "FusedAdamW",
        "Adam": "Adam",
        "SGD": "FusedMomentum",
        "Lion": "ListOptimizer",
        "LAMB": "Lamb",
        "Muon": "JointOptimizer",
    }
    with pytest.raises(ValueError, match="TRAIN.OPTIMIZER.NAME Adamax, but no branch builds it"):
        build_optimizer(settings("Adamax"), Stem(), None, DECAY)


def test_names_that_an_operation_changed_are_those_of_before_when_a_state_is_kept():
    """Of each of two optimizers."""
    model = paddle.nn.Sequential(paddle.nn.Linear(3, 2), paddle.nn.Linear(2, 2))
    settings = {"MOMENTUM": MOMENTUM, "BETAS": BETAS, "EPS": EPSILON}
    made = [
        build_optimizer(CfgNode({**settings, "NAME": name}), layer, None, 0.0)
        for name, layer in zip(("SGD", "AdamW"), model)
    ]
    optimizer = JointOptimizer(made)
    model(paddle.ones([1, 3])).sum().backward()
    optimizer.step()
    expected = sorted(OptimizerState(optimizer, model).state_dict())
    for number, parameter in enumerate(model.parameters()):
        parameter.name = f"renamed_{number}"
    assert sorted(OptimizerState(optimizer, model).state_dict()) == expected
    assert len(expected) == 2 + 2 * 4
