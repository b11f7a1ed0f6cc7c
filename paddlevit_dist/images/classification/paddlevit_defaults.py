"""PaddleViT's files of models leave most of a recipe to the ``config.py`` beside each model: what stands there.

Source: github.com/BR-IDL/PaddleViT, image_classification/*/config.py, without what every file of theirs states, what
only places a run, and what is the default here, too. Mean and deviation are those that the variants expect.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ...config.key import COMMAND_LINE, Setting

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


def defaults_of(settings: Mapping[str, Setting]) -> Sequence[Setting]:
    """The values that a file of PaddleViT's form leaves to its model's config.py; none for other files."""
    kind = settings.get("MODEL.TYPE")
    family = _FAMILIES.get(str(kind.value).lower()) if kind is not None else None
    if kind is None or family is None or kind.source == COMMAND_LINE or kind.is_base:
        return []
    stated = {name for name, setting in settings.items() if setting.source == kind.source}
    others = {setting.source for setting in settings.values()} - {kind.source, COMMAND_LINE}
    has_form = stated.issuperset(_STATED) and not stated.isdisjoint(_DIMENSIONS) and stated.isdisjoint(_NEVER)
    if others or not has_form:
        return []
    folder, values = family
    source = f"PaddleViT's {folder}/config.py"
    return [
        Setting(name, value, source, kind.source, is_implied=True)
        for name, value in values.items()
        if name not in settings
    ]
