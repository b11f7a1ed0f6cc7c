"""Other people's names of an MLP-Mixer's parameters."""

from __future__ import annotations

from typing import Any, Dict, Mapping

from .key_names import renamed
from .vit_keys import jax_layout, without_jax_prefix

_PADDLEVIT_NAMES = (
    (r"^patch_embed\.patch_embed\.", "stem.proj."),
    (r"^mixer_layers\.", "blocks."),
)

_BLOCK = r"^MixerBlock_(\d+)/"
_GOOGLE_NAMES = (
    (r"^stem/", "stem.proj."),
    (_BLOCK + r"LayerNorm_0/", r"blocks.\1.norm1."),
    (_BLOCK + r"token_mixing/Dense_0/", r"blocks.\1.mlp_tokens.fc1."),
    (_BLOCK + r"token_mixing/Dense_1/", r"blocks.\1.mlp_tokens.fc2."),
    (_BLOCK + r"LayerNorm_1/", r"blocks.\1.norm2."),
    (_BLOCK + r"channel_mixing/Dense_0/", r"blocks.\1.mlp_channels.fc1."),
    (_BLOCK + r"channel_mixing/Dense_1/", r"blocks.\1.mlp_channels.fc2."),
    (r"^pre_head_layer_norm/", "norm."),
    (r"^head/", "head."),
)


def from_paddlevit(state: Mapping[str, Any]) -> Dict[str, Any]:
    """The state under our names; a name that PaddleViT's model does not have stays as it is."""
    return renamed(state, _PADDLEVIT_NAMES)


def from_google(state: Mapping[str, Any]) -> Dict[str, Any]:
    """The same for the original JAX models, whose weights are (in, out)."""
    return jax_layout(renamed(without_jax_prefix(state), _GOOGLE_NAMES))
