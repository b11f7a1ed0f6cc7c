"""All keys, collected from the tables next to their readers (``registry.TABLES``), and the tree of their values."""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from yacs.config import CfgNode

from ..registry import key_tables
from .key import Key, KeyTable
from .section import Section


def keys(task: str | None = None) -> dict[str, Key]:
    """Return dotted name -> row of the keys that ``task`` reads, the engine's first.

    All keys are returned for None and for a task that declares no tables.
    """
    return _keys(tuple(key_tables(task)))


def find_keys(values: CfgNode) -> dict[str, Key]:
    """Return the keys that a run with this configuration reads."""
    return _keys(tuple(find_tables(values)))


def find_tables(values: CfgNode) -> list[KeyTable]:
    """Return the tables that a run with this configuration reads, the engine's first."""
    return key_tables(values.TASK, values.DATA.DATASET, values.MODEL.NAME)


@functools.cache
def _keys(tables: tuple[KeyTable, ...]) -> dict[str, Key]:
    return {key.name: key for table in tables for key in table.keys}


def effects() -> dict[str, str]:
    """Return dotted name -> effect of another value, one of ``key.EFFECTS``, for all keys."""
    return {key.name: table.find_effect(key.name) for table in key_tables() for key in table.keys}


def sections() -> frozenset[str]:
    """Return the dotted names of the sections of files, including PaddleViT's."""
    return _sections(tuple(key_tables()))


@functools.cache
def _sections(tables: tuple[KeyTable, ...]) -> frozenset[str]:
    names = [*_keys(tables), *(name for table in tables for name in (*table.renamed, *table.ignored_keys))]
    return frozenset(name[:dot] for name in names for dot, letter in enumerate(name) if letter == ".")


def default_config() -> CfgNode:
    """Return a new tree of all keys with their defaults, not frozen."""
    config = CfgNode()
    for key in keys().values():
        default = key.default
        put(config, key.name, type(default)(default) if key.many and default is not None else default)
    return config


def put(config: CfgNode, name: str, value: Any) -> None:
    """Set the dotted ``name`` in the tree; missing sections are created."""
    *sections, last = name.split(".")
    for section in sections:
        if section not in config:
            config[section] = CfgNode()
        config = config[section]
    config[last] = value


def leaves(config: Mapping[str, Any] | Section, above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) of every key in the tree, in its order."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
