"""Parameter names of other projects' segmentation networks and of MiT, as ``key_names`` does for classifiers.

A network is a backbone and a head on it. Its map gives the backbone's names to a classifier's map and renames the
rest. Our heads have the names of their authors': NVlabs' for SegFormer, mmsegmentation's for UPerNet, torchvision's for
FCN.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...checkpoint.load import from_torch_names
from ...tasks.model import KeyMap
from .key_names import CONVNEXT, PVT_V2, SWIN, Rule, join_projections, rename, without

BACKBONE = "backbone."  # before our names of a backbone's parameters


def _network(to_ours: KeyMap, prefix: str, rules: Sequence[Rule], state: Mapping[str, Any]) -> dict[str, Any]:
    """Names of a whole network.

    Args:
        to_ours: the map of the backbone's names, which follow ``prefix``; it sees no others.
        rules: of ``renamed``, for all names, before: those that then have no prefix are of the heads.
    """
    state = rename(from_torch_names(state), rules)
    backbone_state = {name[len(prefix) :]: value for name, value in state.items() if name.startswith(prefix)}
    others = {name: value for name, value in state.items() if not name.startswith(prefix)}
    return {**{BACKBONE + name: value for name, value in to_ours(backbone_state).items()}, **others}


def _as_rows(value: np.ndarray) -> np.ndarray:
    """Return a convolution of 1 x 1 as the (out, in) weight of a linear layer."""
    return value.reshape(value.shape[:2]) if value.ndim == 4 and value.shape[2:] == (1, 1) else value


# MiT


def _mit_patches(match: "re.Match[str]") -> str:
    place = "patch_embed" if match[1] == "0" else f"stages.{match[1]}.downsample"
    return f"{place}.{'proj' if match[2].startswith('proj') else 'norm'}."


_OF_MIT = r"^(?:segformer\.)?(?:encoder\.)?"
_MIT_BLOCK = _OF_MIT + r"block\.(\d+)\.(\d+)\."
_MIT_HUGGINGFACE = (
    (_OF_MIT + r"patch_embeddings\.(\d+)\.(proj|layer_norm)\.", _mit_patches),
    (_OF_MIT + r"layer_norm\.(\d+)\.", r"stages.\1.norm."),
    (_MIT_BLOCK + r"layer_norm_([12])\.", r"stages.\1.blocks.\2.norm\3."),
    (_MIT_BLOCK + r"attention\.self\.query\.", r"stages.\1.blocks.\2.attn.q."),
    (_MIT_BLOCK + r"attention\.self\.layer_norm\.", r"stages.\1.blocks.\2.attn.norm."),
    (_MIT_BLOCK + r"attention\.self\.", r"stages.\1.blocks.\2.attn."),
    (_MIT_BLOCK + r"attention\.output\.dense\.", r"stages.\1.blocks.\2.attn.proj."),
    (_MIT_BLOCK + r"mlp\.dense([12])\.", r"stages.\1.blocks.\2.mlp.fc\3."),
    (_MIT_BLOCK + r"mlp\.dwconv\.dwconv\.", r"stages.\1.blocks.\2.mlp.dwconv."),
    (r"^classifier\.", "head."),
)

_LAYER = r"^layers\.(\d+)\.1\.(\d+)\."
_IN_BLOCK = r"stages.\1.blocks.\2."
_MIT_LAYERS = (
    (r"^layers\.(\d+)\.0\.(projection|norm)\.", _mit_patches),
    (r"^layers\.(\d+)\.2\.", r"stages.\1.norm."),
    (_LAYER + r"(attn|norm[12])\.", _IN_BLOCK + r"\3."),
)
_MIT_MMSEGMENTATION = (
    (_LAYER + r"attn\.attn\.out_proj\.", _IN_BLOCK + "attn.proj."),
    (_LAYER + r"attn\.attn\.", _IN_BLOCK + "attn."),
    (_LAYER + r"ffn\.layers\.0\.", _IN_BLOCK + "mlp.fc1."),
    (_LAYER + r"ffn\.layers\.1\.", _IN_BLOCK + "mlp.dwconv."),
    (_LAYER + r"ffn\.layers\.4\.", _IN_BLOCK + "mlp.fc2."),
    *_MIT_LAYERS,
)
_MIT_PADDLEVIT = (
    (_LAYER + r"ffn\.fc([12])\.", _IN_BLOCK + r"mlp.fc\3."),
    (_LAYER + r"ffn\.pe_conv\.", _IN_BLOCK + "mlp.dwconv."),
    *_MIT_LAYERS,
)


def _mit_from_huggingface(state: Mapping[str, Any]) -> dict[str, Any]:
    """Of ``SegformerForImageClassification`` of transformers 4, also without the classifier."""
    return join_projections(rename(state, _MIT_HUGGINGFACE), ("key", "value"), "kv")


def _mit_from_mmsegmentation(state: Mapping[str, Any]) -> dict[str, Any]:
    """Of mmsegmentation's MiT: one projection for queries, keys and values, convolutions of 1 x 1 in the MLP."""
    result = {}
    for name, value in rename(state, _MIT_MMSEGMENTATION).items():
        match = re.fullmatch(r"(.*\.attn)\.in_proj_(weight|bias)", name)
        if match and value.ndim > 0 and len(value) % 3 == 0:
            third = len(value) // 3
            result[f"{match[1]}.q.{match[2]}"] = value[:third]
            result[f"{match[1]}.kv.{match[2]}"] = value[third:]
        else:
            result[name] = _as_rows(value) if ".mlp.fc" in name else value
    return result


