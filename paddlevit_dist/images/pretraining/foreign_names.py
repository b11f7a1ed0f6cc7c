"""Names of transformers for weights of a ViT and of its pretraining, in the networks that it has for them."""

import math
import re
from collections.abc import Mapping

import numpy as np

from ...core.runtime.errors import UserError
from .masked_autoencoder.masks import sine_cosine_table

_DECODER, _HEAD, _PRETRAINING_HEAD = "pretraining_decoder.", "head.", "pretraining_head."
_PARTS = ("query", "key", "value")
_TOKENS = (
    (r"^cls_token$", "embeddings.cls_token"),
    (r"^pos_embed$", "embeddings.position_embeddings"),
    (r"^patch_embed\.proj\.", "embeddings.patch_embeddings.projection."),
    (r"^norm\.", "layernorm."),
)
_BLOCK = (
    (r"^norm1\.", "layernorm_before."),
    (r"^norm2\.", "layernorm_after."),
    (r"^attn\.proj\.", "attention.output.dense."),
    (r"^attn\.(query|key|value)\.", r"attention.attention.\1."),
    (r"^mlp\.fc1\.", "intermediate.dense."),
    (r"^mlp\.fc2\.", "output.dense."),
)


def name_like_transformers(state: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Rename the weights of a ViT, with Linear weights (out, in); also return the names that have no place there.

    With a decoder they are ViTMAEForPreTraining's, and the fixed table of the decoder's positions is added; with a
    classifier ViTForImageClassification's; else ViTModel's. A classifier next to a decoder, and the head of
    self-distillation, have no place.

    Raises:
        UserError: transformers' ViT lacks one of these parameters, or the patches are not a square.
    """
    decoder = {name.removeprefix(_DECODER): value for name, value in state.items() if name.startswith(_DECODER)}
    classifier = {} if decoder else {name: value for name, value in state.items() if name.startswith(_HEAD)}
    prefix = "vit." if decoder or classifier else ""
    result = {name.replace(_HEAD, "classifier.", 1): value for name, value in classifier.items()}
    for name, value in _split_attention(state).items():
        if name.startswith((_HEAD, _PRETRAINING_HEAD, _DECODER)):
            continue
        match = re.fullmatch(r"blocks\.(\d+)\.(.+)", name)
        new = _rename(match[2], _BLOCK) if match else _rename(name, _TOKENS)
        if new is None:
            raise UserError(f"convert: transformers' ViT has no place for {name}: write timm's names")
        result[f"{prefix}encoder.layer.{match[1]}.{new}" if match else prefix + new] = value
    if decoder:
        result.update(_name_decoder(decoder, state["pos_embed"].shape[1] - 1))
    return result, [name for name in state if name.startswith((_HEAD, _PRETRAINING_HEAD)) and name not in classifier]


def _name_decoder(state: Mapping[str, np.ndarray], patches: int) -> dict[str, np.ndarray]:
    side = math.isqrt(patches)
    if side * side != patches:
        raise UserError(
            f"convert: transformers' masked autoencoder takes square images, but there are {patches} patches"
        )
    width = state["mask_token"].shape[-1]
    table = sine_cosine_table(width, side, side, 1)[None]
    result = {"decoder.mask_token": state["mask_token"], "decoder.decoder_pos_embed": table}
    for name, value in _split_attention(state).items():
        match = re.fullmatch(r"blocks\.(\d+)\.(.+)", name)
        if match:
            result[f"decoder.decoder_layers.{match[1]}.{_rename(match[2], _BLOCK)}"] = value
        elif name != "mask_token":
            result[f"decoder.decoder_{name}"] = value
    return result


def _split_attention(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Split the joined projections of queries, keys and values, whose outputs are the first axis."""
    result = {}
    for name, value in state.items():
        before, joined, after = name.partition(".qkv.")
        if joined:
            result.update({f"{before}.{part}.{after}": each for part, each in zip(_PARTS, np.split(value, 3))})
        else:
            result[name] = value
    return result


def _rename(name: str, rules: tuple[tuple[str, str], ...]) -> str | None:
    """Rename by the first rule that fits; None: none does."""
    return next((re.sub(pattern, new, name) for pattern, new in rules if re.search(pattern, name)), None)
