"""Third-party parameter names: for each family, functions that convert a state with another project's names to ours.

The tables have (regular expression, replacement) for each kind of name. timm's names are ours.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...checkpoint.load import from_torch_names
from ...tasks.model import KeyMap

Rule = tuple[str, str | Callable[["re.Match[str]"], str]]


def rename(state: Mapping[str, Any], rules: Sequence[Rule]) -> dict[str, Any]:
    """Rename the entries of a state.

    Args:
        rules: (regular expression, replacement): the first that matches anywhere in a name is applied; names without
            a match are unchanged.
    """
    return {_rename(name, rules): value for name, value in state.items()}


def without(state: Mapping[str, Any], endings: tuple[str, ...]) -> dict[str, Any]:
    """Return the state without entries that can be computed, such as indices that others store as buffers."""
    return {name: value for name, value in state.items() if not name.endswith(endings)}


def join_projections(state: Mapping[str, Any], parts: tuple[str, ...], whole: str) -> dict[str, Any]:
    """Return the state with separate projections merged into one.

    ``x.query.weight``, ``x.key.weight`` and ``x.value.weight`` become ``x.qkv.weight``, one below the other along the
    outputs, the first axis of an (out, in) weight and of a bias. Parts that are incomplete or do not fit stay separate.

    Args:
        parts: layers' names in their order, such as ("query", "key", "value").
        whole: name of the joint layer.
    """
    result = dict(state)
    first = f".{parts[0]}."
    for name in state:
        before, separator, after = name.rpartition(first)
        names = [f"{before}.{part}.{after}" for part in parts]
        if not separator or not all(part in state for part in names):
            continue
        arrays = [state[part] for part in names]
        if all(array.ndim > 0 and array.shape[1:] == arrays[0].shape[1:] for array in arrays):
            result[f"{before}.{whole}.{after}"] = np.concatenate(arrays)
            for part in names:
                del result[part]
    return result


def split_projections(state: Mapping[str, Any]) -> dict[str, Any]:
    """Split each ``x.in_proj_weight`` and ``_bias`` into ``x.q_proj``, ``x.k_proj`` and ``x.v_proj``.

    The parts are thirds of the outputs, which are the longer axis of a weight, of PyTorch's and of Paddle's. Tensors
    that have no thirds stay.
    """
    result = {}
    for name, value in state.items():
        match = re.fullmatch(r"(.*)\.in_proj_(weight|bias)", name)
        if not match or value.ndim == 0 or max(value.shape) % 3:
            result[name] = value
            continue
        thirds = np.split(value, 3, axis=int(np.argmax(value.shape)))
        result.update({f"{match[1]}.{part}_proj.{match[2]}": third for part, third in zip("qkv", thirds)})
    return result


def without_jax_prefix(state: Mapping[str, Any]) -> dict[str, Any]:
    """Names without what training states of JAX put in front: ``opt/target/`` or ``params/``."""
    return {re.sub(r"^(?:opt/target/|params/)", "", name): value for name, value in state.items()}


def jax_layout(state: Mapping[str, Any]) -> dict[str, Any]:
    """``kernel`` and ``scale`` called ``weight``; convolutions from (height, width, in, out) to (out, in, ...)."""
    result = {}
    for name, value in state.items():
        name = name.replace("/", ".") if name.startswith("blocks.") else name
        name = re.sub(r"\.(?:kernel|scale)$", ".weight", name)
        is_convolution = name.endswith("proj.weight") and value.ndim == 4
        result[name] = value.transpose(3, 2, 0, 1) if is_convolution else value
    return result


def _rename(name: str, rules: Sequence[Rule]) -> str:
    for pattern, replacement in rules:
        changed, count = re.subn(pattern, replacement, name)
        if count:
            return changed
    return name


# ViT and DeiT

_VIT_PADDLEVIT = (
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
_VIT_HUGGINGFACE = (
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
_VIT_BLOCK = r"^Transformer/encoderblock_(\d+)/"
_VIT_GOOGLE = (
    (r"^cls$", "cls_token"),
    (r"^Transformer/posembed_input/pos_embedding$", "pos_embed"),
    (r"^embedding/", "patch_embed.proj."),
    (_VIT_BLOCK + r"LayerNorm_0/", r"blocks.\1.norm1."),
    (_VIT_BLOCK + r"MultiHeadDotProductAttention_\d+/out/", r"blocks.\1.attn.proj."),
    (_VIT_BLOCK + r"MultiHeadDotProductAttention_\d+/", r"blocks.\1.attn."),
    (_VIT_BLOCK + r"LayerNorm_[12]/", r"blocks.\1.norm2."),
    (_VIT_BLOCK + r"MlpBlock_\d+/Dense_0/", r"blocks.\1.mlp.fc1."),
    (_VIT_BLOCK + r"MlpBlock_\d+/Dense_1/", r"blocks.\1.mlp.fc2."),
    (r"^Transformer/encoder_norm/", "norm."),
    (r"^head/", "head."),
)


def _vit_from_huggingface(state: Mapping[str, Any]) -> dict[str, Any]:
    """Of ``ViTForImageClassification`` and DeiT's of transformers, also without the classifier."""
    return join_projections(rename(state, _VIT_HUGGINGFACE), ("query", "key", "value"), "qkv")


