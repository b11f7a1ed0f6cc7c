"""Names that tests register, forgotten when they are done."""

import contextlib
from collections.abc import Iterator

from paddlevit_dist.registry import lookup


@contextlib.contextmanager
def forgotten() -> Iterator[None]:
    """Put the registry back to what it holds now."""
    tables = [getattr(lookup, name) for name in ("MODELS", "DATASETS", "TASKS", "CALLBACKS", "TABLES", "REGISTRATIONS")]
    before = [dict(table) for table in tables]
    yield
    for table, content in zip(tables, before):
        table.clear()
        table.update(content)
