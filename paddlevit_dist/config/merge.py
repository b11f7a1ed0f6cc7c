"""From the command line to one frozen configuration."""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from yacs.config import CfgNode

from .. import registry
from ..errors import UserError
from . import checks, command_line, files, paddlevit
from . import merge as text
from .defaults import KEYS, default_config, leaves, put
from .key import COMMAND_LINE, Mismatch, Setting, show


@dataclass(frozen=True)
class Configuration:
    """The merged configuration and where it comes from.

    Args:
        values: the frozen tree, for example ``values.DATA.BATCH_SIZE``.
        sources: dotted key -> "default", the file, or "command line".
        notices: lines for the log.
        show: whether -show_config was given.
        argv: the command line that was read.
        recipe_epochs: TRAIN.NUM_EPOCHS as the files have it, whatever the command line says.
    """

    values: CfgNode
    sources: dict[str, str]
    notices: list[str]
    show: bool
    argv: list[str]
    recipe_epochs: int

    def changed(self, name: str, value: Any, notice: str) -> Configuration:
        """The same with another value of one key, and a notice that says why."""
        values = self.values.clone()
        values.defrost()
        put(values, name, value)
        values.freeze()
        return dataclasses.replace(self, values=values, notices=[*self.notices, notice])

    def describe(self) -> str:
        """The tree as YAML, with the source of each value in a column of comments."""
        return text.describe(self.values, self.sources)


def load(argv: Sequence[str], example: str | None = None) -> Configuration:
    """Read the command line and the files it names; merge over the defaults, check, freeze.

    Args:
        example: the YAML file that stands in where the command line names neither a file nor data; data without a file
            is then an error, names have to be registered, and a data set that nothing names is guessed from
            DATA.DATA_PATH. None: the defaults stand alone, and names are looked up by who uses them.
    Raises:
        UserError: a flag, a file, a key or a value is wrong, or values do not fit together.
        SystemExit: help was asked for, and printed.
    """
    command = command_line.parse(argv)
    cfg = command.cfg
    if cfg is None and example is not None:
        cfg = _example_unless_data(command.settings, example)
    settings = (files.read(cfg) if cfg else []) + command.settings
    known, foreign, renamed = _accept(settings)
    if example is not None:
        known, respelled = _known_names(known)
        renamed += respelled

    values = default_config()
    for setting in known.values():
        put(values, setting.name, setting.value)
    recipe_epochs = _recipe_epochs(settings)
    if example is not None and _reads_no_path(known, values):
        known, guessed = _with_guessed_dataset(known, values)
        renamed += guessed
    renamed += _shorten_warmup(values, known, settings)
    for name in {"DATA.IMAGENET_MEAN", "DATA.IMAGENET_STD"} - set(known):  # defaults fit any number of channels
        put(values, name, KEYS[name].default[:1] * values.DATA.IMAGE_CHANNELS)
    notices = [*command.notices, *renamed]
    notices += paddlevit.judge(foreign)
    places = {name: setting.place for name, setting in known.items()}
    if example is not None:
        checks.check_rooms(values, places)
    notices += checks.check(values, places)
    values.freeze()

    sources = {name: known[name].source if name in known else "default" for name in KEYS}
    return Configuration(values, sources, notices, command.show, list(argv), recipe_epochs)


def _example_unless_data(settings: list[Setting], example: str) -> str | None:
    """The example where no data is named, nothing for a data set that the user registered; any other needs a recipe."""
    given = {setting.name: setting for setting in settings}
    named = given.get("DATA.DATASET") or given.get("DATA.DATA_PATH")
    if named is None:
        return example
    room: str | None = "images"
    if named.name == "DATA.DATASET":
        name = registry.known_name("dataset", str(named.value))
        room = registry.room_of("dataset", name)
        if room is None:
            return None
    else:
        guess = registry.guess_dataset(os.path.expanduser(str(named.value)))
        name = guess.dataset if guess else ""
        room = registry.room_of("dataset", name) if guess else room
    recipe = registry.RECIPES.get(name) or registry.RECIPES[room or "images"]
    raise UserError(
        f"{named.place} {show(named.value)}: no recipe is named: add -cfg={recipe}, for example, or another of configs/"
    )


