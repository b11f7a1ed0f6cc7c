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

_FITTED = "follows from other keys"  # the source of a value that nobody set and that is not the default


@dataclass(frozen=True)
class Configuration:
    """The merged configuration and where it comes from.

    Args:
        values: the frozen tree, for example ``values.DATA.BATCH_SIZE``.
        sources: dotted key -> "default", the file, "command line", or what the value follows from.
        notices: lines for the log.
        show: whether -show_config was given.
        argv: the command line that was read.
        recipe: the name of the YAML file without its ending; of the dataset, if there is no file.
        recipe_epochs: TRAIN.NUM_EPOCHS as the files have it, whatever the command line says.
    """

    values: RunSettings
    sources: dict[str, str]
    notices: list[str]
    show: bool
    argv: list[str]
    recipe: str
    recipe_epochs: int

    def changed(self, name: str, value: Any, notice: str | None, source: str = _FITTED) -> "Configuration":
        """The same with another value of one key, and a notice that says why, if that has to be told."""
        values = self.values.clone()
        values.defrost()
        put(values, name, value)
        values.freeze()
        notices = [*self.notices, *([notice] if notice else [])]
        return dataclasses.replace(self, values=values, sources={**self.sources, name: source}, notices=notices)

    def describe(self) -> str:
        """The tree as YAML, with the source of each value in a column of comments."""
        return _describe(self.values, self.sources)


def load(
    argv: Sequence[str], example: str | None = None, is_trusted: bool = True, command: str = "train"
) -> Configuration:
    """Read the command line and the files it names; merge over the defaults, check, freeze.

    Args:
        example: the YAML file to use where the command line names neither a file nor data; data without a file
            is then an error, names have to be registered, and a dataset that nothing names is guessed from
            DATA.DATA_PATH. None: only the defaults, and names are looked up by whoever uses them.
        is_trusted: the modules that the files name in IMPORTS are imported. False for files that came with weights.
        command: whose help is printed.
    Raises:
        UserError: a flag, a file, a key or a value is wrong, or values do not fit together.
        SystemExit: help was asked for, and printed.
    """
    if set(HELP) & set(argv):
        print(help.help_text(argv, command))
        raise SystemExit(0)
    parsed, cfg, settings = _read(argv)
    if not is_trusted:
        named = {setting.name: setting for setting in settings}.get("MODEL.NAME")
        if named is not None and named.source != COMMAND_LINE:
            registry.refuse_unnamed_code(named.value, named.place)
        user_modules.explain_missing(settings)
    elif imported := user_modules.load(settings, tells=parsed.show):
        parsed, cfg, settings = _read(argv)  # again, now that their keys are known
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
    """The command line, the file that it names, and all settings of both, in the order in which later ones win."""
    command = command_line.parse(argv)
    cfg = command.cfg
    if cfg is None:
        return command, cfg, command.settings
    tables = registry.key_tables()
    known = [*keys(), *(name for table in tables for name in (*table.renamed, *table.ignored_keys))]
    settings, notices = registry.adapt_clone(files.read(cfg) + command.settings, known)
    command.notices += [*filter(None, [recipes.other_than_meant(cfg)]), *notices]
    return command, cfg, settings


def _load(
    command: command_line.CommandLine, cfg: str | None, settings: list[KeySetting], example: str | None
) -> Configuration:
    if cfg is None and example is not None:
        cfg = _example_unless_data(command.settings, example)
        settings = (files.read(cfg) if cfg else []) + settings
    known, renamed, dropped = _accept(settings)
    if example is not None:
        known, respelled = _resolve_names(known)
        renamed += respelled

    implied = _find_implied(split_by_file(settings), known)
    stated = known
    known = {
        **{setting.name: setting for setting in implied},
        **known,
        **{setting.name: setting for setting in implied},
    }

    values = default_config()
    for setting in known.values():
        put(values, setting.name, setting.value)
    recipe_epochs = _recipe_epochs(settings)
    if example is not None and (_reads_no_path(known, values) or _is_of_another_layout(known, values)):
        known, guessed = _with_guessed_dataset(known, values)
        renamed += guessed
    chosen = dict(leaves(values))
    for table in find_tables(values):
        renamed += table.resolve_defaults(values, known, settings)
    given = ConfigView(values, known)
    if example is not None:
        checks.check_task_dataset_model(given)
    notices = [*command.notices, *renamed, *dropped, *_log_implied(implied, stated, values), *checks.check(given)]
    values.freeze()

    sources = {name: known[name].source if name in known else "default" for name in keys()}
    sources.update((name, _FITTED) for name, value in leaves(values) if value != chosen[name])
    recipe = Path(cfg).stem if cfg else values.DATA.DATASET
    return Configuration(values, sources, notices, command.show, command.argv, recipe, recipe_epochs)


