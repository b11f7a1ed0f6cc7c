"""The keys of an evaluation without leaks."""

from ..runtime.errors import UserError
from ..settings.every_run import RunSettings
from ..settings.key import ConfigView, KeyTable
from ..settings.section import PathText, key, rows


class LeakageSettings(RunSettings):
    EXCLUDE_LEAKED: bool = key(
        False, "an evaluation looks for its samples in the training set, and is scored once more without those found"
    )
    TRAIN_DATA: PathText | None = key(
        None, "the training set in which they are looked for, as DATA.DATA_PATH names one"
    )


def _check(given: ConfigView[LeakageSettings]) -> list[str]:
    if given.values.EXCLUDE_LEAKED and not given.values.EVAL:
        raise UserError(f"{given['EXCLUDE_LEAKED']} is for an evaluation: add -eval, or leave it out")
    if given.values.EXCLUDE_LEAKED and given.values.DATA.SPLIT == "train":
        raise UserError(f"{given['EXCLUDE_LEAKED']}: {given['DATA.SPLIT']} is the training set: evaluate another split")
    return []


TABLE = KeyTable(rows(LeakageSettings), effects={"place": ("EXCLUDE_LEAKED", "TRAIN_DATA")}, check=_check)
