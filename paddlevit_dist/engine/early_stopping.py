"""A training that ends before its last epoch: its evaluations have not improved for a while."""

from typing import TYPE_CHECKING

from ..distributed import broadcast_object, is_main
from ..intervals import Interval
from ..logging.callbacks import Callback
from ..logging.record import recorded_events

if TYPE_CHECKING:
    from .run import Run


class EarlyStopping(Callback):
    """Counts evaluations since the last improvement by more than TRAIN.MIN_IMPROVEMENT. Every rank has one.

    It has no state in a checkpoint: a resumed training counts what the run that it continues has recorded up to there.

    Args:
        run: its training is put where -resume says.
    """

    on_every_rank = True

    def __init__(self, run: "Run") -> None:
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
            self._tell_chance(before, gain, waited, self._run.evaluation.intervals.get(self._name))
        self._decide(epoch)
        if self.ends_training and epoch < self._run.last_epoch:
            self._run.record.event("ended_early", {"epoch": epoch, "improved": self._epoch})
            self._run.record.say(self.ends_training)

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

    def _tell_chance(self, before: int, gain: float, waited: int, interval: Interval | None) -> None:
        """Say that an improvement is smaller than what the choice of samples does: the first time, and whenever the
        training goes on because of it."""
        if interval is None or not (waited or not self._told_chance):
            return
        old = self._value - gain if self._more_is_better else self._value + gain
        if interval.low <= old <= interval.high:
            self._told_chance = True
            change = f"{self._value - old:+.3g} since epoch {before}"
            ends = f"[{interval.low:.4g}, {interval.high:.4g}]"
            self._run.record.say(f"note: {self._name} {change} is within the interval {ends}: may be chance")

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
