"""Tools for reading other people's names of parameters."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, Mapping, Sequence, Tuple, Union

import numpy as np

Rule = Tuple[str, Union[str, Callable[["re.Match[str]"], str]]]


def renamed(state: Mapping[str, Any], rules: Sequence[Rule]) -> Dict[str, Any]:
    """The state under other names.

    Args:
        rules: (regular expression, replacement): the first that is found in a name changes it; a name that none is
            found in stays as it is.
    """
    return {_rename(name, rules): value for name, value in state.items()}


def without(state: Mapping[str, Any], endings: Tuple[str, ...]) -> Dict[str, Any]:
    """The state without what can be computed, such as indices that others store as buffers."""
    return {name: value for name, value in state.items() if not name.endswith(endings)}


def joined(state: Mapping[str, Any], parts: Tuple[str, ...], whole: str) -> Dict[str, Any]:
    """The state with separate projections made one.

    ``x.query.weight``, ``x.key.weight`` and ``x.value.weight`` become ``x.qkv.weight``, one below the other along the
    outputs, the first axis of an (out, in) weight and of a bias. Parts that are incomplete or do not fit stay apart.

    Args:
        parts: layers' names in their order, such as ("query", "key", "value").
        whole: name of the joint layer.
    """
    result = dict(state)
    first = f".{parts[0]}."
    for name in state:
        before, found, after = name.rpartition(first)
        names = [f"{before}.{part}.{after}" for part in parts]
        if not found or not all(part in state for part in names):
            continue
        arrays = [state[part] for part in names]
        if all(array.ndim > 0 and array.shape[1:] == arrays[0].shape[1:] for array in arrays):
            result[f"{before}.{whole}.{after}"] = np.concatenate(arrays)
            for part in names:
                del result[part]
    return result


def _rename(name: str, rules: Sequence[Rule]) -> str:
    for pattern, replacement in rules:
        changed, found = re.subn(pattern, replacement, name)
        if found:
            return changed
    return name
