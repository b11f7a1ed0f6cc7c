"""Files in a run's output folder: configuration, run record, log, metrics; and their use by a resumed run."""

import contextlib
import glob
import itertools
import os
import platform
import shlex
import shutil
import stat
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..launch.lock import FILE as LOCK
from ..runtime import printing
from ..runtime.errors import Stopped, UserError, WorkerFailure
from ..runtime.files import atomic_file, os_errors_as_user_errors, remove_abandoned
from ..runtime.json_format import format_json
from ..runtime.metrics_file import METRICS, recorded_events
from ..runtime.outages import StorageOutage
from ..runtime.version import __version__
from ..settings.every_run import RunSettings
from .progress import write_line

COMPARED = "compared.html"  # a comparison with other runs, linked from the run's report
SCORES = "quantities.json"  # what the values of evaluations are, see ``tasks.score``
SEEDS = "seeds.json"  # in a folder of runs with several seeds
INTERRUPTION, FAILURE = ENDS = "interruption", "failure"  # kinds of events
FOUND_LATER = "found when resuming"  # the reason of an interruption that the run could not record
_REPEATED = ("training", "epoch", "evaluation", "evaluation_without_average")
_LOG_LOCK = threading.RLock()  # the saving thread also logs; log and terminal have the same order


class RunLog:
    """Log lines and metric events of one run in an existing folder; only rank 0 ``writes``.

    A run that starts again from an earlier checkpoint keeps its events in ``held`` until a checkpoint replaces later
    ones: if it is killed before, the folder is unchanged.
    """

    def __init__(self, folder: Path, writes: bool) -> None:
        self.folder = folder
        self.writes = writes
        self.held: dict[str, list[str]] | None = None  # texts by name of the file
        self._position = 0, 0, False  # of ``hold_events``
        if writes:
            printing.ignore_broken_pipe()

    def log_and_print(self, text: str, shown: str | None = None) -> None:
        """Write a line to stdout and ``log.txt``; ``shown``: a shorter one for stdout."""
        if not self.writes:
            return
        with _LOG_LOCK:
            write_line(text if shown is None else shown)
            self.log(text)

    def log(self, text: str) -> None:
        """Write a line to ``log.txt`` only."""
        if not self.writes:
            return
        # A file name may not be valid text.
        self._write("log.txt", f"{time.strftime('%Y-%m-%d %H:%M:%S')} {printing.one_line(text)}\n", "a")

    def event(self, kind: str, values: dict[str, Any]) -> None:
        """Add a line to ``metrics.jsonl``: ``{"kind": ..., "time": seconds since 1970, ...values}``."""
        if not self.writes:
            return
        self._put(METRICS, format_json({"kind": kind, "time": round(time.time(), 3), **values}) + "\n", "a")

    def hold_events(self, epoch: int, update: int, evaluates: bool = False) -> None:
        """Hold events and files until ``replace_events``, since the folder has checkpoints after this position."""
        self.held, self._position = {}, (epoch, update, evaluates)

    def replace_events(self) -> None:
        """Supersede what is recorded after the position of ``hold_events``, and write what was held since then."""
        with _LOG_LOCK:
            if self.held is not None:
                events = self.held.pop(METRICS, [])
                for name, texts in self.held.items():
                    self._write(name, texts[-1])
                supersede(self.folder, *self._position, more=events)
                self.held = None

    def file(self, name: str, content: str) -> None:
        """Write a small text file to the run's folder."""
        if self.writes:
            self._put(name, content)

    def start(self, config_text: str, facts: dict[str, Any], evaluation: bool) -> None:
        """Write ``config.yaml`` and ``run.json``; ``eval_*`` for an evaluation, to keep the ones of training."""
        if not self.writes:
            return
        prefix = "eval_" if evaluation else ""
        self._put(f"{prefix}config.yaml", config_text)
        self._put(f"{prefix}run.json", format_json({**facts, **surroundings()}, indent=1) + "\n")

    def _put(self, name: str, text: str, mode: str = "w") -> None:
        with _LOG_LOCK:
            if self.held is None:
                self._write(name, text, mode)
            else:
                self.held.setdefault(name, []).append(text)

    def _write(self, name: str, text: str, mode: str = "w") -> None:
        file = self.folder / name
        with os_errors_as_user_errors(file), open(file, mode, encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)


