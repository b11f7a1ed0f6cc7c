"""Names that others give EoMT's parameters: transformers, and the authors (tue-mps/eomt), whose backbone has timm's."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...core.checkpoint.foreign_names import from_torch_names
from ...core.tasks.model import KeyMap
from ..models.foundation_names import FOUNDATION, OF_HUGGING_FACE
from ..models.key_names import BACKBONE, Rule, rename

_PLACES = ("criterion.empty_weight", "pixel_mean", "pixel_std")  # no parameters
#: how likely queries see their masks only, for each block, also in an evaluation of transformers
MASKED = "attn_mask_probs"
_TABLE = "embeddings.position_embeddings.weight"
_HEADS: tuple[Rule, ...] = (
    (r"^class_predictor\.", "class_head."),
    (r"^upscale_block\.block\.(\d+)\.layernorm2d\.", r"upscale.\1.norm."),
    (r"^upscale_block\.block\.", "upscale."),
    (r"^q\.weight$", "query.weight"),
    (r"^mask_head\.0\.", "mask_head.fc1."),
    (r"^mask_head\.2\.", "mask_head.fc2."),
    (r"^mask_head\.4\.", "mask_head.fc3."),
)
_OUR_HEADS = ("class_head.", "upscale.", "query.", "mask_head.", MASKED)
_ENCODER = re.compile(r"^(?:encoder\.)?backbone\.")
# The authors' DINOv3 is transformers', whose embeddings they call patch_embed, and layers blocks.
_DINOV3: tuple[Rule, ...] = ((r"^patch_embed\.", "embeddings."), (r"^blocks\.", "layers."))


def _split(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the heads under our names, with ``MASKED`` unless it is zero, and the rest."""
    plain = {re.sub(r"^(?:module\.)?network\.", "", name): value for name, value in state.items()}
    if not np.any(plain.get(MASKED, 0)):
        plain.pop(MASKED, None)
    named = rename({name: plain[name] for name in plain if not name.endswith(_PLACES)}, _HEADS)
    heads = {name: value for name, value in named.items() if name.startswith(_OUR_HEADS)}
    return from_torch_names(heads), {name: value for name, value in named.items() if name not in heads}


def _join(heads: Mapping[str, Any], backbone: Mapping[str, Any]) -> dict[str, Any]:
    return {**{BACKBONE + name: value for name, value in from_torch_names(backbone).items()}, **heads}


def _from_huggingface(state: Mapping[str, Any]) -> dict[str, Any]:
    heads, backbone = _split(state)
    return _join(heads, _rename_huggingface(backbone))


def _rename_huggingface(backbone: Mapping[str, Any]) -> dict[str, Any]:
    ours = dict(FOUNDATION[OF_HUGGING_FACE[1]](backbone))
    for name in [key for key in ours if ".mlp.fc1_g." in key] if _TABLE in backbone else ():
        values = name.replace(".fc1_g.", ".fc1_x.")
        if values in ours:  # DINOv2's gate and values are one product
            ours[name.replace(".fc1_g.", ".fc1.")] = np.concatenate([ours.pop(name), ours.pop(values)])
    return ours


def _from_authors(state: Mapping[str, Any]) -> dict[str, Any]:
    heads, others = _split(state)
    backbone = {_ENCODER.sub("", name): value for name, value in others.items()}
    if any(name.startswith("patch_embed.patch_embeddings.") for name in backbone):
        return _join(heads, _rename_huggingface(rename(backbone, _DINOV3)))
    return _join(heads, FOUNDATION["timm's EVA and DINO"](backbone))


EOMT: dict[str, KeyMap] = {"Hugging Face": _from_huggingface, "the authors'": _from_authors}
