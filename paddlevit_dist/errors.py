"""Errors that end a run, and how the entry shows them."""

from __future__ import annotations

import sys
from typing import Callable

from . import environment, printing


class UserError(Exception):
    """Bad input: the entry prints its message as one line and ends with exit code 2.

    The message names the file, key or value, says what was expected and what to do now. Anything else that is raised
    is our bug and shows its traceback.
    """

    exit_code = 2


class WorkerFailure(Exception):
    """One of several worker processes failed; its peers have been ended.

    Args:
        rank: the worker whose end caused the others.
        message: exception and message, or how the process ended.
        traceback: as the worker formatted it; empty if it had no time to.
    """

    exit_code = 1

    def __init__(self, rank: int, message: str, traceback: str = "") -> None:
        super().__init__(f"rank {rank} failed: {message}")
        self.rank = rank
        self.traceback = traceback


def run_and_report(function: Callable[[], None]) -> int:
    """Call ``function`` and return the process's exit code, having told the user what went wrong on stderr.

    For the whole process: nothing that is printed ends it, and what ``.venv`` beside the package has need not be
    installed for the interpreter that was called.
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
    return 0
