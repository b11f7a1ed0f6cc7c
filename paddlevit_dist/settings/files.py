"""YAML files: read safely, BASE files first, into a list of settings with their line numbers."""

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
    """Return every setting of the file and of its BASE files, in order; later ones win.

    Args:
        path: path of the file, or the name of a recipe.

    Raises:
        UserError: a file is missing, unreadable, not YAML, not a mapping, has a duplicate key, or BASE is circular.
    """
    return _read(recipes.find(path), ())


def _read(path: str, above: tuple[str, ...]) -> list[KeySetting]:
    label = os.path.normpath(path)
    content, lines = _parse(path, label)
    settings: list[KeySetting] = []
    file_settings: dict[str, KeySetting] = {}
    for setting in _flatten(content, (), lines, label):
        if above:
            setting = dataclasses.replace(setting, is_base=True)
        if setting.name in file_settings:
            first = file_settings[setting.name].origin
            raise UserError(f"{setting.origin}: {setting.name} is already set at {first}: keep one")
        file_settings[setting.name] = setting
    base = file_settings.pop("BASE", None)
    if base is not None:
        for name in _base_names(base):
            settings += _read_base(name, path, base.origin, (*above, os.path.realpath(path)))
    return settings + list(file_settings.values())


def _read_base(name: str, path: str, origin: str, above: tuple[str, ...]) -> list[KeySetting]:
    base = os.path.join(os.path.dirname(path), os.path.expanduser(name))
    if not os.path.isfile(base):
        recipe = recipes.base(name)
        if recipe is None:
            raise UserError(f"{origin}: BASE names {show(name)}: {recipes.missing(base)}")
        base = recipe
    if os.path.realpath(base) in above:
        chain = [os.path.relpath(file) for file in (*above[above.index(os.path.realpath(base)) :], base)]
        raise UserError(f"{origin}: BASE is circular: {' -> '.join(chain)}")
    return _read(base, above)


def _base_names(base: KeySetting) -> list[str]:
    names = base.value if isinstance(base.value, list) else [base.value]
    if not all(name is None or isinstance(name, str) for name in names):
        raise UserError(
            f"{base.origin}: BASE is {show(base.value)}: expected the name of a YAML file or a list of names"
        )
    return [name for name in names if name is not None and name.strip().lower() not in NONE_WORDS]


def _parse(path: str, label: str) -> tuple[dict[Any, Any], Lines]:
    """Return the content of one file and the line of each of its keys."""
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
        problem = "is empty" if content is None else f"contains {show(content)}"
        raise UserError(f"{label} {problem}: expected a mapping such as 'TRAIN:' with keys below it")
    return content, lines


def _walk(node: yaml.Node, path: tuple[str, ...], lines: Lines, visited: set[int], label: str) -> None:
    """Record the line of each key; reject a key that appears twice in one mapping, where YAML would keep the last."""
    if id(node) in visited or not isinstance(node, (yaml.MappingNode, yaml.SequenceNode)):
        return
    visited.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _walk(item, path, lines, visited, label)
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
            _walk(value, (*path, key.value), lines, visited, label)


def _flatten(content: dict[Any, Any], path: tuple[str, ...], lines: Lines, label: str) -> Iterator[KeySetting]:
    for key, value in content.items():
        here = (*path, str(key))
        name = ".".join(here)
        origin = _format_origin(here, lines, label)
        if name not in sections():
            yield KeySetting(name, value, label, origin)
        elif isinstance(value, dict):
            yield from _flatten(value, here, lines, label)
        elif value is not None:
            raise UserError(f"{origin}: {name} is {show(value)}: expected keys below it, such as {_first_key(name)}")


def _format_origin(path: tuple[str, ...], lines: Lines, label: str) -> str:
    line: int | None = lines.get(path)
    return label if line is None else f"{label}:{line}"


def _first_key(section: str) -> str:
    return next(name for name in keys() if name.startswith(f"{section}."))
