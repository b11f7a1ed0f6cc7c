"""The figures of a run's report: what is kept of an evaluation for them, and when they are made.

Whatever goes wrong in here costs the report its figures, and the run nothing but a line in its log.
"""

from __future__ import annotations

import contextlib
import pickle
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import paddle

from ..checkpoint.load import load_weights
from ..checkpoint.weights import evaluated_weights
from ..contracts.figures import Figure
from ..contracts.task import EvaluationStep, Records, Task
from ..errors import UserError
from ..observe.progress import Progress
from ..observe.record import RunRecord
from ..observe.report import PAGE, store, write_page
from ..parallel import LeftEarly, all_gather, is_main, stops
from .precision import EvaluationPrecision

Kept = List[Tuple[int, Any]]  # index of a sample and its record


class HostArrays(Mapping):
    """A batch as numpy arrays; each is copied from the device when it is asked for."""

    def __init__(self, batch: Dict[str, Any]) -> None:
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
        self._records: List[Records] = []
        self._problem: Optional[str] = None

    def add(self, model: paddle.nn.Layer, batch: Dict[str, Any], given: Optional[Records]) -> None:
        """Keep the records of a batch.

        Args:
            given: what ``eval_step`` returned for it; None: the batch is predicted once more.
        """
        if self._problem is None:
            try:
                self._records.append(self._predicted(model, batch) if given is None else given)
            except Exception:
                self._problem = traceback.format_exc()

    def evaluate(self, model: paddle.nn.Layer, loader: Any, at: Callable[[str], Any]) -> None:
        """Evaluate all batches for their records alone; communicates nothing and raises nothing."""
        was_training = model.training
        model.eval()
        bar = Progress(len(loader), "evaluation for the report", is_main())
        try:
            step = EvaluationStep(self.task.build_metrics(), keeps_records=True)
            with paddle.no_grad(), contextlib.closing(iter(loader)) as batches:
                for number, batch in enumerate(batches, start=1):
                    self.add(model, batch, self.task.eval_step(model, batch, step))
                    bar.step()
                    at(f"in the evaluation for the report, {number} of {len(loader)} batches done")
                    if stops.wanted():
                        raise LeftEarly("the run was asked to stop")
        except Exception:
            self._problem = traceback.format_exc()
        finally:
            bar.close()
            if was_training:
                model.train()

    def _predicted(self, model: paddle.nn.Layer, batch: Dict[str, Any]) -> Records:
        records = list(self.task.figure_records(HostArrays(batch), self.task.predict_step(model, batch)))
        return lambda: records

    def gather(self) -> Tuple[Kept, List[str]]:
        """The records of all ranks by index, on the main process, and tracebacks of what went wrong. Every rank must
        call this, once."""
        message: Any = None
        try:
            if self._problem is None:
                message = pickle.dumps(self._kept(), pickle.HIGHEST_PROTOCOL)
        except Exception:
            self._problem = traceback.format_exc()
        self._records = []
        gathered = all_gather((message, self._problem))
        problems = [problem for _, problem in gathered if problem is not None]
        if problems or not is_main():
            return [], problems
        # Only the main process takes the time to read what all have received.
        return sorted((kept for part, _ in gathered for kept in pickle.loads(part)), key=lambda kept: kept[0]), []

    def _kept(self) -> Kept:
        records = [record for records in self._records for record in records()]
        if len(records) != len(self.indices):
            raise ValueError(f"{len(records)} records were made for the figures of {len(self.indices)} samples")
        return [(index, record) for index, record in zip(self.indices, records) if record is not None]


