"""Standard streams that never end a run, and foreign text on them that does nothing but be read.

Output that cannot be written is dropped, and the work continues: a reader that has exited (``| head``), a full disk, a
terminal that hung up or a closed stream would otherwise raise at the next print, and again when Python flushes its
streams on exit.

File names, class names, names of weights and errors of libraries are shown as they are, except for what a terminal
would obey rather than show, and for what is secret. This is done where lines are printed, so no message can forget it.
"""

import contextlib
import io
import os
import re
import select
import sys
import traceback
from collections.abc import Iterator
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


def ignore_broken_pipe() -> None:
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


_USER = re.compile(r"([a-z][a-z0-9+.-]*://)[^/\s?#'\"]+@", re.IGNORECASE)
_QUERY = re.compile(r"([a-z][a-z0-9+.-]*://[^\s?#'\"]*\?)([^\s#'\"]+)", re.IGNORECASE)


def one_line(text: Any) -> str:
    """``text`` as one line that can be shown anywhere.

    What is not printable is escaped: line breaks and tabs, escape sequences, C1 controls, marks that reverse the order
    of characters, and bytes that are not UTF-8 (``\\xe9``). Passwords and values of queries in addresses are hidden.
    """
    text = without_credentials(str(text))
    return text if text.isprintable() else "".join(map(_show, text))


def shorten(text: Any, most: int = 160) -> str:
    """``one_line`` of at most ``most`` characters."""
    text = one_line(text)
    return text if len(text) <= most else text[: most - 3] + "..."


def _show(character: str) -> str:
    if character.isprintable() or character == "\u00a0":
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # how Python represents a byte of a file name that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


_FORMULA = ("=", "+", "-", "@")  # how a spreadsheet recognizes one


def cell(value: Any) -> Any:
    """A value for a table that people open with a spreadsheet or a terminal: text that a spreadsheet would take for a
    formula has an apostrophe before it; control characters, and bytes of a file name that are no UTF-8, are escaped.
    Numbers, and ``predictions.jsonl``, are as they are."""
    if not isinstance(value, str):
        return value
    shown = "".join(one if one.isprintable() or one > "\x9f" else repr(one)[1:-1] for one in utf8(value))
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def parse_cell(shown: str) -> str:
    """The text that ``cell`` put an apostrophe before."""
    return shown[1:] if shown[:1] == "'" and shown[1:].startswith(_FORMULA) else shown


def utf8(value: Any) -> Any:
    """Text whose bytes that are no UTF-8 are escaped; anything else as it is."""
    if not isinstance(value, str):
        return value
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def block(text: str) -> str:
    """Several lines, such as a traceback, each made safe like ``one_line``; none can pass for the line that says how a
    run ended."""
    lines = [one_line(line) for line in text.split("\n")]
    return "\n".join(f"  {line}" if line.startswith("error:") else line for line in lines)


def without_credentials(text: str) -> str:
    """``text`` with ``***`` for the user and password, and for the values of the query, of each address in it."""
    if "://" not in text:
        return text
    return _QUERY.sub(lambda found: found[1] + re.sub(r"=[^&]*", "=***", found[2]), _USER.sub(r"\1***@", text))


def show_uncaught(kind: Any, error: Any, trace: Any) -> None:
    """For ``sys.excepthook``: a traceback whose message cannot pass for something else."""
    print(block("".join(traceback.format_exception(kind, error, trace))), end="", file=sys.stderr)


@contextlib.contextmanager
def kept_from_terminal() -> Iterator[Any]:
    """Inside the block this process's output and error, that of C++ too, go to a file, which is given."""
    import tempfile  # which a command line that ends at once does without

    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile("w+b") as said:
        kept = [os.dup(number) for number in (1, 2)]
        try:
            for number in (1, 2):
                os.dup2(said.fileno(), number)
            yield said
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, copy in zip((1, 2), kept):
                os.dup2(copy, number)
                os.close(copy)
