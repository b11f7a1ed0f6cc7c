"""Loads weights from any source into a model and reports every parameter."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ..registry.lookup import MODELS
from ..runtime.errors import UserError
from ..runtime.json_format import format_json
from ..runtime.printing import shorten
from ..tasks.model import Model, as_model
from . import low_rank
from .class_rows import ClassNames, find_class_axis, follow_names
from .completion import complete, describe_base
from .content import find_trained_size, is_run_checkpoint, read_weights_info
from .finding import find_run_settings
from .low_rank import LowRankBase
from .network_facts import list_network_differences
from .published import is_fetched
from .weights import (
    SourceWeights,
    from_torch_names,
    read_weights,
    rename_norms_like,
    rename_states,
    statistics_in,
    weights_from_mapping,
)

Shape = tuple[int, ...]

# By naming scheme: whether Linear weights are (in, out) if no shape decides it, as in the files that have these names.
_IN_PADDLE_LAYOUT = {
    "PaddleViT": True,
    "Google": True,
    "Hugging Face": False,
    "Hugging Face's DINO, CLIP and SigLIP": False,
    "Hugging Face's DINOv3 with biases": False,
    "torchvision": False,
    "the authors'": False,
}

# Suffixes of entries that are ignored: buffers that the network computes itself, and tokens of pre-training.
_IGNORED_SUFFIXES = ("relative_position_index", "relative_coords_table", "attn_mask", "position_ids", "mask_token")

# Finds the name of a part that only a backbone's pretraining has, such as a decoder: it is dropped, and told.
find_pretraining_part = re.compile(r"(?:^|\.)(pretraining_\w+)").search

# Entries of projections and text encoders: listed as unused, but never an error.
_is_optional = re.compile(
    r"(?:^|\.)(?:(?:text_model|text_projection|visual_projection|pooler)\.|logit_(?:scale|bias)$)"
).search


@dataclass
class LoadReport:
    """The result of loading, for every parameter and buffer, by the model's names.

    Attributes:
        source: the file, or "the given state".
        origin: the naming scheme and the layout of Linear weights that were recognized.
        loaded: names of parameters that were copied, including resized ones.
        resized: names of parameters that were resized, such as a position embedding for another grid.
        reinitialized: names of the classifier's initial parameters, if the source has none or one for other classes.
        missing: names of parameters that the source lacks or has in another shape: they keep their initial values.
        unexpected: names in the source that the model does not have.
        shapes: (shape in the source, shape in the model) by name; None where it does not exist.
        classes_by_name: if the classifier's rows were matched by class name: number of matched classes, and number of
            the model's classes; None: rows were copied in order.
        outputs: name of each output, if rows were matched for an evaluation.
        loaded_fraction: share of the model's elements that were loaded, without re-initialized parameters.
        notices: unusual properties of the source, such as values that are not finite.
        base: for a model with matrices of low rank, the whole weights that its checkpoints leave out; else None.
        trained_size: height and width of the images of the run that the source is from; None: unknown.
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
    outputs: tuple[str, ...] = ()
    loaded_fraction: float = 0.0
    notices: list[str] = field(default_factory=list)
    base: LowRankBase | None = None
    trained_size: tuple[int, int] | None = None

    def summary(self) -> str:
        """Format the report in one line for the log."""
        total = len(self.loaded) + len(self.reinitialized) + len(self.missing)
        exception = " apart from the new classifier" if self.reinitialized else ""
        share = f"{_percent(self.loaded_fraction)} % of parameters{exception}"
        if self.unexpected:  # the source is another network, even if it has all parameters of this one
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
            parts.append(
                "resized " + ", ".join("{} {} -> {}".format(name, *self.shapes[name]) for name in self.resized)
            )
        if self.missing:
            parts.append(f"{len(self.missing)} missing, which stay random: {_describe(self, self.missing)}")
        if self.unexpected:
            parts.append(f"not used {_some(self.unexpected)}")
        parts += self.notices
        return head + (", " + "; ".join(parts) if parts else "")

    def text(self) -> str:
        """Format all parameters that were not simply copied, with their shapes, in several lines."""
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
        """Format the whole report as JSON."""
        kinds = ("resized", "reinitialized", "missing", "unexpected")
        names = ("source", "origin", "loaded_fraction", "loaded", "classes_by_name", *kinds, "notices")
        content = {name: vars(self)[name] for name in names}
        for kind in kinds:
            shapes = ((name, *self.shapes[name]) for name in content[kind])
            content[kind] = [
                {"name": name, "source_shape": a and list(a), "model_shape": b and list(b)} for name, a, b in shapes
            ]
        return format_json(content, indent=1)


