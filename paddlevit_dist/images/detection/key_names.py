"""Parameter names of DETR's authors', transformers' (three layouts) and torchvision's detectors, and COCO's outputs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...core.checkpoint.foreign_names import from_torch_names
from ...core.tasks.model import KeyMap
from ..models.key_names import rename, split_projections
from ..models.resnet import ResNet
from ..models.swin import SwinTransformer
from .detector import COCO_CATEGORIES

# Outputs of published classifiers: a class for each number up to COCO's largest id, and one more.
DETR_OUTPUTS, TORCHVISION_OUTPUTS = 92, 91
DETR_ROWS = [*COCO_CATEGORIES, DETR_OUTPUTS - 1]  # categories, and "no object", the last
TORCHVISION_ROWS = [0, *COCO_CATEGORIES]  # background, the first, and categories
ROWS_TAKEN = (
    f"of the classifier's {DETR_OUTPUTS} outputs, one for each id of COCO's categories and 'no object', the outputs of "
    f"the {len(COCO_CATEGORIES)} categories were used, in the order of their ids"
)

_BACKBONE, _BODY = "backbone.", "backbone.body."
_CLASSIFIERS = ("fc.", "head.")  # final layers of classifiers used as backbones

_AUTHORS = ((r"^backbone\.0\.body\.", _BACKBONE),)

_MODEL = r"^(?:detr\.)?(?:model\.)?"
_LAYER = _MODEL + r"(encoder|decoder)\.layers\.(\d+)\."
_IN_LAYER = r"transformer.\1.layers.\2."
_HUGGINGFACE = (
    (_MODEL + r"backbone\.conv_encoder\.model\.", _BACKBONE),  # transformers 4, ResNet of timm or transformers
    (_MODEL + r"backbone\.model\.", _BACKBONE),  # transformers 5
    (_MODEL + r"query_position_embeddings\.", "query_embed."),
    (_MODEL + r"input_projection\.", "input_proj."),
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
    (_MODEL + r"decoder\.layernorm\.", "transformer.decoder.norm."),
    (r"^(?:detr\.)?class_labels_classifier\.", "class_embed."),
    (r"^(?:detr\.)?bbox_predictor\.", "bbox_embed."),
)


def _with_our_backbone(state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the parameters after ``backbone.`` from torchvision's, timm's or transformers' names."""
    backbone = {name[len(_BACKBONE) :]: value for name, value in state.items() if name.startswith(_BACKBONE)}
    rest = {name: value for name, value in state.items() if not name.startswith(_BACKBONE)}
    return {**{_BACKBONE + name: value for name, value in ResNet.key_maps["Hugging Face"](backbone).items()}, **rest}


def _from_authors(state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the parameters of facebookresearch/detr."""
    return split_projections(_with_our_backbone(rename(state, _AUTHORS)))


def _from_huggingface(state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the parameters of ``DetrForObjectDetection`` in transformers 4 and 5."""
    return _with_our_backbone(rename(state, _HUGGINGFACE))


DETR: dict[str, KeyMap] = {
    "the authors'": _from_authors,
    "Hugging Face": _from_huggingface,
}


# torchvision's published files use the names of its version 1; its layers were renamed since.
_TORCHVISION = (
    (r"^(rpn\.head\.conv)\.(weight|bias)$", r"\1.0.0.\2"),
    (r"^(backbone\.fpn\.(?:inner|layer)_blocks\.\d+)\.(weight|bias)$", r"\1.0.\2"),
    (r"^roi_heads\.mask_head\.mask_fcn(\d+)\.", lambda match: f"roi_heads.mask_head.{int(match[1]) - 1}.0."),
)

_EPSILON = 1e-5  # our fixed batch norms add this to the variance
_CLASSIFIER_BIAS = "roi_heads.box_predictor.cls_score.bias"


def _from_torchvision(state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename torchvision's parameters, and correct the variances of its published detectors."""
    ours = rename(from_torch_names(state), _TORCHVISION)
    if _seems_published(ours):
        # torchvision sets the epsilon of fixed batch norms to 0 when it loads its published detectors (COCO_V1);
        # subtracting our epsilon from the variance has the same effect wherever these weights are used.
        ours.update({name: ours[name] - _EPSILON for name in ours if name.endswith("._variance")})
    return ours


def _seems_published(ours: Mapping[str, Any]) -> bool:
    """Guess from the number of outputs, since files do not contain their epsilon."""
    return _CLASSIFIER_BIAS in ours and len(ours[_CLASSIFIER_BIAS]) == TORCHVISION_OUTPUTS


def torchvision_notices(ours: Mapping[str, Any]) -> list[str]:
    """Return a notice on the epsilon assumed for the batch norms of torchvision's weights."""
    if not _seems_published(ours) or not any(name.endswith("._variance") for name in ours):
        return []
    return [
        f"{TORCHVISION_OUTPUTS} outputs, assumed to be torchvision's published weights for COCO: fixed batch norms "
        f"compute without an epsilon; if they were trained with {_EPSILON:g}, add it to each running_var first"
    ]


def _backbone_only(owner: KeyMap) -> KeyMap:
    """Return a renaming of a classifier's state that keeps only the backbone."""

    def to_our_names(state: Mapping[str, Any]) -> dict[str, Any]:
        parameters = owner(state).items()
        return {_BODY + name: value for name, value in parameters if not name.startswith(_CLASSIFIERS)}

    return to_our_names


_OF_BACKBONES = {**ResNet.key_maps, **SwinTransformer.key_maps}
MASK_RCNN: dict[str, KeyMap] = {
    "torchvision": _from_torchvision,
    **{f"{owner} (backbone)": _backbone_only(to_ours) for owner, to_ours in _OF_BACKBONES.items()},
}


def published_names(first: int, last: int) -> list[str]:
    """Return COCO's names of the ids, a published classifier's classes, ``first`` to ``last``; "" for unused ids."""
    return [COCO_CATEGORIES.get(id_, "") for id_ in range(first, last + 1)]


def select_category_rows(
    value: np.ndarray, num_classes: int, outputs: int, rows: Sequence[int], axis: int = -1, for_each: int = 1
) -> np.ndarray | None:
    """Select the outputs of COCO's 80 categories, and the extra one, from a parameter of a published classifier.

    Returns None if the parameter is not of a published classifier, or the model not for COCO.

    Args:
        value: the parameter, with the outputs along ``axis``.
        outputs: number of outputs of the published classifier.
        rows: outputs to select.
        for_each: values per output, consecutive.
    """
    if num_classes != len(COCO_CATEGORIES) or value.shape[axis] != for_each * outputs:
        return None
    return value.take((for_each * np.array(rows)[:, None] + np.arange(for_each)).reshape(-1), axis=axis)
