"""The trainer: builds everything that one run of a task needs, and trains or evaluates with it."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import paddle

from .. import extension
from ..data.loader import DeviceLoader, build_loader
from ..data.sampler import TrainingSampler
from ..distributed import (
    batch_norm_kind,
    data_parallel,
    has_batch_norm,
    is_main,
    rank,
    recompute_layers,
    set_batch_norm_momentum,
    world_size,
)
from ..launch import gpu
from ..logging.callbacks import FAILED, FINISHED, STOPPED, CallbackList, find_callbacks
from ..logging.heartbeat import Heartbeat
from ..logging.record import RunRecord
from ..models import prepare
from ..registry import require_derived
from ..runtime import signals
from ..runtime.errors import Stopped, UserError
from ..settings.every_run import RunSettings
from ..tasks.dataset import TransformedDataset
from ..tasks.task import StepPosition, Task
from . import resume
from .checkpointer import Checkpointer
from .evaluation import Evaluator
from .feature_cache import cache_features
from .loop import TrainingLoop
from .model_ema import ModelEma
from .nan_guard import NonFiniteGuard
from .optimizer import build_optimizer, decay_groups, freeze, params_without_weight_decay
from .precision import EvaluationPrecision, TrainingPrecision, compile_model
from .rank_comparison import assert_same_on_all_ranks
from .reports import TrainingLogger
from .schedule import RateSchedule, build_schedule
from .startup_log import format_first_lines
from .steps import CountingCollate, TrainStep


def build_model(config: RunSettings, task: Task) -> paddle.nn.Layer:
    """Build the task's model with its initial weights, which depend on SEED only and are equal on all ranks.

    Args:
        config: the frozen configuration.
        task: the task to build the model for.

    Returns:
        The model, in training mode, prepared for the current device.

    Raises:
        UserError: a setting does not apply to this model.
    """
    paddle.seed(config.SEED)
    model = prepare(task.build_model())
    momentum = config.TRAIN.BATCH_NORM_MOMENTUM
    if momentum is not None and not set_batch_norm_momentum(model, momentum):
        raise UserError(f"TRAIN.BATCH_NORM_MOMENTUM {momentum}: {config.MODEL.NAME} has no batch norm; remove this key")
    return model


class Trainer:
    """Trains one task on all ranks, and holds what ``inference.evaluation.evaluate_only`` needs.

    Every rank creates one with the same arguments. ``train`` runs the whole training; ``prepare_training`` builds its
    parts without starting it.

    Args:
        config: the frozen configuration.
        task: the task, built in the parent process together with its datasets.
        datasets: samples by split: "train" and "val" for training ("val" is optional if nothing is evaluated), or
            DATA.SPLIT alone for an evaluation.
        notices: log lines in addition to the notices of the task and the datasets.
        callbacks: the user's callbacks, in addition to the services in LOG_TO. Only the main process calls them.
        record: receives log lines and metrics; None: a new record in the folder SAVE.

    Attributes:
        model: the bare model, without the data-parallel wrapper.
        evaluated: the samples that ``evaluation`` reads; missing if there is no such split.
        evaluation: the evaluator of ``evaluated``.
        heartbeat: reports to the watchdog what this rank is doing.
        folder: the folder of the checkpoints.
        sampler: the order of the training samples, and the position in it. This and the next eight are set by
            ``prepare_training``.
        loader: batches of training samples on the device.
        schedule: the learning rate of every step.
        precision: autocast and loss scaling.
        optimizer: a Paddle optimizer, perhaps with a fused step.
        ema: the average of the weights; None: TRAIN.MODEL_EMA is off.
        nan_guard: counts skipped steps.
        checkpointer: saves and restores.
        train_step: runs one optimizer step.
        reports: logs progress; set when the training starts.
        batch_norm: "sync" or "local".
        updates_per_epoch: optimizer steps in one epoch.
        last_epoch: the epoch that this run ends with, from 1.
        undecayed: names of parameters with two or more axes that have no weight decay.
        start: the position and state that -resume and -pretrained give.
    """

    evaluated: Any
    evaluation: Evaluator
    sampler: TrainingSampler
    loader: DeviceLoader
    schedule: RateSchedule
    precision: TrainingPrecision
    optimizer: Any
    ema: ModelEma | None
    nan_guard: NonFiniteGuard
    checkpointer: Checkpointer
    train_step: TrainStep
    reports: TrainingLogger
    batch_norm: str
    updates_per_epoch: int
    last_epoch: int
    undecayed: list[str]
    start: resume.ResumeState

    def __init__(
        self,
        config: RunSettings,
        task: Task,
        datasets: dict[str, Any],
        notices: Sequence[str] = (),
        callbacks: Sequence[Any] = (),
        record: RunRecord | None = None,
    ) -> None:
        self.config = config
        self.task = require_derived(task, Task)
        self.datasets: dict[str, Any] = {
            split: require_derived(samples, TransformedDataset) for split, samples in datasets.items()
        }
        notices = [*notices, *task.notices, *(line for samples in datasets.values() for line in samples.notices)]
        precision = EvaluationPrecision(config)
        notices.extend(filter(None, [precision.notice]))
        self.record = RunRecord(Path(config.SAVE), is_main()) if record is None else record
        named = find_callbacks(config.LOG_TO if self.record.writes and not config.EVAL else ())
        local_callbacks = [*(make() for make in named.values()), *callbacks] if is_main() else []
        self.callbacks = CallbackList(local_callbacks, self.record.log_and_print)
        self.folder = Path(config.SAVE) / "checkpoints"
        for line in [*format_first_lines(config, task, datasets), *dict.fromkeys(notices)]:
            self.record.log_and_print(line)
        gpu.prepare(config.TRAIN.TF32, config.DETERMINISTIC, task.fixed_shapes)
        assert_same_on_all_ranks(config, self.task, self.datasets)
        self.heartbeat = Heartbeat(self.record.log_and_print, shown=self.record.writes)
        with self.heartbeat.at("building the model"):
            num_logged = len(task.notices)
            is_exported = bool(config.get("EXPORTED"))
            self.model = extension.load_exported_layer(config, task) if is_exported else build_model(config, task)
        for line in task.notices[num_logged:]:  # added by build_model, such as the source of a backbone
            self.record.log_and_print(line)
        split = config.DATA.SPLIT if config.EVAL else "val"
        if split in self.datasets:
            self.evaluated = self.datasets[split]
            self.evaluation = Evaluator(config, task, self.model, self.evaluated, precision, self.heartbeat)
        self._is_prepared = False

    def train(self) -> dict[str, float]:
        """Train to NUM_EPOCHS (or STOP_AFTER_EPOCH) and evaluate. Every rank must call this.

        Returns:
            The values of the last evaluation by name, equal on every rank; empty if nothing is left to train.

        Raises:
            Stopped: a signal or a time limit stopped the run after its state was saved.
            UserError: the training diverged or cannot start with these settings.
        """
        seconds = self.config.STOP_AFTER_SECONDS
        with self.heartbeat.at("preparing the training"):
            if not self._is_prepared:
                self.prepare_training()
            self.on_weights_loaded()
            loop = TrainingLoop(self)
            with self.until_the_end():
                if seconds is not None:
                    signals.stop_after(seconds, f"-stop_after_seconds={seconds:g}")
                signals.defer()
                return loop.run()

    @contextlib.contextmanager
    def until_the_end(self) -> Iterator[None]:
        """Notify the callbacks how the run ended: finished, stopped or failed."""
        outcome = FAILED
        try:
            yield
            outcome = FINISHED
        except Stopped:
            outcome = STOPPED
            raise
        finally:
            self.callbacks.end(outcome)

    def prepare_training(self) -> None:
        """Build sampler, loader, optimizer and the other parts, then load what -resume or -pretrained names."""
        config, task, model, record = self.config, self.task, self.model, self.record
        train, samples = config.TRAIN, self.datasets["train"]
        self.last_epoch = min(train.NUM_EPOCHS, train.STOP_AFTER_EPOCH or train.NUM_EPOCHS)
        local_batch = config.DATA.BATCH_SIZE
        self.batch_norm, reason = batch_norm_kind(train.BATCH_NORM, task.batch_norm, world_size(), local_batch)
        if has_batch_norm(model) and world_size() > 1:
            size = local_batch * world_size() if self.batch_norm == "sync" else local_batch
            record.log_and_print(f"batch norm: {self.batch_norm}, statistics of {size} samples at a time ({reason})")
        self.sampler = self._sampler(samples)
        self.updates_per_epoch = self.sampler.updates_per_epoch
        self.loader = build_loader(config, samples, self.sampler, CountingCollate(task), check=task.check_sample)
        self.schedule = self._schedule()
        self.precision = TrainingPrecision(config.AMP, config.AMP_DTYPE, config.AMP_LEVEL)
        self._prepare_model()
        groups = task.parameter_groups(model) or decay_groups(model, train.WEIGHT_DECAY)
        decays = train.WEIGHT_DECAY, train.LAYER_DECAY
        self.undecayed = params_without_weight_decay(groups, model) if train.WEIGHT_DECAY else []
        self.optimizer = build_optimizer(train.OPTIMIZER, model, groups, *decays, log=record.log_and_print)
        averaging = train.MODEL_EMA_DECAY, train.MODEL_EMA_WARMUP, lambda: self.schedule.update
        self.ema = ModelEma(model, *averaging) if train.MODEL_EMA else None
        explain = [self._explain_not_finite] if extension.has("debug") else []
        has_scaler = self.precision.scaler is not None
        self.nan_guard = NonFiniteGuard(train.MAX_SKIPPED_UPDATES, has_scaler, explain, record.log_and_print)
        self.checkpointer = Checkpointer(self)
        self.start = resume.load(self)
        self.train_step = self._build_train_step()
        self._is_prepared = True

    def on_weights_loaded(self) -> None:
        """Call the task's ``on_weights_loaded``, which may cache frozen features. Every rank must call this."""
        self.task.on_weights_loaded(self.model, self.datasets, functools.partial(cache_features, self))

    def should_save(self, epoch: int) -> bool:
        """Return whether the checkpoint of that epoch is kept."""
        return epoch % self.config.SAVE_FREQ == 0 or epoch == self.config.TRAIN.NUM_EPOCHS

    def should_evaluate(self, epoch: int) -> bool:
        """Return whether an evaluation follows that epoch."""
        return epoch % self.config.VALIDATE_FREQ == 0 or epoch == self.last_epoch

    def _sampler(self, samples: Any) -> TrainingSampler:
        return TrainingSampler(
            samples,
            self.config.DATA.BATCH_SIZE,
            rank=rank(),
            world_size=world_size(),
            accumulation_steps=self.config.TRAIN.ACCUM_ITER,
            seed=self.config.SEED,
            repeats=self.config.TRAIN.REPEATED_AUGMENT,
        )

    def _schedule(self) -> RateSchedule:
        schedule = build_schedule(self.config.TRAIN, self.updates_per_epoch, self.sampler.global_batch_size)
        if schedule.warmup_updates >= schedule.total_updates:
            raise UserError(
                f"the warm-up ({schedule.warmup_updates} updates, TRAIN.WARMUP_STEPS or WARMUP_EPOCHS) is as long "
                f"as the run ({schedule.total_updates} updates); shorten it or train longer"
            )
        return schedule

    def _explain_not_finite(
        self, batches: Sequence[dict[str, Any]], step: StepPosition, counts: dict[str, Any]
    ) -> list[str]:
        """Find the first layer that is not finite, on every rank."""
        return extension.FirstLayerFinder(self)(batches, step, counts)

    def _prepare_model(self) -> None:
        train, record = self.config.TRAIN, self.record
        frozen = freeze(self.model, train.FREEZE)
        if frozen:
            record.log_and_print(f"{frozen} parameters are frozen (TRAIN.FREEZE {', '.join(train.FREEZE)})")
        if train.RECOMPUTE:
            number = recompute_layers(self.task.recomputed_layers(self.model))
            record.log_and_print(f"{number} blocks are recomputed in the backward pass (TRAIN.RECOMPUTE)")
        if notice := compile_model(self.config, self.task, self.model):
            record.log_and_print(notice)

    def _build_train_step(self) -> TrainStep:
        train = self.config.TRAIN
        return TrainStep(
            self.task,
            data_parallel(self.model, self.batch_norm, train.FIND_UNUSED_PARAMETERS, train.BUCKET_MEGABYTES),
            self.optimizer,
            self.precision,
            seed=self.config.SEED,
            samples_per_update=self.sampler.global_batch_size,
            accumulation_steps=train.ACCUM_ITER,
            gradient_clip=train.GRAD_CLIP,
            nan_guard=self.nan_guard,
            average=self.ema,
        )
