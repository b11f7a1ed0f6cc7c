"""A training run: epochs, updates, reports, evaluations, checkpoints, resuming."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NoReturn, Optional, Tuple

import paddle

from .. import signals
from ..checkpoint import store as checkpoints
from ..contracts.task import Step, Task
from ..errors import Stopped, UserError
from ..loading.loader import Loader
from ..loading.sampler import TrainingSampler
from ..observe.heartbeat import Heartbeat
from ..observe.meters import Meters
from ..observe.observer import Observers
from ..observe.progress import Progress
from ..observe.record import RunRecord
from ..parallel import (
    LeftEarly,
    Stops,
    broadcast_statistics,
    data_parallel,
    is_main,
    rank,
    recompute_layers,
    stops,
    world_size,
)
from ..transfers import is_on_gpu
from . import about, repetition
from .checkpointer import Checkpointer, Saving
from .evidence import EvidenceFolder
from .figure_maker import BestFigures, FigureMaker
from .finite import SkippedUpdates
from .introduction import describe_training
from .model_ema import ModelEma
from .optimizer import OptimizerState, build_optimizer, freeze
from .passes import PassesTrial, compile_model
from .precision import Precision
from .profile import Profile
from .remaining import Pace, RemainingTime
from .reports import Reports, require_finite
from .resumption import Resumption
from .samples_check import listed
from .schedule import Schedule, schedule_of
from .steps import CountingCollate, Updater, accumulation_groups

MakeLoader = Callable[[Any, Any, Any], Loader]  # samples, sampler, collate
Evaluate = Callable[..., Tuple[Dict[str, float], str]]  # label, epoch -> values, equal on every rank, and their line


class Training:
    """A training run, with everything it has besides its model. Every rank builds one, with the same arguments.

    Once built, it is where -resume and -pretrained put it.

    Args:
        datasets: "train" and "val".
        model: the inner model, with its initial weights.
        start_record: writes configuration and run record, once the run is sure to continue.
        make_loader: a loader of this run's settings.
        evaluate: evaluates the model as it is.
        evaluation_facts: what stands beside the values of an evaluation.
        figures: makes those of the report; None: there is no report.
        start_observers: called once ``metrics.jsonl`` says what of an earlier course counts.
    """

    def __init__(
        self,
        config: Any,
        task: Task,
        datasets: Dict[str, Any],
        model: paddle.nn.Layer,
        *,
        record: RunRecord,
        start_record: Callable[[], None],
        heartbeat: Heartbeat,
        make_loader: MakeLoader,
        evaluate: Evaluate,
        evaluation_facts: Optional[Dict[str, str]] = None,
        figures: Optional[FigureMaker] = None,
        observers: Optional[Observers] = None,
        start_observers: Callable[["Training"], None] = lambda _: None,
    ) -> None:
        train = config.TRAIN
        self.config = config
        self.task = task
        self.model = model
        self.record = record
        self.observers = Observers([], record.say) if observers is None else observers
        self.start_observers = start_observers
        self.start_record = start_record
        self.heartbeat = heartbeat
        self.evaluate = evaluate
        self.figures = BestFigures(figures, model)
        self.profile = Profile(config.PROFILE, Path(config.SAVE) / "profile", record)
        self.last_epoch = min(train.NUM_EPOCHS, train.STOP_AFTER_EPOCH or train.NUM_EPOCHS)
        self.batch_norm = train.BATCH_NORM or task.batch_norm
        self.sampler = self._sampler(datasets["train"])
        self.updates_per_epoch = self.sampler.updates_per_epoch
        self.loader = make_loader(datasets["train"], self.sampler, CountingCollate(task))
        self.schedule = self._schedule()
        self.precision = Precision(config.AMP, config.AMP_DTYPE, config.AMP_LEVEL)
        self.evaluation_facts = evaluation_facts or {}
        self._prepare_model()
        groups = task.parameter_groups(model)
        decays = train.WEIGHT_DECAY, train.LAYER_DECAY
        self.optimizer = build_optimizer(train.OPTIMIZER, model, groups, *decays, say=record.say)
        self.ema = ModelEma(model, train.MODEL_EMA_DECAY) if train.MODEL_EMA else None
        evidence = EvidenceFolder(config, datasets["train"], self.sampler, model, self.precision)
        has_scaler = self.precision.scaler is not None
        self.skipped = SkippedUpdates(train.MAX_SKIPPED_UPDATES, has_scaler, evidence, record.say)
        self.checkpointer = self._checkpointer(datasets)
        self.resumption = Resumption(config, task, datasets, record, self.checkpointer)
        self.start = self.resumption.load()
        self.stops = Stops(self.checkpointer.agreement)
        self._update_saved = self.schedule.update  # the last one that a checkpoint holds, or that is not worth one
        self.updater = self._updater()
        self._tells_repetition = config.DETERMINISTIC and is_on_gpu()
        self.passes = PassesTrial(config, task, model, self.precision, config.SEED)
        evaluations = sum(self._evaluates(epoch) for epoch in range(self.sampler.epoch, self.last_epoch + 1))
        self.remaining = RemainingTime(
            self.last_epoch * self.updates_per_epoch - self.sampler.updates_made,
            evaluations + self.start.evaluation_due,
        )
        self.reports = Reports(record, self.observers, task, datasets["train"], self.loader.num_workers, self.remaining)

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

    def _checkpointer(self, datasets: Dict[str, Any]) -> Checkpointer:
        config = self.config
        return Checkpointer(
            Path(config.SAVE) / "checkpoints",
            Saving(
                config.SAVE_EVERY_UPDATES,
                config.SAVE_EVERY_MINUTES,
                config.KEEP_UPDATES,
                self._keeps,
                config.KEEP_EPOCHS,
                config.SAVE_IN_BACKGROUND,
            ),
            lambda: about.describe(config, self.task, datasets),
            self.record.say,
            model=self.model,
            optimizer=OptimizerState(self.optimizer, self.model),
            ema=self.ema,
            scaler=self.precision,
            schedule=self.schedule,
            sampler=self.sampler,
            skipped=self.skipped,
            list_samples=lambda: listed(datasets, self.start.samples),
            note_saved=self.observers.note_saved,
        )

    def _keeps(self, epoch: int) -> bool:
        return epoch % self.config.SAVE_FREQ == 0 or epoch == self.config.TRAIN.NUM_EPOCHS

    def _evaluates(self, epoch: int) -> bool:
        return epoch % self.config.VALIDATE_FREQ == 0 or epoch == self.last_epoch

    def run(self) -> Dict[str, float]:
        """Train to NUM_EPOCHS (or STOP_AFTER_EPOCH) and return the last evaluation's values, equal on every rank.

        Raises:
            Stopped: the run was asked to stop, and is saved.
        """
        if self.config.STOP_AFTER_SECONDS is not None:
            signals.stop_after(
                self.config.STOP_AFTER_SECONDS, f"-stop_after_seconds={self.config.STOP_AFTER_SECONDS:g}"
            )
        signals.note_only()
        try:
            return self._run()
        except LeftEarly:
            self._stop()
        finally:
            self.checkpointer.settle()  # whatever ends the training, what it is writing is not lost

    def _run(self) -> Dict[str, float]:
        first, consumed = self.sampler.epoch, self.sampler.consumed
        if first > self.last_epoch and not self.start.evaluation_due:
            self.record.say(f"nothing to do: epoch {first - 1} of {self.last_epoch} is already done")
            return {}
        self.start_record()
        self.resumption.tell(self.start)
        self.start_observers(self)
        self.record.say(describe_training(self.config, self.task, self.model, self.sampler))
        if self.precision.notice:
            self.record.say(self.precision.notice)
        values: Dict[str, float] = {}
        line = ""
        if self.start.evaluation_due:
            if not self._is_saved(first - 1):
                self._save_epoch(first - 1, evaluation_due=True)
            values, line = self._evaluate_epoch(first - 1)
        # Closed before an exception leaves: its threads must not run when the process ends.
        with contextlib.closing(self.loader.epochs(first, self.last_epoch, consumed)) as batches:
            for epoch in range(first, self.last_epoch + 1):
                self._train_epoch(epoch, batches)
                is_evaluated = self._evaluates(epoch)
                if is_evaluated or self._keeps(epoch):
                    self._save_epoch(epoch, evaluation_due=is_evaluated)
                if self.stops.are_at(self.schedule.update):
                    self._stop()
                if is_evaluated:
                    values, line = self._evaluate_epoch(epoch)
        self.heartbeat.at("writing the last checkpoint")
        self.checkpointer.finish()
        if values:
            last_weights = contextlib.nullcontext if self.ema is None else self.ema.in_place
            self.figures.write(self.checkpointer.folder, self.checkpointer.best, self.last_epoch, last_weights)
            for said in self._results(line):
                self.record.say(said)
        return values

    def _results(self, line: str) -> List[str]:
        """The last lines: the last evaluation and, at the very end, the best, which evaluating the run repeats."""
        best = self.checkpointer.best
        if best is None or best["epoch"] == self.last_epoch:
            return [f"{line} (last and best, epoch {self.last_epoch})"]
        told = best.get("line", f"{best['name']} {best['value']:.4g}")
        return [f"{line} (last, epoch {self.last_epoch})", f"{told} (best, epoch {best['epoch']})"]

    # ---- updates ---------------------------------------------------------------------------------------------

    def _train_epoch(self, epoch: int, batches: Iterator[Any]) -> None:
        self.model.train()
        meters, pace = Meters(), Pace(self.loader)
        updates = self.sampler.updates_left
        made = self.updates_per_epoch - updates  # in this epoch, by the run that this one continues
        bar = Progress(updates, f"epoch {epoch}/{self.config.TRAIN.NUM_EPOCHS}", is_main())
        self.reports.show(bar)
        self.heartbeat.at(f"waiting for the first batch of epoch {epoch}")
        try:
            for group in self.profile.watch(self._groups(batches, updates), epoch, made, updates):
                self.stops.look(self.schedule.update)
                if pace.updates == 0:
                    self.heartbeat.at(f"in epoch {epoch}, {made} of {self.updates_per_epoch} updates done")
                step = Step(epoch, self.schedule.update, self.schedule.total_updates)
                learning_rate = self.schedule.learning_rate
                chosen = self.passes.decide(group[0], step)
                if chosen is not None:
                    self.record.say(chosen)
                outputs = self.updater(group, step, learning_rate)
                if self._tells_repetition:
                    self.record.say(repetition.line_of(outputs[0]))
                    self._tells_repetition = False
                if self.updater.finite:
                    for terms in outputs:
                        meters.add(terms)
                    if self.ema is not None:
                        self.ema.update()
                self.sampler.count_update()
                self.schedule.count_update()
                self._empty_cache()
                pace.count_update()
                self.remaining.count_update()
                bar.step()
                made += 1
                is_last = made == self.updates_per_epoch
                self.heartbeat.at(f"in epoch {epoch}, {made} of {self.updates_per_epoch} updates done")
                if made % self.config.REPORT_FREQ == 0 or is_last:
                    said = self._report(epoch, learning_rate, meters, pace, bar)
                    if not is_last:  # the line about the epoch covers its last updates
                        self.record.say(f"epoch {epoch} update {made}/{self.updates_per_epoch} {said}")
                if self.checkpointer.is_due():
                    self._save_update(evaluation_due=is_last and self._evaluates(epoch))
                if self.stops.are_at(self.schedule.update) and not is_last:  # after the last, the epoch is saved
                    self._stop()
        finally:
            bar.close()
            self.profile.abandon()
        self._tell_epoch(epoch, meters.finish_epoch(), pace)

    def _groups(self, batches: Iterator[Any], updates: int) -> Iterator[List[Any]]:
        """The batches of so many updates. Before the first, ranks wait for one another, and leave if one is asked to
        stop; later only a single process leaves a wait for data, as others may be computing by then.

        Raises:
            LeftEarly: on all ranks.
        """
        leaves = False
        try:
            groups = accumulation_groups(batches, self.config.TRAIN.ACCUM_ITER, updates)
            group = next(groups)
            leaves = stops.wanted()
        except LeftEarly:
            leaves = True
        # A slow first batch is waited for here, where all ranks can still leave together.
        if stops.leave_together(leaves):
            raise LeftEarly
        self.loader.may_leave = world_size() == 1
        yield group
        yield from groups
        self.loader.may_leave = True

    def _empty_cache(self) -> None:
        """Batches of very different sizes fragment a GPU's memory cache until no later batch fits."""
        every = self.config.TRAIN.EMPTY_CACHE_FREQ
        every = self.task.empty_cache_freq if every is None else every
        if every and self.schedule.update % every == 0 and paddle.get_device().startswith("gpu"):
            paddle.device.cuda.empty_cache()

    def _report(self, epoch: int, learning_rate: float, meters: Meters, pace: Pace, bar: Progress) -> str:
        """Record what happened since the last report; returns it for the log."""
        means = meters.reduce()  # the only collective besides gradients and counts
        require_finite(means, f"in epoch {epoch} near update {self.schedule.update}")
        place = {"epoch": epoch, "update": self.schedule.update, "learning_rate": learning_rate}
        speed = pace.finish(self.sampler.global_batch_size)
        return self.reports.training(place, self.updater.gradient_norm, means, self.skipped.total, speed, bar)

    def _tell_epoch(self, epoch: int, means: Dict[str, float], pace: Pace) -> None:
        self.reports.epoch(epoch, self.config.TRAIN.NUM_EPOCHS, means, pace, self.sampler.global_batch_size)
        for line in self.task.finish_epoch():
            self.record.say(line)

    # ---- checkpoints and evaluations -------------------------------------------------------------------------

    def _is_saved(self, epoch: int) -> bool:
        """Whether the checkpoint that this run continues from is this run's own of that epoch."""
        own = self.checkpointer.folder / checkpoints.epoch_name(epoch)
        return self.start.directory is not None and own.resolve() == self.start.directory.resolve()

    def _save_update(self, evaluation_due: bool) -> None:
        with self.remaining.paused():
            self.heartbeat.at(f"saving update {self.schedule.update}")
            self._share_statistics()
            self.checkpointer.save_update(evaluation_due)
        self._update_saved = self.schedule.update

    def _stop(self) -> NoReturn:
        """Save what no checkpoint holds yet, and end the run.

        Raises:
            Stopped: always.
        """
        if self.schedule.update != self._update_saved:
            self._save_update(evaluation_due=False)
        self.checkpointer.finish()
        last = self.checkpointer.folder / "last"
        if last.exists():
            what = "saved" if self.schedule.update > self.start.position["update"] else "nothing new since"
            last = self.checkpointer.folder / last.resolve().name
            place = f"{what} {last}; the same command with -resume=auto continues from there"
        else:
            place = "nothing was saved yet; the same command starts again"
        raise Stopped(stops.reason(), place)

    def _save_epoch(self, epoch: int, evaluation_due: bool) -> None:
        with self.remaining.paused():
            self.heartbeat.at(f"saving epoch {epoch}")
            self._share_statistics()
            self.checkpointer.save_epoch(epoch, evaluation_due)
        self._update_saved = self.schedule.update

    def _share_statistics(self) -> None:
        if self.batch_norm == "local":
            broadcast_statistics(self.model)  # each rank's are of its own rows

    def _evaluate_epoch(self, epoch: int) -> Tuple[Dict[str, float], str]:
        """Evaluate the weights, and the averaged ones if there are any, whose values then count."""
        with self.remaining.paused():
            started = time.perf_counter()
            values, line = self._evaluate_weights(epoch)
            self.remaining.count_evaluation(time.perf_counter() - started)
            name, more_is_better = self.task.best_metric
            is_best = self.checkpointer.note_evaluation(epoch, name, values[name], more_is_better, line)
            facts = {"epoch": epoch, **self.evaluation_facts, **values}
            self.record.event("evaluation", {**facts, "best": name} if is_best else facts)
            self.observers.evaluated(epoch * self.updates_per_epoch, epoch, values)
            self.record.say(f"epoch {epoch} evaluation: {line}{f' (best {name})' if is_best else ''}")
        return values, line

    def _evaluate_weights(self, epoch: int) -> Tuple[Dict[str, float], str]:
        is_last = epoch == self.last_epoch
        keeper = self.figures.keeper(is_last) if self.ema is None else None
        values, line = self.evaluate(f"evaluation {epoch}", epoch=epoch, keeper=keeper)
        self._require_finite_evaluation(values, epoch, f"in the evaluation of epoch {epoch}")
        if self.ema is None:
            return values, line
        self.record.event("evaluation_without_average", {"epoch": epoch, **self.evaluation_facts, **values})
        self.record.say(f"epoch {epoch} evaluation without averaging: {line}")
        with self.ema.in_place():
            self._share_statistics()
            keeper = self.figures.keeper(is_last)
            values, line = self.evaluate(f"evaluation {epoch} of averaged weights", epoch=epoch, keeper=keeper)
        self._require_finite_evaluation(values, epoch, f"in the evaluation of epoch {epoch}'s averaged weights")
        return values, line

    def _require_finite_evaluation(self, values: Dict[str, float], epoch: int, when: str) -> None:
        try:
            require_finite(values, when)
        except UserError:
            self.checkpointer.discard_epoch(epoch)
            raise
