"""Loading weights into a model, whoever saved them, and reporting exactly what happened."""

import json
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ..registry import MODELS
from ..runtime.errors import UserError
from ..runtime.printing import shorten
from ..tasks.model import as_model
from .class_rows import OUTPUT_AXES, ClassNames, follow_names
from .content import find_run_settings, is_run_checkpoint, read_weights_info
from .weights import SourceWeights, read_weights, weights_from_mapping

Shape = tuple[int, ...]

# Whether an owner's Linear weights are (in, out) where no shape decides it, as in its own files.
_IN_PADDLE_LAYOUT = {
    "PaddleViT": True,
    "Google": True,
    "Hugging Face": False,
    "Hugging Face's DINO, CLIP and SigLIP": False,
    "Hugging Face's DINOv3 with biases": False,
    "torchvision": False,
    "the authors'": False,
}

# Endings of entries that no evaluation of a network reads: computed by it, counted in training, of pre-training alone.
_NO_WEIGHTS = ("relative_position_index", "relative_coords_table", "attn_mask", "position_ids", "mask_token")

# Entries that follow the features of a backbone, or are of the network of texts beside it: told, and not missed.
_APART = re.compile(
    r"(?:^|\.)(?:(?:text_model|text_projection|visual_projection|pooler)\.|logit_(?:scale|bias)$)"
).search


@dataclass
class LoadReport:
    """Fate of every parameter and buffer of the model, by our names.

    Attributes:
        source: the file, or "the given state".
        origin: whose names and which layout of Linear weights were found.
        loaded: copied, including those that had to be resized.
        resized: made to fit, such as a position embedding for another grid.
        reinitialized: a classifier that the source lacks or has for other classes: it keeps its initial weights.
        missing: of the model, but absent from the source or of a shape that does not fit: unchanged.
        unexpected: in the source, but not of the model.
        shapes: name -> (shape in the source, shape in the model); None where it does not exist.
        classes_by_name: where rows of the classifier followed names: how many of the model's classes have rows of the
            source, and how many classes it has; None: rows kept their places.
        loaded_fraction: share of the model's numbers that were loaded, excluding the re-initialized ones.
        notices: anything unusual, such as values that are not finite.
    """

    source: str
    origin: str
    loaded: list[str] = field(default_factory=list)
    resized: list[str] = field(default_factory=list)
    reinitialized: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    shapes: dict[str, tuple[Shape | None, Shape | None]] = field(default_factory=dict)
    classes_by_name: tuple[int, int] | None = None
    loaded_fraction: float = 0.0
    notices: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """One line for the log."""
        total = len(self.loaded) + len(self.reinitialized) + len(self.missing)
        aside = " apart from the new classifier" if self.reinitialized else ""
        share = f"{100 * self.loaded_fraction:.1f} % of parameters{aside}"
        if self.unexpected:  # the source is another network, however much of this one was loaded
            used = len(self.loaded) + len(self.reinitialized)
            share = f"{used} of {used + len(self.unexpected)} entries of the source used"
        head = f"loaded {len(self.loaded)} of {total} ({share})"
        parts = []
        if self.classes_by_name is not None:
            matched, classes = self.classes_by_name
            parts.append(
                f"{matched:,} of {classes:,} classes by name" + (", the rest new" if matched < classes else "")
            )
        if self.reinitialized:
            parts.append(f"re-initialized {_some(self.reinitialized, 4)}")
        if self.resized:
            parts.append("resized " + ", ".join(self._with_shapes(name) for name in self.resized))
        if self.missing:
            parts.append(f"missing {_some(self.missing)}")
        if self.unexpected:
            parts.append(f"not used {_some(self.unexpected)}")
        parts += self.notices
        return head + (", " + "; ".join(parts) if parts else "")

    def text(self) -> str:
        """Several lines: everything that was not simply copied, with its shapes."""
        lines = [f"{self.source}: {self.origin}", self.summary()]
        kinds = {
            "resized": self.resized,
            "re-initialized": self.reinitialized,
            "missing": self.missing,
            "unexpected": self.unexpected,
        }
        for kind, names in kinds.items():
            lines += [f"  {kind:14} {shorten(name)}: {_shapes(*self.shapes[name])}" for name in names]
        return "\n".join(lines)

    def json(self) -> str:
        """The whole report as JSON."""

        def entries(names: list[str]) -> list[dict[str, Any]]:
            shapes = [self.shapes[name] for name in names]
            return [
                {"name": name, "source_shape": a and list(a), "model_shape": b and list(b)}
                for name, (a, b) in zip(names, shapes)
            ]

        kinds = ("resized", "reinitialized", "missing", "unexpected")
        names = ("source", "origin", "loaded_fraction", "loaded", "classes_by_name", *kinds, "notices")
        told = {name: entries(vars(self)[name]) if name in kinds else vars(self)[name] for name in names}
        return json.dumps(told, indent=1)

    def _with_shapes(self, name: str) -> str:
        source_shape, model_shape = self.shapes[name]
        return f"{name} {source_shape} -> {model_shape}"


