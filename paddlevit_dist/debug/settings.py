"""The keys of the self-test and the profile."""

from typing import Any

from ..runtime.errors import UserError
from ..settings.every_run import RunSettings
from ..settings.key import ConfigView, KeyTable, Range
from ..settings.section import key, rows
from ..settings.table import leaves, put


class DebugSettings(RunSettings):
    PROFILE: int | None = key(
        None,
        "record this many updates with Paddle's profiler: tables of operators and a trace in SAVE/profile",
        Range(low=1, high=1000),
    )
    SELFTEST: bool = key(
        False, "train a few updates with one device, with all, and with batches accumulated on one, and compare"
    )


def _check(given: ConfigView[DebugSettings]) -> list[str]:
    chosen = [given[name] for name in ("EVAL", "SELFTEST") if given.values[name]]
    if len(chosen) > 1:
        raise UserError(f"{' and '.join(chosen)}: a run does one of them; leave the others out")
    return []


TABLE = KeyTable(rows(DebugSettings), training=("PROFILE",), effects={"start": ("SELFTEST",)}, check=_check)


def change_settings(config: RunSettings, values: dict[str, Any]) -> RunSettings:
    """The frozen configuration with other values for those of these keys that it has."""
    other = config.clone()
    other.defrost()
    for name in values.keys() & dict(leaves(other)).keys():
        put(other, name, values[name])
    other.freeze()
    return other
