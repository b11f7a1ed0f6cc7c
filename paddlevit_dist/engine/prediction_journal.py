"""What is kept of a prediction while it goes on, so that nothing is predicted twice, and the tables made of it.

``about.json`` in the output folder says of which weights and inputs the predictions are. Each process appends a line
per input to a file of its own in ``unfinished/``: ``[index, [row, ...]]``, or ``[index, null, reason]`` for an input
that cannot be read. Each file is in ascending order of the index; a process that is killed leaves at most one half
line, and the next start makes one file of all. At the end of a start, also of an interrupted one, the tables are
written in the order of the inputs; once everything is predicted, ``unfinished/`` is removed.
"""

from __future__ import annotations

import contextlib
import csv
import heapq
import io
import json
import shutil
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ..contracts.prediction import InputSamples, Row
from ..errors import UserError
from ..files import atomic_file, why_not_written
from ..printing import one_line
from ..text_files import read_json

ABOUT, UNFINISHED = "about.json", "unfinished"
ROWS_CSV, ROWS_JSON, UNREADABLE = "predictions.csv", "predictions.jsonl", "unreadable.tsv"
_TABLES = (ROWS_CSV, ROWS_JSON, UNREADABLE)
_FORMAT = 1
_OTHERWISE = "add -restart to replace them, or choose another -output"


class Entry(NamedTuple):
    """What became of one input.

    Attributes:
        place: index of the input.
        rows: without the input's name; None: it cannot be read.
        reason: why not.
    """

    place: int
    rows: Optional[List[Row]]
    reason: str = ""


class Counts(NamedTuple):
    """How many inputs were predicted, and how many could not be read."""

    predicted: int
    unreadable: int


class Identity(NamedTuple):
    """What predictions depend on; those in a folder are continued only if all of it is the same.

    Attributes:
        weights, settings, inputs: digests.
        number: of inputs.
        source: where the weights are, for messages.
    """

    weights: str
    settings: str
    inputs: str
    number: int
    source: str


