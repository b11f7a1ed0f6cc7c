"""Predictions for inputs without labels, in one process or as one of several."""

import os
import signal
import struct
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ..data.loader import DeviceLoader, build_loader
from ..data.sampler import EvaluationSampler
from ..distributed import StopRequested, is_main, rank, world_size
from ..engine.precision import EvaluationPrecision
from ..launch import gpu
from ..launch.devices import cpu_cores, default_workers
from ..logging.heartbeat import Heartbeat
from ..logging.progress import ProgressBar, write_line
from ..runtime import signals
from ..runtime.errors import UserError
from ..runtime.printing import one_line
from ..settings.every_run import RunSettings
from ..tasks.dataset import TransformedDataset
from ..tasks.prediction import InputSamples, PredictionRecord, PredictionWriter, Row
from ..tasks.sample_checks import BadSample
from ..tasks.task import Task, make_task
from .rows import PredictionCounts, finish, read_entries, write_tables, writer_of_rank
from .trained import TrainedWeights, build_trained, open_source

_INDICES, _UNREAD, _NOTHING = "__indices__", "__unread__", "__nothing__"  # keys of a batch besides the task's
_OF_THE_INPUT = (OSError, ValueError, ArithmeticError, EOFError, MemoryError, struct.error)
_SECONDS_BETWEEN_LINES = 10.0


class PredictionDataset(TransformedDataset):
    """Inputs that are still to be predicted; one that cannot be read becomes the reason why, and ends nothing.

    Args:
        left: int64, indices of the inputs, ascending.
    """

    def __init__(self, task: Task, samples: InputSamples, left: np.ndarray) -> None:
        self.task, self.samples, self.left = task, samples, left

    def __len__(self) -> int:
        return len(self.left)

    def sample(self, index: int, generator: np.random.Generator) -> tuple[int, Any, str | None]:
        """Index of the input, its sample, and why there is none."""
        own = int(self.left[index])
        try:
            sample = self.samples.sample(own, generator)
            self.task.check_sample(sample)
        except UserError as error:
            return own, None, format_reason(error)
        except _OF_THE_INPUT as error:  # from a library, about what it has found in a file
            return own, None, f"{type(error).__name__}: {format_reason(error)}"
        return own, sample, None

    def describe(self, index: int) -> str:
        return self.samples.describe(int(self.left[index]))

    def collate(self, attempts: Sequence[tuple[int, Any, str | None]]) -> dict[str, Any]:
        """A batch of the samples that could be read, which inputs they are, and what could not be read."""
        read = [(index, sample) for index, sample, reason in attempts if reason is None]
        batch = self.task.collate([sample for _, sample in read]) if read else {_NOTHING: np.zeros(1, np.int8)}
        batch[_INDICES] = [index for index, _ in read]
        batch[_UNREAD] = [(index, reason) for index, _, reason in attempts if reason is not None]
        return batch


def format_reason(error: Exception) -> str:
    """Why an input cannot be read, without its name where the error tells them apart."""
    return one_line(getattr(error, "reason", None) or error)


def attempts_loader(
    attempts: PredictionDataset, config: RunSettings, batch_size: int, num_workers: int
) -> DeviceLoader:
    """Batches of this rank's share of the inputs, on its device."""
    sampler = EvaluationSampler(attempts, batch_size, rank=rank(), world_size=world_size())
    return build_loader(config, attempts, sampler, attempts.collate, num_workers=num_workers)


@paddle.no_grad()
def predict_batch(task: Task, model: Any, batch: dict[str, Any], writer: PredictionWriter) -> list[PredictionRecord]:
    """Return what became of each input of a batch of ``PredictionDataset``, in ascending order."""
    indices, entries = (
        batch.pop(_INDICES),
        [PredictionRecord(index, None, reason) for index, reason in batch.pop(_UNREAD)],
    )
    for index, prediction in zip(indices, task.predict_step(model, batch) if indices else ()):
        try:
            rows = task.prediction_rows(prediction)
        except BadSample as error:
            entries.append(PredictionRecord(index, None, format_reason(error)))
            continue
        more = writer.write(index, prediction)
        entries.append(
            PredictionRecord(index, [{**row, **more} for row in rows], summary=writer.summarize(index, prediction))
        )
    return sorted(entries, key=lambda entry: entry.index)


