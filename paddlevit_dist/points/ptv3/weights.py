"""Names of Pointcept's checkpoints and of the files of Sonata, Concerto and Utonia."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...core.checkpoint.foreign_names import from_torch_names, to_torch_names

_BACKBONE, _HEAD = "backbone.", "seg_head."
_PARTS = ("embedding.", "enc.", "dec.", _HEAD)
LEGACY_NOTICE = (
    "Pointcept's networks until version 1.5.1 and after it have the same names, but compute different results; this "
    "one computes as {} 1.5.1: set MODEL.NAME to ptv3_legacy for the older, which the published weights of Point "
    "Transformer V3 are, to ptv3 for the newer"
)
LICENSE_NOTICE = "the published weights of Sonata, Concerto and Utonia are for non-commercial use (CC-BY-NC 4.0)"


def from_pointcept(state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename a state dict of Pointcept: a convolution's ``weight`` (C_out, k, k, k, C_in) becomes a ``kernel``."""
    renamed = {name.removeprefix("module.").removeprefix(_BACKBONE): value for name, value in state.items()}
    for name, weight in list(renamed.items()):
        if np.ndim(weight) != 5:
            continue
        layer = name.removesuffix(".weight")
        # The first spatial axis runs fastest in a kernel.
        kernel = np.transpose(renamed.pop(name), (3, 2, 1, 4, 0))
        renamed[f"{layer}.kernel"] = kernel.reshape(-1, *kernel.shape[3:])
        if f"{layer}.bias" in renamed:
            renamed[f"{layer}.bias"] = np.reshape(renamed[f"{layer}.bias"], (1, -1))
    return from_torch_names(renamed)


def to_pointcept(state: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return a state with Linear weights (out, in), under Pointcept's names, and names of other networks."""
    others = [name for name in state if not name.startswith(_PARTS)]
    known = [name for name in state if name.startswith(_PARTS)]
    named = {name if name.startswith(_HEAD) else f"{_BACKBONE}{name}": state[name] for name in known}
    for name, kernel in list(named.items()):
        if not name.endswith(".kernel"):
            continue
        layer, side = name.removesuffix(".kernel"), round(len(kernel) ** (1 / 3))
        weight = named.pop(name).reshape(side, side, side, *kernel.shape[1:])
        named[f"{layer}.weight"] = np.transpose(weight, (4, 2, 1, 0, 3))
        if f"{layer}.bias" in named:
            named[f"{layer}.bias"] = named[f"{layer}.bias"].reshape(-1)
    return to_torch_names(named), others
