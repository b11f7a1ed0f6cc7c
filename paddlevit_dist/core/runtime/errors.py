"""The errors that end a run, and their output by the entry point."""

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from traceback import format_exception

from . import environment, limits, outages, printing, process_exit, signals
from .outages import StorageOutage


class UserError(Exception):
    """Bad input: the entry point prints the message on one line and exits with code 2.

    The message names the file, key or value, what was expected and what to do. Any other exception is a bug in this
    package and shows its traceback.
    """

    exit_code = 2


class DeviceFailure(UserError):
    """An accelerator has failed: the entry point prints one line, as this package is not the cause."""

    exit_code = 1


class OwnCodeError(UserError):
    """A user's module, network or dataset raises an exception: its traceback, and one line below it."""

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback

    @classmethod
    def wrap(cls, message: str, error: BaseException) -> "OwnCodeError":
        """Return the error with the traceback of ``error``, from the first frame of the user's code if there is one."""
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_PACKAGE_FOLDERS):
            frames = frames.tb_next
        return cls(message, "".join(format_exception(type(error), error, frames or error.__traceback__)))

    def attach(self, error: BaseException) -> None:
        """Let this be shown if ``error`` ends the run; it stays of its type, for code that handles it."""
        vars(error).setdefault(_ATTACHED, (str(self), self.traceback))

    @classmethod
    def find(cls, error: BaseException) -> "OwnCodeError | None":
        """Return the error itself if it is one, or what is attached to it."""
        if isinstance(error, OwnCodeError):
            return error
        attached = vars(error).get(_ATTACHED)
        return None if attached is None else cls(*attached)


# What imports and calls users' code: this package, and Python's import.
_PACKAGE_FOLDERS = (str(Path(__file__).parents[2]), os.path.dirname(importlib.__file__), "<frozen importlib")
_ATTACHED = "paddlevit_dist_own_code"  # attribute of an exception: texts, so that it can still be pickled


class WorkerFailure(Exception):
    """One of several worker processes failed; its peers have been stopped.

    Args:
        rank: the worker whose failure ended the others.
        message: exception type and message, or how the process ended.
        traceback: as formatted by the worker; empty if it had no time to.
        is_lost: whether the rank did not fail by itself: it was killed or hangs, or its machine is gone.
    """

    exit_code = 1

    def __init__(self, rank: int, message: str, traceback: str = "", is_lost: bool = False) -> None:
        super().__init__(f"rank {rank} failed: {message}")
        self.rank = rank
        self.traceback = traceback
        self.is_lost = is_lost


class Stopped(Exception):
    """A training run was asked to stop, and its state is saved.

    Args:
        reason: source of the request, such as SIGTERM.
        saved: what is saved, and how to continue the run.
    """

    exit_code = signals.STOPPED

    def __init__(self, reason: str, saved: str) -> None:
        super().__init__(f"asked to stop ({reason}): {saved}")
        self.reason = reason
        self.saved = saved


def run_and_report(function: Callable[[], None], trains: bool = False) -> int:
    """Call ``function``, report its error on stderr, and return the process's exit code; ``trains``: it should train.

    This affects the whole process: printing never ends it, signals end it with one line, and packages in the ``.venv``
    next to the package need not be installed for the calling interpreter. A process that has joined a group ends here.
    """
    code = _find_exit_code(function, trains)
    signals.note_end(code)
    process_exit.end_if_in_danger(code)
    return code


def _find_exit_code(function: Callable[[], None], trains: bool) -> int:
    printing.ignore_broken_pipe()
    signals.set_mode(trains)
    sys.excepthook = printing.show_uncaught
    try:
        try:
            signals.install()
            _call(function)
        finally:
            signals.record_only()
    except (UserError, StorageOutage) as error:
        return _report(error)
    except WorkerFailure as error:
        first, _, rest = str(error).partition("\n")  # such as the traceback in another process, or Paddle's own
        details = error.traceback + (f"{rest}\n" if rest else "")
        print(f"{printing.block(details)}error: {printing.one_line(first)}", file=sys.stderr)
        return error.exit_code
    except Stopped as stop:
        print(f"stopped: {printing.one_line(stop)}", file=sys.stderr)
        return stop.exit_code
    except KeyboardInterrupt as error:
        starting = signals.is_training() and not getattr(error, "again", False)
        print(signals.describe(signals.exit_code(error) - 128, starting), file=sys.stderr)
        return signals.STOPPED if starting else signals.exit_code(error)
    except Exception as error:
        reason, own = limits.explain(error), OwnCodeError.find(error)
        if reason is None and own is not None:
            return _report(own)
        outage = outages.find_outage(error) if isinstance(error, OSError) else None
        if outage is not None:  # of what was not asked again
            return _report(StorageOutage(outages.explain_outage(outage)))
        if reason is None:
            raise
        print(f"error: {reason}", file=sys.stderr)
        return UserError.exit_code
    return 0


def _report(error: UserError | StorageOutage) -> int:
    if isinstance(error, OwnCodeError):
        print(printing.block(error.traceback), end="", file=sys.stderr)
    print(f"error: {printing.one_line(error)}", file=sys.stderr)
    return error.exit_code


def _call(function: Callable[[], None]) -> None:
    try:
        function()
    except ModuleNotFoundError as error:
        advice = environment.restart_in_venv(error)
        if advice is None:
            raise
        raise UserError(advice) from error