def predict_share(
    task: Task,
    source: TrainedWeights,
    samples: InputSamples,
    left: np.ndarray,
    folder: Path,
    *,
    batch_size: int | None = None,
    num_workers: int | None = None,
) -> None:
    """Predict this rank's share of the inputs ``left``, and keep its rows in ``folder``. Every rank must call this.

    Args:
        left: indices of the inputs that all ranks together are to predict, ascending.
        folder: of the output, where ``begin`` was called.
        batch_size: None: as in the run's evaluation.
        num_workers: loader processes; None: by the cores of this machine and the number of batches.
    """
    if not len(left):
        return
    batch_size = batch_size or usual_batch_size(source.config)
    if num_workers is None:
        batches = -(-len(left) // (batch_size * world_size()))  # of this rank
        num_workers = 0 if batches < 2 else min(batches, default_workers(world_size(), cpu_cores()))
    gpu.prepare(source.config.TRAIN.TF32, source.config.DETERMINISTIC, task.fixed_shapes)
    said = len(task.notices)
    with Heartbeat(write_line, shown=is_main()).at("building the model"):
        model, report = build_trained(task, source)
    precision = EvaluationPrecision(source.config)
    if is_main():
        write_line(f"weights {source.weights}: {report.summary()}")
        for line in filter(None, [precision.notice, *task.notices[said:]]):
            write_line(line)
    writer, attempts = task.prediction_writer(folder, samples), PredictionDataset(task, samples, left)
    loader, out = attempts_loader(attempts, source.config, batch_size, num_workers), writer_of_rank(folder, rank())
    try:
        with _SharedProgress(len(left)) as told, precision.patch_forward(model):
            for batch in loader:
                entries = predict_batch(task, model, batch, writer)
                out.add(entries)
                told.count(len(entries))
                signals.check()
        out.close()
    except StopRequested as early:
        raise signals.ProcessInterrupted(signals.number() or signal.SIGTERM) from early


def finish_prediction(folder: Path, task: Task, samples: InputSamples) -> tuple[PredictionCounts, list[str]]:
    """Write the tables and what else the task makes of all inputs, once all ranks are done. In the main process.

    Returns:
        The counts, and lines for the user.
    """
    counts = write_tables(folder, samples)
    if sum(counts) < len(samples):
        raise RuntimeError(f"{sum(counts)} of {len(samples)} inputs have become something")
    lines = task.prediction_writer(folder, samples).finish(read_entries(folder))
    finish(folder, counts)
    return counts, lines


class _SharedProgress:
    """Progress of all ranks, judged by this one: a bar on a terminal, else a line now and then."""

    def __init__(self, total: int) -> None:
        self._total, self._own, self._said_at = total, 0, time.monotonic()
        self._began = self._said_at
        self._bar = ProgressBar(total, "predicting", is_main())
        self._heartbeat = Heartbeat(write_line, shown=is_main()).at("predicting")

    def __enter__(self) -> "_SharedProgress":
        self._heartbeat.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._heartbeat.__exit__(*error)
        self._bar.close()

    def count(self, inputs: int) -> None:
        """Note that this rank has done so many more."""
        before = self._done()
        self._own += inputs
        self._bar.step(self._done() - before)
        now = time.monotonic()
        self._heartbeat.at(f"predicting, {self._done():,} of {self._total:,} done")
        if is_main() and not self._bar.is_shown and now - self._said_at >= _SECONDS_BETWEEN_LINES:
            self._said_at = now
            rate = self._done() / (now - self._began)
            left = (self._total - self._done()) / rate
            write_line(f"predicted {self._done():,} of {self._total:,}, {rate:,.1f} a second, {left:,.0f} s left")

    def _done(self) -> int:
        return min(self._total, self._own * world_size())


class Predictor:
    """Trained weights, ready to be used on other data in this process: ``rows = Predictor("output")(["cat.jpg"])``.

    On a GPU this process computes from then on as the run says (TRAIN.TF32, DETERMINISTIC).

    Args:
        source: a run's folder, whose best checkpoint is used, else its last; a checkpoint; or weights with an
            ``about.yaml`` or the ``config.yaml`` of a run beside them.
        recipe: YAML file, for weights that say nothing of themselves.
        class_names: in place of those that the weights know.
        batch_size: inputs that are computed at once; None: as in the run's evaluation.
        num_workers: processes that read inputs; 0: a thread of this process reads them.
        least_score: detection: of a box that is returned; None: that of the run.
        max_detections: detection: of an image and category, the best; None: as in the run.
        window: segmentation: pixels, or height and width, of windows that slide over images; None: as in the run.

    Attributes:
        unreadable: (path, reason) of each input of the last call that could not be read.
        class_names: name of each class, or landmark; None: unknown.
        model: in evaluation mode, on the current device.
    """

    def __init__(
        self,
        source: Any,
        *,
        recipe: str | None = None,
        class_names: Sequence[str] | None = None,
        batch_size: int | None = None,
        num_workers: int = 0,
        least_score: float | None = None,
        max_detections: int | None = None,
        window: int | Sequence[int] | None = None,
    ) -> None:
        self._source = open_source(
            os.fspath(source),
            "predict",
            recipe=recipe,
            class_names=class_names,
            least_score=least_score,
            max_detections=max_detections,
            window=window,
        )
        self._task = prepare_task(self._source)
        self._batch_size = batch_size or usual_batch_size(self._source.config)
        self._num_workers = num_workers
        train = self._source.config.TRAIN
        gpu.prepare(train.TF32, self._source.config.DETERMINISTIC, self._task.fixed_shapes)
        self.model, self.load_report = build_trained(self._task, self._source)
        self._precision = EvaluationPrecision(self._source.config)
        self.class_names = self._source.learned.class_names
        self.unreadable: list[tuple[str, str]] = []

    def __call__(self, inputs: Any) -> list[Row]:
        """The rows that the command ``predict`` writes to ``predictions.jsonl``, in the order of the inputs.

        Args:
            inputs: a path or several: what the command takes; for tasks that take them also images in memory, as
                PIL images or uint8 arrays (height, width[, 3]).
        """
        given = [inputs] if isinstance(inputs, (str, os.PathLike)) or not isinstance(inputs, Sequence) else inputs
        with tempfile.TemporaryDirectory(prefix="paddlevit_dist_") as folder:
            samples = self._task.open_inputs([_as_text(one) for one in given], Path(folder))
            self.unreadable = list(samples.unreadable)
            rows: list[Row] = []
            for entry in self._entries(samples):
                name = samples.names[entry.index]
                if entry.rows is None:
                    self.unreadable.append((name, entry.reason))
                rows += [{"input": name, **row} for row in entry.rows or ()]
        return rows

    def _entries(self, samples: InputSamples) -> Iterator[PredictionRecord]:
        if not len(samples):
            return
        attempts = PredictionDataset(self._task, samples, np.arange(len(samples)))
        for batch in attempts_loader(attempts, self._source.config, self._batch_size, self._num_workers):
            with self._precision.patch_forward(self.model):
                entries = predict_batch(self._task, self.model, batch, PredictionWriter())
            yield from entries


def _as_text(given: Any) -> Any:
    return os.fspath(given) if isinstance(given, os.PathLike) else given


def prepare_task(source: TrainedWeights) -> Task:
    """The task of the weights, which knows what they were trained on."""
    task = make_task(source.config)
    task.load_meta(source.learned)
    return task


def usual_batch_size(config: RunSettings) -> int:
    """Inputs that an evaluation computes at once on a device."""
    return int(config.DATA.BATCH_SIZE_EVAL or config.DATA.BATCH_SIZE)
