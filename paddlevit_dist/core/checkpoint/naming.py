"""Finds a network's parameters in weights: by its own names first, else behind prefixes and under foreign names."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

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

_OWN = "timm"  # naming scheme of our models
_Candidate = TypeVar("_Candidate")


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


class _Reading(NamedTuple):
    """How the names of a source are read for a network.

    Attributes:
        prefix: what precedes the network's names.
        naming: the naming scheme.
        state: arrays by the network's names; entries that are not of the network keep theirs.
        others: other prefixes that as much of the network has, and that were not chosen.
        part: the part of the network that the source's names are of; empty: the whole network.
    """

    prefix: str
    naming: str
    state: Mapping[str, np.ndarray]
    others: Sequence[str] = ()
    part: str = ""

    def describe(self) -> list[str]:
        """Return notices about what was chosen."""
        inside = [f"names read with the prefix '{self.part}.' of the network"] if self.part else []
        return [*inside, *([describe_choice(self.prefix, list(self.others))] if self.others else [])]


class _Network:
    """The parameters that a source has to have; a layer that is used at several places has one, and several names."""

    def __init__(self, targets: Mapping[str, paddle.Tensor], interface: Model) -> None:
        self.targets, self.interface = targets, interface
        self.by_name = {name: id(tensor) for name, tensor in targets.items()}
        self.sizes = {id(tensor): math.prod(tensor.shape) for tensor in targets.values()}
        heads = tuple(f"{layer}." for layer in interface.classifier_layers)
        # Without the classifier, as one for other classes is usual.
        self.whole = self.count(name for name in targets if not name.startswith(heads)) or self.count(targets)
        self.enough = _ENOUGH * self.whole

    def count(self, names: Iterable[str]) -> int:
        """Return the number of elements of the parameters with these names."""
        return sum(self.sizes[key] for key in {self.by_name[name] for name in names if name in self.by_name})

    def fits(self, state: Mapping[str, np.ndarray]) -> bool:
        """Return whether a state has all parameters by their own names, in their shapes."""
        return all(name in state and state[name].shape == tuple(tensor.shape) for name, tensor in self.targets.items())

    def converts_its_own(self, state: Mapping[str, np.ndarray]) -> bool:
        """Return whether a state under the network's names still has to be converted.

        It may have PyTorch's names or layout: a run may train a network of either. Networks of timm convert their own
        names themselves, such as positions for another image size.
        """
        shapes = [(state[name].shape, tuple(tensor.shape)) for name, tensor in self.targets.items() if name in state]
        is_transposed = any(theirs != ours and theirs == ours[::-1] for theirs, ours in shapes)
        return _OWN in self.interface.key_maps or is_transposed or from_torch_names(state).keys() != state.keys()

    def rename(self, state: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
        """Return a state by assumed naming scheme, the network's own names first."""
        of_torch = partial(from_torch_layers, self.targets)
        states = rename_states(dict(state), {**self.interface.key_maps, "PyTorch": of_torch})
        return {naming: rename_norms_like(self.targets, renamed) for naming, renamed in states.items()}


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
    network = _Network(list_targets(model, weights.state), as_model(model))
    is_whole, is_of_run = network.fits(weights.state), is_run_checkpoint(weights.name)
    reading = _Reading("", _OWN, weights.state) if is_whole else _read_names(network, weights, is_of_run)
    state, naming, begin = reading.state, reading.naming, f"{reading.prefix}." if reading.prefix else ""
    notices = [
        *reading.describe(),
        *network.interface.list_source_notices(naming, state),
        *network.interface.list_license_notices(naming),
    ]
    outside = frozenset(name for name in weights.state if not name.startswith(begin))
    is_own, in_paddle_layout = is_of_run and naming == _OWN, weights.in_paddle_layout
    if not (is_whole and is_own and in_paddle_layout):
        linear = _list_linear(model, network.targets, state)
        in_paddle_layout = _guess_paddle_layout(linear, network.targets, state, is_in_paddle_layout(naming, weights))
        if not in_paddle_layout:
            state = {**state, **{name: state[name].T for name in linear}}
        state = _fill_shared(state, network.targets, weights.name)
    origin = f"{naming} names, Linear weights {'(in, out)' if in_paddle_layout else '(out, in)'}"
    return NamedState(state, "a checkpoint of this package" if is_own else origin, notices, outside)


def _list_linear(
    model: paddle.nn.Layer, targets: Mapping[str, paddle.Tensor], state: Mapping[str, np.ndarray]
) -> list[str]:
    """List the parameters that are weights of Linear layers, and matrices in a state."""
    layers = model.sublayers(include_self=True)
    matrices = {id(layer.weight) for layer in layers if isinstance(layer, paddle.nn.Linear)}
    return [name for name in targets if id(targets[name]) in matrices and name in state and state[name].ndim == 2]


