"""Names of RF-DETR's authors (``LWDETR`` in roboflow/rf-detr), whose backbone has transformers' names of DINOv2."""

from collections.abc import Mapping
from typing import Any

from ....core.checkpoint.weights import from_torch_names
from ....core.tasks.model import KeyMap
from ...models.foundation_names import FOUNDATION, OF_HUGGING_FACE
from ...models.key_names import Rule, rename, split_projections, without

_ENCODER, _BACKBONE = "backbone.0.encoder.encoder.", "backbone."
_EMPTY = ("_kp_active_mask",)  # a buffer of their networks for keypoints
_PROJECTOR = r"^backbone\.0\.projector\."
_LAYER = r"^transformer\.decoder\.layers\.(\d+)\."
_RULES: tuple[Rule, ...] = (
    (_PROJECTOR + r"stages\.0\.", "projector."),
    (_PROJECTOR + r"stages\.(\d+)\.", lambda match: f"other_projectors.{int(match[1]) - 1}."),
    (_PROJECTOR + r"stages_sampling\.(\d+)\.(\d+)\.0\.", r"scalers.\1.\2."),
    (r"^segmentation_head\.", "mask_head."),
    (_LAYER + r"self_attn\.out_proj\.", r"layers.\1.self_attn.o_proj."),
    (_LAYER + r"cross_attn\.", r"layers.\1.encoder_attn."),
    (_LAYER + r"norm1\.", r"layers.\1.self_attn_layer_norm."),
    (_LAYER + r"norm2\.", r"layers.\1.encoder_attn_layer_norm."),
    (_LAYER + r"norm3\.", r"layers.\1.final_layer_norm."),
    (_LAYER + r"linear([12])\.", r"layers.\1.mlp.fc\2."),
    (_LAYER, r"layers.\1."),
    (r"^transformer\.(?:decoder\.)?", ""),
)


def _from_authors(state: Mapping[str, Any]) -> dict[str, Any]:
    encoder = {name[len(_ENCODER) :]: value for name, value in state.items() if name.startswith(_ENCODER)}
    backbone = from_torch_names(FOUNDATION[OF_HUGGING_FACE[0]](encoder))
    rest = {name: state[name] for name in without(state, _EMPTY) if not name.startswith(_ENCODER)}
    ours = {_BACKBONE + name: value for name, value in backbone.items()}
    return {**ours, **from_torch_names(rename(split_projections(rest), _RULES))}


RFDETR: dict[str, KeyMap] = {"the authors'": _from_authors}
