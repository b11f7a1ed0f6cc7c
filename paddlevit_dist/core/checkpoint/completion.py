"""Completes checkpoints of TRAIN.LORA from their base, see ``low_rank``, for a model."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import paddle

from ..runtime.errors import UserError
from ..runtime.printing import shorten
from . import low_rank
from .low_rank import LowRankBase
from .weights import SourceWeights

ReadWhole = Callable[[str, str | None], tuple[SourceWeights, Mapping[str, np.ndarray]]]


def complete(
    model: paddle.nn.Layer, weights: SourceWeights, read: ReadWhole, keep: bool
) -> tuple[SourceWeights, LowRankBase]:
    """Return a low-rank checkpoint with all that it leaves to its base, by the model's names, and the base.

    ``read`` returns whole weights of a source and its part, also in the model's names and layout. ``keep`` the factors
    for a model that has them, or merge them into the matrices. Raises UserError if the base cannot be read or is
    another one, or the factors do not fit the model.
    """
    file, held, record = weights.name, weights.state, low_rank.read_record(weights.name)
    source, part, scale = record["source"], record["part"], float(record["scale"])
    try:
        own, state = read(source, part)
    except UserError as error:
        raise UserError(f"{file} holds only what TRAIN.LORA changed, and its base cannot be read: {error}") from error
    used = state.keys() - set(record["unused"])
    base = describe_base(source, part, own, state, used)
    low_rank.require_base(file, record, base, held)
    whole, layers = {**{key: state[key] for key in used}, **held}, dict(model.named_sublayers())
    changed = low_rank.list_layers(held)
    for name in changed:
        layer = layers.get(name)
        matrix, first, second = (whole.get(f"{name}.{last}") for last in ("weight", *low_rank.FACTORS))
        if layer is None or matrix is None or first is None or second is None:
            raise UserError(f"{file} has low-rank matrices for the layer {shorten(name)}, which this model lacks")
        if not keep:
            is_transposed = not isinstance(layer, paddle.nn.Linear)  # layers of bridges have PyTorch's layout
            whole[f"{name}.weight"] = low_rank.merge(matrix, (first, second), scale, is_transposed)
        elif getattr(layer, "lora_scale", scale) != scale:
            raise UserError(
                f"{file} was trained with {scale:g} as TRAIN.LORA.ALPHA / RANK, and this run has {layer.lora_scale:g}: "
                "set both as there, or start a new run from it with -pretrained"
            )
    if not keep:
        whole = {key: value for key, value in whole.items() if not low_rank.is_factor(key)}
    notice = f"matrices of low rank for {len(changed)} layers of {source}"
    return SourceWeights(file, whole, True, (*weights.notices, notice)), base


def describe_base(
    source: str, part: str | None, weights: SourceWeights, state: Mapping[str, np.ndarray], names: Iterable[str]
) -> LowRankBase:
    """Describe the ``names`` of whole ``weights``, which are ``state`` in the model's names and layout.

    Of arrays that were resized on the way, the stored ones are described: devices may round the new ones differently.
    """
    digests = {}
    for name in names:
        raw = weights.state.get(name, state[name])
        is_resized = sorted(raw.shape) != sorted(state[name].shape)
        digests[name] = low_rank.digest(raw if is_resized else state[name])
    unused = sorted(state.keys() - digests.keys())
    return LowRankBase(source, part, digests, unused)
