"""Functions that convert a state with another project's parameter names (timm's are ours), by each family's rules."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...core.checkpoint.foreign_names import from_torch_names
from ...core.tasks.model import KeyMap

BACKBONE = "backbone."  # before our names of a backbone's parameters

Rule = tuple[str, str | Callable[["re.Match[str]"], str]]


def rename(state: Mapping[str, Any], rules: Sequence[Rule]) -> dict[str, Any]:
    """Rename entries by the first (regular expression, replacement) that matches anywhere in a name, if any does."""
    result = {}
    for name, value in state.items():
        for pattern, replacement in rules:
            changed, count = re.subn(pattern, replacement, name)
            if count:
                name = changed
                break
        result[name] = value
    return result


def without(state: Mapping[str, Any], endings: tuple[str, ...]) -> dict[str, Any]:
    """Return the state without entries that can be computed, such as indices that others store as buffers."""
    return {name: value for name, value in state.items() if not name.endswith(endings)}


def join_projections(state: Mapping[str, Any], parts: tuple[str, ...], whole: str) -> dict[str, Any]:
    """Merge the separate projections ``parts``, such as (query, key, value), into the layer ``whole``, such as qkv.

    They are joined along the outputs, the first axis of an (out, in) weight and of a bias. Parts that are incomplete or
    do not fit stay separate.
    """
    result = dict(state)
    first = f".{parts[0]}."
    for name in state:
        before, separator, after = name.rpartition(first)
        names = [f"{before}.{piece}.{after}" for piece in parts]
        if not separator or not all(piece in state for piece in names):
            continue
        arrays = [state[piece] for piece in names]
        if all(array.ndim > 0 and array.shape[1:] == arrays[0].shape[1:] for array in arrays):
            result[f"{before}.{whole}.{after}"] = np.concatenate(arrays)
            for part in names:
                del result[part]
    return result


def split_projections(state: Mapping[str, Any]) -> dict[str, Any]:
    """Split each ``x.in_proj_weight`` and ``_bias`` into ``x.q_proj``, ``x.k_proj`` and ``x.v_proj``.

    The parts are thirds of the outputs, the longer axis of a weight. Tensors that have no thirds stay.
    """
    result = {}
    for name, value in state.items():
        match = re.fullmatch(r"(.*)\.in_proj_(weight|bias)", name)
        if not match or value.ndim == 0 or max(value.shape) % 3:
            result[name] = value
            continue
        thirds = np.split(value, 3, axis=int(np.argmax(value.shape)))
        result.update({f"{match[1]}.{part}_proj.{match[2]}": third for part, third in zip("qkv", thirds)})
    return result


def without_jax_prefix(state: Mapping[str, Any]) -> dict[str, Any]:
    """Remove what training states of JAX put before names: ``opt/target/`` or ``params/``."""
    return {re.sub(r"^(?:opt/target/|params/)", "", name): value for name, value in state.items()}


def jax_layout(state: Mapping[str, Any]) -> dict[str, Any]:
    """``kernel`` and ``scale`` called ``weight``; convolutions from (height, width, in, out) to (out, in, ...)."""
    result = {}
    for name, value in state.items():
        name = name.replace("/", ".") if name.startswith("blocks.") else name
        name = re.sub(r"\.(?:kernel|scale)$", ".weight", name)
        is_convolution = name.endswith("proj.weight") and value.ndim == 4
        result[name] = value.transpose(3, 2, 0, 1) if is_convolution else value
    return result


def join_jax_heads(state: dict[str, Any], attention: str) -> None:
    """Join query, key and value (dim, heads, head dim) to qkv (dim, 3 heads head dim), and flatten the output's heads.

    Other shapes are left unchanged.
    """
    parts = [f"{attention}.{piece}" for piece in ("query", "key", "value")]
    for kind, ndim in (("weight", 3), ("bias", 2)):
        arrays: list[Any] = [state.get(f"{piece}.{kind}") for piece in parts]
        if any(array is None or array.ndim != ndim or array.shape != arrays[0].shape for array in arrays):
            continue
        flat = [array.reshape(array.shape[:-2] + (-1,)) for array in arrays]
        state[f"{attention}.qkv.{kind}"] = np.concatenate(flat, axis=-1)
        for part in parts:
            del state[f"{part}.{kind}"]
    output = state.get(f"{attention}.proj.weight")
    if output is not None and output.ndim == 3:
        state[f"{attention}.proj.weight"] = output.reshape(-1, output.shape[-1])


def rename_network(to_ours: KeyMap, prefix: str, rules: Sequence[Rule], state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the parameters of a whole network: a backbone and the heads on it.

    ``rules`` of ``rename`` come first, for all names. ``to_ours`` then maps the names that follow ``prefix``, the
    backbone's.
    """
    state = rename(from_torch_names(state), rules)
    backbone_state = {name[len(prefix) :]: value for name, value in state.items() if name.startswith(prefix)}
    others = {name: value for name, value in state.items() if not name.startswith(prefix)}
    return {**{BACKBONE + name: value for name, value in to_ours(backbone_state).items()}, **others}
