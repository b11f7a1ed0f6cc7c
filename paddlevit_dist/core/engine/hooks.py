"""Hooks of the training loop; manifests add more, see ``Manifest.hooks``."""

import contextlib
import math
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import paddle

from ..data.loader import DeviceLoader
from ..distributed import is_main, world_size
from ..intervals import ConfidenceInterval
from ..launch.devices import cpu_cores
from ..logging.callbacks import CallbackList
from ..logging.meters import DataWaitHint, StepMeters, memory_mib
from ..logging.progress import Heartbeat, ProgressBar, ReportField, build_fields, count_line_columns, fit_line
from ..logging.record import SCORES, RunLog
from ..runtime.errors import UserError
from ..runtime.transfers import is_on_gpu
from ..settings.every_run import RunSettings, TrainSection
from ..tasks.aspects import get_aspect
from ..tasks.protocols import LogContributor
from ..tasks.step_types import LossTerm, StepPosition
from ..tasks.task import Task
from .evaluation import EvaluationObserver, Evaluator
from .resume import ResumeState
from .throughput import EtaEstimator, ThroughputMeter, format_duration
from .training_state import TrainingState

_SOON = 10.0  # seconds; no step report is logged this short before the epoch's line


class UpdateRecord(NamedTuple):
    """A completed step.

    Attributes:
        step: its position; ``step.update`` steps were made before it.
        terms: of the loss, one dictionary for each micro-batch, on the device.
        is_finite: whether it has changed the weights.
        gradient_norm: norm of all gradients before clipping.
        made: steps of the epoch including this one.
    """

    step: StepPosition
    terms: list[dict[str, LossTerm]]
    is_finite: bool
    gradient_norm: float
    learning_rate: float
    made: int
    is_last: bool


class Hook:
    """Base class of the parts of training that ``Trainer`` calls on every rank; each method is optional.

    All ranks call the same hooks at the same points, so a hook may communicate if it does so on every rank. An
    exception ends the run. A user's ``Callback`` is called by rank 0 alone.
    """

    #: why training has to end, after ``after_evaluate`` or before training begins; equal on every rank
    stop_reason = ""

    def before_epoch(self, epoch: int, done: int) -> None:
        """Handle the start of an epoch; an earlier run has made ``done`` of its steps."""

    def before_step(self, step: StepPosition) -> None:
        """Handle the arrival of a step's batches."""

    def after_step(self, update: UpdateRecord) -> None:
        """Handle a completed step; ``update`` has its position.

        On a CPU, sampler and schedule have not counted it yet. On a GPU, the next step may already be launched.
        """

    def after_epoch(self, epoch: int, is_complete: bool) -> None:
        """Handle the end of an epoch's steps; not ``is_complete``: the run stops or fails within the epoch."""

    def before_evaluate(self, is_last: bool) -> EvaluationObserver | None:
        """Return an observer of the evaluation that begins; ``is_last``: its weights and values are the run's last."""

    def after_evaluate(self, epoch: int, values: dict[str, float], line: str, is_best: bool) -> None:
        """Handle an epoch's evaluation, of the averaged weights if there are any, with its values and log line."""

    def after_train(self) -> None:
        """Handle the end of training: all epochs are trained, evaluated and saved."""


class EmptyingCache(Hook):
    """Empties the GPU's memory cache every ``every`` steps.

    Batches of very different sizes fragment the cache until no later batch fits.
    """

    def __init__(self, every: int) -> None:
        self._every = every

    def after_step(self, update: UpdateRecord) -> None:
        """Empty the cache after every ``every`` steps."""
        if (update.step.update + 1) % self._every == 0 and is_on_gpu():
            paddle.device.cuda.empty_cache()


