"""Finds the model family of weights by their names, and gives weights of any origin timm's names for ``convert``."""

import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle

from ..registry.lookup import annotation_type, find_package, require_derived, resolve
from ..registry.manifest import BOX_LABELS, CLASS_LABELS, MASK_LABELS
from ..registry.names import REGISTRY
from ..runtime.errors import UserError
from ..tasks.model import Model, as_model
from ..tasks.model_factory import create_model, variant_options
from .class_rows import keep_named_rows
from .entries import PADDLE_RANKING, RANKING
from .foreign_names import rename_states
from .load import find_pretraining_part
from .low_rank import is_factor
from .naming import choose_best, is_in_paddle_layout, list_prefixes
from .weights import SourceWeights

CONVERTED = (CLASS_LABELS, MASK_LABELS, BOX_LABELS)  # annotations that networks of images learn
_MIN_KNOWN_NAMES = 0.5  # fraction of a source's names that its model family has to contain
_MIN_KNOWN_HEAD_NAMES = 0.2  # of those outside the backbone, which detectors have, too; some have auxiliary heads
_BACKBONE = "backbone."


class ModelFamily(NamedTuple):
    """Parameter names of a model family, with ``#`` for every number so that depth and width do not matter."""

    name: str  # the module of the family
    key_maps: Mapping[str, Any]  # naming scheme -> function from its names to ours
    list_license_notices: Callable[[str], list[str]]  # of a naming scheme
    names: Mapping[str, set[int]]  # of all parameters, and the numbers of axes that those with a name have
    linear: set[str]  # names of Linear weights
    layers: Mapping[str, bool]  # whether a parameter of the network that these are from, by its exact name, is one
    keep_named: Callable[..., Mapping[str, np.ndarray]]  # ``class_rows.keep_named_rows`` of the network

    def is_linear(self, name: str) -> bool:
        """Return whether a parameter is the weight of a Linear layer."""
        return self.layers.get(name, mask_numbers(name) in self.linear)


class ConvertedWeights(NamedTuple):
    """Weights under timm's names with Linear weights as (in, out), and their origin."""

    state: dict[str, np.ndarray]
    linear: set[str]
    origin: str
    unknown: list[str]
    source: str
    notices: tuple[str, ...] = ()


class _Candidate(NamedTuple):
    """How weights behind a prefix are read by a family's names, in one naming scheme."""

    family: ModelFamily
    naming: str
    prefix: str
    state: dict[str, np.ndarray]
    inside: int  # number of entries behind the prefix
    share: float  # of the entries, but those that only pretraining needs, whose names are the family's
    fitting: int  # number of arrays with the number of axes that the family's has

    def rank(self) -> tuple[float, float, int]:
        """Return what the best candidate has most of."""
        return round(self.share * self.inside, 3), self.share, self.fitting

    def is_whole(self) -> bool:
        """Return whether no other family can have more of the entries behind the prefix."""
        return self.share == 1 and self.fitting == len(self.state)


def with_our_names(weights: SourceWeights, own: tuple[str, ...] = (), recorded: str | None = None) -> ConvertedWeights:
    """Return the weights with timm's names and Paddle's layout; users' models ``own`` keep their names.

    ``recorded`` is the model that a record of the weights names. The prefix, family and naming scheme with the most
    matching names are chosen, among equals the first with the most arrays whose number of axes fits. All Linear weights
    are transposed or none: a non-square weight shows its layout by its bias, whose length is the number of outputs.
    Raises UserError: no family contains at least half of the names, and a fifth of those outside the backbone.
    """
    given = {name: value for name, value in weights.state.items() if value.size}  # others have nothing to convert
    ranking = PADDLE_RANKING if weights.in_paddle_layout else RANKING
    best = _find_best(given, ranking, list_families(own, recorded))
    family, naming, state = best.family, best.naming, best.state
    require_whole(weights.name, state, family.names)
    _require_known(best, weights.name)
    linear = {name for name in state if family.is_linear(name) and state[name].ndim == 2}
    is_paddle_layout = guess_paddle_layout(state, linear, is_in_paddle_layout(naming, weights))
    if not is_paddle_layout:
        state = {name: value.T if name in linear else value for name, value in state.items()}
    state = dict(family.keep_named(weights.class_names, state))
    origin = f"{family.name}, {naming} names, Linear weights {'(in, out)' if is_paddle_layout else '(out, in)'}"
    unknown = [name for name in state if mask_numbers(name) not in family.names]
    others = len(given) - best.inside
    beside = [f"only '{best.prefix}' was converted, {others} other entries are not"] if others else []
    beside += family.list_license_notices(naming)
    return ConvertedWeights(state, linear, origin, unknown, weights.name, (*weights.notices, *beside))


def _require_known(best: _Candidate, source: str) -> None:
    """Raise UserError if the closest family lacks too many names of the weights."""
    head = [mask_numbers(name) in best.family.names for name in best.state if not name.startswith(_BACKBONE)]
    head_share = float(np.mean(head)) if head else 1.0
    if best.share < _MIN_KNOWN_NAMES:
        which, known = "", best.share
    elif head_share < _MIN_KNOWN_HEAD_NAMES:
        which, known = " outside the backbone", head_share
    else:
        return
    raise UserError(
        f"convert: the model family of {source} is unknown: only {100 * known:.0f} % of its names{which} are "
        f"names of {best.family.name}, the closest; classifiers, segmenters and detectors of images and networks of "
        "points are known, and your own with -import=MODULE; -part=NAME converts only what begins with NAME"
    )


