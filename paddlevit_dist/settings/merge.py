"""From the command line to one frozen configuration."""

import dataclasses
import difflib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from yacs.config import CfgNode

from .. import plugins, registry
from ..runtime.environment import program
from ..runtime.errors import UserError
from ..runtime.help_pages import COLUMNS, HELP
from ..runtime.printing import without_credentials
from . import checks, command_line, files, help, recipes, user_modules
from .every_run import RunSettings
from .key import COMMAND_LINE, ConfigView, InvalidValue, KeySetting, OutOfRange, show
from .table import default_config, find_keys, find_tables, keys, leaves, put

_FITTED = "follows from other keys"  # source of a derived value: neither set nor the default


@dataclass(frozen=True)
class Configuration:
    """The merged configuration and the source of each value.

    Args:
        values: the frozen tree, for example ``values.DATA.BATCH_SIZE``.
        sources: dotted key -> "default", the file, "command line", or what the value is derived from.
        notices: lines for the log.
        show: whether -show_config was given.
        argv: the command line that was read.
        recipe: name of the YAML file without its extension, or of the dataset if there is no file.
        recipe_epochs: TRAIN.NUM_EPOCHS of the files, ignoring the command line.
    """

    values: RunSettings
    sources: dict[str, str]
    notices: list[str]
    show: bool
    argv: list[str]
    recipe: str
    recipe_epochs: int

    def changed(self, name: str, value: Any, notice: str | None, source: str = _FITTED) -> "Configuration":
        """Return a copy with another value of one key, and a notice that says why, if one is needed."""
        values = self.values.clone()
        values.defrost()
        put(values, name, value)
        values.freeze()
        notices = [*self.notices, *([notice] if notice else [])]
        return dataclasses.replace(self, values=values, sources={**self.sources, name: source}, notices=notices)

    def describe(self) -> str:
        """Format the tree as YAML, with the source of each value in a column of comments."""
        return _describe(self.values, self.sources)


def load(
    argv: Sequence[str], example: str | None = None, is_trusted: bool = True, command: str = "train"
) -> Configuration:
    """Read the command line and the files it names; merge over the defaults, check, freeze.

    Args:
        argv: the command line.
        example: the YAML file to use where the command line names neither a file nor data. Data without a file is then
            an error, names have to be registered, and a dataset that is not named is guessed from DATA.DATA_PATH.
            None: only the defaults; the readers look names up.
        is_trusted: import the modules that the files name in IMPORTS. False for files that came with weights.
        command: the command whose help is printed.

    Raises:
        UserError: a flag, a file, a key or a value is wrong, or values do not fit together.
        SystemExit: help was requested and is printed.
    """
    if set(HELP) & set(argv):
        print(help.help_text(argv, command))
        raise SystemExit(0)
    parsed, cfg, settings = _read(argv)
    if not is_trusted:
        named = {setting.name: setting for setting in settings}.get("MODEL.NAME")
        if named is not None and named.source != COMMAND_LINE:
            registry.refuse_unnamed_code(named.value, named.origin)
        user_modules.explain_missing(settings)
    elif imported := user_modules.load(settings, should_print=parsed.show):
        parsed, cfg, settings = _read(argv)  # again, now that their keys are accepted
        settings = user_modules.merge_imports(settings, imported)
    try:
        return _load(parsed, cfg, settings, example)
    except UserError as error:
        if plugins.load_installed():
            return load(argv, example, is_trusted, command)
        if not is_trusted:
            user_modules.explain_missing(settings, error)
        raise


def _read(argv: Sequence[str]) -> tuple[command_line.CommandLine, str | None, list[KeySetting]]:
    """Return the command line, the file that it names, and all settings of both, in order; later ones win."""
    command = command_line.parse(argv)
    cfg = command.cfg
    if cfg is None:
        return command, cfg, command.settings
    tables = registry.key_tables()
    accepted = [*keys(), *(name for table in tables for name in (*table.renamed, *table.ignored_keys))]
    settings, notices = registry.adapt_clone(files.read(cfg) + command.settings, accepted)
    command.notices += [*filter(None, [recipes.find_ambiguity(cfg)]), *notices]
    return command, cfg, settings


