"""Progress reports of a training run: metrics for the record, lines for the log, status for terminal and watchdog."""

import functools
import math
import time
from typing import TYPE_CHECKING, Any

from ..data.loader import DeviceLoader
from ..distributed import is_main, world_size
from ..launch.devices import cpu_cores
from ..logging.meters import DataWaitHint, StepMeters, memory_mib
from ..logging.progress import ProgressBar, ReportField, build_fields
from ..runtime.errors import UserError
from ..tasks.callback import Callback, UpdateRecord, get_interval_ends

if TYPE_CHECKING:
    from .trainer import Trainer

_SOON = 10.0  # seconds; no step report is logged this short before the epoch's line


class TrainingLogger(Callback):
    """Callback that averages loss terms, measures throughput, and reports both every REPORT_FREQ steps and every epoch.

    Args:
        run: the trainer, after ``prepare_training``.
    """

    on_every_rank = True

    def __init__(self, run: "Trainer") -> None:
        self._run = run
        self._record = run.record
        self._heartbeat = run.heartbeat
        self._evaluation = run.evaluation
        evaluations = sum(map(run.should_evaluate, range(run.sampler.epoch, run.last_epoch + 1)))
        updates = run.last_epoch * run.updates_per_epoch - run.sampler.updates_made
        self._remaining = EtaEstimator(updates, evaluations + run.start.evaluation_due)
        self._fields: list[ReportField] = []
        advice = functools.partial(run.task.reading_advice, run.sampler.dataset)
        self._data_wait = DataWaitHint(run.loader.num_workers, world_size(), cpu_cores(), advice)
        self._epoch = 0
        self._bar = ProgressBar(0, "", False)
        self._pace = ThroughputMeter(run.loader)
        self._meters = StepMeters()

    # ---- updates ---------------------------------------------------------------------------------------------

    def epoch_started(self, epoch: int, made: int) -> None:
        """Reset meters and progress bar; in a resumed epoch, restore the meters."""
        self._epoch = epoch
        self._meters, self._pace = StepMeters(), ThroughputMeter(self._run.loader)
        start = self._run.start
        if made and start.means is not None and epoch == start.position["epoch"] + 1:
            self._meters.load_state_dict(start.means)
            self._pace.load_state_dict(start.means["pace"])
        self._continued = self._pace.updates
        updates = self._run.updates_per_epoch - made
        self._bar = ProgressBar(updates, f"epoch {epoch}/{self._run.config.TRAIN.NUM_EPOCHS}", is_main())
        self._show()
        self._heartbeat.at(f"waiting for the first batch of epoch {epoch}")

    def update_started(self, step: Any, batches: Any) -> None:
        """Report the position to the watchdog before the first step of this process in the epoch."""
        if self._pace.updates == self._continued:
            self._heartbeat.at(self._place(self._run.updates_per_epoch - self._run.sampler.updates_left))

    def update_done(self, update: UpdateRecord) -> None:
        """Add the step to the meters; write a report every REPORT_FREQ steps and after the last step of the epoch."""
        for terms in update.terms if update.is_finite else ():
            self._meters.add(terms)
        self._pace.count_update()
        self._remaining.count_update()
        self._bar.step()
        self._heartbeat.at(self._place(update.made))
        if update.is_last or update.made % self._run.config.REPORT_FREQ == 0:
            report = self._report(update)
            left = self._remaining.estimate_seconds(self._run.updates_per_epoch - update.made)
            if left > _SOON:  # otherwise the epoch's line follows soon and covers these steps
                number = f"{update.made}/{self._run.updates_per_epoch}"
                self._record.log_and_print(f"epoch {update.step.epoch} update {number} {report}")

    def epoch_left(self) -> None:
        """Close the progress bar."""
        self._bar.close()

    def window(self) -> list[list[float]]:
        """Return this rank's sums since the last report, without waiting for the others (see ``StepMeters.window``)."""
        return self._meters.window()

    def state_dict(self, windows: list[list[list[float]]]) -> dict[str, Any] | None:
        """Return the state that a resumed run needs to complete the epoch's means, as plain numbers for the checkpoint.

        Args:
            windows: ``window`` of each rank.

        Returns:
            The state; None if a number is not finite, because the next report then ends the run.
        """
        state = self._meters.state_dict(windows)
        numbers = [*state["sums"].values(), *(x for window in windows for column in window for x in column)]
        return {**state, "pace": self._pace.state_dict()} if all(map(math.isfinite, numbers)) else None

    def epoch_done(self, epoch: int) -> None:
        """Log and record the means of the epoch, its throughput and the time left."""
        run, pace = self._run, self._pace
        means = self._meters.finish_epoch()
        seconds = pace.estimate_epoch_seconds()
        self._record.event("epoch", {"epoch": epoch, "seconds": round(seconds, 3), **means})
        rate = pace.updates * run.sampler.global_batch_size / max(seconds, 1e-9)
        self._record.log_and_print(
            f"epoch {epoch}/{run.config.TRAIN.NUM_EPOCHS} training: {format_values(means)} {rate:.0f} "
            f"{run.task.sample_name}/s data wait {pace.waited / max(seconds, 1e-9):.0%} "
            f"({seconds:.1f} s, {f'{run.nan_guard.total} skipped so far, ' if run.nan_guard.total else ''}"
            f"{self._remaining.text()})"
        )
        for line in run.task.finish_epoch():
            self._record.log_and_print(line)

    def _place(self, num_done: int) -> str:
        return f"in epoch {self._epoch}, {num_done} of {self._run.updates_per_epoch} updates done"

    def _report(self, update: UpdateRecord) -> str:
        """Record the means since the last report and return the text for the log."""
        run = self._run
        means = self._meters.reduce()  # the only collective besides gradients and counts
        number = update.step.update + 1
        require_finite(means, f"in epoch {update.step.epoch} near update {number}")
        rate, waiting, seconds = self._pace.finish(run.sampler.global_batch_size)
        norm, skipped = run.train_step.gradient_norm, run.nan_guard.total
        memory = memory_mib() if self._record.writes else None
        values = {
            "epoch": update.step.epoch,
            "update": number,
            "learning_rate": update.learning_rate,
            **({"gradient_norm": norm} if math.isfinite(norm) else {}),  # otherwise the step was skipped
            **means,
            "skipped_updates": skipped,
            "samples_per_second": round(rate, 2),
            "data_wait_fraction": round(waiting, 4),
            **({} if memory is None else {"memory_mib": memory}),
        }
        self._record.event("training", values)
        run.callbacks.notify("report", number, values)
        hint = self._data_wait.update(waiting, seconds)
        if hint is not None:
            self._record.log_and_print(hint)
        self._fields = build_fields(values, means, run.task.sample_name)
        self._show()
        return (
            f"{format_values(means)} gradient norm {norm:.3g} lr {update.learning_rate:.2e} {rate:.0f} "
            f"{run.task.sample_name}/s data wait {waiting:.0%}, {f'{skipped} skipped so far, ' if skipped else ''}"
            f"{self._remaining.text()}"
        )

    def _show(self) -> None:
        """Show the time left and the last report, if any, in the progress bar."""
        if self._fields:
            epoch_left = format_duration(self._remaining.estimate_seconds(self._bar.left))
            self._bar.note(f"{epoch_left} left, run {self._remaining.text()}")
            self._bar.show(self._fields)

    # ---- checkpoints and evaluations -------------------------------------------------------------------------

    def paused(self, what: str) -> None:
        """Stop counting training time."""
        self._remaining.pause()
        self._heartbeat.at(what)

    def epoch_evaluated(self, epoch: int, values: dict[str, float], line: str, is_best: bool) -> None:
        """Log and record the evaluation with its intervals."""
        self._remaining.count_evaluation()
        name, _ = self._run.task.best_metric
        facts = {"epoch": epoch, **self._evaluation.build_event(values)}
        self._evaluation.write_intervals(self._record, "intervals.json", {"epoch": epoch})
        self._evaluation.write_sample_table(self._record, "intervals.json", {"epoch": epoch})
        self._evaluation.table = None  # 20 MB for COCO's val images
        self._record.event("evaluation", {**facts, "best": name} if is_best else facts)
        update = epoch * self._run.updates_per_epoch
        self._run.callbacks.notify("evaluated", update, epoch, {**values, **get_interval_ends(facts)})
        self._record.log_and_print(f"epoch {epoch} evaluation: {line}{f' (best {name})' if is_best else ''}")

    def resumed(self) -> None:
        """Count training time again."""
        self._remaining.resume()