def load_weights(
    model: paddle.nn.Layer,
    source: str | os.PathLike | Mapping[str, Any] | SourceWeights,
    *,
    minimum_loaded: float = 0.9,
    strict: bool = False,
    allow_unused: bool = False,
    part: str | None = None,
    class_names: ClassNames | None = None,
) -> LoadReport:
    """Copy weights into ``model``, in the model's dtype. If an error is raised, the model is unchanged.

    The naming scheme and the layout of Linear weights are determined once for the whole source. The shapes of
    Linear weights that are not square decide the layout of all. If all are square, names of PaddleViT and Google, a
    ``.pdparams`` or ``.npz`` file, and Paddle tensors mean (in, out), everything else means PyTorch's (out, in).

    Args:
        model: a ``tasks.model.Model``, whose ``key_maps``, ``classifier_layers`` and ``resize_parameter`` are used, or
            any other layer.
        source: a path or address as in ``read_weights``, the result of ``read_weights``, or numpy arrays or tensors by
            name.
        minimum_loaded: smallest share of the parameters' elements, without a re-initialized classifier, in [0, 1].
        strict: for evaluation: every parameter must be loaded, also the classifier's, and every entry of the source
            used.
        allow_unused: with ``strict``, entries of the source may be unused.
        part: the entry to use in a source with several, such as "model_ema".
        class_names: names by which the classifier's rows are matched; None: rows are copied in order.

    Returns:
        What happened to each parameter.

    Raises:
        UserError: the source cannot be read, does not fit well enough, or has a batch norm's weights without its
            running statistics.
    """
    weights, base = _get_weights(source, part), None
    has_factors = low_rank.has_factors(model.state_dict())
    if low_rank.has_factors(weights.state):
        weights, base = _complete(model, weights, keep=strict and has_factors)
    state, origin, notices = _in_our_names_and_layout(model, weights)
    if has_factors and base is None:
        place = str(source) if is_fetched(source) else os.path.abspath(weights.name)
        base = describe_base(place, part, weights, state, _list_targets(model, state).keys() & state)
    report = LoadReport(source=weights.name, origin=origin, notices=[*weights.notices, *notices])
    report.trained_size = find_trained_size(Path(weights.name))
    report.base = base if has_factors else None  # checkpoints of other models are whole
    values = _plan(model, state, report, class_names)
    _compare_networks(model, source, weights, report, must_match=strict and not allow_unused)
    if strict:
        _require_everything(report, as_model(model))
        unused = [name for name in report.unexpected if not _is_optional(name)]
        if unused and not allow_unused:
            _refuse_unused(report, unused)
    elif report.loaded_fraction < minimum_loaded:
        _refuse(report, minimum_loaded)
    _require_statistics(report)
    targets = model.state_dict()
    for name, value in values.items():
        tensor = paddle.to_tensor(np.ascontiguousarray(value), place=paddle.CPUPlace())
        targets[name].set_value(tensor.astype(targets[name].dtype).numpy())
    return report


def _compare_networks(
    model: paddle.nn.Layer, source: object, weights: SourceWeights, report: LoadReport, must_match: bool
) -> None:
    """Add notices on differences to the network of the weights that no shape shows, or raise UserError for them."""
    name = str(source) if isinstance(source, (str, os.PathLike)) else weights.name
    differences = list_network_differences(as_model(model), name, Path(weights.name), weights.state)
    if differences and must_match:
        raise UserError(
            f"{weights.name} is of another network than this model: {_some(differences)}; set MODEL.NAME and its keys "
            "to the weights' network, or add -allow_changes to evaluate with this one"
        )
    report.notices += [f"of another network: {difference}" for difference in differences]


