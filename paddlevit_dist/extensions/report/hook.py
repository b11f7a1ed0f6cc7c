"""Write the figures and the report of a run, which continues and logs a line if an error occurs here."""

import contextlib
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import paddle

from ...core.checkpoint.load import load_weights
from ...core.distributed import all_gather, is_main
from ...core.engine.hooks import Hook
from ...core.engine.trainer import Trainer
from ...core.inference.figure_records import FigureRecorder, IndexedRecords
from ...core.runtime.errors import UserError
from ...core.tasks.aspects import get_aspect, has_aspect
from ...core.tasks.figures import Figure
from ...core.tasks.protocols import Reportable
from . import store
from .page import PAGE, write_page


class ReportHook(Hook):
    """Write the figures and the report of the best weights at the end of training."""

    def __init__(self, run: Trainer) -> None:
        self._run, self._task = run, run.task
        self._report = ReportWriter(run)
        self._recorder: FigureRecorder | None = None

    def before_evaluate(self, is_last: bool) -> FigureRecorder | None:
        """Collect the records of the last evaluation if the task has figures."""
        self._recorder = self._new_recorder() if is_last and has_aspect(self._task, Reportable) else None
        return self._recorder

    def after_train(self) -> None:
        """Write figures and report of the best weights."""
        checkpointer, ema = self._run.checkpointer, self._run.ema
        best = checkpointer.best
        if has_aspect(self._task, Reportable) and best is not None:
            if self._recorder is None or best["epoch"] != self._run.last_epoch:  # early stopping: the best is older
                self._write_best(checkpointer.folder / "best", best)
            else:
                with contextlib.nullcontext() if ema is None else ema.in_place():
                    self._report.write_figures(self._recorder, _collect_facts(best))
        self._report.write_page()

    def _new_recorder(self) -> FigureRecorder:
        return FigureRecorder(self._task, self._run.model, self._run.evaluator.loader.sampler.indices())

    def _write_best(self, checkpoint: Path, best: dict[str, Any]) -> None:
        with apply_weights(self._run.model, checkpoint) as is_loaded:
            if not is_loaded:
                self._run.run_log.log_and_print(
                    f"note: the report has no figures, since some process cannot read {checkpoint}"
                )
                return
            self._run.run_log.log_and_print(f"evaluating the best weights (epoch {best['epoch']}) again for the report")
            recorder = self._new_recorder()
            recorder.evaluate(self._run.evaluator)
            self._report.write_figures(recorder, _collect_facts(best))


class ReportWriter:
    """Write the report of a run and its figures; an error is logged and does not end the run."""

    def __init__(self, run: Trainer) -> None:
        self._run = run
        self._task, self._run_log, self._evaluator = run.task, run.run_log, run.evaluator

    def write_figures(self, recorder: FigureRecorder | None, facts: dict[str, Any]) -> None:
        """Build the figures and write them to the run's folder. Every rank must call this.

        ``recorder`` is the evaluation's, None for no figures; ``facts`` are plain values about it.
        """
        if recorder is None:
            return
        self._evaluator.heartbeat.at("building the report's figures")
        records, problems = recorder.gather()
        if not is_main():
            return
        for problem in problems[:1]:
            self._log_failure("its figures could not be built", problem)
        if not problems:
            try:
                self._save_figures(records, facts)
            except UserError as error:
                self._run_log.log_and_print(f"note: the report has no figures: {error}")
            except Exception:
                self._log_failure("its figures could not be built", traceback.format_exc())

    def _save_figures(self, records: IndexedRecords, facts: dict[str, Any]) -> None:
        reportable = get_aspect(self._task, Reportable)
        if reportable is None:
            return
        model, config, evaluator = self._run.model, self._run.config, self._evaluator
        was_training = model.training
        model.eval()
        with paddle.no_grad(), evaluator.precision.patch_forward(model):
            figures: Sequence[Figure] = reportable.figures(evaluator.samples, records, model)
        if was_training:
            model.train()
        about = {
            "task": config.TASK,
            "data": config.DATA.DATASET,
            "samples": len(evaluator.samples),
            **evaluator.precision.facts,
            "time": time.time(),
            **facts,
        }
        name = store.EVALUATION if config.EVAL else store.TRAINING
        for line in store.save(Path(config.SAVE, name), figures, about):
            self._run_log.log_and_print(f"note: {line}")

    def write_page(self) -> None:
        """Write ``report.html`` from the run's folder."""
        if not self._run_log.writes:
            return
        try:
            began = time.perf_counter()
            page = write_page([self._run_log.folder], self._run_log.folder / PAGE)
            line = f"report: {page} ({time.perf_counter() - began:.1f} s)"
            # The last line that an evaluation prints is its score, which scripts read.
            log = self._run_log.log if self._run.config.EVAL else self._run_log.log_and_print
            log(line)
        except UserError as error:
            self._run_log.log_and_print(f"note: no report was written: {error}")
        except Exception:
            self._log_failure("it could not be written", traceback.format_exc())

    def _log_failure(self, what: str, trace: str) -> None:
        reason = trace.strip().splitlines()[-1]
        self._run_log.log_and_print(
            f"note: the report: {what} ({reason}); the run is not affected, the traceback is in log.txt"
        )
        for line in trace.rstrip().splitlines():
            self._run_log.log(f"  {line}")


def write_evaluation_report(run: Trainer, recorder: FigureRecorder | None, facts: dict[str, Any]) -> None:
    """Write the figures and the report of a run that only evaluates. Every rank must call this.

    The run's score is already written. ``recorder`` is the evaluation's, None for no figures; ``facts`` are plain
    values about it.
    """
    report = ReportWriter(run)
    report.write_figures(recorder, facts)
    report.write_page()


def _collect_facts(best: dict[str, Any]) -> dict[str, Any]:
    value = {} if best["value"] is None else {best["name"]: best["value"]}
    return {"of": f"the best weights, of epoch {best['epoch']}", "split": "val", **value}


@contextlib.contextmanager
def apply_weights(model: paddle.nn.Layer, checkpoint: Path) -> Iterator[bool]:
    """Load a checkpoint's evaluated weights inside the block, and restore the model's weights afterwards.

    Yields whether all ranks could read the checkpoint. Every rank must call this.
    """
    saved = {key: value.detach().clone() for key, value in model.state_dict().items()}
    try:
        is_loaded = True
        try:
            load_weights(model, checkpoint, strict=True)
        except (UserError, OSError):
            is_loaded = False
        yield all(all_gather(is_loaded))
    finally:
        with paddle.no_grad():
            for name, tensor in model.state_dict().items():
                tensor.set_value(saved[name])
