"""A run of one task: its model, its record, and what trains and evaluates it."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .. import extensions
from ..distributed import gpu, is_main
from ..logging.heartbeat import Heartbeat
from ..logging.observer import FAILED, FINISHED, STOPPED, Observers, make_observers
from ..logging.record import RunRecord
from ..registry import derived
from ..runtime import signals
from ..runtime.errors import Stopped
from ..tasks.dataset import Samples
from ..tasks.task import Task
from .compatibility import require_same_everywhere
from .evaluation import Evaluation
from .parts import build_model
from .precision import EvaluationPrecision
from .startup_log import first_lines
from .training import Training


class Trainer:
    """Trains one task on all ranks, or has what ``prediction.evaluate_only`` needs. Every rank makes one, with the same
    arguments.

    Args:
        config: the frozen configuration.
        task: built in the parent, where its datasets were built too.
        datasets: "train" and "val", or what is evaluated: DATA.SPLIT.
        notices: lines for the log besides those of the task and the data.
        observers: watch the run besides those that LOG_TO names; those of the main process are asked.
    """

    def __init__(
        self,
        config: Any,
        task: Task,
        datasets: dict[str, Any],
        notices: Sequence[str] = (),
        observers: Sequence[Any] = (),
    ) -> None:
        self.config = config
        self.task = derived(task, Task)
        self.datasets = {split: derived(samples, Samples) for split, samples in datasets.items()}
        notices = [*notices, *task.notices, *(line for samples in datasets.values() for line in samples.notices)]
        precision = EvaluationPrecision(config)
        notices.extend(filter(None, [precision.notice]))
        self.record = RunRecord(Path(config.SAVE), is_main())
        named = make_observers(() if config.EVAL else config.LOG_TO) if is_main() else []
        self.observers = Observers([*named, *observers] if is_main() else [], self.record.say)
        self.folder = Path(config.SAVE) / "checkpoints"
        for line in [*first_lines(config, task, datasets), *dict.fromkeys(notices)]:
            self.record.say(line)
        gpu.prepare(config.TRAIN.TF32, config.DETERMINISTIC, task.fixed_shapes)
        require_same_everywhere(config, self.task, self.datasets)
        self.heartbeat = Heartbeat(self.record.say, shown=self.record.writes)
        with self.heartbeat.at("building the model"):
            told = len(task.notices)
            self.model = next(iter(extensions.chosen("EVALUATED", config)), build_model)(config, task)
        for line in task.notices[told:]:  # such as where parts of it come from
            self.record.say(line)
        self.evaluated = self.datasets[config.DATA.SPLIT if config.EVAL else "val"]
        self.evaluation = Evaluation(config, task, self.model, self.evaluated, precision, self.heartbeat)

    def train(self) -> dict[str, float]:
        """Train to NUM_EPOCHS (or STOP_AFTER_EPOCH) and return the last evaluation's values, equal on every rank."""
        seconds = self.config.STOP_AFTER_SECONDS
        with self.heartbeat.at("preparing the training"):
            training = self.training()
            with self.until_the_end():
                if seconds is not None:
                    signals.stop_after(seconds, f"-stop_after_seconds={seconds:g}")
                signals.note_only()
                return training.run()

    @contextlib.contextmanager
    def until_the_end(self) -> Iterator[None]:
        """Tells observers how the run has ended."""
        outcome = FAILED
        try:
            yield
            outcome = FINISHED
        except Stopped:
            outcome = STOPPED
            raise
        finally:
            self.observers.end(outcome)

    def training(self) -> Training:
        """A training run of the model, positioned by -resume and -pretrained."""
        return Training(self)