def require_finite(values: dict[str, float], when: str) -> None:
    """Check the values of a report or an evaluation. They must be equal on every rank.

    Raises:
        UserError: a value is NaN or infinite: training has diverged.
    """
    bad = [name for name, value in values.items() if not math.isfinite(value)]
    if bad:
        raise UserError(
            f"'{bad[0]}' is {values[bad[0]]} {when}: training has diverged; lower TRAIN.BASE_LR, set "
            "TRAIN.GRAD_CLIP or a longer warm-up, and -resume=auto from the last checkpoint"
        )


def format_values(values: dict[str, float]) -> str:
    """Format values by name in one line, such as "loss 1.2345 top-1 45.67"."""
    return " ".join(
        f"{name} {value:.4f}" if abs(value) < 10 else f"{name} {value:.2f}" for name, value in values.items()
    )


# ---- time ----------------------------------------------------------------------------------------------------


class EtaEstimator:
    """Estimates the time left from the pace since the start of this process, without pauses, and the last evaluation.

    Args:
        updates: number of steps left.
        evaluations: number of evaluations left.
    """

    def __init__(self, updates: int, evaluations: int) -> None:
        self._updates, self._evaluations = updates, evaluations
        self._done = 0
        self._training_seconds = self._evaluation_seconds = 0.0
        self._since = time.perf_counter()  # time of the last ``pause`` or ``resume``

    def count_update(self) -> None:
        """Count one more step."""
        self._done += 1

    def pause(self) -> None:
        """Stop counting training time, for an evaluation or a checkpoint, until ``resume``."""
        self._training_seconds += time.perf_counter() - self._since
        self._since = time.perf_counter()

    def count_evaluation(self) -> None:
        """Note that an evaluation that began with ``pause`` is done."""
        self._evaluations -= 1
        self._evaluation_seconds = time.perf_counter() - self._since

    def resume(self) -> None:
        """Count training time again."""
        self._since = time.perf_counter()

    def seconds(self) -> float:
        """Estimate the seconds left for training and, after the first one, for evaluations; called while training."""
        evaluations = max(self._evaluations, 0) * self._evaluation_seconds
        return self.estimate_seconds(max(self._updates - self._done, 0)) + evaluations

    def estimate_seconds(self, updates: int) -> float:
        """Estimate the seconds that this number of steps takes, without evaluations."""
        training = self._training_seconds + time.perf_counter() - self._since
        return training / max(self._done, 1) * updates

    def text(self) -> str:
        """Format the time left, such as "3 min left"."""
        return f"{format_duration(self.seconds())} left"


