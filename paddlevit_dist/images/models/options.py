"""The dimensions of an image model that keys of MODEL set, under the names that the model has for them."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from ...errors import UserError
from ...models import model_options

# Keys of MODEL with the option that they are; the first that the model has.
_DIMENSIONS = {
    "PATCH_SIZE": ("patch_size",),
    "EMBED_DIM": ("embed_dim", "embed_dims"),
    "NUM_HEADS": ("num_heads",),
    "ATTN_HEAD_SIZE": ("attn_head_size",),
    "DEPTH": ("depth",),
    "DEPTHS": ("depths",),
    "DIMS": ("dims",),
    "WINDOW_SIZE": ("window_size",),
    "MLP_RATIO": ("mlp_ratio", "mlp_ratios"),
    "SR_RATIO": ("reductions",),
    "QKV_BIAS": ("qkv_bias",),
    "INIT_VALUES": ("init_values",),
    "DEPTH_TOKEN_ONLY": ("class_depth",),
    "LINEAR": ("is_linear",),
}
_RATES = {"DROPOUT": "dropout", "ATTENTION_DROPOUT": "attention_dropout", "DROPPATH": "drop_path"}


def configured_options(model: Any) -> Tuple[Dict[str, Any], List[str]]:
    """Options for ``create_model`` from the section MODEL, and a notice where they differ from the variant.

    Explicit keys win over the variant that MODEL.NAME stands for.

    Raises:
        UserError: a key that is set, and that the model has no option for.
    """
    known = model_options(model.NAME)
    options, differing = {}, []
    for key, names in _DIMENSIONS.items():
        value = model[key]
        if value is None:
            continue
        value = tuple(value) if isinstance(value, (list, tuple)) else value
        option = next((name for name in names if name in known.defaults), None)
        if option is None:
            if known.fixed.get(names[0]) == value:
                continue
            raise UserError(f"MODEL.{key} {value}: {model.NAME} has no such option; leave it out")
        options[option] = value
        default = known.defaults[option]
        default = tuple(default) if isinstance(default, (list, tuple)) else default
        if option in known.of_variant and value != default:
            differing.append(f"MODEL.{key} {value} instead of {default}")
    for key, option in _RATES.items():
        if model[key]:  # 0 is every model's default, and not every model has all three
            if option not in known.defaults:
                raise UserError(f"MODEL.{key} {model[key]}: {model.NAME} has no such option; leave it out")
            options[option] = model[key]
    if model.NAME == model.TYPE or not differing:  # the bare family name stands for no particular variant
        return options, []
    return options, [f"note: {model.NAME} with {', '.join(differing)} (explicit keys win over the variant's)"]
