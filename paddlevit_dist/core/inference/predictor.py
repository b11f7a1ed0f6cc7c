"""Predict with trained weights in this process, from several threads if a program has them."""

import contextlib
import copy
import os
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from ..checkpoint.download import silent
from ..engine.precision import EvaluationPrecision
from ..launch import gpu
from ..launch.stale_resources import temporary_folder
from ..logging.progress import write_line
from ..runtime.errors import UserError
from ..runtime.printing import one_line
from ..runtime.transfers import batch_to_device
from ..settings.command_line import format_words
from ..settings.every_run import RunSettings
from ..tasks.prediction import ArrayMakers, InputSamples, PredictionRecord, PredictionWriter, Row
from ..tasks.protocols import Predictable
from .input_batches import PredictionDataset, build_prediction_loader, predict_batch, read_ahead, read_batches
from .rows import format_reason
from .trained import build_trained, default_batch_size, open_source, prepare_task, require_predictable

_MOST_TOLD = 1000  # lines about inputs that a predictor writes, and keeps, in a server that runs for months


class PredictedRow(dict[str, Any]):
    """Row of ``predictions.jsonl``, whose attributes are also the arrays that ``Predictor`` lists for its task.

    An array is made each time that it is asked for, as ``row.label_map`` or ``row["label_map"]``; until then it takes
    little memory. It is not among the keys of the row, which JSON can hold.
    """

    def __init__(self, row: Row, makers: ArrayMakers) -> None:
        super().__init__(row)
        self._makers = makers

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays by name."""
        return {name: make() for name, make in self._makers.items()}

    def __missing__(self, name: str) -> np.ndarray:
        return self._makers[name]()

    def __getattr__(self, name: str) -> np.ndarray:
        makers = self.__dict__.get("_makers", {})  # none yet where a copy is made
        if name not in makers:
            raise AttributeError(f"the row has no {name}; its arrays: {', '.join(makers) or 'none'}")
        return makers[name]()

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._makers]


class PredictedRows(list[PredictedRow]):
    """Rows of a call of ``Predictor``, as in ``predictions.jsonl``, in the order of the inputs.

    Attributes:
        unreadable: (path, reason) of each input of the call that cannot be read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unreadable: list[tuple[str, str]] = []


class Predictor:
    """Prediction with trained weights in this process: ``rows = Predictor("output")(["cat.jpg"])``.

    The rows of a call are dictionaries, as in ``predictions.jsonl``. What else was predicted for the input of a row is
    an array, an attribute of the row, in the size of the input, with the values that ``predict`` writes to files. It is
    made each time that it is asked for, so that the rows of thousands of images fit into memory.

    | task | attribute | NumPy array; uint is uint8, for larger numbers uint16 |
    |---|---|---|
    | classes of images and shapes, several labels | ``probabilities`` | float64 (classes,) |
    | segmentation of images | ``label_map`` | uint8 (height, width): class of each pixel |
    | detection with masks | ``masks`` | uint8 (n, height, width), 1 inside, of the n objects in the input's rows |
    | panoptic segmentation | ``segments`` | uint (height, width): number of the segment in the rows; 0: none |
    | | ``classes`` | uint (n,): class of segments 1 to n |
    | segmentation of volumes | ``labels`` | uint (columns, rows, slices): label numbers of the training data |
    | points: classes, instances | ``classes`` | uint (points,): class of each row of the file, which is read again |
    | points: instances | ``instances`` | uint (points,): number of the instance in the rows |

    Classes are places in ``class_names``. Points without coordinates, or without an instance, have the largest number
    of the type, 255 or 65,535.

    Opening it predicts a gray image if the task takes images, so that the first call is as fast as the others.

    Several threads may call it: each reads its inputs by itself, and the network computes one batch at a time. A
    process that is forked after it was opened may call it, too, unless the parent computes on a GPU.

    Notes about the weights are written once, as the command ``predict`` does. On a GPU, this sets the process to the
    run's TRAIN.TF32 and DETERMINISTIC.

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
        for line in filter(None, [self._precision.notice, *self._task.notices]):  # as the command does
            write_line(line)
        self.class_names = self._source.learned.class_names
        self._told: set[str] = set()  # lines about inputs
        self._of_thread = threading.local()
        self._computing = threading.RLock()
        _predictors[id(self)] = self
        if self._aspect.example_input is not None:
            aspect = copy.copy(self._aspect)
            samples = aspect.open_inputs([aspect.example_input], Path(tempfile.gettempdir()))
            with contextlib.suppress(UserError):  # an exported model may take images of one other size only
                list(self._entries(aspect, samples))

    @property
    def unreadable(self) -> list[tuple[str, str]]:
        """Path and reason of each input of the last call in this thread that cannot be read."""
        return getattr(self._of_thread, "unreadable", [])

    def __call__(self, inputs: Any) -> PredictedRows:
        """Predict inputs and return the rows of ``predictions.jsonl``, with arrays, in the order of the inputs.

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
            samples = aspect.open_inputs(listed, folder)
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
                rows += [PredictedRow({"input": name, **row}, entry.summary) for row in entry.rows or ()]
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
        arrays = _ArrayKeeper(aspect, samples)
        for batch in self._batches(dataset, config):
            with self._computing, self._precision.patch_forward(self.model):
                entries = predict_batch(aspect, self.model, batch_to_device(batch), arrays)
            yield from entries

    def _batches(self, dataset: PredictionDataset, config: RunSettings) -> Iterable[dict[str, Any]]:
        """Yield batches, without a loader unless processes are to read files."""
        if self._num_workers and not dataset.samples.in_memory:
            return build_prediction_loader(dataset, config, self._batch_size, self._num_workers)
        batches = read_batches(dataset, config, self._batch_size)
        if not dataset.samples.in_memory and len(dataset) > self._batch_size:
            batches = read_ahead(batches)
        return batches


class _ArrayKeeper(PredictionWriter):
    """Writes nothing: the summary of an input is the functions that make its arrays."""

    def __init__(self, aspect: Predictable, samples: InputSamples) -> None:
        self._aspect, self._samples = aspect, samples

    def summarize(self, index: int, prediction: Any, truth: Any = None) -> ArrayMakers:
        return self._aspect.prediction_arrays(index, prediction, self._samples)


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


def _cache_folder(inputs: Sequence[Any]) -> AbstractContextManager[Path]:
    """Create a folder for indices of paths; of inputs in memory there are none, and a server has no time for it."""
    if any(isinstance(each, str) for each in inputs):
        return temporary_folder("predictor")
    return nullcontext(Path(tempfile.gettempdir()))


def _report_unreadable(unreadable: Sequence[tuple[str, str]], predicted: int) -> None:
    """Say how many inputs of a call cannot be read, or raise UserError if no other was ``predicted``."""
    first = ": ".join(map(one_line, unreadable[0]))
    bad = f"{len(unreadable):,} could not be read"
    if not predicted:
        raise UserError(f"predict: nothing was predicted: {bad}; the first: {first}")
    write_line(f"note: {bad}, listed in Predictor.unreadable; the first: {first}")
