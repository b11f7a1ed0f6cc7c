"""Copies rows of a classifier by class name, for a model whose classes differ or are in another order."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ..runtime.errors import UserError
from ..runtime.printing import shorten
from ..runtime.spelling import compose
from ..tasks.model import ClassLayout, Model
from .output_names import are_names, mean_numbers

_MOST = 0.8  # share of equal names that identifies a published list; others have several synonyms
# Axis of the outputs by a parameter's number of axes: bias, linear layer, sparse convolution, dense convolutions.
_OUTPUT_AXES = {1: 0, 2: 1, 3: 2, 4: 0, 5: 0}


class ClassNames(NamedTuple):
    """Class names of weights, and of a model that starts from them, in the order of the labels.

    Attributes:
        theirs: names of the weights' classes; empty for a label without a class; None: unknown.
        is_own: whether a run of this package has recorded ``theirs``. Other sources may use names that differ from the
            data's, such as ImageNet's. If no name of another source matches, rows are copied in order.
        is_evaluated: whether the weights are evaluated: their classes that the data do not have keep their rows, behind
            the rows of the data's classes, and the model has to have as many classes as the weights.
    """

    theirs: Sequence[str] | None
    ours: Sequence[str]
    is_own: bool = True
    is_evaluated: bool = False


class FollowedRows(NamedTuple):
    """Parameters with a row for each class, matched by class name.

    ``matched`` of the model's ``classes`` are in the weights; ``outputs``: name of each output in an evaluation.
    """

    names: frozenset[str]
    values: Mapping[str, np.ndarray]
    matched: int
    classes: int
    outputs: tuple[str, ...] = ()


def follow_names(
    model: Model, names: ClassNames, state: Mapping[str, np.ndarray], targets: Mapping[str, Any]
) -> FollowedRows | None:
    """Combine the rows of classes that both sides have with the model's initial rows for all others.

    Returns None if names are not known on both sides, or are equal and in the same order.
    """
    is_in_order = names.theirs is not None and list(names.theirs) == list(names.ours)
    parameters = _list_classifier_parameters(model, state, targets)
    if is_in_order or not parameters or not are_names(names.ours):
        return None
    counts = _count_classes(model, state, parameters)
    theirs, pairs = _match_names(model, names, counts)
    if not pairs and (names.is_evaluated or not (names.is_own and names.theirs)):
        return None
    matched, outputs = len(pairs), list(names.ours)
    if names.is_evaluated:
        if names.is_own:  # MODEL.NUM_CLASSES may have been larger than the number of names
            theirs = [*theirs, *map(str, range(len(theirs), max(counts)))]
        if _count_classes(model, targets, parameters) != counts or len(theirs) not in counts:
            return None
        others = _list_others(theirs, names.ours, pairs)
        pairs = [*pairs, *zip(others, range(len(names.ours), len(theirs)))]
        outputs += [theirs[label] for label in others]
    if not pairs:
        return FollowedRows(frozenset(parameters), {}, matched, len(names.ours), tuple(outputs))
    values = _merge_rows(model, state, targets, parameters, pairs)
    # What has the same shape but fewer rows than classes, such as a temperature, is copied like any other parameter.
    followed = {key for key in parameters if key in values or state[key].shape != tuple(targets[key].shape)}
    return FollowedRows(frozenset(followed), values, matched, len(names.ours), tuple(outputs))


def _list_classifier_parameters(model: Model, state: Mapping[str, np.ndarray], targets: Mapping[str, Any]) -> list[str]:
    """List the parameters of the model's classifiers that the weights have, too."""
    layers = tuple(f"{layer}." for layer in model.classifier_layers)
    return [key for key in targets if key.startswith(layers) and key in state]


def _count_classes(model: Model, arrays: Mapping[str, Any], parameters: Iterable[str]) -> list[int]:
    """Return the number of classes that each of these parameters has rows for in a state."""
    return [_classes_in(tuple(arrays[key].shape), model.class_layout(key)) for key in parameters]


