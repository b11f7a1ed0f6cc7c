"""From a name and options to a network."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, Mapping

from ...errors import UserError
from ...registry import closest


def build_variant(
    network: Callable[..., Any],
    variants: Mapping[str, Mapping[str, Any]],
    name: str,
    num_classes: int,
    image_size: Any,
    options: Mapping[str, Any],
):
    """``network(...)`` with the dimensions of ``variants[name]``, overridden by ``options``.

    Raises:
        UserError: an image size, which a network on points does not have, or an option that it does not take.
    """
    if image_size is not None:
        raise UserError(
            f"model '{name}' works on points and has no image size: leave out DATA.IMAGE_SIZE ({image_size})"
        )
    valid = [key for key in inspect.signature(network).parameters if key != "num_classes"]
    for key in options:
        if key not in valid:
            hint = closest(key, valid)
            raise UserError(f"model '{name}' has no option '{key}': {hint}valid options: {', '.join(sorted(valid))}")
    return network(num_classes=num_classes, **{**variants[name], **options})


def from_torch_names(state: Mapping[str, Any]) -> Dict[str, Any]:
    """A state dict of MinkowskiEngine or spconv under our names: they differ in the batch statistics only."""
    renamed = {}
    for name, value in state.items():
        prefix, dot, last = name.rpartition(".")
        if last != "num_batches_tracked":
            renamed[prefix + dot + _STATISTICS.get(last, last)] = value
    return renamed


_STATISTICS = {"running_mean": "_mean", "running_var": "_variance"}
