"""From the command line to one frozen configuration."""

import dataclasses
import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

from yacs.config import CfgNode

from ..registry import lookup, model_sources, plugins
from ..runtime.errors import UserError
from ..runtime.help_pages import HELP
from . import command_line, files, names, user_modules
from .every_run import DEFAULT_TASK, RunSettings
from .key import OPTIONS, Key, merge_options, show, split_option
from .table import (
    COMMAND_LINE,
    DERIVED,
    ConfigView,
    KeySetting,
    KeyTable,
    covers,
    default_config,
    describe,
    find_key,
    find_tables,
    index_keys,
    keys,
    leaves,
    put,
    resolve_flag,
    tables_with,
)
from .values import InvalidValue, OutOfRange

_MAX_LISTED = 5  # keys of another task in a message
_SAVED_SHARE = 0.8  # of the engine's keys: a file with more of them was saved by a run


@dataclass(frozen=True)
class Configuration:
    """The merged configuration and the source of each value."""

    values: RunSettings  # the frozen tree, for example ``values.DATA.BATCH_SIZE``
    sources: dict[str, str]  # dotted key -> "default", the file, "command line", or what the value is derived from
    notices: list[str]  # lines for the log
    show: bool  # whether -show_config was given
    argv: list[str]  # the command line that was read
    recipe: str  # name of the YAML file without its extension, or of the dataset if there is no file
    recipe_epochs: int  # TRAIN.NUM_EPOCHS of the files, ignoring the command line
    settings: Mapping[str, KeySetting]  # the settings that count, by name

    def check(self) -> None:
        """Check the values again after ``changed``; raises a UserError if two contradict each other."""
        _check(ConfigView(self.values, self.settings))

    def changed(self, name: str, value: object, notice: str | None, source: str = DERIVED) -> "Configuration":
        """Return a copy with another value of one key, and a notice that says why, if one is needed."""
        values = self.values.clone()
        values.defrost()
        put(values, name, value)
        values.freeze()
        notices = [*self.notices, *([notice] if notice else [])]
        return dataclasses.replace(self, values=values, sources={**self.sources, name: source}, notices=notices)

    def describe(self) -> str:
        """Format the tree as YAML, with the source of each value in a column of comments."""
        return describe(self.values, self.sources)


def load(
    argv: Sequence[str],
    default_recipe: str | None = None,
    is_trusted: bool = True,
    command: str = "train",
    stored: files.StoredSettings | None = None,
) -> Configuration:
    """Read the command line and the files it names; merge over the defaults, check, freeze.

    Args:
        argv: the command line.
        default_recipe: the YAML file to use where the command line names neither a file nor data. Data without a file
            is then an error, names have to be registered, and a dataset that is not named is guessed from
            DATA.DATA_PATH. None: only the defaults; the readers look names up.
        is_trusted: import the modules that the files name in IMPORTS. False for files that came with weights.
        command: the command whose help is printed.
        stored: settings in place of a file, below the ones of the command line.

    Raises:
        UserError: a flag, a file, a key or a value is wrong, or values do not fit together.
        SystemExit: help was requested and is printed.
    """
    if set(HELP) & set(argv):
        from .help import help_text  # it imports the tables of all tasks

        print(help_text(argv, command))
        raise SystemExit(0)
    parsed, cfg, settings = _read(argv, stored)
    if not is_trusted:
        named = {setting.name: setting for setting in settings}.get("MODEL.NAME")
        if named is not None and named.source != COMMAND_LINE:
            model_sources.refuse_clone_model(named.value, named.origin)
        user_modules.explain_missing(settings)
    elif any(setting.name == "IMPORTS" for setting in settings):
        imported = user_modules.load(settings, should_print=parsed.show)
        parsed, cfg, settings = _read(argv, stored)  # again, now that their keys are accepted
        settings = user_modules.merge_imports(settings, imported)
    try:
        return _load(parsed, cfg, settings, default_recipe, stored is None or stored.is_checked)
    except UserError as error:
        if plugins.load_installed():
            return load(argv, default_recipe, is_trusted, command, stored)
        if not is_trusted:
            user_modules.explain_missing(settings, error)
        raise


