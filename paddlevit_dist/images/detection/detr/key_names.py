"""Parameter names of other DETRs: the authors' and those of transformers, whose layout changed twice."""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping, Optional

import numpy as np

from ....contracts.model import KeyMap
from ...models.key_names import RESNET, renamed
from ..detector import COCO_CATEGORIES

_BACKBONE = "backbone."
_PROJECTIONS = ("q_proj", "k_proj", "v_proj")
COCO_OUTPUTS = 92  # of the authors' classifiers: a class for each number up to COCO's largest id, and "no object"
ROWS_TAKEN = (
    f"of the classifier's {COCO_OUTPUTS} outputs, one for each id of COCO's categories and 'no object', those of the "
    f"{len(COCO_CATEGORIES)} categories were taken, in the order of their ids"
)

_AUTHORS = ((r"^backbone\.0\.body\.", _BACKBONE),)

_OF_MODEL = r"^(?:detr\.)?(?:model\.)?"
_LAYER = _OF_MODEL + r"(encoder|decoder)\.layers\.(\d+)\."
_IN_LAYER = r"transformer.\1.layers.\2."
_HUGGINGFACE = (
    (_OF_MODEL + r"backbone\.conv_encoder\.model\.", _BACKBONE),  # transformers 4, timm's or its own ResNet
    (_OF_MODEL + r"backbone\.model\.", _BACKBONE),  # transformers 5
    (_OF_MODEL + r"query_position_embeddings\.", "query_embed."),
    (_OF_MODEL + r"input_projection\.", "input_proj."),
    (_LAYER + r"self_attn\.o_proj\.", _IN_LAYER + "self_attn.out_proj."),
    (_LAYER + r"encoder_attn\.(?:out|o)_proj\.", _IN_LAYER + "multihead_attn.out_proj."),
    (_LAYER + r"encoder_attn\.", _IN_LAYER + "multihead_attn."),
    (_LAYER + r"self_attn_layer_norm\.", _IN_LAYER + "norm1."),
    (_LAYER + r"encoder_attn_layer_norm\.", _IN_LAYER + "norm2."),
    (
        _LAYER + r"final_layer_norm\.",
        lambda m: f"transformer.{m[1]}.layers.{m[2]}.norm{2 if m[1] == 'encoder' else 3}.",
    ),
    (_LAYER + r"(?:mlp\.)?fc([12])\.", _IN_LAYER + r"linear\3."),
    (_LAYER, _IN_LAYER),
    (_OF_MODEL + r"decoder\.layernorm\.", "transformer.decoder.norm."),
    (r"^(?:detr\.)?class_labels_classifier\.", "class_embed."),
    (r"^(?:detr\.)?bbox_predictor\.", "bbox_embed."),
)


def _with_our_backbone(state: Mapping[str, Any]) -> Dict[str, Any]:
    """The names after ``backbone.`` from torchvision's, timm's or transformers' to ours."""
    own = {name[len(_BACKBONE) :]: value for name, value in state.items() if name.startswith(_BACKBONE)}
    others = {name: value for name, value in state.items() if not name.startswith(_BACKBONE)}
    return {**{_BACKBONE + name: value for name, value in RESNET["Hugging Face"](own).items()}, **others}


def _split(state: Mapping[str, Any]) -> Dict[str, Any]:
    """The joint projection of queries, keys and values, one below the other, as three."""
    result = {}
    for name, value in state.items():
        found = re.fullmatch(r"(.*)\.in_proj_(weight|bias)", name)
        if found and value.ndim > 0 and len(value) % len(_PROJECTIONS) == 0:
            parts = np.split(value, len(_PROJECTIONS))
            result.update({f"{found[1]}.{part}.{found[2]}": own for part, own in zip(_PROJECTIONS, parts)})
        else:
            result[name] = value
    return result


def _from_authors(state: Mapping[str, Any]) -> Dict[str, Any]:
    """Our names for those of facebookresearch/detr."""
    return _split(_with_our_backbone(renamed(state, _AUTHORS)))


def _from_huggingface(state: Mapping[str, Any]) -> Dict[str, Any]:
    """Our names for those of ``DetrForObjectDetection`` in transformers 4 and 5, with its own ResNet or timm's."""
    return _with_our_backbone(renamed(state, _HUGGINGFACE))


DETR: Dict[str, KeyMap] = {
    "the authors'": _from_authors,
    "Hugging Face": _from_huggingface,
}


def rows_of_categories(value: np.ndarray, num_classes: int) -> Optional[np.ndarray]:
    """The authors' classifier, weight (embed_dim, 92) or bias (92,), with the outputs of COCO's 80 categories, whose
    ids are their numbers in it, and "no object"; None for other shapes."""
    if num_classes != len(COCO_CATEGORIES) or value.shape[-1] != COCO_OUTPUTS:
        return None
    return value[..., [*COCO_CATEGORIES, COCO_OUTPUTS - 1]]
