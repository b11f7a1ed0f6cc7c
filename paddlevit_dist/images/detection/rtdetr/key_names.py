"""Parameter names of other projects' RT-DETR, RT-DETRv2 and D-FINE, all converted to transformers 5's names first.

The projects are the authors' (PyTorch), PaddleDetection, and transformers 4, whose names published checkpoints have.
Sources: the state dicts of lyuwenyu/RT-DETR, Peterande/D-FINE and PaddleDetection's ``RTDETRTransformer``, and the
names in transformers' conversions.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ....core.checkpoint.foreign_names import from_torch_names
from ....core.tasks.model import KeyMap
from ...models.key_names import rename, split_projections
from ..detector import COCO_CATEGORIES
from ..key_names import select_category_rows

# Outputs of classifiers trained on Objects365, whose categories count from 1; and the outputs, from 0, of COCO's 80
# categories, in COCO's order. Source: ``obj365_ids`` of Peterande/D-FINE.
_OBJECTS365_OUTPUTS = 366
_COCO_IN_OBJECTS365 = (
    "0 46 5 58 114 55 116 65 21 40 176 127 249 24 56 139 92 78 99 96 144 295 178 180 38 39 13 43 120 219 148 173 165 "
    "154 137 113 145 146 204 8 35 10 88 84 93 26 112 82 265 104 141 152 234 143 150 97 2 50 25 75 98 153 37 73 115 132 "
    "106 61 163 134 277 81 133 18 94 30 169 70 328 226"
)
_OBJECTS365_ROWS = [int(number) + 1 for number in _COCO_IN_OBJECTS365.split()]
OBJECTS365_TAKEN = (
    f"of {_OBJECTS365_OUTPUTS} outputs for Objects365, the outputs of COCO's {len(_OBJECTS365_ROWS)} categories were "
    "used, in COCO's order"
)

_BACKBONE = "model.backbone.model."
_LAYERS = {"conv": "convolution", "bn": "normalization", "norm": "normalization"}

# Computed: positions, the scales of points, and parameters that the decoder shares with other modules.
_COMPUTED = (".anchors", ".valid_mask", "num_points_scale", "n_points_scale", "num_batches_tracked")
_TWICE = ("decoder.decoder.up", "decoder.decoder.reg_scale")
_HEADS_ABOVE = re.compile(r"^(?:class|bbox)_embed\.")  # transformers' copies of the decoder's heads


def _in_block(match: re.Match[str]) -> str:
    """Rename a ResNet block's layer: 2a, 2b, 2c are convolutions; shortcuts from stage 2 on start with pooling."""
    stage, block, part, pooled, layer = match.groups()
    place = "shortcut.1" if pooled else "shortcut"
    if part.startswith("branch"):
        place = f"layer.{'abc'.index(part[-1])}"
    return f"{_BACKBONE}encoder.stages.{stage}.layers.{block}.{place}.{_LAYERS[layer]}."


