"""Optimizers by name, their parameter groups, and their state under structured names."""

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle

from ..runtime import paddle_versions
from ..runtime.errors import UserError
from ..runtime.hints import suggest
from ..runtime.printing import describe_value
from ..settings.optimizer_keys import OptimizerSection
from ..tasks.model import as_model
from .freezing import GroupRate, RateFunction, describe_names
from .fused_optimizers import Adam, FusedAdamW, FusedMomentum, KeptNames, Lamb, PerParameterStep
from .list_optimizers import JointOptimizer, ListOptimizer, lion, muon
from .multi_tensor import Optimizer
from .sharding import ShardedOptimizer, Shards

_SEPARATOR = "/"


def decay_groups(model: paddle.nn.Layer, weight_decay: float) -> list[dict[str, Any]]:
    """Group the trainable parameters by weight decay: one or two groups with "names" and "weight_decay".

    Biases, norms (all parameters with one axis) and the parameters in ``model.no_weight_decay()`` have a decay of 0.
    """
    exempt = set(as_model(model).no_weight_decay())
    trainable = [(name, p) for name, p in model.named_parameters() if not p.stop_gradient]
    undecayed = [name for name, p in trainable if len(p.shape) <= 1 or name in exempt]
    decayed = [name for name, _ in trainable if name not in set(undecayed)]
    groups = [{"names": decayed, "weight_decay": weight_decay}, {"names": undecayed, "weight_decay": 0.0}]
    return [group for group in groups if group["names"]]


def params_without_weight_decay(groups: Sequence[dict[str, Any]], model: paddle.nn.Layer) -> list[str]:
    """Return the sorted names of parameters with two or more axes that ``groups`` do not decay."""
    parameters = dict(model.named_parameters())
    undecayed = [name for group in groups if not group["weight_decay"] for name in group["names"]]
    return sorted(name for name in undecayed if len(parameters[name].shape) > 1)


def complete_groups(
    groups: Sequence[dict[str, Any]],
    model: paddle.nn.Layer,
    weight_decay: float,
    fixed: set[str],
    second_course: Callable[[int], RateFunction],
    log: Callable[[str], None],
) -> tuple[list[dict[str, Any]], list[GroupRate]]:
    """Return groups of what learns in any step, and the rates that are functions: "rate" of their groups.

    "learning_rate" of a group then is a factor. A group without "weight_decay" has that of ``decay_groups``. What no
    group names, or one with a "learning_rate" of None, is frozen for the whole run.

    Args:
        groups: see ``ParameterGrouping.parameter_groups``.
        fixed: names of parameters that a function does not thaw: of TRAIN.FREEZE, TRAIN.LORA and running statistics.
        second_course: returns the rate of groups with a "second_warmup", see ``RateSchedule``.

    Raises:
        UserError: a name is not a parameter's or occurs twice, or a learning rate is none.
    """
    parameters, named = dict(model.named_parameters()), set()
    completed: list[dict[str, Any]] = []
    rates: list[GroupRate] = []
    for group in groups:
        names, rate = group["names"], group.get("learning_rate", 1.0)
        for name in names:
            if name not in parameters:
                raise UserError(
                    f"parameter_groups: the network has no parameter {name}: {suggest(name, parameters)}expected "
                    "names of model.named_parameters()"
                )
            if name in named:
                raise UserError(f"parameter_groups: {name} is in two groups, expected one")
            named.add(name)
        if not (rate is None or callable(rate) or isinstance(rate, numbers.Real)):
            raise UserError(
                f"parameter_groups: the learning_rate of {describe_names(names)} is {describe_value(rate)}: expected a "
                "factor of the run's rate, a function of the position in the run, or None, which freezes"
            )
        if rate is None:
            for name in names:
                parameters[name].stop_gradient = True
        names = [name for name in names if name not in fixed and (callable(rate) or not parameters[name].stop_gradient)]
        if not names:
            continue
        own, later = [parameters[name] for name in names], group.get("second_warmup") or 0
        for parameter in own:
            parameter.stop_gradient = False
        factor = 1.0 if callable(rate) else rate
        completed.append({**group, "names": names, "learning_rate": factor, "rate": None})
        if callable(rate) or later:
            function = rate if callable(rate) else second_course(later)
            rates.append(GroupRate(function, names, own, may_freeze=callable(rate)))
            completed[-1]["rate"] = rates[-1]
    left = [name for name, parameter in parameters.items() if not parameter.stop_gradient and name not in named]
    for name in left:
        parameters[name].stop_gradient = True
    if left:
        log(f"{describe_names(left)} learn nothing: parameter_groups has no group of them")
    if not completed:
        raise UserError("no parameter learns: all are frozen, or in no group of parameter_groups")
    decays = decay_groups(model, weight_decay)
    return [
        {**group, **part}
        for group in completed
        for part in ([{}] if "weight_decay" in group else _take(decays, set(group["names"])))
    ], rates


