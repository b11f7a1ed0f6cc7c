"""The keys of the self-test and of replaying an update, and the recipe that an update's file implies."""

import os
from collections.abc import Sequence
from typing import Any

from ..config.key import Given, Key, Range, Setting, Table, optional
from ..config.table import leaves, put
from ..runtime.errors import UserError

_KEYS = (
    optional(
        "PROFILE",
        "int",
        "record this many updates with Paddle's profiler: tables of operators and a trace in SAVE/profile",
        Range(low=1, high=1000),
    ),
    optional(
        "REPLAY",
        "path",
        "file of an update that was not finite (SAVE/not_finite): run it again and name the layer where it begins",
    ),
    Key(
        "SELFTEST",
        False,
        "bool",
        "train a few updates with one device, with all, and with batches accumulated on one, and compare",
    ),
)


def _check(given: Given) -> list[str]:
    chosen = [given[name] for name in ("EVAL", "REPLAY", "SELFTEST") if given.values[name]]
    if len(chosen) > 1:
        raise UserError(f"{' and '.join(chosen)}: a run does one of them; leave the others out")
    return []


TABLE = Table(_KEYS, training=("PROFILE",), effects={"start": ("REPLAY", "SELFTEST")}, check=_check)


def settings_of_replay(settings: Sequence[Setting]) -> str | None:
    """The settings that were kept beside the update that -replay names.

    Raises:
        UserError: there are none.
    """
    named = [setting for setting in settings if setting.name == "REPLAY"]
    file = os.path.expanduser(str(named[-1].value)) if named else ""
    if not os.path.isfile(file):
        return None
    beside = os.path.join(os.path.dirname(file), "config.yaml")
    if not os.path.isfile(beside):
        raise UserError(f"-replay={file}: there is no config.yaml beside it: name the run's with -cfg=FILE")
    return beside


def changed(config: Any, values: dict[str, Any]) -> Any:
    """The frozen configuration with other values for those of these keys that it has."""
    config = config.clone()
    config.defrost()
    for name in values.keys() & dict(leaves(config)).keys():
        put(config, name, values[name])
    config.freeze()
    return config
