"""Parameter names of DETRPose's authors, and the outputs of their classifiers."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....core.checkpoint.foreign_names import from_torch_names
from ....core.tasks.model import KeyMap
from ...detection.rtdetr.key_names import RTDETR
from ...models.key_names import rename, split_projections

# The authors' classifiers have an output for each id of COCO's categories up to 1, the person's, and their embedding of
# labels for denoising has a row for each of 80 classes and one more. Source: ``num_classes`` of
# configs/detrpose/include/detrpose_hgnetv2.py and ``prepare_for_cdn`` (SebastianJanampa/DETRPose, a6ca202).
AUTHORS_OUTPUTS, _PERSON, AUTHORS_LABELS = 2, 1, 81
PERSON_TAKEN = (
    "of the classifiers' 2 outputs, for the ids 0 and 1 of COCO's categories, the output of the person was used"
)

_OWNER = "the authors'"
_COMPUTED = (".anchors", ".valid_mask", ".dim_t", ".up", ".reg_scale")
_LAYER = r"^transformer\.decoder\.layers\.(\d+)\."
_RULES = (
    (_LAYER + r"(within|across)_attn\.out_proj\.", r"decoder.layers.\1.\2_attn.o_proj."),
    (_LAYER + r"linear([12])\.", r"decoder.layers.\1.mlp.fc\2."),
    (_LAYER + r"norm2\.", r"decoder.layers.\1.final_norm."),
    (r"^transformer\.decoder\.half_pose_ref_point_head\.", "decoder.query_pos_head."),
    (r"^transformer\.pre_pose_embed\.", "decoder.pre_pose_head."),
    (r"^transformer\.lqe_embed\.", "decoder.lqe_layers."),
    (r"^transformer\.(class|pose)_embed\.", r"decoder.\1_embed."),
    (r"^transformer\.enc_output\.", "enc_output.0."),
    (r"^transformer\.enc_output_norm\.", "enc_output.1."),
    (r"^transformer\.enc_out_class_embed\.", "enc_score_head."),
    (r"^transformer\.enc_pose_embed\.", "enc_pose_head."),
    (r"^transformer\.label_enc\.", "denoising_class_embed."),
    (r"^transformer\.pose_enc\.", "denoising_pose_embed."),
    (r"^transformer\.(?:decoder\.)?", lambda match: "decoder." if "decoder" in match[0] else ""),
)


def _from_authors(state: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {name: value for name, value in state.items() if not name.endswith(_COMPUTED)}
    transformer = {name: value for name, value in parameters.items() if name.startswith("transformer.")}
    # The backbone and the encoder have the names of D-FINE's.
    rest = RTDETR[_OWNER]({name: value for name, value in parameters.items() if name not in transformer})
    return {**rest, **from_torch_names(rename(split_projections(transformer), _RULES))}


def select_person(value: np.ndarray, num_classes: int) -> np.ndarray | None:
    """Select the person's output from a parameter of the authors' classifiers, for a network of one class."""
    if num_classes != 1 or value.shape[-1] != AUTHORS_OUTPUTS:
        return None
    return value[..., _PERSON : _PERSON + 1]


def select_labels(value: np.ndarray, num_classes: int) -> np.ndarray | None:
    """Select the rows of the first classes from the authors' embedding of labels, and its last; one class: a person."""
    if len(value) != AUTHORS_LABELS or num_classes >= AUTHORS_LABELS:
        return None
    first = _PERSON if num_classes == 1 else 0
    return np.concatenate([value[first : first + num_classes], value[-1:]])


DETRPOSE: dict[str, KeyMap] = {_OWNER: _from_authors}
