"""The trainer: builds everything that one run of a task needs, and trains or evaluates with it."""

import collections
import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from paddle.profiler import RecordEvent

from .. import losses
from ..data.loader import build_loader
from ..distributed import (
    StopRequested,
    batch_norm_kind,
    data_parallel,
    has_batch_norm,
    is_main,
    prepare_batch_norms,
    stops,
    world_size,
)
from ..logging.callbacks import CallbackList, find_callbacks
from ..logging.progress import Heartbeat
from ..logging.record import RunLog
from ..registry.extension_points import FIRST_LAYER_FINDER, LOAD_EXPORTED_LAYER
from ..registry.lookup import build_set, require_derived
from ..registry.names import REGISTRY
from ..runtime import device_kinds, signals
from ..runtime.errors import Stopped
from ..runtime.transfers import is_on_gpu
from ..settings.every_run import RunSettings
from ..tasks.aspects import get_aspect
from ..tasks.callback import RunFacts
from ..tasks.dataset import TransformedDataset
from ..tasks.model_factory import build_model
from ..tasks.opened_dataset import require_described
from ..tasks.protocols import Capturable, FeatureCaching, get_sample_check
from ..tasks.step_types import StepPosition
from ..tasks.task import Task
from .checkpointing import Checkpointer
from .device_check import prepare_device
from .epoch_evaluation import EpochEvaluator
from .evaluation import Evaluator
from .feature_cache import FeatureCache
from .hooks import EarlyStopping, EmptyingCache, Hook, TrainingLogger, UpdateRecord
from .precision import EvaluationPrecision, require_compilable_norms
from .rank_comparison import assert_same_on_all_ranks
from .resume import StateLoader, is_evaluated, log_resumption
from .startup_log import describe_batch_norm, format_first_lines, format_training, start_run_log
from .step import CountingCollate, StepResult, TrainStep, synchronized_groups
from .training_state import build_sampler, build_training_state


