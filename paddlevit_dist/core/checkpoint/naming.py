"""Finds a network's parameters in weights: by its own names first, else behind prefixes and under foreign names."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import paddle

from ..runtime.errors import UserError
from ..runtime.printing import shorten
from ..tasks.model import Model, as_model
from . import low_rank
from .entries import DEPTH, PADDLE_RANKING, RANKING, choose_by_ranking, describe_choice, several_error
from .foreign_names import from_torch_layers, from_torch_names, rename_norms_like, rename_states
from .records import is_run_checkpoint
from .weights import SourceWeights

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
_ENOUGH = 0.5  # share of a network that its own names have to fill behind a prefix, so that this is the one
_SMALLEST_SHARE = 0.1  # of the names that a prefix of foreign names has

_FoundNames: TypeAlias = tuple[str, str, Mapping[str, np.ndarray], list[str]]


class NamedState(NamedTuple):
    """Weights under a network's names.

    Attributes:
        state: arrays by name, with Linear weights as (in, out).
        origin: the naming scheme and the layout of Linear weights that were recognized.
        notices: unusual properties of the source.
        outside: names of entries of another network or a loss: without the prefix of this network's.
    """

    state: Mapping[str, np.ndarray]
    origin: str
    notices: list[str]
    outside: frozenset[str] = frozenset()


class _Parameters:
    """The parameters that a source has to have; a layer that is used at several places has one, and several names."""

    def __init__(self, targets: Mapping[str, paddle.Tensor], interface: Model) -> None:
        self.by_name = {name: id(tensor) for name, tensor in targets.items()}
        self.sizes = {id(tensor): math.prod(tensor.shape) for tensor in targets.values()}
        heads = tuple(f"{layer}." for layer in interface.classifier_layers)
        # Without the classifier, as one for other classes is usual.
        self.whole = self.count(name for name in targets if not name.startswith(heads)) or self.count(targets)

    def count(self, names: Iterable[str]) -> int:
        """Return the number of elements of the parameters with these names."""
        return sum(self.sizes[key] for key in {self.by_name[name] for name in names if name in self.by_name})


def list_targets(model: paddle.nn.Layer, state: Mapping[str, np.ndarray]) -> dict[str, paddle.Tensor]:
    """Return the tensors that a source has to have: factors of the model are new if the source has none."""
    targets, factors = model.state_dict(), low_rank.list_factors(model)
    if low_rank.has_factors(state):
        return targets
    return {name: tensor for name, tensor in targets.items() if name not in factors}


def name_for(model: paddle.nn.Layer, weights: SourceWeights) -> NamedState:
    """Return weights under the model's names, with Linear weights in its layout.

    Raises UserError if the source has several networks like the model, and none of them is plainly the one to use, or
    different values for one parameter.
    """
    interface, targets = as_model(model), list_targets(model, weights.state)
    parameters = _Parameters(targets, interface)
    state: Mapping[str, np.ndarray] = weights.state
    naming, is_own = "timm", is_run_checkpoint(weights.name)  # our models use timm's names
    outside: frozenset[str] = frozenset()
    notices: list[str] = []
    fits = all(name in state and state[name].shape == tuple(target.shape) for name, target in targets.items())
    if not fits:
        prefix, naming, state, others = _find_names(interface, targets, parameters, weights)
        if parameters.count(state) < _ENOUGH * parameters.whole:
            inside = _find_inside(interface, targets, parameters, weights)
            if inside is not None:
                around, (prefix, naming, state, others) = inside
                notices.append(f"names read with the prefix '{around}.' of the network")
        notices += [describe_choice(prefix, others)] if others else []
        outside = frozenset(name for name in weights.state if prefix and not name.startswith(f"{prefix}."))
    notices += [*interface.list_source_notices(naming, state), *interface.list_license_notices(naming)]
    if fits and is_own and weights.in_paddle_layout:
        return NamedState(state, "a checkpoint of this package", notices)

    layers = model.sublayers(include_self=True)
    matrices = {id(layer.weight) for layer in layers if isinstance(layer, paddle.nn.Linear)}
    linear = [name for name in targets if id(targets[name]) in matrices and name in state and state[name].ndim == 2]
    as_paddle = sum(state[name].shape == tuple(targets[name].shape) for name in linear)
    as_torch = sum(state[name].shape[::-1] == tuple(targets[name].shape) for name in linear)
    in_paddle_layout = is_in_paddle_layout(naming, weights)
    if as_paddle != as_torch:
        in_paddle_layout = as_paddle > as_torch
    if not in_paddle_layout:
        state = {**state, **{name: state[name].T for name in linear}}
    state = _fill_shared(state, targets, weights.name)
    origin = f"{naming} names, Linear weights {'(in, out)' if in_paddle_layout else '(out, in)'}"
    if naming == "timm" and is_own:
        origin = "a checkpoint of this package"
    return NamedState(state, origin, notices, outside)


def is_in_paddle_layout(naming: str, weights: SourceWeights) -> bool:
    """Return whether Linear weights are (in, out) if no shape decides it: by the naming scheme, then by file format."""
    return _IN_PADDLE_LAYOUT.get(naming, weights.in_paddle_layout)


def without_prefix(state: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Remove a prefix from the names that have it; names of other entries stay, where no other gets them."""
    begin = f"{prefix}." if prefix else ""
    inside = {name[len(begin) :]: value for name, value in state.items() if name.startswith(begin)}
    return {**{name: value for name, value in state.items() if not name.startswith(begin)}, **inside}


