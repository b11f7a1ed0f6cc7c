"""The training run: epochs, reports, evaluations, checkpoints, resuming."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Optional

import paddle

from ..checkpoint import state as checkpoints
from ..checkpoint.load import load_weights
from ..config import dump_yaml
from ..errors import UserError
from ..loading.loader import Loader, default_workers
from ..loading.sampler import EvaluationSampler, TrainingSampler
from ..observe.meters import Meters
from ..observe.progress import Progress
from ..observe.record import RunRecord
from ..parallel import all_gather, broadcast_object, data_parallel, is_main, rank, world_size
from ..parallel import tuning
from ..parallel.devices import cpu_cores
from .evaluator import evaluate
from .optimizer import build_optimizer, optimizer_state, restore_optimizer
from .precision import Precision
from .schedule import describe_rates, effective_batch_size, schedule_of
from .steps import CountingCollate, Updater, accumulation_groups, weights_digest
from .task import Moment, Task


class Trainer:
    """Trains and evaluates one task on all ranks. Every rank makes one, with the same arguments.

    Args:
        config: the frozen configuration.
        task: built in the parent, where its data sets were built too.
        datasets: "val", and "train" unless the run only evaluates.
    """

    def __init__(self, config: Any, task: Task, datasets: Dict[str, Any]) -> None:
        self.config = config
        self.task = task
        self.datasets = datasets
        self.record = RunRecord(Path(config.SAVE), is_main())
        self.folder = Path(config.SAVE) / "checkpoints"
        self.best: Optional[Dict[str, Any]] = None
        for notice in task.notices:
            self.record.say(notice)
        paddle.seed(config.SEED)  # initial weights: the same on all ranks and for any number of them
        self.model = task.build_model()
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
        report = load_weights(self.model, source, strict=True)
        self._start_record()
        self.record.say(f"weights {source}: {report.summary()}")
        values, line = self._evaluate("evaluation")
        self.record.event("evaluation", {"weights": str(source), **values})
        self.record.say(line)
        return values

    def _evaluate(self, label: str):
        bar = Progress(len(self.val_loader), label, is_main())
        try:
            return evaluate(self.task, self.model, self.val_loader, bar.step)
        finally:
            bar.close()

    # ---- training --------------------------------------------------------------------------------------------

    def train(self) -> Dict[str, float]:
        """Train to NUM_EPOCHS (or STOP_AFTER_EPOCH) and return the last evaluation's values, equal on every rank."""
        train = self.config.TRAIN
        self._prepare_training()
        first, consumed = self._load_initial_state()
        last = min(train.NUM_EPOCHS, train.STOP_AFTER_EPOCH or train.NUM_EPOCHS)
        if first > last:
            self.record.say(f"nothing to do: epoch {first - 1} of {last} is already done")
            return {}
        self._start_record()
        self._describe_run()
        wrapped = data_parallel(self.model)
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
            is_final = epoch == last
            is_new_best = False
            if epoch % self.config.VALIDATE_FREQ == 0 or is_final:
                values, line = self._evaluate(f"evaluation {epoch}")
                self._require_finite(values, f"in the evaluation of epoch {epoch}")
                is_new_best = self._note_best(epoch, values)
                self.record.event("evaluation", {"epoch": epoch, **values})
                self.record.say(f"epoch {epoch} evaluation: {line}{' (best)' if is_new_best else ''}")
            if is_final or is_new_best or epoch % self.config.SAVE_FREQ == 0:
                self._save(epoch, is_new_best)
        if values:
            self.record.say(line)
        return values

    def _prepare_training(self) -> None:
        config, train = self.config, self.config.TRAIN
        self.sampler = TrainingSampler(
            self.datasets["train"],
            config.DATA.BATCH_SIZE,
            rank=rank(),
            world_size=world_size(),
            accumulation_steps=train.ACCUM_ITER,
            seed=config.SEED,
        )
        self.train_loader = self._loader(self.datasets["train"], self.sampler, CountingCollate(self.task))
        self.updates_per_epoch = self.sampler.updates_per_epoch
        self.schedule = schedule_of(train, self.updates_per_epoch, self.sampler.global_batch_size)
        if self.schedule.warmup_updates >= self.schedule.total_updates:
            raise UserError(
                f"the warm-up ({self.schedule.warmup_updates} updates, TRAIN.WARMUP_STEPS or WARMUP_EPOCHS) is as long "
                f"as the run ({self.schedule.total_updates} updates); shorten it or train longer"
            )
        self.precision = Precision(config.AMP)
        self.optimizer = build_optimizer(
            train.OPTIMIZER, self.model, self.task.parameter_groups(self.model), train.WEIGHT_DECAY
        )

    def _loader(self, samples: Any, sampler: Any, collate: Any) -> Loader:
        data = self.config.DATA
        return Loader(
            samples,
            sampler,
            collate,
            num_workers=self._num_workers,
            seed=self.config.SEED,
            timeout_seconds=data.LOADER_TIMEOUT_SECONDS,
        )

    def _describe_run(self) -> None:
        parameters = sum(math.prod(p.shape) for p in self.model.parameters())
        self.record.say(
            f"training {self.config.MODEL.NAME} ({parameters:,} parameters) on {len(self.datasets['train']):,} "
            f"{self.task.sample_name}, {self.updates_per_epoch} updates per epoch"
        )
        self.record.say(describe_rates(self.config, world_size()))
        if self.precision.notice:
            self.record.say(self.precision.notice)

    def _train_epoch(self, epoch: int, batches: Iterator[Any], consumed: int) -> None:
        self.model.train()
        meters = Meters()
        updates = (len(self.datasets["train"]) - consumed) // self.sampler.global_batch_size
        done_before = self.updates_per_epoch - updates
        bar = Progress(updates, f"epoch {epoch}/{self.config.TRAIN.NUM_EPOCHS}", is_main())
        window = _Window(self.train_loader)
        try:
            for group in accumulation_groups(batches, self.config.TRAIN.ACCUM_ITER, updates):
                self.position = (epoch - 1) * self.updates_per_epoch + done_before + window.updates_in_epoch
                moment = Moment(epoch, self.position, self.schedule.total_updates)
                learning_rate = self.schedule(self.position)
                for terms in self.updater(group, moment, learning_rate):
                    meters.add(terms)
                window.count_update()
                bar.step()
                if window.updates_in_epoch % self.config.REPORT_FREQ == 0 or window.updates_in_epoch == updates:
                    self._report(epoch, learning_rate, meters, window, bar)
        finally:
            bar.close()
        means = meters.finish_epoch()
        self.record.event("epoch", {"epoch": epoch, "seconds": round(window.seconds_of_epoch(), 3), **means})
        self.record.say(
            f"epoch {epoch}/{self.config.TRAIN.NUM_EPOCHS} training: {_format(means)} ({window.seconds_of_epoch():.1f} s)"
        )

    def _report(self, epoch: int, learning_rate: float, meters: Meters, window: "_Window", bar: Progress) -> None:
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
        bar.note(text)
        self.record.say(f"epoch {epoch} update {window.updates_in_epoch}/{self.updates_per_epoch} {text}")

    def _require_finite(self, values: Dict[str, float], when: str) -> None:
        """Nothing that comes from a diverged model is recorded or saved. The values must be equal on every rank."""
        bad = [name for name, value in values.items() if not math.isfinite(value)]
        if bad:
            raise UserError(
                f"'{bad[0]}' is {values[bad[0]]} {when}: training has diverged; lower TRAIN.BASE_LR, set "
                "TRAIN.GRAD_CLIP or a longer warm-up, and -resume=auto from the last checkpoint"
            )

    # ---- state -----------------------------------------------------------------------------------------------

    def _load_initial_state(self):
        """Weights, optimizer and position that the run starts from; returns the first epoch and its consumed samples."""
        config = self.config
        found = self._find_checkpoint()
        if found is None:
            if broadcast_object(is_main() and checkpoints.newest_good(self.folder, self.record.say) is not None):
                raise UserError(
                    f"-output={config.SAVE} already holds a run's checkpoints; go on with -resume=auto, "
                    "or choose another -output"
                )
            if config.MODEL.PRETRAINED:
                report = load_weights(self.model, config.MODEL.PRETRAINED)
                self.record.say(f"pretrained weights {config.MODEL.PRETRAINED}: {report.summary()}")
            return config.TRAIN.LAST_EPOCH + 1, 0
        if found.is_file():
            report = load_weights(self.model, str(found), minimum_loaded=1.0)
            self.record.say(
                f"resumed weights only from {found} ({report.summary()}): it holds no optimizer state, so moments "
                f"start afresh at epoch {config.TRAIN.LAST_EPOCH + 1} (-last_epoch)"
            )
            return config.TRAIN.LAST_EPOCH + 1, 0
        return self._restore(found)

    def _find_checkpoint(self) -> Optional[Path]:
        """What -resume means, decided by the main process for all."""
        source = self.config.MODEL.RESUME
        if not source:
            return None
        found, problem = None, None
        if is_main():
            try:
                found = checkpoints.resolve(source, self.folder, self.record.say)
            except UserError as error:
                problem = str(error)
        found, problem = broadcast_object((found, problem))
        if problem is not None:
            raise UserError(problem)
        if found is None:
            self.record.say(f"-resume=auto: no checkpoint in {self.folder}, starting afresh")
        return found

    def _restore(self, directory: Path):
        report = load_weights(self.model, str(directory), strict=True)
        state = checkpoints.read(directory)
        try:
            restore_optimizer(self.optimizer, self.model, state.optimizer)
        except ValueError as error:
            raise UserError(f"-resume={directory}: {error}; use the TRAIN.OPTIMIZER it was saved with, or -pretrained")
        self.precision.restore(state.extra["scaler"])
        self.best = state.extra["best"]
        position = state.position
        self.record.say(f"resumed from {directory} after epoch {position['epoch']}: {report.summary()}")
        saved_batch = state.extra["global_batch_size"]
        if saved_batch != self.sampler.global_batch_size:
            self.record.say(
                f"note: the effective batch was {saved_batch} before and is {self.sampler.global_batch_size} now"
            )
        return position["epoch"] + 1, position["consumed"]

    def _note_best(self, epoch: int, values: Dict[str, float]) -> bool:
        name, more_is_better = self.task.best_metric
        value = values[name]
        if self.best is not None and (value <= self.best["value"] if more_is_better else value >= self.best["value"]):
            return False
        self.best = {"name": name, "value": value, "epoch": epoch}
        return True

    def _save(self, epoch: int, is_new_best: bool) -> None:
        """Write a checkpoint on the main process; the others wait, for as long as it takes."""
        digests = all_gather(weights_digest(self.model))
        if len(set(digests)) > 1:
            raise RuntimeError(f"weights differ between ranks after epoch {epoch}: {digests}; nothing was saved")
        problem = None
        if is_main():
            try:
                self._write(epoch, is_new_best)
            except UserError as error:
                problem = str(error)
        problem = broadcast_object(problem)
        if problem is not None:
            raise UserError(problem)

    def _write(self, epoch: int, is_new_best: bool) -> None:
        extra = {
            "scaler": self.precision.state(),
            "best": self.best,
            "global_batch_size": self.sampler.global_batch_size,
            "seed": self.config.SEED,
            "weights_digest": weights_digest(self.model),
            "paddle": paddle.__version__,
        }
        position = {"epoch": epoch, "consumed": 0, "update": epoch * self.updates_per_epoch}
        state = checkpoints.RunState(position, optimizer_state(self.optimizer, self.model), extra)
        directory = checkpoints.save(self.folder, epoch, self.model, state)
        checkpoints.link(self.folder, "last", directory)
        if is_new_best:
            checkpoints.link(self.folder, "best", directory)
        save_frequency, final = self.config.SAVE_FREQ, self.config.TRAIN.NUM_EPOCHS
        checkpoints.prune(self.folder, lambda number: number % save_frequency == 0 or number == final)
        self.record.say(f"saved {directory}")


class _Window:
    """Time and throughput since the last report."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._epoch_started = self._started = time.perf_counter()
        self._loader.seconds_waited = 0.0
        self._updates = 0
        self.updates_in_epoch = 0

    def count_update(self) -> None:
        self._updates += 1
        self.updates_in_epoch += 1

    def finish(self, samples_per_update: int):
        """Samples per second over all ranks and this rank's share of time spent waiting for data."""
        now = time.perf_counter()
        seconds = max(now - self._started, 1e-9)
        rate, waiting = self._updates * samples_per_update / seconds, self._loader.seconds_waited / seconds
        self._started, self._updates, self._loader.seconds_waited = now, 0, 0.0
        return rate, waiting

    def seconds_of_epoch(self) -> float:
        return time.perf_counter() - self._epoch_started


def _format(values: Dict[str, float]) -> str:
    return " ".join(f"{name} {value:.4f}" if abs(value) < 10 else f"{name} {value:.2f}" for name, value in values.items())
