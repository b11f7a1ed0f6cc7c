"""From the command line to one frozen configuration."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from yacs.config import CfgNode

from .. import registry
from ..errors import UserError
from . import checks, command_line, files, paddlevit, text
from .defaults import KEYS, default_config, put
from .key import Mismatch, show
from .setting import COMMAND_LINE, Setting


@dataclass(frozen=True)
class Configuration:
    """The merged configuration and where it comes from.

    Args:
        values: the frozen tree, for example ``values.DATA.BATCH_SIZE``.
        sources: dotted key -> "default", the file, or "command line".
        notices: lines for the log.
        show: whether -show_config was given.
        argv: the command line that was read.
    """

    values: CfgNode
    sources: dict[str, str]
    notices: list[str]
    show: bool
    argv: list[str]

    def describe(self) -> str:
        """The tree as YAML, with the source of each value in a column of comments."""
        return text.describe(self.values, self.sources)


def load(argv: Sequence[str]) -> Configuration:
    """Read the command line and the files it names; merge over the defaults, check, freeze.

    Raises:
        UserError: a flag, a file, a key or a value is wrong, or values do not fit together.
        SystemExit: help was asked for, and printed.
    """
    command = command_line.parse(argv)
    settings = (files.read(command.cfg) if command.cfg else []) + command.settings
    known, foreign, renamed = _accept(settings)

    values = default_config()
    for setting in known.values():
        put(values, setting.name, setting.value)
    for name in {"DATA.IMAGENET_MEAN", "DATA.IMAGENET_STD"} - set(known):  # defaults fit any number of channels
        put(values, name, KEYS[name].default[:1] * values.DATA.IMAGE_CHANNELS)
    notices = [*command.notices, *renamed]
    notices += paddlevit.judge(foreign)
    notices += checks.check(values, {name: setting.place for name, setting in known.items()})
    values.freeze()

    sources = {name: known[name].source if name in known else "default" for name in KEYS}
    return Configuration(values, sources, notices, command.show, list(argv))


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