def _read(
    argv: Sequence[str], stored: files.StoredSettings | None
) -> tuple[command_line.CommandLine, str | None, list[KeySetting]]:
    """Return the command line, the file that it names, and all settings of both, in order; later ones win."""
    command = command_line.parse(argv)
    if command.cfg is not None and not files.is_known(command.cfg):
        user_modules.load(command.settings, command.show)  # of -import: they may have recipes
    cfg, task = command.cfg, _named_task(command.settings)
    if stored is not None:
        settings = files.read_stored(stored, task)
    else:
        settings = files.read(cfg, task) if cfg is not None else []
    task = _named_task([*settings, *command.settings]) or DEFAULT_TASK
    for setting in (resolve_flag(option, task) for option in command.settings):
        is_text = isinstance(setting.value, str)  # else of a flag without a value
        value = command_line.parse_value(setting.name, setting.value, task) if is_text else setting.value
        settings.append(dataclasses.replace(setting, value=value))
    if cfg is None and stored is None:
        return command, cfg, settings
    notices: list[str] = []
    if _may_be_of_clone(settings):
        tables = lookup.key_tables()
        accepted = [*keys(), *(name for table in tables for name in (*table.renamed, *table.ignored_keys))]
        settings, notices = model_sources.adapt_clone(settings, accepted)
    command.notices += [*filter(None, [cfg and files.find_ambiguity(cfg)]), *notices]
    return command, cfg, settings


def _named_task(settings: Sequence[KeySetting]) -> str | None:
    """Return the last value of TASK, in the given spelling; None if it is not set."""
    return next((str(setting.value) for setting in reversed(settings) if setting.name == "TASK"), None)


def _may_be_of_clone(settings: Sequence[KeySetting]) -> bool:
    """Return whether a user's file names the model, or the command line one that is not known: maybe PaddleViT's."""
    name = next((setting for setting in reversed(settings) if setting.name == "MODEL.NAME"), None)
    if name is None:
        return False
    return not (name.value in lookup.MODELS if name.source == COMMAND_LINE else files.is_recipe_file(name.source))


def _load(
    command: command_line.CommandLine,
    cfg: str | None,
    settings: list[KeySetting],
    default_recipe: str | None,
    is_checked: bool,
) -> Configuration:
    if cfg is None and default_recipe is not None:
        cfg = names.choose_recipe(command.settings, default_recipe)
        settings = (files.read(cfg, _named_task(settings)) if cfg else []) + settings
    task = _named_task(settings) or DEFAULT_TASK
    accepted, renamed, ignored = _accept(settings, task)
    if default_recipe is not None:
        accepted, respelled = names.resolve_names(accepted)
        renamed += respelled

    implied = _find_implied(settings, accepted, task)
    before_implied = accepted
    accepted = {
        **{inferred.name: inferred for inferred in implied},
        **accepted,
        **{inferred.name: inferred for inferred in implied},
    }

    values = default_config(task)
    known = index_keys(lookup.known_tables(task))
    for setting in accepted.values():
        if setting.name in known:  # not a key of another task in a BASE file, which is reported
            put(values, setting.name, setting.value)
    epochs = known["TRAIN.NUM_EPOCHS"]
    of_files = [setting for setting in settings if setting.name == epochs.name and setting.source != COMMAND_LINE]
    recipe_epochs = epochs.parse(of_files[-1].value) if of_files else epochs.default
    if default_recipe is not None and (
        names.reads_no_path(accepted, values) or names.is_of_another_layout(accepted, values)
    ):
        accepted, guessed = names.guess_dataset(accepted, values)
        renamed += guessed
    chosen = leaves(values)
    for table in find_tables(values):
        if table.applies(values):
            renamed += table.resolve_defaults(values, accepted, settings)
    view = ConfigView(values, accepted)
    if default_recipe is not None:
        names.check_task_dataset_model(view)
    notices = [*command.notices, *renamed, *ignored]
    notices += _log_implied(implied, before_implied, values) if implied else ()
    notices += _check(view) if is_checked else ()
    values.freeze()

    sources = {name: accepted[name].source if name in accepted else "default" for name in known}
    sources.update((name, DERIVED) for name, value in leaves(values).items() if value != chosen[name])
    recipe = Path(cfg).stem if cfg else values.DATA.DATASET
    return Configuration(values, sources, notices, command.show, command.argv, recipe, recipe_epochs, accepted)


def _find_implied(settings: Sequence[KeySetting], accepted: dict[str, KeySetting], task: str) -> list[KeySetting]:
    """Return settings that the named files imply and the command line does not set; the file stays their source."""
    by_file: dict[str, list[KeySetting]] = {}
    for setting in settings:
        if setting.source != COMMAND_LINE:
            by_file.setdefault(setting.source, []).append(setting)
    if all(map(files.is_recipe_file, by_file)):  # recipes of this package say all that they mean
        return []
    named_files = [_accept(file_settings, task)[0] for file_settings in by_file.values()]  # later files win
    user_files = [file for file in named_files if file and not files.is_recipe_file(next(iter(file.values())).source)]
    origin = next((setting.source for file in user_files for setting in file.values()), "")
    rules = [table.infer for table in lookup.known_tables(task) if table.infer]
    return [
        KeySetting(name, value, source, origin, is_implied=True)
        for source, values in (infer(named_files, user_files) for infer in rules)
        for name, value in values.items()
        if name not in accepted or accepted[name].source != COMMAND_LINE
    ]


