"""Loads weights from any source into a model and reports every parameter."""

import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ..runtime.errors import UserError
from ..tasks.model import Model, as_model, find_built_size
from . import low_rank
from .class_rows import ClassNames, find_class_axis, follow_names, keep_named_rows
from .completion import complete, describe_base
from .load_report import (
    LoadReport,
    Shape,
    list_some,
    refuse_small_share,
    refuse_unused,
    require_everything,
    require_finite,
    require_statistics,
)
from .low_rank import LowRankBase
from .model_record import as_plane, find_trained_size
from .naming import list_targets, name_for
from .network_facts import list_network_differences
from .published import is_fetched
from .weights import SourceWeights, read_weights, weights_from_mapping

# Suffixes of entries that are ignored: buffers that the network computes itself, and tokens of pre-training.
_IGNORED_SUFFIXES = (
    "relative_position_index",
    "relative_coords_table",
    "attn_mask",
    "attn_mask_probs",
    "position_ids",
    "mask_token",
    "masked_embed",
)

# Finds the name of a part that only a backbone's pretraining has, such as a decoder: it is dropped, and told.
find_pretraining_part = re.compile(r"(?:^|\.)(pretraining_\w+)").search

# Entries of projections and text encoders: listed as unused, but never an error.
_is_optional = re.compile(
    r"(?:^|\.)(?:(?:text_model|text_projection|visual_projection|pooler)\.|logit_(?:scale|bias)$)"
).search