def _reads_no_path(known: dict[str, Setting], values: CfgNode) -> bool:
    """Whether a path was given that nobody would read: no data set is named, or a recipe's comes with the package.

    Raises:
        UserError: path and embedded data set were given side by side.
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
            f"DATA.DATA_PATH {path.value} ({path.place}): data set {dataset.value} comes with the package and reads no "
            "path: leave it out, or name the data set that lies there"
        )
    return True


def _with_guessed_dataset(known: dict[str, Setting], values: CfgNode) -> tuple[dict[str, Setting], list[str]]:
    """Look at what lies at DATA.DATA_PATH."""
    path, named = values.DATA.DATA_PATH, known.get("DATA.DATASET")
    instead = f" instead of {named.value} ({named.place}), which reads no path" if named else ""
    guess = registry.guess_dataset(path)
    if guess is None:
        raise UserError(
            f"DATA.DATA_PATH {path} ({known['DATA.DATA_PATH'].place}): no data set that reads it is named, and what "
            "lies there is not recognised (class folders below train and val, train_list.txt, IDX files, tars, "
            "prepared scenes, volumes below train): name one with -dataset=NAME: "
            + ", ".join(sorted(registry.DATASETS))
        )
    values.DATA.DATASET = guess.dataset
    setting = Setting("DATA.DATASET", guess.dataset, "guessed from DATA.DATA_PATH", f"guessed: {guess.reason}")
    return {**known, setting.name: setting}, [f"data set: {guess.dataset}{instead}, since {guess.reason}"]


def _recipe_epochs(settings: list[Setting]) -> int:
    """TRAIN.NUM_EPOCHS without what the command line says of it."""
    key = KEYS["TRAIN.NUM_EPOCHS"]
    in_files = [setting for setting in settings if setting.name == key.name and setting.source != COMMAND_LINE]
    return key.parse(in_files[-1].value) if in_files else key.default


def _shorten_warmup(values: CfgNode, known: dict[str, Setting], settings: list[Setting]) -> list[str]:
    """A recipe's warm-up keeps its share of the run where something else made the run no longer than it."""
    train = values.TRAIN
    warmup, epochs = known.get("TRAIN.WARMUP_EPOCHS"), known.get("TRAIN.NUM_EPOCHS")
    if values.EVAL or train.WARMUP_EPOCHS < train.NUM_EPOCHS or warmup is None or epochs is None:
        return []
    if warmup.source in (COMMAND_LINE, epochs.source):  # somebody has set both, or just this one
        return []
    key = KEYS["TRAIN.NUM_EPOCHS"]
    others = [key.parse(s.value) for s in settings if s.name == key.name and s.source != epochs.source]
    recipe_epochs = others[-1] if others else key.default
    before = train.WARMUP_EPOCHS
    if before >= recipe_epochs:
        return []
    train.WARMUP_EPOCHS = round(before / recipe_epochs * train.NUM_EPOCHS, 4)
    return [
        f"TRAIN.WARMUP_EPOCHS {before} ({warmup.place}) is not shorter than the run, TRAIN.NUM_EPOCHS "
        f"{train.NUM_EPOCHS} ({epochs.place}): shortened in proportion, from {before} of {recipe_epochs} to "
        f"{train.WARMUP_EPOCHS:g} of {train.NUM_EPOCHS}"
    ]


def _known_names(known: dict[str, Setting]) -> tuple[dict[str, Setting], list[str]]:
    """Names of model, data set and task as they are registered; notices about other spellings."""
    notices = []
    for name, kind in (("MODEL.NAME", "model"), ("DATA.DATASET", "dataset"), ("TASK", "task")):
        setting = known.get(name)
        if setting is None:
            continue
        try:
            value = registry.known_name(kind, setting.value)
        except UserError as error:
            raise UserError(f"{setting.place}: {name}: {error}") from None
        if value != setting.value:
            notices.append(f"{setting.place}: {name} {show(setting.value)} is called '{value}' here")
            known = {**known, name: dataclasses.replace(setting, value=value)}
    return known, notices


