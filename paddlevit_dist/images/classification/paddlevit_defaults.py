"""PaddleViT's files of models leave most of a recipe to the ``config.py`` beside each model: what stands there.

Source: github.com/BR-IDL/PaddleViT, image_classification/*/config.py, without what every file of theirs states, what
only places a run, and what is the default here, too. Mean and deviation are those that the variants expect.
"""

from collections.abc import Mapping
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
# What all files of theirs state, and what none does: files of ours say what data they are for.
_STATED = ("MODEL.NAME", "DATA.IMAGE_SIZE", "DATA.CROP_PCT")
_DIMENSIONS = ("MODEL.PATCH_SIZE", "MODEL.EMBED_DIM", "MODEL.DIMS")
_NEVER = ("DATA.DATASET", "TASK")


def defaults_of(settings: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Whence, and the values, that files of PaddleViT's form leave to their model's config.py; ("", {}) for others.

    Args:
        settings: of the files, without the command line's.
    """
    kind = settings.get("MODEL.TYPE")
    family = _FAMILIES.get(str(kind.value).lower()) if kind is not None else None
    is_one_file = len({setting.source for setting in settings.values()}) == 1
    has_form = is_one_file and all(name in settings for name in _STATED) and not settings.keys().isdisjoint(_DIMENSIONS)
    if family is None or not has_form or not settings.keys().isdisjoint(_NEVER):
        return "", {}
    folder, values = family
    return f"PaddleViT's {folder}/config.py", values