def _take(groups: Sequence[dict[str, Any]], names: set[str]) -> list[dict[str, Any]]:
    """Return the groups of some names alone."""
    taken = [{**group, "names": [name for name in group["names"] if name in names]} for group in groups]
    return [group for group in taken if group["names"]]


def layer_decay_groups(
    groups: list[dict[str, Any]], layers: Sequence[Sequence[str]], decay: float
) -> list[dict[str, Any]]:
    """Split parameter groups by layer; multiply learning rates by ``decay ** (number of layers after it)``.

    Returns groups with "learning_rate", a factor of the run's learning rate. ``layers``: names of each layer's
    parameters from input to head, see ``Model.rate_groups``. Raises UserError if there is only one layer.

    Source: K. Clark et al., "ELECTRA", arXiv 2003.10555, appendix A, layer-wise learning-rate decay.
    """
    if len(layers) < 2:
        raise UserError("TRAIN.LAYER_DECAY: this model's parameters have no numbered blocks; remove this key")
    numbers = {name: position for position, names in enumerate(layers) for name in names}
    split: list[dict[str, Any]] = []
    for group in groups:
        for number in sorted({numbers[name] for name in group["names"]}):
            part = [name for name in group["names"] if numbers[name] == number]
            factor = group.get("learning_rate", 1.0) * decay ** (len(layers) - 1 - number)
            split.append({**group, "names": part, "learning_rate": factor})
    return split


class DampedMomentum(PerParameterStep, paddle.optimizer.Momentum):
    """SGD with momentum and dampening (0 to below 1) as in PyTorch; Paddle has no such optimizer.

    The update is ``buffer = momentum * buffer + (1 - dampening) * gradient`` and ``weight -= rate * buffer``. The first
    gradient of a parameter becomes its buffer without dampening. The gradient includes the L2 term. An accumulator
    notes which parameters have had their first gradient; it is saved and restored with the buffers.

    Source: the documentation of ``torch.optim.SGD``.
    """

    _STARTED = "started"  # (1,) for each parameter: 0 before its first gradient, 1 after it

    def __init__(self, dampening: float, **options: Any) -> None:
        super().__init__(**options)
        self._dampening = dampening
        self._started: set[str] = set()  # copy on the host, so that each flag is read from the device once

    def _create_accumulators(self, block: object, parameters: dict[str, Any] | Sequence[paddle.Tensor]) -> None:
        super()._create_accumulators(block, parameters)
        for parameter in parameters["params"] if isinstance(parameters, dict) else parameters:
            self._add_accumulator(self._STARTED, parameter, shape=[1])

    def _append_optimize_op(self, block: object, param_and_grad: dict[str, Any]) -> Any:
        parameter, gradient = param_and_grad["params"]
        share = 1.0 - self._dampening if self._has_started(parameter) else 1.0
        # The CPU kernel ignores rescale_grad, so the gradient is scaled here.
        decay = share * param_and_grad["regularization_coeff"]
        damped = {**param_and_grad, "params": (parameter, gradient * share), "regularization_coeff": decay}
        return super()._append_optimize_op(block, damped)

    def _has_started(self, parameter: paddle.Tensor) -> bool:
        """Return whether the parameter already had a gradient, and note that it has one now."""
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
    log: Callable[[str], None] = lambda text: None,
    momentum_now: Callable[[], float] | None = None,
    shards: Shards | None = None,
    decay_factor: Callable[[], float] | None = None,
) -> Optimizer:
    """Build the optimizer that TRAIN.OPTIMIZER names over parameter groups, with a learning rate of 0 at first.

    Raises UserError if the optimizer does not apply to this model.

    Args:
        groups: parameter groups with "names", "weight_decay", a "learning_rate", by default 1, that is a factor of the
            run's rate or of "rate", a ``GroupRate``; None: ``decay_groups``.
        weight_decay: an L2 term in the gradient for Adam and SGD; otherwise decoupled (Loshchilov and Hutter, arXiv
            1711.05101).
        layer_decay: see ``layer_decay_groups``; None: the same learning rate for all layers.
        momentum_now: returns the momentum of the current step (SGD, Muon); None: MOMENTUM.
        shards: the parameters that this rank updates; None: all.
        decay_factor: returns the factor of all weight decays in the current step; None: they are constant.
    """
    groups = decay_groups(model, weight_decay) if groups is None else groups
    if layer_decay is not None and layer_decay != 1.0:
        groups = layer_decay_groups(groups, as_model(model).rate_groups(), layer_decay)
    if shards is not None:
        owned = [{**g, "names": [name for name in g["names"] if name in shards.owned]} for g in groups]
        groups = [group for group in owned if group["names"]]
    optimizer = _build(settings, model, groups, weight_decay, log, momentum_now)
    parameters = dict(model.named_parameters())
    rates = {parameters[name].name: g["rate"] for g in groups if g.get("rate") for name in g["names"]}
    for each in getattr(optimizer, "optimizers", [optimizer]):
        each.decay_factor, each.rates = decay_factor, rates
    return optimizer if shards is None else ShardedOptimizer(optimizer, model, shards)


