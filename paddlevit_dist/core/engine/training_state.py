"""The parts of a training run that a checkpoint saves and restores, and how they are built."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import paddle

from ..checkpoint.foreign_names import statistics_in
from ..data.sampler import TrainingSampler
from ..distributed import broadcast_statistics, rank, recompute_layers, world_size
from ..runtime import device_graph
from ..runtime.errors import UserError
from ..runtime.printing import agree, count
from ..settings.every_run import RunSettings, TrainSection
from ..tasks.aspects import get_aspect
from ..tasks.dataset import TransformedDataset
from ..tasks.protocols import ParameterGrouping, Recomputable, StateKeeping
from ..tasks.step_types import StepPosition
from ..tasks.task import Task
from ..tasks.task_state import TaskState, WeightAverage
from .freezing import ParameterRates, freeze, keep_frozen_statistics
from .low_rank_layers import add_low_rank_terms
from .model_ema import ModelEma
from .multi_tensor import Optimizer
from .nan_guard import NonFiniteGuard
from .optimizer import (
    OptimizerState,
    build_optimizer,
    complete_groups,
    decay_groups,
    params_without_weight_decay,
)
from .precision import TrainingPrecision, compile_model
from .schedule import RateSchedule, build_schedule
from .sharding import Shards

# Updates from which "auto" compares captured passes and fused kernels with plain ones. The comparison of a graph runs
# the passes nine times and captures them once, which takes about as long as 30 updates gain (ViT-Ti/16 in bfloat16 on
# an H200: 8.6 of 23.5 ms each). A limit of ten times that leaves most of the gain, also where less is gained.
LEAST_UPDATES = 300


class TrainingState(NamedTuple):
    """The parts of a training run that change with each step. Each has ``state_dict`` and ``load_state_dict``.

    Attributes:
        model: the bare model, without the data-parallel wrapper.
        optimizer: a Paddle optimizer, perhaps with a fused step.
        ema: the average of the weights, of TRAIN.MODEL_EMA or the task's own; None: there is none.
        rates: of the parameter groups whose learning rate is a function.
        undecayed: names of parameters with two or more axes that have no weight decay.
        choices: whether settings that may be "auto" are on in this run, by name; checkpoints store it.
        shards: which rank keeps which part of optimizer and average; None: every rank keeps all.
        own: the task's own state; None: it has none.
    """

    model: paddle.nn.Layer
    optimizer: Optimizer
    ema: WeightAverage | None
    precision: TrainingPrecision
    nan_guard: NonFiniteGuard
    sampler: TrainingSampler
    schedule: RateSchedule
    rates: ParameterRates
    undecayed: list[str]
    choices: dict[str, bool]
    shards: Shards | None = None
    own: TaskState | None = None

    def choose(self, setting: str, value: bool | str) -> bool:
        """Return whether a setting that makes updates faster on GPUs is on, and store the choice.

        "auto" is on in a process that trains alone on a CUDA GPU, if the run is not over before the comparison with
        plain passes has paid off. A resumed run does as it did before, and one that has stored no choice trains
        plainly.
        """
        if value == "auto":
            is_resumed = self.schedule.update > 0
            is_wanted = self.choices.get(setting, False) if is_resumed else self.schedule.total_updates >= LEAST_UPDATES
            value = is_wanted and world_size() == 1 and not device_graph.reason_against()
        self.choices[setting] = bool(value)
        return self.choices[setting]

    @property
    def optimizer_state(self) -> OptimizerState:
        """The optimizer's state by structured names."""
        return OptimizerState(self.optimizer, self.model, self.shards)

    @property
    def own_layers(self) -> Sequence[paddle.nn.Layer]:
        """The layers of the task's own state."""
        return () if self.own is None else self.own.layers

    def share_statistics(self) -> None:
        """Give all ranks the running statistics of the main process. Every rank must call this.

        With TRAIN.BATCH_NORM local, they differ between ranks; with Paddle's SyncBatchNorm, if inputs are unequal.
        """
        for layer in (self.model, *self.own_layers):
            broadcast_statistics(layer)

    def position(self) -> dict[str, int]:
        """Return "epoch" and "consumed" (samples of the next epoch) of the sampler, and "update"."""
        return {**self.sampler.state_dict(), **self.schedule.state_dict()}

    def begin_after(self, epoch: int, consumed: int = 0) -> None:
        """Set the position to ``consumed`` samples after the end of ``epoch``, and the schedule to match."""
        self.sampler.load_state_dict({"epoch": epoch, "consumed": consumed})
        self.schedule.load_state_dict({"update": self.sampler.updates_made})


def build_sampler(config: RunSettings, samples: TransformedDataset) -> TrainingSampler:
    """Build the sampler of this rank over the training samples."""
    return TrainingSampler(
        samples,
        config.DATA.BATCH_SIZE,
        rank=rank(),
        world_size=world_size(),
        accumulation_steps=config.TRAIN.ACCUM_ITER,
        seed=config.SEED,
        repeats=config.TRAIN.REPEATED_AUGMENT,
    )


