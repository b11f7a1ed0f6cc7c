"""Prediction of inputs without labels, in one process or on several ranks."""

import copy
import os
import signal
import struct
import tempfile
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ..checkpoint.download import silent
from ..data.loader import DeviceLoader, build_loader
from ..data.sampler import EvaluationSampler, sample_generator
from ..distributed import StopRequested, is_main, rank, world_size
from ..engine.precision import EvaluationPrecision
from ..launch import gpu
from ..launch.devices import cpu_cores, default_workers
from ..logging.progress import Heartbeat, ProgressBar, write_line
from ..runtime import signals
from ..runtime.errors import UserError
from ..runtime.files import remove_temporary_files
from ..runtime.printing import one_line
from ..runtime.transfers import batch_to_device
from ..settings.command_line import format_words
from ..settings.every_run import RunSettings
from ..tasks.aspects import get_aspect
from ..tasks.dataset import TransformedDataset
from ..tasks.prediction import InputSamples, PredictionRecord, PredictionWriter, Row
from ..tasks.protocols import EnsembleMember, Predictable, get_sample_check, load_meta
from ..tasks.sample_checks import BadSample
from ..tasks.task import Task
from ..tasks.task_factory import make_task
from .ensemble import ModelEnsemble
from .rows import PredictionCounts, finish, format_reason, open_rank_writer, read_entries, write_tables
from .trained import TrainedWeights, build_trained, open_source

_INDICES, _UNREAD, _NOTHING = "__indices__", "__unread__", "__nothing__"  # keys of a batch in addition to the task's
_INPUT_ERRORS = (OSError, ValueError, ArithmeticError, EOFError, MemoryError, struct.error)
_SECONDS_BETWEEN_LINES = 10.0
_MOST_TOLD = 1000  # lines about inputs that a predictor writes, and keeps, in a server that runs for months


class PredictionDataset(TransformedDataset):
    """Dataset of the ``remaining`` inputs, int64, ascending; an unreadable one gives the reason instead of an error."""

    def __init__(self, task: Task, samples: InputSamples, remaining: np.ndarray) -> None:
        self.task, self.samples, self.remaining = task, samples, remaining
        self._check = get_sample_check(task)

    def __len__(self) -> int:
        return len(self.remaining)

    def sample(self, index: int, generator: np.random.Generator) -> tuple[int, Any, str | None]:
        """Return index of the input, its sample or None, and the reason why it is unreadable or None."""
        number = int(self.remaining[index])
        try:
            sample = self.samples.sample(number, generator)
            self._check(sample)
        except UserError as error:
            return number, None, format_reason(error, self.describe(index))
        except _INPUT_ERRORS as error:  # libraries raise them for damaged files
            return number, None, f"{type(error).__name__}: {format_reason(error)}"
        return number, sample, None

    def describe(self, index: int) -> str:
        """Return the source of an input, for messages."""
        return self.samples.describe(int(self.remaining[index]))

    def collate(self, attempts: Sequence[tuple[int, Any, str | None]]) -> dict[str, Any]:
        """Collate the readable samples with their indices, and list the unreadable inputs."""
        read = [(index, sample) for index, sample, reason in attempts if reason is None]
        batch = self.task.collate([sample for _, sample in read]) if read else {_NOTHING: np.zeros(1, np.int8)}
        batch[_INDICES] = [index for index, _ in read]
        batch[_UNREAD] = [(index, reason) for index, _, reason in attempts if reason is not None]
        return batch


def build_prediction_loader(
    dataset: PredictionDataset, config: RunSettings, batch_size: int, num_workers: int
) -> DeviceLoader:
    """Build a loader of this rank's inputs, on its device."""
    sampler = EvaluationSampler(dataset, batch_size, rank=rank(), world_size=world_size())
    return build_loader(config, dataset, sampler, dataset.collate, num_workers=num_workers)


def read_batches(dataset: PredictionDataset, config: RunSettings, batch_size: int) -> Iterator[dict[str, Any]]:
    """Yield the batches that ``build_prediction_loader`` would, on the host: no process, thread or queue is started."""
    for keys in EvaluationSampler(dataset, batch_size, rank=rank(), world_size=world_size()):
        yield dataset.collate([dataset.sample(key.index, sample_generator(config.SEED, key)) for key in keys])


