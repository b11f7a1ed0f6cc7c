"""PaddleViT's files of models leave most of a recipe to the ``config.py`` beside each model: what stands there.

Source: github.com/BR-IDL/PaddleViT, image_classification/*/config.py, without what every file of theirs states, what
only places a run, and what is the default here, too. Mean and deviation are those that the variants expect.
"""

import re
from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any

_RECIPE = {
    "TRAIN.LINEAR_SCALED_LR": 512,
    "TRAIN.SMOOTHING": 0.1,
    "TRAIN.RAND_AUGMENT": True,
    "TRAIN.COLOR_JITTER": 0.4,
    "TRAIN.MIXUP_ALPHA": 0.8,
    "TRAIN.CUTMIX_ALPHA": 1.0,
    "TRAIN.RANDOM_ERASE_PROB": 0.25,
}
_RATES = {"TRAIN.BASE_LR": 5e-4, "TRAIN.WARMUP_EPOCHS": 5, **_RECIPE}
# MODEL.TYPE in small letters -> the folder of that config.py, and its values.
_FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("ViT", {"TRAIN.BASE_LR": 3e-3, "TRAIN.WARMUP_EPOCHS": 32, "TRAIN.WEIGHT_DECAY": 0.3}),
    "deit": ("DeiT", {**_RATES, "TRAIN.MODEL_EMA": True}),
    "cait": ("CaiT", {**_RATES, "MODEL.DROPPATH": 0.1, "TRAIN.MODEL_EMA": True}),
    "pvtv2": ("PVTv2", {**_RATES, "MODEL.DROPPATH": 0.1, "TRAIN.END_LR": 1e-5}),
    "swin": (
        "SwinTransformer",
        {
            **_RATES,
            "DATA.CROP_PCT": 0.9,
            "MODEL.DROPPATH": 0.1,
            "TRAIN.WARMUP_EPOCHS": 20,
            "TRAIN.WARMUP_START_LR": 5e-7,
            "TRAIN.END_LR": 5e-6,
            "TRAIN.GRAD_CLIP": 5.0,
        },
    ),
    "convnext": (
        "ConvNeXt",
        {
            **_RECIPE,
            "TRAIN.BASE_LR": 4e-3,
            "TRAIN.WARMUP_EPOCHS": 20,
            "TRAIN.END_LR": 1e-5,
            "TRAIN.MODEL_EMA": True,
            "TRAIN.MODEL_EMA_DECAY": 0.9999,
        },
    ),
    "mixer": (
        "MLP-Mixer",
        {
            **_RECIPE,
            "MODEL.DROPPATH": 0.1,
            "TRAIN.WARMUP_EPOCHS": 20,
            "TRAIN.WEIGHT_DECAY": 0.1,
            "TRAIN.END_LR": 1e-5,
        },
    ),
}
# What all files of theirs state, and what none does: a run's ``config.yaml`` names its task, and copies of recipes for
# digits their gray images.
_STATED = ("MODEL.NAME", "DATA.IMAGE_SIZE", "DATA.CROP_PCT")
_DIMENSIONS = ("MODEL.PATCH_SIZE", "MODEL.EMBED_DIM", "MODEL.DIMS")
_NEVER = ("TASK", "DATA.IMAGE_CHANNELS")
_PLAIN_DEIT = re.compile(r"deit_(tiny|small|base)_patch16_(224|384)")


def get_defaults(files: Sequence[Mapping[str, Any]], own: Sequence[Mapping[str, Any]]) -> tuple[str, Mapping[str, Any]]:
    """Return where values come from that files of PaddleViT's form leave to their model's config.py, and the values;
    ("", {}) for other files.

    One value takes the place of the file's: files for a distilled DeiT call it as the plain one, and PaddleViT's
    program for distillation builds it with a second token and head.

    Args:
        files: settings of each file that a command line names, those of BASE first, in which later ones win.
        own: those of them that are not recipes of this package.
    """
    stated = ChainMap(*map(dict, reversed(files)))
    folder = _find_family(own, stated)
    if not folder:
        return "", {}
    values = {name: value for name, value in dict(_FAMILIES.values())[folder].items() if name not in stated}
    kind, plain = stated.get("TRAIN.DISTILLATION_TYPE"), _PLAIN_DEIT.fullmatch(str(stated["MODEL.NAME"].value))
    if folder == "DeiT" and plain and kind is not None and kind.value != "none":
        values["MODEL.NAME"] = f"deit_{plain[1]}_distilled_patch16_{plain[2]}"
    return f"PaddleViT's {folder}/config.py", values


def _find_family(own: Sequence[Mapping[str, Any]], stated: Mapping[str, Any]) -> str:
    """Return PaddleViT's folder of the model that files of its form are for; empty for other files. One of them alone
    has the form, or those together that are not recipes of this package."""
    kind = stated.get("MODEL.TYPE")
    family = _FAMILIES.get(str(kind.value).lower()) if kind is not None else None
    return family[0] if family is not None and any(map(_has_form, [*own, ChainMap(*map(dict, own))])) else ""


def _has_form(stated: Mapping[str, Any]) -> bool:
    has_all, has_dimension = all(name in stated for name in _STATED), any(name in stated for name in _DIMENSIONS)
    return has_all and has_dimension and not any(name in stated for name in _NEVER)