def load_weights(
    model: paddle.nn.Layer,
    source: str | os.PathLike | Mapping[str, Any] | SourceWeights,
    *,
    minimum_loaded: float = 0.9,
    strict: bool = False,
    allow_unused: bool = False,
    part: str | None = None,
    class_names: ClassNames | None = None,
    follows: bool = False,
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
        follows: whether the classifier may be made anew, to read what the source's does (``Model.follow_source``): for
            a model whose parameters nothing has listed yet.

    Returns:
        What happened to each parameter.

    Raises:
        UserError: the source cannot be read, does not fit well enough, has a batch norm's weights without its running
            statistics, or NaN or infinity.
    """
    weights, base = _get_weights(source, part), None
    has_factors = bool(low_rank.list_factors(model))
    if _needs_base(model, weights):
        weights, base = _complete(model, weights, keep=strict and has_factors)
    named = name_for(model, weights)
    followed = as_model(model).follow_source(named.state) if follows else []
    whole = {} if class_names else model.state_dict()
    state = keep_named_rows(as_model(model), weights.class_names, named.state, whole)
    if has_factors and base is None:
        place = str(source) if is_fetched(source) else os.path.abspath(weights.name)
        base = describe_base(place, part, weights, state, list_targets(model, state).keys() & state)
    report = LoadReport(source=weights.name, origin=named.origin, notices=[*weights.notices, *named.notices, *followed])
    report.trained_size = find_trained_size(Path(weights.name))
    report.base = base if has_factors else None  # checkpoints of other models are whole
    values = _plan(model, state, report, class_names)
    _compare_networks(model, source, weights, report, must_match=strict and not allow_unused)
    if strict:
        require_everything(report, as_model(model), class_names)
        unused = [name for name in report.unexpected if not _is_optional(name) and name not in named.outside]
        if unused and not allow_unused:
            refuse_unused(report, unused)
    elif report.loaded_fraction < minimum_loaded:
        refuse_small_share(report, minimum_loaded)
    require_statistics(report)
    require_finite(report.source, values)
    _set_values(model, values)
    return report


def _set_values(model: paddle.nn.Layer, values: Mapping[str, Any]) -> None:
    targets = model.state_dict()
    for name, value in values.items():
        tensor = paddle.to_tensor(np.asarray(value, order="C"), place=paddle.CPUPlace())
        targets[name].set_value(tensor.astype(targets[name].dtype).numpy())


def _compare_networks(
    model: paddle.nn.Layer, source: object, weights: SourceWeights, report: LoadReport, must_match: bool
) -> None:
    """Add notices on differences to the network of the weights that no shape shows, or raise UserError for them."""
    name = str(source) if isinstance(source, (str, os.PathLike)) else weights.name
    differences = list_network_differences(as_model(model), name, Path(weights.name), weights.state)
    if differences and must_match:
        raise UserError(
            f"{weights.name} is of another network than this model: {list_some(differences)}; set MODEL.NAME and its "
            "keys to the weights' network, or add -allow_changes to evaluate with this one"
        )
    report.notices += [f"of another network: {difference}" for difference in differences]


def _needs_base(model: paddle.nn.Layer, weights: SourceWeights) -> bool:
    """Return whether weights are a checkpoint of TRAIN.LORA, and not of a network whose own names these are."""
    if not low_rank.has_factors(weights.state):
        return False
    is_own = low_rank.has_factors(model.state_dict()) and not low_rank.list_factors(model)
    return low_rank.has_record(weights.name) or not is_own


def _complete(model: paddle.nn.Layer, weights: SourceWeights, keep: bool) -> tuple[SourceWeights, LowRankBase]:
    layers = {name for name, _ in model.named_sublayers()}
    if not layers.issuperset(low_rank.list_layers(weights.state)):  # the model contains the one that was trained
        model = getattr(model, "pretrained_part", model)

    def read(source: str, part: str | None) -> tuple[SourceWeights, Mapping[str, np.ndarray]]:
        own = _get_weights(source, part)
        return own, name_for(model, own).state

    return complete(model, weights, read, keep)


def count_classes(model: paddle.nn.Layer, weights: SourceWeights, wider: paddle.nn.Layer | None = None) -> int | None:
    """Return the number of classes of the weights' classifier; None if it does not belong to this model.

    With ``wider``, the same network of two classes where ``model`` has one, a network of a user that names no
    classifier has the number that the vectors which grow with the classes agree on.
    """
    if _needs_base(model, weights):
        weights, _ = _complete(model, weights, keep=False)
    interface = as_model(model)
    state = keep_named_rows(interface, weights.class_names, name_for(model, weights).state)
    biases = [state.get(f"{layer}.bias") for layer in interface.classifier_layers]
    outputs = next((len(bias) for bias in biases if bias is not None and bias.ndim == 1), None)
    if outputs is not None:
        return interface.outputs_to_classes(outputs)
    if wider is None or interface.classifier_layers:
        return None
    pairs = {name: (tensor.shape, wider.state_dict()[name].shape) for name, tensor in model.state_dict().items()}
    growing = [name for name, (one, two) in pairs.items() if len(one) == 1 and one[0] < two[0] and name in state]
    counts = {1 + (len(state[name]) - pairs[name][0][0]) // (pairs[name][1][0] - pairs[name][0][0]) for name in growing}
    return counts.pop() if len(counts) == 1 else None


def rename_for(model: paddle.nn.Layer, weights: SourceWeights) -> dict[str, np.ndarray]:
    """Return the entries that the model has, with its names and its layout of Linear weights; other shapes are kept."""
    state = name_for(model, weights).state
    return {name: state[name] for name in model.state_dict() if name in state}


def _get_weights(source: str | os.PathLike | Mapping[str, Any] | SourceWeights, part: str | None) -> SourceWeights:
    if isinstance(source, SourceWeights):
        return source
    return weights_from_mapping(source, part) if isinstance(source, Mapping) else read_weights(source, part)


def _plan(
    model: paddle.nn.Layer, state: Mapping[str, np.ndarray], report: LoadReport, class_names: ClassNames | None = None
) -> dict[str, np.ndarray]:
    """Fill the report and return the arrays to assign, without changing the model."""
    interface = as_model(model)
    targets = list_targets(model, state)
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
    begun = {key: interface.begin_classifier(key, state[key]) for key in report.reinitialized if key in state}
    values = {key: value for key, value in begun.items() if value is not None and value.shape == report.shapes[key][1]}
    if values:
        report.notices.append("a new classifier begins with the rows of the source's classes, repeated if it has more")
    return {**fitting, **values}


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
    fitting, is_other_size = {}, report.trained_size not in (None, as_plane(find_built_size(interface)))
    for name, target in targets.items():
        shape, value = tuple(target.shape), state.get(name)
        report.shapes[name] = (None if value is None else value.shape, shape)
        if name in matched_names:
            continue
        if value is not None and (is_other_size or (report.trained_size is not None and value.shape != shape)):
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
    absent = [name for name in targets if name not in fitting and name not in report.reinitialized]
    report.missing = [name for name in absent if math.prod(targets[name].shape)]  # an empty buffer has no values
    unused = [name for name, value in state.items() if name not in targets and value.size]
    dropped = set(filter(find_pretraining_part, unused))
    report.unexpected = [name for name in unused if not name.endswith(_IGNORED_SUFFIXES) and name not in dropped]
    report.notices += describe_dropped(unused)
    report.shapes.update({name: (state[name].shape, None) for name in report.unexpected})
    num_loaded, num_missing = (
        sum(int(np.prod(targets[name].shape)) for name in names) for names in (report.loaded, report.missing)
    )
    report.loaded_fraction = num_loaded / max(num_loaded + num_missing, 1)


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
