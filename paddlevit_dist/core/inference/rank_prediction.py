"""Predict the inputs of a command on one rank or on several, each its share, and write their tables."""

import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..distributed import StopRequested, is_main, rank, world_size
from ..engine.precision import EvaluationPrecision
from ..launch import gpu
from ..launch.devices import cpu_cores, default_workers
from ..logging.progress import Heartbeat, ProgressBar, write_line
from ..runtime import signals
from ..runtime.files import remove_temporary_files
from ..tasks.prediction import InputSamples
from ..tasks.protocols import EnsembleMember
from ..tasks.task import Task
from .ensemble import ModelEnsemble
from .input_batches import PredictionDataset, build_prediction_loader, predict_batch
from .rows import PredictionCounts, finish, open_rank_writer, read_entries, write_tables
from .trained import TrainedWeights, build_trained, default_batch_size, prepare_task, require_predictable

_SECONDS_BETWEEN_LINES = 10.0


def predict_share(
    task: Task,
    sources: Sequence[TrainedWeights],
    samples: InputSamples,
    remaining: np.ndarray,
    folder: Path,
    *,
    batch_size: int | None = None,
    num_workers: int | None = None,
) -> None:
    """Predict this rank's share of the inputs ``remaining``, and save its rows. Every rank must call this.

    Args:
        task: the task of the first weights.
        sources: the weights; several predict together.
        remaining: indices of the inputs that all ranks together predict, ascending.
        folder: output folder, prepared by ``begin``.
        batch_size: inputs per step; None: the run's evaluation batch size.
        num_workers: loader processes; None: from the number of cores and batches.
    """
    if not len(remaining):
        return
    source = sources[0]
    batch_size = batch_size or default_batch_size(source.config)
    if num_workers is None:
        num_workers = choose_workers(len(remaining), batch_size)
    settings = source.config
    gpu.prepare(settings.TRAIN.TF32, settings.DETERMINISTIC, task.traits.fixed_shapes, settings.EVAL_AMP)
    num_notices = len(task.notices)
    with Heartbeat(write_line, shown=is_main()).at("building the model"):
        model = build_models(task, sources)
    precision = EvaluationPrecision(source.config)
    if is_main():
        for line in filter(None, [precision.notice, *task.notices[num_notices:]]):
            write_line(line)
    aspect, dataset = require_predictable(task), PredictionDataset(task, samples, remaining)
    writer = aspect.prediction_writer(folder, samples)
    loader = build_prediction_loader(dataset, source.config, batch_size, num_workers)
    is_ensemble = isinstance(model, ModelEnsemble)
    patched = model.patch_forward(precision) if is_ensemble else precision.patch_forward(model)
    try:
        with open_rank_writer(folder, rank()) as out, SharedProgress(len(remaining)) as progress, patched:
            for batch in loader:
                entries = predict_batch(aspect, model, batch, writer)
                out.add(entries)
                progress.count(len(entries))
                signals.check()
    except StopRequested as error:
        raise signals.ProcessInterrupted(signals.number() or signal.SIGTERM) from error


def choose_workers(num_inputs: int, batch_size: int) -> int:
    """Choose the loader processes of this rank from its batches of the inputs, which ranks share, and its cores."""
    batches = -(-num_inputs // (batch_size * world_size()))
    return 0 if batches < 2 else min(batches, default_workers(world_size(), cpu_cores()))


def build_models(task: Task, sources: Sequence[TrainedWeights]) -> Any:
    """Build the model of the weights, or an ensemble of several."""

    def build() -> Iterator[EnsembleMember]:
        for source in sources:
            own_task = task if source is sources[0] else prepare_task(source)
            model, report = build_trained(own_task, source)
            if is_main():
                write_line(f"weights {source.weights}: {report.summary()}")
            yield EnsembleMember(own_task, model)

    return next(build()).model if len(sources) == 1 else ModelEnsemble(build())


def finish_prediction(folder: Path, task: Task, samples: InputSamples) -> tuple[PredictionCounts, list[str]]:
    """Write the tables and the task's files in the main process, after all ranks; return counts and log lines."""
    counts = write_tables(folder, samples)
    if sum(counts) < len(samples):
        raise RuntimeError(f"{sum(counts)} of {len(samples)} inputs have a prediction or a reason")
    writer = require_predictable(task).prediction_writer(folder, samples)
    for name in writer.folders:
        remove_temporary_files(folder / name)
    lines = writer.finish(read_entries(folder)) if counts.predicted else []  # else no file was written
    finish(folder, counts)
    return counts, lines


class SharedProgress:
    """Progress of all ranks, estimated from this one: a ``bar`` on a terminal, else a line every 10 seconds."""

    def __init__(self, total: int) -> None:
        self._total, self._num_done, self._logged_at = total, 0, time.monotonic()
        self._began = self._logged_at
        self.bar = ProgressBar(total, "predicting", is_main())
        self._heartbeat = Heartbeat(write_line, shown=is_main()).at("predicting")

    def __enter__(self) -> "SharedProgress":
        self._heartbeat.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._heartbeat.__exit__(*error)
        self.bar.close()

    def count(self, inputs: int) -> None:
        """Count inputs that are predicted."""
        before = self._done()
        self._num_done += inputs
        self.bar.step(self._done() - before)
        now = time.monotonic()
        self._heartbeat.at(f"predicting, {self._done():,} of {self._total:,} done")
        if is_main() and not self.bar.is_shown and now - self._logged_at >= _SECONDS_BETWEEN_LINES:
            self._logged_at = now
            rate = self._done() / (now - self._began)
            seconds_left = (self._total - self._done()) / rate
            write_line(
                f"predicted {self._done():,} of {self._total:,}, {rate:,.1f} a second, {seconds_left:,.0f} s left"
            )

    def _done(self) -> int:
        return min(self._total, self._num_done * world_size())
