"""Other people's names of a ConvNeXt's parameters."""

from __future__ import annotations

from typing import Any, Dict, Mapping

from .key_names import renamed

_OF_HUGGINGFACE = r"^(?:convnext\.)?"
_HUGGINGFACE_BLOCK = _OF_HUGGINGFACE + r"encoder\.stages\.(\d+)\.layers\.(\d+)\."
_HUGGINGFACE_NAMES = (
    (_OF_HUGGINGFACE + r"embeddings\.patch_embeddings\.", "stem.0."),
    (_OF_HUGGINGFACE + r"embeddings\.layernorm\.", "stem.1."),
    (_OF_HUGGINGFACE + r"encoder\.stages\.(\d+)\.downsampling_layer\.", r"stages.\1.downsample."),
    (_HUGGINGFACE_BLOCK + r"layer_scale_parameter$", r"stages.\1.blocks.\2.gamma"),
    (_HUGGINGFACE_BLOCK + r"dwconv\.", r"stages.\1.blocks.\2.conv_dw."),
    (_HUGGINGFACE_BLOCK + r"layernorm\.", r"stages.\1.blocks.\2.norm."),
    (_HUGGINGFACE_BLOCK + r"pwconv([12])\.", r"stages.\1.blocks.\2.mlp.fc\3."),
    (_OF_HUGGINGFACE + r"layernorm\.", "head.norm."),
    (r"^classifier\.", "head.fc."),
)

_AUTHORS_BLOCK = r"^stages\.(\d+)\.(\d+)\."
_AUTHORS_NAMES = (
    (r"^downsample_layers\.0\.", "stem."),
    (r"^downsample_layers\.(\d+)\.", r"stages.\1.downsample."),
    (_AUTHORS_BLOCK + r"dwconv\.", r"stages.\1.blocks.\2.conv_dw."),
    (_AUTHORS_BLOCK + r"pwconv([12])\.", r"stages.\1.blocks.\2.mlp.fc\3."),
    (_AUTHORS_BLOCK, r"stages.\1.blocks.\2."),
    (r"^norm\.", "head.norm."),
    (r"^head\.(weight|bias)$", r"head.fc.\1"),
)


def from_huggingface(state: Mapping[str, Any]) -> Dict[str, Any]:
    """The state under our names, of ``ConvNextForImageClassification`` of transformers, also without the classifier."""
    return renamed(state, _HUGGINGFACE_NAMES)


def from_authors(state: Mapping[str, Any]) -> Dict[str, Any]:
    """The same for the authors' names."""
    return renamed(state, _AUTHORS_NAMES)
