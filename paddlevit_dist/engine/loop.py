"""The training loop: epochs, optimizer steps, evaluations, checkpoints and early stopping.

``trainer`` builds the parts that the loop uses; ``logging.callbacks`` defines who is notified of its progress.
"""

import collections
import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from .. import extension
from ..distributed import StopRequested, broadcast_object, broadcast_statistics, is_main, stops, world_size
from ..intervals import ConfidenceInterval
from ..runtime.errors import Stopped, UserError
from ..runtime.metrics_file import recorded_events
from ..tasks.callback import Callback, UpdateRecord
from ..tasks.task import StepPosition
from .gpu_memory import EmptyingCache
from .reports import TrainingLogger, require_finite
from .startup_log import log_run_summary
from .steps import StepResult, accumulation_groups

if TYPE_CHECKING:
    from .trainer import Trainer


class TrainingLoop:
    """The loop of one training run. Every rank has one.

    Args:
        run: the trainer, after ``prepare_training``.
    """

    def __init__(self, run: "Trainer") -> None:
        self._run = run
        self._update_saved = run.schedule.update  # the last one saved; at first, the one that the run starts from
        self._pending: collections.deque[Callable[..., UpdateRecord]] = collections.deque()  # without a result yet
        run.reports = TrainingLogger(run)
        run.callbacks.put_first(
            [
                EmptyingCache(run.task.empty_cache_freq),
                run.reports,
                *([EarlyStopping(run)] if run.config.TRAIN.PATIENCE else []),
                *extension.build_callbacks(run, extension.TRAINING_CALLBACKS),
            ]
        )

    def run(self) -> dict[str, float]:
        """Train to the last epoch, with evaluations and checkpoints.

        Returns:
            The values of the last evaluation by name, equal on every rank; empty if nothing is left to train.

        Raises:
            Stopped: the run was asked to stop and its state is saved.
        """
        try:
            return self._train()
        except StopRequested:
            self._stop()
        finally:
            self._run.checkpointer.settle()  # finish writing a checkpoint, also after an error

    def _train(self) -> dict[str, float]:
        run = self._run
        first, consumed = run.sampler.epoch, run.sampler.consumed
        nothing_left = f"epoch {first - 1} of {run.last_epoch} is already done" if first > run.last_epoch else ""
        nothing_left = nothing_left or run.callbacks.end_training
        if nothing_left and not run.start.evaluation_due:
            run.record.log_and_print(f"nothing to do: {nothing_left}")
            return {}
        log_run_summary(run)
        values: dict[str, float] = {}
        line = ""
        if run.start.evaluation_due:
            if not run.checkpointer.is_own(first - 1, run.start.directory):
                self._save_epoch(first - 1, evaluation_due=True)
            values, line = self._evaluate_epoch(first - 1)
        # Close the loader before an exception propagates: its threads must not run when the process exits.
        with contextlib.closing(run.loader.epochs(first, run.last_epoch, consumed)) as batches:
            for epoch in range(first, run.last_epoch + 1):
                self._train_epoch(epoch, batches)
                is_evaluated = run.should_evaluate(epoch)
                if is_evaluated or run.should_save(epoch):
                    self._save_epoch(epoch, evaluation_due=is_evaluated)
                if run.checkpointer.agreement.should_stop(run.schedule.update):
                    self._stop()
                if is_evaluated:
                    values, line = self._evaluate_epoch(epoch)
                if epoch == run.last_epoch:  # early stopping may have lowered it
                    break
        run.callbacks.notify("paused", "writing the last checkpoint")
        run.checkpointer.finish()
        if values:
            run.callbacks.notify("training_done")
            for result in self._results(line):
                run.record.log_and_print(result)
        return values

    def _results(self, line: str) -> list[str]:
        """Format the last log lines: the last evaluation, then the best one, whose line ``evaluate`` prints again."""
        run = self._run
        best = run.checkpointer.best
        if best is None or best["epoch"] == run.last_epoch:
            return [f"{line} (last and best, epoch {run.last_epoch})"]
        return [f"{line} (last, epoch {run.last_epoch})", f"{best['line']} (best, epoch {best['epoch']})"]

    # ---- updates ---------------------------------------------------------------------------------------------

    def _train_epoch(self, epoch: int, batches: Iterator[Any]) -> None:
        run = self._run
        run.model.train()
        notify, updates = run.callbacks.notify, run.sampler.updates_left
        is_due, num_done = False, run.updates_per_epoch - updates  # done before the resumed checkpoint
        notify("epoch_started", epoch, num_done)
        try:
            for group in self._groups(batches, updates):
                run.checkpointer.agreement.poll(run.schedule.update)
                left = run.config.TRAIN.NUM_EPOCHS - epoch
                step = StepPosition(epoch, run.schedule.update, run.schedule.total_updates, epochs_left=left)
                rate = run.schedule.learning_rate
                notify("update_started", step, group)
                num_done += 1
                is_last = num_done == run.updates_per_epoch
                self._pending.append(
                    functools.partial(UpdateRecord, step=step, learning_rate=rate, made=num_done, is_last=is_last)
                )
                self._log_finished(run.train_step.launch(group, step, rate))
                run.sampler.count_update()
                run.schedule.count_update()
                is_due = run.checkpointer.is_due()
                stops = run.checkpointer.agreement.should_stop(run.schedule.update)
                if is_last or is_due or stops:
                    self._log_finished(run.train_step.flush())
                if is_due and not is_last:
                    self._save_update(evaluation_due=False)
                if stops and not is_last:  # after the last step, the epoch is saved first
                    self._stop()
        except StopRequested:
            self._log_finished(run.train_step.flush())
            raise
        finally:
            notify("epoch_left")
        notify("epoch_done", epoch)
        if is_due:  # after the epoch's means are logged, because later checkpoints do not hold them
            self._save_update(evaluation_due=run.should_evaluate(epoch))

    def _log_finished(self, updates: list[StepResult]) -> None:
        """Notify the callbacks of the steps that have completed, oldest first."""
        for result in updates:
            self._run.callbacks.notify("update_done", self._pending.popleft()(**result._asdict()))

    def _groups(self, batches: Iterator[Any], updates: int) -> Iterator[list[Any]]:
        """Yield the micro-batches of each of the next ``updates`` steps.

        Before the first step, ranks wait for each other and leave together if one is asked to stop. Later, only the
        single process of a one-process run can leave while it waits for data, because other ranks may already be in a
        collective.

        Raises:
            StopRequested: the run was asked to stop; on all ranks.
        """
        run = self._run
        groups = accumulation_groups(batches, run.config.TRAIN.ACCUM_ITER, updates)
        for number in range(updates):
            run.callbacks.notify("data_awaited")
            leaves = False
            try:
                group = next(groups)
                leaves = number == 0 and stops.stop_requested()
            except StopRequested:
                if number:
                    raise
                leaves = True
            # Wait for a slow first batch here, where all ranks can still leave together.
            if number == 0 and stops.any_rank_stopping(leaves):
                raise StopRequested
            run.loader.may_leave = world_size() == 1
            yield group
        run.loader.may_leave = True

    # ---- checkpoints and evaluations -------------------------------------------------------------------------

    @contextlib.contextmanager
    def _pause(self, what: str) -> Iterator[None]:
        """Notify the callbacks that the block is not training, so that they do not count its time."""
        self._run.callbacks.notify("paused", what)
        yield
        self._run.callbacks.notify("resumed")

    def _save_update(self, evaluation_due: bool) -> None:
        run = self._run
        with self._pause(f"saving update {run.schedule.update}"):
            self._share_statistics()
            run.checkpointer.save_update(evaluation_due)
        self._update_saved = run.schedule.update

    def _save_epoch(self, epoch: int, evaluation_due: bool) -> None:
        with self._pause(f"saving epoch {epoch}"):
            self._share_statistics()
            self._run.checkpointer.save_epoch(epoch, evaluation_due)
        self._update_saved = self._run.schedule.update

    def _share_statistics(self) -> None:
        # With "local", ranks have different statistics; Paddle's synchronized ones differ with the rows per rank.
        broadcast_statistics(self._run.model)

    def _stop(self) -> NoReturn:
        """Save the state unless a checkpoint already has it, then end the run.

        Raises:
            Stopped: always.
        """
        run = self._run
        if run.schedule.update != self._update_saved:
            self._save_update(evaluation_due=False)
        run.checkpointer.finish()
        last = run.checkpointer.folder / "last"
        if last.exists():
            what = "saved" if run.schedule.update > run.start.position["update"] else "nothing new since"
            last = run.checkpointer.folder / last.resolve().name
            place = f"{what} {last}; the same command with -resume=auto continues from there"
        else:
            place = "nothing was saved yet; the same command starts again"
        raise Stopped(stops.reason(), place)

    def _evaluate_epoch(self, epoch: int) -> tuple[dict[str, float], str]:
        """Evaluate the weights, and the averaged weights if there are any, whose values then count.

        Callbacks, such as early stopping, may end the training after it.
        """
        run = self._run
        with self._pause(f"in the evaluation {epoch}"):
            values, line = self._evaluate_weights(epoch)
            name, more_is_better = run.task.best_metric
            is_best = run.checkpointer.note_evaluation(epoch, name, values[name], more_is_better, line)
            run.callbacks.notify("epoch_evaluated", epoch, values, line, is_best)
            run.checkpointer.log_held_back()
        if run.callbacks.end_training:
            run.last_epoch = epoch
        return values, line

    def _evaluate_weights(self, epoch: int) -> tuple[dict[str, float], str]:
        run = self._run
        if run.ema is None:
            return self._evaluate(epoch, f"evaluation {epoch}", f"in the evaluation of epoch {epoch}", True)
        when = f"in the evaluation of epoch {epoch}"
        values, line = self._evaluate(epoch, f"evaluation {epoch}", when, False)
        run.record.event("evaluation_without_average", {"epoch": epoch, **run.evaluation.build_event(values)})
        run.record.log_and_print(f"epoch {epoch} evaluation without averaging: {line}")
        with run.ema.in_place():
            self._share_statistics()
            label = f"evaluation {epoch} of averaged weights"
            return self._evaluate(epoch, label, f"{when}'s averaged weights", True)

    def _evaluate(self, epoch: int, label: str, when: str, counts: bool) -> tuple[dict[str, float], str]:
        """Evaluate the model with its current weights; if it has diverged, discard the epoch's checkpoint.

        Args:
            epoch: the last epoch trained.
            label: text of the progress bar.
            when: where values that are not finite occurred, for the error.
            counts: whether these values choose the best checkpoint.

        Returns:
            Values by name, and their log line.

        Raises:
            UserError: a value is not finite.
        """
        run = self._run
        run.callbacks.notify("evaluation_started", counts and epoch == run.last_epoch)
        values, line = run.evaluation(label, epoch=epoch, callbacks=run.callbacks)
        try:
            require_finite(values, when)
        except UserError:
            run.checkpointer.discard_epoch(epoch)
            raise
        return values, line