def _log_implied(implied: list[KeySetting], before_implied: dict[str, KeySetting], values: CfgNode) -> list[str]:
    """Return a line about the implied settings that the run reads, and one for each that overrides a file's value."""
    needless = {name for table in find_tables(values) for name in table.training_names()} if values.EVAL else set()
    replaced = [(before_implied[setting.name], setting) for setting in implied if setting.name in before_implied]
    reported = [setting for setting in implied if setting.name not in needless and setting.name not in before_implied]
    names = ", ".join(f"{setting.name} {show(setting.value)}" for setting in reported)
    return [
        *(
            f"{old.origin}: {old.name} {show(old.value)} in such a file means {show(new.value)} here"
            for old, new in replaced
        ),
        *([f"{reported[0].origin}: from {reported[0].source}: {names}"] if reported else []),
    ]


def _accept(settings: list[KeySetting], task: str) -> tuple[dict[str, KeySetting], list[str], list[str]]:
    """Return the last setting of each key, parsed, and notices of renamed keys and of keys that only PaddleViT has."""
    tables: list[KeyTable] = tables_with([other.name for other in settings], task)
    known = index_keys(tables)
    names = {theirs: here for table in tables for theirs, here in table.renamed.items()}
    values = {theirs: here for table in tables for theirs, here in table.renamed_values.items()}
    needless = {theirs: why for table in tables for theirs, why in table.ignored_keys.items()}
    accepted: dict[str, KeySetting] = {}
    notices: list[str] = []
    ignored: dict[str, str] = {}
    for setting in settings:
        name, value = split_option(setting.name, setting.value)
        setting = dataclasses.replace(setting, name=name, value=value)
        if setting.name in needless:
            reason = needless[setting.name]
            if setting.value is None:
                continue
            ignored[setting.name] = f"{setting.origin}: {setting.name} does not exist here and is not needed: {reason}"
            continue
        ours = names.get(setting.name)
        if ours is not None:
            if refusal := model_sources.explain_other_task(setting.source):
                raise UserError(refusal)
            notices.append(f"{setting.origin}: {setting.name} is called {ours} here")
            setting = dataclasses.replace(setting, name=ours)
        if setting.name not in known:
            refusal = model_sources.explain_other_task(setting.source)
            raise UserError(refusal or _unknown_key(setting) + _unknown_model(setting, settings))
        if setting.name == "BASE":
            raise UserError(f"{setting.origin}: BASE belongs in a YAML file: name the file with -cfg=FILE")
        renamed = values.get((setting.name, str(value).lower()))
        if renamed is not None:
            notices.append(f"{setting.origin}: {setting.name} {show(value)} is called '{renamed}' here")
            value = renamed
        value = _parse(setting, value, known, settings)
        if setting.name == OPTIONS and OPTIONS in accepted:  # as in a section, others keep their values
            value = merge_options(accepted[OPTIONS].value, value)
        accepted[setting.name] = dataclasses.replace(setting, value=value)
    return accepted, notices, list(ignored.values())


def _parse(setting: KeySetting, value: object, known: dict[str, Key], settings: list[KeySetting]) -> Any:
    key = known[setting.name]
    try:
        return key.parse(value)
    except InvalidValue as mismatch:
        message = f"{setting.origin}: {setting.name} is {show(value)}: expected {key.expected()}"
        message += f"; {mismatch}" if isinstance(mismatch, OutOfRange) else ""
        if key.kind in ("text", "path") and not key.choices and not isinstance(value, (str, dict, NoneType)):
            message += "; write it in quotes, as YAML has other values for words like no, on, 007, 1.50 and null"
        raise UserError(message + _unknown_model(setting, settings)) from None


def _unknown_key(setting: KeySetting) -> str:
    name = setting.name if setting.name.isprintable() else show(setting.name)
    value = "a section" if isinstance(setting.value, dict) else show(setting.value)
    if isinstance(setting.value, dict) and any(key.startswith(f"{name.upper()}.") for key in keys()):
        return f"{setting.origin}: {name} is not a known section: sections and keys are in capitals: {name.upper()}"
    is_typed, spelling = setting.source == COMMAND_LINE, ""
    if is_typed and files.names_recipe(setting.name):
        spelling = f"-cfg={name}"
    elif is_typed and name.islower() and "." not in name:
        spelling = command_line.spell_here(name, str(setting.value))
    advice = f"write {spelling}" if spelling else f"the closest is {closest_key(setting.name)}"
    return f"{setting.origin}: {name} ({value}) is not a known key: {advice}"


