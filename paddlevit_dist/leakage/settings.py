"""The keys of an evaluation without leaks."""

from ..runtime.errors import UserError
from ..settings.key import ConfigView, Key, Table, optional

_KEYS = (
    Key(
        "WITHOUT_LEAKS",
        False,
        "bool",
        "an evaluation looks for its samples in the training set, and is scored once more without those found",
    ),
    optional("TRAIN_DATA", "path", "the training set in which they are looked for, as DATA.DATA_PATH names one"),
)


def _check(given: ConfigView) -> list[str]:
    if given.values.WITHOUT_LEAKS and not given.values.EVAL:
        raise UserError(f"{given['WITHOUT_LEAKS']} is for an evaluation: add -eval, or leave it out")
    if given.values.WITHOUT_LEAKS and given.values.DATA.SPLIT == "train":
        raise UserError(f"{given['WITHOUT_LEAKS']}: {given['DATA.SPLIT']} is the training set: evaluate another split")
    return []


TABLE = Table(_KEYS, effects={"place": ("WITHOUT_LEAKS", "TRAIN_DATA")}, check=_check)
