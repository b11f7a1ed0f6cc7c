"""Parameter names of other owners' detectors: of DETR's authors, of transformers, whose layout changed twice, and of
torchvision; and which outputs of their classifiers are COCO's categories."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...checkpoint.load import from_torch_names
from ...tasks.model import KeyMap
from ..models.key_names import RESNET, SWIN, rename, split_projections
from .detector import COCO_CATEGORIES

# Outputs of published classifiers: a class for each number up to COCO's largest id, and one besides.
DETR_OUTPUTS, TORCHVISION_OUTPUTS = 92, 91
DETR_ROWS = [*COCO_CATEGORIES, DETR_OUTPUTS - 1]  # of the categories, and of "no object", the last
TORCHVISION_ROWS = [0, *COCO_CATEGORIES]  # of the background, the first, and of the categories
ROWS_TAKEN = (
    f"of the classifier's {DETR_OUTPUTS} outputs, one for each id of COCO's categories and 'no object', those of the "
    f"{len(COCO_CATEGORIES)} categories were taken, in the order of their ids"
)

_BACKBONE, _BODY = "backbone.", "backbone.body."
_CLASSIFIERS = ("fc.", "head.")  # of the classifiers that a backbone is taken from

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


def _with_our_backbone(state: Mapping[str, Any]) -> dict[str, Any]:
    """The names after ``backbone.`` from torchvision's, timm's or transformers' to ours."""
    own = {name[len(_BACKBONE) :]: value for name, value in state.items() if name.startswith(_BACKBONE)}
    others = {name: value for name, value in state.items() if not name.startswith(_BACKBONE)}
    return {**{_BACKBONE + name: value for name, value in RESNET["Hugging Face"](own).items()}, **others}


def _from_authors(state: Mapping[str, Any]) -> dict[str, Any]:
    """Our names for those of facebookresearch/detr."""
    return split_projections(_with_our_backbone(rename(state, _AUTHORS)))


def _from_huggingface(state: Mapping[str, Any]) -> dict[str, Any]:
    """Our names for those of ``DetrForObjectDetection`` in transformers 4 and 5, with its own ResNet or timm's."""
    return _with_our_backbone(rename(state, _HUGGINGFACE))


DETR: dict[str, KeyMap] = {
    "the authors'": _from_authors,
    "Hugging Face": _from_huggingface,
}


# torchvision's published files have the names of its version 1, its layers have others since.
_TORCHVISION = (
    (r"^(rpn\.head\.conv)\.(weight|bias)$", r"\1.0.0.\2"),
    (r"^(backbone\.fpn\.(?:inner|layer)_blocks\.\d+)\.(weight|bias)$", r"\1.0.\2"),
    (r"^roi_heads\.mask_head\.mask_fcn(\d+)\.", lambda match: f"roi_heads.mask_head.{int(match[1]) - 1}.0."),
)

_EPSILON = 1e-5  # that our fixed batch norms add to the variance
_CLASSIFIER_BIAS = "roi_heads.box_predictor.cls_score.bias"


def _from_torchvision(state: Mapping[str, Any]) -> dict[str, Any]:
    ours = rename(from_torch_names(state), _TORCHVISION)
    if _seems_published(ours):
        # torchvision gives the fixed batch norms of its published detectors (COCO_V1) an epsilon of 0 when it loads
        # them; a variance that is smaller by ours means the same, wherever these weights go from here.
        ours.update({name: ours[name] - _EPSILON for name in ours if name.endswith("._variance")})
    return ours


def _seems_published(ours: Mapping[str, Any]) -> bool:
    """A guess by the number of outputs: files do not say with which epsilon they were trained."""
    return _CLASSIFIER_BIAS in ours and len(ours[_CLASSIFIER_BIAS]) == TORCHVISION_OUTPUTS


def notices_of_torchvision(ours: Mapping[str, Any]) -> list[str]:
    """Say what the names ``_from_torchvision`` has made do not say: which epsilon was taken for their batch norms."""
    if not _seems_published(ours) or not any(name.endswith("._variance") for name in ours):
        return []
    return [
        f"{TORCHVISION_OUTPUTS} outputs, taken for weights that torchvision published for COCO: fixed batch norms "
        f"compute without an epsilon; where they were trained with {_EPSILON:g}, add that to each running_var before"
    ]


def _of_the_backbone(owner: KeyMap) -> KeyMap:
    """From a classifier's state, of which the backbone is used."""

    def to_our_names(state: Mapping[str, Any]) -> dict[str, Any]:
        own = owner(state).items()
        return {_BODY + name: value for name, value in own if not name.startswith(_CLASSIFIERS)}

    return to_our_names


MASK_RCNN: dict[str, KeyMap] = {
    "torchvision": _from_torchvision,
    **{f"{owner} (backbone)": _of_the_backbone(to_ours) for owner, to_ours in {**RESNET, **SWIN}.items()},
}


def published_names(first: int, last: int) -> list[str]:
    """COCO's categories by the numbers ``first`` to ``last`` of a published classifier's classes, which are their ids;
    "" where no category has one."""
    return [COCO_CATEGORIES.get(own, "") for own in range(first, last + 1)]


def rows_of_categories(
    value: np.ndarray, num_classes: int, outputs: int, rows: Sequence[int], axis: int = -1, for_each: int = 1
) -> np.ndarray | None:
    """A parameter of a published classifier with the outputs of COCO's 80 categories, whose ids are their numbers in
    it, and the one besides; None for any other.

    Args:
        value: has the outputs along ``axis``.
        outputs: of the classifier; rows: those to take.
        for_each: numbers of each output, one behind the other.
    """
    if num_classes != len(COCO_CATEGORIES) or value.shape[axis] != for_each * outputs:
        return None
    return value.take((for_each * np.array(rows)[:, None] + np.arange(for_each)).reshape(-1), axis=axis)
