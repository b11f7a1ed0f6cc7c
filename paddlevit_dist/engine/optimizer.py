"""Optimizers by name, their parameter groups, and their state under structured names."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import numpy as np
import paddle

from .. import paddle_versions

_SEPARATOR = "/"


def decay_groups(model: paddle.nn.Layer, weight_decay: float) -> List[Dict[str, Any]]:
    """Two groups: weights, and what must not decay: biases, norms (one-dimensional) and ``model.no_weight_decay()``."""
    exempt = set(model.no_weight_decay()) if hasattr(model, "no_weight_decay") else set()
    trainable = [(name, p) for name, p in model.named_parameters() if not p.stop_gradient]
    still = [name for name, p in trainable if len(p.shape) <= 1 or name in exempt]
    decayed = [name for name, _ in trainable if name not in set(still)]
    groups = [{"names": decayed, "weight_decay": weight_decay}, {"names": still, "weight_decay": 0.0}]
    return [group for group in groups if group["names"]]


def build_optimizer(settings: Any, model: paddle.nn.Layer, groups: Optional[List[Dict[str, Any]]], weight_decay: float):
    """The optimizer that TRAIN.OPTIMIZER names, over the groups of ``model``'s parameters.

    Args:
        settings: the TRAIN.OPTIMIZER node: NAME (AdamW, Adam, SGD), EPS, BETAS, MOMENTUM.
        groups: see ``Task.parameter_groups``; None for ``decay_groups``. A group's ``learning_rate`` is a factor.
        weight_decay: decoupled for AdamW (Loshchilov and Hutter, arXiv 1711.05101), an L2 term in the gradient else.
    """
    parameters = dict(model.named_parameters())
    paddle_groups = []
    for group in groups if groups is not None else decay_groups(model, weight_decay):
        entry = {"params": [parameters[name] for name in group["names"]], "weight_decay": group["weight_decay"]}
        if "learning_rate" in group:
            entry["learning_rate"] = group["learning_rate"]
        paddle_groups.append(entry)
    if settings.NAME == "SGD":
        return paddle.optimizer.Momentum(
            learning_rate=0.0, momentum=settings.MOMENTUM, parameters=paddle_groups, weight_decay=weight_decay
        )
    kind = {"AdamW": paddle.optimizer.AdamW, "Adam": paddle.optimizer.Adam}[settings.NAME]
    beta1, beta2 = settings.BETAS
    return kind(
        learning_rate=0.0,
        beta1=beta1,
        beta2=beta2,
        epsilon=settings.EPS,
        parameters=paddle_groups,
        weight_decay=weight_decay,
    )


def optimizer_state(optimizer: Any, model: paddle.nn.Layer) -> Dict[str, np.ndarray]:
    """Copies of all accumulators, keyed ``accumulator/parameter`` by the model's structured names.

    Paddle's own state is keyed by automatic names, which shift when another model was built before.
    """
    names = {p.name: name for name, p in model.named_parameters()}
    state = {}
    for accumulator, by_parameter in optimizer._accumulators.items():
        for automatic, tensor in by_parameter.items():
            state[f"{accumulator}{_SEPARATOR}{names[automatic]}"] = tensor.numpy().copy()
    return state


def restore_optimizer(optimizer: Any, model: paddle.nn.Layer, state: Dict[str, np.ndarray]) -> None:
    """Put a state of ``optimizer_state`` back.

    Raises:
        ValueError: the state's entries are not those of this optimizer and model.
    """
    paddle_versions.create_accumulators(optimizer)
    names = {p.name: name for name, p in model.named_parameters()}
    targets = {
        f"{accumulator}{_SEPARATOR}{names[automatic]}": tensor
        for accumulator, by_parameter in optimizer._accumulators.items()
        for automatic, tensor in by_parameter.items()
    }
    differing = sorted(set(targets) ^ set(state))
    if differing:
        raise ValueError(f"the saved optimizer state does not fit: {differing[0]} and {len(differing) - 1} more differ")
    for key, tensor in targets.items():
        if tuple(tensor.shape) != state[key].shape:
            raise ValueError(f"the saved optimizer state does not fit: {key} is {state[key].shape}")
        tensor.set_value(state[key])