def _mit_from_paddlevit(state: Mapping[str, Any]) -> dict[str, Any]:
    """Of PaddleViT's MiT, whose Linear weights are (in, out) and whose MLP consists of convolutions, (out, in)."""
    ours = rename(state, _MIT_PADDLEVIT)
    return {name: _as_rows(value).T if ".mlp.fc" in name and value.ndim == 4 else value for name, value in ours.items()}


MIT: dict[str, KeyMap] = {
    "the authors'": PVT_V2["the authors'"],  # PaddleSeg's too
    "Hugging Face": _mit_from_huggingface,
    "mmsegmentation": _mit_from_mmsegmentation,
    "PaddleViT": _mit_from_paddlevit,
}

# SegFormer

_OWN_HEAD = "decode_head."
_SEGFORMER_HUGGINGFACE = (
    (r"^decode_head\.linear_c\.(\d)\.proj\.", lambda m: f"{_OWN_HEAD}linear_c{int(m[1]) + 1}.proj."),
    (r"^decode_head\.linear_fuse\.weight$", f"{_OWN_HEAD}linear_fuse.conv.weight"),
    (r"^decode_head\.batch_norm\.", f"{_OWN_HEAD}linear_fuse.bn."),
    (r"^decode_head\.classifier\.", f"{_OWN_HEAD}linear_pred."),
)
_SEGFORMER_PADDLESEG = (
    (r"^linear_fuse\._conv\.", f"{_OWN_HEAD}linear_fuse.conv."),
    (r"^linear_fuse\._batch_norm\.", f"{_OWN_HEAD}linear_fuse.bn."),
    (r"^linear_(c[1-4]|pred)\.", _OWN_HEAD + r"linear_\1."),
)


def _segformer_from_authors(state: Mapping[str, Any]) -> dict[str, Any]:
    """Of NVlabs' SegFormer, without the classifier that its head inherits and does not use."""
    ours = _network(MIT["the authors'"], BACKBONE, (), state)
    is_used = _OWN_HEAD + "linear_pred.weight" not in ours
    return {name: value for name, value in ours.items() if is_used or not name.startswith(_OWN_HEAD + "conv_seg.")}


SEGFORMER: dict[str, KeyMap] = {
    "the authors'": _segformer_from_authors,
    "Hugging Face": partial(_network, MIT["Hugging Face"], "segformer.", _SEGFORMER_HUGGINGFACE),
    "PaddleSeg": partial(_network, MIT["the authors'"], BACKBONE, _SEGFORMER_PADDLESEG),
}
MMSEGMENTATIONS_SEGFORMER: dict[str, KeyMap] = {
    naming: partial(_network, MIT[naming], BACKBONE, ()) for naming in ("mmsegmentation", "PaddleViT")
}

# UPerNet on Swin, ConvNeXt, PVTv2 and ViT: the backbone's name is in brackets where a project has several