def load_weights(
    model: paddle.nn.Layer,
    source: str | os.PathLike | Mapping[str, Any] | SourceWeights,
    *,
    minimum_loaded: float = 0.9,
    strict: bool = False,
    allow_unused: bool = False,
    part: str | None = None,
    sha256: str | None = None,
    class_names: ClassNames | None = None,
) -> LoadReport:
    """Copy weights into ``model``; its dtype stays, and nothing is changed if an error is raised.

    Whose names these are is decided once, for the whole source, and so is the layout of its Linear weights: by the
    shapes of those that are not square, the square ones follow. Where all are square, PaddleViT's and Google's names, a
    ``.pdparams`` or ``.npz`` file and Paddle tensors mean (in, out), anything else PyTorch's (out, in).

    Args:
        model: a ``tasks.model.Model``, whose ``key_maps``, ``classifier_layers`` and ``resize_parameter`` are used,
            or any other layer; what that has under these names is used too.
        source: a path or address as ``read_weights`` takes it, or what it returned, or a mapping of names to numpy
            arrays or tensors.
        minimum_loaded: least share of the parameters, by number of elements and without a re-initialized classifier.
        strict: for evaluation: every parameter must be loaded, the classifier too, and nothing of the source be left.
        allow_unused: something may be left all the same.
        part: the entry to use in a source that has several, such as "model_ema".
        sha256: of the content of an address, in hexadecimal; ``#sha256=...`` after the address means the same.
        class_names: by which rows of the classifier follow their classes; None: they keep their places.

    Raises:
        UserError: the source cannot be read, or does not fit well enough, or has a batch norm's weights without its
            running statistics.
    """
    weights = _get_weights(source, part, sha256)
    state, origin, notices = _in_our_names_and_layout(model, weights)
    report = LoadReport(source=weights.name, origin=origin, notices=[*weights.notices, *notices])
    values = _plan(model, state, report, class_names)
    if strict:
        _require_everything(report, as_model(model).outputs_to_classes)
        unused = [name for name in report.unexpected if not _APART(name)]
        if unused and not allow_unused:
            _refuse_unused(report, unused)
    elif report.loaded_fraction < minimum_loaded:
        _refuse(report, minimum_loaded)
    _require_statistics(report)
    targets = model.state_dict()
    for parameter_name, value in values.items():
        _assign(targets[parameter_name], value)
    return report


def count_classes(model: paddle.nn.Layer, weights: SourceWeights) -> int | None:
    """How many classes the weights have a classifier for, or None if they have none that belongs to this model."""
    state, _, _ = _in_our_names_and_layout(model, weights)
    contract = as_model(model)
    biases = [state.get(f"{layer}.bias") for layer in contract.classifier_layers]
    outputs = next((len(bias) for bias in biases if bias is not None and bias.ndim == 1), None)
    return None if outputs is None else contract.outputs_to_classes(outputs)


