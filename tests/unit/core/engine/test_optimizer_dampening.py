"""SGD with dampening, by PyTorch's formula, and the state of optimizers that a run resumes from."""

import numpy as np
import paddle
import pytest
from support.networks.optimized_layers import DECAY, MOMENTUM, RATE, NamedBlocks, SmallModel, make_gradients, settings
from yacs.config import CfgNode

from paddlevit_dist.core.engine.optimizer import (
    OptimizerState,
    build_optimizer,
)
from paddlevit_dist.core.runtime import paddle_versions


def settings_with_dampening(dampening: float) -> CfgNode:
    return CfgNode({"NAME": "SGD", "MOMENTUM": MOMENTUM, "DAMPENING": dampening})


def torch_sgd(weight, gradient, buffer, decay, dampening, rate=RATE):
    """One update as ``torch.optim.SGD`` documents it: the first gradient becomes the buffer undamped."""
    gradient = gradient + decay * weight
    buffer = gradient if buffer is None else MOMENTUM * buffer + (1 - dampening) * gradient
    return weight - rate * buffer, buffer


@pytest.mark.parametrize("dampening", [0.0, 0.1, 0.75])
def test_dampening_is_torchs_formula_with_its_undamped_first_step(dampening):
    model = SmallModel()
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
    model = SmallModel()
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
    model = NamedBlocks()
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
        whole, first, second = SmallModel(), SmallModel(), SmallModel()
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


def test_restored_powers_of_the_betas_stay_on_the_host(monkeypatch, other_paddle):
    """On a GPU, where they are made on the host, what sets a tensor by default moves it to this process's device."""
    model = paddle.nn.Linear(3, 2)
    first, second = (build_optimizer(settings("AdamW"), model, None, DECAY) for _ in range(2))
    model(paddle.ones([1, 3])).sum().backward()
    first.step()
    state = OptimizerState(first, model).state_dict()

    def moved() -> None:
        raise AssertionError("moved to the device of this process")

    paddle_versions.create_accumulators(second)
    other_paddle({f"{module}._current_expected_place": moved for module in ("base.framework", "framework")})
    monkeypatch.setattr(paddle_versions, "create_accumulators", lambda optimizer: None)
    OptimizerState(second, model).load_state_dict(state)
    for name, value in OptimizerState(second, model).state_dict().items():
        np.testing.assert_array_equal(value, state[name])
