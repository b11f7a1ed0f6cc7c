"""Evaluation of a split: reads each sample once over all ranks, computes values and their intervals."""

import contextlib
import dataclasses
import itertools
from collections.abc import Collection, Generator, Sequence
from typing import Any

import paddle

from ..data.loader import build_loader
from ..data.sampler import EvaluationSampler
from ..distributed import StopRequested, all_gather, is_main, rank, reduce_dict, stops, world_size
from ..intervals import ConfidenceInterval
from ..logging.progress import Heartbeat, ProgressBar
from ..logging.record import RunLog
from ..metrics.confidence import IntervalConfig, PerSampleResults, compute_intervals, to_event, to_json
from ..registry.extension_points import WRITE_EVALUATED
from ..registry.required_methods import is_builtin, require_methods
from ..runtime.errors import UserError
from ..runtime.json_format import format_json
from ..runtime.metrics_file import pack_scores
from ..settings.every_run import RunSettings
from ..tasks.dataset import TransformedDataset
from ..tasks.metrics import Metrics, PerSampleMetrics, ShownValues, TableMetrics
from ..tasks.network_checks import has_own_layers, keep_buffers, require_unchanged
from ..tasks.protocols import get_sample_check
from ..tasks.sample_groups import SampleGroups
from ..tasks.score import HIGHER, LOWER, Score, to_plain
from ..tasks.step_types import EvaluationStep
from ..tasks.table_checks import require_line
from ..tasks.task import Records, Task
from ..tasks.task_factory import build_metrics
from . import gpu_memory
from .metrics_check import check_values, find_problem
from .precision import EvaluationPrecision

_GROUPS = "groups"  # key of an evaluation event


class EvaluationObserver:
    """Base class of what follows an evaluation on every rank, such as the records of a report; methods are optional."""

    #: whether the task keeps records for figures (``EvaluationStep.keeps_records``)
    wants_records = False

    def after_batch(self, batch: dict[str, Any], records: Records | None) -> None:
        """Handle an evaluated batch with the ``records`` from ``Task.eval_step``."""

    def after_evaluate(self, facts: dict[str, Any]) -> None:
        """Handle the end of a run that only evaluates; ``facts`` are plain values about it."""


