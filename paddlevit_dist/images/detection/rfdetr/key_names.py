"""Names of RF-DETR's authors (``LWDETR`` in roboflow/rf-detr), whose backbone has transformers' names of DINOv2."""

from collections.abc import Mapping
from typing import Any

from ....core.checkpoint.weights import from_torch_names
from ....core.tasks.model import KeyMap
from ...models.foundation_names import FOUNDATION, OF_HUGGING_FACE
from ...models.key_names import rename, split_projections

_ENCODER, _BACKBONE = "backbone.0.encoder.encoder.", "backbone."
_LAYER = r"^transformer\.decoder\.layers\.(\d+)\."
_RULES = (
    (r"^backbone\.0\.projector\.stages\.0\.", "projector."),
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
    rest = {name: value for name, value in state.items() if not name.startswith(_ENCODER)}
    ours = {_BACKBONE + name: value for name, value in backbone.items()}
    return {**ours, **from_torch_names(rename(split_projections(rest), _RULES))}


RFDETR: dict[str, KeyMap] = {"the authors'": _from_authors}