def read_ahead(batches: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield batches; a thread, which ends with them, reads the next one meanwhile."""
    with ThreadPoolExecutor(1, "reading") as reader:
        following = reader.submit(next, batches, None)
        while (batch := following.result()) is not None:
            following = reader.submit(next, batches, None)
            yield batch


def predict_batch(aspect: Any, model: Any, batch: dict[str, Any], writer: PredictionWriter) -> list[PredictionRecord]:
    """Predict a batch of ``PredictionDataset`` and return one record per input, in ascending order.

    ``aspect`` is Predictable, or Ensembling with a ``ModelEnsemble``; ``batch`` has collated inputs.
    """
    indices = batch.pop(_INDICES)
    entries = [PredictionRecord(i, None, reason) for i, reason in batch.pop(_UNREAD)]
    predict = aspect.predict_mean if isinstance(model, ModelEnsemble) else aspect.predict_step
    with paddle.no_grad():  # as a decorator it would keep one state for all threads
        for index, prediction in zip(indices, predict(model, batch) if indices else ()):
            try:
                rows = aspect.prediction_rows(prediction)
            except BadSample as error:
                entries.append(PredictionRecord(index, None, format_reason(error)))
                continue
            more = writer.write(index, prediction)
            entries.append(
                PredictionRecord(index, [{**row, **more} for row in rows], summary=writer.summarize(index, prediction))
            )
    return sorted(entries)


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


class PredictedRows(list[Row]):
    """Rows of a call of ``Predictor``, as in ``predictions.jsonl``, in the order of the inputs.

    Attributes:
        unreadable: (path, reason) of each input of the call that cannot be read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unreadable: list[tuple[str, str]] = []


class Predictor:
    """Prediction with trained weights in this process: ``rows = Predictor("output")(["cat.jpg"])``.

    Several threads may call it: each reads its inputs by itself, and the network computes one batch at a time. A
    process that was forked after the first call may call it, too, unless the parent computes on a GPU.

    On a GPU, this sets the process to the run's TRAIN.TF32 and DETERMINISTIC.

    Args:
        source: a run's folder, whose best checkpoint is used, else its last; a checkpoint; weights with an
            ``about.yaml`` or the ``config.yaml`` of a run in their folder; or an exported model, such as MODEL.onnx.
        recipe: YAML file, for weights without stored training settings.
        class_names: replace the class names of the weights.
        batch_size: inputs per step; None: the run's evaluation batch size.
        num_workers: processes that read files; 0: this process reads them, of several batches in a thread next to
            the network. Images in memory are always read by the thread that calls.
        least_score: detection: lowest score of a returned box; None: the run's.
        max_detections: detection: boxes kept for each image and category, best first; None: the run's.
        window: segmentation, detection: size of the windows, pixels or (height, width); None: the run's.
        **keys: other flags and keys that the command predict takes: ``**{"DETECTION.FLIP": True}``.

    Attributes:
        unreadable: ``unreadable`` of the last call in this thread, also if it has raised UserError.
        class_names: name of each class or landmark; None: unknown.
        model: the model in evaluation mode, on the current device.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        *,
        recipe: str | None = None,
        class_names: Sequence[str] | None = None,
        batch_size: int | None = None,
        num_workers: int = 0,
        least_score: float | None = None,
        max_detections: int | None = None,
        window: int | Sequence[int] | None = None,
        **keys: Any,
    ) -> None:
        if wrong := {"cfg", "h", "show_config", "version"} & set(keys):
            raise UserError(f"Predictor: {wrong.pop()}: only the command has this flag: remove it from the call")
        flags = {"least_score": least_score, "max_detections": max_detections, "window": window}
        self._source = open_source(
            os.fspath(source),
            "predict",
            recipe=recipe,
            class_names=class_names,
            words=format_words({**flags, **keys}),
            log=write_line if keys else silent,
        )
        self._task = prepare_task(self._source)
        self._aspect = require_predictable(self._task)
        self._batch_size = batch_size or default_batch_size(self._source.config)
        self._num_workers = num_workers
        config = self._source.config
        gpu.prepare(config.TRAIN.TF32, config.DETERMINISTIC, self._task.traits.fixed_shapes, config.EVAL_AMP)
        self.model, self.load_report = build_trained(self._task, self._source)
        self._precision = EvaluationPrecision(self._source.config)
        self.class_names = self._source.learned.class_names
        self._told: set[str] = set()  # lines about inputs
        self._of_thread = threading.local()
        self._computing = threading.RLock()
        _predictors[id(self)] = self

    @property
    def unreadable(self) -> list[tuple[str, str]]:
        """Path and reason of each input of the last call in this thread that cannot be read."""
        return getattr(self._of_thread, "unreadable", [])

    def __call__(self, inputs: Any) -> PredictedRows:
        """Predict inputs and return the rows of ``predictions.jsonl``, in the order of the inputs.

        A line names the first of the inputs that cannot be read and are skipped; ``unreadable`` of the rows has all.

        Args:
            inputs: a path, or several in a list or another iterable; for tasks of images also PIL images, uint8 arrays
                (height, width[, 3]) and the contents of files, as bytes.

        Raises:
            UserError: none of the inputs can be read.
        """
        gpu.require_unforked()
        rows = PredictedRows()
        aspect = copy.copy(self._aspect)  # it may keep facts of the inputs, which are of this call alone
        listed = list_inputs(inputs)
        with _cache_folder(listed) as folder:
            samples = aspect.open_inputs(listed, Path(folder))
            rows.unreadable = [(name, format_reason(reason, name)) for name, reason in samples.unreadable]
            self._of_thread.unreadable = rows.unreadable
            self._tell(samples.notices)
            predicted = 0
            for entry in self._entries(aspect, samples):
                name = samples.names[entry.index]
                if entry.rows is None:
                    rows.unreadable.append((name, entry.reason))
                else:
                    predicted += 1
                rows += [{"input": name, **row} for row in entry.rows or ()]
        if rows.unreadable:
            _report_unreadable(rows.unreadable, predicted)
        return rows

    def _tell(self, notices: Iterable[str]) -> None:
        """Write lines about inputs, each once."""
        if len(self._told) < _MOST_TOLD:
            for line in sorted(set(notices) - self._told):
                write_line(line)
            self._told.update(notices)

    def _entries(self, aspect: Predictable, samples: InputSamples) -> Iterator[PredictionRecord]:
        if not len(samples):
            return
        config, dataset = self._source.config, PredictionDataset(self._task, samples, np.arange(len(samples)))
        for batch in self._batches(dataset, config):
            with self._computing, self._precision.patch_forward(self.model):
                entries = predict_batch(aspect, self.model, batch_to_device(batch), PredictionWriter())
            yield from entries

    def _batches(self, dataset: PredictionDataset, config: RunSettings) -> Iterable[dict[str, Any]]:
        """Yield batches, without a loader unless processes are to read files."""
        if self._num_workers and not dataset.samples.in_memory:
            return build_prediction_loader(dataset, config, self._batch_size, self._num_workers)
        batches = read_batches(dataset, config, self._batch_size)
        if not dataset.samples.in_memory and len(dataset) > self._batch_size:
            batches = read_ahead(batches)
        return batches


_predictors: weakref.WeakValueDictionary[int, Predictor] = weakref.WeakValueDictionary()


_of_fork = threading.local()  # ``held``: locks of networks, while this thread forks


def _hold_networks() -> None:
    """Wait until no thread computes: a child that is forked with a lock of Paddle's allocator taken never ends."""
    listed = [reference() for reference in _predictors.valuerefs()]  # at once: a thread may be making another one
    _of_fork.held = [each._computing for each in sorted(filter(None, listed), key=id)]
    for lock in _of_fork.held:
        lock.acquire()


def _release_networks() -> None:
    for lock in _of_fork.held:
        lock.release()


os.register_at_fork(before=_hold_networks, after_in_parent=_release_networks, after_in_child=_release_networks)


def list_inputs(inputs: Any) -> list[Any]:
    """List the inputs of a call: one, or all of a sequence, generator or other iterable. Paths become text.

    Raises UserError for a mapping: it does not say whether its keys or its values are meant.
    """
    if isinstance(inputs, Mapping):
        raise UserError("predict: the inputs are a mapping: pass a list of its values or of its keys")
    is_single = isinstance(inputs, (str, os.PathLike, bytes, bytearray, memoryview)) or not isinstance(inputs, Iterable)
    is_single = is_single or hasattr(inputs, "__array__") or hasattr(inputs, "read")  # of pixels, or of lines
    return [os.fspath(each) if isinstance(each, os.PathLike) else each for each in ([inputs] if is_single else inputs)]


def _cache_folder(inputs: Sequence[Any]) -> AbstractContextManager[str]:
    """Create a folder for indices of paths; of inputs in memory there are none, and a server has no time for it."""
    if any(isinstance(each, str) for each in inputs):
        return tempfile.TemporaryDirectory(prefix="paddlevit_dist_")
    return nullcontext(tempfile.gettempdir())


def _report_unreadable(unreadable: Sequence[tuple[str, str]], predicted: int) -> None:
    """Say how many inputs of a call cannot be read, or raise UserError if no other was ``predicted``."""
    first = ": ".join(map(one_line, unreadable[0]))
    bad = f"{len(unreadable):,} could not be read"
    if not predicted:
        raise UserError(f"predict: nothing was predicted: {bad}; the first: {first}")
    write_line(f"note: {bad}, listed in Predictor.unreadable; the first: {first}")


def prepare_task(source: TrainedWeights) -> Task:
    """Make the task of the weights, with the metadata of their data. Raises UserError if it cannot predict."""
    task = make_task(source.config)
    require_predictable(task)
    load_meta(task, source.learned)
    return task


def require_predictable(task: Task) -> Predictable:
    """Return the aspect of a task that predicts. Raises UserError if the task cannot predict."""
    aspect = get_aspect(task, Predictable)
    if aspect is None:
        raise UserError(
            f"predict: task {task.config.TASK} cannot predict new inputs: its class is not Predictable "
            "(paddlevit_dist.core.tasks); use evaluate"
        )
    return aspect


def default_batch_size(config: RunSettings) -> int:
    """Return the evaluation batch size of a device."""
    return int(config.DATA.BATCH_SIZE_EVAL or config.DATA.BATCH_SIZE)
