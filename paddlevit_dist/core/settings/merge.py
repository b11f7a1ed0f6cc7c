"""Step 2 of 3: the settings become one tree of values. Defaults, then recipe, file and command line: the later wins."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from yacs.config import CfgNode

from . import key_tables, names, recipes
from .every_run import DEFAULT_TASK
from .key import OPTIONS, show
from .model_options import merge_options
from .parse import ParsedSettings
from .table import (
    COMMAND_LINE,
    DERIVED,
    KeySetting,
    default_config,
    find_tables,
    index_keys,
    leaves,
    put,
)


class MergedSettings(NamedTuple):
    """One value of each key."""

    values: CfgNode  # not frozen
    settings: dict[str, KeySetting]  # the settings that count, by name
    sources: dict[str, str]  # dotted key -> "default", the source of its setting, or DERIVED
    notices: list[str]  # lines for the log


def merge(parsed: ParsedSettings, task: str, is_run: bool) -> MergedSettings:
    """Merge the settings over the task's defaults, and derive the values that follow from them.

    ``is_run``: data will be read, so names of task, dataset and model have to be registered, and a dataset that is not
    named is guessed from DATA.DATA_PATH.

    Raises:
        UserError: a name is not registered, no dataset is recognized, or a value does not follow from the others.
    """
    settings = take_last(parsed.settings)
    notices = list(parsed.renamed)
    implied, reported = _find_implied(parsed.settings, settings, task)
    settings |= implied
    if is_run:
        settings, respelled = names.resolve_names(settings)
        notices += respelled

    values = default_config(task)
    known = index_keys(key_tables.known_tables(task))
    for setting in settings.values():
        if setting.name in known:  # not a key of another task in a BASE file, which is reported
            put(values, setting.name, setting.value)
    if is_run and (names.reads_no_path(settings, values) or names.is_of_another_layout(settings)):
        settings, guessed = names.guess_dataset(settings, values)
        notices += guessed
    chosen = leaves(values)
    for table in key_tables.rule_tables(values.TASK, values.DATA.DATASET, values.MODEL.NAME, DEFAULT_TASK):
        if table.applies(values):
            notices += table.resolve_defaults(values, settings, parsed.given)

    sources = {name: settings[name].source if name in settings else "default" for name in known}
    sources.update((name, DERIVED) for name, value in leaves(values).items() if value != chosen[name])
    notices += [*parsed.ignored, *reported, *_report_added(implied, parsed.settings, values)]
    return MergedSettings(values, settings, sources, notices)


def take_last(settings: Sequence[KeySetting]) -> dict[str, KeySetting]:
    """Return the last setting of each key; options of a model that the last MODEL.OPTIONS lacks keep their values."""
    last: dict[str, KeySetting] = {}
    for setting in settings:
        if setting.name == OPTIONS and OPTIONS in last:
            setting = dataclasses.replace(setting, value=merge_options(last[OPTIONS].value, setting.value))
        last[setting.name] = setting
    return last


def _find_implied(
    settings: Sequence[KeySetting], chosen: dict[str, KeySetting], task: str
) -> tuple[dict[str, KeySetting], list[str]]:
    """Return settings that the named files imply and the command line does not set; the file stays their source.

    Also return a line for each of a file's values that another one replaces.
    """
    by_file: dict[str, list[KeySetting]] = {}
    for setting in settings:
        if setting.source != COMMAND_LINE:
            by_file.setdefault(setting.source, []).append(setting)
    of_users = [file for file in by_file if not recipes.is_recipe_file(file)]
    if not of_users:  # recipes of this package say all that they mean
        return {}, []
    contents = {file: take_last(group) for file, group in by_file.items()}
    implied: dict[str, KeySetting] = {}
    lines = []
    for table in key_tables.known_tables(task):
        if table.infer is None:
            continue
        source, values, reasons = table.infer([*contents.values()], [contents[file] for file in of_users])
        for name, value in values.items():
            old = chosen.get(name)
            if old is not None and old.source == COMMAND_LINE:
                continue
            implied[name] = KeySetting(name, value, source, of_users[0], is_implied=True)
            if old is not None:
                reason = f", as {reasons[name]}" if name in reasons else ""
                lines.append(f"{old.origin}: {name} {show(old.value)} in such a file means {show(value)} here{reason}")
    return implied, lines


def _report_added(implied: dict[str, KeySetting], written: Sequence[KeySetting], values: CfgNode) -> list[str]:
    """Return a line about the implied values that no file sets and that the run reads, if there are any."""
    unread = {name for table in find_tables(values) for name in table.training_names()} if values.EVAL else set()
    unread.update(setting.name for setting in written)
    added = [setting for name, setting in implied.items() if name not in unread]
    if not added:
        return []
    listed = ", ".join(f"{setting.name} {show(setting.value)}" for setting in added)
    return [f"{added[0].origin}: from {added[0].source}: {listed}"]
