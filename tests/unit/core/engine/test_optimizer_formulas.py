"""Ten updates of each optimizer against its paper's formulas, in float64."""

import numpy as np
import paddle
import pytest
from support.networks.optimized_layers import BETAS, DECAY, MOMENTUM, ONE_BY_ONE, RATE, MixedBlocks, build

from paddlevit_dist.core.engine.schedule import RateSchedule, ScaledRates


def ten_updates(name: str, rule, layer_decay: float | None = None, momentum_now=None, **options) -> None:
    """Make ten updates and compare the weights with those of a rule in float64.

    ``rule(weight, gradient, state, number, rate, decay, is_matrix)`` returns the new weight; ``state`` starts empty.
    """
    paddle.seed(5)
    model, draws = MixedBlocks(), np.random.default_rng(7)
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