def split_by_file(settings: Sequence[KeySetting]) -> list[dict[str, KeySetting]]:
    """Return the accepted settings of each file by name, in the order in which later files win."""
    files: dict[str, list[KeySetting]] = {}
    for setting in settings:
        if setting.source != COMMAND_LINE:
            files.setdefault(setting.source, []).append(setting)
    return [_accept(of_file)[0] for of_file in files.values()]


def _find_implied(files: list[dict[str, KeySetting]], known: dict[str, KeySetting]) -> list[KeySetting]:
    """Find what goes without saying in the files that are named, unless the command line says otherwise. Its settings
    take the place of a file's, but the file is what it is."""
    place = next((setting.source for file in files for setting in file.values()), "")
    own = [file for file in files if file and not recipes.is_own(next(iter(file.values())).source)]
    return [
        KeySetting(name, value, source, place, is_implied=True)
        for source, values in (table.infer(files, own) for table in registry.key_tables())
        for name, value in values.items()
        if name not in known or known[name].source != COMMAND_LINE
    ]


def _log_implied(implied: list[KeySetting], stated: dict[str, KeySetting], values: CfgNode) -> list[str]:
    """A line about settings that nobody wrote, in an evaluation about those that it reads; and one for each that takes
    the place of what a file states."""
    needless = {name for table in find_tables(values) for name in table.of_training()} if values.EVAL else set()
    replaced = [(stated[setting.name], setting) for setting in implied if setting.name in stated]
    told = [setting for setting in implied if setting.name not in needless and setting.name not in stated]
    names = ", ".join(f"{setting.name} {show(setting.value)}" for setting in told)
    return [
        *(
            f"{old.place}: {old.name} {show(old.value)} of such a file is {show(new.value)} here"
            for old, new in replaced
        ),
        *([f"{told[0].place}: from {told[0].source}: {names}"] if told else []),
    ]


def _example_unless_data(settings: list[KeySetting], example: str) -> str | None:
    """The example where no data is named, nothing for a dataset that the user registered; any other needs a recipe."""
    given = {setting.name: setting for setting in settings}
    named = given.get("DATA.DATASET") or given.get("DATA.DATA_PATH")
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
        f"{named.place} {show(named.value)}: no recipe is named: add -cfg={recipe}, for example, or another that "
        f"'{program('inspect recipes')}' lists",
        recipe,
        reason,
    )


def _reads_no_path(known: dict[str, KeySetting], values: CfgNode) -> bool:
    """Whether a path was given that nothing would read: no dataset is named, or a recipe's comes with the package.

    Raises:
        UserError: path and embedded dataset were given side by side.
    """
    path, dataset = known.get("DATA.DATA_PATH"), known.get("DATA.DATASET")
    if values.DATA.DATA_PATH is None or path is None:
        return False
    if dataset is None:
        return True
    if dataset.value not in registry.EMBEDDED:
        return False
    if dataset.source == path.source:
        raise UserError(
            f"DATA.DATA_PATH {path.value} ({path.place}): dataset {dataset.value} comes with the package and reads no "
            "path: leave it out, or name the dataset that is there"
        )
    return True


def _is_of_another_layout(known: dict[str, KeySetting], values: CfgNode) -> bool:
    """Whether boxes lie at -data_path, and not in the layout that the recipe names: any detector learns from them."""
    path, dataset = known.get("DATA.DATA_PATH"), known.get("DATA.DATASET")
    if path is None or dataset is None or path.source != COMMAND_LINE or dataset.source == COMMAND_LINE:
        return False
    if registry.annotation_type("dataset", dataset.value) != registry.BOX_LABELS or not os.path.isdir(path.value):
        return False
    found = registry.boxes_at(path.value)
    return len(found) == 1 and dataset.value not in found