def versions() -> dict[str, str]:
    """Return the versions of this package and of the packages that its results depend on."""
    import numpy
    import paddle

    python = platform.python_version()
    return {"paddlevit_dist": __version__, "paddle": paddle.__version__, "numpy": numpy.__version__, "python": python}


def surroundings() -> dict[str, Any]:
    """Return this process's command line, versions and machine."""
    from ..launch import tuning

    return {
        "command": printing.without_credentials(shlex.join([sys.executable, *sys.argv])),
        "folder": os.getcwd(),
        "started": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "versions": versions(),
        "machine": {
            "host": platform.node(),
            "system": platform.platform(),
            "processor": tuning.processor()["model"],
            "cores": os.cpu_count(),
        },
        "tuning": tuning.settings(),
    }


@contextlib.contextmanager
def output_folder(
    path: str, records: Sequence[str] = ("run.json", "eval_run.json"), is_numbered: bool = False
) -> Iterator[Path]:
    """Create the output folder for the context; remove a new one that a refused run has left without records.

    Args:
        path: of the folder.
        records: names of files that exist once a run is sure to continue.
        is_numbered: use the first of path, path-2, path-3 and so on that does not exist.

    Raises:
        UserError: it cannot be created.
    """
    parents = [ancestor for ancestor in Path(path).absolute().parents if not ancestor.exists()]
    is_new = is_numbered or not os.path.lexists(path)
    folder = make_folder(path, is_numbered)
    try:
        yield folder
    except (UserError, StorageOutage):
        # A remaining lock belongs to another run, which has created the folder at the same time.
        if is_new and not any((folder / name).exists() for name in (*records, LOCK)):
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # it contains another run's folder by now
                for parent in parents:
                    parent.rmdir()
        raise


def find_numbered(path: Path) -> list[Path]:
    """Return the existing folders path-2, path-3 and so on, the last first."""
    by_end = {other.name[len(path.name) + 1 :]: other for other in path.parent.glob(f"{glob.escape(path.name)}-*")}
    return [by_end[end] for end in sorted(filter(str.isdecimal, by_end), key=int, reverse=True)]


def make_folder(path: str, is_numbered: bool = False) -> Path:
    """Create the output folder without writing into it; raises a UserError if it cannot be created.

    ``is_numbered`` is as in ``output_folder``; two runs that start at the same time get different folders.
    """
    if path.startswith("~"):  # existing users have been expanded
        raise UserError(f"-output={path} (SAVE): there is no such user; write ./{path} if the folder has that name")
    # The next is above all, so that the highest is the newest.
    before = find_numbered(Path(path)) if is_numbered else []
    first = int(before[0].name.rpartition("-")[2]) + 1 if before else 1
    names = (path if number == 1 else f"{path}-{number}" for number in itertools.count(first))
    while True:
        folder = Path(next(names))
        try:
            folder.mkdir(parents=True, exist_ok=not is_numbered)
            return folder
        except OSError as error:
            if not (is_numbered and os.path.lexists(folder)):  # else a parent cannot be created, for any number
                reason = f"cannot be written: {error.strerror}; choose another folder"
                raise UserError(f"-output={folder} (SAVE) {reason}") from error


def require_writable(folder: Path, evaluation: bool) -> None:
    """Check, before any work, that the files of a run can be written; a UserError names one that cannot."""
    prefix = "eval_" if evaluation else ""
    for file in (folder / name for name in ("log.txt", METRICS, f"{prefix}config.yaml", f"{prefix}run.json")):
        with os_errors_as_user_errors(file), contextlib.suppress(FileNotFoundError):
            kind = os.stat(file).st_mode
            if not (stat.S_ISREG(kind) or stat.S_ISCHR(kind) or stat.S_ISDIR(kind)):
                raise UserError(f"cannot write {file}: it is not a file; remove it, or choose another -output")
            os.close(os.open(file, os.O_WRONLY | os.O_APPEND))