_SWIN_BLOCK = r"^stages\.(\d+)\.blocks\.(\d+)\."
_IN_SWIN = r"layers.\1.blocks.\2."
_SWIN_MMSEGMENTATION = (
    (r"^patch_embed\.projection\.", "patch_embed.proj."),
    (r"^stages\.(\d+)\.downsample\.", lambda m: f"layers.{int(m[1]) + 1}.downsample."),
    (_SWIN_BLOCK + r"attn\.w_msa\.", _IN_SWIN + "attn."),
    (_SWIN_BLOCK + r"ffn\.layers\.0\.0\.", _IN_SWIN + "mlp.fc1."),
    (_SWIN_BLOCK + r"ffn\.layers\.1\.", _IN_SWIN + "mlp.fc2."),
    (_SWIN_BLOCK, _IN_SWIN),
)
_CONVNEXT_MMSEGMENTATION = (
    (r"\.depthwise_conv\.", ".dwconv."),
    (r"\.pointwise_conv([12])\.", r".pwconv\1."),
)
_VIT_LAYER = r"^layers\.(\d+)\."
_VIT_MMSEGMENTATION = (
    (r"^patch_embed\.projection\.", "patch_embed.proj."),
    (_VIT_LAYER + r"ln([12])\.", r"blocks.\1.norm\2."),
    (_VIT_LAYER + r"attn\.attn\.in_proj_", r"blocks.\1.attn.qkv."),
    (_VIT_LAYER + r"attn\.attn\.out_proj\.", r"blocks.\1.attn.proj."),
    (_VIT_LAYER + r"ffn\.layers\.0\.0\.", r"blocks.\1.mlp.fc1."),
    (_VIT_LAYER + r"ffn\.layers\.1\.", r"blocks.\1.mlp.fc2."),
    (r"^ln1\.", "norm."),
)
_UNFOLDED = [0, 2, 1, 3]  # which of mmsegmentation's four neighbors, row by row, are ours, column by column


def _swin_from_mmsegmentation(state: Mapping[str, Any]) -> dict[str, Any]:
    """Of mmsegmentation's Swin, which merges patches with the four values of each channel side by side."""
    ours = rename(without(state, ("relative_position_index",)), _SWIN_MMSEGMENTATION)
    for name, value in ours.items():
        if ".downsample." in name and value.shape[-1] % 4 == 0:
            apart = value.reshape(*value.shape[:-1], -1, 4)[..., _UNFOLDED]  # (..., channels, neighbors)
            ours[name] = np.moveaxis(apart, -1, -2).reshape(value.shape)
    return ours


def _convnext_from_mmsegmentation(state: Mapping[str, Any]) -> dict[str, Any]:
    return CONVNEXT["the authors'"](rename(state, _CONVNEXT_MMSEGMENTATION))


_UPERNET_MMSEGMENTATION = (
    (r"^backbone\.norm(\d)\.", r"norms.\1."),
    (r"^(neck\.(?:lateral_convs|convs)\.\d)\.conv\.", r"\1."),
)
_UPERNET_HUGGINGFACE = (
    (r"^backbone\.hidden_states_norms\.stage(\d)\.", lambda m: f"norms.{int(m[1]) - 1}."),
    (r"^(decode|auxiliary)_head\.classifier\.", r"\1_head.conv_seg."),
    (r"\.batch_norm\.", ".bn."),
)


def _in_sequence(match: "re.Match[str]") -> str:
    """Of PaddleViT's layers in a row: a convolution, then its norm."""
    heads = {"decoder": "decode_head", "aux_decoder": "auxiliary_head"}
    return f"{heads[match[1]]}.{match[2]}.{'conv' if match[3] == '0' else 'bn'}."


_UPERNET_PADDLEVIT = (
    (r"^layer_norms\.", "norms."),
    (
        r"^decoder\.psp_modules\.pool_branches\.(\d)\.([12])\.",
        lambda m: f"{_OWN_HEAD}psp_modules.{m[1]}.1.{'conv' if m[2] == '1' else 'bn'}.",
    ),
    (r"^(aux_decoder|decoder)\.((?:(?:lateral_|fpn_)?convs\.\d)|(?:fpn_)?bottleneck)\.([01])\.", _in_sequence),
    (r"^decoder\.", _OWN_HEAD),
    (r"^aux_decoder\.", "auxiliary_head."),
)

UPERNET: dict[str, KeyMap] = {
    "PaddleViT": partial(_network, SWIN["PaddleViT"], "encoder.", _UPERNET_PADDLEVIT),
    **{
        f"{naming} ({kind})": partial(_network, to_ours, BACKBONE, rules)
        for naming, kind, to_ours, rules in (
            ("the authors'", "Swin", SWIN["the authors'"], _UPERNET_MMSEGMENTATION),
            ("the authors'", "ConvNeXt", CONVNEXT["the authors'"], _UPERNET_MMSEGMENTATION),
            ("the authors'", "PVTv2", PVT_V2["the authors'"], ()),
            ("mmsegmentation", "Swin", _swin_from_mmsegmentation, _UPERNET_MMSEGMENTATION),
            ("mmsegmentation", "ConvNeXt", _convnext_from_mmsegmentation, _UPERNET_MMSEGMENTATION),
            ("mmsegmentation", "ViT", partial(rename, rules=_VIT_MMSEGMENTATION), _UPERNET_MMSEGMENTATION),
            ("Hugging Face", "Swin", SWIN["Hugging Face"], _UPERNET_HUGGINGFACE),
            ("Hugging Face", "ConvNeXt", CONVNEXT["Hugging Face"], _UPERNET_HUGGINGFACE),
        )
    },
}
