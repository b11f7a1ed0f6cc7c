"""The training run: epochs, reports, evaluations, checkpoints, resuming."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Sequence

import paddle

from ..checkpoint import store as checkpoints
from ..checkpoint.load import load_weights
from ..checkpoint.weights import evaluated_weights
from ..config import dump_yaml
from ..contracts.adapter import adopt
from ..contracts.dataset import Samples
from ..contracts.task import PredictionWriter, Step, Task
from ..errors import UserError
from ..loading.loader import Loader, default_workers
from ..loading.sampler import EvaluationSampler, TrainingSampler
from ..observe.heartbeat import Heartbeat
from ..observe.meters import Meters
from ..observe.progress import Progress
from ..observe.record import RunRecord
from ..parallel import (
    barrier,
    broadcast_statistics,
    data_parallel,
    is_main,
    rank,
    recompute_layers,
    set_batch_norm_momentum,
    tuning,
    world_size,
)
from ..parallel.devices import cpu_cores
from . import about
from .checkpointer import Keeper
from .introduction import describe_training, first_lines
from .model_ema import AveragedWeights
from .optimizer import build_optimizer, freeze
from .precision import Precision, compile_passes
from .remaining import RemainingTime
from .schedule import effective_batch_size, schedule_of
from .steps import CountingCollate, Updater, accumulation_groups, evaluate


class Trainer:
    """Trains and evaluates one task on all ranks. Every rank makes one, with the same arguments.

    Args:
        config: the frozen configuration.
        task: built in the parent, where its data sets were built too.
        datasets: "val", and "train" unless the run only evaluates.
        notices: lines for the log beside those of the task and the data.
    """

    def __init__(self, config: Any, task: Task, datasets: Dict[str, Any], notices: Sequence[str] = ()) -> None:
        self.config = config
        self.task = adopt(task, Task)
        self.datasets = {split: adopt(samples, Samples) for split, samples in datasets.items()}
        notices = [*notices, *task.notices, *(line for samples in datasets.values() for line in samples.notices)]
        self.record = RunRecord(Path(config.SAVE), is_main())
        self.folder = Path(config.SAVE) / "checkpoints"
        for line in [*first_lines(config, task, datasets), *dict.fromkeys(notices)]:
            self.record.say(line)
        paddle.seed(config.SEED)  # initial weights: the same on all ranks and for any number of them
        self.heartbeat = Heartbeat(self.record.say, shown=self.record.writes)
        with self.heartbeat.at("building the model"):
            self.model = task.build_model()
        momentum = config.TRAIN.BATCH_NORM_MOMENTUM
        if momentum is not None and not set_batch_norm_momentum(self.model, momentum):
            raise UserError(
                f"TRAIN.BATCH_NORM_MOMENTUM {momentum}: {config.MODEL.NAME} has no batch norm; leave it out"
            )
        workers = config.DATA.NUM_WORKERS
        self._num_workers = default_workers(world_size(), cpu_cores()) if workers is None else workers
        self.val_loader = self._loader(
            datasets["val"],
            EvaluationSampler(
                datasets["val"],
                config.DATA.BATCH_SIZE_EVAL or config.DATA.BATCH_SIZE,
                rank=rank(),
                world_size=world_size(),
            ),
            task.collate,
        )

    def _start_record(self) -> None:
        """Write configuration and run record: not before the run is sure to go on, lest it replaces another's."""
        tuned = tuning.check_product() if self.record.writes and self.config.CPU_TUNING else None
        facts = {
            "processes": world_size(),
            "device": paddle.get_device().split(":")[0],
            "seed": self.config.SEED,
            "effective_batch": effective_batch_size(self.config, world_size()),
            "product_check": tuned,
        }
        self.record.start(dump_yaml(self.config), facts, self.config.EVAL)

    # ---- evaluation ------------------------------------------------------------------------------------------

    def evaluate_only(self) -> Dict[str, float]:
        """Load the named weights completely, evaluate once, print the result as the last line."""
        source = self.config.MODEL.PRETRAINED
        if source is None:
            source = checkpoints.resolve(self.config.MODEL.RESUME, self.folder, self.record.say)
            if source is None:
                raise UserError(f"-resume=auto: no checkpoint in {self.folder} to evaluate")
        source = evaluated_weights(source)
        differences = about.compare(str(source), self.config, self.task, must_match=True)
        report = load_weights(self.model, source, strict=True, part=self.config.MODEL.PRETRAINED_PART)
        differences += about.require_same_classes(source, self.config, self.task, self.datasets["val"])
        self._compile()
        self._start_record()
        self.record.file("eval_load_report.json", report.json())
        self.record.say(f"weights {source}: {report.summary()}")
        for line in differences:
            self.record.say(line)
        writer = self._prediction_writer() if self.config.SAVE_PREDICTIONS else None
        with self.heartbeat.at("evaluating"):
            values, line = self._evaluate("evaluation", writer)
        for said in writer.finish() if writer else ():
            self.record.say(said)
        self.record.event("evaluation", {"weights": str(source), **values})
        self.record.say(line)
        return values

    def _prediction_writer(self) -> PredictionWriter:
        folder = Path(self.config.SAVE) / "predictions"
        writer = self.task.prediction_writer(folder)
        folder.mkdir(parents=True, exist_ok=True)
        return writer

    def _evaluate(self, label: str, writer: Optional[PredictionWriter] = None, epoch: Optional[int] = None):
        total = len(self.val_loader)
        bar = Progress(total, label, is_main())
        done = 0

        def count() -> None:
            nonlocal done
            done += 1
            bar.step()
            self.heartbeat.at(f"in the {label}, {done} of {total} batches done")

        self.heartbeat.at(f"in the {label}")
        try:
            return evaluate(self.task, self.model, self.val_loader, count, writer=writer, epoch=epoch)
        finally:
            bar.close()

    def _compile(self) -> None:
        if not self.config.TO_STATIC:
            return
        if not self.task.compiles:
            raise UserError(f"TO_STATIC: task {self.config.TASK} cannot be compiled; leave it out")
        compile_passes(self.model)

    # ---- training --------------------------------------------------------------------------------------------

    def train(self) -> Dict[str, float]:
        """Train to NUM_EPOCHS (or STOP_AFTER_EPOCH) and return the last evaluation's values, equal on every rank."""
        with self.heartbeat.at("preparing the training"):
            return self._train()

    def _train(self) -> Dict[str, float]:
        train = self.config.TRAIN
        self._prepare_training()
        first, consumed = self.keeper.load()
        last = min(train.NUM_EPOCHS, train.STOP_AFTER_EPOCH or train.NUM_EPOCHS)
        if first > last:
            self.record.say(f"nothing to do: epoch {first - 1} of {last} is already done")
            return {}
        self._start_record()
        self.keeper.tell_resumption()
        updates = self._updates_left(first, consumed, last)
        epochs = range(first, last + 1)
        self.remaining = RemainingTime(updates, sum(epoch == last or self._validates(epoch) for epoch in epochs))
        self._describe_run()
        batch_norm = train.BATCH_NORM or self.task.batch_norm
        wrapped = data_parallel(self.model, batch_norm, train.FIND_UNUSED_PARAMETERS)
        self.updater = Updater(
            self.task,
            wrapped,
            self.optimizer,
            self.precision,
            seed=self.config.SEED,
            samples_per_update=self.sampler.global_batch_size,
            accumulation_steps=train.ACCUM_ITER,
            gradient_clip=train.GRAD_CLIP,
        )
        batches = self.train_loader.epochs(first, last, consumed)
        values: Dict[str, float] = {}
        for epoch in range(first, last + 1):
            self._train_epoch(epoch, batches, consumed if epoch == first else 0)
            self.remaining.pause()
            is_final = epoch == last
            is_new_best = False
            is_evaluated = self._validates(epoch) or is_final
            if batch_norm == "local" and (is_evaluated or epoch % self.config.SAVE_FREQ == 0):
                broadcast_statistics(self.model)  # each rank's are of its own rows
            if is_evaluated:
                values, line = self._evaluate_epoch(epoch)
                is_new_best = self.keeper.note_best(epoch, values)
                self.record.event("evaluation", {"epoch": epoch, **values})
                self.record.say(f"epoch {epoch} evaluation: {line}{' (best)' if is_new_best else ''}")
            if is_final or is_new_best or epoch % self.config.SAVE_FREQ == 0:
                self.heartbeat.at(f"saving epoch {epoch}")
                self.keeper.save(epoch, is_new_best)
            self.remaining.go_on()
        if values:
            self.record.say(line)
        return values

    def _validates(self, epoch: int) -> bool:
        return epoch % self.config.VALIDATE_FREQ == 0

    def _updates_left(self, first: int, consumed: int, last: int) -> int:
        whole = len(self.datasets["train"])
        return (whole - consumed) // self.sampler.global_batch_size + (last - first) * self.updates_per_epoch

    def _evaluate_epoch(self, epoch: int):
        """Evaluate the weights, and the averaged ones if there are any: then their values count."""
        started = time.perf_counter()
        try:
            return self._evaluate_weights(epoch)
        finally:
            self.remaining.count_evaluation(time.perf_counter() - started)

    def _evaluate_weights(self, epoch: int):
        values, line = self._evaluate(f"evaluation {epoch}", epoch=epoch)
        self._require_finite(values, f"in the evaluation of epoch {epoch}")
        if self.averaged is None:
            return values, line
        self.record.event("evaluation_without_average", {"epoch": epoch, **values})
        self.record.say(f"epoch {epoch} evaluation without averaging: {line}")
        with self.averaged.in_place():
            values, line = self._evaluate(f"evaluation {epoch} of averaged weights", epoch=epoch)
        self._require_finite(values, f"in the evaluation of epoch {epoch}'s averaged weights")
        return values, line

    def _prepare_training(self) -> None:
        config, train = self.config, self.config.TRAIN
        self.sampler = TrainingSampler(
            self.datasets["train"],
            config.DATA.BATCH_SIZE,
            rank=rank(),
            world_size=world_size(),
            accumulation_steps=train.ACCUM_ITER,
            seed=config.SEED,
            repeats=train.REPEATED_AUGMENT,
        )
        self.train_loader = self._loader(self.datasets["train"], self.sampler, CountingCollate(self.task))
        self.updates_per_epoch = self.sampler.updates_per_epoch
        self.schedule = schedule_of(train, self.updates_per_epoch, self.sampler.global_batch_size)
        if self.schedule.warmup_updates >= self.schedule.total_updates:
            raise UserError(
                f"the warm-up ({self.schedule.warmup_updates} updates, TRAIN.WARMUP_STEPS or WARMUP_EPOCHS) is as long "
                f"as the run ({self.schedule.total_updates} updates); shorten it or train longer"
            )
        self.precision = Precision(config.AMP, config.AMP_DTYPE, config.AMP_LEVEL)
        frozen = freeze(self.model, train.FREEZE)
        if frozen:
            self.record.say(f"{frozen} parameters stay as they are (TRAIN.FREEZE {', '.join(train.FREEZE)})")
        if train.RECOMPUTE:
            number = recompute_layers(self.task.recomputed_layers(self.model))
            self.record.say(f"{number} blocks are computed again in the backward pass (TRAIN.RECOMPUTE)")
        self._compile()
        groups = self.task.parameter_groups(self.model)
        self.optimizer = build_optimizer(train.OPTIMIZER, self.model, groups, train.WEIGHT_DECAY, train.LAYER_DECAY)
        self.averaged = AveragedWeights(self.model, train.MODEL_EMA_DECAY) if train.MODEL_EMA else None
        self.keeper = Keeper(
            config,
            self.task,
            self.folder,
            self.record,
            self.model,
            self.optimizer,
            self.precision,
            self.averaged,
            global_batch_size=self.sampler.global_batch_size,
            datasets=self.datasets,
            updates_per_epoch=self.updates_per_epoch,
        )

    def _loader(self, samples: Any, sampler: Any, collate: Any) -> Loader:
        data = self.config.DATA
        return Loader(
            samples,
            sampler,
            collate,
            num_workers=self._num_workers,
            prefetch=data.PREFETCH,
            seed=self.config.SEED,
            timeout_seconds=data.LOADER_TIMEOUT_SECONDS,
        )

    def _describe_run(self) -> None:
        self.record.say(describe_training(self.config, self.task, self.model, self.sampler))
        if self.precision.notice:
            self.record.say(self.precision.notice)

    def _train_epoch(self, epoch: int, batches: Iterator[Any], consumed: int) -> None:
        self.model.train()
        meters = Meters()
        updates = (len(self.datasets["train"]) - consumed) // self.sampler.global_batch_size
        done_before = self.updates_per_epoch - updates
        bar = Progress(updates, f"epoch {epoch}/{self.config.TRAIN.NUM_EPOCHS}", is_main())
        window = _Window(self.train_loader)
        self.heartbeat.at(f"waiting for the first batch of epoch {epoch}")
        try:
            for group in accumulation_groups(batches, self.config.TRAIN.ACCUM_ITER, updates):
                if window.updates_in_epoch == 0:
                    barrier()  # a slow first batch is waited for here: gloo gives up after 30 s inside a step
                self.position = (epoch - 1) * self.updates_per_epoch + done_before + window.updates_in_epoch
                step = Step(epoch, self.position, self.schedule.total_updates)
                learning_rate = self.schedule(self.position)
                for terms in self.updater(group, step, learning_rate):
                    meters.add(terms)
                if self.averaged is not None:
                    self.averaged.update()
                self._empty_cache()
                window.count_update()
                self.remaining.count_update()
                bar.step()
                is_last = window.updates_in_epoch == updates
                self.heartbeat.at(f"in epoch {epoch}, {window.updates_in_epoch} of {updates} updates done")
                if window.updates_in_epoch % self.config.REPORT_FREQ == 0 or is_last:
                    self._report(epoch, learning_rate, meters, window, bar, tell=not is_last)
        finally:
            bar.close()
        means = meters.finish_epoch()
        seconds = window.seconds_of_epoch()
        self.record.event("epoch", {"epoch": epoch, "seconds": round(seconds, 3), **means})
        rate = updates * self.sampler.global_batch_size / max(seconds, 1e-9)
        self.record.say(
            f"epoch {epoch}/{self.config.TRAIN.NUM_EPOCHS} training: {_format(means)} {rate:.0f} "
            f"{self.task.sample_name}/s data wait {window.waited_in_epoch / max(seconds, 1e-9):.0%} "
            f"({seconds:.1f} s, {self.remaining.text()})"
        )
        for line in self.task.finish_epoch():
            self.record.say(line)

    def _empty_cache(self) -> None:
        """Batches of very different sizes leave a GPU's memory cache in pieces that no later batch fits into."""
        every = self.config.TRAIN.EMPTY_CACHE_FREQ
        every = self.task.empty_cache_freq if every is None else every
        if every and (self.position + 1) % every == 0 and paddle.get_device().startswith("gpu"):
            paddle.device.cuda.empty_cache()

    def _report(
        self, epoch: int, learning_rate: float, meters: Meters, window: "_Window", bar: Progress, tell: bool
    ) -> None:
        """Write down what happened since the last report; the epoch's last is told by the line about the epoch."""
        means = meters.reduce()  # the only collective beside gradients and counts
        self._require_finite(means, f"in epoch {epoch} near update {self.position}")
        rate, waiting = window.finish(self.sampler.global_batch_size)
        self.record.event(
            "training",
            {
                "epoch": epoch,
                "update": self.position + 1,
                "learning_rate": learning_rate,
                **means,
                "samples_per_second": round(rate, 2),
                "data_wait_fraction": round(waiting, 4),
            },
        )
        text = f"{_format(means)} lr {learning_rate:.2e} {rate:.0f} {self.task.sample_name}/s data wait {waiting:.0%}"
        left = self.remaining.text()
        bar.note(f"loss {means['loss']:.4g}, {left}" if "loss" in means else left)
        if tell:
            self.record.say(f"epoch {epoch} update {window.updates_in_epoch}/{self.updates_per_epoch} {text}, {left}")

    def _require_finite(self, values: Dict[str, float], when: str) -> None:
        """Nothing that comes from a diverged model is recorded or saved. The values must be equal on every rank."""
        bad = [name for name, value in values.items() if not math.isfinite(value)]
        if bad:
            raise UserError(
                f"'{bad[0]}' is {values[bad[0]]} {when}: training has diverged; lower TRAIN.BASE_LR, set "
                "TRAIN.GRAD_CLIP or a longer warm-up, and -resume=auto from the last checkpoint"
            )


class _Window:
    """Time and throughput since the last report."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._epoch_started = self._started = time.perf_counter()
        self._loader.seconds_waited = 0.0
        self._updates = 0
        self.updates_in_epoch = 0
        self.waited_in_epoch = 0.0  # seconds for data, at reports

    def count_update(self) -> None:
        self._updates += 1
        self.updates_in_epoch += 1

    def finish(self, samples_per_update: int):
        """Samples per second over all ranks and this rank's share of time spent waiting for data."""
        now = time.perf_counter()
        seconds = max(now - self._started, 1e-9)
        rate, waiting = self._updates * samples_per_update / seconds, self._loader.seconds_waited / seconds
        self.waited_in_epoch += self._loader.seconds_waited
        self._started, self._updates, self._loader.seconds_waited = now, 0, 0.0
        return rate, waiting

    def seconds_of_epoch(self) -> float:
        return time.perf_counter() - self._epoch_started


def _format(values: Dict[str, float]) -> str:
    return " ".join(
        f"{name} {value:.4f}" if abs(value) < 10 else f"{name} {value:.2f}" for name, value in values.items()
    )