_BACKBONES = (
    (
        r"^backbone\.conv1\.conv1_([1-3])\.(conv|norm)\.",
        lambda m: f"{_BACKBONE}embedder.embedder.{int(m[1]) - 1}.{_LAYERS[m[2]]}.",
    ),
    (r"^backbone\.res_layers\.(\d+)\.blocks\.(\d+)\.(branch2[abc]|short)(\.conv)?\.(conv|norm)\.", _in_block),
    (r"^backbone\.stem\.(\w+)\.(conv|bn)\.", lambda m: f"{_BACKBONE}embedder.{m[1]}.{_LAYERS[m[2]]}."),
    (r"^backbone\.stem\.", _BACKBONE + "embedder."),
    (r"^backbone\.stages\.(.*)\.(conv|bn)\.", lambda m: f"{_BACKBONE}encoder.stages.{m[1]}.{_LAYERS[m[2]]}."),
    (r"^backbone\.stages\.", _BACKBONE + "encoder.stages."),
)
_NECKS = (
    (r"^encoder\.input_proj\.(\d+)\.(?:conv|0)\.", r"model.encoder_input_proj.\1.0."),
    (r"^encoder\.input_proj\.(\d+)\.(?:norm|1)\.", r"model.encoder_input_proj.\1.1."),
    (r"^encoder\.encoder\.", "model.encoder.aifi."),
    (r"^encoder\.(fpn|pan)_blocks\.(\d+)\.cv([14])\.", r"model.encoder.\1_blocks.\2.conv\3."),
    (
        r"^encoder\.(fpn|pan)_blocks\.(\d+)\.cv([23])\.0\.",
        lambda m: f"model.encoder.{m[1]}_blocks.{m[2]}.csp_rep{int(m[3]) - 1}.",
    ),
    (r"^encoder\.(fpn|pan)_blocks\.(\d+)\.cv([23])\.1\.", r"model.encoder.\1_blocks.\2.conv\3."),
    (r"^encoder\.downsample_convs\.(\d+)\.0\.cv([12])\.", r"model.encoder.downsample_convs.\1.conv\2."),
    (r"^encoder\.", "model.encoder."),
)
_DECODERS = (
    (r"^decoder\.decoder\.", "model.decoder."),
    (r"^decoder\.dec_score_head\.", "model.decoder.class_embed."),
    (r"^decoder\.dec_bbox_head\.", "model.decoder.bbox_embed."),
    (r"^decoder\.(pre_bbox_head\.|query_pos_head\.|up$|reg_scale$)", r"model.decoder.\1"),
    (r"^decoder\.input_proj\.(\d+)\.(?:conv|0)\.", r"model.decoder_input_proj.\1.0."),
    (r"^decoder\.input_proj\.(\d+)\.(?:norm|1)\.", r"model.decoder_input_proj.\1.1."),
    (r"^decoder\.enc_output\.(?:proj|0)\.", "model.enc_output.0."),
    (r"^decoder\.enc_output\.(?:norm|1)\.", "model.enc_output.1."),
    (r"^decoder\.", "model."),
)
_LAYER = r"^model\.(encoder\.(?:aifi|encoder)\.\d+|decoder)\.layers\.(\d+)\."
_NORMS = {"encoder": ("self_attn", "final"), "decoder": ("self_attn", "encoder_attn", "final")}


def _norm(match: re.Match[str]) -> str:
    kinds = _NORMS["decoder" if match[1] == "decoder" else "encoder"]
    return f"model.{match[1]}.layers.{match[2]}.{kinds[int(match[3]) - 1]}_layer_norm."


# Layers of the transformer, from any project's names to transformers 5's.
_IN_LAYERS = (
    (_LAYER + r"self_attn\.out_proj\.", r"model.\1.layers.\2.self_attn.o_proj."),
    (_LAYER + r"cross_attn\.", r"model.\1.layers.\2.encoder_attn."),
    (_LAYER + r"(?:linear|fc|mlp\.fc)([12])\.", r"model.\1.layers.\2.mlp.fc\3."),
    (_LAYER + r"mlp\.layers\.([01])\.", lambda m: f"model.{m[1]}.layers.{m[2]}.mlp.fc{int(m[3]) + 1}."),
    (_LAYER + r"norm([123])\.", _norm),
)
_AIFI = ((r"^model\.encoder\.encoder\.", "model.encoder.aifi."),)

_BLOCKS = "abcdefghijklmnopqrstuvwxyz"


def _paddle_block(match: re.Match[str]) -> str:
    """Rename a ResNet block; ``res4c`` is the third block of the third stage, and so is ``res4b2``."""
    stage, letter, number = match.groups()
    return f"backbone.res_layers.{int(stage) - 2}.blocks.{number or _BLOCKS.index(letter)}."


_PADDLE = (
    (r"^backbone\.res[2-5]\.res([2-5])([a-z])(\d*)\.", _paddle_block),
    (r"^neck\.", "encoder."),
    (r"^transformer\.", "decoder."),
)
_PADDLE_NORMS = ((r"\.bn\.", ".norm."),)


