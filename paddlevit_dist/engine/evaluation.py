"""The evaluation of a run: one split, each sample once over all ranks."""

import shutil
from collections.abc import Iterable, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

import paddle

from ..contracts.prediction import Entry, PredictionWriter
from ..contracts.task import Task
from ..intervals import Interval
from ..loading.loader import loader_of
from ..loading.sampler import EvaluationSampler
from ..observe.heartbeat import Heartbeat
from ..observe.progress import Progress
from ..observe.record import RunRecord
from ..parallel import barrier, is_main, rank, world_size
from ..runtime.files import told_if_not_written
from ..runtime.ordered_lines import LineWriter, merged
from . import gpu_memory
from .confidence import Confidence, as_json, in_event
from .precision import EvaluationPrecision
from .steps import evaluate
from .watchers import Watchers


class SavedPredictions:
    """Hands what this rank predicts in an evaluation to a writer. Every rank makes one, at the same time.

    Args:
        writer: of the task.
        folder: that it writes to; exists.
        indices: of this rank's samples, in the order in which they are evaluated.

    Raises:
        UserError: the file system refuses.
    """

    def __init__(self, writer: PredictionWriter, folder: Path, indices: Iterable[int]) -> None:
        self._writer, self._indices = writer, iter(indices)
        self._unfinished = folder / "unfinished"
        if is_main():
            with told_if_not_written(self._unfinished):
                shutil.rmtree(self._unfinished, ignore_errors=True)
                self._unfinished.mkdir()
        barrier()
        self._entries = LineWriter(self._file_of(rank()))

    def _file_of(self, number: int) -> Path:
        return self._unfinished / f"entries-{number:04d}.jsonl"

    def add(self, predictions: Sequence[Any], truths: Iterable[Any] = repeat(None)) -> None:
        """Write what was predicted for the samples of a batch, in its order.

        Args:
            predictions: as ``Task.predict_step`` returns them.
            truths: of each sample, for ``PredictionWriter.write``.
        """
        for prediction, truth in zip(predictions, truths):
            index = next(self._indices)
            self._writer.write(index, prediction, truth)
            self._entries.add([Entry(index, [], kept=self._writer.kept(index, prediction, truth))])

    def finish(self) -> list[str]:
        """Write what is made of the samples of all ranks; lines for the log of the main process. Every rank must call
        this, after its last batch."""
        self._entries.close()
        barrier()
        if not is_main():
            return []
        entries = (Entry(*entry) for entry in merged(map(self._file_of, range(world_size()))))
        with told_if_not_written(self._unfinished):
            lines = self._writer.finish(entries)
            shutil.rmtree(self._unfinished, ignore_errors=True)
        return lines


class Evaluation:
    """Evaluates a model on these samples, as often as it is called.

    Args:
        model: the inner model, with the weights that it has then.

    Attributes:
        loader: of this rank's share.
        facts: what stands beside its values.
        intervals: of the last evaluation, see ``steps.Evaluated``.
    """

    def __init__(
        self,
        config: Any,
        task: Task,
        model: paddle.nn.Layer,
        samples: Any,
        precision: EvaluationPrecision,
        at: Heartbeat,
    ) -> None:
        self.config = config
        self.task = task
        self.model = model
        self.samples = samples
        self.precision = precision
        self.heartbeat = at
        self.facts = dict(precision.facts)
        if samples.without:
            self.facts["without"] = samples.without
        self.confidence = Confidence.of(config)
        self.intervals: dict[str, Interval] = {}
        size = config.DATA.BATCH_SIZE_EVAL or config.DATA.BATCH_SIZE
        sampler = EvaluationSampler(samples, size, rank=rank(), world_size=world_size())
        self.loader = loader_of(config, samples, sampler, task.collate, check=task.check_sample)

    def __call__(
        self,
        label: str,
        writer: SavedPredictions | None = None,
        epoch: int | None = None,
        watchers: Watchers | None = None,
    ) -> tuple[dict[str, float], str]:
        """Evaluate; returns the values, equal on every rank, and their line. Every rank must call this.

        Args:
            label: of the progress bar, and what the watchdog is told.
            writer, epoch, watchers: see ``steps.evaluate``.
        """
        total = len(self.loader)
        bar = Progress(total, label, is_main())
        done = 0

        def count() -> None:
            nonlocal done
            done += 1
            bar.step()
            self.heartbeat.at(f"in the {label}, {done} of {total} batches done")

        self.heartbeat.at(f"in the {label}")
        try:
            memory = gpu_memory.explained(gpu_memory.of_evaluation(self.config))
            with memory, self.precision.forward_of(self.model):
                values, line, self.intervals = evaluate(
                    self.task,
                    self.model,
                    self.loader,
                    count,
                    writer=writer,
                    epoch=epoch,
                    watchers=watchers,
                    confidence=self.confidence if self.samples.labelled else None,
                )
            return values, " ".join([line, *(f"({fact})" for fact in self.facts.values())])
        finally:
            bar.close()

    def event_of(self, values: dict[str, float]) -> dict[str, Any]:
        """The last evaluation as ``metrics.jsonl`` has it: facts, values, and the ends of their intervals."""
        return {**self.facts, **values, **in_event(self.intervals, values, self.confidence)}

    def write_intervals(self, record: RunRecord, name: str, facts: dict[str, Any]) -> None:
        """Write those of the last evaluation, also of what has no place in ``metrics.jsonl``; nothing without any."""
        if self.intervals:
            record.file(name, as_json(self.intervals, self.confidence, {**facts, **self.facts}))
