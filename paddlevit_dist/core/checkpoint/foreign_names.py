"""Names of weights in PyTorch and other projects: rename layers to the names here, and batch norms also back."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np


def rename_states(state: dict[str, Any], key_maps: Mapping[str, Callable]) -> dict[str, dict[str, Any]]:
    """Return the state with the model's names by assumed naming scheme: unchanged for timm, else by its key map."""
    return {"timm": state, **{naming: to_ours(state) for naming, to_ours in key_maps.items()}}


# Names of running statistics in PyTorch and in Paddle.
_STATISTICS = {"running_mean": "_mean", "running_var": "_variance"}
_COUNT = "num_batches_tracked"  # PyTorch only; not needed with a momentum


def from_torch_names(state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename batch norm statistics from PyTorch to Paddle, and drop PyTorch's number of batches."""
    return _rename({name: value for name, value in state.items() if name.split(".")[-1] != _COUNT}, _STATISTICS)


def to_torch_names(state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename batch norm statistics from Paddle to PyTorch."""
    return _rename(state, {ours: theirs for theirs, ours in _STATISTICS.items()})


def rename_norms_like(targets: Collection[str], state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename batch norms to the model's names: MinkowskiEngine's have an extra level ``bn.``, most others do not."""
    result = dict(state)
    for statistic in statistics_in(targets):
        layer = statistic.rpartition(".")[0]
        other = layer[: -len(".bn")] if layer.endswith(".bn") else f"{layer}.bn"
        for last in ("weight", "bias", *_STATISTICS.values()):
            if f"{layer}.{last}" in targets and f"{layer}.{last}" not in state and f"{other}.{last}" in result:
                result[f"{layer}.{last}"] = result.pop(f"{other}.{last}")
    return result


def from_torch_layers(targets: Collection[str], state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename what PyTorch's layers call otherwise than the model's, which ``targets`` names.

    These are batch norms' statistics, slopes of PReLUs, scales of instance norms, and the projections of attention,
    (3 * dim, dim) in one there and three here.
    """
    result = from_torch_names(state)
    for target in targets:
        layer, dot, last = target.rpartition(".")
        theirs, whole = f"{layer}{dot}weight", f"{layer.rpartition('.q_proj')[0]}.in_proj_{last}"
        if last in ("_weight", "scale") and target not in result and theirs in result and theirs not in targets:
            result[target] = result.pop(theirs)
        elif layer.endswith(".q_proj") and target not in result and whole in result and len(result[whole]) % 3 == 0:
            thirds = np.split(result.pop(whole), 3)
            result.update({target.replace(".q_proj", f".{part}_proj"): third for part, third in zip("qkv", thirds)})
    return result


def statistics_in(names: Collection[str]) -> list[str]:
    """Return the names that are running statistics of a batch norm."""
    return [name for name in names if name.rpartition(".")[2] in _STATISTICS.values()]


def _rename(state: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    result = {}
    for name, value in state.items():
        layer, dot, last = name.rpartition(".")
        result[layer + dot + names.get(last, last)] = value
    return result
