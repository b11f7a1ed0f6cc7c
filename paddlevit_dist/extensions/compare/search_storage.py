"""The file of a search: which of SQLite's errors mean damage, and which that it cannot be written now."""

import contextlib
import errno
import importlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from ...core.runtime.errors import UserError
from ...core.runtime.files import explain_write_error

# SQLite tells why in these words only (its numbers are known from Python 3.11 on).
_NUMBERS = {
    "database or disk is full": errno.ENOSPC,
    "disk I/O error": errno.EIO,
    "attempt to write a readonly database": errno.EACCES,
}

_DAMAGE = ("unsupported file format", "no such ")  # the operational errors that the content causes


@contextlib.contextmanager
def storage_errors_as_user_errors(optuna: ModuleType, file: Path, hint: str) -> Iterator[None]:
    """Turn an error of the study's file into a UserError; only a damaged file is to be removed.

    SQLite takes back what it could not write, so the trials before stay, and ``hint`` says how to continue.
    """
    try:
        yield
    except (importlib.import_module("sqlalchemy.exc").SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        cause = _find_cause(error)
        if not isinstance(cause, sqlite3.OperationalError) or str(cause).startswith(_DAMAGE):
            reason = str(cause or error).splitlines()[0]
            raise UserError(f"{file} cannot be read as a search ({reason}): remove it") from error
        raise UserError(f"cannot write {file}: {_explain(cause, file)}; {hint}") from error


def _find_cause(error: BaseException) -> sqlite3.Error | None:
    each: BaseException | None = error
    while each is not None and not isinstance(each, sqlite3.Error):
        each = each.__cause__ or each.__context__
    return each


def _explain(error: sqlite3.OperationalError, file: Path) -> str:
    number = _NUMBERS.get(str(error))
    if number == errno.EIO:  # also a limit of file sizes
        return f"{error}; free space, raise the limit of file sizes (ulimit -f), or see dmesg for a failing disk"
    if number is not None:
        return explain_write_error(OSError(number, os.strerror(number)))
    try:  # "unable to open database file" has several reasons
        with open(file, "ab"):
            return str(error)
    except OSError as found:
        return explain_write_error(found)
