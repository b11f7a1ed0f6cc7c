"""Other people's names of a Vision Transformer's parameters."""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping

import numpy as np

from .key_names import joined, renamed

_PADDLEVIT_NAMES = (
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

_OF_HUGGINGFACE = r"^(?:vit\.|deit\.)?"
_HUGGINGFACE_NAMES = (
    (_OF_HUGGINGFACE + r"embeddings\.cls_token$", "cls_token"),
    (_OF_HUGGINGFACE + r"embeddings\.distillation_token$", "dist_token"),
    (_OF_HUGGINGFACE + r"embeddings\.position_embeddings$", "pos_embed"),
    (_OF_HUGGINGFACE + r"embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (_OF_HUGGINGFACE + r"encoder\.layer\.(\d+)\.layernorm_before\.", r"blocks.\1.norm1."),
    (_OF_HUGGINGFACE + r"encoder\.layer\.(\d+)\.attention\.attention\.", r"blocks.\1.attn."),
    (_OF_HUGGINGFACE + r"encoder\.layer\.(\d+)\.attention\.output\.dense\.", r"blocks.\1.attn.proj."),
    (_OF_HUGGINGFACE + r"encoder\.layer\.(\d+)\.layernorm_after\.", r"blocks.\1.norm2."),
    (_OF_HUGGINGFACE + r"encoder\.layer\.(\d+)\.intermediate\.dense\.", r"blocks.\1.mlp.fc1."),
    (_OF_HUGGINGFACE + r"encoder\.layer\.(\d+)\.output\.dense\.", r"blocks.\1.mlp.fc2."),
    (_OF_HUGGINGFACE + r"layernorm\.", "norm."),
    (r"^(?:cls_)?classifier\.", "head."),
    (r"^distillation_classifier\.", "head_dist."),
)

# Of the original JAX models (google-research/vision_transformer, big_vision), levels joined by "/".
_BLOCK = r"^Transformer/encoderblock_(\d+)/"
_GOOGLE_NAMES = (
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


def from_paddlevit(state: Mapping[str, Any]) -> Dict[str, Any]:
    """The state under our names; a name that PaddleViT's model does not have stays as it is."""
    return renamed(state, _PADDLEVIT_NAMES)


def from_huggingface(state: Mapping[str, Any]) -> Dict[str, Any]:
    """The same for ``ViTForImageClassification`` and DeiT's of transformers, also without the classifier."""
    return joined(renamed(state, _HUGGINGFACE_NAMES), ("query", "key", "value"), "qkv")


def from_google(state: Mapping[str, Any]) -> Dict[str, Any]:
    """The same for the original JAX models, whose attention has an axis of heads; weights become (in, out)."""
    result = jax_layout(renamed(without_jax_prefix(state), _GOOGLE_NAMES))
    for name in [name for name in result if re.fullmatch(r"blocks\.\d+\.attn\.query\.weight", name)]:
        _join_heads(result, name.rpartition(".query.")[0])
    return result


def without_jax_prefix(state: Mapping[str, Any]) -> Dict[str, Any]:
    """Names without what training states of JAX put in front: ``opt/target/`` or ``params/``."""
    return {re.sub(r"^(?:opt/target/|params/)", "", name): value for name, value in state.items()}


def jax_layout(state: Mapping[str, Any]) -> Dict[str, Any]:
    """``kernel`` and ``scale`` called ``weight``; convolutions from (height, width, in, out) to (out, in, ...)."""
    result = {}
    for name, value in state.items():
        name = name.replace("/", ".") if name.startswith("blocks.") else name
        name = re.sub(r"\.(?:kernel|scale)$", ".weight", name)
        is_convolution = name.endswith("proj.weight") and value.ndim == 4
        result[name] = value.transpose(3, 2, 0, 1) if is_convolution else value
    return result


def _join_heads(state: Dict[str, Any], attention: str) -> None:
    """Query, key and value (dim, heads, head dim) to qkv (dim, 3 heads head dim), the output to (heads head dim, dim).

    Nothing changes where their shapes are others.
    """
    parts = [f"{attention}.{part}" for part in ("query", "key", "value")]
    for kind, ndim in (("weight", 3), ("bias", 2)):
        arrays = [state.get(f"{part}.{kind}") for part in parts]
        if any(array is None or array.ndim != ndim or array.shape != arrays[0].shape for array in arrays):
            continue
        flat = [array.reshape(array.shape[:-2] + (-1,)) for array in arrays]
        state[f"{attention}.qkv.{kind}"] = np.concatenate(flat, axis=-1)
        for part in parts:
            del state[f"{part}.{kind}"]
    output = state.get(f"{attention}.proj.weight")
    if output is not None and output.ndim == 3:
        state[f"{attention}.proj.weight"] = output.reshape(-1, output.shape[-1])