def _complete(model: paddle.nn.Layer, weights: SourceWeights, keep: bool) -> tuple[SourceWeights, LowRankBase]:
    layers = {name for name, _ in model.named_sublayers()}
    if not layers.issuperset(low_rank.list_layers(weights.state)):  # the model contains the one that was trained
        model = getattr(model, "pretrained_part", model)

    def read(source: str, part: str | None) -> tuple[SourceWeights, Mapping[str, np.ndarray]]:
        own = _get_weights(source, part)
        return own, _in_our_names_and_layout(model, own)[0]

    return complete(model, weights, read, keep)


def _list_targets(model: paddle.nn.Layer, state: Mapping[str, np.ndarray]) -> dict[str, paddle.Tensor]:
    """Return the tensors that a source has to have: factors of the model are new if the source has none."""
    targets = model.state_dict()
    if low_rank.has_factors(state) or not low_rank.has_factors(targets):
        return targets
    return {name: tensor for name, tensor in targets.items() if not low_rank.is_factor(name)}


def count_classes(model: paddle.nn.Layer, weights: SourceWeights) -> int | None:
    """Return the number of classes of the weights' classifier; None if it does not belong to this model."""
    if low_rank.has_factors(weights.state):
        weights, _ = _complete(model, weights, keep=False)
    state, _, _ = _in_our_names_and_layout(model, weights)
    interface = as_model(model)
    biases = [state.get(f"{layer}.bias") for layer in interface.classifier_layers]
    outputs = next((len(bias) for bias in biases if bias is not None and bias.ndim == 1), None)
    return None if outputs is None else interface.outputs_to_classes(outputs)


def rename_for(model: paddle.nn.Layer, weights: SourceWeights) -> dict[str, np.ndarray]:
    """Return the entries that the model has, with its names and its layout of Linear weights; other shapes are kept."""
    state, _, _ = _in_our_names_and_layout(model, weights)
    return {name: state[name] for name in model.state_dict() if name in state}


def _get_weights(source: str | os.PathLike | Mapping[str, Any] | SourceWeights, part: str | None) -> SourceWeights:
    if isinstance(source, SourceWeights):
        return source
    return weights_from_mapping(source, part) if isinstance(source, Mapping) else read_weights(source, part)


def _in_our_names_and_layout(
    model: paddle.nn.Layer, weights: SourceWeights
) -> tuple[Mapping[str, np.ndarray], str, list[str]]:
    targets = _list_targets(model, weights.state)
    naming, state = "timm", weights.state  # our models use timm's parameter names
    is_own = is_run_checkpoint(weights.name)
    fits = all(name in state and state[name].shape == tuple(target.shape) for name, target in targets.items())
    if not fits:
        states = rename_states(state, {**as_model(model).key_maps, "PyTorch": from_torch_names})
        states = {origin: rename_norms_like(targets, arrays) for origin, arrays in states.items()}
        # On a tie max() takes the first, "timm".
        naming = max(states, key=lambda naming: sum(name in targets for name in states[naming]))
        state = states[naming]
    notices = as_model(model).list_source_notices(naming, state)
    if fits and is_own and weights.in_paddle_layout:
        return state, "a checkpoint of this package", notices

    layers = model.named_sublayers(include_self=True)
    linear = [f"{prefix}.weight".lstrip(".") for prefix, layer in layers if isinstance(layer, paddle.nn.Linear)]
    linear = [name for name in linear if name in state and state[name].ndim == 2]
    as_paddle = sum(state[name].shape == tuple(targets[name].shape) for name in linear)
    as_torch = sum(state[name].shape[::-1] == tuple(targets[name].shape) for name in linear)
    in_paddle_layout = is_in_paddle_layout(naming, weights)
    if as_paddle != as_torch:
        in_paddle_layout = as_paddle > as_torch
    if not in_paddle_layout:
        state = {**state, **{name: state[name].T for name in linear}}
    if naming == "timm" and is_own:
        return state, "a checkpoint of this package", notices
    return state, f"{naming} names, Linear weights {'(in, out)' if in_paddle_layout else '(out, in)'}", notices


