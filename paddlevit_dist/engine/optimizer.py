"""Optimizers by name, their parameter groups, and their state under structured names."""

import fnmatch
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle

from ..registry import closest
from ..runtime import paddle_versions
from ..runtime.errors import UserError
from ..settings.every_run import OptimizerSection
from ..tasks.model import as_model
from .fused_optimizers import FusedAdam, FusedAdamW, FusedMomentum

_SEPARATOR = "/"


def decay_groups(model: paddle.nn.Layer, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups: weights, and what must not decay: biases, norms (one-dimensional) and ``model.no_weight_decay()``."""
    exempt = set(as_model(model).no_weight_decay())
    trainable = [(name, p) for name, p in model.named_parameters() if not p.stop_gradient]
    still = [name for name, p in trainable if len(p.shape) <= 1 or name in exempt]
    decayed = [name for name, _ in trainable if name not in set(still)]
    groups = [{"names": decayed, "weight_decay": weight_decay}, {"names": still, "weight_decay": 0.0}]
    return [group for group in groups if group["names"]]


def params_without_weight_decay(groups: Sequence[dict[str, Any]], model: paddle.nn.Layer) -> list[str]:
    """Names of the parameters with several axes that groups, as of ``decay_groups``, do not decay."""
    parameters = dict(model.named_parameters())
    still = [name for group in groups if not group["weight_decay"] for name in group["names"]]
    return sorted(name for name in still if len(parameters[name].shape) > 1)


def freeze(model: paddle.nn.Layer, patterns: Sequence[str]) -> int:
    """Freeze the parameters whose names match one of ``patterns``; returns how many.

    Args:
        patterns: names with ``*`` for any part (TRAIN.FREEZE).
    Raises:
        UserError: a pattern matches no parameter, or none is left to train.
    """
    parameters = {name: p for name, p in model.named_parameters() if not p.stop_gradient}
    frozen = set()
    for pattern in patterns:
        fitting = fnmatch.filter(parameters, pattern)
        if not fitting:
            parts = sorted({name.split(".")[0] for name in parameters})
            hint = closest(pattern.split(".")[0], parts)
            raise UserError(
                f"TRAIN.FREEZE {pattern} matches no parameter: {hint}their names begin with {', '.join(parts)}"
            )
        frozen.update(fitting)
    if frozen and len(frozen) == len(parameters):
        raise UserError(f"TRAIN.FREEZE {', '.join(patterns)} leaves no parameter to train; name fewer")
    for name in frozen:
        parameters[name].stop_gradient = True
    return len(frozen)


def layer_decay_groups(
    groups: list[dict[str, Any]], layers: Sequence[Sequence[str]], decay: float
) -> list[dict[str, Any]]:
    """Split parameter groups by layer, each with the factor ``decay ** (layers behind it)`` for its learning rate.

    Source: K. Clark et al., "ELECTRA", arXiv 2003.10555, appendix A, layer-wise learning-rate decay.

    Args:
        layers: see ``Model.layer_groups``.

    Raises:
        UserError: there is only one layer.
    """
    if len(layers) < 2:
        raise UserError("TRAIN.LAYER_DECAY: this model's parameters show no numbered blocks; leave it out")
    numbers = {name: number for number, names in enumerate(layers) for name in names}
    split: list[dict[str, Any]] = []
    for group in groups:
        for number in sorted({numbers[name] for name in group["names"]}):
            part = [name for name in group["names"] if numbers[name] == number]
            factor = group.get("learning_rate", 1.0) * decay ** (len(layers) - 1 - number)
            split.append({**group, "names": part, "learning_rate": factor})
    return split


class DampedMomentum(paddle.optimizer.Momentum):
    """SGD with momentum and dampening as PyTorch's: ``buffer = momentum * buffer + (1 - dampening) * gradient`` and
    ``weight -= rate * buffer``, but a parameter's first gradient becomes its buffer undamped. The gradient includes the
    L2 term. Paddle has no optimizer with dampening.

    Which parameters have had their first gradient is an accumulator, saved and restored as the buffers are.

    Source: the documentation of ``torch.optim.SGD``.

    Args:
        dampening: from 0 to below 1.
        options: as ``paddle.optimizer.Momentum`` takes them, with parameter groups.
    """

    _STARTED = "started"  # (1,) for each parameter: 0 before its first gradient, 1 after it

    def __init__(self, dampening: float, **options: Any) -> None:
        super().__init__(**options)
        self._dampening = dampening
        self._started: set[str] = set()  # what is known on the host: the device is asked once for each parameter

    def _create_accumulators(self, block: Any, parameters: Any) -> None:
        super()._create_accumulators(block, parameters)
        for parameter in parameters["params"] if isinstance(parameters, dict) else parameters:
            self._add_accumulator(self._STARTED, parameter, shape=[1])

    def _append_optimize_op(self, block: Any, param_and_grad: dict[str, Any]) -> Any:
        parameter, gradient = param_and_grad["params"]
        share = 1.0 - self._dampening if self._has_started(parameter) else 1.0
        # The kernel of the CPU ignores rescale_grad, so the gradient is scaled here.
        decay = share * param_and_grad["regularization_coeff"]
        damped = {**param_and_grad, "params": (parameter, gradient * share), "regularization_coeff": decay}
        return super()._append_optimize_op(block, damped)

    def _has_started(self, parameter: paddle.Tensor) -> bool:
        """Whether this is not the first gradient of the parameter; from then on it is not."""
        if parameter.name in self._started:
            return True
        self._started.add(parameter.name)
        flag = self._get_accumulator(self._STARTED, parameter)
        was_restored = bool(flag.item())
        flag.fill_(1.0)
        return was_restored


def build_optimizer(
    settings: OptimizerSection,
    model: paddle.nn.Layer,
    groups: list[dict[str, Any]] | None,
    weight_decay: float,
    layer_decay: float | None = None,
    say: Callable[[str], None] = lambda text: None,
):
    """The optimizer that TRAIN.OPTIMIZER names, over the groups of ``model``'s parameters.

    Args:
        settings: the TRAIN.OPTIMIZER node: NAME (AdamW, Adam, SGD), EPS, BETAS, MOMENTUM, DAMPENING, FUSED.
        groups: see ``Task.parameter_groups``; None for ``decay_groups``. A group's ``learning_rate`` is a factor.
        layer_decay: see ``layer_decay_groups``; None for the same rate everywhere.
        weight_decay: decoupled for AdamW (Loshchilov and Hutter, arXiv 1711.05101), an L2 term in the gradient else.
        say: takes a line for the log.
    """
    parameters = dict(model.named_parameters())
    groups = decay_groups(model, weight_decay) if groups is None else groups
    if layer_decay is not None and layer_decay != 1.0:
        groups = layer_decay_groups(groups, as_model(model).layer_groups(), layer_decay)
    paddle_groups, decays = [], {}
    for group in groups:
        decays.update({parameters[name].name: group["weight_decay"] for name in group["names"]})
        entry = {"params": [parameters[name] for name in group["names"]], "weight_decay": group["weight_decay"]}
        if "learning_rate" in group:
            entry["learning_rate"] = group["learning_rate"]
        paddle_groups.append(entry)
    options = {"learning_rate": 0.0, "parameters": paddle_groups, "weight_decay": weight_decay}
    if settings.NAME == "SGD":
        options["momentum"] = settings.MOMENTUM
        dampening = settings.get("DAMPENING", 0.0)
        if dampening and settings.MOMENTUM:  # without momentum there is no buffer to dampen
            return DampedMomentum(dampening, **options)
    else:
        options["beta1"], options["beta2"] = settings.BETAS
        options["epsilon"] = settings.EPS
    plain, fused = _KINDS[settings.NAME]
    return fused(decays, say, **options) if settings.get("FUSED", True) else plain(**options)


_KINDS = {
    "AdamW": (paddle.optimizer.AdamW, FusedAdamW),
    "Adam": (paddle.optimizer.Adam, FusedAdam),
    "SGD": (paddle.optimizer.Momentum, FusedMomentum),
}


class OptimizerState:
    """An optimizer's accumulators as a part of checkpoints, keyed ``accumulator/parameter`` by the structured names of
    its model. Paddle's own state is keyed by automatic names, which shift if another model was built earlier."""

    def __init__(self, optimizer: Any, model: paddle.nn.Layer) -> None:
        self._optimizer, self._model = optimizer, model

    def tensors(self) -> dict[str, paddle.Tensor]:
        """The accumulators themselves."""
        names = {p.name: name for name, p in self._model.named_parameters()}
        return {
            f"{accumulator}{_SEPARATOR}{names[automatic]}": tensor
            for accumulator, by_parameter in self._optimizer._accumulators.items()
            for automatic, tensor in by_parameter.items()
        }

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copies of all of them."""
        return {name: tensor.numpy().copy() for name, tensor in self.tensors().items()}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Restore a ``state_dict``.

        Raises:
            ValueError: its entries are not those of this optimizer and model.
        """
        paddle_versions.create_accumulators(self._optimizer)
        targets, refused = self.tensors(), "the saved optimizer state does not fit"
        differing = sorted(set(targets) ^ set(state))
        if differing:
            raise ValueError(f"{refused}: {differing[0]} and {len(differing) - 1} more differ")
        for key, tensor in targets.items():
            if tuple(tensor.shape) != state[key].shape:
                raise ValueError(f"{refused}: {key} is {state[key].shape}")
            if str(tensor.dtype).rpartition(".")[2] != str(state[key].dtype):
                raise ValueError(f"{refused}: {key} is of type {state[key].dtype}")
            # AdamW's powers of the betas stay on the host also where training is on a GPU: set_value would move them.
            place = paddle.CPUPlace() if tensor.place.is_cpu_place() else paddle.framework._current_expected_place()
            tensor.get_tensor().set(state[key], place)
