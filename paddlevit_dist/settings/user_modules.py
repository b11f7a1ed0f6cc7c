"""IMPORTS: the modules of users that a configuration names. They are imported before anything else of it is looked at,
since they may register the names and keys that the rest of it uses."""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from .. import plugins
from ..registry import MODELS, TASKS
from ..runtime.errors import UserError
from ..runtime.printing import one_line
from .every_run import RunSettings
from .key import COMMAND_LINE, InvalidValue, KeySetting, show
from .section import rows

KEY = next(row for row in rows(RunSettings) if row.name == "IMPORTS")


def load(settings: Sequence[KeySetting], tells: bool = False) -> list[str]:
    """Import what they name, and return it, without repetition.

    A module that the command line names takes the place of one of the same name in a file, which may have been written
    elsewhere.

    Args:
        tells: say on stderr what is imported before it is: whoever only looks does not expect code to be run.
    Raises:
        UserError: a module is not there; ``OwnCodeError``: it raises an exception.
    """
    named = _list_named(settings)
    last = {plugins.last_part(name) for name, setting in named if setting.source == COMMAND_LINE}
    kept = [of for of in named if of[1].source == COMMAND_LINE or plugins.last_part(of[0]) not in last]
    for name, setting in kept:
        is_flag = setting.source == COMMAND_LINE
        if tells:
            where = "-import" if is_flag else f"{KEY.name} of {setting.place}"
            print(one_line(f"note: {name} is imported, as {where} says: its code is run"), file=sys.stderr)
        plugins.load([name], "-import" if is_flag else f"{setting.place}: {KEY.name}")
    return list(dict.fromkeys(name for name, _ in kept))


def merge_imports(settings: list[KeySetting], names: Sequence[str]) -> list[KeySetting]:
    """The settings with IMPORTS as ``load`` returned it, in place of the last one."""
    own = [setting for setting in settings if setting.name == KEY.name]
    others = [setting for setting in settings if setting.name != KEY.name]
    return [*others, dataclasses.replace(own[-1], value=list(names))] if own else others


def explain_missing(settings: Sequence[KeySetting], error: UserError | None = None) -> None:
    """For a configuration that came with weights, whose modules are not imported for it: they would be code in data.

    Args:
        error: why it could not be read.
    Raises:
        UserError: it needs a module that this command has not imported; the message names it. Else ``error``.
    """
    lacking = plugins.missing([name for name, _ in _list_named(settings)])
    values = {setting.name: setting.value for setting in settings}
    unknown = [
        f"{key} {show(values[key])} is not known"
        for key, table in (("TASK", TASKS), ("MODEL.NAME", MODELS))
        if key in values and values[key] not in table
    ]
    if lacking and (error is not None or unknown):
        flags = " ".join(f"-import={name}" for name in lacking)
        why = unknown[0] if unknown else str(error)
        raise UserError(f"{why}: these weights were trained with code of yours: add {flags}") from None
    if error is not None:
        raise error


def _list_named(settings: Sequence[KeySetting]) -> list[tuple[str, KeySetting]]:
    found: list[tuple[str, KeySetting]] = []
    for setting in settings:
        if setting.name == KEY.name:
            found += [(name, setting) for name in _parse(setting.value, setting)]
    return found


def _parse(value: Any, setting: KeySetting) -> list[str]:
    try:
        return KEY.parse([] if value is None else value)
    except InvalidValue:
        raise UserError(f"{setting.place}: {KEY.name} is {show(value)}: expected {KEY.expected()}") from None