def _with_guessed_dataset(known: dict[str, KeySetting], values: CfgNode) -> tuple[dict[str, KeySetting], list[str]]:
    """Look at what is at DATA.DATA_PATH."""
    path, named = values.DATA.DATA_PATH, known.get("DATA.DATASET")
    instead = f" instead of {named.value} ({named.place})" if named else ""
    instead += ", which reads no path" if named and named.value in registry.EMBEDDED else ""
    guess = registry.guess_dataset(path, values.TASK)
    if guess is None:
        raise UserError(
            f"DATA.DATA_PATH {path} ({known['DATA.DATA_PATH'].place}): no dataset that reads it is named, and what "
            "is there is not recognized (class folders below train and val, train_list.txt, annotations of COCO, VOC "
            "or YOLO, label maps, IDX files, tars, prepared scenes, volumes below train): name one with -dataset=NAME: "
            + ", ".join(sorted(registry.DATASETS))
        )
    values.DATA.DATASET = guess.dataset
    setting = KeySetting("DATA.DATASET", guess.dataset, "guessed from DATA.DATA_PATH", f"guessed: {guess.reason}")
    return {**known, setting.name: setting}, [f"dataset: {guess.dataset}{instead}, since {guess.reason}"]


def _recipe_epochs(settings: list[KeySetting]) -> int:
    """TRAIN.NUM_EPOCHS before the command line changes it."""
    key = keys()["TRAIN.NUM_EPOCHS"]
    in_files = [setting for setting in settings if setting.name == key.name and setting.source != COMMAND_LINE]
    return key.parse(in_files[-1].value) if in_files else key.default


def _resolve_names(known: dict[str, KeySetting]) -> tuple[dict[str, KeySetting], list[str]]:
    """Names of model, dataset and task as they are registered; notices about other spellings."""
    notices = []
    for name, kind in (("MODEL.NAME", "model"), ("DATA.DATASET", "dataset"), ("TASK", "task")):
        setting = known.get(name)
        if setting is None:
            continue
        try:
            value = registry.find_name(kind, setting.value)
        except UserError as error:
            raise UserError(f"{setting.place}: {name}: {error}") from None
        if value != setting.value:
            notices.append(f"{setting.place}: {name} {show(setting.value)} is called '{value}' here")
            if kind == "model" and registry.is_of_weights(setting.value):
                notices[-1] += ", and does not load its weights: -pretrained=NAME does"
            known = {**known, name: dataclasses.replace(setting, value=value)}
    return known, notices


def _accept(settings: list[KeySetting]) -> tuple[dict[str, KeySetting], list[str], list[str]]:
    """The last setting of each key with its value parsed; notices of PaddleViT's other names, and of keys that it alone
    has."""
    tables = registry.key_tables()
    names = {theirs: ours for table in tables for theirs, ours in table.renamed.items()}
    values = {theirs: ours for table in tables for theirs, ours in table.renamed_values.items()}
    needless = {theirs: why for table in tables for theirs, why in table.ignored_keys.items()}
    known: dict[str, KeySetting] = {}
    notices: list[str] = []
    dropped: dict[str, str] = {}
    for setting in settings:
        if setting.name in needless:
            why = needless[setting.name]
            if setting.value is None:
                continue
            dropped[setting.name] = f"{setting.place}: {setting.name} does not exist here and is not needed: {why}"
            continue
        ours = names.get(setting.name)
        if ours is not None:
            notices.append(f"{setting.place}: {setting.name} is called {ours} here")
            setting = dataclasses.replace(setting, name=ours)
        if setting.name not in keys():
            raise UserError(_unknown_key(setting) + _unknown_model(setting, settings))
        if setting.name == "BASE":
            raise UserError(f"{setting.place}: BASE belongs in a YAML file: name the file with -cfg=FILE")
        value = setting.value
        renamed = values.get((setting.name, str(value).lower()))
        if renamed is not None:
            notices.append(f"{setting.place}: {setting.name} {show(value)} is called '{renamed}' here")
            value = renamed
        known[setting.name] = dataclasses.replace(setting, value=_parse(setting, value, settings))
    return known, notices, list(dropped.values())