def _guess_paddle_layout(
    linear: Iterable[str], targets: Mapping[str, paddle.Tensor], state: Mapping[str, np.ndarray], otherwise: bool
) -> bool:
    """Return whether ``linear`` weights are (in, out), by their shapes; ``otherwise`` if these do not tell."""
    shapes = [(state[name].shape, tuple(targets[name].shape)) for name in linear]
    as_paddle = sum(theirs == ours for theirs, ours in shapes)
    as_torch = sum(theirs[::-1] == ours for theirs, ours in shapes)
    return otherwise if as_paddle == as_torch else as_paddle > as_torch


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


def choose_best(
    groups: Iterable[Iterable[_Candidate]], rate: Callable[[_Candidate], Any], is_enough: Callable[[_Candidate], bool]
) -> list[_Candidate]:
    """Return the best ways to read foreign names, several if they are equal, in their order.

    Groups behind one with a candidate that is enough are not made.
    """
    best: list[_Candidate] = []
    highest: Any = None
    is_found = False
    for group in groups:
        for candidate in group:
            rating = rate(candidate)
            if not best or rating > highest:
                best, highest = [candidate], rating
            elif rating == highest:
                best.append(candidate)
            is_found = is_found or is_enough(candidate)
        if is_found:
            break
    return best


def _read_names(network: _Network, weights: SourceWeights, is_of_run: bool) -> _Reading:
    """Read names for a network, or for the part of it with most of it, such as the only layer of a class that wraps it.

    The part is chosen only if the names of the whole network fill less than half of it.
    """
    best = _read_whole(network, weights, is_of_run)
    if network.count(best.state) >= network.enough:
        return best
    most = network.enough
    for part in dict.fromkeys(begin for name in network.targets for begin in _begin(name)[1:]):
        inner = {name[len(part) + 1 :]: name for name in network.targets if name.startswith(f"{part}.")}
        if network.count(inner.values()) > most:  # else it cannot get more
            own = _Network({name: network.targets[outer] for name, outer in inner.items()}, network.interface)
            reading = _read_whole(own, weights, is_of_run)
            state = {inner.get(name, name): value for name, value in reading.state.items()}
            if (filled := network.count(state)) > most:
                best, most = reading._replace(state=state, part=part), filled
    return best


def _read_whole(network: _Network, weights: SourceWeights, is_of_run: bool) -> _Reading:
    """Read names behind the prefix and in the naming scheme that fill the network best.

    The network's own names come first, behind any prefix; foreign ones are only tried if these fill little.
    """
    ranking = PADDLE_RANKING if weights.in_paddle_layout else RANKING
    equal = _find_own_prefixes(network, weights.state, ranking)
    state = without_prefix(weights.state, equal[0]) if equal else weights.state
    if equal and is_of_run and not network.converts_its_own(state):
        best, tied = _Reading(equal[0], _OWN, state), equal
    else:
        prefixes = equal[:1] or _list_foreign_prefixes(network, weights.state, ranking)
        best, tied = _rank_foreign(network, weights.state, prefixes)
        tied = equal or tied
    if len(tied) <= 1 or network.count(best.state) < network.enough:
        return best
    if choose_by_ranking(tied, ranking) is None:
        raise several_error(weights.name, tied)
    chosen = f"{best.prefix}." if best.prefix else ""  # the first one, by rank
    return best._replace(others=[other for other in tied if not f"{other}.".startswith(chosen)])


def _rank_foreign(
    network: _Network, state: Mapping[str, np.ndarray], prefixes: Iterable[str]
) -> tuple[_Reading, list[str]]:
    """Return the best reading behind one of the prefixes, and the prefixes of those that fill the network as much."""
    readings = choose_best(
        (
            [_Reading(prefix, naming, own) for naming, own in network.rename(without_prefix(state, prefix)).items()]
            for prefix in prefixes
        ),
        rate=lambda reading: network.count(reading.state),
        is_enough=lambda reading: not reading.prefix and network.count(reading.state) >= network.whole,
    )
    best = readings[0] if readings else _Reading("", _OWN, state)
    return best, list(dict.fromkeys(reading.prefix for reading in readings))


def _list_foreign_prefixes(network: _Network, names: Iterable[str], ranking: tuple[str, ...]) -> list[str]:
    """List what may precede a network's names: what remains does not begin with the number of a layer, but as ours."""
    names = list(names)
    prefixes = list_prefixes(names, ranking)
    if any(name[:1].isdigit() for name in network.targets):
        return prefixes
    return [prefix for prefix in prefixes if not any(name.startswith(f"{prefix}.0.") for name in names)]


def _find_own_prefixes(network: _Network, state: Mapping[str, Any], ranking: tuple[str, ...]) -> list[str]:
    """Return the prefixes behind which the network's own names fill most of it, the preferred one first.

    Empty if even the best fills less than half of it.
    """
    names: dict[str, list[str]] = {}
    for name in {**state, **from_torch_names(state)}:
        for prefix in _begin(name):
            names.setdefault(prefix, []).append(name[len(prefix) + 1 :] if prefix else name)
    filled = {prefix: network.count(own) for prefix, own in names.items()}
    best = max(filled.values(), default=0)
    if best == 0 or best < network.enough:
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