def is_in_paddle_layout(naming: str, weights: SourceWeights) -> bool:
    """Return whether Linear weights are (in, out) if no shape decides it: by the naming scheme, then by file format."""
    return _IN_PADDLE_LAYOUT.get(naming, weights.in_paddle_layout)


def _plan(
    model: paddle.nn.Layer, state: Mapping[str, np.ndarray], report: LoadReport, class_names: ClassNames | None = None
) -> dict[str, np.ndarray]:
    """Fill the report and return the arrays to assign, without changing the model."""
    interface = as_model(model)
    targets = _list_targets(model, state)
    matched_rows = None if class_names is None else follow_names(interface, class_names, state, targets)
    if matched_rows is not None:
        report.classes_by_name = matched_rows.matched, matched_rows.classes
        report.outputs = matched_rows.outputs
    matched_names = frozenset() if matched_rows is None else matched_rows.names
    fitting = {
        **({} if matched_rows is None else matched_rows.values),
        **_fit(interface, targets, state, report, matched_names),
    }
    unfit = targets.keys() - fitting.keys()
    for layer in interface.classifier_layers or _infer_classifiers(report, unfit, model):
        names = [key for key in targets if key.startswith(f"{layer}.")]
        if any(key not in fitting for key in names):
            report.reinitialized += names  # weight and bias together
    fitting = {key: item for key, item in fitting.items() if key not in report.reinitialized}
    report.loaded = list(fitting)
    report.resized += [
        key
        for key, item in fitting.items()
        if item.shape != state[key].shape and key not in (*matched_names, *report.resized)
    ]
    report.notices += interface.list_resize_notices(report.resized)
    _report_rest(targets, state, fitting, report)
    return fitting


def _fit(
    interface: Model,
    targets: Mapping[str, Any],
    state: Mapping[str, np.ndarray],
    report: LoadReport,
    matched_names: frozenset[str],
) -> dict[str, np.ndarray]:
    """Report the shapes, and return the values that have the shape of their target or can be resized to it.

    ``matched_names``: tensors whose rows follow the names of classes, which are skipped.
    """
    fitting = {}
    for name, target in targets.items():
        shape, value = tuple(target.shape), state.get(name)
        report.shapes[name] = (None if value is None else value.shape, shape)
        if name in matched_names:
            continue
        if value is not None and report.trained_size not in (None, interface.image_size):
            resampled = interface.resample_parameter(name, value, report.trained_size)
            if resampled is not None and resampled.shape == shape:
                fitting[name] = resampled
                report.resized.append(name)
                continue
        if value is not None and value.shape != shape:
            resized = interface.resize_parameter(name, value)
            value = _fit_channels(value, shape, interface) if resized is None else resized
        if value is not None and value.shape == shape:
            fitting[name] = value
    return fitting


def describe_dropped(names: Iterable[str]) -> list[str]:
    """Return a line for each part that only pretraining needs, with the number of its entries."""
    numbers = Counter(match[1] for match in map(find_pretraining_part, names) if match)
    return [f"{part}, which only pretraining needs, dropped ({number} entries)" for part, number in numbers.items()]