def rename_for(model: paddle.nn.Layer, weights: SourceWeights) -> dict[str, np.ndarray]:
    """Return the entries that the model has a place for, under its names and in its layout of Linear weights; what is
    not of a weight's shape, such as a number that an optimizer keeps of it, keeps its shape."""
    state, _, _ = _in_our_names_and_layout(model, weights)
    return {name: state[name] for name in model.state_dict() if name in state}


def _get_weights(source: Any, part: str | None, sha256: str | None) -> SourceWeights:
    if isinstance(source, SourceWeights):
        return source
    return weights_from_mapping(source, part) if isinstance(source, Mapping) else read_weights(source, part, sha256)


def _in_our_names_and_layout(
    model: paddle.nn.Layer, weights: SourceWeights
) -> tuple[Mapping[str, np.ndarray], str, list[str]]:
    targets = model.state_dict()
    states = rename_states(weights.state, {**as_model(model).key_maps, "PyTorch": from_torch_names})
    states = {owner: _with_norms_named_as(targets, state) for owner, state in states.items()}
    owner = max(states, key=lambda owner: sum(name in targets for name in states[owner]))  # first of equals: our own
    state = states[owner]
    notices = as_model(model).list_source_notices(owner, state)

    layers = model.named_sublayers(include_self=True)
    linear = [f"{prefix}.weight".lstrip(".") for prefix, layer in layers if isinstance(layer, paddle.nn.Linear)]
    linear = [name for name in linear if name in state and state[name].ndim == 2]
    as_paddle = sum(state[name].shape == tuple(targets[name].shape) for name in linear)
    as_torch = sum(state[name].shape[::-1] == tuple(targets[name].shape) for name in linear)
    in_paddle_layout = is_in_paddle_layout(owner, weights)
    if as_paddle != as_torch:
        in_paddle_layout = as_paddle > as_torch
    if not in_paddle_layout:
        state = {**state, **{name: state[name].T for name in linear}}
    if owner == "timm" and is_run_checkpoint(weights.name):
        return state, "a checkpoint of this package", notices
    return state, f"{owner} names, Linear weights {'(in, out)' if in_paddle_layout else '(out, in)'}", notices


def is_in_paddle_layout(owner: str, weights: SourceWeights) -> bool:
    """Whether Linear weights are (in, out) where no shape decides it: by whose names they have, then by the format."""
    return _IN_PADDLE_LAYOUT.get(owner, weights.in_paddle_layout)


def _plan(
    model: paddle.nn.Layer, state: Mapping[str, np.ndarray], report: LoadReport, class_names: ClassNames | None = None
) -> dict[str, np.ndarray]:
    """Fill the report and return the arrays to assign, without touching the model."""
    targets, contract = model.state_dict(), as_model(model)
    followed = None if class_names is None else follow_names(contract, class_names, state, targets)
    by_name = frozenset() if followed is None else followed.names
    fitting: dict[str, np.ndarray] = {} if followed is None else dict(followed.values)
    report.classes_by_name = None if followed is None else (followed.matched, followed.classes)
    for name, target in targets.items():
        shape, value = tuple(target.shape), state.get(name)
        report.shapes[name] = (None if value is None else value.shape, shape)
        if name in by_name:
            continue
        if value is not None and value.shape != shape:
            value = contract.resize_parameter(name, value)
        if value is not None and value.shape == shape:
            fitting[name] = value

    for layer in contract.classifier_layers:
        names = [name for name in targets if name.startswith(f"{layer}.")]
        if any(name not in fitting for name in names):
            report.reinitialized += names  # weights and bias belong together
    fitting = {name: value for name, value in fitting.items() if name not in report.reinitialized}

    report.loaded = list(fitting)
    report.resized = [
        name for name, value in fitting.items() if value.shape != state[name].shape and name not in by_name
    ]
    report.notices += contract.list_resize_notices(report.resized)
    report.missing = [name for name in targets if name not in fitting and name not in report.reinitialized]
    report.unexpected = [name for name in state if name not in targets and not name.endswith(_NO_WEIGHTS)]
    report.shapes.update({name: (state[name].shape, None) for name in report.unexpected})
    num_loaded, num_missing = (
        sum(int(np.prod(targets[name].shape)) for name in names) for names in (report.loaded, report.missing)
    )
    report.loaded_fraction = num_loaded / max(num_loaded + num_missing, 1)
    not_finite = [name for name, value in fitting.items() if not np.isfinite(value).all()]
    if not_finite:
        report.notices.append(f"values that are NaN or infinite in {_some(not_finite)}")
    return fitting


