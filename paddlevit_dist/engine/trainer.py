"""A run of one task: its model, its record, and either an evaluation or training."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Sequence

import paddle

from .. import signals
from ..checkpoint import store as checkpoints
from ..checkpoint.load import load_weights
from ..checkpoint.weights import evaluated_weights
from ..config import dump_yaml
from ..contracts.adapter import adopt
from ..contracts.dataset import Samples
from ..contracts.task import PredictionWriter, Task
from ..errors import Stopped, UserError
from ..loading.loader import Loader
from ..loading.sampler import EvaluationSampler
from ..observe.heartbeat import Heartbeat
from ..observe.observer import FAILED, FINISHED, STOPPED, Observers, RunFacts, make_observers
from ..observe.progress import Progress
from ..observe.record import RunRecord
from ..parallel import LeftEarly, gpu, is_main, rank, set_batch_norm_momentum, tuning, world_size
from ..parallel.devices import cpu_cores, default_workers
from ..printing import without_credentials
from ..transfers import is_on_gpu
from . import about, gpu_memory
from .figure_maker import FigureMaker, RecordKeeper
from .introduction import first_lines
from .machines import require_same_everywhere
from .passes import compile_model
from .precision import EvaluationPrecision
from .samples_check import require_not_trained_on
from .schedule import effective_batch_size
from .steps import evaluate
from .training import Training


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
        datasets: Dict[str, Any],
        notices: Sequence[str] = (),
        observers: Sequence[Any] = (),
    ) -> None:
        self.config = config
        self.task = adopt(task, Task)
        self.datasets = {split: adopt(samples, Samples) for split, samples in datasets.items()}
        notices = [*notices, *task.notices, *(line for samples in datasets.values() for line in samples.notices)]
        self.evaluation_precision = EvaluationPrecision(config)
        notices.extend(filter(None, [self.evaluation_precision.notice]))
        self.record = RunRecord(Path(config.SAVE), is_main())
        named = make_observers(() if config.EVAL else config.LOG_TO) if is_main() else []
        self.observers = Observers([*named, *observers] if is_main() else [], self.record.say)
        self.folder = Path(config.SAVE) / "checkpoints"
        for line in [*first_lines(config, task, datasets), *dict.fromkeys(notices)]:
            self.record.say(line)
        gpu.prepare(config.TRAIN.TF32, config.DETERMINISTIC, task.fixed_shapes)
        require_same_everywhere(config, self.task, self.datasets)
        paddle.seed(config.SEED)  # initial weights: the same on all ranks and for any number of them
        self.heartbeat = Heartbeat(self.record.say, shown=self.record.writes)
        with self.heartbeat.at("building the model"):
            told = len(task.notices)
            self.model = task.build_model()
        for line in task.notices[told:]:  # such as where parts of it come from
            self.record.say(line)
        momentum = config.TRAIN.BATCH_NORM_MOMENTUM
        if momentum is not None and not set_batch_norm_momentum(self.model, momentum):
            raise UserError(
                f"TRAIN.BATCH_NORM_MOMENTUM {momentum}: {config.MODEL.NAME} has no batch norm; leave it out"
            )
        workers = config.DATA.NUM_WORKERS
        self._num_workers = default_workers(world_size(), cpu_cores()) if workers is None else workers
        self.evaluated = self.datasets[config.DATA.SPLIT if config.EVAL else "val"]
        # What stands beside a score.
        self.evaluation_facts = dict(self.evaluation_precision.facts)
        if self.evaluated.without:
            self.evaluation_facts["without"] = self.evaluated.without
        self.val_loader = self._loader(
            self.evaluated,
            EvaluationSampler(
                self.evaluated,
                config.DATA.BATCH_SIZE_EVAL or config.DATA.BATCH_SIZE,
                rank=rank(),
                world_size=world_size(),
            ),
            task.collate,
        )
        self.figures = FigureMaker(config, task, self.evaluated, self.val_loader, self.record, self.heartbeat.at)

    def _start_record(self) -> None:
        """Write configuration and run record: only once the run is sure to continue, so as not to replace another's."""
        tuned = None
        if self.record.writes and self.config.CPU_TUNING:
            tuned = gpu.check_product() if is_on_gpu() else tuning.check_product()
            tuning.check_copies()
        facts = {
            "processes": world_size(),
            "device": paddle.get_device().split(":")[0],
            "seed": self.config.SEED,
            "effective_batch": effective_batch_size(self.config, world_size()),
            "product_check": tuned,
            "gpu": gpu.settings(),
            "data": {split: self._about(samples) for split, samples in self.datasets.items()},
        }
        self.record.start(dump_yaml(self.config), facts, self.config.EVAL)

    def _about(self, samples: Samples) -> Dict[str, Any]:
        """What a report says of a split: how many samples, and what was found when it was opened."""
        classes = self.task.about_data(samples).get("number of classes")
        return {"holds": self.task.describe_samples(samples), "classes": classes, "notes": list(samples.notices)}

    # ---- evaluation ------------------------------------------------------------------------------------------

    def evaluate_only(self) -> Dict[str, float]:
        """Load the named weights completely, evaluate once, print the result as the last line."""
        with self._until_the_end():
            return self._evaluate_only()

    def _evaluate_only(self) -> Dict[str, float]:
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
        self._start_record()
        self.observers.start(RunFacts(self.record.folder, self.config, dump_yaml(self.config), trains=False))
        self.record.file("eval_load_report.json", report.json())
        self.record.say(f"weights {source}: {report.summary()}")
        for line in differences:
            self.record.say(line)
        labelled = self.evaluated.labelled
        writer = self._prediction_writer() if self.config.SAVE_PREDICTIONS or not labelled else None
        keeper = self.figures.keeper() if labelled else None
        try:
            with self.heartbeat.at("evaluating"):
                values, line = self._evaluate("evaluation", writer, keeper=keeper)
        except LeftEarly as left:  # the signal came while code ran in which its exception was lost
            raise signals.Interrupted(signals.number() or signal.SIGTERM) from left
        for said in writer.finish() if writer else ():
            self.record.say(said)
        if not labelled:
            values, line = {}, self._without_score()
        facts = {"weights": without_credentials(str(source)), "split": self.config.DATA.SPLIT}
        facts.update(self.evaluation_facts)
        self.record.event("evaluation", {**facts, **values})
        self.observers.evaluated(0, 0, values)
        self.figures.write(self.model, keeper, {"of": facts["weights"], "split": facts["split"]})
        self.figures.write_page()
        self.record.say(line)
        return values

    def _without_score(self) -> str:
        number, folder = f"{len(self.evaluated):,} {self.task.sample_name}", self.record.folder / "predictions"
        return f"no score: the {number} of {self.config.DATA.SPLIT} have no labels; their predictions are in {folder}"

    def _prediction_writer(self) -> PredictionWriter:
        folder = Path(self.config.SAVE) / "predictions"
        writer = self.task.prediction_writer(folder)
        folder.mkdir(parents=True, exist_ok=True)
        return writer

    def _evaluate(
        self,
        label: str,
        writer: Optional[PredictionWriter] = None,
        epoch: Optional[int] = None,
        keeper: Optional[RecordKeeper] = None,
    ):
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
            memory = gpu_memory.explained(gpu_memory.of_evaluation(self.config))
            with memory, self.evaluation_precision.forward_of(self.model):
                values, line = evaluate(
                    self.task, self.model, self.val_loader, count, writer=writer, epoch=epoch, keeper=keeper
                )
            return values, " ".join([line, *(f"({fact})" for fact in self.evaluation_facts.values())])
        finally:
            bar.close()

    # ---- training --------------------------------------------------------------------------------------------

    def train(self) -> Dict[str, float]:
        """Train to NUM_EPOCHS (or STOP_AFTER_EPOCH) and return the last evaluation's values, equal on every rank."""
        with self.heartbeat.at("preparing the training"):
            training = self.training()
            with self._until_the_end():
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

    def _start_observers(self, training: Training) -> None:
        self.observers.start(
            RunFacts(
                self.record.folder,
                self.config,
                dump_yaml(self.config),
                trains=True,
                epochs=self.config.TRAIN.NUM_EPOCHS,
                updates_per_epoch=training.updates_per_epoch,
                update=training.schedule.update,
            )
        )

    def training(self) -> Training:
        """A training run of the model, positioned by -resume and -pretrained."""
        return Training(
            self.config,
            self.task,
            self.datasets,
            self.model,
            record=self.record,
            start_record=self._start_record,
            heartbeat=self.heartbeat,
            make_loader=self._loader,
            evaluate=self._evaluate,
            evaluation_facts=self.evaluation_facts,
            figures=self.figures,
            observers=self.observers,
            start_observers=self._start_observers,
        )

    def _loader(self, samples: Any, sampler: Any, collate: Any) -> Loader:
        data = self.config.DATA
        return Loader(
            samples,
            sampler,
            collate,
            check=self.task.check_sample,
            num_workers=self._num_workers,
            prefetch=data.PREFETCH,
            seed=self.config.SEED,
            timeout_seconds=data.LOADER_TIMEOUT_SECONDS,
        )
