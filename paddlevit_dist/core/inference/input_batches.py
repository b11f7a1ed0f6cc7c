"""Read inputs without labels as batches, with a reason for each that is unreadable, and predict a batch."""

import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import paddle

from ..data.loader import DeviceLoader, build_loader
from ..data.sampler import EvaluationSampler, sample_generator
from ..distributed import rank, world_size
from ..runtime.errors import UserError
from ..runtime.outages import read_through_outages
from ..settings.every_run import RunSettings
from ..tasks.dataset import TransformedDataset
from ..tasks.prediction import InputSamples, PredictionRecord, PredictionWriter
from ..tasks.protocols import get_sample_check
from ..tasks.sample_checks import BadSample
from ..tasks.task import Task
from .ensemble import ModelEnsemble
from .rows import format_reason

_INDICES, _UNREAD, _NOTHING = "__indices__", "__unread__", "__nothing__"  # keys of a batch in addition to the task's
_APART = "__apart__"  # whether each input is collated alone: its entries have its position and this before the name
_INPUT_ERRORS = (OSError, ValueError, ArithmeticError, EOFError, MemoryError, struct.error)


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
            sample = read_through_outages(lambda: self.samples.sample(number, generator), was_there=True)
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
        """Collate the readable samples with their indices, and list the unreadable inputs.

        Samples that cannot be one batch, as one has another shape, are collated one by one.
        """
        read = [(index, sample) for index, sample, reason in attempts if reason is None]
        unread = [(index, reason) for index, _, reason in attempts if reason is not None]
        batch: dict[str, Any] = {_NOTHING: np.zeros(1, np.int8)}
        if read:
            try:
                batch = self.task.collate([sample for _, sample in read])
            except (UserError, *_INPUT_ERRORS):
                batch, read = self._collate_apart(read, unread)
        batch[_INDICES], batch[_UNREAD] = [index for index, _ in read], unread
        return batch

    def _collate_apart(
        self, read: Sequence[tuple[int, Any]], unread: list[tuple[int, str]]
    ) -> tuple[dict[str, Any], list[tuple[int, Any]]]:
        """Collate each sample alone; return the batch and its samples, and append those that cannot be collated."""
        batch: dict[str, Any] = {_NOTHING: np.zeros(1, np.int8)}
        collated: list[tuple[int, Any]] = []
        for index, sample in read:
            try:
                alone = self.task.collate([sample])
            except (UserError, *_INPUT_ERRORS) as error:
                unread.append((index, format_reason(error, self.samples.describe(index))))
                continue
            batch.update({f"{len(collated)}{_APART}{name}": value for name, value in alone.items()})
            collated.append((index, sample))
        batch[_APART] = True
        return batch, collated


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
        groups = _list_groups(indices, batch)
        for group, together in groups:
            try:
                predictions = predict(model, together)
            except BadSample as error:  # the task refuses an input that is alone, or one among others
                if len(group) > 1:
                    groups += _split(group, together)
                else:
                    entries.append(PredictionRecord(group[0], None, format_reason(error)))
                continue
            for index, prediction in zip(group, predictions):
                entries.append(_record(aspect, writer, index, prediction))
    return sorted(entries)


def _list_groups(indices: list[int], batch: dict[str, Any]) -> list[tuple[list[int], dict[str, Any]]]:
    """Return the inputs that are predicted together, and their batch."""
    if not batch.pop(_APART, False):
        return [(indices, batch)] if indices else []
    starts = [f"{position}{_APART}" for position in range(len(indices))]
    parts = [{key.removeprefix(start): batch[key] for key in batch if key.startswith(start)} for start in starts]
    return [([index], part) for index, part in zip(indices, parts)]


def _split(indices: list[int], batch: dict[str, Any]) -> list[tuple[list[int], dict[str, Any]]]:
    """Return each input alone, and its row of a batch whose entries have a row for each."""
    return [([index], {name: part[row : row + 1] for name, part in batch.items()}) for row, index in enumerate(indices)]


def _record(aspect: Any, writer: PredictionWriter, index: int, prediction: Any) -> PredictionRecord:
    """Return the record of an input that was predicted, and write its files."""
    try:
        rows = aspect.prediction_rows(prediction)
    except BadSample as error:
        return PredictionRecord(index, None, format_reason(error))
    more = writer.write(index, prediction) or {}
    return PredictionRecord(index, [{**row, **more} for row in rows], summary=writer.summarize(index, prediction))
