"""Configuration keys of the self-test and the profiler."""

from typing import Any

from ...core.runtime.errors import UserError
from ...core.settings.every_run import RunSettings
from ...core.settings.key import Flag, Range, key, rows
from ...core.settings.table import ConfigView, KeyTable, leaves, put


class DebugSettings(RunSettings):
    """Keys of the self-test and the profiler."""

    PROFILE: int | None = key(
        None,
        "number of updates to record with Paddle's profiler; writes tables of operators and a trace to SAVE/profile",
        Range(low=1, high=1000),
        training_only=True,
        flag=Flag("profile", "N", "training", 9, "record N updates with Paddle's profiler"),
    )
    SELFTEST: bool = key(
        False,
        "compare a few updates on one device, on all devices, and with batches accumulated on one device",
        effect="start",
        flag=Flag("selftest", None, "run", 5, "compare one device with all devices"),
    )


def _check(config: ConfigView[DebugSettings]) -> list[str]:
    jobs = [config[name] for name in ("EVAL", "SELFTEST") if config.values[name]]
    if len(jobs) > 1:
        raise UserError(f"{' and '.join(jobs)}: a run does only one of them; remove the other")
    return []


TABLE = KeyTable(rows(DebugSettings), check=_check, is_optional=True)


def change_settings(config: RunSettings, values: dict[str, Any]) -> RunSettings:
    """Return a frozen copy of the configuration with other values; keys that it does not have are ignored."""
    other = config.clone()
    other.defrost()
    for name in values.keys() & leaves(other).keys():
        put(other, name, values[name])
    other.freeze()
    return other