class Journal:
    """The state of a prediction in its output folder. Used by the process that holds the folder.

    Args:
        folder: exists.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.unfinished = folder, folder / UNFINISHED
        self._identity: Identity = Identity("", "", "", 0, "")

    @contextlib.contextmanager
    def begun(self, restart: bool) -> Iterator[Path]:
        """Context with a folder for what is needed until the prediction ends; nothing of it is left if the prediction
        is refused before it begins.

        Args:
            restart: remove what earlier predictions have left.
        """
        if restart:
            self._remove()
        with _told(self.folder):
            self.unfinished.mkdir(exist_ok=True)
        try:
            yield self.unfinished
        finally:
            if self.is_empty():
                shutil.rmtree(self.unfinished, ignore_errors=True)

    def is_empty(self) -> bool:
        """Whether nothing is known yet of any input, in this start or an earlier one."""
        for file in self._files():
            with open(file, "rb") as stream:
                if next(_read_entries(stream), None) is not None:
                    return False
        return True

    def withdraw(self) -> None:
        """Let the folder be free for other inputs and weights: nothing was predicted.

        Raises:
            UserError: the file system refuses.
        """
        with _told(self.folder):
            for name in (*_TABLES, ABOUT):
                with contextlib.suppress(FileNotFoundError):
                    (self.folder / name).unlink()

    def _remove(self) -> None:
        self.withdraw()
        with _told(self.folder):
            if self.unfinished.is_dir():
                shutil.rmtree(self.unfinished)

    def open(self, identity: Identity) -> Optional[Counts]:
        """See that what is in the folder belongs to this prediction, and begin or continue it.

        Returns:
            The counts if everything is predicted already, else None.
        Raises:
            UserError: the folder holds predictions of something else.
        """
        self._identity = identity
        about = self._read_about()
        if about is not None and (about.get("predicted") == 0 if about.get("complete") is True else self.is_empty()):
            self.withdraw()  # an earlier start has predicted nothing, whatever of
            about = None
        if about is None:
            there = next((name for name in _TABLES if (self.folder / name).exists()), None)
            if there is not None:
                raise UserError(f"{self.folder / there} exists, and no {ABOUT} says what it is: {_OTHERWISE}")
        else:
            self._require_same(about)
            if about.get("complete") is True and all((self.folder / name).is_file() for name in _TABLES):
                return Counts(int(about["predicted"]), int(about["unreadable"]))
        if about is None or about.get("complete") is True:
            for file in self._files():  # of a prediction that nothing is known of
                file.unlink()
            self._write_about(None)
        self._compact()
        return None

    def left(self) -> np.ndarray:
        """Inputs that are still to be predicted, int64, ascending."""
        is_left = np.ones(self._identity.number, bool)
        for entry in self._entries():
            is_left[entry.place] = False
        return np.flatnonzero(is_left)

    def rows(self, names: Sequence[str]) -> Iterator[Row]:
        """All rows so far, each with its input."""
        for entry in self._entries():
            for row in entry.rows or ():
                yield {"input": names[entry.place], **row}

    def complete(self, counts: Counts) -> None:
        """Note that everything is predicted and written, and keep nothing else."""
        if sum(counts) < self._identity.number:
            raise RuntimeError(f"{sum(counts)} of {self._identity.number} inputs have become something")
        self._write_about(counts)
        shutil.rmtree(self.unfinished, ignore_errors=True)

    # ---- about.json ----------------------------------------------------------------------------------------------

    def _read_about(self) -> Optional[Dict[str, Any]]:
        file = self.folder / ABOUT
        if not file.exists():
            return None
        try:
            about = read_json(file)
            if not isinstance(about, dict) or about["format"] != _FORMAT:
                raise ValueError("it is of another version")
            return about
        except (OSError, ValueError, KeyError) as error:
            raise UserError(f"{file} cannot be read ({one_line(error)}): {_OTHERWISE}") from error

    def _require_same(self, about: Dict[str, Any]) -> None:
        now, before = self._identity, about
        different = None
        if before.get("weights_sha256") != now.weights:
            different = f"other weights ({one_line(before.get('source'))})"
        elif before.get("settings_sha256") != now.settings:
            different = "these weights with other settings"
        elif before.get("inputs_sha256") != now.inputs:
            different = f"other inputs ({before.get('inputs')} there, {now.number} now)"
            if before.get("inputs") == now.number:
                different = "other inputs, or some of them have changed"
        if different is not None:
            raise UserError(f"{self.folder} holds predictions of {different}: {_OTHERWISE}")

    def _write_about(self, counts: Optional[Counts]) -> None:
        from .. import __version__

        now = self._identity
        about = {
            "format": _FORMAT,
            "source": now.source,
            "weights_sha256": now.weights,
            "settings_sha256": now.settings,
            "inputs": now.number,
            "inputs_sha256": now.inputs,
            "paddlevit_dist": __version__,
            "complete": counts is not None,
            **(counts._asdict() if counts else {}),
        }
        with _told(self.folder), atomic_file(self.folder / ABOUT) as file:
            file.write(json.dumps(about, indent=1).encode() + b"\n")

    # ---- what was predicted --------------------------------------------------------------------------------------

    def _files(self) -> List[Path]:
        return sorted(self.unfinished.glob("rows-*.jsonl"))

    def _entries(self) -> Iterator[Entry]:
        """What is known of each input, once, in their order."""
        last = -1
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(open(file, "rb")) for file in self._files()]
            for entry in heapq.merge(*map(_read_entries, files), key=lambda entry: entry.place):
                if last < entry.place < self._identity.number:
                    yield entry
                    last = entry.place

    def _compact(self) -> None:
        """Make one file of those that earlier starts have left."""
        files = self._files()
        whole = self.unfinished / "rows-before.jsonl"
        if files in ([], [whole]):
            return
        with atomic_file(whole) as out:
            for entry in self._entries():
                out.write(_line(entry))
        for file in files:
            if file != whole:
                file.unlink()

    def write_tables(self, samples: InputSamples) -> Counts:
        """Write what is known so far, in the order of the inputs.

        Raises:
            UserError: the file system refuses; older tables are unchanged.
        """
        predicted, missing = 0, 0
        with contextlib.ExitStack() as stack:
            table, lines, listed = (_Text(stack.enter_context(atomic_file(self.folder / name))) for name in _TABLES)
            rows, bad = csv.writer(table, lineterminator="\n"), csv.writer(listed, "excel-tab", lineterminator="\n")
            bad.writerow(["path", "reason"])
            for path, reason in samples.unreadable:
                bad.writerow([cell(path), one_line(reason)])
                missing += 1
            columns: Optional[List[str]] = None
            for entry in self._entries():
                name = samples.names[entry.place]
                if entry.rows is None:
                    bad.writerow([cell(name), one_line(entry.reason)])
                    missing += 1
                    continue
                predicted += 1
                for row in entry.rows:
                    if columns is None:
                        columns = ["input", *row]
                        rows.writerow(map(cell, columns))
                    rows.writerow(map(cell, [name, *(row.get(column, "") for column in columns[1:])]))
                    lines.write(json.dumps({"input": name, **row}) + "\n")
            if columns is None:
                rows.writerow(["input"])
        return Counts(predicted, missing)


class JournalWriter:
    """Appends entries of one process. A context manager.

    Args:
        folder: the output folder.
        rank: of the process.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self.file = folder / UNFINISHED / f"rows-{rank:04d}.jsonl"

    def __enter__(self) -> "JournalWriter":
        with _told(self.file):
            self._stream = open(self.file, "xb")  # noqa: SIM115 - closed by __exit__
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        with _told(self.file) if kind is None else contextlib.suppress(OSError):
            self._stream.close()

    def add(self, entries: Sequence[Entry]) -> None:
        """Append entries, in ascending order of the index; they outlive this process.

        Raises:
            UserError: the file system refuses.
        """
        with _told(self.file):
            self._stream.write(b"".join(map(_line, entries)))
            self._stream.flush()


