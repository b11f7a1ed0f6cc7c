"""What PyTorch's and Paddle's batch norms call their running statistics in a state."""

from __future__ import annotations

from typing import Any, Dict, Mapping

_STATISTICS = {"running_mean": "_mean", "running_var": "_variance"}
_COUNT = "num_batches_tracked"  # of PyTorch's alone, which momentum makes up for


def from_torch_names(state: Mapping[str, Any]) -> Dict[str, Any]:
    """The state with Paddle's names for statistics, and without PyTorch's number of batches."""
    return _renamed({name: value for name, value in state.items() if name.split(".")[-1] != _COUNT}, _STATISTICS)


def to_torch_names(state: Mapping[str, Any]) -> Dict[str, Any]:
    """The state with PyTorch's names for statistics."""
    return _renamed(state, {ours: theirs for theirs, ours in _STATISTICS.items()})


def _renamed(state: Mapping[str, Any], names: Mapping[str, str]) -> Dict[str, Any]:
    result = {}
    for name, value in state.items():
        layer, dot, last = name.rpartition(".")
        result[layer + dot + names.get(last, last)] = value
    return result
