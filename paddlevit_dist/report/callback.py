"""The report of a run and its figures: what is kept of an evaluation for them, and when they are made.

Whatever goes wrong in here costs the report its figures, and the run nothing but a line in its log.
"""

import contextlib
import pickle
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import paddle

from ..checkpoint.load import load_weights
from ..checkpoint.weights import evaluated_weights
from ..distributed import StopRequested, all_gather, is_main
from ..engine.evaluation import Evaluator
from ..engine.trainer import Trainer
from ..runtime.errors import UserError
from ..tasks.callback import Callback
from ..tasks.figures import Figure
from ..tasks.task import EvaluationStep, Records, Task
from . import store
from .page import PAGE, write_page

IndexedRecords = list[tuple[int, Any]]  # index of a sample and its record


class HostArrays(Mapping):
    """A batch as numpy arrays; each is copied from the device when it is asked for."""

    def __init__(self, batch: dict[str, Any]) -> None:
        self._batch = batch

    def __getitem__(self, name: str) -> Any:
        value = self._batch[name]
        return value.numpy() if isinstance(value, paddle.Tensor) else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._batch)

    def __len__(self) -> int:
        return len(self._batch)


class RecordKeeper:
    """Keeps on this rank what figures need to know of an evaluation.

    Args:
        indices: of this rank's samples, in the order in which they are evaluated.
    """

    def __init__(self, task: Task, indices: Sequence[int]) -> None:
        self.task = task
        self.indices = indices
        self._records: list[Records] = []
        self._problem: str | None = None

    def add(self, model: paddle.nn.Layer, batch: dict[str, Any], given: Records | None) -> None:
        """Keep the records of a batch.

        Args:
            given: what ``eval_step`` returned for it; None: the batch is predicted once more.
        """
        if self._problem is None:
            try:
                self._records.append(self._predicted(model, batch) if given is None else given)
            except Exception:
                self._problem = traceback.format_exc()

    def evaluate(self, evaluation: Evaluator) -> None:
        """Evaluate this rank's samples for their records alone; communicates nothing and raises nothing."""
        model = evaluation.model
        was_training = model.training
        model.eval()
        try:
            step = EvaluationStep(self.task.build_metrics(), keeps_records=True)
            batches = contextlib.closing(evaluation.batches("evaluation for the report", step))
            with paddle.no_grad(), evaluation.precision.patch_forward(model), batches as evaluated:
                for batch, records in evaluated:
                    self.add(model, batch, records)
        except StopRequested:
            self._problem = "the run was asked to stop"
        except Exception:
            self._problem = traceback.format_exc()
        if was_training:
            model.train()

    def _predicted(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> Records:
        records = list(self.task.figure_records(HostArrays(batch), self.task.predict_step(model, batch)))
        return lambda: records

    def gather(self) -> tuple[IndexedRecords, list[str]]:
        """The records of all ranks by index, on the main process, and tracebacks of what went wrong. Every rank must
        call this, once."""
        message: Any = None
        try:
            if self._problem is None:
                message = pickle.dumps(self._keep(), pickle.HIGHEST_PROTOCOL)
        except Exception:
            self._problem = traceback.format_exc()
        self._records = []
        gathered = all_gather((message, self._problem))
        problems = [problem for _, problem in gathered if problem is not None]
        if problems or not is_main():
            return [], problems
        # Only the main process takes the time to read what all have received.
        return sorted((kept for part, _ in gathered for kept in pickle.loads(part)), key=lambda kept: kept[0]), []

    def _keep(self) -> IndexedRecords:
        records = [record for records in self._records for record in records()]
        if len(records) != len(self.indices):
            raise ValueError(f"{len(records)} records were made for the figures of {len(self.indices)} samples")
        return [(index, record) for index, record in zip(self.indices, records) if record is not None]


class ReportCallback(Callback):
    """Writes the figures and the report at the end of a run: of an evaluation, or of the weights that a training's best
    evaluation was of. Every rank has one.
    """

    on_every_rank = True

    def __init__(self, run: Trainer) -> None:
        self._run = run
        self._task, self._record, self._evaluation = run.task, run.record, run.evaluation
        self._keeper: RecordKeeper | None = None

    def evaluation_started(self, is_shown: bool) -> None:
        self._keeper = self._new_keeper() if is_shown and self._task.makes_figures else None
        self.wants_records = self._keeper is not None

    def batch_evaluated(self, batch: dict[str, Any], records: Records | None) -> None:
        if self._keeper is not None:
            self._keeper.add(self._run.model, batch, records)

    def evaluation_done(self, facts: dict[str, Any]) -> None:
        self._write_figures(self._keeper, facts)
        self._write_page()

    def training_done(self) -> None:
        checkpointer, ema = self._run.checkpointer, self._run.ema
        best = checkpointer.best
        if self._task.makes_figures and best is not None:
            if self._keeper is None or best["epoch"] != self._run.last_epoch:  # or it has ended early
                self._write_best(checkpointer.folder / "best", best)
            else:
                with contextlib.nullcontext() if ema is None else ema.in_place():
                    self._write_figures(self._keeper, _collect_facts(best))
        self._write_page()

    def _new_keeper(self) -> RecordKeeper:
        return RecordKeeper(self._task, [key.index for keys in self._evaluation.loader.sampler for key in keys])

    def _write_best(self, checkpoint: Path, best: dict[str, Any]) -> None:
        with apply_weights(self._run.model, checkpoint) as is_loaded:
            if not is_loaded:
                self._record.log_and_print(
                    f"note: the report shows no figures: {checkpoint} cannot be read by every process"
                )
                return
            self._record.log_and_print(
                f"the report shows the best weights, of epoch {best['epoch']}: evaluating them once more"
            )
            keeper = self._new_keeper()
            keeper.evaluate(self._evaluation)
            self._write_figures(keeper, _collect_facts(best))

    def _write_figures(self, keeper: RecordKeeper | None, facts: dict[str, Any]) -> None:
        """Make the figures and write them to the run's folder. Every rank must call this.

        Args:
            keeper: of the evaluation; None: nothing is made.
            facts: plain values that tell what was evaluated.
        """
        if keeper is None:
            return
        self._evaluation.heartbeat.at("making the report's figures")
        kept, problems = keeper.gather()
        if not is_main():
            return
        for problem in problems[:1]:
            self._fail("its figures could not be made", problem)
        if not problems:
            try:
                self._save_figures(kept, facts)
            except UserError as error:
                self._record.log_and_print(f"note: the report lacks its figures: {error}")
            except Exception:
                self._fail("its figures could not be made", traceback.format_exc())

    def _save_figures(self, kept: IndexedRecords, facts: dict[str, Any]) -> None:
        model, config, evaluation = self._run.model, self._run.config, self._evaluation
        was_training = model.training
        model.eval()
        with paddle.no_grad(), evaluation.precision.patch_forward(model):
            figures: Sequence[Figure] = self._task.figures(evaluation.samples, kept, model)
        if was_training:
            model.train()
        about = {
            "task": config.TASK,
            "data": config.DATA.DATASET,
            "samples": len(evaluation.samples),
            **evaluation.precision.facts,
            "time": time.time(),
            **facts,
        }
        name = store.EVALUATION if config.EVAL else store.TRAINING
        for line in store.save(Path(config.SAVE, name), figures, about):
            self._record.log_and_print(f"note: {line}")

    def _write_page(self) -> None:
        """Write ``report.html`` of what the run's folder holds now."""
        if not self._record.writes:
            return
        try:
            began = time.perf_counter()
            page = write_page([self._record.folder], self._record.folder / PAGE)
            self._record.log_and_print(f"report: {page} ({time.perf_counter() - began:.1f} s)")
        except UserError as error:
            self._record.log_and_print(f"note: no report was written: {error}")
        except Exception:
            self._fail("it could not be written", traceback.format_exc())

    def _fail(self, what: str, trace: str) -> None:
        reason = trace.strip().splitlines()[-1]
        self._record.log_and_print(
            f"note: the report: {what} ({reason}); the run is not affected, the traceback is in log.txt"
        )
        for line in trace.rstrip().splitlines():
            self._record.log(f"  {line}")


def _collect_facts(best: dict[str, Any]) -> dict[str, Any]:
    return {"of": f"the best weights, of epoch {best['epoch']}", best["name"]: best["value"]}


@contextlib.contextmanager
def apply_weights(model: paddle.nn.Layer, checkpoint: Path) -> Iterator[bool]:
    """Inside the block the model has the weights of a checkpoint that count in an evaluation, afterwards its own; False
    where one of the ranks cannot read that checkpoint. Every rank must call this."""
    own = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    try:
        is_loaded = True
        try:
            load_weights(model, evaluated_weights(checkpoint), strict=True)
        except (UserError, OSError):
            is_loaded = False
        yield all(all_gather(is_loaded))
    finally:
        with paddle.no_grad():
            for name, tensor in model.state_dict().items():
                tensor.set_value(own[name])