def first_unreadable(folder: Path) -> Tuple[str, str]:
    """Path and reason of the first line of the list of what could not be read."""
    with open(folder / UNREADABLE, encoding="utf-8", newline="") as file:
        lines = csv.reader(file, "excel-tab")
        next(lines)
        path, reason = next(lines)
    return path, reason


def _line(entry: Entry) -> bytes:
    parts = [entry.place, entry.rows] if entry.rows is not None else [entry.place, None, entry.reason]
    return json.dumps(parts, separators=(",", ":")).encode() + b"\n"


def _read_entries(stream: BinaryIO) -> Iterator[Entry]:
    for line in stream:
        try:
            yield Entry(*json.loads(line))
        except (ValueError, TypeError):
            return  # the half line of a process that was killed


def cell(value: Any) -> Any:
    """A value for a table that people open with a spreadsheet or a terminal: text that a spreadsheet would take for a
    formula has an apostrophe before it, and control characters are escaped. Numbers, and ``predictions.jsonl``, are as
    they are."""
    if not isinstance(value, str):
        return value
    shown = "".join(one if one.isprintable() or one > "\x9f" else repr(one)[1:-1] for one in value)
    return f"'{shown}" if shown.startswith(("=", "+", "-", "@")) else shown


class _Text(io.TextIOBase):
    """Text as UTF-8 into a binary file. What a file name has that is no character is escaped (``\\xe9``), so that
    every program can read the tables."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        self._file.write(as_utf8(text))
        return len(text)


def as_utf8(text: str) -> bytes:
    """Text as UTF-8, with bytes of a file name that are not UTF-8 as ``\\xe9``."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace").encode("utf-8")


@contextlib.contextmanager
def _told(where: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write {where}: {why_not_written(error)}; what is predicted is kept, and the same command continues"
        ) from error
