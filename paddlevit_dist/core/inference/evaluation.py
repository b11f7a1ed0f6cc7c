"""Evaluation-only runs (EVAL): load weights, score one split, and save predictions."""

import shutil
import signal
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, cast

import paddle

from ..checkpoint import store as checkpoint_store
from ..checkpoint.load import load_weights
from ..checkpoint.weight_files import evaluated_weights
from ..distributed import StopRequested, barrier, is_main, rank, world_size
from ..engine.class_names import compare_classes, find_class_names
from ..engine.compatibility import CheckpointDiff
from ..engine.evaluation import EvaluationObserver
from ..engine.precision import compile_model
from ..engine.startup_log import start_run_log
from ..engine.trainer import Trainer
from ..logging.record import SCORES
from ..metrics.classification import ClassifierTask
from ..registry.extension_points import LOAD_COMPARISON_WEIGHTS, WRITE_EVALUATION_REPORT
from ..registry.lookup import build_set
from ..registry.names import REGISTRY
from ..runtime import signals
from ..runtime.errors import UserError
from ..runtime.files import os_errors_as_user_errors, remove_temporary_files
from ..runtime.ordered_lines import LineWriter, merge
from ..runtime.printing import without_credentials
from ..tasks.aspects import get_aspect, has_aspect
from ..tasks.callback import RunFacts
from ..tasks.prediction import UNFINISHED, PredictionRecord, PredictionWriter
from ..tasks.protocols import LogContributor, Predictable, Reportable, count_samples
from .figure_records import FigureRecorder

_INTERVALS = "eval_intervals.json"


def evaluate_only(run: Trainer) -> dict[str, float]:
    """Load the configured weights, evaluate once, log the score, write the report, and return the values.

    Every rank must call this, and gets the same values. Raises UserError if the weights do not exist, or do not fit the
    model or the data.
    """
    with run.callbacks.notified_of_end():
        config, run_log, labeled = run.config, run.run_log, run.eval_dataset.labeled
        load: Callable[[Trainer, Any], tuple[str | Path, list[str]]] = load_evaluated_weights
        if config.get("EXPORTED"):
            load = LOAD_COMPARISON_WEIGHTS.require()
        source, lines = load(run, run.model)
        start_run_log(config, run_log, run.task, run.datasets)
        is_reported = bool(config.get("REPORT"))
        has_figures = is_reported and labeled and has_aspect(run.task, Reportable)
        recorder = FigureRecorder(run.task, run.model, run.evaluator.loader.sampler.indices()) if has_figures else None
        run.callbacks.start(RunFacts(run_log.folder, config, trains=False))
        for line in lines:
            run_log.log_and_print(line)
        writer = _build_prediction_writer(run) if config.SAVE_PREDICTIONS or not labeled else None
        run.on_weights_loaded()
        observers = [*([recorder] if recorder else []), *build_set(REGISTRY.observers, run)]
        try:
            with run.heartbeat.at("evaluating"):
                values, line = run.evaluator("evaluation", writer, observers=observers)
        except StopRequested as error:  # code that ignores exceptions ran when the signal came
            raise signals.ProcessInterrupted(signals.number() or signal.SIGTERM) from error
        log = get_aspect(run.task, LogContributor) if is_main() else None
        task_lines = log.evaluation_lines() if log else ()
        for message in [*(writer.finish() if writer else ()), *task_lines]:
            run_log.log_and_print(message)
        split = config.DATA.SPLIT
        if not labeled:
            number, folder = count_samples(run.task, run.eval_dataset), run_log.folder / "predictions"
            values, line = {}, f"no score: the {number} of {split} have no labels; their predictions are in {folder}"
        weights = without_credentials(str(source))
        warnings = [note for note in lines if note.startswith("note: ")]
        notes = {"notes": warnings} if warnings else {}
        facts = {"weights": weights, "split": split, **notes}
        run.evaluator.write_scores(run_log, f"eval_{SCORES}")
        run.evaluator.write_intervals(run_log, _INTERVALS, facts)
        event = run.evaluator.build_event(values)
        run_log.event("evaluation", {**facts, **event})
        run.callbacks.evaluated(0, 0, values, event)
        _finish_observers(run, observers, values, {"of": weights, "split": split}, line)
        run.evaluator.write_sample_table(run_log, _INTERVALS, facts)
        if is_reported:
            WRITE_EVALUATION_REPORT.require()(run, recorder, {"of": weights, "split": split})
        return values