class FigureMaker:
    """Makes figures of evaluations, and writes them and the report. Every rank has one.

    Args:
        samples: what is evaluated.
        loader: this rank's batches of them.
        at: names what the run is doing, for its heartbeat.
    """

    def __init__(
        self,
        config: Any,
        task: Task,
        samples: Any,
        loader: Any,
        record: RunRecord,
        at: Callable[[str], Any],
    ) -> None:
        self.config = config
        self.task = task
        self.samples = samples
        self.record = record
        self.loader = loader
        self.at = at
        self.precision = EvaluationPrecision(config)

    def keeper(self) -> Optional[RecordKeeper]:
        """What keeps the records of an evaluation of which figures are to be made; None where none are."""
        if not self.config.REPORT or not self.task.makes_figures:
            return None
        return RecordKeeper(self.task, [key.index for keys in self.loader.sampler for key in keys])

    def write(self, model: paddle.nn.Layer, keeper: Optional[RecordKeeper], about: Dict[str, Any]) -> None:
        """Make the figures and write them to the run's folder. Every rank must call this.

        Args:
            keeper: of the evaluation; None: nothing is made.
            about: plain values that tell what was evaluated.
        """
        if keeper is None:
            return
        self.at("making the report's figures")
        kept, problems = keeper.gather()
        if not is_main():
            return
        for problem in problems[:1]:
            self._fail("its figures could not be made", problem)
        if not problems:
            try:
                self._write(model, kept, about)
            except UserError as error:
                self.record.say(f"note: the report lacks its figures: {error}")
            except Exception:
                self._fail("its figures could not be made", traceback.format_exc())

    def _write(self, model: paddle.nn.Layer, kept: Kept, about: Dict[str, Any]) -> None:
        was_training = model.training
        model.eval()
        with paddle.no_grad(), self.precision.forward_of(model):
            figures: Sequence[Figure] = self.task.figures(self.samples, kept, model)
        if was_training:
            model.train()
        name = store.EVALUATION if self.config.EVAL else store.TRAINING
        facts = {
            "task": self.config.TASK,
            "data": self.config.DATA.DATASET,
            "samples": len(self.samples),
            **self.precision.facts,
        }
        for line in store.save(Path(self.config.SAVE, name), figures, {**facts, "time": time.time(), **about}):
            self.record.say(f"note: {line}")

    def write_page(self) -> None:
        """Write ``report.html`` of what the run's folder holds now."""
        if not self.config.REPORT or not self.record.writes:
            return
        try:
            began = time.perf_counter()
            page = write_page([self.record.folder], self.record.folder / PAGE)
            self.record.say(f"report: {page} ({time.perf_counter() - began:.1f} s)")
        except UserError as error:
            self.record.say(f"note: no report was written: {error}")
        except Exception:
            self._fail("it could not be written", traceback.format_exc())

    def _fail(self, what: str, trace: str) -> None:
        reason = trace.strip().splitlines()[-1]
        self.record.say(f"note: the report: {what} ({reason}); the run is not affected, the traceback is in log.txt")
        for line in trace.rstrip().splitlines():
            self.record.log(f"  {line}")


@contextlib.contextmanager
def weights_of(model: paddle.nn.Layer, checkpoint: Path) -> Iterator[bool]:
    """Inside the block the model has the weights of a checkpoint that count in an evaluation, afterwards its own; or
    its own in any case, where one of the ranks cannot read that checkpoint (False). Every rank must call this."""
    own = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    try:
        try:
            load_weights(model, evaluated_weights(checkpoint), strict=True)
            is_loaded = True
        except (UserError, OSError):
            is_loaded = False
        is_loaded = all(all_gather(is_loaded))
        if not is_loaded:
            _put_back(model, own)
        yield is_loaded
    finally:
        _put_back(model, own)


def _put_back(model: paddle.nn.Layer, state: Dict[str, paddle.Tensor]) -> None:
    with paddle.no_grad():
        for name, tensor in model.state_dict().items():
            tensor.set_value(state[name])


class BestFigures:
    """The figures of a training: of the weights that its best evaluation was of. Every rank has one."""

    def __init__(self, maker: FigureMaker, model: paddle.nn.Layer) -> None:
        self.maker = maker
        self.model = model
        self._of_last: Optional[RecordKeeper] = None

    def keeper(self, is_last: bool) -> Optional[RecordKeeper]:
        """For an evaluation of the weights that count; only the training's last is kept."""
        self._of_last = self.maker.keeper() if is_last else None
        return self._of_last

    def write(self, checkpoints: Path, best: Optional[Dict[str, Any]], last_epoch: int, last_weights: Any) -> None:
        """Write figures and report at the end of a training. Every rank must call this.

        Args:
            checkpoints: the folder with the link ``best``.
            best: "epoch", "name" and "value" of the best evaluation.
            last_weights: makes a context in which the model has the weights of the last evaluation.
        """
        if self._of_last is not None and best is not None:
            if best["epoch"] != last_epoch:
                self._write_best(self.maker, checkpoints / "best", best)
            else:
                with last_weights():
                    self.maker.write(self.model, self._of_last, self._about(best))
        self.maker.write_page()

    def _write_best(self, maker: FigureMaker, checkpoint: Path, best: Dict[str, Any]) -> None:
        record = maker.record
        with weights_of(self.model, checkpoint) as is_loaded:
            if not is_loaded:
                record.say(f"note: the report shows no figures: {checkpoint} cannot be read by every process")
                return
            record.say(f"the report shows the best weights, of epoch {best['epoch']}: evaluating them once more")
            keeper = maker.keeper()
            if keeper is not None:
                with maker.precision.forward_of(self.model):
                    keeper.evaluate(self.model, maker.loader, maker.at)
            maker.write(self.model, keeper, self._about(best))

    def _about(self, best: Dict[str, Any]) -> Dict[str, Any]:
        return {"of": f"the best weights, of epoch {best['epoch']}", best["name"]: best["value"]}