class Evaluator:
    """Evaluates a bare model with its current weights on the samples of one split each time it is called.

    Attributes:
        groups: groups of the samples that intervals resample together; None: each sample is resampled alone.
        facts: remarks that are logged after the values, by name, such as the precision or excluded samples.
        scores: what the values of the evaluations so far are, by name; in the main process only.
        undefined: names of the values that the last evaluation's samples do not define.
        intervals: intervals of the last evaluation by name, also of values that are not logged; may be empty.
        table: per-sample results of the last evaluation, in the main process; None if the metrics have none.
    """

    def __init__(
        self,
        config: RunSettings,
        task: Task,
        model: paddle.nn.Layer,
        samples: TransformedDataset,
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
        if samples.exclusions:
            self.facts["without"] = samples.exclusions
        if samples.eval_protocol:
            self.facts["protocol"] = samples.eval_protocol
        self.confidence = IntervalConfig.from_config(config)
        grouping = config.EVALUATION.GROUP if samples.labeled else None
        self.groups = None if grouping is None else samples.groups(grouping)
        self.values: dict[str, float] = {}
        self.undefined: Collection[str] = ()
        self.scores: dict[str, Score] = {}
        self._of_classes: list[Score] = []
        self._written: set[str] = set()  # names of the scores in the file
        self.intervals: dict[str, ConfidenceInterval] = {}
        self.keeps_table = self.confidence is not None
        self.table: PerSampleResults | None = None
        size = config.DATA.BATCH_SIZE_EVAL or config.DATA.BATCH_SIZE
        sampler = EvaluationSampler(samples, size, rank=rank(), world_size=world_size())
        self.loader = build_loader(config, samples, sampler, task.collate, check=get_sample_check(task))

    @paddle.no_grad()
    def __call__(
        self,
        label: str,
        writer: Any = None,
        epoch: int | None = None,
        observers: Sequence[EvaluationObserver] = (),
    ) -> tuple[dict[str, float], str]:
        """Evaluate all samples; return values by name, equal on every rank, and their log line. Every rank calls this.

        Values that the samples do not define are not among them.

        Ranks may have different numbers of batches: nothing is communicated before all have finished. Without labels
        there are no values and no line. ``writer`` and ``epoch``: see ``EvaluationStep``; ``observers``: called after
        each batch. Raises StopRequested on every rank if one is asked to stop.
        """
        metrics = build_metrics(self.task, self.samples.labeled)
        step = EvaluationStep(metrics, writer, epoch, any(each.wants_records for each in observers))
        self.values, self.undefined, self.intervals, self.table = {}, (), {}, None
        with gpu_memory.explain_memory(gpu_memory.advise_evaluation(self.config)):
            state = self._evaluate(label, step, observers)
        if not self.samples.labeled:
            return {}, ""
        return self._score(metrics, state)

    def _score(self, metrics: Metrics, state: dict[str, Any]) -> tuple[dict[str, float], str]:
        indices = self.loader.sampler.indices()
        if isinstance(metrics, TableMetrics):
            metrics.indices = indices
        computed = metrics.compute(state)
        self.undefined = check_values(metrics, computed)
        self.values = values = {name: value for name, value in computed.items() if name not in self.undefined}
        self._describe(metrics)
        if self.keeps_table and isinstance(metrics, PerSampleMetrics):
            intervals = compute_intervals(metrics, indices, self.confidence, self._keep, self.groups)
            metrics.intervals = self.intervals = intervals
        return values, format_line(metrics, values, self._facts(self.groups), self.undefined)

    def _describe(self, metrics: Metrics) -> None:
        """Note what the values are that earlier evaluations did not define."""
        new = {name: value for name, value in self.values.items() if name not in self.scores}
        if not new or not isinstance(metrics, TableMetrics):
            return
        self.scores |= metrics.describe(new)
        best, more_is_better = self.task.best_metric
        if best in self.scores:
            better = HIGHER if more_is_better else LOWER
            self.scores[best] = dataclasses.replace(self.scores[best], better=better)
        self._of_classes = metrics.describe_classes()

    def _evaluate(
        self, label: str, step: EvaluationStep, observers: Sequence[EvaluationObserver] = (), number: int | None = None
    ) -> dict[str, Any]:
        """Evaluate all batches, or each rank's first ``number``, and return the sum of all ranks' states."""
        was_training = self.model.training
        self.model.eval()
        with keep_buffers(self.model), self.precision.patch_forward(self.model):
            leaves = False
            try:
                with contextlib.closing(self.batches(label, step)) as batches:
                    for batch, records in itertools.islice(batches, number):
                        for observer in observers:
                            observer.after_batch(batch, records)
            except StopRequested:
                leaves = True
            if stops.any_rank_stopping(leaves):  # waits for all ranks
                raise StopRequested
        if was_training:
            self.model.train()
        return reduce_dict(step.metrics.state, average=False)

    @paddle.no_grad()
    def check_metrics(self, epoch: int) -> None:
        """Try, before the first update, what an evaluation asks of a user's network, task, metrics and kind of scores.

        They get the first batch, and metrics all samples if something is wrong there, since a score may need samples of
        a class. Every rank must call this. Raises UserError, or StopRequested on every rank.
        """
        metrics = build_metrics(self.task)
        parts, has_network = (self.task, metrics, getattr(metrics, "scores", metrics)), has_own_layers(self.model)
        has_metrics = not all(is_builtin(type(part)) for part in parts)
        if not has_metrics and not has_network:
            return
        require_methods(type(metrics), "")
        if isinstance(metrics, TableMetrics):
            metrics.is_complete = False
        label = f"check of the {'metrics' if has_metrics else 'network'}"
        with require_unchanged(self.model) if has_network else contextlib.nullcontext():
            state = self._evaluate(label, EvaluationStep(metrics, None, epoch), number=1)
        if not has_metrics or not self._agree(find_problem(self.task, metrics, state)):
            return
        metrics = build_metrics(self.task)
        state = self._evaluate(label, EvaluationStep(metrics, None, epoch))
        problem = self._agree(find_problem(self.task, metrics, state))
        if problem:
            raise UserError(problem)

    @staticmethod
    def _agree(problem: str) -> str:
        """Return the first problem that a rank has found; empty: none has."""
        return next(filter(None, all_gather(problem)), "")

    def _keep(self, table: PerSampleResults) -> None:
        self.table = table

    def scored(self, part: PerSampleResults, facts: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """Compute event and log line for some samples of ``table``, as an evaluation of these samples alone would give.

        Counts, such as the number of boxes, are omitted. Raises KeyError if the line needs a value that the metrics
        cannot compute for chosen samples.
        """
        values = {name: value for name, value in part.values().items() if name in self.values}
        part.metrics.intervals = intervals = part.intervals(self.confidence)
        facts = {**self._facts(part.groups), **facts}
        event = {**facts, **pack_scores(values), **to_event(intervals, values, self.confidence)}
        return event, format_line(part.metrics, values, facts)

    def batches(self, label: str, step: EvaluationStep) -> Generator[tuple[dict[str, Any], Records | None], None, None]:
        """Evaluate this rank's batches without communication; yield each with the records from ``Task.eval_step``.

        Batches are numpy arrays or tensors by name. Raises StopRequested, perhaps on this rank alone.
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
        """Build the last evaluation's event for ``metrics.jsonl``: facts, values and the ends of their intervals."""
        main_first = sorted(values, key=lambda name: name != self.task.best_metric[0])
        intervals = to_event(self.intervals, main_first, self.confidence)
        return {**self._facts(self.groups), **pack_scores(values), **intervals}

    def _facts(self, groups: SampleGroups | None) -> dict[str, Any]:
        return {**({} if groups is None or not self.intervals else {_GROUPS: str(groups)}), **self.facts}

    def write_intervals(self, run_log: RunLog, name: str, facts: dict[str, Any]) -> None:
        """Write all intervals of the last evaluation to a JSON file in the record's folder, if there are any."""
        if self.intervals:
            groups = {} if self.groups is None else {_GROUPS: self.groups.to_dict()}
            run_log.file(name, to_json(self.intervals, self.confidence, {**facts, **self.facts, **groups}))

    def write_scores(self, run_log: RunLog, name: str) -> None:
        """Write what the values are to a JSON file in the record's folder, once for all evaluations with these."""
        if self.scores and self.scores.keys() != self._written:
            self._written = set(self.scores)
            run_log.file(name, format_json(to_plain(self.scores, self._of_classes), indent=1) + "\n")

    def write_sample_table(self, run_log: RunLog, name: str, facts: dict[str, Any]) -> None:
        """Write the table of the samples next to the file ``name`` with the intervals, if there are any."""
        write = WRITE_EVALUATED.find()
        if self.intervals and self.table is not None and run_log.writes and write is not None:
            write(run_log.folder / name, self, facts)


def format_line(
    metrics: Metrics, values: dict[str, float], facts: dict[str, Any], undefined: Collection[str] = ()
) -> str:
    """Format the values of an evaluation, and facts about it; ``undefined`` values read as NaN."""
    remarks = (fact if name == _GROUPS else f"({fact})" for name, fact in facts.items())
    return " ".join([require_line(metrics, metrics.summary(ShownValues(values, undefined))), *remarks])
