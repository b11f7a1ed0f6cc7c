"""Keys and values of PaddleViT's YAML files that mean nothing here or are spelled otherwise."""

from __future__ import annotations

from .key import Setting

RENAMED_KEYS = {
    "MODEL.STAGE_DEPTHS": "MODEL.DEPTHS",
    "MODEL.STAGE_DEPTH": "MODEL.DEPTHS",
    "MODEL.MIXER.PATCH_SIZE": "MODEL.PATCH_SIZE",
    "MODEL.MIXER.EMBED_DIM": "MODEL.EMBED_DIM",
    "MODEL.MIXER.DEPTH": "MODEL.DEPTH",
}

RENAMED_VALUES = {("TRAIN.LR_SCHEDULER.NAME", "warmupcosine"): "cosine"}

DROPPED = {  # no effect on any number
    "TAG": "runs are told apart by their output folder",
    "LOCAL_RANK": "each process knows its rank",
    "TRAIN.MODEL_EMA_FORCE_CPU": "averaged weights live on the device",
    "TRAIN.RANDOM_ERASE_SPLIT": "images are erased one by one, as PaddleViT does it, and a batch has no clean part",
}


NAMES = frozenset((*DROPPED, *RENAMED_KEYS))


def judge(given: dict[str, Setting]) -> list[str]:
    """Notices about the settings ``given`` under PaddleViT's NAMES."""
    return [
        f"{setting.place}: {name} does not exist here and is not needed: {DROPPED[name]}"
        for name, setting in given.items()
    ]
