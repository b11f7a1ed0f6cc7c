"""Step 3 of 3: no two values contradict each other, and the run reads every key that was set."""

from collections.abc import Iterator
from typing import Any

from ..runtime.errors import UserError
from . import key_tables
from .every_run import RunSettings
from .table import (
    COMMAND_LINE,
    ConfigView,
    KeySetting,
    KeyTable,
    covers,
    default_config,
    find_key,
    find_tables,
    index_keys,
    leaves,
)

_MAX_LISTED = 5  # keys of another task in a message
_SAVED_SHARE = 0.8  # of the engine's keys: a file with more of them was saved by a run


def check(config: ConfigView[RunSettings]) -> list[str]:
    """Return notices about values that have no effect.

    Raises:
        UserError: two values contradict each other, or a key is set that the run does not read.
    """
    task = config.values.TASK
    tables = find_tables(config.values)
    if key_tables.find_owners(task) is None:  # a user's task, which may read keys of any table
        values = config.values
        chosen = [("task", task), ("dataset", values.DATA.DATASET), ("model", values.MODEL.NAME)]
        tables = [
            *key_tables.common_tables(),
            *(table for entry in chosen for table in key_tables.custom_tables(*entry)),
        ]
    saved = _find_saved_files(config)
    notices = _find_foreign_keys(config, saved)
    for table in tables:
        if table.applies(config.values):
            notices += table.check(config)
    return [*notices, *_report_ignored(config, tables, saved)]


def _find_saved_files(config: ConfigView[RunSettings]) -> set[str]:
    """Return the files that a run has saved: they contain every key, so their defaults are not choices of the user."""
    names = [key.name for table in key_tables.common_tables() for key in table.keys]
    sources = [config.settings[name].source for name in names if name in config.settings]
    return {source for source in sources if sources.count(source) > _SAVED_SHARE * len(names)} - {COMMAND_LINE}


def _find_foreign_keys(config: ConfigView[RunSettings], saved: set[str]) -> list[str]:
    """Return notices about keys of BASE files that only other tasks read; raise UserError if this run sets one."""
    task = config.values.TASK
    readable = index_keys(find_tables(config.values))
    wrong = [setting for name, setting in config.settings.items() if name not in readable]
    refused = [setting for setting in wrong if not setting.is_base and setting.source not in saved]
    if refused:
        more = ", ".join(f"{setting.name} ({setting.origin})" for setting in refused[1 : 1 + _MAX_LISTED])
        more += f" and {len(refused) - 1 - _MAX_LISTED} more" if len(refused) > 1 + _MAX_LISTED else ""
        raise UserError(
            f"{refused[0].origin}: {refused[0].name} is read by {_format_readers(refused[:1])}, not by {task}: "
            "remove it" + (f", and also {more}" if more else "")
        )
    notices = []
    for source in dict.fromkeys(setting.source for setting in wrong):
        group = [setting for setting in wrong if setting.source == source]
        names = f"{len(group)} keys" if source in saved else ", ".join(setting.name for setting in group)
        notices.append(f"{source}: no effect: {names}: read by {_format_readers(group)}, not by {task}")
    return notices


def _format_readers(settings: list[KeySetting]) -> str:
    readers = dict.fromkeys(reader for setting in settings for reader in key_tables.find_readers(setting.name))
    parts = []
    for kind in ("task", "dataset", "model"):
        names = [name for other, name in readers if other == kind]
        parts += [f"{kind}{'s' if len(names) > 1 else ''} {', '.join(names)}"] if names else []
    return ", ".join(parts) or "no task"


def _resolve_defaults(task: str, tables: list[KeyTable]) -> dict[str, Any]:
    """Return the values that a run of the task has without any setting, which a saved configuration lists."""
    values = default_config(task)
    for table in tables:
        if table.applies(values):
            table.resolve_defaults(values, {}, [])
    return leaves(values)


def _report_training_keys(config: ConfigView[RunSettings], names: set[str]) -> Iterator[str]:
    """Yield a line per key for training that the command line of an evaluation sets."""
    for name, setting in config.settings.items():
        if name in names and setting.source == COMMAND_LINE:
            yield f"{config[name]}: no effect: it is for training, and {config['EVAL']}"


def _report_ignored(config: ConfigView[RunSettings], tables: list[KeyTable], saved: set[str]) -> Iterator[str]:
    """Yield a line per key that was set and not read, but not for recipes' training keys or overridden BASE files."""
    defaults = _resolve_defaults(config.values.TASK, tables) if saved else {}
    skipped: set[str] = set()  # reported, or not worth a line
    if config.values.EVAL:
        skipped = {name for table in tables for name in table.training_names()}
        yield from _report_training_keys(config, skipped)
    for rule in [each for table in tables for each in table.find_ignored(config)]:
        condition = config.settings.get(rule.condition)
        for name, setting in config.settings.items():
            if name in skipped or setting.is_implied or not covers(rule.names, name):
                continue
            skipped.add(name)
            is_overridden = setting.is_base and condition is not None and condition.source != setting.source
            # A saved file lists defaults, too: they are not choices of the user.
            key = find_key(name, config.values.TASK) if setting.source in saved else None
            if is_overridden or (key is not None and setting.value in (key.default, defaults.get(name, key.default))):
                continue
            yield f"{config[name]}: no effect: {rule.reason.format(config[rule.condition])}"
