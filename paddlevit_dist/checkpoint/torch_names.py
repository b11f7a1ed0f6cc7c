"""What PyTorch's and Paddle's batch norms call their running statistics in a state."""

from __future__ import annotations

from typing import Any, Collection, Dict, List, Mapping

_STATISTICS = {"running_mean": "_mean", "running_var": "_variance"}
_COUNT = "num_batches_tracked"  # of PyTorch's alone, which momentum makes up for


def from_torch_names(state: Mapping[str, Any]) -> Dict[str, Any]:
    """The state with Paddle's names for statistics, and without PyTorch's number of batches."""
    return _renamed({name: value for name, value in state.items() if name.split(".")[-1] != _COUNT}, _STATISTICS)


def to_torch_names(state: Mapping[str, Any]) -> Dict[str, Any]:
    """The state with PyTorch's names for statistics."""
    return _renamed(state, {ours: theirs for theirs, ours in _STATISTICS.items()})


def with_norms_named_as(targets: Collection[str], state: Mapping[str, Any]) -> Dict[str, Any]:
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


def statistics_in(names: Collection[str]) -> List[str]:
    """The names that are running statistics of a batch norm."""
    return [name for name in names if name.rpartition(".")[2] in _STATISTICS.values()]


def _renamed(state: Mapping[str, Any], names: Mapping[str, str]) -> Dict[str, Any]:
    result = {}
    for name, value in state.items():
        layer, dot, last = name.rpartition(".")
        result[layer + dot + names.get(last, last)] = value
    return result
