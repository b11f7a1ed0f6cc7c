"""YAML files: read the file that ``-cfg`` means with its BASE files into settings with line numbers."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from ..runtime.errors import UserError
from ..runtime.text_files import LARGEST_YAML_BYTES, YamlLoader, read_bytes
from .every_run import DEFAULT_TASK
from .key import show
from .key_tables import known_tables
from .recipes import explain_missing_file, find_builtin_base, find_file
from .table import KeySetting, KeyTable, find_keys, is_section
from .values import NONE_WORDS

Lines = dict[tuple[str, ...], int]  # path of keys -> line, counted from 1


class YamlFile(NamedTuple):
    """A parsed file."""

    label: str  # its path, for messages
    content: dict[Any, Any]  # its mapping, without BASE
    lines: Lines  # line of each key
    is_base: bool  # another file names it in BASE


class StoredSettings(NamedTuple):
    """Settings that a checkpoint stores, in place of a file."""

    content: Mapping[str, Any]  # nested plain values
    label: str  # where they are, for messages
    is_checked: bool = True  # False: values that another version accepted, to compare with, may not fit together


def read_file(path: str, task: str | None = None) -> list[KeySetting]:
    """Return every setting of the file, or recipe, and of its BASE files, in order; later ones win.

    ``task`` is the task of the run; None: the one that the files name. Raises UserError: a file is missing, unreadable,
    not YAML, not a mapping, has a duplicate key, or BASE is circular.
    """
    return _list_settings(_read_with_bases(find_file(path), ()), task)


def read_stored(stored: StoredSettings, task: str | None = None) -> list[KeySetting]:
    """Return every setting that is stored with weights, and of its BASE files, in order; later ones win.

    Raises:
        UserError: a section is not one, or a BASE file is wrong.
    """
    return _list_settings(_read_content(dict(stored.content), {}, stored.label, stored.label, ()), task)


def _list_settings(files: Sequence[YamlFile], task: str | None) -> list[KeySetting]:
    """Return the settings of files in order; UserError: one file sets a key twice."""
    named = [file.content["TASK"] for file in files if isinstance(file.content.get("TASK"), str)]
    task = task or (named[-1] if named else DEFAULT_TASK)
    tables = tuple(known_tables(task))
    settings: list[KeySetting] = []
    for file in files:
        origins: dict[str, str] = {}
        for setting in _flatten(file.content, (), file, tables):
            if setting.name in origins:
                first = origins[setting.name]
                raise UserError(f"{setting.origin}: {setting.name} is already set at {first}: keep one")
            origins[setting.name] = setting.origin
            settings.append(setting)
    return settings


def _read_with_bases(path: str, above: tuple[str, ...]) -> list[YamlFile]:
    """Parse the BASE files of a file, and after them the file; ``above`` are the files that lead to it."""
    label = os.path.normpath(path)
    return _read_content(*_parse(path, label), path, label, above)


def _read_content(
    content: dict[Any, Any], lines: Lines, path: str, label: str, above: tuple[str, ...]
) -> list[YamlFile]:
    """Return the files that ``content`` names in BASE, which is removed from it, and then ``content`` as a file."""
    files: list[YamlFile] = []
    if "BASE" in content:
        base = KeySetting("BASE", content.pop("BASE"), label, _format_origin(("BASE",), lines, label))
        for name in _base_names(base):
            files += _read_base(name, path, base.origin, (*above, os.path.realpath(path)))
    return [*files, YamlFile(label, content, lines, is_base=bool(above))]


def _read_base(name: str, path: str, origin: str, above: tuple[str, ...]) -> list[YamlFile]:
    """Parse the file that ``BASE: name`` of the file ``path`` means; UserError: there is none, or BASE is circular."""
    base = os.path.join(os.path.dirname(path), os.path.expanduser(name))
    if not os.path.isfile(base):
        recipe = find_builtin_base(name)
        if recipe is None:
            raise UserError(f"{origin}: BASE names {show(name)}: {explain_missing_file(base)}")
        base = recipe
    if os.path.realpath(base) in above:
        chain = [os.path.relpath(file) for file in (*above[above.index(os.path.realpath(base)) :], base)]
        raise UserError(f"{origin}: BASE is circular: {' -> '.join(chain)}")
    return _read_with_bases(base, above)


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
            _record_lines(root, (), lines, set(), label)
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


def _record_lines(node: yaml.Node, path: tuple[str, ...], lines: Lines, visited: set[int], label: str) -> None:
    """Record the line of each key; reject a key that appears twice in one mapping, where YAML would keep the last."""
    if id(node) in visited or not isinstance(node, (yaml.MappingNode, yaml.SequenceNode)):
        return
    visited.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _record_lines(item, path, lines, visited, label)
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
            _record_lines(value, (*path, key.value), lines, visited, label)


def _flatten(
    content: dict[Any, Any], path: tuple[str, ...], file: YamlFile, tables: tuple[KeyTable, ...]
) -> Iterator[KeySetting]:
    """Yield the settings of a mapping of a file; UserError: a section is not a mapping."""
    for key, value in content.items():
        here = (*path, str(key))
        name = ".".join(here)
        origin = _format_origin(here, file.lines, file.label)
        if not is_section(name, tables):
            yield KeySetting(name, value, file.label, origin, file.is_base)
        elif isinstance(value, dict):
            yield from _flatten(value, here, file, tables)
        elif value is not None:
            example = next(key for key in find_keys() if key.startswith(f"{name}."))
            raise UserError(f"{origin}: {name} is {show(value)}: expected keys below it, such as {example}")


def _format_origin(path: tuple[str, ...], lines: Lines, label: str) -> str:
    line: int | None = lines.get(path)
    return label if line is None else f"{label}:{line}"
