"""``evaluate MODEL.onnx``: an exported model in the place of the trained one, and what its export has changed."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import paddle
from paddle.nn import functional as F

from ..distributed import all_gather, reduce_dict
from ..engine.compatibility import FactDifference, judge_changes, show
from ..engine.trainer import Trainer, build_model
from ..inference.evaluation import load_trained
from ..launch import gpu
from ..runtime.errors import UserError
from ..runtime.transfers import is_on_gpu, read, to_device
from ..settings.every_run import RunSettings
from ..settings.key import get_value
from ..tasks.callback import Callback
from ..tasks.task import EvaluationStep, ExportParts, Task
from . import functions
from .differences import OutputDifference, compare
from .files import find, mapping
from .functions import ExportedFunction, TensorSpec, shape_text
from .pixels import to_pixels
from .settings import ExportSettings

_SMALLEST = 1e-38  # probability whose logarithm is taken for that of 0
_PIXELS = "uint8"
_SUMS = {"float32": 1e-3, "float16": 2e-2}  # by how much the sum of probabilities may differ from 1


class ExportedLayer(paddle.nn.Layer):
    """An exported model as a function of tensors, as ``Task.exported_model`` makes one of a trained model. A rank
    computes its own samples with a session of its own.

    Args:
        source: as the user named it.
        function: what its files compute.
        parts: what is expected of it.
        shape: of its input behind the batch.
        output: the name of the one that is scored; None: the only one that fits.

    Attributes:
        trained: None, or the model that it is compared with; ``weights`` says which it has.
        compared_with: the same as a function of tensors; its outputs are computed as well, while ``pairs`` is a
            list, to which found and expected outputs of each forward pass are added.
        gives_probabilities: of classes; the logarithms take the place of logits.

    Raises:
        UserError: input or outputs are others than this configuration needs.
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
        self.pairs: list[tuple[Any, Any]] | None = None
        self._batch = self.slot.shape[0] if self.slot.shape else None
        batch = self._batch or 2
        probed = [paddle.to_tensor(np.random.default_rng(0).standard_normal((batch, *shape)).astype(np.float32))]
        if parts.sizes_name is not None:
            probed.append(paddle.ones([batch, 2], dtype="int64"))
        self._numbers = list(range(len(function.outputs)))
        try:
            with paddle.no_grad():
                found = [array.numpy() for array in self._compute(probed)]
        except Exception as error:  # of C++, of several classes
            expected = f"{shape_text((None, *shape))} {self.slot.dtype}"
            raise UserError(f"{source}: cannot be computed for {expected}: {functions.reason(error)}") from error
        shapes = [one.shape for one in found]
        self.gives_probabilities = False
        if parts.sizes_name is not None:
            self._numbers = _named_outputs(source, function, parts.output_names)
            return
        self._numbers = [_choose_output(source, function, shapes, parts.output_shape, output)]
        scores = found[self._numbers[0]]
        self.gives_probabilities = bool(
            scores.ndim == 2 and (scores >= 0).all() and (np.abs(scores.sum(axis=1) - 1) <= _SUMS[self.precision]).all()
        )

    @property
    def precision(self) -> str:
        """ "float32" or "float16", of its input; of pixels, what the file says."""
        return self.slot.dtype if self.slot.dtype in _SUMS else str(self.function.about.get("precision", "float32"))

    def forward(self, images: paddle.Tensor, sizes: paddle.Tensor | None = None) -> Any:
        """Its output, or all of them where it takes ``sizes`` as well."""
        inputs = [images] if sizes is None else [images, sizes]
        parts = self._compute(inputs)
        found = parts[0] if sizes is None else parts
        if self.pairs is not None and self.compared_with is not None:
            self.pairs.append((found, self.compared_with(*inputs)))
        return paddle.log(paddle.clip(found, min=_SMALLEST)) if self.gives_probabilities else found

    def _compute(self, inputs: Sequence[paddle.Tensor]) -> list[paddle.Tensor]:
        if self.slot.dtype == _PIXELS:
            normalized = self.parts.about["mean"], self.parts.about["standard_deviation"]
            inputs = [to_device(to_pixels(read(inputs[0])[0], *normalized)), *inputs[1:]]
        number, size = len(inputs[0]), self._batch
        if size is None or number == size:
            return self.function.run(inputs, self._numbers)
        missing = -number % size
        if missing:
            inputs = [paddle.concat([one, paddle.ones([missing, *one.shape[1:]], dtype=one.dtype)]) for one in inputs]
        groups = zip(*(paddle.split(one, (number + missing) // size) for one in inputs))
        parts = zip(*(self.function.run(group, self._numbers) for group in groups))
        return [paddle.concat(part)[:number] for part in parts]


def _find_input(
    source: str, function: ExportedFunction, expected: tuple[int | None, ...], parts: ExportParts
) -> TensorSpec:
    """
    Raises:
        UserError: there are others, or the first is none of images like these.
    """
    listed, wanted = "; ".join(map(str, function.inputs)), "one"
    if parts.sizes_name is not None:
        wanted = f"two, images and {parts.sizes_name} (batch, 2)"
    if len(function.inputs) != (1 if parts.sizes_name is None else 2):
        count = len(function.inputs)
        raise UserError(f"{source}: takes {count} inputs ({listed}): expected {wanted}, {shape_text(expected)}")
    slot = function.inputs[0]
    if slot.dtype == _PIXELS and "mean" in parts.about:
        expected = (expected[0], *expected[2:], expected[1])
    elif slot.dtype not in _SUMS:
        raise UserError(
            f"{source}: takes {slot}: expected float32 or float16, as the configuration normalizes images itself"
        )
    if slot.shape is None:
        return slot
    pairs = list(zip(slot.shape[1:], expected[1:]))
    if len(slot.shape) == len(expected) and all(own in (None, wanted) for own, wanted in pairs):
        return slot
    advice = "set the configuration's size and channels to those of the model, or export it for these"
    if len(slot.shape) == len(expected) and slot.shape[-1] == expected[1] != slot.shape[1]:
        advice = "export it with channels in front of height and width"
    raise UserError(f"{source}: takes {slot}, and this configuration has {shape_text(expected)}: {advice}")


def _named_outputs(source: str, function: ExportedFunction, wanted: Sequence[str]) -> list[int]:
    """The numbers of the outputs with these names.

    Raises:
        UserError: one is not there.
    """
    names = [slot.name for slot in function.outputs]
    if not set(wanted) <= set(names):
        raise UserError(f"{source}: gives {', '.join(names)}: expected {', '.join(wanted)}; export it again")
    return [names.index(name) for name in wanted]


def _choose_output(
    source: str,
    function: ExportedFunction,
    shapes: Sequence[tuple[int, ...]],
    expected: tuple[int | None, ...] | None,
    name: str | None,
) -> int:
    """The number of the output that is scored.

    Args:
        shapes: as they were computed.
        expected: behind the batch; None: any.
    Raises:
        UserError: none fits, or several do, or the named one is not there.
    """
    names = [slot.name for slot in function.outputs]
    listed = ", ".join(f"{show(own)} {shape_text((None, *shape[1:]))}" for own, shape in zip(names, shapes))
    if name is not None and name not in names:
        raise UserError(f"EXPORTED_OUTPUT {name}: {source} has no such output, only {listed}")
    named = [number for number in range(len(names)) if name in (None, names[number])]
    fitting = [number for number in named if expected is None or _fits(shapes[number][1:], expected)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UserError(f"{source}: several outputs fit, {listed}: choose one with EXPORTED_OUTPUT NAME")
    assert expected is not None
    wanted, advice = shape_text((None, *expected)), ""
    classes = shapes[named[0]][1] if len(named) == 1 and len(shapes[named[0]]) == 2 else 0
    if len(expected) == 1 and classes > (expected[0] or classes):
        advice = f"; -num_classes={classes} scores it if the classes of the data are its first"
    raise UserError(f"{source}: gives {listed}, and these data need {wanted}{advice}")


def _fits(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    return len(shape) == len(expected) and all(wanted in (None, own) for own, wanted in zip(shape, expected))


def exported_model(config: RunSettings, task: Task) -> ExportedLayer:
    """Load what EXPORTED names, and beside it the configured model, for the weights that it is compared with.

    Raises:
        UserError: it is damaged, or not of this task, size or number of classes.
    """
    settings = cast(ExportSettings, config)
    try:
        parts = task.export_parts()
    except UserError as error:
        raise UserError(f"EXPORTED {settings.EXPORTED}: {str(error).removeprefix('export: ')}") from error
    side = get_value(config, task.image_size_key)
    size = parts.size or (tuple(side) if isinstance(side, (list, tuple)) else (side, side))
    name, output = str(settings.EXPORTED), settings.EXPORTED_OUTPUT
    exported = ExportedLayer(name, functions.load(find(name)), parts, (parts.channels, *size), output)
    if config.MODEL.PRETRAINED is not None:
        exported.trained = build_model(config, task)
        exported.trained.eval()
        exported.compared_with = task.exported_model(exported.trained)
    return exported


def load_exported(run: Trainer, model: ExportedLayer) -> tuple[str, list[str]]:
    """Load the trained weights that an exported model is compared with, and put the model in place. Every rank must
    call this.

    Args:
        run: an evaluation.
        model: the model that it has built.

    Returns:
        The name of the evaluated file, and lines for the log.

    Raises:
        UserError: it expects images prepared otherwise, or the weights are not there.
    """
    function, task, config = model.function, run.task, run.config
    lines = [function.note] if function.note else []
    about = task.export_parts().about
    lines += _compare_descriptions(model, about, config)
    lines += _compare_names(
        model, about.get("landmarks") or task.dataset_signature(run.evaluated).get("classes"), config
    )
    if model.gives_probabilities:
        lines.append(f"note: {model.source} gives probabilities: the loss is that of their logarithms")
    if model.compared_with is not None:
        weights, more = load_trained(run, model.trained)
        model.weights = str(weights)
        lines += more
    run.model = run.evaluation.model = task.evaluated_model(model)
    everywhere = dict.fromkeys(all_gather(function.computed_by))
    run.evaluation.facts["computed_by"] = " and ".join(everywhere)
    return model.source, lines


def _compare_descriptions(model: ExportedLayer, ours: Mapping[str, Any], config: RunSettings) -> list[str]:
    """
    Raises:
        UserError: its input is prepared otherwise, and -allow_changes was not given.
    """
    about, here = model.function.about, ours["preprocessing"]
    there = {**mapping(about.get("preprocessing")), **mapping(about.get("computed_inside"))}
    if model.slot.dtype == _PIXELS:
        there, here = ({k: v for k, v in steps.items() if k != "layout"} for steps in (there, here))
    if not there:
        return [f"note: {model.source} does not say how its input is prepared; it gets: {show_steps(here)}"]
    changes = [
        FactDifference(f"preprocessing.{name}", there.get(name), here.get(name), "input")
        for name in dict.fromkeys([*here, *there])
        if there.get(name) != here.get(name)
    ]
    return judge_changes("evaluate", model.source, "expects other input", changes, config)


def show_steps(steps: Mapping[str, Any]) -> str:
    """How input is prepared, on one line."""
    return ", ".join(f"{name} {value}" for name, value in steps.items())


def _compare_names(model: ExportedLayer, ours: Sequence[str] | None, config: RunSettings) -> list[str]:
    """
    Raises:
        UserError: it has other classes or landmarks, and -allow_changes was not given.
    """
    theirs = model.function.about.get("landmarks") or model.function.about.get("classes")
    if not isinstance(theirs, list) or not ours or list(map(str, theirs)) == list(map(str, ours)):
        return []
    changes = [FactDifference("names", ", ".join(map(str, theirs)), ", ".join(map(str, ours)), "classes")]
    return judge_changes("evaluate", model.source, "has other outputs", changes, config, "use the same names")


class _ReplayLayer(paddle.nn.Layer):
    """Gives outputs that were computed before, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: list[Any] = []

    def forward(self, *inputs: paddle.Tensor) -> Any:
        return self.outputs.pop(0)


class ExportComparison(Callback):
    """Scores the trained weights on the same batches, and tells what the export has changed. Every rank has one.

    Args:
        run: evaluates an exported model.
    """

    on_every_rank = True

    def __init__(self, run: Trainer) -> None:
        self._run = run
        self._exported = next(
            layer for layer in run.model.sublayers(include_self=True) if isinstance(layer, ExportedLayer)
        )
        self._is_labeled = False
        self._metrics = run.task.build_metrics()
        self._replayed = _ReplayLayer()
        self._trained = run.task.evaluated_model(self._replayed)
        self._of = ""  # what is compared, in words
        self._is_of_classes = False  # known once this rank has seen a batch
        # Largest difference of an output, largest output, samples with another answer; on the device.
        self._seen = [paddle.zeros([], dtype=dtype) for dtype in ("float32", "float32", "int64")]

    def evaluation_started(self, is_shown: bool) -> None:
        self._is_labeled = is_shown
        if self._exported.compared_with is not None:
            self._exported.pairs = []

    def batch_evaluated(self, batch: dict[str, Any], records: Any) -> None:
        pairs = self._exported.pairs
        if pairs is None:
            return
        self._exported.pairs = None
        self._replayed.outputs = [expected for _, expected in pairs]
        self._run.task.eval_step(self._trained, batch, EvaluationStep(self._metrics))
        done = len(pairs) - len(self._replayed.outputs)
        for found, expected in pairs[:done]:  # others were computed for figures, a second time
            self._compare(found, expected)
        self._exported.pairs = []

    def _compare(self, found: Any, expected: Any) -> None:
        if self._exported.parts.difference is not None:
            apart = compare(read(*expected), read(*found), self._exported.parts.difference)
            self._of, new = apart.of, paddle.to_tensor(apart[:2], dtype="float32")
            self._seen[:2] = [paddle.maximum(seen, new[place]) for place, seen in enumerate(self._seen[:2])]
            return
        expected = expected.astype("float32")
        if self._exported.gives_probabilities:
            expected = F.softmax(expected, axis=-1)
        apart = (found - expected).abs()
        apart = paddle.where(apart - apart == 0, apart, paddle.full_like(apart, float("inf")))  # also not a number
        largest, of_outputs, changed = self._seen
        self._seen = [paddle.maximum(largest, apart.max()), paddle.maximum(of_outputs, expected.abs().max()), changed]
        if found.ndim == 2:
            self._is_of_classes = True
            self._seen[2] = changed + (found.argmax(axis=-1) != expected.argmax(axis=-1)).astype("int64").sum()

    def evaluation_done(self, facts: dict[str, Any]) -> None:
        exported, run, record = self._exported, self._run, self._run.record
        if exported.pairs is None:
            return
        exported.pairs = None
        state = reduce_dict(self._metrics.state, average=False)
        seen = all_gather([value.item() for value in self._seen])
        largest, of_outputs, changed = max(s[0] for s in seen), max(s[1] for s in seen), sum(s[2] for s in seen)
        differences: dict[str, Any] = {"largest_difference": largest if math.isfinite(largest) else None}
        differences["of_outputs_up_to"] = of_outputs
        difference = OutputDifference(largest, of_outputs, next(filter(None, all_gather(self._of)), ""))
        said = [str(difference)]
        if self._is_of_classes:
            differences["changed"] = changed
            said.insert(0, f"{changed:,} of {len(run.evaluated):,} {run.task.sample_name} have another answer")
        event = {**facts, "trained": exported.weights, **differences}
        if self._is_labeled:
            values, (score, _) = self._metrics.compute(state), run.task.best_metric
            record.log_and_print(f"trained weights: {self._metrics.summary(values)}")
            event["trained_values"] = values
            if score in values and score in run.evaluation.values:
                said.insert(0, f"{score} {round(run.evaluation.values[score] - values[score], 6) + 0.0:+.4g}")
        record.event("difference_of_export", event)
        record.log_and_print(f"after the export: {'; '.join(said)}")
        precision = "float16" if is_on_gpu() and gpu.rounds_to_tf32() else exported.precision  # TF32 has as many digits
        if not difference.is_rounding(precision):
            record.log_and_print(
                f"note: that is more than rounding in {precision}: are these the weights that "
                f"{exported.source} was made of, and is its input prepared like theirs?"
            )
