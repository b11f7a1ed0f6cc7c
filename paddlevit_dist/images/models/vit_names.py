"""Names that others give the parameters of plain Vision Transformers, see ``key_names``."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from ...core.tasks.model import KeyMap
from .key_names import jax_layout, join_jax_heads, join_projections, rename, without_jax_prefix

_PADDLEVIT = (
    (r"^position_embedding$", "pos_embed"),
    (r"^patch_embedding\.patch_embedding\.", "patch_embed.proj."),
    (r"^encoder\.layers\.(\d+)\.attn_norm\.", r"blocks.\1.norm1."),
    (r"^encoder\.layers\.(\d+)\.attn\.qkv\.", r"blocks.\1.attn.qkv."),
    (r"^encoder\.layers\.(\d+)\.attn\.out\.", r"blocks.\1.attn.proj."),
    (r"^encoder\.layers\.(\d+)\.mlp_norm\.", r"blocks.\1.norm2."),
    (r"^encoder\.layers\.(\d+)\.mlp\.", r"blocks.\1.mlp."),
    (r"^encoder\.encoder_norm\.", "norm."),
    (r"^classifier\.", "head."),
    (r"^classifier_dist\.", "head_dist."),
)

_OF_VIT = r"^(?:vit\.|deit\.)?"
_HUGGINGFACE = (
    (_OF_VIT + r"embeddings\.cls_token$", "cls_token"),
    (_OF_VIT + r"embeddings\.distillation_token$", "dist_token"),
    (_OF_VIT + r"embeddings\.position_embeddings$", "pos_embed"),
    (_OF_VIT + r"embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (_OF_VIT + r"encoder\.layer\.(\d+)\.layernorm_before\.", r"blocks.\1.norm1."),
    (_OF_VIT + r"encoder\.layer\.(\d+)\.attention\.attention\.", r"blocks.\1.attn."),
    (_OF_VIT + r"encoder\.layer\.(\d+)\.attention\.output\.dense\.", r"blocks.\1.attn.proj."),
    (_OF_VIT + r"encoder\.layer\.(\d+)\.layernorm_after\.", r"blocks.\1.norm2."),
    (_OF_VIT + r"encoder\.layer\.(\d+)\.intermediate\.dense\.", r"blocks.\1.mlp.fc1."),
    (_OF_VIT + r"encoder\.layer\.(\d+)\.output\.dense\.", r"blocks.\1.mlp.fc2."),
    (_OF_VIT + r"layernorm\.", "norm."),
    (r"^(?:cls_)?classifier\.", "head."),
    (r"^distillation_classifier\.", "head_dist."),
)

# Of the original JAX models (google-research/vision_transformer, big_vision), levels joined by "/".
_BLOCK = r"^Transformer/encoderblock_(\d+)/"
_GOOGLE = (
    (r"^cls$", "cls_token"),
    (r"^Transformer/posembed_input/pos_embedding$", "pos_embed"),
    (r"^embedding/", "patch_embed.proj."),
    (_BLOCK + r"LayerNorm_0/", r"blocks.\1.norm1."),
    (_BLOCK + r"MultiHeadDotProductAttention_\d+/out/", r"blocks.\1.attn.proj."),
    (_BLOCK + r"MultiHeadDotProductAttention_\d+/", r"blocks.\1.attn."),
    (_BLOCK + r"LayerNorm_[12]/", r"blocks.\1.norm2."),
    (_BLOCK + r"MlpBlock_\d+/Dense_0/", r"blocks.\1.mlp.fc1."),
    (_BLOCK + r"MlpBlock_\d+/Dense_1/", r"blocks.\1.mlp.fc2."),
    (r"^Transformer/encoder_norm/", "norm."),
    (r"^head/", "head."),
)


def _from_google(state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the original JAX models, whose attention has an axis of heads; weights become (in, out)."""
    result = jax_layout(rename(without_jax_prefix(state), _GOOGLE))
    for name in [key for key in result if re.fullmatch(r"blocks\.\d+\.attn\.query\.weight", key)]:
        join_jax_heads(result, name.rpartition(".query.")[0])
    return result


VIT: dict[str, KeyMap] = {
    "PaddleViT": partial(rename, rules=_PADDLEVIT),
    # ViTForImageClassification and DeiT's of transformers, also without the classifier
    "Hugging Face": lambda state: join_projections(rename(state, _HUGGINGFACE), ("query", "key", "value"), "qkv"),
    "Google": _from_google,
}