def _vit_from_google(state: Mapping[str, Any]) -> dict[str, Any]:
    """Of the original JAX models, whose attention has an axis of heads; weights become (in, out)."""
    result = jax_layout(rename(without_jax_prefix(state), _VIT_GOOGLE))
    for name in [name for name in result if re.fullmatch(r"blocks\.\d+\.attn\.query\.weight", name)]:
        _join_heads(result, name.rpartition(".query.")[0])
    return result


def _join_heads(state: dict[str, Any], attention: str) -> None:
    """Query, key and value (dim, heads, head dim) to qkv (dim, 3 heads head dim), the output to (heads head dim, dim).

    Other shapes are left unchanged.
    """
    parts = [f"{attention}.{part}" for part in ("query", "key", "value")]
    for kind, ndim in (("weight", 3), ("bias", 2)):
        arrays: list[Any] = [state.get(f"{part}.{kind}") for part in parts]
        if any(array is None or array.ndim != ndim or array.shape != arrays[0].shape for array in arrays):
            continue
        flat = [array.reshape(array.shape[:-2] + (-1,)) for array in arrays]
        state[f"{attention}.qkv.{kind}"] = np.concatenate(flat, axis=-1)
        for part in parts:
            del state[f"{part}.{kind}"]
    output = state.get(f"{attention}.proj.weight")
    if output is not None and output.ndim == 3:
        state[f"{attention}.proj.weight"] = output.reshape(-1, output.shape[-1])


VIT: dict[str, KeyMap] = {
    "PaddleViT": partial(rename, rules=_VIT_PADDLEVIT),
    "Hugging Face": _vit_from_huggingface,
    "Google": _vit_from_google,
}

# Swin

_COMPUTED = ("relative_position_index", "attn_mask")


def _next_stage(match: re.Match[str]) -> str:
    """Others count patch merging as part of the preceding stage."""
    return f"layers.{int(match[1]) + 1}.downsample."


_SWIN_AUTHORS = (
    (r"^layers\.(\d{1,3})\.downsample\.", _next_stage),
    (r"^head\.(weight|bias)$", r"head.fc.\1"),
)

_SWIN_PADDLEVIT = (
    (r"^patch_embedding\.patch_embed\.", "patch_embed.proj."),
    (r"^patch_embedding\.norm\.", "patch_embed.norm."),
    (r"^stages\.(\d{1,3})\.downsample\.", _next_stage),
    (r"^stages\.", "layers."),
    (r"^fc\.", "head.fc."),
)

