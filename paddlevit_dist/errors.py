"""Errors that end a run, and how the entry point reports them."""

from __future__ import annotations

import sys
from typing import Callable

from . import environment, limits, printing


class UserError(Exception):
    """Bad input: the entry point prints the message on one line and exits with code 2.

    The message names the file, key or value, and says what was expected and what to do about it. Any other exception
    is a bug in this package and shows its traceback.
    """

    exit_code = 2


class WorkerFailure(Exception):
    """One of several worker processes failed; its peers have been stopped.

    Args:
        rank: the worker whose failure brought down the others.
        message: exception type and message, or how the process ended.
        traceback: as formatted by the worker; empty if it had no time to.
    """

    exit_code = 1

    def __init__(self, rank: int, message: str, traceback: str = "") -> None:
        super().__init__(f"rank {rank} failed: {message}")
        self.rank = rank
        self.traceback = traceback


def run_and_report(function: Callable[[], None]) -> int:
    """Call ``function``, report what went wrong on stderr, and return the process's exit code.

    Applies to the whole process: printing never ends it, and packages in the ``.venv`` next to the package need not
    be installed for the calling interpreter.
    """
    printing.never_fail()
    try:
        function()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except WorkerFailure as error:
        print(f"{error.traceback}error: {error}", file=sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as error:
        advice = environment.go_on_beside(error)
        if advice is None:
            raise
        print(f"error: {advice}", file=sys.stderr)
        return UserError.exit_code
    except KeyboardInterrupt:
        print("interrupted: the same command with -resume=auto continues from the last checkpoint", file=sys.stderr)
        return 130
    except Exception as error:
        reason = limits.explain(error)
        if reason is None:
            raise
        print(f"error: {reason}", file=sys.stderr)
        return UserError.exit_code
    return 0
