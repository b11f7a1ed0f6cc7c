"""Standard streams that never end a run: output that cannot be written is dropped, and the work continues.

A reader that has exited (``| head``), a full disk, a terminal that hung up or a closed stream would otherwise raise
at the next print, and again when Python flushes its streams on exit.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
from typing import Any


class _DroppingWriter(io.FileIO):
    """Writes to a descriptor; whatever it no longer accepts counts as written."""

    def write(self, data: Any) -> int:
        try:
            written = super().write(data)
            while written is None:  # the descriptor was made non-blocking, and is full at the moment
                select.select([], [self], [])
                written = super().write(data)
        except OSError:
            return memoryview(data).nbytes
        return written


def never_fail() -> None:
    """Make this process's stdout and stderr drop what they cannot write. Calling it again has no effect.

    Streams that have replaced Python's own, such as a notebook's, are left alone.
    """
    _open_closed_descriptors()
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            stream = io.TextIOWrapper(io.FileIO(descriptor, "w", closefd=False), encoding="utf-8", write_through=True)
        if type(stream) is io.TextIOWrapper and not _is_safe(stream) and stream.fileno() == descriptor:
            setattr(sys, name, _safe(stream, descriptor))


def _open_closed_descriptors() -> None:
    """Open /dev/null for closed standard descriptors: otherwise prints would go into the next file opened."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
            os.set_inheritable(descriptor, True)


def _is_safe(stream: io.TextIOWrapper) -> bool:
    return isinstance(getattr(stream.buffer, "raw", stream.buffer), _DroppingWriter)


def _safe(stream: io.TextIOWrapper, descriptor: int) -> io.TextIOWrapper:
    with contextlib.suppress(OSError):  # earlier output is dropped too if nobody reads it
        stream.flush()
    raw = _DroppingWriter(descriptor, "w", closefd=False)
    raw.name = f"<{'stdout' if descriptor == 1 else 'stderr'}>"
    return io.TextIOWrapper(
        raw if isinstance(stream.buffer, io.RawIOBase) else io.BufferedWriter(raw),
        encoding=stream.encoding,
        # A file name that the terminal's encoding cannot show is no reason to fail either.
        errors="backslashreplace" if stream.errors == "strict" else stream.errors,
        newline="\n",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
