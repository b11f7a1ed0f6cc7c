"""What a training computes with, put where -resume and -pretrained say: everything but its loop."""

from typing import Any

import paddle

from .. import extensions
from ..data.loader import loader_of
from ..data.sampler import TrainingSampler
from ..distributed import (
    batch_norm_kind,
    data_parallel,
    has_batch_norm,
    rank,
    recompute_layers,
    set_batch_norm_momentum,
    world_size,
)
from ..logging.observer import Observers
from ..logging.record import RunRecord
from ..models import prepared
from ..runtime.errors import UserError
from ..tasks.task import Task
from . import resume
from .checkpointer import Checkpointer
from .model_ema import ModelEma
from .nan_guard import SkippedUpdates
from .optimizer import build_optimizer, decay_groups, freeze, undecayed
from .precision import Precision, compile_model
from .schedule import Schedule, schedule_of
from .steps import CountingCollate, Updater


def build_model(config: Any, task: Task) -> paddle.nn.Layer:
    """The task's model with its initial weights, the same on all ranks and for any number of them.

    Raises:
        UserError: a setting asks for what it does not have.
    """
    paddle.seed(config.SEED)
    model = prepared(task.build_model())
    momentum = config.TRAIN.BATCH_NORM_MOMENTUM
    if momentum is not None and not set_batch_norm_momentum(model, momentum):
        raise UserError(f"TRAIN.BATCH_NORM_MOMENTUM {momentum}: {config.MODEL.NAME} has no batch norm; leave it out")
    return model


class TrainingParts:
    """Sampler, loader, schedule, optimizer, checkpoints and what makes an update. Every rank builds them alike.

    Args:
        datasets: "train", and what is compared with the checkpoint that a run continues from.
        model: the inner model, with its initial weights.
        record: takes the lines about it.
        observers: None: there are none.

    Attributes:
        last_epoch: with which this run ends.
        undecayed: names of parameters with several axes that have no weight decay.
        start: what -resume and -pretrained have put it to.
    """

    def __init__(
        self,
        config: Any,
        task: Task,
        datasets: dict[str, Any],
        model: paddle.nn.Layer,
        record: RunRecord,
        observers: Observers | None = None,
    ) -> None:
        train = config.TRAIN
        self.config = config
        self.task = task
        self.datasets = datasets
        self.model = model
        self.record = record
        self.observers = Observers([], record.say) if observers is None else observers
        self.last_epoch = min(train.NUM_EPOCHS, train.STOP_AFTER_EPOCH or train.NUM_EPOCHS)
        of_process = config.DATA.BATCH_SIZE
        self.batch_norm, why = batch_norm_kind(train.BATCH_NORM, task.batch_norm, world_size(), of_process)
        if has_batch_norm(model) and world_size() > 1:
            of_whole = of_process * world_size() if self.batch_norm == "sync" else of_process
            record.say(f"batch norm: {self.batch_norm}, statistics of {of_whole} samples at a time ({why})")
        self.sampler = self._sampler(datasets["train"])
        self.updates_per_epoch = self.sampler.updates_per_epoch
        self.loader = loader_of(config, datasets["train"], self.sampler, CountingCollate(task), check=task.check_sample)
        self.schedule = self._schedule()
        self.precision = Precision(config.AMP, config.AMP_DTYPE, config.AMP_LEVEL)
        self._prepare_model()
        groups = task.parameter_groups(model) or decay_groups(model, train.WEIGHT_DECAY)
        decays = train.WEIGHT_DECAY, train.LAYER_DECAY
        self.undecayed = undecayed(groups, model) if train.WEIGHT_DECAY else []
        self.optimizer = build_optimizer(train.OPTIMIZER, model, groups, *decays, say=record.say)
        self.ema = ModelEma(model, train.MODEL_EMA_DECAY) if train.MODEL_EMA else None
        explain = [make(self) for make in extensions.hooks("not_finite")]
        has_scaler = self.precision.scaler is not None
        self.skipped = SkippedUpdates(train.MAX_SKIPPED_UPDATES, has_scaler, explain, record.say)
        self.checkpointer = Checkpointer(self)
        self.start = resume.load(self)
        self.updater = self._updater()

    def keeps(self, epoch: int) -> bool:
        """Whether the checkpoint of that epoch stays."""
        return epoch % self.config.SAVE_FREQ == 0 or epoch == self.config.TRAIN.NUM_EPOCHS

    def evaluates(self, epoch: int) -> bool:
        """Whether that epoch is followed by an evaluation."""
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

    def _schedule(self) -> Schedule:
        schedule = schedule_of(self.config.TRAIN, self.updates_per_epoch, self.sampler.global_batch_size)
        if schedule.warmup_updates >= schedule.total_updates:
            raise UserError(
                f"the warm-up ({schedule.warmup_updates} updates, TRAIN.WARMUP_STEPS or WARMUP_EPOCHS) is as long "
                f"as the run ({schedule.total_updates} updates); shorten it or train longer"
            )
        return schedule

    def _prepare_model(self) -> None:
        train = self.config.TRAIN
        frozen = freeze(self.model, train.FREEZE)
        if frozen:
            self.record.say(f"{frozen} parameters are frozen (TRAIN.FREEZE {', '.join(train.FREEZE)})")
        if train.RECOMPUTE:
            number = recompute_layers(self.task.recomputed_layers(self.model))
            self.record.say(f"{number} blocks are recomputed in the backward pass (TRAIN.RECOMPUTE)")
        compile_model(self.config, self.task, self.model)

    def _updater(self) -> Updater:
        train = self.config.TRAIN
        return Updater(
            self.task,
            data_parallel(self.model, self.batch_norm, train.FIND_UNUSED_PARAMETERS, train.BUCKET_MEGABYTES),
            self.optimizer,
            self.precision,
            seed=self.config.SEED,
            samples_per_update=self.sampler.global_batch_size,
            accumulation_steps=train.ACCUM_ITER,
            gradient_clip=train.GRAD_CLIP,
            skipped=self.skipped,
        )