def _parse(setting: KeySetting, value: Any, settings: list[KeySetting]) -> Any:
    key = keys()[setting.name]
    try:
        return key.parse(value)
    except InvalidValue as mismatch:
        message = f"{setting.place}: {setting.name} is {show(value)}: expected {key.expected()}"
        message += f"; {mismatch}" if isinstance(mismatch, OutOfRange) else ""
        raise UserError(message + _unknown_model(setting, settings)) from None


def _unknown_key(setting: KeySetting) -> str:
    name = setting.name if setting.name.isprintable() else show(setting.name)
    value = "a section" if isinstance(setting.value, dict) else show(setting.value)
    if isinstance(setting.value, dict) and any(key.startswith(f"{name.upper()}.") for key in keys()):
        return f"{setting.place}: {name} is not a known section: sections and keys are in capitals: {name.upper()}"
    is_a_word = name.islower() and "." not in name and setting.source == COMMAND_LINE
    called = command_line.spell_here(name, str(setting.value)) if is_a_word else ""
    advice = f"write {called}" if called else f"the closest is {closest_key(setting.name)}"
    return f"{setting.place}: {name} ({value}) is not a known key: {advice}"


def closest_key(name: str) -> str:
    """The key that is spelled most like ``name``; one that ends in the same word, or in one that other tools have for
    it, comes first."""
    upper = name.upper()
    end = upper.rsplit(".", 1)[-1]
    same_end = [key for key in keys() if key.rsplit(".", 1)[-1] == end]
    meant = command_line.find_key(end)
    candidates = same_end or ([meant] if meant else list(keys()))
    return difflib.get_close_matches(upper, candidates, n=1, cutoff=0.0)[0]


def _unknown_model(setting: KeySetting, settings: list[KeySetting]) -> str:
    """A hint for a MODEL key or value that belongs to another family of models than the ones there are."""
    if not setting.name.startswith("MODEL.") or setting.source == COMMAND_LINE:
        return ""
    names = [str(other.value) for other in settings if other.name == "MODEL.NAME"]
    if not names or names[-1] in registry.MODELS:
        return ""
    near = registry.closest(names[-1], list(registry.MODELS)).strip()
    return f"; MODEL.NAME {show(names[-1])} is not a known model{': ' + near if near else ''}"


def dump_yaml(values: CfgNode) -> str:
    """A YAML file of the task's keys that ``load`` turns into equal values, apart from passwords and tokens in
    addresses (BASE is left out: its files are merged)."""
    return "".join(f"{line}\n" for line, _ in _lines(values))


def _describe(values: CfgNode, sources: dict[str, str]) -> str:
    """The same tree with the source of each value in a column of comments. A long value pushes its comment aside, a
    very long one puts it on the line above; a source that is too long is cut to its end."""
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
    """Lines of YAML; those of a key with its dotted name, those of a section with None."""
    known = find_keys(values)
    lines: list[tuple[str, str | None]] = []
    open_sections: list[str] = []
    for name, value in leaves(values):
        *sections, last = name.split(".")
        if name == "BASE" or name not in known:
            continue
        for depth, section in enumerate(sections):
            if open_sections[: depth + 1] != sections[: depth + 1]:
                lines.append((f"{'  ' * depth}{section}:", None))
        open_sections = sections
        lines.append((f"{'  ' * len(sections)}{last}: {_scalar(_public(value))}", name))
    return lines


def _public(value: Any) -> Any:
    """A value without the passwords and tokens of addresses: what is written here is kept and shown."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_public, value))
    return without_credentials(value) if isinstance(value, str) else value


def _scalar(value: Any) -> str:
    quoted = isinstance(value, str) and not value.isprintable()
    text = yaml.safe_dump(
        value, default_flow_style=True, default_style='"' if quoted else None, width=10**6, allow_unicode=True
    )
    return text.replace("\n...\n", "").strip()