def _finish_observers(
    run: Trainer, observers: Sequence[EvaluationObserver], values: dict[str, float], facts: dict[str, str], line: str
) -> None:
    """Let observers write their files, and log ``line``, the result, also if a file cannot be written."""
    try:
        table = run.evaluator.table
        warning = table and table.small_sample_warning(run.evaluator.intervals, values)
        if warning:
            run.run_log.log_and_print(f"note: {warning}")
        for observer in observers:
            observer.after_evaluate(facts)
    finally:
        run.run_log.log_and_print(line)


def _find_source(run: Trainer) -> str | Path:
    model = run.config.MODEL
    source: str | Path | None = model.PRETRAINED
    if source is None:
        source = checkpoint_store.resolve(cast(str, model.RESUME), run.folder, run.run_log.log_and_print)
        if source is None:
            raise UserError(f"-resume=auto: no checkpoint in {run.folder} to evaluate")
    return evaluated_weights(source)


def load_evaluated_weights(run: Trainer, model: paddle.nn.Layer) -> tuple[str | Path, list[str]]:
    """Load the configured weights; return their path and log lines, and write ``eval_load_report.json``.

    Raises UserError if they do not exist or do not fit the model or the data.
    """
    config, task, source = run.config, run.task, _find_source(run)
    diff = CheckpointDiff("evaluate", source, config, task)
    lines = [*diff.settings(), *diff.input()]
    part, is_partial = config.MODEL.PRETRAINED_PART, config.ALLOW_CHANGES
    samples = run.eval_dataset
    names = find_class_names(task, samples, str(source)) if samples.labeled else None
    names = names and names._replace(is_evaluated=True)
    options: dict[str, Any] = {"allow_unused": is_partial, "part": part, "class_names": names}
    report = load_weights(model, source, strict=True, follows=True, **options)
    lines += [*compare_classes(diff, samples, names, report), *diff.files(config.DATA.SPLIT, samples)]
    if report.outputs and isinstance(task, ClassifierTask):
        task.evaluated_classes = report.outputs
    compile_model(config, task, model)
    run.run_log.file("eval_load_report.json", report.json())
    return source, [f"weights {source}: {report.summary()}", *lines]


def _build_prediction_writer(run: Trainer) -> "SavedPredictions":
    folder = Path(run.config.SAVE) / "predictions"
    predicting = get_aspect(run.task, Predictable)
    writer = predicting.prediction_writer(folder, run.eval_dataset) if predicting else PredictionWriter()
    if not writer.writes_evaluations:
        raise UserError(f"SAVE_PREDICTIONS: task {run.config.TASK} does not write predictions; remove SAVE_PREDICTIONS")
    folder.mkdir(parents=True, exist_ok=True)
    return SavedPredictions(writer, folder, run.evaluator.loader.sampler.indices())


class SavedPredictions:
    """Writer of this rank's predictions in an evaluation. Every rank has to create one at the same time.

    ``folder`` exists; ``indices`` are this rank's samples, in the order of evaluation. Raises UserError if the folder
    cannot be written.
    """

    def __init__(self, writer: PredictionWriter, folder: Path, indices: Iterable[int]) -> None:
        self._writer, self._indices = writer, iter(indices)
        self._unfinished = folder / UNFINISHED
        if is_main():
            with os_errors_as_user_errors(self._unfinished):
                shutil.rmtree(self._unfinished, ignore_errors=True)
                self._unfinished.mkdir()
        barrier()
        self._entries = LineWriter(self._get_file(rank()))

    def _get_file(self, number: int) -> Path:
        return self._unfinished / f"entries-{number:04d}.jsonl"

    def add(self, predictions: Sequence[Any], truths: Iterable[Any] = repeat(None)) -> None:
        """Write the predictions for the samples of a batch, in its order, with their ``truths`` if known."""
        for prediction, truth in zip(predictions, truths):
            index = next(self._indices)
            self._writer.write(index, prediction, truth)
            self._entries.add([PredictionRecord(index, [], summary=self._writer.summarize(index, prediction, truth))])

    def finish(self) -> list[str]:
        """Write the files of all ranks, and return lines for the log. Every rank calls this after its last batch."""
        self._entries.close()
        barrier()
        if not is_main():
            return []
        entries = (PredictionRecord(*entry) for entry in merge(map(self._get_file, range(world_size()))))
        for name in self._writer.folders:
            remove_temporary_files(self._unfinished.parent / name)
        with os_errors_as_user_errors(self._unfinished):
            lines = self._writer.finish(entries)
            shutil.rmtree(self._unfinished, ignore_errors=True)
        return lines
