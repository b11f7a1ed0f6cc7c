"""The evaluations after an epoch: of its weights, then of their average if there is one."""

from collections.abc import Sequence

from ..logging.record import RunLog
from ..runtime.errors import UserError
from ..settings.every_run import RunSettings
from ..tasks.task import Task
from .checkpointing import Checkpointer
from .evaluation import Evaluator
from .hooks import Hook, require_finite
from .metrics_check import require_value
from .model_ema import describe_worse_average
from .training_state import TrainingState


class EpochEvaluator:
    """Evaluates the weights of an epoch, or their average, which then chooses the best checkpoint.

    Attributes:
        note: line for the end of the run if the last average was worse than the weights; else empty.
    """

    def __init__(
        self,
        config: RunSettings,
        task: Task,
        state: TrainingState,
        evaluator: Evaluator,
        checkpointer: Checkpointer,
        run_log: RunLog,
    ) -> None:
        self._config, self._task, self._state = config, task, state
        self._evaluator, self._checkpointer, self._run_log = evaluator, checkpointer, run_log
        self.note = ""

    def __call__(self, epoch: int, is_last: bool, hooks: Sequence[Hook]) -> tuple[dict[str, float], str]:
        """Evaluate, with the observers of the hooks; return values by name and their line. Every rank must call this.

        Raises:
            UserError: a value is infinite, or none has the name of the one that chooses the best checkpoint.
        """
        label, when, ema = f"evaluation {epoch}", f"in the evaluation of epoch {epoch}", self._state.ema
        if ema is None:
            return self._evaluate(epoch, label, when, hooks, is_last)
        raw = None
        if ema.is_compared:
            raw, line = self._evaluate(epoch, label, when, hooks, is_last=False, chooses_best=False)
            self._run_log.event("evaluation_without_average", {"epoch": epoch, **self._evaluator.build_event(raw)})
            self._run_log.log_and_print(f"epoch {epoch} evaluation without averaging: {line}")
        with ema.in_place():
            self._state.share_statistics()
            averaged = f"{label} of averaged weights", f"{when}'s averaged weights"
            values, line = self._evaluate(epoch, *averaged, hooks, is_last)
        best, self.note = self._task.best_metric, ""
        if raw is not None and best[0] in raw and best[0] in values:
            interval = self._evaluator.intervals.get(best[0])
            self.note = describe_worse_average(best, raw[best[0]], values[best[0]], interval)
        return values, line

    def _evaluate(
        self, epoch: int, label: str, when: str, hooks: Sequence[Hook], is_last: bool, chooses_best: bool = True
    ) -> tuple[dict[str, float], str]:
        """Evaluate the model with its current weights; if it has diverged, discard the epoch's checkpoint.

        ``when`` names the evaluation in that error; ``chooses_best``: its values choose the best checkpoint.
        """
        observers = list(filter(None, [hook.before_evaluate(is_last) for hook in hooks]))
        values, line = self._evaluator(label, epoch=epoch, observers=observers)
        require_value(self._task, values, self._evaluator.undefined)
        try:
            require_finite(values, when, "; or its formula divides by zero: let it be NaN where it is not defined")
        except UserError:
            self._checkpointer.discard_epoch(epoch)
            raise
        if is_last or (chooses_best and self._config.TRAIN.PATIENCE):  # early stopping may end the run here
            self._checkpointer.note_scored(epoch)
        return values, line
