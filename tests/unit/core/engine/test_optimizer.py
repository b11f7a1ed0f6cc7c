"""Optimizer updates against the papers' formulas in numpy, and their state under structured names."""

from typing import get_args, get_type_hints

import numpy as np
import paddle
import pytest
from support.networks.optimized_layers import (
    BETAS,
    DECAY,
    EPSILON,
    MOMENTUM,
    ONE_BY_ONE,
    RATE,
    MixedBlocks,
    NamedBlocks,
    SmallModel,
    build,
    make_gradients,
    settings,
)
from yacs.config import CfgNode

from paddlevit_dist import UserError
from paddlevit_dist.core.engine.freezing import freeze
from paddlevit_dist.core.engine.list_optimizers import JointOptimizer
from paddlevit_dist.core.engine.optimizer import (
    OptimizerState,
    block_matrices,
    build_optimizer,
    decay_groups,
)
from paddlevit_dist.core.settings.optimizer_keys import OptimizerSection


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
    model = SmallModel()
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
    groups = decay_groups(SmallModel(), DECAY)
    names = [name for group in groups for name in group["names"]]
    assert sorted(names) == sorted(name for name, _ in SmallModel().named_parameters())
    assert {group["weight_decay"]: group["names"] for group in groups}[DECAY] == ["linear.weight"]


def test_a_groups_learning_rate_is_a_factor_of_the_schedules():
    model = SmallModel()
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


@pytest.mark.parametrize("name", ["AdamW", "Adam", "SGD"])
def test_layer_decay_makes_earlier_layers_learn_slower_by_the_formula(name):
    model = NamedBlocks()
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
        build_optimizer(settings("SGD"), SmallModel(), None, DECAY, layer_decay=0.9)


def test_frozen_parameters_are_those_that_fit():
    model = NamedBlocks()
    assert freeze(model, ["embed.*", "blocks.0.weight"]) == 3
    assert [name for name, p in model.named_parameters() if p.stop_gradient] == [
        "embed.weight",
        "embed.bias",
        "blocks.0.weight",
    ]
    assert freeze(NamedBlocks(), []) == 0
    with pytest.raises(UserError, match="TRAIN.FREEZE blocs.* matches no parameter"):
        freeze(NamedBlocks(), ["blocs.*"])
    with pytest.raises(UserError, match="leaves no parameter"):
        freeze(NamedBlocks(), ["*"])


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
        SmallModel(), SmallModel()  # automatic names count up with every layer ever built
        paddle.seed(0)
        model = SmallModel()
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
        model = SmallModel()
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
        model = SmallModel()
        optimizer = build_optimizer(settings(name), model, None, DECAY)
        return update_from(start, model, optimizer, steps, first_of_last=3)

    straight = trained([1, 2, 3, 4])
    resumed = trained([3, 4], start=trained([1, 2]))
    require_equal(straight, resumed)


def test_a_state_of_another_optimizer_is_refused():
    model = SmallModel()
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


def test_muon_says_which_parameters_it_updates_and_refuses_a_model_without_blocks():
    lines: list[str] = []
    model = MixedBlocks()
    build_optimizer(settings("Muon"), model, None, DECAY, log=lines.append)
    assert sorted(block_matrices(model)) == [f"blocks.{number}.weight" for number in range(4)]
    assert lines == [
        "Muon updates 4 matrices of the blocks (48 values); AdamW updates the other 9 parameters (embeddings, head, "
        "norms, biases; 42 values)"
    ]
    with pytest.raises(UserError, match="no trained matrices in numbered blocks"):
        build_optimizer(settings("Muon"), SmallModel(), None, DECAY)


def test_each_name_of_the_settings_builds_an_optimizer_and_no_other_does():
    names = get_args(get_type_hints(OptimizerSection)["NAME"])
    classes = {name: type(build_optimizer(settings(name), MixedBlocks(), None, DECAY)).__name__ for name in names}
    assert classes == {
        "AdamW": "FusedAdamW",
        "Adam": "Adam",
        "SGD": "FusedMomentum",
        "Lion": "ListOptimizer",
        "LAMB": "Lamb",
        "Muon": "JointOptimizer",
    }
    with pytest.raises(ValueError, match="TRAIN.OPTIMIZER.NAME Adamax, but no branch builds it"):
        build_optimizer(settings("Adamax"), MixedBlocks(), None, DECAY)


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