def _report_rest(
    targets: Mapping[str, Any],
    state: Mapping[str, np.ndarray],
    fitting: Mapping[str, np.ndarray],
    report: LoadReport,
) -> None:
    report.missing = [name for name in targets if name not in fitting and name not in report.reinitialized]
    unused = [name for name in state if name not in targets]
    dropped = set(filter(find_pretraining_part, unused))
    report.unexpected = [name for name in unused if not name.endswith(_IGNORED_SUFFIXES) and name not in dropped]
    report.notices += describe_dropped(unused)
    report.shapes.update({name: (state[name].shape, None) for name in report.unexpected})
    num_loaded, num_missing = (
        sum(int(np.prod(targets[name].shape)) for name in names) for names in (report.loaded, report.missing)
    )
    report.loaded_fraction = num_loaded / max(num_loaded + num_missing, 1)
    not_finite = [name for name, value in fitting.items() if not np.isfinite(value).all()]
    if not_finite:
        report.notices.append(f"values that are NaN or infinite in {_some(not_finite)}")


def _infer_classifiers(report: LoadReport, unfit: Iterable[str], model: paddle.nn.Layer) -> list[str]:
    """Return the layers of a model without ``classifier_layers`` that only differ from the source's in their classes.

    ``unfit`` are the tensors without values. ``model`` has the number of outputs it was built with as ``num_classes``.
    """
    interface, num_classes, layers = as_model(model), getattr(model, "num_classes", None), set()
    for name in unfit:
        theirs, ours = report.shapes[name]
        axis = find_class_axis(ours or (), interface.class_layout(name))
        if theirs is None or ours is None or axis is None or len(theirs) != len(ours) or ours[axis] != num_classes:
            continue
        if np.delete(theirs, axis).tolist() == np.delete(ours, axis).tolist():
            layers.add(name.rpartition(".")[0])
    return sorted(layers)


def _fit_channels(value: np.ndarray, shape: Shape, interface: Model) -> np.ndarray:
    """Fit a first convolution for colors, (out, 3, height, width), to a model with other channels, as timm.

    One channel gets the sum of the three; more channels get them in turn, times 3 / channels.
    """
    channels = getattr(interface, "in_channels", None)
    is_first = value.ndim == 4 and value.shape[1] == 3 and shape == (value.shape[0], channels, *value.shape[2:])
    if not is_first:
        return value
    colors = value.astype(np.float32)
    if channels == 1:
        return colors.sum(axis=1, keepdims=True)
    return colors[:, np.arange(shape[1]) % 3] * np.float32(3 / shape[1])


def _require_everything(report: LoadReport, interface: Model) -> None:
    if not report.missing and not report.reinitialized:
        return
    reasons = []
    if report.missing:
        reasons.append(f"it lacks {_describe(report, report.missing)}")
    if report.reinitialized:
        reasons.append(f"its classifier does not fit: {_describe(report, report.reinitialized)}")
    for name in report.reinitialized:
        source_shape, model_shape = report.shapes[name]
        axis = find_class_axis(source_shape or (), interface.class_layout(name))
        if source_shape and model_shape and axis is not None and source_shape[axis] != model_shape[axis]:
            theirs, ours = (interface.outputs_to_classes(shape[axis]) for shape in (source_shape, model_shape))
            remedy = f"set MODEL.NUM_CLASSES to {theirs}"
            if theirs < ours:  # MODEL.NUM_CLASSES must not be smaller than the data's number of classes
                remedy = f"remove MODEL.NUM_CLASSES; data with more than {theirs} classes cannot be used with it"
            reasons.append(f"it has {theirs} classes and the model {ours}: {remedy}")
            break  # further heads may have several outputs per class
    hint = _suggest_model(report.source) if report.missing else ""
    raise UserError(
        f"{report.source} does not contain the whole model, which evaluating and resuming need: "
        f"{'; '.join(reasons)}{hint}"
    )


def require_trained(
    report: LoadReport, own_parts: Sequence[str] = (), remedy: str = "add -allow_changes to train them anew"
) -> None:
    """Raise UserError if a parameter outside of the classifier keeps its random values.

    ``own_parts``: beginnings of names that the source cannot have; ``remedy``: what to do if this is intended.
    """
    random = [name for name in report.missing if not name.startswith(tuple(own_parts))]
    if random:
        total = len(report.loaded) + len(report.reinitialized) + len(report.missing)
        raise UserError(
            f"{report.source} lacks {len(random)} of this model's {total} tensors, which would stay random: "
            f"{_describe(report, random)}; use weights of this model, or {remedy}{_suggest_model(report.source)}"
        )