def _assign(target: paddle.Tensor, value: np.ndarray) -> None:
    tensor = paddle.to_tensor(np.ascontiguousarray(value), place=paddle.CPUPlace()).astype(target.dtype)
    target.set_value(tensor.numpy())


def _require_everything(report: LoadReport, outputs_to_classes: Callable[[int], int]) -> None:
    if not report.missing and not report.reinitialized:
        return
    reasons = []
    if report.missing:
        reasons.append(f"it lacks {_describe(report, report.missing)}")
    if report.reinitialized:
        reasons.append(f"its classifier does not fit: {_describe(report, report.reinitialized)}")
    for name in report.reinitialized:
        source_shape, model_shape = report.shapes[name]
        axis = OUTPUT_AXES.get(len(source_shape or ()))
        if source_shape and model_shape and axis is not None and source_shape[axis] != model_shape[axis]:
            theirs, ours = outputs_to_classes(source_shape[axis]), outputs_to_classes(model_shape[axis])
            remedy = f"set MODEL.NUM_CLASSES to {theirs}"
            if theirs < ours:  # which data with as many as the model do not allow
                remedy = f"leave out MODEL.NUM_CLASSES; data of more than {theirs} classes it cannot be evaluated on"
            reasons.append(f"it has {theirs} classes and the model {ours}: {remedy}")
            break  # other heads may have several outputs for each class
    question = _fitting(report.source) if report.missing else ""
    raise UserError(
        f"{report.source} does not hold this whole model, as evaluating and resuming need it: "
        f"{'; '.join(reasons)}{question}"
    )


def _refuse_unused(report: LoadReport, unused: list[str]) -> None:
    """A network that lacks a part of what the weights are of computes other numbers."""
    distilled = ""
    if any(name.startswith(("dist_token", "head_dist.")) for name in unused):
        distilled = ". They are of a distilled DeiT, whose MODEL.NAME is deit_SIZE_distilled_patch16_SIDE"
    raise UserError(
        f"{report.source} is of another network: this model has no place for "
        f"{_describe(report, unused)}; name the model that the weights are of (MODEL.NAME), or evaluate "
        f"without them (-allow_changes){distilled or _fitting(report.source)}"
    )


def _require_statistics(report: LoadReport) -> None:
    """A batch norm with trained weights and initial statistics computes other numbers, however few they are."""
    lost = [name for name in statistics_in(report.missing) if f"{name.rpartition('.')[0]}.weight" in report.loaded]
    if lost:
        raise UserError(
            f"{report.source} has the weights of batch norms without their running statistics "
            f"{_describe(report, lost)}, so that they would compute other numbers than in training; expected _mean "
            "and _variance, or PyTorch's running_mean and running_var, beside each weight"
        )


# Names of transformers 5, whose ``save_pretrained`` writes those that its models have had since version 4.
_IN_MEMORY = re.compile(r"layers\.\d+\.(blocks\.\d+\.)?attention\.q_proj\.|stages\.\d+\.patch_embeddings\.").search
_RAW = ". They are a state_dict() of transformers 5: save the model with save_pretrained, and give that folder"


