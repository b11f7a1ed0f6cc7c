"""Names of RF-DETR's authors (``LWDETR`` in roboflow/rf-detr), whose backbone has transformers' names of DINOv2."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....core.checkpoint.foreign_names import from_torch_names
from ....core.runtime.errors import UserError
from ....core.tasks.model import KeyMap
from ...models.foundation_names import FOUNDATION, OF_HUGGING_FACE
from ...models.key_names import Rule, join_projections, rename, split_projections, without

_ENCODER, BACKBONE = "backbone.0.encoder.encoder.", "backbone."
_EMPTY = ("_kp_active_mask",)  # a buffer of their networks for keypoints
_PROJECTOR = r"^backbone\.0\.projector\."
_LAYER = r"^transformer\.decoder\.layers\.(\d+)\."
_RULES: tuple[Rule, ...] = (
    (_PROJECTOR + r"stages\.0\.", "projector."),
    (_PROJECTOR + r"stages\.(\d+)\.", lambda match: f"other_projectors.{int(match[1]) - 1}."),
    (_PROJECTOR + r"stages_sampling\.(\d+)\.(\d+)\.0\.", r"scalers.\1.\2."),
    (r"^segmentation_head\.", "mask_head."),
    (_LAYER + r"self_attn\.out_proj\.", r"layers.\1.self_attn.o_proj."),
    (_LAYER + r"cross_attn\.", r"layers.\1.encoder_attn."),
    (_LAYER + r"norm1\.", r"layers.\1.self_attn_layer_norm."),
    (_LAYER + r"norm2\.", r"layers.\1.encoder_attn_layer_norm."),
    (_LAYER + r"norm3\.", r"layers.\1.final_layer_norm."),
    (_LAYER + r"linear([12])\.", r"layers.\1.mlp.fc\2."),
    (_LAYER, r"layers.\1."),
    (r"^transformer\.(?:decoder\.)?", ""),
)


def _from_authors(state: Mapping[str, Any]) -> dict[str, Any]:
    encoder = {name[len(_ENCODER) :]: value for name, value in state.items() if name.startswith(_ENCODER)}
    backbone = from_torch_names(FOUNDATION[OF_HUGGING_FACE[0]](encoder))
    rest = {name: state[name] for name in without(state, _EMPTY) if not name.startswith(_ENCODER)}
    ours = {BACKBONE + name: value for name, value in backbone.items()}
    return {**ours, **from_torch_names(rename(split_projections(rest), _RULES))}


_BLOCK = r"^backbone\.blocks\.(\d+)\."
_TO_BLOCK = _ENCODER + r"encoder.layer.\1."
_LAYER_TO = "transformer.decoder.layers."
_TO_AUTHORS: tuple[Rule, ...] = (
    (_BLOCK + r"attn\.proj\.", _TO_BLOCK + "attention.output.dense."),
    (_BLOCK + r"attn\.", _TO_BLOCK + "attention.attention."),
    (_BLOCK + r"ls([12])\.gamma$", _TO_BLOCK + r"layer_scale\2.lambda1"),
    (_BLOCK, _TO_BLOCK),
    (r"^backbone\.norm\.", _ENCODER + "layernorm."),
    (r"^backbone\.cls_token$", _ENCODER + "embeddings.cls_token"),
    (r"^backbone\.pos_embed$", _ENCODER + "embeddings.position_embeddings"),
    (r"^backbone\.patch_embed\.proj\.", _ENCODER + "embeddings.patch_embeddings.projection."),
    (r"^projector\.", "backbone.0.projector.stages.0."),
    (r"^other_projectors\.(\d+)\.", lambda match: f"backbone.0.projector.stages.{int(match[1]) + 1}."),
    (r"^scalers\.(\d+)\.(\d+)\.", r"backbone.0.projector.stages_sampling.\1.\2.0."),
    (r"^mask_head\.", "segmentation_head."),
    (r"^layers\.(\d+)\.self_attn\.in_proj\.", _LAYER_TO + r"\1.self_attn.in_proj_"),
    (r"^layers\.(\d+)\.self_attn\.o_proj\.", _LAYER_TO + r"\1.self_attn.out_proj."),
    (r"^layers\.(\d+)\.encoder_attn\.", _LAYER_TO + r"\1.cross_attn."),
    (r"^layers\.(\d+)\.self_attn_layer_norm\.", _LAYER_TO + r"\1.norm1."),
    (r"^layers\.(\d+)\.encoder_attn_layer_norm\.", _LAYER_TO + r"\1.norm2."),
    (r"^layers\.(\d+)\.final_layer_norm\.", _LAYER_TO + r"\1.norm3."),
    (r"^layers\.(\d+)\.mlp\.fc([12])\.", _LAYER_TO + r"\1.linear\2."),
    (r"^(norm|ref_point_head)\.", r"transformer.decoder.\1."),
    (r"^enc_", "transformer.enc_"),
)


def name_like_authors(state: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Rename the weights of an RF-DETR, with Linear weights (out, in); no name lacks a place.

    The authors' token for masked patches, which nothing reads, is added as zeros. A ``UserError`` says that the weights
    are of another network.
    """
    if "refpoint_embed.weight" not in state or "backbone.cls_token" not in state:
        raise UserError("convert: the names of the package rfdetr are for an RF-DETR: write timm's names")
    parts = dict[str, np.ndarray]()
    for name, value in state.items():
        before, whole, after = name.partition(".qkv.")
        thirds = zip(("query", "key", "value"), np.split(value, 3)) if whole else ()
        parts.update({f"{before}.{part}.{after}": third for part, third in thirds} if whole else {name: value})
    renamed = rename(join_projections(parts, ("q_proj", "k_proj", "v_proj"), "in_proj"), _TO_AUTHORS)
    token = state["backbone.cls_token"]
    return {**renamed, _ENCODER + "embeddings.mask_token": np.zeros((1, token.shape[-1]), token.dtype)}, []


RFDETR: dict[str, KeyMap] = {"the authors'": _from_authors}