class TrainingLogger(Hook):
    """Hook that averages loss terms, measures throughput, and reports both every REPORT_FREQ steps and every epoch.

    Metrics go to the record and the users' callbacks, lines to the log, status to the terminal and the watchdog.
    """

    def __init__(
        self,
        config: RunSettings,
        task: Task,
        state: TrainingState,
        resume_state: ResumeState,
        loader: DeviceLoader,
        evaluator: Evaluator,
        run_log: RunLog,
        heartbeat: Heartbeat,
        callbacks: CallbackList,
        *,
        last_epoch: int,
        evaluations: int,
    ) -> None:
        self._config, self._task, self._resume_state = config, task, resume_state
        self._sampler, self._nan_guard = state.sampler, state.nan_guard
        self._loader, self._evaluator = loader, evaluator
        self._run_log, self._heartbeat, self._callbacks = run_log, heartbeat, callbacks
        self._updates_per_epoch = self._sampler.updates_per_epoch
        updates = last_epoch * self._updates_per_epoch - self._sampler.updates_made
        self._remaining = EtaEstimator(updates, evaluations + resume_state.evaluation_due)
        self._fields: list[ReportField] = []
        advice = self._sampler.dataset.reading_advice
        self._data_wait = DataWaitHint(loader.num_workers, world_size(), cpu_cores(), advice)
        self._epoch = 0
        self._bar = ProgressBar(0, "", False)
        self._pace = ThroughputMeter(loader)
        self._meters = StepMeters()

    def before_epoch(self, epoch: int, done: int) -> None:
        """Reset meters and progress bar; in a resumed epoch, restore the meters."""
        self._epoch = epoch
        self._meters, self._pace = StepMeters(), ThroughputMeter(self._loader)
        resume_state = self._resume_state
        if done and resume_state.means is not None and epoch == resume_state.position["epoch"] + 1:
            self._meters.load_state_dict(resume_state.means)
            self._pace.load_state_dict(resume_state.means["pace"])
        self._continued = self._pace.updates
        updates = self._updates_per_epoch - done
        self._bar = ProgressBar(updates, f"epoch {epoch}/{self._config.TRAIN.NUM_EPOCHS}", is_main())
        self._show()
        self._heartbeat.at(f"waiting for the first batch of epoch {epoch}")

    def before_step(self, step: StepPosition) -> None:
        """Report the position to the watchdog before the first step of this process in the epoch."""
        if self._pace.updates == self._continued:
            self._heartbeat.at(self._place(self._updates_per_epoch - self._sampler.updates_left))

    def after_step(self, update: UpdateRecord) -> None:
        """Add the step to the meters; write a report every REPORT_FREQ steps and after the last step of the epoch."""
        for terms in update.terms if update.is_finite else ():
            self._meters.add(terms)
        self._pace.count_update()
        self._remaining.count_update()
        self._bar.step()
        self._heartbeat.at(self._place(update.made))
        if update.is_last or update.made % self._config.REPORT_FREQ == 0:
            report = self._report(update)
            left = self._remaining.estimate_seconds(self._updates_per_epoch - update.made)
            if left > _SOON:  # otherwise the epoch's line follows soon and covers these steps
                number = f"{update.made}/{self._updates_per_epoch}"
                self._log_line(f"epoch {update.step.epoch} update {number}", *report)

    def window(self) -> list[list[float]]:
        """Return this rank's sums since the last report, without waiting for the others (see ``StepMeters.window``)."""
        return self._meters.window()

    def state_dict(self, windows: list[list[list[float]]]) -> dict[str, Any] | None:
        """Return what a resumed run needs to complete the epoch's means, from ``window`` of each rank.

        None if a number is not finite: if it is learned, the next report ends the run.
        """
        state = self._meters.state_dict(windows)
        numbers = [*state["sums"].values(), *(x for window in windows for column in window for x in column)]
        return {**state, "pace": self._pace.state_dict()} if all(map(math.isfinite, numbers)) else None

    def after_epoch(self, epoch: int, is_complete: bool) -> None:
        """Close the progress bar; after a complete epoch, log and record its means, throughput and the time left."""
        self._bar.close()
        if not is_complete:
            return
        pace, skipped = self._pace, self._nan_guard.total
        means = self._meters.finish_epoch()
        seconds = pace.estimate_epoch_seconds()
        self._run_log.event("epoch", {"epoch": epoch, "seconds": round(seconds, 3), **means})
        rate = pace.updates * self._sampler.global_batch_size / max(seconds, 1e-9)
        end = f"({seconds:.1f} s, {f'{skipped} skipped so far, ' if skipped else ''}{self._remaining.text()})"
        waited = f"wait {pace.waited / max(seconds, 1e-9):.0%}"
        head = f"epoch {epoch}/{self._config.TRAIN.NUM_EPOCHS} training:"
        self._log_line(head, means, [], f"{rate:.0f} {self._task.traits.sample_name}/s", waited, end)
        log = get_aspect(self._task, LogContributor)
        for line in log.finish_epoch() if log else ():
            self._run_log.log_and_print(line)

    def _log_line(
        self, head: str, means: dict[str, float], rates: list[ReportField], pace: str, wait: str, end: str
    ) -> None:
        """Log a line of the progress; a terminal shows what fits, at least the loss, the pace and the time left."""
        terms = [ReportField(text, text) for text in (format_values({name: mean}) for name, mean in means.items())]
        fields = [ReportField(head, head), *terms, *rates, ReportField(pace, pace), ReportField(f"data {wait}", wait)]
        fields.append(ReportField(end, end))
        first_rate = 1 + len(terms)
        dispensable = [len(fields) - 2, *range(first_rate, first_rate + len(rates)), *range(len(terms), 1, -1)]
        lines = (fit_line(fields, dispensable, width) for width in (sys.maxsize, count_line_columns()))
        self._run_log.log_and_print(*lines)

    def _place(self, num_done: int) -> str:
        return f"in epoch {self._epoch}, {num_done} of {self._updates_per_epoch} updates done"

    def _report(self, update: UpdateRecord) -> tuple[dict[str, float], list[ReportField], str, str, str]:
        """Record and show what was measured since the last report; return the parts of its line."""
        means = self._meters.reduce()  # the only collective besides gradients and counts
        number = update.step.update + 1
        require_finite(means, f"in epoch {update.step.epoch} near update {number}")
        rate, waiting, seconds = self._pace.finish(self._sampler.global_batch_size)
        norm, skipped = update.gradient_norm, self._nan_guard.total
        memory = memory_mib() if self._run_log.writes else None
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
        self._run_log.event("training", values)
        self._callbacks.report(number, values)
        hint = self._data_wait.update(waiting, seconds)
        if hint is not None:
            self._run_log.log_and_print(hint)
        self._fields = build_fields(values, means, self._task.traits.sample_name)
        self._show()
        rates = [ReportField(f"gradient norm {norm:.3g}", f"norm {norm:.3g}")]
        rates.append(ReportField(*[f"lr {update.learning_rate:.2e}"] * 2))
        end = f"{f'{skipped} skipped so far, ' if skipped else ''}{self._remaining.text()}"
        return means, rates, f"{rate:.0f} {self._task.traits.sample_name}/s", f"wait {waiting:.0%},", end

    def _show(self) -> None:
        if self._fields:
            epoch_left = format_duration(self._remaining.estimate_seconds(self._bar.left))
            self._bar.note(f"{epoch_left} left, run {self._remaining.text()}")
            self._bar.show(self._fields)

    @contextlib.contextmanager
    def paused(self, what: str) -> Iterator[None]:
        """Do not count the block as training time; ``what`` follows the words "the run is"."""
        self._remaining.pause()
        self._heartbeat.at(what)
        yield
        self._remaining.resume()

    def after_evaluate(self, epoch: int, values: dict[str, float], line: str, is_best: bool) -> None:
        """Log and record the evaluation with its intervals."""
        self._remaining.count_evaluation()
        name, _ = self._task.best_metric
        facts = {"epoch": epoch, **self._evaluator.build_event(values)}
        self._evaluator.write_scores(self._run_log, SCORES)
        self._evaluator.write_intervals(self._run_log, "intervals.json", {"epoch": epoch})
        self._evaluator.write_sample_table(self._run_log, "intervals.json", {"epoch": epoch})
        self._evaluator.table = None  # 20 MB for COCO's val images
        is_best = is_best and name in values  # else the checkpoint is only the last one
        self._run_log.event("evaluation", {**facts, "best": name} if is_best else facts)
        update = epoch * self._updates_per_epoch
        self._callbacks.evaluated(update, epoch, values, facts)
        text = f"epoch {epoch} evaluation: {line}"
        note = f" (best {name})" if is_best and not self._task.traits.takes_last else ""
        shorter = f"{text} (best)" if note else text
        fits = len(shorter) <= count_line_columns() < len(text + note)
        self._run_log.log_and_print(text + note, shorter if fits else None)


