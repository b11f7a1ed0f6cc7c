"""MiT, the encoder of SegFormer: a PVTv2 of other dimensions, and the names that others give it.

Source: Xie et al., SegFormer: Simple and Efficient Design for Semantic Segmentation with Transformers, 2021 (arXiv
2105.15203, section 3.1, table 6). In the authors' code norms that follow a convolution add 1e-5 to the variance and all
others 1e-6, as PVTv2's do; mmsegmentation adds 1e-6 in all, transformers 1e-5.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...core.tasks.model import KeyMap, Variants
from .key_names import join_projections, rename
from .pretrained_input import ExpectedInput, list_inputs
from .pvt_v2 import PyramidVisionTransformer

# Xie et al., SegFormer, 2021, table 6: PVTv2 with other depths and hidden widths. The head's width, its table 6 too.
_COMMON = {"embed_dims": (64, 128, 320, 512), "num_heads": (1, 2, 5, 8), "mlp_ratios": (4, 4, 4, 4)}
_DEPTHS = {"b1": (2, 2, 2, 2), "b2": (3, 4, 6, 3), "b3": (3, 4, 18, 3), "b4": (3, 8, 27, 3), "b5": (3, 6, 40, 3)}

VARIANTS: Variants = {
    "mit_b0": dict(_COMMON, embed_dims=(32, 64, 160, 256), depths=(2, 2, 2, 2)),
    **{f"mit_{size}": dict(_COMMON, depths=depths) for size, depths in _DEPTHS.items()},
}


def _as_rows(value: np.ndarray) -> np.ndarray:
    """Return a convolution of 1 x 1 as the (out, in) weight of a linear layer."""
    return value.reshape(value.shape[:2]) if value.ndim == 4 and value.shape[2:] == (1, 1) else value


def _patches(match: "re.Match[str]") -> str:
    place = "patch_embed" if match[1] == "0" else f"stages.{match[1]}.downsample"
    return f"{place}.{'proj' if match[2].startswith('proj') else 'norm'}."


_OF_MIT = r"^(?:segformer\.)?(?:encoder\.)?"
_BLOCK = _OF_MIT + r"block\.(\d+)\.(\d+)\."
_HUGGINGFACE = (
    (_OF_MIT + r"patch_embeddings\.(\d+)\.(proj|layer_norm)\.", _patches),
    (_OF_MIT + r"layer_norm\.(\d+)\.", r"stages.\1.norm."),
    (_BLOCK + r"layer_norm_([12])\.", r"stages.\1.blocks.\2.norm\3."),
    (_BLOCK + r"attention\.self\.query\.", r"stages.\1.blocks.\2.attn.q."),
    (_BLOCK + r"attention\.self\.layer_norm\.", r"stages.\1.blocks.\2.attn.norm."),
    (_BLOCK + r"attention\.self\.", r"stages.\1.blocks.\2.attn."),
    (_BLOCK + r"attention\.output\.dense\.", r"stages.\1.blocks.\2.attn.proj."),
    (_BLOCK + r"mlp\.dense([12])\.", r"stages.\1.blocks.\2.mlp.fc\3."),
    (_BLOCK + r"mlp\.dwconv\.dwconv\.", r"stages.\1.blocks.\2.mlp.dwconv."),
    (r"^classifier\.", "head."),
)

_LAYER = r"^layers\.(\d+)\.1\.(\d+)\."
_IN_BLOCK = r"stages.\1.blocks.\2."
_LAYERS = (
    (r"^layers\.(\d+)\.0\.(projection|norm)\.", _patches),
    (r"^layers\.(\d+)\.2\.", r"stages.\1.norm."),
    (_LAYER + r"(attn|norm[12])\.", _IN_BLOCK + r"\3."),
)
_MMSEGMENTATION = (
    (_LAYER + r"attn\.attn\.out_proj\.", _IN_BLOCK + "attn.proj."),
    (_LAYER + r"attn\.attn\.", _IN_BLOCK + "attn."),
    (_LAYER + r"ffn\.layers\.0\.", _IN_BLOCK + "mlp.fc1."),
    (_LAYER + r"ffn\.layers\.1\.", _IN_BLOCK + "mlp.dwconv."),
    (_LAYER + r"ffn\.layers\.4\.", _IN_BLOCK + "mlp.fc2."),
    *_LAYERS,
)
_PADDLEVIT = (
    (_LAYER + r"ffn\.fc([12])\.", _IN_BLOCK + r"mlp.fc\3."),
    (_LAYER + r"ffn\.pe_conv\.", _IN_BLOCK + "mlp.dwconv."),
    *_LAYERS,
)


def _from_mmsegmentation(state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename mmsegmentation's MiT: one projection for queries, keys and values, convolutions of 1 x 1 in the MLP."""
    result = {}
    for name, value in rename(state, _MMSEGMENTATION).items():
        match = re.fullmatch(r"(.*\.attn)\.in_proj_(weight|bias)", name)
        if match and value.ndim > 0 and len(value) % 3 == 0:
            third = len(value) // 3
            result[f"{match[1]}.q.{match[2]}"] = value[:third]
            result[f"{match[1]}.kv.{match[2]}"] = value[third:]
        else:
            result[name] = _as_rows(value) if ".mlp.fc" in name else value
    return result


def _from_paddlevit(state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename PaddleViT's MiT, whose Linear weights are (in, out) and whose MLP consists of convolutions, (out, in)."""
    ours = rename(state, _PADDLEVIT)
    return {name: _as_rows(value).T if ".mlp.fc" in name and value.ndim == 4 else value for name, value in ours.items()}


KEY_MAPS: dict[str, KeyMap] = {
    "the authors'": PyramidVisionTransformer.key_maps["the authors'"],  # PaddleSeg's too
    # SegformerForImageClassification of transformers 4, also without the classifier
    "Hugging Face": lambda state: join_projections(rename(state, _HUGGINGFACE), ("key", "value"), "kv"),
    "mmsegmentation": _from_mmsegmentation,
    "PaddleViT": _from_paddlevit,
}


class MixVisionTransformer(PyramidVisionTransformer):
    """MiT classifier; it takes the arguments of ``PyramidVisionTransformer``."""

    variants = VARIANTS
    expected_inputs = list_inputs(VARIANTS, ExpectedInput())  # timm has no MiT, which was trained with PVT's code
    key_maps = KEY_MAPS