def _build(
    settings: OptimizerSection,
    model: paddle.nn.Layer,
    groups: list[dict[str, Any]],
    weight_decay: float,
    log: Callable[[str], None],
    momentum_now: Callable[[], float] | None,
) -> Optimizer:
    parameters = dict(model.named_parameters())
    decays = {parameters[name].name: entry["weight_decay"] for entry in groups for name in entry["names"]}
    if settings.NAME == "Muon":
        return _build_muon(settings, model, groups, decays, log, momentum_now)
    paddle_groups = _paddle_groups(parameters, groups)
    options = {"learning_rate": 0.0, "parameters": paddle_groups, "weight_decay": weight_decay}
    if settings.NAME == "SGD":
        return _build_sgd(settings, decays, log, momentum_now, options)
    if settings.NAME == "Lion":
        return ListOptimizer(lion(*settings.BETAS), decays, **options)
    options["beta1"], options["beta2"] = settings.BETAS
    options["epsilon"] = settings.EPS
    if settings.NAME == "LAMB":  # Paddle's regularizer would add an L2 term to the gradient
        del options["weight_decay"]
        for group in paddle_groups:
            group["lamb_weight_decay"] = group.pop("weight_decay")
        return Lamb(**options)
    if settings.NAME == "Adam":
        return Adam(**options)
    if settings.NAME == "AdamW":
        return FusedAdamW(decays, log, **options)
    raise ValueError(f"OptimizerSection allows TRAIN.OPTIMIZER.NAME {settings.NAME}, but no branch builds it")


def _paddle_groups(parameters: dict[str, paddle.Tensor], groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"params": [parameters[name] for name in group["names"]]}
        | {key: value for key, value in group.items() if key in ("weight_decay", "learning_rate")}
        for group in groups
    ]


def _build_sgd(
    settings: OptimizerSection,
    decays: dict[str, float],
    log: Callable[[str], None],
    momentum_now: Callable[[], float] | None,
    options: dict[str, Any],
) -> Optimizer:
    options["momentum"] = settings.MOMENTUM
    dampening = settings.get("DAMPENING", 0.0)
    if dampening and settings.MOMENTUM:  # without momentum there is no buffer to dampen
        return DampedMomentum(dampening, **options)
    options["use_nesterov"] = settings.get("NESTEROV", False)
    return FusedMomentum(decays, log, momentum_now=momentum_now, **options)