def _list_others(theirs: Sequence[str], ours: Sequence[str], pairs: Sequence[tuple[int, int]]) -> list[int]:
    """List the weights' classes that keep their rows behind the rows of our classes, which none of ``pairs`` has."""
    paired = {label for label, _ in pairs}
    others = [label for label in range(len(theirs)) if label not in paired]
    return others[: max(len(theirs) - len(ours), 0)]  # more are left only if the data have other classes


def order_outputs(
    model: Model, names: ClassNames, outputs: int, classes: int, source: str
) -> tuple[list[int] | None, bool]:
    """Return the output of a whole network, such as an exported one, for each of ``classes``, matched by name.

    ``names`` are of its first ``outputs`` and of the first classes. The order is None if it stays; the second value
    is true if both sides have names, not only numbers. Raises UserError if the network lacks a class.
    """
    theirs, pairs = _match_names(model, names, [outputs])
    own, is_whole = names.theirs or (), len(pairs) == len(names.ours)
    is_named = are_names(names.ours) and (are_names(own) or mean_numbers(names.ours, own) or is_whole)
    missing = set(names.ours) - {names.ours[here] for _, here in pairs}
    if is_named and missing:
        lacking, own = (shorten(", ".join(each), 60) for each in (sorted(missing), theirs))
        raise UserError(
            f"{source} lacks {len(missing):,} classes ({lacking}); its own are {own}: use data of these names"
        )
    if outputs < classes or (outputs != classes and not is_named):
        raise UserError(f"{source} has {outputs:,} classes, and {classes:,} are needed: use a model of as many")
    if not is_named:
        return None, False
    order = [there for there, _ in pairs]
    order += [output for output in range(outputs) if output not in order][: classes - len(order)]
    return (None if order == list(range(outputs)) else order), True


def keep_named_rows(
    model: Model,
    names: Sequence[str] | None,
    state: Mapping[str, np.ndarray],
    targets: Mapping[str, Any] = MappingProxyType({}),
) -> Mapping[str, np.ndarray]:
    """Return weights, under the model's names, without the rows that stand for no class of the names stored with them.

    See ``Model.find_named_rows``. Weights of the shape of their ``targets`` stay whole.
    """
    layers = tuple(f"{layer}." for layer in model.classifier_layers)
    kept = dict(state)
    for name in state if names and layers else ():
        layout = model.class_layout(name)
        axis = find_class_axis(state[name].shape, layout) if name.startswith(layers) else None
        is_fitting = name in targets and tuple(targets[name].shape) == state[name].shape
        if axis is not None and layout == ClassLayout(axis=layout.axis) and not is_fitting:
            rows = model.find_named_rows(len(names or ()), state[name].shape[axis])
            kept[name] = state[name] if rows is None else state[name].take(rows, axis=axis)
    return kept


def _merge_rows(
    model: Model,
    state: Mapping[str, np.ndarray],
    targets: Mapping[str, Any],
    names: Sequence[str],
    pairs: Sequence[tuple[int, int]],
) -> dict[str, np.ndarray]:
    """Merge each of these parameters with the paired rows of the weights, where they have a row for each class."""
    merged = {
        name: _merge(state[name], np.asarray(targets[name].numpy()), model.class_layout(name), pairs) for name in names
    }
    return {name: value for name, value in merged.items() if value is not None}


def _match_names(model: Model, names: ClassNames, counts: Sequence[int]) -> tuple[Sequence[str], list[tuple[int, int]]]:
    """Return the names of the weights' classes, and the pairs of ``pair_names``.

    Weights without names have the published ones of their number of classes. If the weights name published classes in
    other words, such as ``tench, Tinca tinca`` for a WordNet id, the names with more pairs are used.
    """
    theirs = names.theirs or ()
    if not names.is_own and len(theirs) not in counts:
        theirs = ()  # names of other rows than these
    pairs = pair_names(theirs, names.ours, model)
    published = next((known for number in counts if number and (known := model.published_classes(number))), None)
    if published and (not theirs or _mean_the_same(theirs, published, model)):
        published_pairs = pair_names(published, names.ours, model)
        if not theirs or len(published_pairs) > len(pairs):
            return published, published_pairs
    return theirs, pairs


