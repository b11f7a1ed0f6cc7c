"""A run of one task: its model, its record, and either an evaluation or training."""

import contextlib
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .. import wings
from ..checkpoint import store as checkpoints
from ..checkpoint.load import load_weights
from ..checkpoint.weights import evaluated_weights
from ..config import dump_yaml
from ..contracts.adapter import adopt
from ..contracts.dataset import Samples
from ..contracts.task import Task
from ..observe.heartbeat import Heartbeat
from ..observe.observer import FAILED, FINISHED, STOPPED, Observers, RunFacts, make_observers
from ..observe.record import RunRecord
from ..parallel import LeftEarly, gpu, is_main
from ..runtime import signals
from ..runtime.errors import Stopped, UserError
from ..runtime.printing import without_credentials
from . import about
from .evaluation import Evaluation, SavedPredictions
from .introduction import first_lines, require_same_everywhere, start_record
from .parts import build_model
from .passes import compile_model
from .precision import EvaluationPrecision
from .samples_check import require_not_trained_on
from .training import Training
from .watchers import Watchers


class Trainer:
    """Trains and evaluates one task on all ranks. Every rank makes one, with the same arguments.

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
        self.task = adopt(task, Task)
        self.datasets = {split: adopt(samples, Samples) for split, samples in datasets.items()}
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
            self.model = build_model(config, task)
        for line in task.notices[told:]:  # such as where parts of it come from
            self.record.say(line)
        self.evaluated = self.datasets[config.DATA.SPLIT if config.EVAL else "val"]
        self.evaluation = Evaluation(config, task, self.model, self.evaluated, precision, self.heartbeat)

    # ---- evaluation ------------------------------------------------------------------------------------------

    def evaluate_only(self) -> dict[str, float]:
        """Load the named weights completely, evaluate once, print the result as the last line."""
        with self._until_the_end():
            return self._evaluate_only()

    def _evaluate_only(self) -> dict[str, float]:
        source = self.config.MODEL.PRETRAINED
        if source is None:
            source = checkpoints.resolve(self.config.MODEL.RESUME, self.folder, self.record.say)
            if source is None:
                raise UserError(f"-resume=auto: no checkpoint in {self.folder} to evaluate")
        source = evaluated_weights(source)
        differences = about.compare_settings(str(source), self.config, must_match=True)
        differences += about.compare(str(source), self.config, self.task, must_match=True)
        report = load_weights(self.model, source, strict=True, part=self.config.MODEL.PRETRAINED_PART)
        differences += about.require_same_classes(source, self.config, self.task, self.evaluated)
        split = self.config.DATA.SPLIT
        differences += require_not_trained_on(source, self.config, self.task, split, self.evaluated)
        compile_model(self.config, self.task, self.model)
        start_record(self.config, self.record, self.task, self.datasets)
        self.observers.start(RunFacts(self.record.folder, self.config, dump_yaml(self.config), trains=False))
        self.record.file("eval_load_report.json", report.json())
        self.record.say(f"weights {source}: {report.summary()}")
        for line in differences:
            self.record.say(line)
        labelled = self.evaluated.labelled
        writer = self._saved_predictions() if self.config.SAVE_PREDICTIONS or not labelled else None
        watchers = Watchers([make(self) for make in wings.chosen("EVALUATION_WATCHERS", self.config)])
        watchers.tell("evaluation_started", labelled)
        try:
            with self.heartbeat.at("evaluating"):
                values, line = self.evaluation("evaluation", writer, watchers=watchers)
        except LeftEarly as left:  # the signal came while code ran in which its exception was lost
            raise signals.Interrupted(signals.number() or signal.SIGTERM) from left
        for said in writer.finish() if writer else ():
            self.record.say(said)
        if not labelled:
            values, line = {}, self._without_score()
        facts = {"weights": without_credentials(str(source)), "split": self.config.DATA.SPLIT}
        self.evaluation.write_intervals(self.record, "eval_intervals.json", facts)
        self.record.event("evaluation", {**facts, **self.evaluation.event_of(values)})
        self.observers.evaluated(0, 0, values)
        watchers.tell("evaluation_done", {"of": facts["weights"], "split": facts["split"]})
        self.record.say(line)
        return values

    def _without_score(self) -> str:
        number, folder = f"{len(self.evaluated):,} {self.task.sample_name}", self.record.folder / "predictions"
        return f"no score: the {number} of {self.config.DATA.SPLIT} have no labels; their predictions are in {folder}"

    def _saved_predictions(self) -> SavedPredictions:
        folder = Path(self.config.SAVE) / "predictions"
        writer = self.task.prediction_writer(folder, self.evaluated)
        if not writer.writes_evaluations:
            raise UserError(f"SAVE_PREDICTIONS: task {self.config.TASK} writes no predictions; leave it out")
        folder.mkdir(parents=True, exist_ok=True)
        return SavedPredictions(writer, folder, self.evaluation.loader.sampler.indices())

    # ---- training --------------------------------------------------------------------------------------------

    def train(self) -> dict[str, float]:
        """Train to NUM_EPOCHS (or STOP_AFTER_EPOCH) and return the last evaluation's values, equal on every rank."""
        seconds = self.config.STOP_AFTER_SECONDS
        with self.heartbeat.at("preparing the training"):
            training = self.training()
            with self._until_the_end():
                if seconds is not None:
                    signals.stop_after(seconds, f"-stop_after_seconds={seconds:g}")
                signals.note_only()
                return training.run()

    @contextlib.contextmanager
    def _until_the_end(self) -> Iterator[None]:
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
