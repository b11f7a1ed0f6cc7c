"""The evaluation of a run: one split, each sample once over all ranks."""

import contextlib
from collections.abc import Generator
from typing import Any

import paddle

from ..data.loader import build_loader
from ..data.sampler import EvaluationSampler
from ..distributed import StopRequested, is_main, rank, reduce_dict, stops, world_size
from ..extension import extensions
from ..intervals import ConfidenceInterval
from ..logging.callbacks import CallbackList
from ..logging.heartbeat import Heartbeat
from ..logging.progress import ProgressBar
from ..logging.record import RunRecord
from ..settings.every_run import RunSettings
from ..tasks.metrics import Metrics
from ..tasks.sample_groups import SampleGroups
from ..tasks.task import EvaluationStep, Records, Task
from . import gpu_memory
from .confidence import IntervalConfig, PerSampleResults, compute_intervals, to_event, to_json
from .precision import EvaluationPrecision

_GROUPS = "groups"  # what an event calls them


class Evaluator:
    """Evaluates a model on these samples, as often as it is called.

    Args:
        model: the inner model, with the weights that it has then.

    Attributes:
        loader: of this rank's share.
        groups: of all samples, which intervals draw together; None: each is drawn alone.
        facts: what stands beside its values.
        values: of the last evaluation.
        intervals: of the last evaluation, by name, of values and of more; empty where there are none.
        table: of the samples of the last evaluation, in the main process; where there are intervals, or
            ``keeps_table`` is set, and the metrics have one.
    """

    def __init__(
        self,
        config: RunSettings,
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
        if samples.protocol:
            self.facts["protocol"] = samples.protocol
        self.confidence = IntervalConfig.of(config)
        given = config.EVALUATION.GROUP if samples.labeled else None
        self.groups = None if given is None else samples.groups(given)
        self.values: dict[str, float] = {}
        self.intervals: dict[str, ConfidenceInterval] = {}
        self.keeps_table = self.confidence is not None
        self.table: PerSampleResults | None = None
        size = config.DATA.BATCH_SIZE_EVAL or config.DATA.BATCH_SIZE
        sampler = EvaluationSampler(samples, size, rank=rank(), world_size=world_size())
        self.loader = build_loader(config, samples, sampler, task.collate, check=task.check_sample)

    @paddle.no_grad()
    def __call__(
        self, label: str, writer: Any = None, epoch: int | None = None, callbacks: CallbackList | None = None
    ) -> tuple[dict[str, float], str]:
        """Evaluate; returns the values, equal on every rank, and their line. Every rank must call this.

        Ranks may have different numbers of batches: nothing is communicated before all have finished.

        Args:
            label: of the progress bar, and what the watchdog is told.
            writer, epoch: see ``EvaluationStep``.
            callbacks: are told of each batch.
        Raises:
            StopRequested: the run was asked to stop; on every rank.
        """
        was_training = self.model.training
        self.model.eval()
        callbacks = callbacks or CallbackList()
        metrics = self.task.build_metrics()
        step = EvaluationStep(metrics, writer, epoch, callbacks.want_records)
        with gpu_memory.explain_memory(gpu_memory.of_evaluation(self.config)), self.precision.patch_forward(self.model):
            leaves = False
            try:
                with contextlib.closing(self.batches(label, step)) as batches:
                    for batch, records in batches:
                        callbacks.notify("batch_evaluated", batch, records)
            except StopRequested:
                leaves = True
            if stops.any_rank_stopping(leaves):  # after waiting for all ranks
                raise StopRequested
            self.values = values = metrics.compute(reduce_dict(metrics.state, average=False))
        self.intervals, self.table = {}, None
        if self.keeps_table and self.samples.labeled and isinstance(metrics, Metrics):
            indices = self.loader.sampler.indices()
            intervals = compute_intervals(metrics, indices, self.confidence, self._keep, self.groups)
            metrics.intervals = self.intervals = intervals
        if was_training:
            self.model.train()
        return values, _line(metrics, values, self._facts(self.groups))

    def _keep(self, table: PerSampleResults) -> None:
        self.table = table

    def scored(self, part: PerSampleResults, facts: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """Event and line of an evaluation of some samples of ``table``, with what an evaluation of these would find;
        counts of anything are left out of both.

        Args:
            facts: of this part, beside those of the evaluation.
        Raises:
            KeyError: the line needs a value that the metrics do not give for chosen samples.
        """
        values = {name: value for name, value in part.values().items() if name in self.values}
        part.metrics.intervals = intervals = part.intervals(self.confidence)
        facts = {**self._facts(part.groups), **facts}
        event = {**facts, **values, **to_event(intervals, values, self.confidence)}
        return event, _line(part.metrics, values, facts)

    def batches(self, label: str, step: EvaluationStep) -> Generator[tuple[dict[str, Any], Records | None], None, None]:
        """This rank's batches with their records, evaluated with the model as it is; communicates nothing. Bar and
        watchdog are told when one is done.

        Raises:
            StopRequested: the run was asked to stop; perhaps on this rank alone.
        """
        total = len(self.loader)
        bar = ProgressBar(total, label, is_main())
        self.heartbeat.at(f"in the {label}")
        try:
            for done, batch in enumerate(self.loader, 1):
                yield batch, self.task.eval_step(self.model, batch, step)
                bar.step()
                self.heartbeat.at(f"in the {label}, {done} of {total} batches done")
                if stops.stop_requested():
                    raise StopRequested
        finally:
            bar.close()

    def build_event(self, values: dict[str, float]) -> dict[str, Any]:
        """The last evaluation as ``metrics.jsonl`` has it: facts, values, and the ends of their intervals."""
        main_first = sorted(values, key=lambda name: name != self.task.best_metric[0])
        return {**self._facts(self.groups), **values, **to_event(self.intervals, main_first, self.confidence)}

    def _facts(self, groups: SampleGroups | None) -> dict[str, Any]:
        """Those that stand beside the values of samples of these groups, intervals included."""
        return {**({} if groups is None or not self.intervals else {_GROUPS: str(groups)}), **self.facts}

    def write_intervals(self, record: RunRecord, name: str, facts: dict[str, Any]) -> None:
        """Write those of the last evaluation, also of what has no place in ``metrics.jsonl``; nothing without any."""
        if self.intervals:
            groups = {} if self.groups is None else {_GROUPS: self.groups.plain()}
            record.file(name, to_json(self.intervals, self.confidence, {**facts, **self.facts, **groups}))
        if self.intervals and self.table is not None and record.writes:
            for one in extensions():
                one.intervals_written(record.folder / name, self, facts)


def _line(metrics: Any, values: dict[str, float], facts: dict[str, Any]) -> str:
    told = (fact if name == _GROUPS else f"({fact})" for name, fact in facts.items())
    return " ".join([metrics.summary(values), *told])