def _mean_the_same(theirs: Sequence[str], published: Sequence[str], model: Model) -> bool:
    """Return whether names, up to a comma, are most of the published ones in their order."""
    if len(theirs) != len(published):
        return False
    shortened = (model.plain_class(name.partition(",")[0]) for name in theirs)
    same = sum(short == model.plain_class(known) for short, known in zip(shortened, published))
    return same >= _MOST * len(published)


def pair_names(their_names: Sequence[str], our_names: Sequence[str], model: Model) -> list[tuple[int, int]]:
    """Pair the labels of equal classes, (in ``their_names``, in ``our_names``), ordered by the latter.

    Classes are equal if their names are, or if ``Model.plain_class`` makes their names equal and no other class of
    either side has this plain name.
    """
    their_names, our_names = list(map(compose, their_names)), list(map(compose, our_names))
    pairs, unmatched = [], []
    exact = _unique(their_names)
    for our_label, name in enumerate(our_names):
        if name in exact and our_names.count(name) == 1:
            pairs.append((exact[name], our_label))
        else:
            unmatched.append(our_label)
    paired = {theirs for theirs, _ in pairs}
    their_plain_names = _unique([model.plain_class(key) for key in their_names])
    label_by_plain_name = _unique([model.plain_class(key) for key in our_names])
    for our_label in unmatched:
        name = model.plain_class(our_names[our_label])
        their_label = their_plain_names.get(name)
        if their_label is not None and their_label not in paired and label_by_plain_name.get(name) == our_label:
            pairs.append((their_label, our_label))
    return sorted(pairs, key=lambda pair: pair[1])


def _unique(names: Sequence[str]) -> dict[str, int]:
    """Return the position of each name that occurs once."""
    positions: dict[str, int] = {}
    repeated = set()
    for position, name in enumerate(names):
        if name in positions:
            repeated.add(name)
        positions[name] = position
    return {key: place for key, place in positions.items() if key and key not in repeated}


def find_class_axis(shape: tuple[int, ...], layout: ClassLayout) -> int | None:
    """Return the axis of the outputs of a parameter of this shape; None if it has none."""
    return _OUTPUT_AXES.get(len(shape)) if layout.axis is None else layout.axis


def _classes_in(shape: tuple[int, ...], layout: ClassLayout) -> int:
    """Return the number of classes that a parameter of this shape has rows for; 0 if it has none."""
    axis = find_class_axis(shape, layout)
    if axis is None or shape[axis] % layout.each:
        return 0
    return max(shape[axis] // layout.each - layout.before - layout.after, 0)


def _merge(
    value: np.ndarray, initial: np.ndarray, layout: ClassLayout, pairs: Sequence[tuple[int, int]]
) -> np.ndarray | None:
    """Replace the rows of ``initial`` in ``pairs``, or of no class, by rows of ``value``; None if other axes differ."""
    axis = find_class_axis(value.shape, layout)
    if axis is None or value.ndim != initial.ndim:
        return None
    num_theirs, num_ours = (_classes_in(array.shape, layout) for array in (value, initial))
    rest = (np.delete(array.shape, axis).tolist() for array in (value, initial))
    if next(rest) != next(rest) or num_theirs <= max(a for a, _ in pairs) or num_ours <= max(b for _, b in pairs):
        return None
    sources, places = zip(*pairs)
    merged = np.moveaxis(initial.copy(), axis, 0)
    merged[_list_rows(places, num_ours, layout)] = np.moveaxis(value, axis, 0)[_list_rows(sources, num_theirs, layout)]
    return np.moveaxis(merged, 0, axis)


def _list_rows(labels: Sequence[int], classes: int, layout: ClassLayout) -> np.ndarray:
    """Return the places, int (rows,), of the rows of these labels, and of those before and behind the classes."""
    labels = [layout.before + label for label in labels]
    behind = range(layout.before + classes, layout.before + classes + layout.after)
    outputs = np.array([*range(layout.before), *labels, *behind])
    return (outputs[:, None] * layout.each + np.arange(layout.each)).reshape(-1)
