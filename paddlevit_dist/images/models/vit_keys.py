"""Other people's names of a Vision Transformer's parameters."""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping

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
)


def from_paddlevit(state: Mapping[str, Any]) -> Dict[str, Any]:
    """The state under our names; a name that PaddleViT's model does not have stays as it is."""
    return {_rename(name): value for name, value in state.items()}


def _rename(name: str) -> str:
    for pattern, replacement in _PADDLEVIT_NAMES:
        renamed, found = re.subn(pattern, replacement, name)
        if found:
            return renamed
    return name
