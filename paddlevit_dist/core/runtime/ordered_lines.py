"""Lists that several processes write at once, each to its own file, and that are read as one ordered list.

An entry is a line of JSON, ``[number, ...]``; a file is in ascending order of the number. A process that is killed
leaves at most one incomplete line, which is not read.
"""

import contextlib
import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from .files import os_errors_as_user_errors
from .json_format import format_json


class LineWriter:
    """Appends the entries of one process to a ``file`` that must not exist; as a context, it closes it.

    Each method raises a UserError, with ``hint`` at its end, if the file system refuses.
    """

    def __init__(self, file: Path, hint: str = "") -> None:
        self._os_errors = lambda: os_errors_as_user_errors(file, hint)
        with self._os_errors():
            self._stream = open(file, "xb")  # noqa: SIM115 - closed by ``close``

    def add(self, entries: Iterable[Sequence[Any]]) -> None:
        """Append entries, in ascending order of their numbers; they outlive this process."""
        with self._os_errors():
            self._stream.writelines(map(format_entry, entries))
            self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        with self._os_errors():
            self._stream.close()

    def __enter__(self) -> "LineWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def format_entry(entry: Sequence[Any]) -> bytes:
    """Format an entry as a line of a file."""
    return format_json(entry, separators=(",", ":")).encode() + b"\n"


def merge(files: Iterable[Path]) -> Iterator[list[Any]]:
    """Yield the entries of all files in order; of several (equal) entries with one number, yield one."""
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(open(file, "rb")) for file in files]
        last = -1
        for entry in heapq.merge(*map(_entries, streams), key=lambda entry: entry[0]):
            if entry[0] > last:
                yield entry
                last = entry[0]


def _entries(stream: BinaryIO) -> Iterator[list[Any]]:
    for line in stream:
        try:
            yield json.loads(line)
        except ValueError:
            return  # the incomplete line of a killed process