def _refuse(report: LoadReport, minimum_loaded: float) -> None:
    reasons = [f"missing {_describe(report, report.missing)}"]
    if report.unexpected:
        reasons.append(f"unexpected {_describe(report, report.unexpected)}")
    raise UserError(
        f"{report.source} has only {100 * report.loaded_fraction:.1f} % of the model's parameters, at least "
        f"{100 * minimum_loaded:g} % are needed (MODEL.MIN_LOADED_FRACTION): {'; '.join(reasons)}"
        f"{_RAW if any(map(_IN_MEMORY, report.unexpected)) else _fitting(report.source)}"
    )


def _fitting(source: str) -> str:
    """Which model the weights are for, as far as what is beside them says it, or their name."""
    file = Path(source)
    model = (find_run_settings(read_weights_info(file), file) or {}).get("MODEL")
    if isinstance(model, dict) and isinstance(model.get("NAME"), str):
        return f". It is of a run of MODEL.NAME {shorten(model['NAME'])}: take that run's settings of MODEL"
    named = [name for name in MODELS if file.name.startswith((f"{name}.", f"{name}-"))]
    return f". By its name it is of MODEL.NAME {named[0]}" if named else ". Is it for another architecture?"


def _describe(report: LoadReport, names: list[str]) -> str:
    def describe(name: str) -> str:
        source_shape, model_shape = report.shapes[name]
        if source_shape and model_shape:
            return f"{shorten(name)} ({source_shape} in the source, {model_shape} in the model)"
        return f"{shorten(name)} {source_shape or model_shape}"

    return _some([describe(name) for name in names])


def _some(texts: list[str], limit: int = 3) -> str:
    shown = ", ".join(shorten(text) for text in texts[:limit])
    return shown if len(texts) <= limit else f"{shown} and {len(texts) - limit} more"


def _shapes(source_shape: Shape | None, model_shape: Shape | None) -> str:
    in_source = f"{source_shape} in the source" if source_shape is not None else "not in the source"
    in_model = f"{model_shape} in the model" if model_shape is not None else "not in the model"
    return f"{in_source}, {in_model}"


# ---- whose names these are ---------------------------------------------------------------------------------------


def rename_states(state: dict[str, Any], key_maps: Mapping[str, Callable]) -> dict[str, dict[str, Any]]:
    """The state as it is, which are timm's names if they are ours, and as each owner's function renames it."""
    return {"timm": state, **{owner: to_ours(state) for owner, to_ours in key_maps.items()}}


# What PyTorch's and Paddle's batch norms call their running statistics.
_STATISTICS = {"running_mean": "_mean", "running_var": "_variance"}
_COUNT = "num_batches_tracked"  # of PyTorch's alone, which momentum makes up for


def from_torch_names(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state with Paddle's names for statistics, and without PyTorch's number of batches."""
    return _rename({name: value for name, value in state.items() if name.split(".")[-1] != _COUNT}, _STATISTICS)


def to_torch_names(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state with PyTorch's names for statistics."""
    return _rename(state, {ours: theirs for theirs, ours in _STATISTICS.items()})


def _with_norms_named_as(targets: Collection[str], state: Mapping[str, Any]) -> dict[str, Any]:
    """The state with its batch norms called as the model calls them: those of MinkowskiEngine have all that they hold
    below ``bn.``, those of most others do not."""
    result = dict(state)
    for mean in statistics_in(targets):
        layer = mean.rpartition(".")[0]
        if not mean.endswith("._mean"):
            continue
        other = layer[: -len(".bn")] if layer.endswith(".bn") else f"{layer}.bn"
        for last in ("weight", "bias", *_STATISTICS.values()):
            if f"{layer}.{last}" in targets and f"{layer}.{last}" not in state and f"{other}.{last}" in result:
                result[f"{layer}.{last}"] = result.pop(f"{other}.{last}")
    return result


def statistics_in(names: Collection[str]) -> list[str]:
    """The names that are running statistics of a batch norm."""
    return [name for name in names if name.rpartition(".")[2] in _STATISTICS.values()]


def _rename(state: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    result = {}
    for name, value in state.items():
        layer, dot, last = name.rpartition(".")
        result[layer + dot + names.get(last, last)] = value
    return result
