"""Other people's names of a Swin Transformer's parameters."""

from __future__ import annotations

from typing import Any, Dict, Mapping

from .key_names import joined, renamed, without

_COMPUTED = ("relative_position_index", "attn_mask")


def _next_stage(match) -> str:
    """Others count the merging of patches to the stage before it."""
    return f"layers.{int(match[1]) + 1}.downsample."


_AUTHORS_NAMES = (
    (r"^layers\.(\d{1,3})\.downsample\.", _next_stage),
    (r"^head\.(weight|bias)$", r"head.fc.\1"),
)

_PADDLEVIT_NAMES = (
    (r"^patch_embedding\.patch_embed\.", "patch_embed.proj."),
    (r"^patch_embedding\.norm\.", "patch_embed.norm."),
    (r"^stages\.(\d{1,3})\.downsample\.", _next_stage),
    (r"^stages\.", "layers."),
    (r"^fc\.", "head.fc."),
)

_OF_HUGGINGFACE = r"^(?:swin\.)?"
_HUGGINGFACE_BLOCK = _OF_HUGGINGFACE + r"encoder\.layers\.(\d+)\.blocks\.(\d+)\."
_HUGGINGFACE_NAMES = (
    (_OF_HUGGINGFACE + r"embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (_OF_HUGGINGFACE + r"embeddings\.norm\.", "patch_embed.norm."),
    (_OF_HUGGINGFACE + r"encoder\.layers\.(\d{1,3})\.downsample\.", _next_stage),
    (_HUGGINGFACE_BLOCK + r"layernorm_before\.", r"layers.\1.blocks.\2.norm1."),
    (_HUGGINGFACE_BLOCK + r"attention\.self\.", r"layers.\1.blocks.\2.attn."),
    (_HUGGINGFACE_BLOCK + r"attention\.output\.dense\.", r"layers.\1.blocks.\2.attn.proj."),
    (_HUGGINGFACE_BLOCK + r"layernorm_after\.", r"layers.\1.blocks.\2.norm2."),
    (_HUGGINGFACE_BLOCK + r"intermediate\.dense\.", r"layers.\1.blocks.\2.mlp.fc1."),
    (_HUGGINGFACE_BLOCK + r"output\.dense\.", r"layers.\1.blocks.\2.mlp.fc2."),
    (_OF_HUGGINGFACE + r"layernorm\.", "norm."),
    (r"^classifier\.", "head.fc."),
)


def from_paddlevit(state: Mapping[str, Any]) -> Dict[str, Any]:
    """The state under our names, without the indices and masks that PaddleViT stores."""
    return renamed(without(state, _COMPUTED), _PADDLEVIT_NAMES)


def from_huggingface(state: Mapping[str, Any]) -> Dict[str, Any]:
    """The same for ``SwinForImageClassification`` of transformers, also without the classifier."""
    return joined(renamed(without(state, _COMPUTED), _HUGGINGFACE_NAMES), ("query", "key", "value"), "qkv")


def from_authors(state: Mapping[str, Any]) -> Dict[str, Any]:
    """The same for the authors' names, which older versions of timm use too."""
    return renamed(without(state, _COMPUTED), _AUTHORS_NAMES)