def _load(
    command: command_line.CommandLine, cfg: str | None, settings: list[KeySetting], example: str | None
) -> Configuration:
    if cfg is None and example is not None:
        cfg = _example_unless_data(command.settings, example)
        settings = (files.read(cfg) if cfg else []) + settings
    accepted, renamed, ignored = _accept(settings)
    if example is not None:
        accepted, respelled = _resolve_names(accepted)
        renamed += respelled

    implied = _find_implied(split_by_file(settings), accepted)
    stated = accepted
    accepted = {
        **{setting.name: setting for setting in implied},
        **accepted,
        **{setting.name: setting for setting in implied},
    }

    values = default_config()
    for setting in accepted.values():
        put(values, setting.name, setting.value)
    recipe_epochs = _recipe_epochs(settings)
    if example is not None and (_reads_no_path(accepted, values) or _is_of_another_layout(accepted, values)):
        accepted, guessed = _with_guessed_dataset(accepted, values)
        renamed += guessed
    chosen = dict(leaves(values))
    for table in find_tables(values):
        if table.applies(values):
            renamed += table.resolve_defaults(values, accepted, settings)
    view = ConfigView(values, accepted)
    if example is not None:
        checks.check_task_dataset_model(view)
    notices = [*command.notices, *renamed, *ignored, *_log_implied(implied, stated, values), *checks.check(view)]
    values.freeze()

    sources = {name: accepted[name].source if name in accepted else "default" for name in keys()}
    sources.update((name, _FITTED) for name, value in leaves(values) if value != chosen[name])
    recipe = Path(cfg).stem if cfg else values.DATA.DATASET
    return Configuration(values, sources, notices, command.show, command.argv, recipe, recipe_epochs)


def split_by_file(settings: Sequence[KeySetting]) -> list[dict[str, KeySetting]]:
    """Return the accepted settings of each file by name, in the order in which later files win."""
    files: dict[str, list[KeySetting]] = {}
    for setting in settings:
        if setting.source != COMMAND_LINE:
            files.setdefault(setting.source, []).append(setting)
    return [_accept(file_settings)[0] for file_settings in files.values()]


def _find_implied(files: list[dict[str, KeySetting]], accepted: dict[str, KeySetting]) -> list[KeySetting]:
    """Return the settings that the named files imply, except those that the command line sets.

    They override the values in the file, but the file stays their source.
    """
    origin = next((setting.source for file in files for setting in file.values()), "")
    user_files = [file for file in files if file and not recipes.is_builtin(next(iter(file.values())).source)]
    return [
        KeySetting(name, value, source, origin, is_implied=True)
        for source, values in (table.infer(files, user_files) for table in registry.key_tables())
        for name, value in values.items()
        if name not in accepted or accepted[name].source != COMMAND_LINE
    ]


def _log_implied(implied: list[KeySetting], stated: dict[str, KeySetting], values: CfgNode) -> list[str]:
    """Return a line about the implied settings that the run reads, and one for each that overrides a file's value."""
    needless = {name for table in find_tables(values) for name in table.training_names()} if values.EVAL else set()
    replaced = [(stated[setting.name], setting) for setting in implied if setting.name in stated]
    reported = [setting for setting in implied if setting.name not in needless and setting.name not in stated]
    names = ", ".join(f"{setting.name} {show(setting.value)}" for setting in reported)
    return [
        *(
            f"{old.origin}: {old.name} {show(old.value)} in such a file means {show(new.value)} here"
            for old, new in replaced
        ),
        *([f"{reported[0].origin}: from {reported[0].source}: {names}"] if reported else []),
    ]


def _example_unless_data(settings: list[KeySetting], example: str) -> str | None:
    """Return the example if no data is named, None for a user's dataset; raise ``RecipeMissing`` for any other data."""
    by_name = {setting.name: setting for setting in settings}
    named = by_name.get("DATA.DATASET") or by_name.get("DATA.DATA_PATH")
    reason = ""
    if named is None:
        return example
    if named.name == "DATA.DATASET":
        name = registry.find_name("dataset", str(named.value))
        package = registry.find_package("dataset", name)
        if package is None:
            return None
    else:
        guess = registry.guess_dataset(os.path.expanduser(str(named.value)))
        name, reason = (guess.dataset, guess.reason) if guess else ("", "")
        package = registry.find_package("dataset", name) or "images"
    recipe = registry.RECIPES.get(name, registry.RECIPES[package])
    raise recipes.RecipeMissing(
        f"{named.origin} {show(named.value)}: no recipe is named: add -cfg={recipe}, for example, or another that "
        f"'{program('inspect recipes')}' lists",
        recipe,
        reason,
    )


def _reads_no_path(accepted: dict[str, KeySetting], values: CfgNode) -> bool:
    """Return whether a path was set that nothing would read: no dataset is named, or the recipe's is embedded.

    Raises:
        UserError: path and embedded dataset were set together.
    """
    path, dataset = accepted.get("DATA.DATA_PATH"), accepted.get("DATA.DATASET")
    if values.DATA.DATA_PATH is None or path is None:
        return False
    if dataset is None:
        return True
    if dataset.value not in registry.EMBEDDED:
        return False
    if dataset.source == path.source:
        raise UserError(
            f"DATA.DATA_PATH {path.value} ({path.origin}): dataset {dataset.value} comes with the package and reads no "
            "path: remove the path, or name the dataset at that path"
        )
    return True


