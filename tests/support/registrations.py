"""Names that tests register and modules that they import, forgotten when they are done."""

import contextlib
from collections.abc import Iterator
from typing import Any

from paddlevit_dist.core.registry import features, lookup, plugins, register

_NAMES = ("MODELS", "DATASETS", "TASKS", "CALLBACKS", "TRANSFORMS", "_SCORE_KINDS", "TABLES", "REGISTRATIONS")
_NAMES += ("_SCENE_FORMATS", "SPELLINGS", "RECIPES", "RECIPE_FOLDERS", "_KEY_TABLES")
_ROWS = ("MANIFESTS", "COMMANDS", "NAMINGS", "JOBS", "HOOKS", "OBSERVERS", "BRIDGES", "SOURCES", "FUNCTIONS")
_IMPORTED = ("_loaded", "_folders")


@contextlib.contextmanager
def forgotten() -> Iterator[None]:
    """Put the registry back to what it holds now."""
    tables: list[Any] = [getattr(lookup, name) for name in _NAMES]
    tables += [getattr(plugins, name) for name in _IMPORTED]
    tables += [*(getattr(features, name) for name in _ROWS), *lookup.OTHER_NAMES.values(), register._FEATURES]
    before = [table.copy() for table in tables]
    try:
        yield
    finally:
        for table, content in zip(tables, before):
            table.clear()
            (table.extend if isinstance(table, list) else table.update)(content)
        lookup.common_tables.cache_clear()
