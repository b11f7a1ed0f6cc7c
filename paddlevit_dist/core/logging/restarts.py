"""Whether a training run that another command has started is to be started again: only if it may succeed then."""

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from ..launch.failures import is_killed
from ..runtime.metrics_file import recorded_events
from .progress import write_line
from .record import FAILURE, INTERRUPTION

MOST_RESTARTS = 3  # that bring no new checkpoint
_FEWEST_BYTES = 1 << 16  # free, so that a run can record why it has failed


class RestartCount:
    """Counts the starts of a run in a folder, whose rank may be lost: killed by the system, or with its machine.

    ``examples/cluster/slurm.sh`` follows the same rule.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._fruitless = -1  # the first start is not a restart
        self._begin()

    def _begin(self) -> None:
        self._events = sum(1 for _ in recorded_events(self._folder))
        self._last = _find_last_save(self._folder)

    def is_due(self, code: int, what: str) -> bool:
        """Return whether to start the run again that has ended with ``code``, and log a line about ``what`` then.

        ``code`` is negative for a signal, as ``subprocess`` has it. What the run has recorded since its start decides,
        and without a record the code.
        """
        is_new = _find_last_save(self._folder) != self._last
        events = list(recorded_events(self._folder))[self._events :]
        kind = events[-1].get("kind") if events else None
        is_lost = kind == INTERRUPTION or (kind != FAILURE and is_killed(code))
        self._fruitless = 0 if is_new else self._fruitless + 1
        self._begin()
        if not code or not is_lost:
            return False
        if self._fruitless >= MOST_RESTARTS:
            write_line(f"{what}: {MOST_RESTARTS} restarts have brought no new checkpoint: it is not started again")
            return False
        write_line(f"{what}: a process was lost (exit code {code}): it is started again")
        return True


def format_reason(folders: Iterable[str | Path]) -> str:
    """Return why the first of the failed runs in these folders has failed, with ``"; "``; empty if none is known.

    A run records it, unless the disk is full.
    """
    for folder in folders:
        *_, last = {}, *recorded_events(Path(folder))
        if last.get("kind") == FAILURE:
            return f"{last.get('reason')}; "
        with contextlib.suppress(OSError):
            if shutil.disk_usage(folder).free < _FEWEST_BYTES:
                return f"the disk of {folder} is full: free space; "
    return ""


def _find_last_save(folder: Path) -> int:
    """Return when the last checkpoint was linked, as its file system counts; 0 for none."""
    try:
        return os.lstat(folder / "checkpoints" / "last").st_mtime_ns
    except OSError:
        return 0
