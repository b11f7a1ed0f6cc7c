"""IMPORTS: the users' modules that a configuration names, read first, as they may register names and keys."""

import dataclasses
import sys
from collections.abc import Sequence

from ..registry import plugins
from ..registry.names import REGISTRY
from ..runtime.errors import UserError
from ..runtime.printing import one_line
from .key import show
from .key_tables import common_tables
from .table import COMMAND_LINE, KeySetting, index_keys
from .values import InvalidValue, read_word

_NAME = "IMPORTS"


def load(settings: Sequence[KeySetting], should_print: bool = False) -> list[str]:
    """Import the modules that IMPORTS names, and return their names without repetition.

    A module that the command line names replaces one of the same name in a file, which may come from another machine.
    ``should_print``: print on stderr what is imported, before it is: users of -show_config do not expect code to run. A
    command line is read several times.
    Raises UserError: a module does not exist; ``OwnCodeError``: it raises an exception.
    """
    modules = _list_modules(settings)
    on_command_line = {plugins.last_part(module) for module, setting in modules if setting.source == COMMAND_LINE}
    chosen = [
        (module, setting)
        for module, setting in modules
        if setting.source == COMMAND_LINE or plugins.last_part(module) not in on_command_line
    ]
    for name, setting in chosen:
        is_flag = setting.source == COMMAND_LINE
        if should_print and plugins.find_missing([name]):
            origin = "-import" if is_flag else f"{_NAME} of {setting.origin}"
            print(one_line(f"note: importing {name}, as {origin} says: this runs its code"), file=sys.stderr)
        plugins.load([name], "-import" if is_flag else f"{setting.origin}: {_NAME}")
    return list(dict.fromkeys(module for module, _ in chosen))


def merge_imports(settings: list[KeySetting], names: Sequence[str]) -> list[KeySetting]:
    """Replace the last IMPORTS setting with the names that ``load`` returned."""
    imports = [setting for setting in settings if setting.name == _NAME]
    others = [setting for setting in settings if setting.name != _NAME]
    return [*others, dataclasses.replace(imports[-1], value=list(names))] if imports else others


def explain_missing(settings: Sequence[KeySetting], error: UserError | None = None) -> list[str]:
    """Report modules that only the settings of a run or of weights name, so that they are not imported.

    Returns:
        A notice of modules that an evaluation may not need.

    Raises:
        UserError: something is unknown, or a training run would continue without them; the message says how to import
            them. Otherwise ``error``.
    """
    modules = _list_modules(settings)
    missing = plugins.find_missing([name for name, _ in modules])
    values = {setting.name: setting.value for setting in settings}
    unknown = [
        f"{key} {show(values[key])} is not known"
        for key, table in (("TASK", REGISTRY.tasks), ("MODEL.NAME", REGISTRY.models))
        if key in values and str(values[key]) not in table
    ]
    advice = f"add {' '.join(f'-import={name}' for name in missing)}"
    if missing and (error is not None or unknown):
        reason = unknown[0] if unknown else str(error)
        raise UserError(f"{reason}: these weights were trained with your own code: {advice}") from None
    if error is not None:
        raise error
    if not missing:
        return []
    origin = next(setting.origin for name, setting in modules if name in missing)
    place = f"{origin}: {_NAME} has {', '.join(missing)}, imported only if the command names it"
    if read_word(values.get("EVAL")) is not True:
        raise UserError(f"{place}: {advice}")
    return [f"{place}: if the results need it, {advice}"]


def _list_modules(settings: Sequence[KeySetting]) -> list[tuple[str, KeySetting]]:
    modules: list[tuple[str, KeySetting]] = []
    for setting in settings:
        if setting.name == _NAME:
            modules += [(name, setting) for name in _parse(setting.value, setting)]
    return modules


def _parse(value: object, setting: KeySetting) -> list[str]:
    key = index_keys(common_tables())[_NAME]
    try:
        return key.parse([] if value is None else value)
    except InvalidValue:
        raise UserError(f"{setting.origin}: {_NAME} is {show(value)}: expected {key.expected()}") from None
