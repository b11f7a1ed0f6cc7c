"""The loop of a training: epochs, updates, evaluations, checkpoints. ``trainer`` says what it computes with,
``logging.callbacks`` who is told of it."""

import collections
import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from ..distributed import StopRequested, broadcast_object, broadcast_statistics, is_main, stops, world_size
from ..extension import extensions
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
    """Every rank has one.

    Args:
        run: its training is prepared.
    """

    def __init__(self, run: "Trainer") -> None:
        self._run = run
        self._update_saved = run.schedule.update  # the last one that a checkpoint holds, or that is not worth one
        self._begun: collections.deque[Callable[..., UpdateRecord]] = (
            collections.deque()
        )  # updates that are not known yet
        run.reports = TrainingLogger(run)
        run.callbacks.put_first(
            [
                EmptyingCache(run.task.empty_cache_freq),
                run.reports,
                *([EarlyStopping(run)] if run.config.TRAIN.PATIENCE else []),
                *(callback for one in extensions() for callback in one.callbacks(run, trains=True)),
            ]
        )

    def run(self) -> dict[str, float]:
        """Train to the end and return the last evaluation's values, equal on every rank.

        Raises:
            Stopped: the run was asked to stop, and is saved.
        """
        try:
            return self._train()
        except StopRequested:
            self._stop()
        finally:
            self._run.checkpointer.settle()  # whatever ends the training, what it is writing is not lost

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
        # Closed before an exception leaves: its threads must not run when the process ends.
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
                if epoch == run.last_epoch:  # it may come early
                    break
        run.callbacks.notify("paused", "writing the last checkpoint")
        run.checkpointer.finish()
        if values:
            run.callbacks.notify("training_done")
            for said in self._results(line):
                run.record.log_and_print(said)
        return values

    def _results(self, line: str) -> list[str]:
        """The last lines: the last evaluation and, at the very end, the best, which evaluating the run repeats."""
        run = self._run
        best = run.checkpointer.best
        if best is None or best["epoch"] == run.last_epoch:
            return [f"{line} (last and best, epoch {run.last_epoch})"]
        return [f"{line} (last, epoch {run.last_epoch})", f"{best['line']} (best, epoch {best['epoch']})"]

    # ---- updates ---------------------------------------------------------------------------------------------

    def _train_epoch(self, epoch: int, batches: Iterator[Any]) -> None:
        run = self._run
        run.model.train()
        tell, updates = run.callbacks.notify, run.sampler.updates_left
        is_due, made = False, run.updates_per_epoch - updates  # in this epoch, by the run that this one continues
        tell("epoch_started", epoch, made)
        try:
            for group in self._groups(batches, updates):
                run.checkpointer.agreement.poll(run.schedule.update)
                left = run.config.TRAIN.NUM_EPOCHS - epoch
                step = StepPosition(epoch, run.schedule.update, run.schedule.total_updates, epochs_left=left)
                rate = run.schedule.learning_rate
                tell("update_started", step, group)
                made += 1
                is_last = made == run.updates_per_epoch
                self._begun.append(
                    functools.partial(UpdateRecord, step=step, learning_rate=rate, made=made, is_last=is_last)
                )
                self._log_finished(run.updater.launch(group, step, rate))
                run.sampler.count_update()
                run.schedule.count_update()
                is_due = run.checkpointer.is_due()
                stops = run.checkpointer.agreement.should_stop(run.schedule.update)
                if is_last or is_due or stops:
                    self._log_finished(run.updater.flush())
                if is_due and not is_last:
                    self._save_update(evaluation_due=False)
                if stops and not is_last:  # after the last, the epoch is saved
                    self._stop()
        except StopRequested:
            self._log_finished(run.updater.flush())
            raise
        finally:
            tell("epoch_left")
        tell("epoch_done", epoch)
        if is_due:  # once the epoch's means are told, which no checkpoint behind it holds
            self._save_update(evaluation_due=run.should_evaluate(epoch))

    def _log_finished(self, updates: list[StepResult]) -> None:
        """Those that were begun first, and are known now."""
        for made in updates:
            self._run.callbacks.notify("update_done", self._begun.popleft()(**made._asdict()))

    def _groups(self, batches: Iterator[Any], updates: int) -> Iterator[list[Any]]:
        """The batches of so many updates. Before the first, ranks wait for one another, and leave if one is asked to
        stop; later only a single process leaves a wait for data, as others may be computing by then.

        Raises:
            StopRequested: on all ranks.
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
            # A slow first batch is waited for here, where all ranks can still leave together.
            if number == 0 and stops.any_rank_stopping(leaves):
                raise StopRequested
            run.loader.may_leave = world_size() == 1
            yield group
        run.loader.may_leave = True

    # ---- checkpoints and evaluations -------------------------------------------------------------------------

    @contextlib.contextmanager
    def _pause(self, what: str) -> Iterator[None]:
        """Tell that nothing inside the block is training."""
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
        broadcast_statistics(self._run.model)  # local ones are of a rank's own rows, Paddle's own of as many as it has

    def _stop(self) -> NoReturn:
        """Save what no checkpoint holds yet, and end the run.

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
        """Evaluate the weights, and the averaged ones if there are any, whose values then count; perhaps the training
        ends with them."""
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
        """Evaluate the model as it is; a diverged one leaves no checkpoint of the epoch.

        Args:
            counts: it is this evaluation that the epoch is judged by.
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
    """Counts evaluations since the last improvement by more than TRAIN.MIN_IMPROVEMENT. Every rank has one.

    It has no state in a checkpoint: a resumed training counts what the run that it continues has recorded up to there.

    Args:
        run: its training is put where -resume says.
    """

    on_every_rank = True

    def __init__(self, run: "Trainer") -> None:
        train = run.config.TRAIN
        self._run, self._patience, self._least = run, train.PATIENCE, train.MIN_IMPROVEMENT
        self._name, self._more_is_better = run.task.best_metric
        self._epoch, self._value = 0, float("nan")  # of the last improvement
        self._waited = 0  # evaluations since then
        self._told_chance = False
        for epoch, value in self._earlier():
            self._count(epoch, value)
        self._decide(run.start.position["epoch"])

    def epoch_evaluated(self, epoch: int, values: dict[str, float], line: str, is_best: bool) -> None:
        before, gain, waited = self._epoch, self._gain(values[self._name]), self._waited
        if self._count(epoch, values[self._name]) and before:
            self._log_chance(before, gain, waited, self._run.evaluation.intervals.get(self._name))
        self._decide(epoch)
        if self.ends_training and epoch < self._run.last_epoch:
            self._run.record.event("ended_early", {"epoch": epoch, "improved": self._epoch})
            self._run.record.log_and_print(self.ends_training)

    def _gain(self, value: float) -> float:
        """How much better it is than the last improvement; not a number where there was none."""
        return value - self._value if self._more_is_better else self._value - value

    def _count(self, epoch: int, value: float) -> bool:
        """Whether it is an improvement."""
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
                "-resume=auto with a larger one, or 0, goes on"
            )

    def _log_chance(self, before: int, gain: float, waited: int, interval: ConfidenceInterval | None) -> None:
        """Say that an improvement is smaller than what the choice of samples does: the first time, and whenever the
        training goes on because of it."""
        if interval is None or not (waited or not self._told_chance):
            return
        old = self._value - gain if self._more_is_better else self._value + gain
        if interval.low <= old <= interval.high:
            self._told_chance = True
            change = f"{self._value - old:+.3g} since epoch {before}"
            ends = f"[{interval.low:.4g}, {interval.high:.4g}]"
            self._run.record.log_and_print(f"note: {self._name} {change} is within the interval {ends}: may be chance")

    def _earlier(self) -> list[tuple[int, float]]:
        """Epoch and score of each evaluation before the place that this training continues from, and of the best one,
        which the checkpoint knows itself: its record may begin later, in another folder, or be lost."""
        start, found = self._run.start, []
        if start.directory is not None and is_main():
            last = start.position["epoch"] - start.evaluation_due
            for event in recorded_events(start.directory.resolve().parents[1]):
                epoch, value = event.get("epoch"), event.get(self._name)
                counts = event["kind"] == "evaluation" and "superseded" not in event
                if counts and isinstance(epoch, int) and epoch <= last and isinstance(value, float | int):
                    found.append((epoch, value))
        found = broadcast_object(found)
        best = self._run.checkpointer.best
        known = {best["epoch"]: best["value"]} if best and best["name"] == self._name else {}
        return sorted({**known, **dict(found)}.items())


if TYPE_CHECKING:
    from .trainer import Trainer
