"""Rows of a classifier that follow the names of its classes from weights to a model whose classes are others, or are
in another order."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..runtime.errors import UserError
from ..runtime.text_files import read_json
from ..tasks.model import ClassLayout, Model
from .content import read_weights_info
from .published import find_published, find_sibling_file, is_fetched
from .weights import local_file

_CONFIG = "config.json"  # of transformers, beside weights
_UNNAMED = "LABEL_"  # and a number, which is how transformers calls a class without a name
_LANDMARKS = "landmarks"  # in the description of a run's input: outputs that have names without being classes
# The axis of the outputs of a weight, by its number of axes: of a bias, a linear layer, a sparse and a dense
# convolution.
OUTPUT_AXES = {1: 0, 2: 1, 3: 2, 4: 0, 5: 0}


class ClassNames(NamedTuple):
    """Names of the classes of weights, and of a model that begins with them, in the order of their numbers.

    Attributes:
        theirs: of the weights; "" for a number that stands for no class; None: nobody says them.
        ours: of the model.
        is_own: a training of this package has written ``theirs``. Others may call all classes otherwise than the data
            do, such as ImageNet's: where no name of theirs is known here, numbers decide.
    """

    theirs: Sequence[str] | None
    ours: Sequence[str]
    is_own: bool = True


class FollowedRows(NamedTuple):
    """Parameters with a row for each class, after their rows have followed the names.

    Attributes:
        names: of these parameters.
        values: of those that have rows of the weights.
        matched: classes of the model that the weights have.
        classes: of the model.
    """

    names: frozenset[str]
    values: Mapping[str, np.ndarray]
    matched: int
    classes: int


def follow_names(
    model: Model, names: ClassNames, state: Mapping[str, np.ndarray], targets: Mapping[str, Any]
) -> FollowedRows | None:
    """Take the rows of the classes that both sides have, and the model's initial values of all others.

    Args:
        state: the weights under the model's names.
        targets: the model's parameters.
    Returns:
        None: names are not known on both sides, or are the same in the same order.
    """
    layers = tuple(f"{layer}." for layer in model.classifier_layers)
    found = [name for name in targets if name.startswith(layers) and name in state] if layers else []
    theirs = names.theirs
    if theirs is None:
        counts = [_classes_in(state[name].shape, model.class_layout(name)) for name in found]
        theirs = next((known for number in counts if number and (known := model.published_classes(number))), None)
    if not found or not theirs or not _are_names(names.ours) or list(theirs) == list(names.ours):
        return None
    pairs = pair_names(theirs, names.ours, model)
    if not pairs and not names.is_own:
        return None
    values = {}
    for name in found if pairs else ():
        value = _merge(state[name], np.asarray(targets[name].numpy()), model.class_layout(name), pairs)
        if value is not None:
            values[name] = value
    return FollowedRows(frozenset(found), values, len(pairs), len(names.ours))


def pair_names(theirs: Sequence[str], ours: Sequence[str], model: Model) -> list[tuple[int, int]]:
    """Pair the numbers of classes that mean the same: of equal names; else of names that ``Model.plain_class`` makes
    equal, where no other class of either side has such a name."""
    pairs, left = [], []
    exact = _unique(theirs)
    for here, name in enumerate(ours):
        if name in exact and ours.count(name) == 1:
            pairs.append((exact[name], here))
        else:
            left.append(here)
    taken = {there for there, _ in pairs}
    plain = _unique([model.plain_class(name) for name in theirs])
    here_of = _unique([model.plain_class(name) for name in ours])
    for here in left:
        name = model.plain_class(ours[here])
        there = plain.get(name)
        if there is not None and there not in taken and here_of.get(name) == here:
            pairs.append((there, here))
    return sorted(pairs, key=lambda pair: pair[1])


def _unique(names: Sequence[str]) -> dict[str, int]:
    """The position of each name that occurs once."""
    found: dict[str, int] = {}
    repeated = set()
    for position, name in enumerate(names):
        if name in found:
            repeated.add(name)
        found[name] = position
    return {name: position for name, position in found.items() if name and name not in repeated}


def _are_names(names: Sequence[str]) -> bool:
    """Whether any is more than the number of its class."""
    return any(name != str(number) for number, name in enumerate(names))


def _axis(shape: tuple[int, ...], layout: ClassLayout) -> int | None:
    return OUTPUT_AXES.get(len(shape)) if layout.axis is None else layout.axis


def _classes_in(shape: tuple[int, ...], layout: ClassLayout) -> int:
    """How many classes a parameter of this shape has rows for; 0: it has none."""
    axis = _axis(shape, layout)
    if axis is None or shape[axis] % layout.each:
        return 0
    return max(shape[axis] // layout.each - layout.before - layout.after, 0)


def _merge(
    value: np.ndarray, initial: np.ndarray, layout: ClassLayout, pairs: Sequence[tuple[int, int]]
) -> np.ndarray | None:
    """``initial`` with the rows of ``value`` that belong to ``pairs`` of classes, there and here, and to no class; None
    where they differ in more than their classes."""
    axis = _axis(value.shape, layout)
    if axis is None or value.ndim != initial.ndim:
        return None
    there, here = (_classes_in(one.shape, layout) for one in (value, initial))
    rest = (np.delete(one.shape, axis).tolist() for one in (value, initial))
    if next(rest) != next(rest) or there <= max(a for a, _ in pairs) or here <= max(b for _, b in pairs):
        return None
    before, after = range(layout.before), range(layout.after)
    rows = [
        *((row, row) for row in before),
        *((layout.before + a, layout.before + b) for a, b in pairs),
        *((layout.before + there + row, layout.before + here + row) for row in after),
    ]
    each = np.arange(layout.each)
    sources, places = (
        (np.array(part)[:, None] * layout.each + each).reshape(-1) for part in (list(some) for some in zip(*rows))
    )
    merged = np.moveaxis(initial.copy(), axis, 0)
    merged[places] = np.moveaxis(value, axis, 0)[sources].astype(initial.dtype)
    return np.moveaxis(merged, 0, axis)


# ---- what classes weights have -----------------------------------------------------------------------------------


def get_class_names(data: Mapping[str, Any], described: Mapping[str, Any]) -> list[str] | None:
    """The names of a run's outputs: of the first split with classes, or of landmarks; None: it does not say.

    Args:
        data: what ``Task.dataset_signature`` says of each split; described: what ``Task.preprocess_signature`` says.
    """
    classes = next((facts["classes"] for facts in data.values() if _has_classes(facts)), None)
    names = described.get(_LANDMARKS) or classes
    return list(map(str, names)) if names else None


def _has_classes(facts: Any) -> bool:
    return isinstance(facts, Mapping) and bool(facts.get("classes"))


def read_class_names(source: str) -> tuple[list[str] | None, bool]:
    """The names of the classes of the weights that ``source`` means: by the run that trained them, else by
    transformers' configuration beside them; and whether a run says them. None: nobody does.

    Raises:
        UserError: there are no weights, or a description of them is damaged.
    """
    file = local_file(source).path
    about = read_weights_info(file)
    names = get_class_names(about.get("data") or {}, about.get("input") or {})
    if names:
        return (names, True) if _are_names(names) else (None, True)
    if find_published(source) is not None:  # timm's, which name no classes
        return None, False
    beside = find_sibling_file(source, _CONFIG, True)[0] if is_fetched(source) else file.with_name(_CONFIG)
    return (_labels_in(beside) if beside is not None and beside.is_file() else None), False


def _labels_in(file: Path) -> list[str] | None:
    """The names of classes in a configuration of transformers, ``id2label``."""
    try:
        content = read_json(file)
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read: {error}; restore it, or remove it") from error
    labels = content.get("id2label") if isinstance(content, dict) else None
    if not isinstance(labels, dict) or not all(name.isascii() and name.isdigit() for name in labels):
        return None
    by_number = {int(number): str(name) for number, name in labels.items()}
    if not by_number or max(by_number) > 10 * len(by_number) + 1000 or _are_placeholders(by_number):
        return None
    return [by_number.get(number, "") for number in range(max(by_number) + 1)]


def _are_placeholders(names: Mapping[int, str]) -> bool:
    return all(name in (f"{_UNNAMED}{number}", str(number)) for number, name in names.items())