class EarlyStopping(Hook):
    """Ends the training after TRAIN.PATIENCE evaluations without an improvement by more than TRAIN.MIN_IMPROVEMENT.

    Every rank has one. A checkpoint holds the evaluations so far, which a resumed run counts with its own keys. An
    evaluation that does not define the score does not improve it; before the first that defines it, none is counted.
    ``metric``: name of the value that counts, and whether larger ones are better. The evaluator's intervals show which
    improvements may be chance.
    """

    def __init__(
        self,
        train: TrainSection,
        metric: tuple[str, bool],
        resume_state: ResumeState,
        evaluator: Evaluator,
        run_log: RunLog,
        last_epoch: int,
    ) -> None:
        self._patience, self._least, self._num_epochs = train.PATIENCE, train.MIN_IMPROVEMENT, train.NUM_EPOCHS
        self._name, self._more_is_better = metric
        self._evaluator, self._run_log, self._last_epoch = evaluator, run_log, last_epoch
        self._epoch, self._value = 0, float("nan")  # epoch and value of the last improvement
        self._waited = 0  # evaluations since the last improvement
        self._has_logged_chance = False
        best = resume_state.best
        for epoch, value in resume_state.evaluations if best and best["name"] == self._name else ():
            self._count(epoch, value)
        self._decide(resume_state.position["epoch"])

    def after_evaluate(self, epoch: int, values: dict[str, float], line: str, is_best: bool) -> None:
        """Count this evaluation, and end the training if it is one too many without an improvement."""
        value = values.get(self._name)
        before, gain, waited = self._epoch, math.nan if value is None else self._gain(value), self._waited
        if self._count(epoch, value) and before:
            self._log_chance(before, gain, waited, self._evaluator.intervals.get(self._name))
        self._decide(epoch)
        if self.stop_reason and epoch < self._last_epoch:
            self._run_log.event("ended_early", {"epoch": epoch, "improved": self._epoch})
            self._run_log.log_and_print(self.stop_reason)

    def _gain(self, value: float) -> float:
        """Return how much better a value is than the last improvement; NaN if there is none yet."""
        return value - self._value if self._more_is_better else self._value - value

    def _count(self, epoch: int, value: float | None) -> bool:
        """Count an evaluation, and return whether it is an improvement."""
        if value is not None and (not self._epoch or self._gain(value) > self._least):
            self._epoch, self._value, self._waited = epoch, value, 0
            return True
        self._waited += bool(self._epoch)
        return False

    def _decide(self, epoch: int) -> None:
        self.stop_reason = ""
        if self._waited >= self._patience:
            by = f" by more than {self._least:g}" if self._least else ""
            self.stop_reason = (
                f"ended early after epoch {epoch} of {self._num_epochs}: {self._name} has not "
                f"improved{by} in {self._waited} evaluation(s) since epoch {self._epoch} (TRAIN.PATIENCE); "
                "-resume=auto with a larger one, or 0, continues"
            )

    def _log_chance(self, before: int, gain: float, waited: int, interval: ConfidenceInterval | None) -> None:
        """Log, at first and when it resets the count, that an improvement is within the previous interval."""
        if interval is None or (self._has_logged_chance and not waited):
            return
        old = self._value - gain if self._more_is_better else self._value + gain
        if interval.low <= old <= interval.high:
            self._has_logged_chance = True
            change = f"{self._value - old:+.3g} since epoch {before}"
            ends = f"[{interval.low:.4g}, {interval.high:.4g}]"
            self._run_log.log_and_print(f"note: {self._name} {change} is within the interval {ends}: may be chance")


def require_finite(values: dict[str, float], when: str, hint: str = "") -> None:
    """Raise UserError, which ends with ``hint``, if a value, equal on every rank, is NaN or infinite."""
    bad = [name for name, value in values.items() if not math.isfinite(value)]
    if bad:
        raise UserError(
            f"'{bad[0]}' is {values[bad[0]]} {when}: training has diverged; lower TRAIN.BASE_LR, set "
            f"TRAIN.GRAD_CLIP or a longer warm-up, and -resume=auto from the last checkpoint{hint}"
        )


def format_values(values: dict[str, float]) -> str:
    """Format values by name in one line, such as "loss 1.2345 top-1 45.67"."""
    return " ".join(
        f"{name} {value:.4f}" if abs(value) < 10 else f"{name} {value:.2f}" for name, value in values.items()
    )