def cache_folder(config: RunSettings) -> Path:
    """Return the folder for indexes and decompressed files of datasets: DATA.CACHE_FOLDER, else a folder in SAVE.

    What killed processes left unfinished there is removed.

    Raises:
        UserError: it cannot be created.
    """
    requested = config.DATA.CACHE_FOLDER
    folder = Path(config.SAVE, "data") if requested is None else Path(requested).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"DATA.CACHE_FOLDER {folder} cannot be created: {error.strerror}; choose another") from error
    remove_abandoned(folder)
    return folder


class RunHistory(NamedTuple):
    """The earlier records of a resumed run."""

    evaluations: list[int]  # epochs whose evaluations will be repeated
    lost_updates: int  # updates that were reported and will be repeated
    last_epoch: int  # the last one with a record; 0 for none
    is_stop_recorded: bool  # whether the stop before this start was recorded


def supersede(
    folder: Path, epoch: int, update: int, evaluates: bool = False, more: Sequence[str] | None = ()
) -> RunHistory:
    """Mark entries of ``metrics.jsonl`` after the given epoch and update with ``"superseded": true``.

    A run that continues from there writes them again; unmarked, an epoch would count twice. A line truncated when the
    run was killed gets the kind "unreadable".

    Args:
        folder: a run's output folder.
        epoch: the last complete epoch, from which the run continues.
        update: the last update, perhaps in the middle of the next epoch.
        evaluates: whether the evaluation of ``epoch`` is repeated, too.
        more: lines to write after the others; None: nothing is written.
    """
    events = list(recorded_events(folder))
    if not events:
        return RunHistory([], 0, 0, False)
    evaluations, updates = set(), [update]
    for event in events:
        if event.get("kind") not in _REPEATED or not isinstance(event.get("epoch"), int):
            continue
        is_due = evaluates and event["epoch"] == epoch and event["kind"].startswith("evaluation")
        is_repeated = event["epoch"] > epoch or is_due
        is_before = event["kind"] == "training" and event["epoch"] == epoch + 1 and event.get("update", 0) <= update
        if not is_repeated or is_before or event.get("superseded"):
            continue
        event["superseded"] = True
        if event["kind"] == "evaluation":
            evaluations.add(event["epoch"])
        updates.append(event.get("update", update))
    if more is not None:
        with atomic_file(folder / METRICS) as out:
            out.write("".join([*(format_json(entry) + "\n" for entry in events), *more]).encode())
    last_epoch = max((entry["epoch"] for entry in events if isinstance(entry.get("epoch"), int)), default=0)
    is_stop_recorded = bool(events) and events[-1].get("kind") in ENDS
    return RunHistory(sorted(evaluations), max(updates) - update, last_epoch, is_stop_recorded)


def find_stamp(file: Path) -> int:
    """Return the time of a file's last change, as its file system counts; 0 if there is none."""
    return file.stat().st_mtime_ns if file.is_file() else 0


def note_end(folder: Path, stamp: int, error: BaseException, is_training: bool) -> None:
    """Record why a run ends before its time in ``log.txt``; for training, also in ``metrics.jsonl``.

    There, a stop and the loss of a rank or of storage are an interruption: the same command may be repeated. Any other
    end is a failure. Training has begun once it has written its ``run.json``, whose ``find_stamp`` was ``stamp``
    before. Called by the process that reports for the run.
    """
    saved, kind = {}, INTERRUPTION
    is_lost = isinstance(error, WorkerFailure) and error.is_lost
    if isinstance(error, KeyboardInterrupt):
        reason = f"asked to stop ({str(error) or 'SIGINT'})"
    elif isinstance(error, Stopped):
        reason, saved = f"asked to stop ({error.reason})", {"saved": error.saved}
    else:
        reason = str(error).partition("\n")[0] or type(error).__name__
        kind = INTERRUPTION if is_lost or isinstance(error, StorageOutage) else FAILURE
    run_log = RunLog(folder, writes=True)
    has_begun = find_stamp(folder / "run.json") not in (0, stamp)
    if not is_training or not (has_begun or is_lost):
        run_log.log(f"stopped: {reason}")
        return
    done = [event for event in recorded_events(folder) if event.get("kind") == "epoch" and "superseded" not in event]
    run_log.event(kind, {"epoch": max((event["epoch"] for event in done), default=0), "reason": reason, **saved})
    if saved:
        run_log.log(f"stopped: {error}")
    else:
        run_log.log(f"interrupted: {reason}; continue with -resume=auto")