def _accept(settings: list[Setting]) -> tuple[dict[str, Setting], dict[str, Setting], list[str]]:
    """The last setting of each key with its value parsed; those of PaddleViT's other keys; notices."""
    known: dict[str, Setting] = {}
    foreign: dict[str, Setting] = {}
    notices: list[str] = []
    for setting in settings:
        if setting.name in paddlevit.DROPPED:
            foreign[setting.name] = setting
            continue
        ours = paddlevit.RENAMED_KEYS.get(setting.name)
        if ours is not None:
            notices.append(f"{setting.place}: {setting.name} is called {ours} here")
            setting = dataclasses.replace(setting, name=ours)
        if setting.name not in KEYS:
            raise UserError(_unknown_key(setting) + _unknown_model(setting, settings))
        if setting.name == "BASE":
            raise UserError(f"{setting.place}: BASE belongs in a YAML file: name the file with -cfg=FILE")
        value = setting.value
        renamed = paddlevit.RENAMED_VALUES.get((setting.name, str(value).lower()))
        if renamed is not None:
            notices.append(f"{setting.place}: {setting.name} {show(value)} is called '{renamed}' here")
            value = renamed
        known[setting.name] = Setting(setting.name, _parse(setting, value, settings), setting.source, setting.place)
    return known, foreign, notices


def _parse(setting: Setting, value: Any, settings: list[Setting]) -> Any:
    key = KEYS[setting.name]
    try:
        return key.parse(value)
    except Mismatch:
        message = f"{setting.place}: {setting.name} is {show(value)}: expected {key.expected()}"
        raise UserError(message + _unknown_model(setting, settings)) from None


def _unknown_key(setting: Setting) -> str:
    name = setting.name if setting.name.isprintable() else show(setting.name)
    value = "a section" if isinstance(setting.value, dict) else show(setting.value)
    return f"{setting.place}: {name} ({value}) is not a known key: the closest is {closest_key(setting.name)}"


def closest_key(name: str) -> str:
    """The key that is spelled most like ``name``; one that ends in the same word comes first."""
    upper = name.upper()
    same_end = [key for key in KEYS if key.rsplit(".", 1)[-1] == upper.rsplit(".", 1)[-1]]
    candidates = same_end or list(KEYS)
    return difflib.get_close_matches(upper, candidates, n=1, cutoff=0.0)[0]


def _unknown_model(setting: Setting, settings: list[Setting]) -> str:
    """A hint for a MODEL key or value that belongs to another family of models than the ones there are."""
    if not setting.name.startswith("MODEL.") or setting.source == COMMAND_LINE:
        return ""
    names = [str(other.value) for other in settings if other.name == "MODEL.NAME"]
    if not names or names[-1] in registry.MODELS:
        return ""
    near = registry.closest(names[-1], list(registry.MODELS)).strip()
    return f"; MODEL.NAME {show(names[-1])} is not a known model{': ' + near if near else ''}"


WIDEST = 72  # columns, before a comment that stands further right than its neighbours


def dump_yaml(values: CfgNode) -> str:
    """A YAML file that ``load`` turns into equal values (BASE is left out: its files are merged already)."""
    return "".join(f"{line}\n" for line, _ in _lines(values))


def describe(values: CfgNode, sources: dict[str, str]) -> str:
    """The same tree with the source of each value in a column of comments."""
    lines = _lines(values)
    column = max(len(line) for line, name in lines if name is None or len(line) <= WIDEST)
    return "\n".join(line if name is None else f"{line:<{column}}  # {sources[name]}" for line, name in lines)


def _lines(values: CfgNode) -> list[tuple[str, str | None]]:
    """Lines of YAML; those of a key with its dotted name, those of a section with None."""
    lines: list[tuple[str, str | None]] = []
    open_sections: list[str] = []
    for name, value in leaves(values):
        *sections, last = name.split(".")
        if name == "BASE":
            continue
        for depth, section in enumerate(sections):
            if open_sections[: depth + 1] != sections[: depth + 1]:
                lines.append((f"{'  ' * depth}{section}:", None))
        open_sections = sections
        lines.append((f"{'  ' * len(sections)}{last}: {_scalar(value)}", name))
    return lines


def _scalar(value: Any) -> str:
    quoted = isinstance(value, str) and not value.isprintable()
    text = yaml.safe_dump(
        value, default_flow_style=True, default_style='"' if quoted else None, width=10**6, allow_unicode=True
    )
    return text.replace("\n...\n", "").strip()