def _find_best(
    given: dict[str, np.ndarray], ranking: tuple[str, ...], families: Sequence[tuple[str, str]]
) -> _Candidate:
    """Return the best candidate: of the likely families if one of them has every name, else of all.

    No family is built behind one that has every name.
    """
    build, parts = functools.cache(build_family), list(_list_parts(given, ranking))

    def list_groups(is_guess: bool) -> Iterator[list[_Candidate]]:
        for prefix, inside in parts:
            if is_guess and _BACKBONE in f"{prefix}.":
                continue  # the backbone of a network is a network itself only if no other has its names
            known = 0.0
            for each in families:
                if is_guess and not _is_likely(require_derived(resolve("model", each[1]), Model), inside):
                    continue
                family = build(*each)
                states = rename_states(inside, family.key_maps)
                rated = [_rate(family, naming, prefix, state, len(inside)) for naming, state in states.items()]
                known = max(known, *(candidate.share for candidate in rated))
                yield rated
            if known == 1:
                return

    best = choose_best(list_groups(is_guess=True), _Candidate.rank, _Candidate.is_whole)
    if not best or not best[0].is_whole():
        best = choose_best(list_groups(is_guess=False), _Candidate.rank, _Candidate.is_whole)
    return best[0]  # the first on a tie


def _is_likely(kind: type[Model], inside: dict[str, np.ndarray]) -> bool:
    """Return whether weights have the telling name of a family, by its own name or one of another project's."""
    if not kind.telling_name:
        return True
    states = rename_states(inside, kind.key_maps).values()
    return any(mask_numbers(name) == kind.telling_name for state in states for name in state)


def _list_parts(given: dict[str, np.ndarray], ranking: tuple[str, ...]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """List the prefixes of a network's names, each with the entries behind it.

    Heads on a backbone are not dropped, and a network is not one block of a list.
    """
    for prefix in list_prefixes(given, ranking):
        begin = f"{prefix}." if prefix else ""
        inside = {name[len(begin) :]: value for name, value in given.items() if name.startswith(begin)}
        is_piece = begin.endswith(_BACKBONE) or prefix.rpartition(".")[2].isdigit()
        if not is_piece or len(inside) == len(given):
            yield prefix, inside


def _rate(family: ModelFamily, naming: str, prefix: str, state: dict[str, np.ndarray], inside: int) -> _Candidate:
    """Count the names in ``state`` that are the family's."""
    is_known = {name: mask_numbers(name) in family.names for name in state}
    number = sum(known or not find_pretraining_part(name) for name, known in is_known.items())
    fitting = sum(value.ndim in family.names.get(mask_numbers(name), ()) for name, value in state.items())
    return _Candidate(family, naming, prefix, state, inside, sum(is_known.values()) / max(number, 1), fitting)


def require_whole(source: str, names: Iterable[str], known: Collection[str] = ()) -> None:
    """Raise UserError if there are factors of TRAIN.LORA; ``known`` are masked names of a network's own parameters."""
    if any(is_factor(name) and mask_numbers(name) not in known for name in names):
        raise UserError(
            f"convert: {source} has only what TRAIN.LORA changed, and no about.yaml that names its base: give the "
            "run's folder"
        )


def guess_paddle_layout(state: Mapping[str, np.ndarray], linear: set[str], otherwise: bool) -> bool:
    """Return whether ``linear`` weights are (in, out), by the lengths of biases; ``otherwise`` if these do not tell."""
    votes = 0
    for name in linear:
        bias = state.get(name[: -len("weight")] + "bias")
        rows, columns = state[name].shape
        if bias is not None and bias.ndim == 1 and rows != columns:
            votes += (columns == len(bias)) - (rows == len(bias))
    return votes > 0 if votes else otherwise


def list_families(own: tuple[str, ...] = (), recorded: str | None = None) -> list[tuple[str, str]]:
    """List families by name, each with a model to build: users' models ``own``, then the ``recorded`` model's.

    The others follow, one for each class of models and each backbone or kind of it, with its first registered name.
    """
    first = {(name, ""): name for name in own}
    for name, target in ([(recorded, REGISTRY.models[recorded])] if recorded else []) + [*REGISTRY.models.items()]:
        if annotation_type("model", name) in CONVERTED or find_package("model", name) == "points":
            chosen = variant_options(name)
            kind = chosen.get("backbone", chosen.get("family", ""))
            first.setdefault((str(target), kind.partition("_")[0]), name)
    return [(target.partition(":")[0].rpartition(".")[2] or name, name) for (target, _), name in first.items()]


def build_family(family: str, name: str) -> ModelFamily:
    """Build a model without values, and return what its family has."""
    with paddle.LazyGuard():  # shapes only
        model = create_model(name)
    weights = {id(layer.weight) for layer in model.sublayers() if isinstance(layer, paddle.nn.Linear)}
    layers = {parameter: id(tensor) in weights for parameter, tensor in model.state_dict().items()}
    linear = {mask_numbers(parameter) for parameter, is_linear in layers.items() if is_linear}
    interface = as_model(model)
    names: dict[str, set[int]] = {}
    for parameter, tensor in model.state_dict().items():
        names.setdefault(mask_numbers(parameter), set()).add(len(tensor.shape))
    facts = interface.key_maps, interface.list_license_notices
    return ModelFamily(family, *facts, names, linear, layers, functools.partial(keep_named_rows, interface))


def mask_numbers(name: str) -> str:
    """Return a parameter's name with ``#`` for each number."""
    return re.sub(r"\d+", "#", name)