def build_training_state(
    config: RunSettings,
    task: Task,
    model: paddle.nn.Layer,
    sampler: TrainingSampler,
    log: Callable[[str], None],
    explain_not_finite: Sequence[Callable[..., list[str]]] = (),
) -> TrainingState:
    """Build schedule, optimizer, weight average and guard for a model, which is frozen and compiled as configured.

    ``model`` has its initial weights; ``explain_not_finite``: see ``NonFiniteGuard``. Raises UserError if the warm-up
    is as long as the run, or a setting does not apply to this model.
    """
    train = config.TRAIN
    schedule = _build_schedule(config, sampler)
    precision = TrainingPrecision(config.AMP, config.AMP_DTYPE, config.AMP_LEVEL)
    groups, rates = _prepare_model(config, task, model, schedule, log)
    # Recomputed blocks run again after the forward pass, when nothing is left of weights that were cast for it. Cast
    # together, weights that a rank does not use belong to its graph: Paddle waits for them, and gives them no gradient.
    is_cast_apart = train.RECOMPUTE or train.FIND_UNUSED_PARAMETERS or rates.can_freeze
    for line in [*precision.ask_device(model), *([] if is_cast_apart else precision.choose_casts(model))]:
        log(line)
    undecayed = params_without_weight_decay(groups, model) if train.WEIGHT_DECAY else []
    first = train.OPTIMIZER.WARMUP_MOMENTUM
    momentum_now = None if first is None else lambda: schedule.momentum(first, train.OPTIMIZER.MOMENTUM)
    shards = Shards(model) if train.SHARDING and world_size() > 1 else None
    if shards is not None:
        log(shards.describe())
    elif train.SHARDING:
        log(f"TRAIN.SHARDING {train.SHARDING} has no effect on one process")
    optimizer = build_optimizer(
        train.OPTIMIZER,
        model,
        groups,
        train.WEIGHT_DECAY,
        train.LAYER_DECAY,
        log,
        momentum_now,
        shards,
        _get_decay_factor(train, schedule),
    )
    averaging = train.MODEL_EMA_DECAY, train.MODEL_EMA_WARMUP, lambda: schedule.update
    ema: WeightAverage | None = ModelEma(model, *averaging, shards) if train.MODEL_EMA else None
    keeping = get_aspect(task, StateKeeping)
    own = keeping.build_state(model, None if shards is None else shards.owned) if keeping else None
    if own is not None and own.average is not None:
        if ema is not None:
            raise UserError(f"TRAIN.MODEL_EMA True: task {config.TASK} averages its weights itself; set it to False")
        ema = own.average
    has_scaler = precision.scaler is not None
    nan_guard = NonFiniteGuard(train.MAX_SKIPPED_UPDATES, has_scaler, explain_not_finite, log)
    following = sampler, schedule, rates
    return TrainingState(model, optimizer, ema, precision, nan_guard, *following, undecayed, {}, shards, own)


def _get_decay_factor(train: TrainSection, schedule: RateSchedule) -> Callable[[], float] | None:
    start, end = train.WEIGHT_DECAY, train.WEIGHT_DECAY_END
    if end is None or not start:
        return None
    return lambda: schedule.weight_decay(start, end) / start


def _build_schedule(config: RunSettings, sampler: TrainingSampler) -> RateSchedule:
    schedule = build_schedule(config.TRAIN, sampler.updates_per_epoch, sampler.global_batch_size)
    if schedule.warmup_updates >= schedule.total_updates:
        raise UserError(
            f"the warm-up ({schedule.warmup_updates} updates, TRAIN.WARMUP_STEPS or WARMUP_EPOCHS) is as long "
            f"as the run ({schedule.total_updates} updates); shorten it or train longer"
        )
    return schedule


def _prepare_model(
    config: RunSettings, task: Task, model: paddle.nn.Layer, schedule: RateSchedule, log: Callable[[str], None]
) -> tuple[list[dict[str, Any]], ParameterRates]:
    """Freeze and compile a model as configured; return the groups of what learns in any step, and their own rates."""
    train = config.TRAIN
    own = {name for name, parameter in model.named_parameters() if parameter.stop_gradient}
    own.difference_update(statistics_in(own))
    if train.LORA.RANK:
        paddle.seed(config.SEED)
        add_low_rank_terms(model, train.LORA.RANK, train.LORA.ALPHA, train.LORA.TARGETS, log)
    frozen = freeze(model, train.FREEZE)
    fixed = {name for name, parameter in model.named_parameters() if parameter.stop_gradient} - own
    grouping = get_aspect(task, ParameterGrouping)
    given = grouping.parameter_groups(model) if grouping else decay_groups(model, train.WEIGHT_DECAY)
    groups, functions = complete_groups(given, model, train.WEIGHT_DECAY, fixed, schedule.second_course, log)
    kept = keep_frozen_statistics(model)
    total, epochs = schedule.total_updates, train.NUM_EPOCHS
    numbered = ((update, update * epochs // total) for update in range(total))
    positions = (StepPosition(n + 1, update, total, 0, epochs - 1 - n, schedule(update)) for update, n in numbered)
    rates = ParameterRates(functions, model, positions)
    for line in rates.lines:
        log(line)
    if rates.can_freeze and config.TO_STATIC:
        raise UserError("TO_STATIC: parameter_groups freezes parameters in some steps; remove TO_STATIC")
    kept_norms = f"{count(kept, 'batch norm')} without trained parameters"
    norms = f"{kept_norms} {agree(kept, 'keeps its', 'keep their')} running statistics" if kept else ""
    parameters = (
        f"{count(frozen, 'parameter')} {agree(frozen)} frozen (TRAIN.FREEZE {', '.join(train.FREEZE)})"
        if frozen
        else ""
    )
    if frozen or kept:
        log("; ".join(filter(None, [parameters, norms])))
    if train.RECOMPUTE:
        recomputable = get_aspect(task, Recomputable)
        if recomputable is None:
            raise UserError(f"TRAIN.RECOMPUTE: task {config.TASK} cannot recompute; remove TRAIN.RECOMPUTE")
        number = recompute_layers(recomputable.recomputed_layers(model))
        log(f"{count(number, 'block')} {agree(number)} recomputed in the backward pass (TRAIN.RECOMPUTE)")
    if notice := compile_model(config, task, model):
        log(notice)
    return groups, rates
