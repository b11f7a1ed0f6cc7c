"""Records of the evaluated samples, from which the figures of a report are made."""

import contextlib
import pickle
import traceback
from collections.abc import Sequence
from typing import Any

import paddle

from ..distributed import StopRequested, all_gather, is_main
from ..engine.evaluation import EvaluationObserver, Evaluator
from ..tasks.step_types import EvaluationStep
from ..tasks.task import Records, Task
from ..tasks.task_factory import build_metrics

IndexedRecords = list[tuple[int, Any]]  # index of a sample and its record


class FigureRecorder(EvaluationObserver):
    """Collects this rank's records for figures, ``indices`` in order; an exception in it does not end the run."""

    wants_records = True

    def __init__(self, task: Task, model: paddle.nn.Layer, indices: Sequence[int]) -> None:
        self.task = task
        self.model = model
        self.indices = indices
        self._records: list[Records] = []
        self._problem: str | None = None

    def after_batch(self, batch: dict[str, Any], records: Records | None) -> None:
        """Add the records of a batch. ``batch``: of samples; ``records``: from ``eval_step``."""
        if records is None:
            self._problem = self._problem or "eval_step returned no records, although step.keeps_records was set"
        else:
            self._records.append(records)

    def evaluate(self, evaluator: Evaluator) -> None:
        """Evaluate this rank's samples to collect their records. Neither communicates nor raises exceptions."""
        was_training = self.model.training
        self.model.eval()
        try:
            step = EvaluationStep(build_metrics(self.task), keeps_records=True)
            batches = contextlib.closing(evaluator.batches("evaluation for the report", step))
            with paddle.no_grad(), evaluator.precision.patch_forward(self.model), batches as evaluated:
                for batch, records in evaluated:
                    self.after_batch(batch, records)
        except StopRequested:
            self._problem = "the run was stopped"
        except Exception:
            self._problem = traceback.format_exc()
        if was_training:
            self.model.train()

    def gather(self) -> tuple[IndexedRecords, list[str]]:
        """Gather all ranks' records, sorted by index, and tracebacks on the main process. Every rank must call this."""
        message: bytes | None = None
        try:
            if self._problem is None:
                records = [record for source in self._records for record in source()]
                if len(records) != len(self.indices):
                    raise ValueError(f"eval_step returned {len(records)} records for {len(self.indices)} samples")
                indexed = [(index, record) for index, record in zip(self.indices, records) if record is not None]
                message = pickle.dumps(indexed, pickle.HIGHEST_PROTOCOL)
        except Exception:
            self._problem = traceback.format_exc()
        self._records = []
        gathered = all_gather((message, self._problem))
        problems = [problem for _, problem in gathered if problem is not None]
        if problems or not is_main():
            return [], problems
        # Only the main process needs to unpickle the records.
        return sorted(record for part, _ in gathered for record in pickle.loads(part)), []