def from_huggingface(state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename transformers 4's and 5's parameters to transformers 5's, with ``mlp.fc1`` and ``mlp.fc2`` in both."""
    parameters = {
        name: value for name, value in state.items() if not name.endswith(_COMPUTED) and not _HEADS_ABOVE.match(name)
    }
    return rename(rename(parameters, _AIFI), _IN_LAYERS)


def from_authors(state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the parameters of lyuwenyu/RT-DETR and Peterande/D-FINE to transformers 5's."""
    parameters = {name: value for name, value in state.items() if not name.endswith((*_COMPUTED, *_TWICE))}
    return from_huggingface(rename(split_projections(parameters), (*_BACKBONES, *_NECKS, *_DECODERS)))


def from_paddle_detection(state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename PaddleDetection's parameters, and give its embedding of classes the row of zeros it gets at run time."""
    ours = from_authors(rename(rename(state, _PADDLE), _PADDLE_NORMS))
    name = "model.denoising_class_embed.weight"
    if name in ours:
        ours[name] = np.concatenate([ours[name], np.zeros_like(ours[name][:1])])
    return ours


_EMBEDDER = re.escape(_BACKBONE) + r"embedder\.embedder\."
_STAGE = re.escape(_BACKBONE) + r"encoder\.stages\.(\d+)\.layers\.(\d+)\."
_OURS = (
    (rf"^{_EMBEDDER}2\.normalization\.", "backbone.bn1."),
    (
        rf"^{_EMBEDDER}(\d)\.(convolution|normalization)\.",
        lambda m: f"backbone.conv1.{3 * int(m[1]) + (m[2] == 'normalization')}.",
    ),
    (
        rf"^{_STAGE}layer\.(\d)\.(convolution|normalization)\.",
        lambda m: f"backbone.layer{int(m[1]) + 1}.{m[2]}.{'conv' if m[4] == 'convolution' else 'bn'}{int(m[3]) + 1}.",
    ),
    (
        rf"^{_STAGE}shortcut\.(?:1\.)?(convolution|normalization)\.",
        lambda m: f"backbone.layer{int(m[1]) + 1}.{m[2]}.downsample.{1 if m[3] == 'convolution' else 2}.",
    ),
    (rf"^{re.escape(_BACKBONE)}(?:embedder|encoder)\.(.*)$", lambda m: _rename_hgnet(m[0], m[1])),
    (r"^model\.", ""),
)
_OPTIONS = (".decoder.up", ".decoder.reg_scale")  # options that D-FINE's authors store with its parameters


def _rename_hgnet(name: str, rest: str) -> str:
    rest = rest.replace(".convolution.", ".conv.").replace(".normalization.", ".bn.")
    return f"backbone.{'stem.' if f'{_BACKBONE}embedder' in name else ''}{rest}"


def _with_model(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Restore the prefix ``model.`` if no name has it."""
    if any(name.startswith("model.") for name in state):
        return state
    return {f"model.{name}": value for name, value in state.items()}


def _to_ours(owner: KeyMap) -> KeyMap:
    """Return a renaming from a project's names to this package's."""

    def to_our_names(state: Mapping[str, Any]) -> dict[str, Any]:
        parameters = {name: value for name, value in owner(state).items() if not name.endswith(_OPTIONS)}
        return from_torch_names(rename(parameters, _OURS))

    return to_our_names


def select_objects365_rows(value: np.ndarray, num_classes: int, is_embedding: bool = False) -> np.ndarray | None:
    """Select COCO's 80 categories from the last axis of a parameter of Objects365's classifier; None for others.

    An embedding of classes is (366 + 1, channels), whose last row is the padding.
    """
    if is_embedding:
        rows, outputs, axis = [*_OBJECTS365_ROWS, _OBJECTS365_OUTPUTS], _OBJECTS365_OUTPUTS + 1, 0
    else:
        rows, outputs, axis = _OBJECTS365_ROWS, _OBJECTS365_OUTPUTS, -1
    return select_category_rows(value, num_classes, outputs, rows, axis)


def objects365_class_names(classes: int) -> list[str] | None:
    """Return COCO's name of each Objects365 category, "" if COCO lacks it; None for another number of classes."""
    if classes != _OBJECTS365_OUTPUTS:
        return None
    coco_names = dict(zip(_OBJECTS365_ROWS, COCO_CATEGORIES.values()))
    return [coco_names.get(row, "") for row in range(classes)]


RTDETR: dict[str, KeyMap] = {
    "Hugging Face": _to_ours(lambda state: from_huggingface(_with_model(state))),
    "the authors'": _to_ours(from_authors),
    "PaddleDetection": _to_ours(from_paddle_detection),
}