def _is_of_another_layout(accepted: dict[str, KeySetting], values: CfgNode) -> bool:
    """Return whether -data_path has boxes in another layout than the recipe's dataset: any detector can read them."""
    path, dataset = accepted.get("DATA.DATA_PATH"), accepted.get("DATA.DATASET")
    if path is None or dataset is None or path.source != COMMAND_LINE or dataset.source == COMMAND_LINE:
        return False
    if registry.annotation_type("dataset", dataset.value) != registry.BOX_LABELS or not os.path.isdir(path.value):
        return False
    layouts = registry.find_box_datasets(path.value)
    return len(layouts) == 1 and dataset.value not in layouts


def _with_guessed_dataset(accepted: dict[str, KeySetting], values: CfgNode) -> tuple[dict[str, KeySetting], list[str]]:
    """Guess the dataset from the files at DATA.DATA_PATH."""
    path, named = values.DATA.DATA_PATH, accepted.get("DATA.DATASET")
    instead = f" instead of {named.value} ({named.origin})" if named else ""
    instead += ", which reads no path" if named and named.value in registry.EMBEDDED else ""
    guess = registry.guess_dataset(path, values.TASK)
    if guess is None:
        raise UserError(
            f"DATA.DATA_PATH {path} ({accepted['DATA.DATA_PATH'].origin}): no dataset is named, and the files there "
            "are not recognized (class folders below train and val, train_list.txt, annotations of COCO, VOC "
            "or YOLO, label maps, IDX files, tars, prepared scenes, volumes below train): name one with -dataset=NAME: "
            + ", ".join(sorted(registry.DATASETS))
        )
    values.DATA.DATASET = guess.dataset
    setting = KeySetting("DATA.DATASET", guess.dataset, "guessed from DATA.DATA_PATH", f"guessed: {guess.reason}")
    return {**accepted, setting.name: setting}, [f"dataset: {guess.dataset}{instead}, since {guess.reason}"]


def _recipe_epochs(settings: list[KeySetting]) -> int:
    """Return TRAIN.NUM_EPOCHS of the files, before the command line changes it."""
    key = keys()["TRAIN.NUM_EPOCHS"]
    in_files = [setting for setting in settings if setting.name == key.name and setting.source != COMMAND_LINE]
    return key.parse(in_files[-1].value) if in_files else key.default


def _resolve_names(accepted: dict[str, KeySetting]) -> tuple[dict[str, KeySetting], list[str]]:
    """Replace names of model, dataset and task by their registered spelling; return notices about the changes."""
    notices = []
    for name, kind in (("MODEL.NAME", "model"), ("DATA.DATASET", "dataset"), ("TASK", "task")):
        setting = accepted.get(name)
        if setting is None:
            continue
        try:
            value = registry.find_name(kind, setting.value)
        except UserError as error:
            raise UserError(f"{setting.origin}: {name}: {error}") from None
        if value != setting.value:
            notices.append(f"{setting.origin}: {name} {show(setting.value)} is called '{value}' here")
            if kind == "model" and registry.is_weights_name(setting.value):
                notices[-1] += ", and does not load its weights: -pretrained=NAME does"
            accepted = {**accepted, name: dataclasses.replace(setting, value=value)}
    return accepted, notices


def _accept(settings: list[KeySetting]) -> tuple[dict[str, KeySetting], list[str], list[str]]:
    """Return the last setting of each key, parsed, and notices of renamed keys and of keys that only PaddleViT has."""
    tables = registry.key_tables()
    names = {theirs: ours for table in tables for theirs, ours in table.renamed.items()}
    values = {theirs: ours for table in tables for theirs, ours in table.renamed_values.items()}
    needless = {theirs: reason for table in tables for theirs, reason in table.ignored_keys.items()}
    accepted: dict[str, KeySetting] = {}
    notices: list[str] = []
    ignored: dict[str, str] = {}
    for setting in settings:
        if setting.name in needless:
            reason = needless[setting.name]
            if setting.value is None:
                continue
            ignored[setting.name] = f"{setting.origin}: {setting.name} does not exist here and is not needed: {reason}"
            continue
        ours = names.get(setting.name)
        if ours is not None:
            notices.append(f"{setting.origin}: {setting.name} is called {ours} here")
            setting = dataclasses.replace(setting, name=ours)
        if setting.name not in keys():
            raise UserError(_unknown_key(setting) + _unknown_model(setting, settings))
        if setting.name == "BASE":
            raise UserError(f"{setting.origin}: BASE belongs in a YAML file: name the file with -cfg=FILE")
        value = setting.value
        renamed = values.get((setting.name, str(value).lower()))
        if renamed is not None:
            notices.append(f"{setting.origin}: {setting.name} {show(value)} is called '{renamed}' here")
            value = renamed
        accepted[setting.name] = dataclasses.replace(setting, value=_parse(setting, value, settings))
    return accepted, notices, list(ignored.values())


