"""Names that tests register and modules that they import, forgotten when they are done."""

import contextlib
from collections.abc import Iterator
from typing import Any

from paddlevit_dist.core.registry import plugins
from paddlevit_dist.core.registry.names import REGISTRY


@contextlib.contextmanager
def forgotten() -> Iterator[None]:
    """Put the registry back to what it holds now."""
    fields = [field for field in vars(REGISTRY).values() if isinstance(field, (dict, list))]
    nested = [table for field in (REGISTRY.kinds, REGISTRY.spellings, REGISTRY.annotations) for table in field.values()]
    tables: list[Any] = [*fields, *nested, plugins._loaded, plugins._folders]
    before = [table.copy() for table in tables]
    try:
        yield
    finally:
        for table, content in zip(tables, before):
            table.clear()
            (table.extend if isinstance(table, list) else table.update)(content)