def closest_key(name: str) -> str:
    """Return the key with the spelling closest to ``name``, first among those that end in the same or a known word.

    A known word in the section of its key, or in none, means this key: TRAIN.LEARNING_RATE is TRAIN.BASE_LR.
    """
    upper = name.upper()
    section, _, end = upper.rpartition(".")
    translated = command_line.find_key(end)
    if translated and section in ("", translated.rpartition(".")[0]):
        return translated
    same_end = [key for key in keys() if key.rsplit(".", 1)[-1] == end]
    candidates = same_end or ([translated] if translated else list(keys()))
    return difflib.get_close_matches(upper, candidates, cutoff=0.0)[0]


def _unknown_model(setting: KeySetting, settings: list[KeySetting]) -> str:
    """Return a hint for a MODEL key or value of a family of models that does not exist here, or an empty text."""
    if not setting.name.startswith("MODEL.") or setting.source == COMMAND_LINE:
        return ""
    names = [str(other.value) for other in settings if other.name == "MODEL.NAME"]
    if not names or names[-1] in lookup.MODELS:
        return ""
    near = lookup.closest(names[-1], list(lookup.MODELS)).strip()
    return f"; MODEL.NAME {show(names[-1])} is not a known model{': ' + near if near else ''}"


def _check(config: ConfigView[RunSettings]) -> list[str]:
    """Check the merged values and return notices; raise a UserError for unread or contradicting keys."""
    task = config.values.TASK
    tables = find_tables(config.values)
    if task not in lookup.TABLES:  # a user's task, which may read keys of any table
        values = config.values
        chosen = [("task", task), ("dataset", values.DATA.DATASET), ("model", values.MODEL.NAME)]
        tables = [
            *lookup.common_tables(),
            *(each for kind, name in chosen for each in lookup.custom_tables(kind, name)),
        ]
    saved = _find_saved_files(config)
    notices = _find_foreign_keys(config, saved)
    for table in tables:
        if table.applies(config.values):
            notices += table.check(config)
    return [*notices, *_report_ignored(config, tables, saved)]


def _find_saved_files(config: ConfigView[RunSettings]) -> set[str]:
    """Return the files that a run has saved: they contain every key, so their defaults are not choices of the user."""
    names = [key.name for table in lookup.common_tables() for key in table.keys]
    sources = [config.settings[name].source for name in names if name in config.settings]
    return {source for source in sources if sources.count(source) > _SAVED_SHARE * len(names)} - {COMMAND_LINE}


def _find_foreign_keys(config: ConfigView[RunSettings], whole: set[str]) -> list[str]:
    """Return notices about keys of BASE files that only other tasks read; raise UserError if this run sets one."""
    task = config.values.TASK
    readable = index_keys(find_tables(config.values))
    wrong = [setting for name, setting in config.settings.items() if name not in readable]
    refused = [setting for setting in wrong if not setting.is_base and setting.source not in whole]
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
        names = f"{len(group)} keys" if source in whole else ", ".join(setting.name for setting in group)
        notices.append(f"{source}: no effect: {names}: read by {_format_readers(group)}, not by {task}")
    return notices


def _format_readers(settings: list[KeySetting]) -> str:
    readers = dict.fromkeys(reader for setting in settings for reader in lookup.find_readers(setting.name))
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


def _report_ignored(config: ConfigView[RunSettings], tables: list[KeyTable], whole: set[str]) -> Iterator[str]:
    """Yield a line per key that was set and not read, but not for recipes' training keys or overridden BASE files."""
    defaults = _resolve_defaults(config.values.TASK, tables) if whole else {}
    skipped = set()  # reported, or not worth a line
    if config.values.EVAL:
        skipped = {entry for table in tables for entry in table.training_names()}
        for name, setting in config.settings.items():
            if name in skipped and setting.source == COMMAND_LINE:
                yield f"{config[name]}: no effect: it is for training, and {config['EVAL']}"
    for rule in [each for table in tables for each in table.find_ignored(config)]:
        condition = config.settings.get(rule.condition)
        for name, setting in config.settings.items():
            if name in skipped or setting.is_implied or not covers(rule.names, name):
                continue
            skipped.add(name)
            is_overridden = setting.is_base and condition is not None and condition.source != setting.source
            key = find_key(name, config.values.TASK) if setting.source in whole else None
            if is_overridden or (key is not None and setting.value in (key.default, defaults.get(name, key.default))):
                continue
            yield f"{config[name]}: no effect: {rule.reason.format(config[rule.condition])}"
