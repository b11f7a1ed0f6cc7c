"""The options of an image model that keys of MODEL set, under the model's own names."""

from collections.abc import Mapping
from typing import Any

from ..core.runtime.errors import UserError
from ..core.tasks.model_factory import join_options, model_options
from ..core.tasks.task import Task
from .settings import MODEL_KEYS

# A key sets the option of its name in lower case, or the first of these that the model has.
_OTHER_NAMES = {
    "EMBED_DIM": ("embed_dim", "embed_dims"),
    "MLP_RATIO": ("mlp_ratio", "mlp_ratios"),
    "SR_RATIO": ("reductions",),
    "DEPTH_TOKEN_ONLY": ("class_depth",),
    "LINEAR": ("is_linear",),
    "DROPPATH": ("drop_path",),
}
_NAMES = {key: _OTHER_NAMES.get(key, (key.lower(),)) for key in MODEL_KEYS}


def configured_options(task: Task) -> tuple[dict[str, Any], list[str]]:
    """Collect options for ``build_network`` from the section MODEL of the task's configuration.

    Returns also notices: of keys that the model has no option for, and of explicit keys that differ from the variant
    named by MODEL.NAME and win.

    Raises:
        UserError: one number is given where the model takes one for each stage, or the other way round, or for another
            number of stages than there are; MODEL.OPTIONS has a name that the model lacks, or that a key sets.
    """
    model: Any = task.config.MODEL
    model_info = model_options(model.NAME)
    options, differing, notices = {}, [], [f"note: {notice}" for notice in model_info.notices]
    for key, names in _NAMES.items():
        value = model[key]
        if value == MODEL_KEYS[key].default:  # None, or a rate of 0, which not every model has
            continue
        value = tuple(value) if isinstance(value, (list, tuple)) else value
        option = next((name for name in names if name in model_info.defaults), None)
        if option is None:
            if model_info.fixed.get(names[0]) != value:
                notices.append(f"MODEL.{key} {value}: no effect: {model.NAME} has no such option")
            continue
        if option in (model.OPTIONS or {}):
            raise UserError(
                f"MODEL.OPTIONS.{option}: MODEL.{key} {value} sets it, too: keep one; MODEL.{key} null sets none"
            )
        options[option] = value
        default = model_info.defaults[option]
        default = tuple(default) if isinstance(default, (list, tuple)) else default
        if default is not None and isinstance(value, tuple) != isinstance(default, tuple):
            takes = f"a number for each stage, such as {list(default)}" if isinstance(default, tuple) else "one number"
            shown = list(value) if isinstance(value, tuple) else value
            raise UserError(f"MODEL.{key} {shown}: {model.NAME} takes {takes}")
        if option in model_info.variant and value != default:
            differing.append(f"MODEL.{key} {value} instead of {default}")
    if "BACKBONE" in model and model.BACKBONE is not None:
        if "backbone" not in model_info.defaults:
            raise UserError(f"MODEL.BACKBONE {model.BACKBONE}: {model.NAME} has no such option; remove it")
        options["backbone"] = model.BACKBONE
    options = join_options(task, options)
    _require_equal_stages(model.NAME, {**model_info.defaults, **options})
    if model.NAME != model.TYPE and differing:  # the bare family name is not a particular variant
        notices.append(f"note: {model.NAME} with {', '.join(differing)} (explicit keys win over the variant's)")
    return options, notices


def _require_equal_stages(model_name: str, options: Mapping[str, Any]) -> None:
    of_stages = {
        key: options[name]
        for key, names in _NAMES.items()
        for name in names
        if isinstance(options.get(name), (list, tuple))
    }
    if len(set(map(len, of_stages.values()))) > 1:
        settings = ", ".join(f"MODEL.{key} {list(sizes)}" for key, sizes in of_stages.items())
        raise UserError(f"{model_name} takes a number for each of its stages: give lists of one length in {settings}")