class Trainer:
    """Trains one task on all ranks, and holds what ``inference.evaluation.evaluate_only`` needs.

    Every rank creates one with the same arguments. ``train`` runs the whole training; ``prepare_training`` builds its
    parts without starting it.

    Args:
        config: the frozen configuration.
        task: the task, built in the parent process together with its datasets.
        datasets: datasets by split: "train" and "val" for training ("val" is optional if nothing is evaluated), or
            DATA.SPLIT alone for an evaluation.
        notices: log lines in addition to the notices of the task and the datasets.
        callbacks: the user's callbacks, in addition to the services in LOG_TO. Only the main process calls them.
        run_log: receives log lines and metrics; None: a new one in the folder SAVE.

    Attributes:
        model: the bare model, without the data-parallel wrapper.
        eval_dataset: the dataset that ``evaluator`` reads; missing if there is no such split.
        evaluator: the evaluator of ``eval_dataset``.
        heartbeat: reports to the watchdog what this rank is doing.
        folder: the folder of the checkpoints.
        state: the parts that a checkpoint holds; ``sampler``, ``schedule``, ``precision``, ``optimizer``, ``ema`` and
            ``nan_guard`` are some of them. This and all that follow are set by ``prepare_training``.
        loader: batches of training samples on the device.
        resume_state: the position and state that -resume and -pretrained give.
        checkpointer: saves ``state``.
        step: runs one optimizer step.
        batch_norm: "sync" or "local".
        updates_per_epoch: optimizer steps in one epoch.
        last_epoch: the epoch that this run ends with, from 1.
        hooks: called at each step, epoch and evaluation; set when the training starts, as is ``logger``.
        logger: the hook that logs progress.
    """

    eval_dataset: TransformedDataset
    evaluator: Evaluator
    logger: TrainingLogger

    def __init__(
        self,
        config: RunSettings,
        task: Task,
        datasets: dict[str, Any],
        notices: Sequence[str] = (),
        callbacks: Sequence[Any] = (),
        run_log: RunLog | None = None,
    ) -> None:
        self.config = config
        self.task = require_derived(task, Task)
        self.datasets: dict[str, Any] = {
            part: require_derived(samples, TransformedDataset) for part, samples in datasets.items()
        }
        for samples in self.datasets.values():
            require_described(samples)
        notices = [*notices, *task.notices, *(text for samples in datasets.values() for text in samples.notices)]
        precision = EvaluationPrecision(config)
        notices.extend(filter(None, [precision.notice]))
        self.run_log = RunLog(Path(config.SAVE), is_main()) if run_log is None else run_log
        named = find_callbacks(config.LOG_TO if self.run_log.writes and not config.EVAL else ())
        local_callbacks = [*(make() for make in named.values()), *callbacks] if is_main() else []
        self.callbacks = CallbackList(local_callbacks, self.run_log.log_and_print)
        self.folder = Path(config.SAVE) / "checkpoints"
        for line in [*format_first_lines(config, task, datasets), *dict.fromkeys(notices)]:
            self.run_log.log_and_print(line)
        for line in prepare_device(config, task.traits.fixed_shapes):
            self.run_log.log_and_print(line)
        if world_size() > 1:
            for line in assert_same_on_all_ranks(config, self.task, self.datasets):
                self.run_log.log_and_print(line)
        if task.traits.uses_cross_entropies and (is_on_gpu() or device_kinds.current().is_other):
            for line in losses.choose_cross_entropy():
                self.run_log.log_and_print(line)
        self.heartbeat = Heartbeat(self.run_log.log_and_print, shown=self.run_log.writes)
        with self.heartbeat.at("building the model"):
            num_logged = len(task.notices)
            build: Callable[[RunSettings, Task], Any] = build_model
            if config.get("EXPORTED"):
                build = LOAD_EXPORTED_LAYER.require()
            self.model = build(config, task)
        for line in task.notices[num_logged:]:  # added by build_model, such as the source of a backbone
            self.run_log.log_and_print(line)
        split = config.DATA.SPLIT if config.EVAL else "val"
        if split in self.datasets:
            self.eval_dataset = self.datasets[split]
            self.evaluator = Evaluator(config, task, self.model, self.eval_dataset, precision, self.heartbeat)
        self.hooks: list[Hook] = []
        self._is_prepared = False
        self._pending: collections.deque[Callable[..., UpdateRecord]] = collections.deque()  # without a result yet

    def prepare_training(self) -> None:
        """Build sampler, loader, optimizer and the other parts, then load what -resume or -pretrained names."""
        config, task, run_log, train = self.config, self.task, self.run_log, self.config.TRAIN
        self.last_epoch = min(train.NUM_EPOCHS, train.STOP_AFTER_EPOCH or train.NUM_EPOCHS)
        local_batch = config.DATA.BATCH_SIZE
        self.batch_norm, reason = batch_norm_kind(train.BATCH_NORM, task.traits.batch_norm, world_size(), local_batch)
        samples = self.datasets["train"]
        self.sampler = build_sampler(config, samples)
        self.updates_per_epoch = self.sampler.updates_per_epoch
        self.loader = build_loader(config, samples, self.sampler, CountingCollate(task), check=get_sample_check(task))
        explain = [self._find_first_layer] if FIRST_LAYER_FINDER.is_there else []
        self.state = build_training_state(config, task, self.model, self.sampler, run_log.log_and_print, explain)
        if has_batch_norm(self.model):  # with frozen ones alone, no statistics are computed
            run_log.log_and_print(describe_batch_norm(config, self.batch_norm, reason))
        self.schedule, self.precision = self.state.schedule, self.state.precision
        self.optimizer, self.ema, self.nan_guard = self.state.optimizer, self.state.ema, self.state.nan_guard
        self.restore()
        capture = get_aspect(task, Capturable)
        # On a card only passes of classifiers were compared and timed: others are captured where that is asked for.
        is_measured = capture is not None or train.CAPTURE != "auto"
        captures = self.state.choose("TRAIN.CAPTURE", train.CAPTURE if is_measured else False)
        if captures and capture is not None:
            capture.use_one_shape()
        finds_unused = train.FIND_UNUSED_PARAMETERS or self.state.rates.can_freeze
        wrapped = data_parallel(self.model, self.batch_norm, finds_unused, train.BUCKET_MEGABYTES)
        for layer in self.state.own_layers:
            prepare_batch_norms(layer, self.batch_norm)
        require_compilable_norms(config, self.model)
        self.step = TrainStep(
            task,
            wrapped,
            self.optimizer,
            self.precision,
            seed=config.SEED,
            samples_per_update=self.sampler.global_batch_size,
            accumulation_steps=train.ACCUM_ITER,
            gradient_clip=train.GRAD_CLIP,
            clips_each=train.GRAD_CLIP_MODE == "tensor",
            nan_guard=self.nan_guard,
            rates=self.state.rates,
            average=self.ema,
            own=self.state.own,
            captures=captures,
            bucket_megabytes=train.BUCKET_MEGABYTES,
            log=run_log.log_and_print,
        )
        self._is_prepared = True

    def restore(self) -> None:
        """Load what -resume or -pretrained names, if anything, and build the checkpointer. Every rank must call this.

        Raises:
            UserError: the checkpoint cannot be loaded, or its settings differ in a way that alters the training.
        """
        parts = self.config, self.task, self.datasets, self.state, self.run_log
        self.resume_state = StateLoader(*parts).load()
        self.checkpointer = Checkpointer(*parts, self.resume_state, self.callbacks.queued_saves.append)
        self._update_saved = self.schedule.update  # the last one saved; at first, the one that the run starts from

    def on_weights_loaded(self) -> None:
        """Call the task's ``on_weights_loaded``, which may cache frozen features. Every rank must call this."""
        caching = get_aspect(self.task, FeatureCaching)
        if caching is not None:
            features = FeatureCache(self.config, self.task, self.run_log.log_and_print, self.heartbeat)
            caching.on_weights_loaded(self.model, self.datasets, features)

    def _find_first_layer(self, *step: Any) -> list[str]:
        """Name the first layer with a value that is not finite; imported for such a step only, and on every rank."""
        return FIRST_LAYER_FINDER.require()(self)(*step)

    def _add_hooks(self) -> None:
        train, epochs_left = self.config.TRAIN, range(self.sampler.epoch, self.last_epoch + 1)
        self.logger = TrainingLogger(
            self.config,
            self.task,
            self.state,
            self.resume_state,
            self.loader,
            self.evaluator,
            self.run_log,
            self.heartbeat,
            self.callbacks,
            last_epoch=self.last_epoch,
            evaluations=sum(map(self.should_evaluate, epochs_left)),
        )
        parts = self.task, self.state, self.evaluator, self.checkpointer, self.run_log
        self._evaluate_epoch = EpochEvaluator(self.config, *parts)
        if self.task.traits.empty_cache_freq:
            self.hooks.append(EmptyingCache(self.task.traits.empty_cache_freq))
        self.hooks.append(self.logger)
        if train.PATIENCE:
            metric, end = self.task.best_metric, self.last_epoch
            self.hooks.append(EarlyStopping(train, metric, self.resume_state, self.evaluator, self.run_log, end))
        self.hooks.extend(build_set(REGISTRY.hooks, self))

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
            self._add_hooks()
            with self.callbacks.notified_of_end():
                if seconds is not None:
                    signals.stop_after(seconds, f"-stop_after_seconds={seconds:g}")
                signals.record_only()
                try:
                    return self._train_epochs()
                except StopRequested:
                    self._save_and_stop()
                finally:
                    self.checkpointer.settle()  # finish writing a checkpoint, also after an error

    def should_evaluate(self, epoch: int) -> bool:
        """Return whether an evaluation follows that epoch."""
        return is_evaluated(self.config, epoch, self.last_epoch)

    def _train_epochs(self) -> dict[str, float]:
        self.checkpointer.link_last()
        if self._has_nothing_to_do():
            return {}
        self._log_start()
        self.evaluator.check_metrics(self.sampler.epoch)
        result = self._evaluate_as_due()
        # Close the loader before an exception propagates: its threads must not run when the process exits.
        left = self.loader.epochs(self.sampler.epoch, self.last_epoch, self.sampler.consumed)
        with contextlib.closing(left) as batches:
            while self.sampler.epoch <= self.last_epoch:  # early stopping may lower it
                epoch = self.sampler.epoch
                self.train_epoch(epoch, batches)
                self._save_epoch(epoch)
                if self.should_evaluate(epoch):
                    result = self.evaluate(epoch)
        self._finish(*result)
        return result[0]

    def _has_nothing_to_do(self) -> bool:
        done = self.sampler.epoch - 1
        reason = f"epoch {done} of {self.last_epoch} is already done" if done >= self.last_epoch else self._stop_reason
        if not reason or self.resume_state.evaluation_due:
            return False
        self.run_log.log_and_print(f"nothing to do: {reason}")
        return True

    def _evaluate_as_due(self) -> tuple[dict[str, float], str]:
        """Make up for the evaluation that the resumed run was stopped before, if it was; return its values and line."""
        if not self.resume_state.evaluation_due:
            return {}, ""
        epoch = self.sampler.epoch - 1
        if not self.resume_state.is_of_epoch(self.checkpointer.folder):
            self.save(evaluation_due=True, epoch=epoch)
        return self.evaluate(epoch)

    def _save_epoch(self, epoch: int) -> None:
        """Save the trained epoch if a checkpoint is due, and stop if the run is asked to."""
        is_evaluated = self.should_evaluate(epoch)
        if is_evaluated or self.checkpointer.should_save(epoch):
            self.save(evaluation_due=is_evaluated, epoch=epoch)
        if self.checkpointer.sync_point.should_stop(self.schedule.update):
            self._save_and_stop()

    def _finish(self, values: dict[str, float], line: str) -> None:
        """Write the last checkpoint, and log the results if an evaluation gave ``values`` and their ``line``."""
        with self.logger.paused("writing the last checkpoint"):
            self.checkpointer.finish()
        if not line:
            return
        for hook in self.hooks:
            hook.after_train()
        with self.logger.paused("comparing the last checkpoint with the weights that were scored"):
            self.checkpointer.require_scored(self.last_epoch)
        results = self.checkpointer.format_results(line, self.last_epoch)
        for result in filter(None, [self._evaluate_epoch.note, *results]):
            self.run_log.log_and_print(result)

    def _log_start(self) -> None:
        config, run_log = self.config, self.run_log
        log_resumption(self.resume_state, run_log)  # first: it may hold the files of the next
        start_run_log(config, run_log, self.task, self.datasets)
        sizes = config.TRAIN.NUM_EPOCHS, self.updates_per_epoch, self.schedule.update
        self.callbacks.start(RunFacts(run_log.folder, config, True, *sizes))
        for line in format_training(config, self.task, self.state, self.last_epoch * self.updates_per_epoch):
            run_log.log_and_print(line)

    def train_epoch(self, epoch: int, batches: Iterator[Any]) -> None:
        """Train to the end of an epoch, with the checkpoints within it. Every rank must call this.

        Args:
            epoch: the epoch, from 1; a resumed run may have made some of its steps before.
            batches: micro-batches from ``loader``.

        Raises:
            StopRequested: the run was asked to stop while it waited for data.
            Stopped: the run was asked to stop, and its state is saved.
        """
        self.model.train()
        sync_point, updates = self.checkpointer.sync_point, self.sampler.updates_left
        num_done = self.updates_per_epoch - updates  # before the resumed checkpoint
        is_due = is_complete = False
        try:
            for hook in self.hooks:
                hook.before_epoch(epoch, num_done)
            for group in synchronized_groups(self.loader, batches, self.config.TRAIN.ACCUM_ITER, updates):
                sync_point.poll(self.schedule.update)
                num_done += 1
                self.train_update(group, epoch, num_done)
                is_last = num_done == self.updates_per_epoch
                is_due = self.checkpointer.should_save_update()
                should_stop = sync_point.should_stop(self.schedule.update)
                if is_last or is_due or should_stop:
                    self._report(self.step.flush())
                if is_due and not is_last:
                    self.save(evaluation_due=False)
                if should_stop and not is_last:  # after the last step, the epoch is saved first
                    self._save_and_stop()
            is_complete = True
        except StopRequested:
            self._report(self.step.flush())
            raise
        finally:
            for hook in self.hooks:
                hook.after_epoch(epoch, is_complete)
        if is_due:  # after the epoch's means are logged, because later checkpoints do not hold them
            self.save(evaluation_due=self.should_evaluate(epoch))

    def train_update(self, batches: list[Any], epoch: int, number: int) -> None:
        """Launch one optimizer step, report the steps that have completed, and count it.

        Args:
            batches: the step's micro-batches of this rank.
            number: position of the step in the epoch, from 1.
        """
        left = self.config.TRAIN.NUM_EPOCHS - epoch
        position = StepPosition(epoch, self.schedule.update, self.schedule.total_updates, epochs_left=left)
        rate, is_last = self.schedule.learning_rate, number == self.updates_per_epoch
        for hook in self.hooks:
            hook.before_step(position)
        self._pending.append(
            functools.partial(UpdateRecord, step=position, learning_rate=rate, made=number, is_last=is_last)
        )
        with RecordEvent("update"):
            results = self.step.launch(batches, position, rate)
        self._report(results)
        self.sampler.count_update()
        self.schedule.count_update()

    def _report(self, results: list[StepResult]) -> None:
        if self.callbacks.queued_saves:
            self.callbacks.deliver_saved()
        for result in results:
            update = self._pending.popleft()(**result._asdict())
            for hook in self.hooks:
                hook.after_step(update)

    @property
    def _stop_reason(self) -> str:
        return next((hook.stop_reason for hook in self.hooks if hook.stop_reason), "")

    def save(self, evaluation_due: bool, epoch: int | None = None) -> None:
        """Save a checkpoint. Every rank must call this.

        Args:
            evaluation_due: whether an evaluation follows, which a resumed run makes up for.
            epoch: the completed epoch, after which the checkpoint is named; None: it is named after the step.
        """
        with self.logger.paused(f"saving update {self.schedule.update}" if epoch is None else f"saving epoch {epoch}"):
            self.state.share_statistics()
            if epoch is None:
                self.checkpointer.save_update(evaluation_due, self.logger)
            else:
                self.checkpointer.save_epoch(epoch, evaluation_due, self.logger)
        self._update_saved = self.schedule.update

    def _save_and_stop(self) -> NoReturn:
        """Save the state unless a checkpoint already has it, then raise Stopped."""
        if self.schedule.update != self._update_saved:
            self.save(evaluation_due=False)
        self.checkpointer.finish()
        raise Stopped(stops.reason(), self.checkpointer.describe_last(self.resume_state.position["update"]))

    def evaluate(self, epoch: int) -> tuple[dict[str, float], str]:
        """Evaluate the weights, then the EMA weights if there are any; the last evaluated choose the best checkpoint.

        Hooks, such as early stopping, may end the training after it. Every rank must call this.

        Args:
            epoch: the last epoch trained, whose checkpoint is saved.

        Returns:
            Values by name, and their log line.

        Raises:
            UserError: a value is infinite.
        """
        with self.logger.paused(f"in the evaluation {epoch}"):
            values, line = self._evaluate_epoch(epoch, epoch == self.last_epoch, self.hooks)
            name, more_is_better = self.task.best_metric
            # One that only -stop_after_epoch causes, an uninterrupted run does not have.
            counts = is_evaluated(self.config, epoch, self.config.TRAIN.NUM_EPOCHS)
            direction = None if self.task.traits.takes_last else more_is_better
            value = values.get(name)
            is_best = self.checkpointer.note_evaluation(epoch, name, value, direction, line, counts)
            for hook in self.hooks:
                hook.after_evaluate(epoch, values, line, is_best)
            if value is None:
                self.run_log.log_and_print(self.checkpointer.describe_undefined(epoch))
            self.checkpointer.record_evaluation(epoch, is_best, values)
            self.checkpointer.log_held_back()
        if self._stop_reason:
            self.last_epoch = epoch
        return values, line
