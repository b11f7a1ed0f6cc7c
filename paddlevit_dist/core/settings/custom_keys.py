"""Keys that a user's model, dataset or task declares: checked when it is registered."""

import importlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..runtime.errors import UserError
from .key import EFFECTS, KINDS, Key, show
from .table import KeyTable
from .values import InvalidValue

_NAME = re.compile(r"[A-Z][A-Z0-9_]*(\.[A-Z][A-Z0-9_]*)*")


def read_declared(target: object) -> Any:
    """Return the keys that a class declares in its attribute ``keys``, or None."""
    keys = getattr(target, "keys", None) if isinstance(target, type) else None
    is_declaration = isinstance(keys, (Key, KeyTable)) or (
        isinstance(keys, (list, tuple)) and any(isinstance(item, (Key, KeyTable)) for item in keys)
    )
    return keys if is_declaration else None


def as_tables(declared: object, owner: str, others: Sequence[KeyTable]) -> list[KeyTable]:
    """Return tables of the declared keys: a ``Key``, a ``KeyTable``, a list of them, or "module:attribute" of one.

    ``owner`` declares them, for messages; ``others`` are all other tables. Raises UserError: it is something else, a
    name, kind or default is invalid, or a name is in use.
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
        raise UserError(
            f"{owner}: keys has {show(wrong[0])}: expected Key(name, default, kind, meaning), or a KeyTable"
        )
    loose = tuple(item for item in items if isinstance(item, Key))
    tables = [*([KeyTable(loose)] if loose else []), *(item for item in items if isinstance(item, KeyTable))]
    rows = [key for table in tables for key in table.keys]
    for row in rows:
        _check(row, owner)
    _check_names(rows, {key.name: key for table in others for key in (*table.former, *table.keys)}, owner)
    return tables


def name_option(key: str) -> str:
    """Return the option of a model that a key which it declares sets: the last word in lower case."""
    return key.rpartition(".")[2].lower()


def check_options(target: Any, tables: Sequence[KeyTable], owner: str) -> None:
    """Check that each key of a model's class sets another option of the class; raises UserError."""
    keys: dict[str, str] = {}
    for row in (row for table in tables for row in table.keys):
        option = name_option(row.name)
        if option in keys:
            raise UserError(f"{owner}: keys {keys[option]} and {row.name} both set the option '{option}': rename one")
        keys[option] = row.name
        try:
            target.require_options(target.__name__, [option])
        except UserError as error:
            raise UserError(f"{owner}: key {row.name} sets a parameter of the constructor: {error}") from None


def _check_names(rows: Sequence[Key], others_by_name: Mapping[str, Key], owner: str) -> None:
    """Check that no key has the name of another one, or of a section."""
    for position, row in enumerate(rows):
        if row.name in [earlier.name for earlier in rows[:position]]:
            raise UserError(f"{owner}: key {row.name} is declared twice")
        if row.name in others_by_name and others_by_name[row.name] != row:
            raise UserError(
                f"{owner}: key {row.name} exists already: {others_by_name[row.name].meaning}: choose another name"
            )
        above = [name for name in others_by_name if name.startswith(f"{row.name}.") or row.name.startswith(f"{name}.")]
        if above:
            raise UserError(f"{owner}: key {row.name} cannot be both a section and a key: {above[0]} exists")


def _check(row: Key, owner: str) -> None:
    if not isinstance(row.name, str) or not _NAME.fullmatch(row.name):
        raise UserError(f"{owner}: {show(row.name)} is not a valid key: expected capitals, such as DATA.MINE.FOLD")
    if row.kind not in KINDS:
        raise UserError(f"{owner}: key {row.name} has the kind {show(row.kind)}: expected one of {', '.join(KINDS)}")
    if row.effect not in EFFECTS:
        raise UserError(
            f"{owner}: key {row.name} has the effect {show(row.effect)}: expected one of {', '.join(EFFECTS)}"
        )
    if row.flag is not None:
        raise UserError(f"{owner}: key {row.name} has a flag, which only keys of this package have: remove it")
    if row.default is None and not row.optional:
        raise UserError(f"{owner}: key {row.name} has the default None but is not optional: add optional=True")
    has_type = not row.many or row.default in row.words or isinstance(row.default, (list, tuple, type(None)))
    try:
        if not has_type:
            raise InvalidValue
        row.parse(row.default)
    except InvalidValue:
        raise UserError(
            f"{owner}: key {row.name} has the default {show(row.default)}: expected {row.expected()}"
        ) from None