def _refuse_unused(report: LoadReport, unused: list[str]) -> None:
    """Raise UserError for unused entries: a network without them computes other results."""
    distilled = ""
    if any(name.startswith(("dist_token", "head_dist.")) for name in unused):
        distilled = ". They belong to a distilled DeiT, with MODEL.NAME deit_SIZE_distilled_patch16_SIDE"
    raise UserError(
        f"{report.source} belongs to another network: this model does not have "
        f"{_describe(report, unused)}; set MODEL.NAME to the weights' model, or add -allow_changes to evaluate "
        f"without them{distilled or _suggest_model(report.source)}"
    )


def _require_statistics(report: LoadReport) -> None:
    """Raise UserError for batch norms with trained weights but initial statistics, which compute other results."""
    missing = [name for name in statistics_in(report.missing) if f"{name.rpartition('.')[0]}.weight" in report.loaded]
    if missing:
        raise UserError(
            f"{report.source} has the weights of batch norms without their running statistics "
            f"{_describe(report, missing)}, so their results would differ from training; expected _mean and _variance, "
            "or PyTorch's running_mean and running_var, for each weight"
        )


# Names in the models of transformers 5; its ``save_pretrained`` writes the names of version 4, which are supported.
_is_transformers5_name = re.compile(
    r"layers\.\d+\.(blocks\.\d+\.)?attention\.q_proj\.|stages\.\d+\.patch_embeddings\."
).search
_TRANSFORMERS5_HINT = (
    ". This is a state_dict() of transformers 5: save the model with save_pretrained, and give that folder"
)


def _refuse(report: LoadReport, minimum_loaded: float) -> None:
    reasons = [f"missing {_describe(report, report.missing)}"]
    if report.unexpected:
        reasons.append(f"unexpected {_describe(report, report.unexpected)}")
    is_raw = any(map(_is_transformers5_name, report.unexpected))
    hint = _TRANSFORMERS5_HINT if is_raw else _suggest_model(report.source)
    raise UserError(
        f"{report.source} has only {_percent(report.loaded_fraction)} % of the model's parameters, at least "
        f"{100 * minimum_loaded:g} % are needed (MODEL.MIN_LOADED_FRACTION): {'; '.join(reasons)}"
        f"{hint}"
    )


def _suggest_model(source: str) -> str:
    file = Path(source)
    model = (find_run_settings(read_weights_info(file), file) or {}).get("MODEL")
    if isinstance(model, dict) and isinstance(model.get("NAME"), str):
        return f". It is from a run with MODEL.NAME {shorten(model['NAME'])}: use that run's MODEL settings"
    candidates = [name for name in MODELS if file.name.startswith((f"{name}.", f"{name}-"))]
    return f". Its name suggests MODEL.NAME {candidates[0]}" if candidates else ". Is it for another architecture?"


def _describe(report: LoadReport, names: list[str]) -> str:
    def describe(name: str) -> str:
        source_shape, model_shape = report.shapes[name]
        if source_shape and model_shape:
            return f"{shorten(name)} ({source_shape} in the source, {model_shape} in the model)"
        return f"{shorten(name)} {source_shape or model_shape}"

    return _some([describe(name) for name in names])


def _percent(share: float) -> str:
    """Format a share with one decimal, rounded down: 100.0 is the whole."""
    return f"{np.floor(1000 * share) / 10:.1f}"


def _some(texts: list[str], limit: int = 3) -> str:
    shown = ", ".join(shorten(text) for text in texts[:limit])
    return shown if len(texts) <= limit else f"{shown} and {len(texts) - limit} more"


def _shapes(source_shape: Shape | None, model_shape: Shape | None) -> str:
    in_source = f"{source_shape} in the source" if source_shape is not None else "not in the source"
    in_model = f"{model_shape} in the model" if model_shape is not None else "not in the model"
    return f"{in_source}, {in_model}"
