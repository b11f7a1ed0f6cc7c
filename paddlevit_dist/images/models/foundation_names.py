"""Names that others give the parameters of foundation backbones, see ``key_names``."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from ...core.tasks.model import KeyMap
from .key_names import join_projections, rename, without

OF_HUGGING_FACE = "Hugging Face's DINO, CLIP and SigLIP", "Hugging Face's DINOv3 with biases"

# DINOv2's and DINOv3's of their authors, and timm's own of EVA-02 and DINOv3.
_OTHERS = (
    (r"^(?:register_tokens|storage_tokens)$", "reg_token"),
    (r"\.gamma_([12])$", r".ls\1.gamma"),
    (r"\.mlp\.w12\.", ".mlp.fc1."),
    (r"\.mlp\.w1\.", ".mlp.fc1_g."),
    (r"\.mlp\.w2\.", ".mlp.fc1_x."),
    (r"\.mlp\.w3\.", ".mlp.fc2."),
)
# DINOv2 trains blocks in chunks, whose blocks keep their numbers.
_CHUNKS = ((r"^blocks\.\d+\.(\d+)\.", r"blocks.\1."),)
_MM_LAYER = r"^layers\.(\d+)\."
# Of mmpretrain and what builds on it (mmpose 1.x), and of mmsegmentation, without "backbone.".
MM_VIT = (
    (r"^patch_embed\.projection\.", "patch_embed.proj."),
    (_MM_LAYER + r"ln([12])\.", r"blocks.\1.norm\2."),
    (_MM_LAYER + r"attn\.attn\.in_proj_", r"blocks.\1.attn.qkv."),
    (_MM_LAYER + r"attn\.attn\.out_proj\.", r"blocks.\1.attn.proj."),
    (_MM_LAYER + r"(?:attn|ffn)\.gamma([12])\.(?:weight|scale)$", r"blocks.\1.ls\2.gamma"),
    (_MM_LAYER + r"attn\.", r"blocks.\1.attn."),
    (_MM_LAYER + r"ffn\.(?:layers\.0\.0|w12)\.", r"blocks.\1.mlp.fc1."),
    (_MM_LAYER + r"ffn\.(?:layers\.1|w3)\.", r"blocks.\1.mlp.fc2."),
    (r"^ln1\.", "norm."),
    (r"^ln2\.", "fc_norm."),
    (r"^pre_norm\.", "norm_pre."),
)
_MM_HEADS = ((r"^head\.(?:fc|layers\.head)\.", "head."), (r"^head\.layers\.head_dist\.", "head_dist."))
_LAYER = r"^(?:vision_model\.)?(?:encoder\.)?(?:layer|layers|model\.layer)\.(\d+)\."
_HUGGINGFACE = (
    (r"^(?:vision_model\.)?embeddings\.cls_token$", "cls_token"),
    (r"^(?:vision_model\.)?embeddings\.class_embedding$", "cls_token"),
    (r"^embeddings\.register_tokens$", "reg_token"),
    (r"^(?:vision_model\.)?embeddings\.position_embeddings?(?:\.weight)?$", "pos_embed"),
    (r"^(?:vision_model\.)?embeddings\.patch_embeddings?\.(?:projection\.)?", "patch_embed.proj."),
    (r"^(?:vision_model\.)?pre_layrnorm\.", "norm_pre."),
    (_LAYER + r"(?:layer_)?norm([12])\.", r"blocks.\1.norm\2."),
    (_LAYER + r"(?:attention|self_attn)\.(?:attention\.)?(?:query|q_proj)\.", r"blocks.\1.attn.query."),
    (_LAYER + r"(?:attention|self_attn)\.(?:attention\.)?(?:key|k_proj)\.", r"blocks.\1.attn.key."),
    (_LAYER + r"(?:attention|self_attn)\.(?:attention\.)?(?:value|v_proj)\.", r"blocks.\1.attn.value."),
    (_LAYER + r"(?:attention|self_attn)\.(?:output\.dense|o_proj|out_proj)\.", r"blocks.\1.attn.proj."),
    (_LAYER + r"layer_scale([12])\.lambda1$", r"blocks.\1.ls\2.gamma"),
    (_LAYER + r"mlp\.weights_in\.", r"blocks.\1.mlp.fc1."),
    (_LAYER + r"mlp\.(?:weights_out|down_proj)\.", r"blocks.\1.mlp.fc2."),
    (_LAYER + r"mlp\.gate_proj\.", r"blocks.\1.mlp.fc1_g."),
    (_LAYER + r"mlp\.up_proj\.", r"blocks.\1.mlp.up."),
    (_LAYER + r"mlp\.fc([12])\.", r"blocks.\1.mlp.fc\2."),
    (r"^vision_model\.head\.probe$", "attn_pool.latent"),
    (r"^vision_model\.head\.attention\.out_proj\.", "attn_pool.proj."),
    (r"^vision_model\.head\.attention\.in_proj_", "attn_pool.in_proj."),
    (r"^vision_model\.head\.layernorm\.", "attn_pool.norm."),
    (r"^vision_model\.head\.mlp\.", "attn_pool.mlp."),
    (r"^(?:layernorm|norm|(?:vision_model\.)?post_layernorm)\.", "norm."),
    (r"^classifier\.", "head."),
)

# Of ``Dinov2ForImageClassification`` and the like; their classifier reads the class token and the patches' mean.
_OF_CLASSIFIER = re.compile(r"^(?:dinov2|dinov2_with_registers|dinov3_vit)\.")


def _from_huggingface(state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename ``Dinov2Model``, also with registers, ``DINOv3ViTModel``, ``SiglipVisionModel``, ``CLIPVisionModel``."""
    plain = {_OF_CLASSIFIER.sub("", key): value for key, value in state.items()}
    result = rename(without(plain, ("mask_token", "position_ids")), _HUGGINGFACE)
    for name in [key for key in result if key.endswith((".mlp.up.weight", ".mlp.up.bias"))]:
        gate = name.replace(".up.", ".fc1_g.")
        result[name.replace(".up.", ".fc1_x." if gate in result else ".fc1.")] = result.pop(name)
    for name in [key for key in result if key.startswith("attn_pool.in_proj.")]:
        whole = result.pop(name)
        third = len(whole) // 3
        kind = name.rpartition(".")[2]
        result[f"attn_pool.q.{kind}"], result[f"attn_pool.kv.{kind}"] = whole[:third], whole[third:]
    positions = result.get("pos_embed")
    is_table = positions is not None and positions.ndim == 2
    if positions is not None and is_table:
        positions = result["pos_embed"] = positions[None]
    if "cls_token" in result:
        result["cls_token"] = result["cls_token"].reshape(1, 1, -1)
    if positions is not None and not is_table and "cls_token" in result and "reg_token" in result:
        # Of timm's only patches have a position; a table with registers, EoMT's, has no row for the class token.
        result["cls_token"] = result["cls_token"] + positions[:, :1]
        result["pos_embed"] = positions[:, 1:]
    joined = join_projections(result, ("query", "key", "value"), "qkv")
    biases = {"query": "q_bias", "value": "v_bias"}  # of those whose keys have none
    return {re.sub(r"(query|value)\.bias$", lambda renamed: biases[renamed[1]], key): joined[key] for key in joined}


def _without_zero_biases(state: Mapping[str, Any]) -> dict[str, Any]:
    """Remove biases of queries and values that published DINOv3 weights hold as zeros, and timm's plain models lack."""
    renamed = _from_huggingface(state)
    biases = [name for name in renamed if name.endswith((".q_bias", ".v_bias"))]
    return {name: renamed[name] for name in renamed if name not in biases or np.any(renamed[name])}


FOUNDATION: dict[str, KeyMap] = {
    "timm's EVA and DINO": lambda state: rename(rename(state, _CHUNKS), _OTHERS),
    "mmpretrain": partial(rename, rules=(*MM_VIT, *_MM_HEADS)),
    **dict(zip(OF_HUGGING_FACE, (_without_zero_biases, _from_huggingface))),
}
