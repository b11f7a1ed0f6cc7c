"""Keys that come with a model, dataset or task of a user: what they may be, seen when they are registered."""

import importlib
import re
from collections.abc import Sequence
from typing import Any

from ..runtime.errors import UserError
from .key import KINDS, InvalidValue, Key, KeyTable, show

_NAME = re.compile(r"[A-Z][A-Z0-9_]*(\.[A-Z][A-Z0-9_]*)*")


def read_declared(target: Any) -> Any:
    """Return what a class declares as its attribute ``keys``, or None."""
    keys = getattr(target, "keys", None) if isinstance(target, type) else None
    is_meant = isinstance(keys, (Key, KeyTable)) or (
        isinstance(keys, (list, tuple)) and any(isinstance(item, (Key, KeyTable)) for item in keys)
    )
    return keys if is_meant else None


def as_tables(declared: Any, owner: str, others: Sequence[KeyTable]) -> list[KeyTable]:
    """Tables of the keys that are declared.

    Args:
        declared: a ``Key``, a ``KeyTable``, a list of them, or the location of one, "module:attribute".
        owner: who declares them, for messages.
        others: the tables of everybody else.
    Raises:
        UserError: it is something else, or a key cannot be: its name, kind or default, or the name is taken.
    """
    if isinstance(declared, str):
        module, _, attribute = declared.partition(":")
        try:
            declared = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise UserError(f"{owner}: keys={declared!r} cannot be imported: {error}") from error
    items = list(declared) if isinstance(declared, (list, tuple)) else [declared]
    wrong = [item for item in items if not isinstance(item, (Key, KeyTable))]
    if wrong:
        raise UserError(f"{owner}: keys has {show(wrong[0])}: expected Key(name, default, kind, meaning), or a Table")
    loose = tuple(item for item in items if isinstance(item, Key))
    tables = [*([KeyTable(loose)] if loose else []), *(item for item in items if isinstance(item, KeyTable))]
    rows = [row for table in tables for row in table.keys]
    taken = {row.name: row for table in others for row in table.keys}
    for position, row in enumerate(rows):
        _check(row, owner)
        if row.name in [earlier.name for earlier in rows[:position]]:
            raise UserError(f"{owner}: key {row.name} is declared twice")
        if row.name in taken and taken[row.name] != row:
            raise UserError(f"{owner}: key {row.name} exists already: {taken[row.name].meaning}: choose another name")
        above = [name for name in taken if name.startswith(f"{row.name}.") or row.name.startswith(f"{name}.")]
        if above:
            raise UserError(f"{owner}: key {row.name} cannot be a section and a key: there is {above[0]}")
    return tables


def _check(row: Key, owner: str) -> None:
    if not isinstance(row.name, str) or not _NAME.fullmatch(row.name):
        raise UserError(f"{owner}: a key is called {show(row.name)}: expected capitals, such as DATA.MINE.FOLD")
    if row.kind not in KINDS:
        raise UserError(f"{owner}: key {row.name} is of kind {show(row.kind)}: expected one of {', '.join(KINDS)}")
    if row.default is None and not row.optional:
        raise UserError(f"{owner}: key {row.name} has the default None, and is not optional: add optional=True")
    try:
        row.parse(row.default)
    except InvalidValue:
        raise UserError(
            f"{owner}: key {row.name} has the default {show(row.default)}: expected {row.expected()}"
        ) from None
    if row.many and not isinstance(row.default, (list, tuple, type(None))) and row.default not in row.words:
        raise UserError(f"{owner}: key {row.name} has the default {show(row.default)}: expected {row.expected()}")