def list_prefixes(names: Iterable[str], ranking: tuple[str, ...]) -> list[str]:
    """List what may precede a network's names: nothing, then the words that many names begin with, by rank."""
    names = list(names)
    numbers = Counter(prefix for name in names for prefix in _begin(name)[1:])
    usual = [prefix for prefix, number in numbers.items() if number > 1 and number >= _SMALLEST_SHARE * len(names)]
    rank = {word: place for place, word in enumerate(ranking)}
    return ["", *sorted(usual, key=lambda prefix: [rank.get(word, len(rank)) for word in prefix.split(".")])]


def _begin(name: str) -> list[str]:
    """Return what may be a prefix of a name, from none on: up to ``DEPTH`` words."""
    words = name.split(".")
    return [".".join(words[:number]) for number in range(min(DEPTH + 1, len(words)))]


def _rename(
    interface: Model, targets: Mapping[str, Any], state: Mapping[str, np.ndarray]
) -> dict[str, dict[str, np.ndarray]]:
    """Return the state by assumed naming scheme, the network's own names first."""
    of_torch = partial(from_torch_layers, targets)
    states = rename_states(dict(state), {**interface.key_maps, "PyTorch": of_torch})  # the first counts on a tie
    return {naming: rename_norms_like(targets, renamed) for naming, renamed in states.items()}


def _find_names(
    interface: Model, targets: Mapping[str, Any], parameters: _Parameters, weights: SourceWeights
) -> _FoundNames:
    """Return the prefix and the naming scheme that fill the network best, the state under them, and equal prefixes.

    The network's own names count first, behind any prefix; foreign ones are only tried if these fill little.
    """
    ranking = PADDLE_RANKING if weights.in_paddle_layout else RANKING
    equal = _find_own_prefixes(parameters, weights.state, ranking)
    prefixes = equal[:1] or list_prefixes(weights.state, ranking)
    has_numbers = any(name[:1].isdigit() for name in targets)
    best, found = -1, ("", "timm", weights.state)
    tied: list[str] = []
    for prefix in prefixes:
        if not equal and not has_numbers and any(name.startswith(f"{prefix}.0.") for name in weights.state):
            continue  # what remains begins with the number of a layer
        for naming, state in _rename(interface, targets, without_prefix(weights.state, prefix)).items():
            filled = parameters.count(state)
            if filled > best:
                best, found, tied = filled, (prefix, naming, state), [prefix]
            elif filled == best and prefix not in tied:
                tied.append(prefix)
        if prefix == "" and best >= parameters.whole:
            break
    tied = equal or tied
    if len(tied) == 1 or best < _ENOUGH * parameters.whole:
        return *found, []
    if choose_by_ranking(tied, ranking) is None:
        raise several_error(weights.name, tied)
    chosen = f"{found[0]}." if found[0] else ""  # the first one, by rank
    return *found, [other for other in tied if not f"{other}.".startswith(chosen)]


def _find_inside(
    interface: Model, targets: Mapping[str, Any], parameters: _Parameters, weights: SourceWeights
) -> tuple[str, _FoundNames] | None:
    """Find the names of a part with most of the network, such as the only layer of a class that wraps it.

    Returns the part's name, and what ``_find_names`` finds for it; None if no part gets half of the network.
    """
    result: tuple[str, _FoundNames] | None = None
    most = _ENOUGH * parameters.whole
    for part in dict.fromkeys(begin for name in targets for begin in _begin(name)[1:]):
        inner = {name[len(part) + 1 :]: name for name in targets if name.startswith(f"{part}.")}
        if parameters.count(inner.values()) > most:  # else it cannot get more
            own = {name: targets[outer] for name, outer in inner.items()}
            prefix, naming, state, others = _find_names(interface, own, _Parameters(own, interface), weights)
            state = {inner.get(name, name): value for name, value in state.items()}
            if (filled := parameters.count(state)) > most:
                result, most = (part, (prefix, naming, state, others)), filled
    return result


def _find_own_prefixes(parameters: _Parameters, state: Mapping[str, Any], ranking: tuple[str, ...]) -> list[str]:
    """Return the prefixes behind which the network's own names fill most of it, the preferred one first.

    Empty if even the best fills less than half of it.
    """
    names: dict[str, list[str]] = {}
    for name in {**state, **from_torch_names(state)}:
        for prefix in _begin(name):
            names.setdefault(prefix, []).append(name[len(prefix) + 1 :] if prefix else name)
    filled = {prefix: parameters.count(own) for prefix, own in names.items()}
    best = max(filled.values(), default=0)
    if best == 0 or best < _ENOUGH * parameters.whole:
        return []
    equal = [prefix for prefix, number in filled.items() if number == best]
    chosen = choose_by_ranking(equal, ranking)
    return equal if chosen is None else [chosen, *(prefix for prefix in equal if prefix != chosen)]


def _fill_shared(
    state: Mapping[str, np.ndarray], targets: Mapping[str, paddle.Tensor], source: str
) -> Mapping[str, np.ndarray]:
    """Give each name of a shared parameter its value, which a file may have once. UserError if values differ."""
    result, groups = dict(state), Counter(map(id, targets.values()))
    first: dict[int, str] = {}
    for name in [name for name in targets if groups[id(targets[name])] > 1 and name in state]:
        before = first.setdefault(id(targets[name]), name)
        if not np.array_equal(state[name], state[before], equal_nan=True):
            raise UserError(
                f"{source} has different values for {shorten(before)} and {shorten(name)}, which are one parameter of "
                "this model: use weights of a network that shares it"
            )
    result.update({name: state[first[id(tensor)]] for name, tensor in targets.items() if id(tensor) in first})
    return result