class EarlyStopping(Callback):
    """Ends the training after TRAIN.PATIENCE evaluations without an improvement by more than TRAIN.MIN_IMPROVEMENT.

    Every rank has one. Checkpoints hold no state of it: a resumed run reads the earlier evaluations from the record of
    the run that it continues.

    Args:
        run: the trainer, after ``prepare_training``.
    """

    on_every_rank = True

    def __init__(self, run: "Trainer") -> None:
        train = run.config.TRAIN
        self._run, self._patience, self._least = run, train.PATIENCE, train.MIN_IMPROVEMENT
        self._name, self._more_is_better = run.task.best_metric
        self._epoch, self._value = 0, float("nan")  # epoch and value of the last improvement
        self._waited = 0  # evaluations since the last improvement
        self._has_logged_chance = False
        for epoch, value in self._earlier():
            self._count(epoch, value)
        self._decide(run.start.position["epoch"])

    def epoch_evaluated(self, epoch: int, values: dict[str, float], line: str, is_best: bool) -> None:
        """Count this evaluation, and end the training if it is one too many without an improvement."""
        before, gain, waited = self._epoch, self._gain(values[self._name]), self._waited
        if self._count(epoch, values[self._name]) and before:
            self._log_chance(before, gain, waited, self._run.evaluation.intervals.get(self._name))
        self._decide(epoch)
        if self.ends_training and epoch < self._run.last_epoch:
            self._run.record.event("ended_early", {"epoch": epoch, "improved": self._epoch})
            self._run.record.log_and_print(self.ends_training)

    def _gain(self, value: float) -> float:
        """Return how much better a value is than the last improvement; NaN if there is none yet."""
        return value - self._value if self._more_is_better else self._value - value

    def _count(self, epoch: int, value: float) -> bool:
        """Count an evaluation and return whether it is an improvement."""
        is_improvement = not self._epoch or self._gain(value) > self._least
        if is_improvement:
            self._epoch, self._value, self._waited = epoch, value, 0
        else:
            self._waited += 1
        return is_improvement

    def _decide(self, epoch: int) -> None:
        self.ends_training = ""
        if self._waited >= self._patience:
            by = f" by more than {self._least:g}" if self._least else ""
            self.ends_training = (
                f"ended early after epoch {epoch} of {self._run.config.TRAIN.NUM_EPOCHS}: {self._name} has not "
                f"improved{by} in {self._waited} evaluation(s) since epoch {self._epoch} (TRAIN.PATIENCE); "
                "-resume=auto with a larger one, or 0, continues"
            )

    def _log_chance(self, before: int, gain: float, waited: int, interval: ConfidenceInterval | None) -> None:
        """Log that an improvement is within the interval of the previous value, which chance alone explains.

        It is logged the first time, and each time such an improvement resets the count.
        """
        if interval is None or (self._has_logged_chance and not waited):
            return
        old = self._value - gain if self._more_is_better else self._value + gain
        if interval.low <= old <= interval.high:
            self._has_logged_chance = True
            change = f"{self._value - old:+.3g} since epoch {before}"
            ends = f"[{interval.low:.4g}, {interval.high:.4g}]"
            self._run.record.log_and_print(f"note: {self._name} {change} is within the interval {ends}: may be chance")

    def _earlier(self) -> list[tuple[int, float]]:
        """Return epoch and value of each evaluation before the position that this run resumes from.

        The best one comes from the checkpoint itself, because the record may be lost, start later or be in another
        folder.
        """
        start, evaluations = self._run.start, []
        if start.directory is not None and is_main():
            last = start.position["epoch"] - start.evaluation_due
            for event in recorded_events(start.directory.resolve().parents[1]):
                epoch, value = event.get("epoch"), event.get(self._name)
                counts = event["kind"] == "evaluation" and "superseded" not in event
                if counts and isinstance(epoch, int) and epoch <= last and isinstance(value, float | int):
                    evaluations.append((epoch, value))
        evaluations = broadcast_object(evaluations)
        best = self._run.checkpointer.best
        best_evaluation = {best["epoch"]: best["value"]} if best and best["name"] == self._name else {}
        return sorted({**best_evaluation, **dict(evaluations)}.items())


if TYPE_CHECKING:
    from .trainer import Trainer