def _parse(setting: KeySetting, value: Any, settings: list[KeySetting]) -> Any:
    key = keys()[setting.name]
    try:
        return key.parse(value)
    except InvalidValue as mismatch:
        message = f"{setting.origin}: {setting.name} is {show(value)}: expected {key.expected()}"
        message += f"; {mismatch}" if isinstance(mismatch, OutOfRange) else ""
        raise UserError(message + _unknown_model(setting, settings)) from None


def _unknown_key(setting: KeySetting) -> str:
    name = setting.name if setting.name.isprintable() else show(setting.name)
    value = "a section" if isinstance(setting.value, dict) else show(setting.value)
    if isinstance(setting.value, dict) and any(key.startswith(f"{name.upper()}.") for key in keys()):
        return f"{setting.origin}: {name} is not a known section: sections and keys are in capitals: {name.upper()}"
    is_a_word = name.islower() and "." not in name and setting.source == COMMAND_LINE
    spelling = command_line.spell_here(name, str(setting.value)) if is_a_word else ""
    advice = f"write {spelling}" if spelling else f"the closest is {closest_key(setting.name)}"
    return f"{setting.origin}: {name} ({value}) is not a known key: {advice}"


def closest_key(name: str) -> str:
    """Return the key with the spelling closest to ``name``.

    Keys that end in the same word, or in another tool's name for it, come first.
    """
    upper = name.upper()
    end = upper.rsplit(".", 1)[-1]
    same_end = [key for key in keys() if key.rsplit(".", 1)[-1] == end]
    translated = command_line.find_key(end)
    candidates = same_end or ([translated] if translated else list(keys()))
    return difflib.get_close_matches(upper, candidates, n=1, cutoff=0.0)[0]


def _unknown_model(setting: KeySetting, settings: list[KeySetting]) -> str:
    """Return a hint for a MODEL key or value of a family of models that does not exist here, or an empty text."""
    if not setting.name.startswith("MODEL.") or setting.source == COMMAND_LINE:
        return ""
    names = [str(other.value) for other in settings if other.name == "MODEL.NAME"]
    if not names or names[-1] in registry.MODELS:
        return ""
    near = registry.closest(names[-1], list(registry.MODELS)).strip()
    return f"; MODEL.NAME {show(names[-1])} is not a known model{': ' + near if near else ''}"


def dump_yaml(values: CfgNode) -> str:
    """Format the task's keys as YAML that ``load`` turns into equal values, except for passwords and tokens in URLs.

    BASE is omitted, as its files are merged.
    """
    return "".join(f"{line}\n" for line, _ in _lines(values))


def _describe(values: CfgNode, sources: dict[str, str]) -> str:
    """Format the tree as YAML with the source of each value in a column of comments.

    A long value shifts its comment; a very long value moves it to the line above; a long source is cut at its start.
    """
    lines = _lines(values)
    column = max(len(line) for line, _ in lines if len(line) <= COLUMNS // 2)
    described = []
    for line, name in lines:
        if name is None:
            described.append(line)
            continue
        left = COLUMNS - len(line) - len("  # ")
        source = sources[name]
        if left < len("command line"):
            described += [f"{line[: len(line) - len(line.lstrip())]}# {_end(source, COLUMNS // 2)}", line]
            continue
        source = _end(source, left)
        described.append(f"{line:<{min(column, COLUMNS - len(source) - len('  # '))}}  # {source}")
    return "\n".join(described)


def _end(text: str, length: int) -> str:
    return text if len(text) <= length else f"...{text[3 - length :]}"


def _lines(values: CfgNode) -> list[tuple[str, str | None]]:
    """Return the lines of YAML: for a key with its dotted name, for a section with None."""
    accepted = find_keys(values)
    lines: list[tuple[str, str | None]] = []
    open_sections: list[str] = []
    for name, value in leaves(values):
        *sections, last = name.split(".")
        if name == "BASE" or name not in accepted:
            continue
        for depth, section in enumerate(sections):
            if open_sections[: depth + 1] != sections[: depth + 1]:
                lines.append((f"{'  ' * depth}{section}:", None))
        open_sections = sections
        lines.append((f"{'  ' * len(sections)}{last}: {_scalar(_public(value))}", name))
    return lines


def _public(value: Any) -> Any:
    """Remove passwords and tokens from the URLs in a value: the output is stored and shown."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_public, value))
    return without_credentials(value) if isinstance(value, str) else value


def _scalar(value: Any) -> str:
    quoted = isinstance(value, str) and not value.isprintable()
    text = yaml.safe_dump(
        value, default_flow_style=True, default_style='"' if quoted else None, width=10**6, allow_unicode=True
    )
    return text.replace("\n...\n", "").strip()
