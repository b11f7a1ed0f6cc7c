"""Keys and values of PaddleViT's YAML files that mean nothing here, are spelled otherwise, or are not built yet."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import UserError
from .key import NONE_WORDS, show
from .setting import Setting

RENAMED_VALUES = {("TRAIN.LR_SCHEDULER.NAME", "warmupcosine"): "cosine"}

DROPPED = {  # no effect on any number
    "TAG": "runs are told apart by their output folder",
    "LOCAL_RANK": "each process knows its rank",
    "TRAIN.MODEL_EMA_FORCE_CPU": "averaged weights live on the device",
    "TRAIN.RANDOM_ERASE_SPLIT": "images are erased one by one, as PaddleViT does it, and a batch has no clean part",
}


class NotBuilt(NamedTuple):
    """A switch of training: what it switches on, the values that leave it off, a key that is able to switch it off."""

    what: str
    neutral: tuple[Any, ...]
    master: str | None = None


NOT_BUILT: dict[str, NotBuilt] = {
    "TRAIN.DISTILLATION_TYPE": NotBuilt("distillation", ("none",)),
    "TRAIN.TEACHER_MODEL": NotBuilt("distillation", (None,), "TRAIN.DISTILLATION_TYPE"),
}

OPTIONS = {  # read by the switch beside them, without effect while it is off
    "TRAIN.DISTILLATION_ALPHA": "TRAIN.DISTILLATION_TYPE",
    "TRAIN.DISTILLATION_TAU": "TRAIN.DISTILLATION_TYPE",
}

NAMES = frozenset((*DROPPED, *NOT_BUILT, *OPTIONS))


def judge(given: dict[str, Setting], evaluation: bool) -> list[str]:
    """Notices about the settings ``given`` under PaddleViT's NAMES.

    Raises:
        UserError: the run trains, and one of them would change the training.
    """
    notices = []
    without_effect: dict[str, list[str]] = {}
    for name, setting in given.items():
        if name in DROPPED:
            notices.append(f"{setting.place}: {name} does not exist here and is not needed: {DROPPED[name]}")
        elif name in OPTIONS:
            if not _is_off(OPTIONS[name], given):
                without_effect.setdefault(setting.source, []).append(name)
        elif _is_off(name, given):
            continue
        elif evaluation:
            without_effect.setdefault(setting.source, []).append(name)
        else:
            row = NOT_BUILT[name]
            raise UserError(
                f"{setting.place}: {name} is {show(setting.value)}, but {row.what} is not supported yet: "
                f"remove the key or set it to {row.neutral[0]}"
            )
    notices += [
        f"{source}: not supported yet, no effect: {', '.join(names)}" for source, names in without_effect.items()
    ]
    return notices


def _is_off(name: str, given: dict[str, Setting]) -> bool:
    """Whether the switch ``name`` is given and off, by itself or by its master."""
    row = NOT_BUILT[name]
    if row.master is not None and row.master in given and _is_off(row.master, given):
        return True
    return name in given and _plain(given[name].value) in (None, *(_plain(value) for value in row.neutral))


def _plain(value: Any) -> Any:
    """Texts that stand for None or a number become that, so that values compare."""
    if isinstance(value, str):
        if value.strip().lower() in NONE_WORDS:
            return None
        try:
            return float(value)
        except ValueError:
            return value
    return value
