"""``evaluate MODEL.onnx``: evaluate an exported model, and compare it with the trained model."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import paddle
from paddle.nn import functional as F

from ...core.checkpoint.class_rows import ClassNames, order_outputs
from ...core.checkpoint.output_names import drop_unnamed
from ...core.distributed import all_gather, broadcast_object, reduce_dict
from ...core.engine.compatibility import FactDifference, judge_changes, show
from ...core.engine.evaluation import EvaluationObserver, Evaluator
from ...core.engine.trainer import Trainer
from ...core.inference.evaluation import load_evaluated_weights
from ...core.intervals import ConfidenceInterval
from ...core.launch import gpu
from ...core.metrics.confidence import PerSampleResults, compute_intervals
from ...core.registry.lookup import find_built_in
from ...core.runtime.errors import UserError
from ...core.runtime.transfers import is_on_gpu, read, to_device
from ...core.settings.every_run import RunSettings
from ...core.settings.table import get_value
from ...core.tasks.metrics import PerSampleMetrics, TableMetrics
from ...core.tasks.model import as_model
from ...core.tasks.model_factory import build_model, build_outline
from ...core.tasks.protocols import count_samples
from ...core.tasks.step_types import EvaluationStep, ExportParts
from ...core.tasks.task import Task
from ...core.tasks.task_factory import build_metrics
from . import functions
from .descriptions import require_exportable
from .differences import INT8, OutputDifference, compare
from .files import as_mapping, find_exported
from .functions import ExportedFunction, TensorSpec, format_shape
from .pixels import to_pixels
from .settings import ExportSettings

_SMALLEST = 1e-38  # lower bound of probabilities before the logarithm
_PIXELS = "uint8"
_SUMS = {"float32": 1e-3, "float16": 2e-2}  # tolerance of the sum of probabilities


class ExportedLayer(paddle.nn.Layer):
    """Exported model as a layer with the interface of ``Exportable.exported_model``.

    Each rank computes its samples with its own session.

    Args:
        source: the path that the user gave.
        function: the loaded model.
        parts: ``ExportParts`` of the task: expected inputs and outputs.
        shape: shape of the input without the batch.
        output: name of the output to score; None: the only one that fits.

    Attributes:
        trained: the model that this one is compared with, or None; ``weights`` names its weights.
        compared_with: ``trained`` as a function of tensors. While ``pairs`` is a list, each forward pass also computes
            its outputs, and appends actual and expected outputs to ``pairs``.
        num_outputs: number of classes or landmarks in the scored output; 0 for boxes.
        order: the output for each class of the data, matched by name; None: unchanged.
        gives_probabilities: whether the output is class probabilities; their logarithms replace logits.

    Raises:
        UserError: input or outputs differ from what this configuration needs.
    """

    def __init__(
        self, source: str, function: ExportedFunction, parts: ExportParts, shape: tuple[int, ...], output: str | None
    ) -> None:
        super().__init__()
        self.source, self.function, self.parts = source, function, parts
        self.slot = _find_input(source, function, (None, *shape), parts)
        self.trained: paddle.nn.Layer | None = None
        self.compared_with: paddle.nn.Layer | None = None
        self.weights = ""
        self.num_outputs = 0
        self.order: list[int] | None = None
        self.pairs: list[tuple[Any, Any]] | None = None
        self._batch = self.slot.shape[0] if self.slot.shape else None
        batch = self._batch or 2
        probe = [paddle.to_tensor(np.random.default_rng(0).standard_normal((batch, *shape)).astype(np.float32))]
        if parts.sizes_name is not None:
            probe.append(paddle.ones([batch, 2], dtype="int64"))
        self._numbers = list(range(len(function.outputs)))
        try:
            with paddle.no_grad():
                arrays = [array.numpy() for array in self._compute(probe)]
        except Exception as error:  # C++ errors of several classes
            expected = f"{format_shape((None, *shape))} {self.slot.dtype}"
            raise UserError(f"{source}: cannot be computed for {expected}: {functions.find_reason(error)}") from error
        shapes = [array.shape for array in arrays]
        self.gives_probabilities = False
        if len(parts.output_names) > 1:
            self._numbers = _find_outputs(source, function, parts.output_names)
            return
        self._numbers = [_choose_output(source, function, shapes, parts.output_shape, output)]
        scores = arrays[self._numbers[0]]
        self.num_outputs = scores.shape[1] if scores.ndim > 1 else 1
        self.gives_probabilities = bool(
            scores.ndim == 2
            and (scores >= 0).all()
            and (np.abs(scores.sum(axis=1) - 1) <= _SUMS.get(self.precision, 2e-2)).all()
        )

    @property
    def precision(self) -> str:
        """Precision of the input, "float32" or "float16"; for pixels, the description's; "int8" if any part has it."""
        if self.function.is_quantized:
            return INT8
        return self.slot.dtype if self.slot.dtype in _SUMS else str(self.function.about.get("precision", "float32"))

    def forward(self, images: paddle.Tensor, sizes: paddle.Tensor | None = None) -> Any:
        """Return the scored output, or all outputs if the task has several; some models take ``sizes`` as well."""
        inputs = [images] if sizes is None else [images, sizes]
        parts: Any = self._compute(inputs)
        outputs = parts if len(self.parts.output_names) > 1 else parts[0]
        if self.order is not None:
            outputs = paddle.index_select(outputs, to_device(np.array(self.order)), axis=1)
        if self.pairs is not None and self.compared_with is not None:
            self.pairs.append((outputs, self.compared_with(*inputs)))
        return paddle.log(paddle.clip(outputs, min=_SMALLEST)) if self.gives_probabilities else outputs

    def _compute(self, inputs: Sequence[paddle.Tensor]) -> list[paddle.Tensor]:
        if self.slot.dtype == _PIXELS:
            normalized = self.parts.about["mean"], self.parts.about["standard_deviation"]
            inputs = [to_device(to_pixels(read(inputs[0])[0], *normalized)), *inputs[1:]]
        pairs = zip(self.slot.shape or (), inputs[0].shape)
        if any(axis and taken not in (None, length) for axis, (taken, length) in enumerate(pairs)):
            raise UserError(
                f"{self.source}: takes {self.slot}, and this input is {tuple(inputs[0].shape)}: export the model "
                "again, for images of any size, or use windows of its size (-window=HEIGHTxWIDTH, for smaller images "
                "with DATA.EVAL_SHORTEST_SIDE)"
            )
        number, size = len(inputs[0]), self._batch
        if size is None or number == size:
            return self.function.run(inputs, self._numbers)
        missing = -number % size
        if missing:
            inputs = [paddle.concat([x, paddle.ones([missing, *x.shape[1:]], dtype=x.dtype)]) for x in inputs]
        groups = zip(*(paddle.split(x, (number + missing) // size) for x in inputs))
        parts = zip(*(self.function.run(group, self._numbers) for group in groups))
        return [paddle.concat(part)[:number] for part in parts]


def _find_input(
    source: str, function: ExportedFunction, expected: tuple[int | None, ...], parts: ExportParts
) -> TensorSpec:
    """Return the image input of an exported model; raise a UserError if it does not fit task and configuration."""
    listed, required = "; ".join(map(str, function.inputs)), "one"
    if parts.sizes_name is not None:
        required = f"two, images and {parts.sizes_name} (batch, 2)"
    if len(function.inputs) != (1 if parts.sizes_name is None else 2):
        count = len(function.inputs)
        raise UserError(f"{source}: takes {count} inputs ({listed}): expected {required}, {format_shape(expected)}")
    slot = function.inputs[0]
    if slot.dtype == _PIXELS and "mean" in parts.about:
        expected = (expected[0], *expected[2:], expected[1])
    elif slot.dtype not in _SUMS:
        raise UserError(
            f"{source}: takes {slot}: expected float32 or float16, because the configuration normalizes images"
        )
    if slot.shape is None:
        return slot
    pairs = list(zip(slot.shape[1:], expected[1:]))
    if len(slot.shape) == len(expected) and all(length in (None, needed) for length, needed in pairs):
        return slot
    advice = "change the configuration's size and channels, or export the model for these"
    channels = expected[1]
    if len(slot.shape) == len(expected) and slot.shape[-1] == channels and slot.shape[1] != channels:
        advice = "export it with channels before height and width"
    raise UserError(f"{source}: takes {slot}, and this configuration has {format_shape(expected)}: {advice}")


def _find_outputs(source: str, function: ExportedFunction, expected: Sequence[str]) -> list[int]:
    """Return the indices of the outputs with these names; raises a UserError if one is missing."""
    names = [slot.name for slot in function.outputs]
    if not set(expected) <= set(names):
        raise UserError(f"{source}: gives {', '.join(names)}: expected {', '.join(expected)}; export it again")
    return [names.index(name) for name in expected]


def _choose_output(
    source: str,
    function: ExportedFunction,
    shapes: Sequence[tuple[int, ...]],
    expected: tuple[int | None, ...] | None,
    name: str | None,
) -> int:
    """Return the index of the output to score: the one of this ``name``, else the only one that fits.

    ``source`` is the path that the user gave, ``shapes`` are of computed outputs, and ``expected`` is the required
    shape without the batch (None: any). Raises UserError: no output or several outputs fit, or the named one does not
    exist.
    """
    names = [slot.name for slot in function.outputs]
    listed = ", ".join(f"{show(output)} {format_shape((None, *shape[1:]))}" for output, shape in zip(names, shapes))
    if name is not None and name not in names:
        raise UserError(f"EXPORTED_OUTPUT {name}: {source} does not have this output; it has {listed}")
    named = [number for number in range(len(names)) if name in (None, names[number])]
    fitting = [number for number in named if expected is None or _fits(shapes[number][1:], expected)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UserError(f"{source}: several outputs fit, {listed}: choose one with EXPORTED_OUTPUT NAME")
    assert expected is not None
    required, advice = format_shape((None, *expected)), ""
    classes = shapes[named[0]][1] if len(named) == 1 and len(shapes[named[0]]) == 2 else 0
    if len(expected) == 1 and classes > (expected[0] or classes):
        advice = f"; add -num_classes={classes}, and its classes are matched with the data's by name"
    raise UserError(f"{source}: gives {listed}, and these data need {required}{advice}")


def _fits(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    return len(shape) == len(expected) and all(required in (None, length) for length, required in zip(shape, expected))


def load_exported_layer(config: RunSettings, task: Task) -> ExportedLayer:
    """Load the model of EXPORTED, and build the configured model for the weights that it is compared with.

    Raises:
        UserError: the file is damaged, or does not fit the task, the image size or the number of classes.
    """
    settings = cast(ExportSettings, config)
    try:
        exportable = require_exportable(task)
        parts = exportable.export_parts()
    except UserError as error:
        raise UserError(f"EXPORTED {settings.EXPORTED}: {str(error).removeprefix('export: ')}") from error
    size = parts.size
    if size is None:
        side = get_value(config, exportable.image_size_key)
        size = tuple(side) if isinstance(side, (list, tuple)) else (side, side)
    name, output = str(settings.EXPORTED), settings.EXPORTED_OUTPUT
    function = functions.load(find_exported(name), settings.EXPORTED_RUNTIME)
    exported = ExportedLayer(name, function, parts, (parts.channels, *size), output)
    if config.MODEL.PRETRAINED is not None:
        exported.trained = build_model(config, task)
        exported.trained.eval()
        exported.compared_with = exportable.exported_model(exported.trained)
    return exported


def load_comparison_weights(run: Trainer, model: ExportedLayer) -> tuple[str | Path, list[str]]:
    """Load the trained weights that an exported model is compared with, and evaluate the exported model in ``run``.

    Every rank must call this. Returns the name of the evaluated model and lines for the log. Raises UserError: the
    model expects other preprocessing, or the weights do not exist.
    """
    function, task, config = model.function, run.task, run.config
    exportable = require_exportable(task)
    lines = [function.note] if function.note else []
    about = exportable.export_parts().about
    lines += compare_descriptions(model, about, config)
    names = about.get("landmarks") or task.signature(run.eval_dataset).get("classes")
    lines += match_names(model, names, config, task)
    if model.gives_probabilities:
        lines.append(f"note: {model.source} gives probabilities: the loss uses their logarithms as logits")
    if model.compared_with is not None:
        weights, more = load_evaluated_weights(run, model.trained)
        model.weights = str(weights)
        lines += more
    run.model = run.evaluator.model = exportable.evaluated_model(model)
    devices = dict.fromkeys(all_gather(function.computed_by))
    run.evaluator.facts["computed_by"] = " and ".join(devices)
    return model.source, lines


def compare_descriptions(model: ExportedLayer, task_facts: Mapping[str, Any], config: RunSettings) -> list[str]:
    """Compare preprocessing with the configuration's; if it differs without -allow_changes, raise a UserError."""
    about, here = model.function.about, task_facts.get("preprocessing")
    there = about.get("preprocessing")
    if isinstance(here, str):  # a task of a user describes it as one text
        here, there = {"steps": here}, {"steps": there} if there else {}
    here, there = as_mapping(here), {**as_mapping(there), **as_mapping(about.get("computed_inside"))}
    if model.slot.dtype == _PIXELS:
        there, here = ({k: v for k, v in steps.items() if k != "layout"} for steps in (there, here))
    if not there and here:
        return [f"note: {model.source} does not store its preprocessing; this is used: {format_steps(here)}"]
    changes = [
        FactDifference(f"preprocessing.{name}", there.get(name), here.get(name), "input")
        for name in dict.fromkeys([*here, *there])
        if there.get(name) != here.get(name)
    ]
    return judge_changes("evaluate", model.source, "expects other preprocessing", changes, config)


def format_steps(steps: Mapping[str, Any]) -> str:
    """Format preprocessing steps on one line."""
    return ", ".join(f"{name} {value}" for name, value in steps.items())


def match_names(model: ExportedLayer, names: Sequence[str] | None, config: RunSettings, task: Task) -> list[str]:
    """Order the outputs as the classes or landmarks of the data, by name, from now on; return lines for the log.

    Raises UserError if the model lacks one of them, or if it is unknown which outputs they are.
    """
    listed = model.function.about.get("landmarks") or model.function.about.get("classes")
    theirs, ours = (drop_unnamed(side) if isinstance(side, (list, tuple)) else [] for side in (listed, names))
    number, is_named = model.num_outputs, False
    if theirs == ours:
        return []
    shown = f"{show(', '.join(theirs)) or 'unknown'}, the data's {show(', '.join(ours)) or 'unknown'}"
    if theirs and ours and number:
        outline = as_model(build_outline(lambda: task.build_model(1)))  # it only compares names
        model.order, is_named = order_outputs(outline, ClassNames(theirs, ours), number, number, model.source)
    elif (theirs and ours) or (find_built_in(config.TASK) == "classification" and 0 < len(ours) < number):
        remedy = "list the data's so, or evaluate its weights" if theirs else "export it with their names"
        raise UserError(f"{model.source}: its classes are {shown}: {remedy}")
    if is_named:
        return [f"{model.source}: {len(ours):,} of {number:,} outputs are scored, matched by name"]
    return [f"note: classes of {model.source} are {shown}: the score assumes that both have the same order"]


class _ReplayLayer(paddle.nn.Layer):
    """Layer that returns outputs computed before, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: list[Any] = []

    def forward(self, *inputs: paddle.Tensor) -> Any:
        """Return the next outputs; the inputs are ignored."""
        return self.outputs.pop(0)


class ComparedModels(NamedTuple):
    """How the outputs and the score of an exported model differ from the other model's."""

    outputs: OutputDifference
    changed: int | None  # samples with another answer, of classes or chosen labels; None: the task has none
    values: dict[str, float]  # of the other model; empty without labels
    summary: str  # these in words
    interval: ConfidenceInterval | None  # of how much the exported model's score exceeds the other's; None: unknown


class OutputComparison(EvaluationObserver):
    """Scores the model that an exported one is compared with on the same batches, and compares all outputs.

    Args:
        exported: its ``compared_with`` computes the other outputs from now on, if it has one.
        task: the evaluated task.
        evaluator: which evaluates the exported model, and whose last evaluation ``finish`` compares with.
    """

    def __init__(self, exported: ExportedLayer, task: Task, evaluator: Evaluator) -> None:
        self.exported, self._task, self._evaluator = exported, task, evaluator
        self._metrics = build_metrics(task)
        self._replayed = _ReplayLayer()
        self._other = require_exportable(task).evaluated_model(self._replayed)
        self._of = ""  # what is compared, in words
        self._has_class_scores = False  # set by the first batch of this rank
        # Largest difference of outputs, largest output, number of samples with another answer; on the device.
        self._totals = [paddle.zeros([], dtype=dtype) for dtype in ("float32", "float32", "int64")]

        if exported.compared_with is not None:
            exported.pairs = []  # of outputs of both models, recorded from now on

    def after_batch(self, batch: dict[str, Any], records: object) -> None:
        """Score the other model's outputs of a batch, and compare them with the exported model's."""
        pairs = self.exported.pairs
        if pairs is None:
            return
        self.exported.pairs = None
        self._replayed.outputs = [each for _, each in pairs]
        self._task.eval_step(self._other, batch, EvaluationStep(self._metrics))
        done = len(pairs) - len(self._replayed.outputs)
        for actual, expected in pairs[:done]:  # later ones are recomputed for figures
            self._compare(actual, expected)
        self.exported.pairs = []

    def _compare(self, actual: paddle.Tensor, expected: paddle.Tensor) -> None:
        if self.exported.parts.difference is not None:
            difference = compare(read(*expected), read(*actual), self.exported.parts.difference)
            self._of, new = difference.of, paddle.to_tensor(difference[:2], dtype="float32")
            self._totals[:2] = [paddle.maximum(total, new[index]) for index, total in enumerate(self._totals[:2])]
            return
        expected = expected.astype("float32")
        if self.exported.gives_probabilities:
            expected = F.softmax(expected, axis=-1)
        distance = (actual - expected).abs()
        distance = paddle.where(distance - distance == 0, distance, paddle.full_like(distance, float("inf")))  # NaN too
        largest, output, changed = self._totals
        self._totals = [paddle.maximum(largest, distance.max()), paddle.maximum(output, expected.abs().max()), changed]
        if actual.ndim == 2:
            self._has_class_scores = True
            if self.exported.parts.is_exclusive:
                is_other = actual.argmax(axis=-1) != expected.argmax(axis=-1)
            else:
                is_other = self._differ_in_labels(actual, expected)
            self._totals[2] = changed + is_other.astype("int64").sum()

    def _differ_in_labels(self, actual: paddle.Tensor, expected: paddle.Tensor) -> paddle.Tensor:
        """Return which samples have other labels, bool (samples,), by the task's rule."""
        choose = self.exported.parts.choose
        if choose is None:
            return ((actual > 0) != (expected > 0)).any(axis=-1)
        ours, theirs = map(choose, read(actual, expected))  # waits for the device: the rule is that of the scores
        return paddle.to_tensor((ours != theirs).any(axis=-1))

    def finish(self) -> ComparedModels:
        """Return the comparison over all ranks, after the evaluation. Every rank must call this."""
        self.exported.pairs = None
        evaluator, metrics, values, summary, found = self._evaluator, self._metrics, dict[str, float](), "", None
        state, indices = reduce_dict(metrics.state, average=False), evaluator.loader.sampler.indices()
        if isinstance(metrics, TableMetrics):
            metrics.indices = indices
        totals = all_gather([value.item() for value in self._totals])
        largest, output, changed = max(t[0] for t in totals), max(t[1] for t in totals), sum(t[2] for t in totals)
        outputs = OutputDifference(largest, output, next(filter(None, all_gather(self._of)), ""))
        if evaluator.samples.labeled:
            values = metrics.compute(state)
            summary = metrics.summary(values)
            if evaluator.confidence is not None and isinstance(metrics, PerSampleMetrics):
                tables = list[PerSampleResults]()
                compute_intervals(metrics, indices, None, tables.append, evaluator.groups)
                score, (table, confidence) = self._task.best_metric[0], (evaluator.table, evaluator.confidence)
                if table is not None and tables and score in values and score in evaluator.values:
                    found = table.interval_of_difference(tables[0], score, confidence)
        return ComparedModels(
            outputs, changed if self._has_class_scores else None, values, summary, broadcast_object(found)
        )


class ExportComparison(OutputComparison):
    """Compares an exported model with the trained weights, and logs the difference."""

    def __init__(self, run: Trainer) -> None:
        self._run = run
        layers = run.model.sublayers(include_self=True)
        super().__init__(next(each for each in layers if isinstance(each, ExportedLayer)), run.task, run.evaluator)

    def after_evaluate(self, facts: dict[str, Any]) -> None:
        """Log the difference between both models over all ranks."""
        exported, run, run_log = self.exported, self._run, self._run.run_log
        if exported.pairs is None:
            return
        found = self.finish()
        largest, (score, _) = found.outputs.absolute, run.task.best_metric
        event: dict[str, Any] = {**facts, "trained": exported.weights}
        event["largest_difference"] = largest if math.isfinite(largest) else None
        event["of_outputs_up_to"] = found.outputs.largest
        messages = [str(found.outputs)]
        if found.changed is not None:
            event["changed"] = found.changed
            messages.insert(0, f"{found.changed:,} of {count_samples(run.task, run.eval_dataset)} have another answer")
        if found.values:
            run_log.log_and_print(f"trained weights: {found.summary}")
            event["trained_values"] = found.values
        if score in found.values and score in run.evaluator.values:
            text = f"{score} {round(run.evaluator.values[score] - found.values[score], 6) + 0.0:+.4g}"
            confidence = run.evaluator.confidence
            if confidence is not None and found.interval is not None and found.interval.has_width():
                low, high = found.interval.low, found.interval.high
                text += f" [{low:+.4g}, {high:+.4g}]"
                ends = [float(f"{end:.6g}") for end in (low, high)]
                event["difference"] = {"percent": confidence.percent, score: ends}
            messages.insert(0, text)
        run_log.event("difference_of_export", event)
        run_log.log_and_print(f"after the export: {'; '.join(messages)}")
        self._explain_difference(found.outputs)

    def _explain_difference(self, difference: OutputDifference) -> None:
        """Say that rounding does not explain the difference of outputs, if it does not."""
        exported, run_log = self.exported, self._run.run_log
        # TF32 has the digits of float16
        precision = exported.precision
        if precision == "float32" and is_on_gpu() and gpu.rounds_to_tf32():
            precision = "float16"
        if not difference.is_rounding(precision):
            run_log.log_and_print(
                f"note: rounding in {precision} does not explain this difference: check that {exported.source} was "
                "exported from these weights, and that both have the same preprocessing"
            )
