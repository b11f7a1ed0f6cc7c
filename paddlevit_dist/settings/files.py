"""YAML files: read safely, BASE files first, as a list of settings with the line of each."""

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

import yaml

from ..runtime.errors import UserError
from ..runtime.text_files import LARGEST_YAML_BYTES, YamlLoader, read_bytes
from . import recipes
from .key import NONE_WORDS, KeySetting, show
from .table import keys, sections

Lines = dict[tuple[str, ...], int]  # path of keys -> line, counted from 1


def read(path: str) -> list[KeySetting]:
    """Every setting of the file and of the BASE files it names, in the order in which later ones win.

    Args:
        path: of the file, or the name of a recipe.
    Raises:
        UserError: a file is missing, unreadable, not YAML, not a mapping, has a duplicate key, or BASE is circular.
    """
    return _read(recipes.find(path), ())


def _read(path: str, above: tuple[str, ...]) -> list[KeySetting]:
    label = os.path.normpath(path)
    content, lines = _parse(path, label)
    settings: list[KeySetting] = []
    own: dict[str, KeySetting] = {}
    for setting in _flatten(content, (), lines, label):
        if above:
            setting = dataclasses.replace(setting, is_base=True)
        if setting.name in own:
            raise UserError(f"{setting.place}: {setting.name} is already set at {own[setting.name].place}: keep one")
        own[setting.name] = setting
    base = own.pop("BASE", None)
    if base is not None:
        for name in _base_names(base):
            settings += _read_base(name, path, base.place, (*above, os.path.realpath(path)))
    return settings + list(own.values())


def _read_base(name: str, path: str, place: str, above: tuple[str, ...]) -> list[KeySetting]:
    base = os.path.join(os.path.dirname(path), os.path.expanduser(name))
    if not os.path.isfile(base):
        recipe = recipes.base(name)
        if recipe is None:
            raise UserError(f"{place}: BASE names {show(name)}: {recipes.missing(base)}")
        base = recipe
    if os.path.realpath(base) in above:
        chain = [os.path.relpath(file) for file in (*above[above.index(os.path.realpath(base)) :], base)]
        raise UserError(f"{place}: BASE is circular: {' -> '.join(chain)}")
    return _read(base, above)


def _base_names(base: KeySetting) -> list[str]:
    names = base.value if isinstance(base.value, list) else [base.value]
    if not all(name is None or isinstance(name, str) for name in names):
        raise UserError(
            f"{base.place}: BASE is {show(base.value)}: expected the name of a YAML file or a list of names"
        )
    return [name for name in names if name is not None and name.strip().lower() not in NONE_WORDS]


def _parse(path: str, label: str) -> tuple[dict[Any, Any], Lines]:
    """The content of one file and the line of each of its keys."""
    lines: Lines = {}
    try:
        loader = YamlLoader(read_bytes(path, LARGEST_YAML_BYTES))
        root = loader.get_single_node()
        if root is not None:
            _walk(root, (), lines, set(), label)
        content = None if root is None else loader.construct_document(root)
    except OSError as error:
        raise UserError(f"{label} cannot be read: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise UserError(f"{label}{line}: not valid YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError) as error:
        reason = str(error).split("\n")[0]
        raise UserError(f"{label}: not valid YAML: {reason}") from None
    if not isinstance(content, dict):
        found = "is empty" if content is None else f"holds {show(content)}"
        raise UserError(f"{label} {found}: expected a mapping such as 'TRAIN:' with keys below it")
    return content, lines


def _walk(node: yaml.Node, path: tuple[str, ...], lines: Lines, seen: set[int], label: str) -> None:
    """Note the line of each key, and refuse a key that appears twice in one mapping (YAML's loader keeps the last)."""
    if id(node) in seen or not isinstance(node, (yaml.MappingNode, yaml.SequenceNode)):
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _walk(item, path, lines, seen, label)
        return
    first: dict[tuple[str, str], int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if isinstance(key, yaml.ScalarNode):
            if (key.tag, key.value) in first:
                name = ".".join((*path, key.value))
                raise UserError(f"{label}:{line}: {name} is already set at line {first[key.tag, key.value]}: keep one")
            first[key.tag, key.value] = line
            lines.setdefault((*path, key.value), line)
            _walk(value, (*path, key.value), lines, seen, label)


def _flatten(content: dict[Any, Any], path: tuple[str, ...], lines: Lines, label: str) -> Iterator[KeySetting]:
    for key, value in content.items():
        here = (*path, str(key))
        name = ".".join(here)
        place = _place(here, lines, label)
        if name not in sections():
            yield KeySetting(name, value, label, place)
        elif isinstance(value, dict):
            yield from _flatten(value, here, lines, label)
        elif value is not None:
            raise UserError(f"{place}: {name} is {show(value)}: expected keys below it, such as {_first_key(name)}")


def _place(path: tuple[str, ...], lines: Lines, label: str) -> str:
    line: int | None = lines.get(path)
    return label if line is None else f"{label}:{line}"


def _first_key(section: str) -> str:
    return next(name for name in keys() if name.startswith(f"{section}."))
