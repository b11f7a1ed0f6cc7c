"""Configuration keys of an evaluation without leaked samples."""

from ...core.runtime.errors import UserError
from ...core.settings.every_run import RunSettings
from ...core.settings.key import Flag, PathText, key, rows
from ...core.settings.table import ConfigView, KeyTable


class LeakageSettings(RunSettings):
    """Keys of an evaluation without leaked samples."""

    EXCLUDE_LEAKED: bool = key(
        False,
        "search the training set for the evaluated samples, and score them again without those found",
        effect="place",
        flag=Flag("exclude_leaked", None, "data", 11, "also evaluate without samples seen in training"),
    )
    TRAIN_DATA: PathText | None = key(
        None,
        "training set that EXCLUDE_LEAKED searches, as in DATA.DATA_PATH; default: the configured training set",
        effect="place",
    )


def _check(config: ConfigView[LeakageSettings]) -> list[str]:
    if config.values.EXCLUDE_LEAKED and not config.values.EVAL:
        raise UserError(f"{config['EXCLUDE_LEAKED']} is for an evaluation: add -eval, or drop -exclude_leaked")
    if config.values.EXCLUDE_LEAKED and config.values.DATA.SPLIT == "train":
        raise UserError(
            f"{config['EXCLUDE_LEAKED']}: {config['DATA.SPLIT']} is the training set: evaluate another split"
        )
    if config.values.TRAIN_DATA is not None and not config.values.EXCLUDE_LEAKED:
        return [f"{config['TRAIN_DATA']}: no effect without EXCLUDE_LEAKED"]
    return []


TABLE = KeyTable(rows(LeakageSettings), check=_check, is_optional=True)
