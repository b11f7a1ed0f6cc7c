"""Weights that are published as differences to the backbone of another file, made whole."""

import re
from collections.abc import Mapping

import numpy as np

from ..runtime.errors import UserError
from ..runtime.printing import shorten

_BACKBONE = "backbone."
_ZERO = re.compile(r"\.(?:q|v)_bias$")  # files of a backbone lack these where they are 0


def add_backbone(
    differences: Mapping[str, np.ndarray], base: Mapping[str, np.ndarray], source: str, base_source: str
) -> dict[str, np.ndarray]:
    """Add the weights ``base`` of a backbone to the ones below ``backbone.``, float32; others stay unchanged.

    Names are this package's, with Linear weights in one layout.

    Raises:
        UserError: there is no backbone, or a weight of it is not in ``base``, or has another shape there.
    """
    names = [name for name in differences if name.startswith(_BACKBONE)]
    if not names:
        raise UserError(f"convert: {source} has no backbone, to which -base={base_source} could be added")
    own = {name.removeprefix(_BACKBONE): value for name, value in base.items()}
    whole = dict(differences)
    for name in names:
        value = own.get(name.removeprefix(_BACKBONE))
        if value is None and _ZERO.search(name):
            continue
        if value is None or value.shape != differences[name].shape:
            found = "is not there" if value is None else f"has shape {value.shape}, not {differences[name].shape}"
            raise UserError(
                f"convert: -base={base_source} is not the backbone of {source}: {shorten(name)} {found}; name the file "
                "that the differences were published for"
            )
        whole[name] = (value.astype(np.float64) + differences[name].astype(np.float64)).astype(np.float32)
    return whole
