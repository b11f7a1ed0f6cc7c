"""Other people's names of a PVTv2's parameters."""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping

from .key_names import renamed


def _stage(match: re.Match[str]) -> int:
    """Others count the stages from 1."""
    return int(match[1]) - 1


_PATCHES = {"patch_embed": "proj", "proj": "proj", "norm": "norm"}


def _patches(match: re.Match[str]) -> str:
    place = "patch_embed" if match[1] == "1" else f"stages.{_stage(match)}.downsample"
    return f"{place}.{_PATCHES[match[2]]}."


_SHARED = (
    (r"^block([1-9])\.(\d+)\.mlp\.dwconv\.dwconv\.", lambda m: f"stages.{_stage(m)}.blocks.{m[2]}.mlp.dwconv."),
    (r"^block([1-9])\.", lambda m: f"stages.{_stage(m)}.blocks."),
    (r"^norm([1-9])\.", lambda m: f"stages.{_stage(m)}.norm."),
)


def from_paddlevit(state: Mapping[str, Any]) -> Dict[str, Any]:
    """The state under our names; a name that PaddleViT's model does not have stays as it is."""
    return renamed(state, ((r"^patch_embedding([1-9])\.(patch_embed|norm)\.", _patches), *_SHARED))


def from_authors(state: Mapping[str, Any]) -> Dict[str, Any]:
    """The same for the authors' names."""
    return renamed(state, ((r"^patch_embed([1-9])\.(proj|norm)\.", _patches), *_SHARED))
