"""Parameter names of published heatmap networks: transformers' ViTPose, mmpose's networks, and SimpleBaseline's own."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from ....core.checkpoint.foreign_names import from_torch_names
from ....core.tasks.model import KeyMap
from ...models.foundation_names import MM_VIT
from ...models.key_names import BACKBONE, join_projections, rename, rename_network

_POSITIONS = "backbone.pos_embed"
_LAYER = r"^backbone\.encoder\.layer\.(\d+)\."
_HUGGINGFACE = (
    (r"^backbone\.embeddings\.position_embeddings$", "backbone.pos_embed"),
    (r"^backbone\.embeddings\.patch_embeddings\.projection\.", "backbone.patch_embed.proj."),
    (_LAYER + r"layernorm_before\.", r"backbone.blocks.\1.norm1."),
    (_LAYER + r"attention\.attention\.", r"backbone.blocks.\1.attn."),
    (_LAYER + r"attention\.output\.dense\.", r"backbone.blocks.\1.attn.proj."),
    (_LAYER + r"layernorm_after\.", r"backbone.blocks.\1.norm2."),
    (_LAYER + r"mlp\.", r"backbone.blocks.\1.mlp."),
    (r"^backbone\.layernorm\.", "backbone.norm."),
)
# The layers of mmpose's decoder are numbered with their ReLUs, which have no parameters.
_DECONVOLUTIONS = (
    *((rf"^(?:keypoint_)?head\.deconv_layers\.{3 * i}\.", f"head.deconv{i + 1}.") for i in range(5)),
    *((rf"^(?:keypoint_)?head\.deconv_layers\.{3 * i + 1}\.", f"head.batchnorm{i + 1}.") for i in range(5)),
)
_MMPOSE = (
    *_DECONVOLUTIONS,
    (r"^(?:keypoint_)?head\.final_layer\.", "head.conv."),
    (r"^backbone\.last_norm\.", "backbone.norm."),
)
_BEFORE = (
    (r"^(conv1|bn1|layer\d)\b", r"backbone.\1"),
    (r"^(deconv_layers|final_layer)\.", r"head.\1."),
)


def _from_huggingface(state: Mapping[str, Any]) -> dict[str, Any]:
    return from_torch_names(join_projections(rename(state, _HUGGINGFACE), ("query", "key", "value"), "qkv"))


def _from_mmpose(state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename networks of mmpose 0.x and 1.x, whose ViTs without a class token have no row for one either."""
    result = rename_network(partial(rename, rules=MM_VIT), BACKBONE, _MMPOSE, state)
    if "backbone.layers.0.ln1.weight" in state and "backbone.cls_token" not in state and _POSITIONS in result:
        rows = result[_POSITIONS]  # (1, patches, dim)
        result[_POSITIONS] = np.concatenate([np.zeros_like(rows[:, :1]), rows], axis=1)
    return result


def _from_simple_baseline(state: Mapping[str, Any]) -> dict[str, Any]:
    return _from_mmpose(rename(state, _BEFORE))


KEY_MAPS: dict[str, KeyMap] = {
    "Hugging Face": _from_huggingface,
    "mmpose": _from_mmpose,
    "SimpleBaseline": _from_simple_baseline,
}
