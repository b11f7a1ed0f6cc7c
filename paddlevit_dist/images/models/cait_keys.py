"""PaddleViT's names of a CaiT's parameters; the authors' are timm's."""

from __future__ import annotations

from typing import Any, Dict, Mapping

from .key_names import renamed


def from_paddlevit(state: Mapping[str, Any]) -> Dict[str, Any]:
    """The state under our names, which differ from PaddleViT's in the patch embedding only."""
    return renamed(state, ((r"^patch_embed\.patch_embed\.", "patch_embed.proj."),))