_OF_SWIN = r"^(?:swin\.)?"
_SWIN_BLOCK = _OF_SWIN + r"encoder\.layers\.(\d+)\.blocks\.(\d+)\."
_SWIN_HUGGINGFACE = (
    (_OF_SWIN + r"embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (_OF_SWIN + r"embeddings\.norm\.", "patch_embed.norm."),
    (_OF_SWIN + r"encoder\.layers\.(\d{1,3})\.downsample\.", _next_stage),
    (_SWIN_BLOCK + r"layernorm_before\.", r"layers.\1.blocks.\2.norm1."),
    (_SWIN_BLOCK + r"attention\.self\.", r"layers.\1.blocks.\2.attn."),
    (_SWIN_BLOCK + r"attention\.output\.dense\.", r"layers.\1.blocks.\2.attn.proj."),
    (_SWIN_BLOCK + r"layernorm_after\.", r"layers.\1.blocks.\2.norm2."),
    (_SWIN_BLOCK + r"intermediate\.dense\.", r"layers.\1.blocks.\2.mlp.fc1."),
    (_SWIN_BLOCK + r"output\.dense\.", r"layers.\1.blocks.\2.mlp.fc2."),
    (_OF_SWIN + r"layernorm\.", "norm."),
    (r"^classifier\.", "head.fc."),
)


def _swin_from_huggingface(state: Mapping[str, Any]) -> dict[str, Any]:
    """Of ``SwinForImageClassification`` of transformers, also without the classifier."""
    return join_projections(rename(without(state, _COMPUTED), _SWIN_HUGGINGFACE), ("query", "key", "value"), "qkv")


SWIN: dict[str, KeyMap] = {
    "PaddleViT": lambda state: rename(without(state, _COMPUTED), _SWIN_PADDLEVIT),
    "Hugging Face": _swin_from_huggingface,
    "the authors'": lambda state: rename(without(state, _COMPUTED), _SWIN_AUTHORS),  # older versions of timm too
}

# CaiT: the authors' names are timm's

CAIT: dict[str, KeyMap] = {
    "PaddleViT": partial(rename, rules=((r"^patch_embed\.patch_embed\.", "patch_embed.proj."),)),
}

# PVTv2


def _stage(match: re.Match[str]) -> int:
    """Others count the stages from 1."""
    return int(match[1]) - 1


_PATCHES = {"patch_embed": "proj", "proj": "proj", "norm": "norm"}


def _patches(match: re.Match[str]) -> str:
    place = "patch_embed" if match[1] == "1" else f"stages.{_stage(match)}.downsample"
    return f"{place}.{_PATCHES[match[2]]}."


_PVT_SHARED = (
    (r"^block([1-9])\.(\d+)\.mlp\.dwconv\.dwconv\.", lambda m: f"stages.{_stage(m)}.blocks.{m[2]}.mlp.dwconv."),
    (r"^block([1-9])\.", lambda m: f"stages.{_stage(m)}.blocks."),
    (r"^norm([1-9])\.", lambda m: f"stages.{_stage(m)}.norm."),
)

PVT_V2: dict[str, KeyMap] = {
    "PaddleViT": partial(rename, rules=((r"^patch_embedding([1-9])\.(patch_embed|norm)\.", _patches), *_PVT_SHARED)),
    "the authors'": partial(rename, rules=((r"^patch_embed([1-9])\.(proj|norm)\.", _patches), *_PVT_SHARED)),
}

# MLP-Mixer

_MIXER_PADDLEVIT = (
    (r"^patch_embed\.patch_embed\.", "stem.proj."),
    (r"^mixer_layers\.", "blocks."),
)

_MIXER_BLOCK = r"^MixerBlock_(\d+)/"
_MIXER_GOOGLE = (
    (r"^stem/", "stem.proj."),
    (_MIXER_BLOCK + r"LayerNorm_0/", r"blocks.\1.norm1."),
    (_MIXER_BLOCK + r"token_mixing/Dense_0/", r"blocks.\1.mlp_tokens.fc1."),
    (_MIXER_BLOCK + r"token_mixing/Dense_1/", r"blocks.\1.mlp_tokens.fc2."),
    (_MIXER_BLOCK + r"LayerNorm_1/", r"blocks.\1.norm2."),
    (_MIXER_BLOCK + r"channel_mixing/Dense_0/", r"blocks.\1.mlp_channels.fc1."),
    (_MIXER_BLOCK + r"channel_mixing/Dense_1/", r"blocks.\1.mlp_channels.fc2."),
    (r"^pre_head_layer_norm/", "norm."),
    (r"^head/", "head."),
)

MLP_MIXER: dict[str, KeyMap] = {
    "PaddleViT": partial(rename, rules=_MIXER_PADDLEVIT),
    "Google": lambda state: jax_layout(rename(without_jax_prefix(state), _MIXER_GOOGLE)),  # weights are (in, out)
}

# ConvNeXt: PaddleViT's names are timm's

_OF_CONVNEXT = r"^(?:convnext\.)?"
_CONVNEXT_BLOCK = _OF_CONVNEXT + r"encoder\.stages\.(\d+)\.layers\.(\d+)\."
_CONVNEXT_HUGGINGFACE = (
    (_OF_CONVNEXT + r"embeddings\.patch_embeddings\.", "stem.0."),
    (_OF_CONVNEXT + r"embeddings\.layernorm\.", "stem.1."),
    (_OF_CONVNEXT + r"encoder\.stages\.(\d+)\.downsampling_layer\.", r"stages.\1.downsample."),
    (_CONVNEXT_BLOCK + r"layer_scale_parameter$", r"stages.\1.blocks.\2.gamma"),
    (_CONVNEXT_BLOCK + r"dwconv\.", r"stages.\1.blocks.\2.conv_dw."),
    (_CONVNEXT_BLOCK + r"layernorm\.", r"stages.\1.blocks.\2.norm."),
    (_CONVNEXT_BLOCK + r"pwconv([12])\.", r"stages.\1.blocks.\2.mlp.fc\3."),
    (_OF_CONVNEXT + r"layernorm\.", "head.norm."),
    (r"^classifier\.", "head.fc."),
)

# Of DINOv3's ConvNeXt, whose features are normalized by what is here the classifier's norm.
_DINO_BLOCK = r"^(?:model\.)?stages\.(\d+)\.layers\.(\d+)\."
_CONVNEXT_DINO = (
    (r"^(?:model\.)?stages\.0\.downsample_layers\.", "stem."),
    (r"^(?:model\.)?stages\.(\d+)\.downsample_layers\.", r"stages.\1.downsample."),
    (_DINO_BLOCK + r"depthwise_conv\.", r"stages.\1.blocks.\2.conv_dw."),
    (_DINO_BLOCK + r"layer_norm\.", r"stages.\1.blocks.\2.norm."),
    (_DINO_BLOCK + r"pointwise_conv([12])\.", r"stages.\1.blocks.\2.mlp.fc\3."),
    (_DINO_BLOCK, r"stages.\1.blocks.\2."),
    (r"^layer_norm\.", "head.norm."),
)

_AUTHORS_BLOCK = r"^stages\.(\d+)\.(\d+)\."
_CONVNEXT_AUTHORS = (
    (r"^downsample_layers\.0\.", "stem."),
    (r"^downsample_layers\.(\d+)\.", r"stages.\1.downsample."),
    (_AUTHORS_BLOCK + r"dwconv\.", r"stages.\1.blocks.\2.conv_dw."),
    (_AUTHORS_BLOCK + r"pwconv([12])\.", r"stages.\1.blocks.\2.mlp.fc\3."),
    (_AUTHORS_BLOCK, r"stages.\1.blocks.\2."),
    (r"^norm\.", "head.norm."),
    (r"^head\.(weight|bias)$", r"head.fc.\1"),
)

CONVNEXT: dict[str, KeyMap] = {
    "Hugging Face": partial(rename, rules=_CONVNEXT_HUGGINGFACE),  # with and without the classifier
    "Hugging Face's DINOv3": partial(rename, rules=_CONVNEXT_DINO),
    "the authors'": partial(rename, rules=_CONVNEXT_AUTHORS),
}

# ResNet: torchvision's and timm's names are ours, apart from the batch norms' statistics

_OF_RESNET = r"^(?:resnet\.)?"


def _resnet_layer(match: re.Match[str]) -> str:
    kind = "conv" if match[4] == "convolution" else "bn"
    return f"layer{int(match[1]) + 1}.{match[2]}.{kind}{int(match[3]) + 1}."


def _resnet_shortcut(match: re.Match[str]) -> str:
    number = 0 if match[3] == "convolution" else 1
    return f"layer{int(match[1]) + 1}.{match[2]}.downsample.{number}."


_RESNET_BLOCK = _OF_RESNET + r"encoder\.stages\.(\d+)\.layers\.(\d+)\."
_RESNET_HUGGINGFACE = (
    (_OF_RESNET + r"embedder\.embedder\.convolution\.", "conv1."),
    (_OF_RESNET + r"embedder\.embedder\.normalization\.", "bn1."),
    (_RESNET_BLOCK + r"layer\.(\d+)\.(convolution|normalization)\.", _resnet_layer),
    (_RESNET_BLOCK + r"shortcut\.(convolution|normalization)\.", _resnet_shortcut),
    (r"^classifier\.1\.", "fc."),
)


def _resnet_from_huggingface(state: Mapping[str, Any]) -> dict[str, Any]:
    """Of ``ResNetForImageClassification`` of transformers, also without the classifier."""
    return rename(from_torch_names(state), _RESNET_HUGGINGFACE)


RESNET: dict[str, KeyMap] = {
    "torchvision": from_torch_names,
    "Hugging Face": _resnet_from_huggingface,
}

# HGNetV2: timm's and the D-FINE authors' names are ours, apart from the batch norms' statistics

_OF_HGNETV2 = r"^(?:model\.backbone\.model\.)?"  # also as the backbone of a D-FINE
_HGNETV2_HUGGINGFACE = (
    (_OF_HGNETV2 + r"embedder\.", "stem."),
    (_OF_HGNETV2 + r"encoder\.stages\.", "stages."),
)
_HGNETV2_LAYERS = ((r"\.convolution\.", ".conv."), (r"\.normalization\.", ".bn."))


def _hgnetv2_from_huggingface(state: Mapping[str, Any]) -> dict[str, Any]:
    """Of ``HGNetV2Backbone`` of transformers; its classifier has a layer less."""
    return rename(rename(from_torch_names(state), _HGNETV2_HUGGINGFACE), _HGNETV2_LAYERS)


HGNETV2: dict[str, KeyMap] = {"PyTorch's": from_torch_names, "Hugging Face": _hgnetv2_from_huggingface}