class ThroughputMeter:
    """Throughput of one epoch and time spent waiting for data, since the last report and in total.

    Args:
        loader: counts the seconds spent waiting.

    Attributes:
        updates: steps since the start of the epoch.
        waited: seconds spent waiting for data up to the last report.
    """

    def __init__(self, loader: DeviceLoader) -> None:
        self._loader = loader
        self._epoch_started = self._started = time.perf_counter()
        self._loader.seconds_waited = 0.0
        self._reported = 0
        self.updates = 0
        self.waited = 0.0

    def count_update(self) -> None:
        """Count one more step."""
        self.updates += 1

    def finish(self, samples_per_update: int) -> tuple[float, float, float]:
        """Measure the time since the last report and start a new interval.

        Args:
            samples_per_update: samples of one step over all ranks.

        Returns:
            Samples per second over all ranks, share of the time that this rank waited for data (0 to 1), and the
            seconds.
        """
        now = time.perf_counter()
        seconds = max(now - self._started, 1e-9)
        rate = (self.updates - self._reported) * samples_per_update / seconds
        waiting = self._loader.seconds_waited / seconds
        self.waited += self._loader.seconds_waited
        self._started, self._reported, self._loader.seconds_waited = now, self.updates, 0.0
        return rate, waiting, seconds

    def state_dict(self) -> dict[str, float]:
        """Return this process's counts for the checkpoint."""
        now = time.perf_counter()
        return {
            "updates": self.updates,
            "reported": self._reported,
            "seconds": now - self._epoch_started,
            "unreported": now - self._started,
            "waited": self.waited,
            "unreported_wait": self._loader.seconds_waited,
        }

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Restore the counts of a ``state_dict``."""
        now = time.perf_counter()
        self.updates, self._reported, self.waited = int(state["updates"]), int(state["reported"]), state["waited"]
        self._epoch_started, self._started = now - state["seconds"], now - state["unreported"]
        self._loader.seconds_waited = state["unreported_wait"]

    def estimate_epoch_seconds(self) -> float:
        """Return the seconds since the start of the epoch."""
        return time.perf_counter() - self._epoch_started


def format_duration(seconds: float) -> str:
    """Format a duration in familiar units: 45 s, 3 min, 2 h 10 min, 3 d 4 h."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"