def _build_muon(
    settings: OptimizerSection,
    model: paddle.nn.Layer,
    groups: list[dict[str, Any]],
    decays: dict[str, float],
    log: Callable[[str], None],
    momentum_now: Callable[[], float] | None,
) -> JointOptimizer:
    """Build Muon for the matrices of the blocks and AdamW for all other parameters, and log which are which."""
    parameters = dict(model.named_parameters())
    matrices = set(block_matrices(model))
    shares = []
    for chosen in (True, False):
        split = [{**g, "names": [n for n in g["names"] if (n in matrices) is chosen]} for g in groups]
        shares.append([group for group in split if group["names"]])
    if not any(not parameters[name].stop_gradient for name in matrices):
        raise UserError(
            "TRAIN.OPTIMIZER.NAME Muon: this model has no trained matrices in numbered blocks, which Muon is for; use "
            "AdamW"
        )
    counts = [[parameters[name].size for group in share for name in group["names"]] for share in shares]
    log(
        f"Muon updates {len(counts[0])} matrices of the blocks ({sum(counts[0]):,} values); AdamW updates the other "
        f"{len(counts[1])} parameters (embeddings, head, norms, biases; {sum(counts[1]):,} values)"
    )
    now = momentum_now or (lambda: settings.MOMENTUM)
    common: dict[str, Any] = {"learning_rate": 0.0, "weight_decay": 0.0}
    optimizers: list[Optimizer] = []
    if shares[0]:
        optimizers.append(ListOptimizer(muon(now), decays, parameters=_paddle_groups(parameters, shares[0]), **common))
    if shares[1]:
        options = {"beta1": settings.BETAS[0], "beta2": settings.BETAS[1], "epsilon": settings.EPS, **common}
        optimizers.append(FusedAdamW(decays, log, parameters=_paddle_groups(parameters, shares[1]), **options))
    return JointOptimizer(optimizers)


def block_matrices(model: paddle.nn.Layer) -> list[str]:
    """Return the names of weights with two axes in the blocks, without tables (``model.no_weight_decay()``)."""
    known = as_model(model)
    tables, parameters = set(known.no_weight_decay()), dict(model.named_parameters())
    inner = [name for layer in known.layer_groups()[1:-1] for name in layer]
    return [name for name in inner if len(parameters[name].shape) == 2 and name not in tables]


def _restore_names(optimizer: object) -> None:
    for each in getattr(optimizer, "optimizers", ()):
        _restore_names(each)
    if isinstance(optimizer, KeptNames):
        optimizer.restore_names()


class OptimizerState:
    """An optimizer's accumulators as part of checkpoints, keyed ``accumulator/parameter`` by structured names.

    Paddle's own automatic names shift if another model was built earlier. ``shards``: the parameters that this rank
    updates; None: all. ``load_state_dict`` ignores the others' state.
    """

    def __init__(self, optimizer: Optimizer, model: paddle.nn.Layer, shards: Shards | None = None) -> None:
        self._optimizer, self._model, self._shards = optimizer, model, shards

    def tensors(self) -> dict[str, paddle.Tensor]:
        """Return the accumulators themselves; with shards, this rank's."""
        _restore_names(self._optimizer)
        names = {p.name: name for name, p in self._model.named_parameters()}
        return {
            f"{accumulator}{_SEPARATOR}{names[automatic]}": tensor
            for accumulator, by_parameter in self._optimizer._accumulators.items()
            for automatic, tensor in by_parameter.items()
        }

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return copies of all accumulators."""
        return {name: tensor.numpy().copy() for name, tensor in self.tensors().items()}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Restore a ``state_dict``. Raises ValueError if a name, shape or dtype differs from this optimizer's.

        A parameter that had no gradient yet may have no state: some optimizers create it with the first one.
        """
        _restore_names(self._optimizer)
        paddle_versions.create_accumulators(self._optimizer)
        kinds, updated = ({name.partition(_SEPARATOR)[part] for name in state} for part in (0, 2))
        if self._shards is not None:
            owned = self._shards.owned
            state = {name: value for name, value in state.items() if name.partition(_SEPARATOR)[2] in owned}
        targets, problem = self.tensors(), "the saved optimizer state does not fit"
        places = {name: name.partition(_SEPARATOR)[::2] for name in targets}
        targets = {name: t for name, t in targets.items() if places[name][1] in updated or places[name][0] not in kinds}
        differing = sorted(set(targets) ^ set(state))
        if differing:
            raise ValueError(f"{problem}: {differing[0]} and {len(differing) - 1} more differ")
        for key, tensor in targets.items():
            if tuple(tensor.shape) != state[key].shape:
                raise ValueError(f"{problem}: {key} is {state[key].shape}")
            if str(tensor.dtype).rpartition(".")[2] != str(state[key].dtype):
                raise ValueError(f"{problem}: {key} is of type {state[key].dtype}")
            # AdamW keeps the powers of the betas on the host, also with a GPU: set_value would move them.
            place = paddle.CPUPlace() if tensor.place.is_cpu_place() else paddle.framework._current_expected_place()
            tensor.get_tensor().set(state[key], place)
