"""The dimensions of an image model that keys of MODEL set, under the model's own names."""

from collections.abc import Mapping
from typing import Any

from ..runtime.errors import UserError
from ..tasks.model_factory import model_options
from .settings import ImageModelSection

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


def configured_options(model: ImageModelSection) -> tuple[dict[str, Any], list[str]]:
    """Collect options for ``create_model`` from the section MODEL.

    Returns also notices: of keys that the model has no option for, and of explicit keys that differ from the variant
    named by MODEL.NAME and win.

    Raises:
        UserError: one number is given where the model takes one for each stage, or the other way round, or for another
            number of stages than there are.
    """
    model_info = model_options(model.NAME)
    options, differing, notices = {}, [], [f"note: {notice}" for notice in model_info.notices]
    for key, names in _DIMENSIONS.items():
        value = model[key]
        if value is None:
            continue
        value = tuple(value) if isinstance(value, (list, tuple)) else value
        option = next((name for name in names if name in model_info.defaults), None)
        if option is None:
            if model_info.fixed.get(names[0]) != value:
                notices.append(f"MODEL.{key} {value}: no effect: {model.NAME} has no such option")
            continue
        options[option] = value
        default = model_info.defaults[option]
        default = tuple(default) if isinstance(default, (list, tuple)) else default
        if default is not None and isinstance(value, tuple) != isinstance(default, tuple):
            takes = f"a number for each stage, such as {list(default)}" if isinstance(default, tuple) else "one number"
            shown = list(value) if isinstance(value, tuple) else value
            raise UserError(f"MODEL.{key} {shown}: {model.NAME} takes {takes}")
        if option in model_info.variant and value != default:
            differing.append(f"MODEL.{key} {value} instead of {default}")
    _require_equal_stages(model.NAME, {**model_info.defaults, **options})
    for key, option in _RATES.items():
        if model[key]:  # 0 is every model's default, and not every model has all three
            if option in model_info.defaults:
                options[option] = model[key]
            else:
                notices.append(f"MODEL.{key} {model[key]}: no effect: {model.NAME} has no such option")
    if model.NAME != model.TYPE and differing:  # the bare family name is not a particular variant
        notices.append(f"note: {model.NAME} with {', '.join(differing)} (explicit keys win over the variant's)")
    return options, notices


def _require_equal_stages(model_name: str, options: Mapping[str, Any]) -> None:
    of_stages = {
        key: options[name]
        for key, names in _DIMENSIONS.items()
        for name in names
        if isinstance(options.get(name), (list, tuple))
    }
    if len(set(map(len, of_stages.values()))) > 1:
        settings = ", ".join(f"MODEL.{key} {list(sizes)}" for key, sizes in of_stages.items())
        raise UserError(f"{model_name} takes a number for each of its stages: give lists of one length in {settings}")
