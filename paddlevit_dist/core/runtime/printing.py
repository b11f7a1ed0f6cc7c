"""Standard streams that never end a run, and untrusted text made safe for terminals.

Output that cannot be written is dropped, and the work continues. Otherwise an exited reader (``| head``), a full disk,
a terminal that hung up or a closed stream would raise at the next print, and again when Python flushes its streams on
exit.

File names, class names, names of weights and errors of libraries are shown unchanged, except for secrets and for
characters that a terminal would interpret. This is done where lines are printed, so no message can omit it.
"""

import contextlib
import io
import os
import re
import select
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


EMPTY_LINE = "\r\x1b[2K"  # move to the beginning of the line of a terminal and erase it


class DroppingWriter(io.FileIO):
    """Writes to a descriptor; bytes that the descriptor no longer accepts count as written."""

    def write(self, data: "ReadableBuffer") -> int:
        """Write the data, and return its length even if it is dropped."""
        try:
            written = super().write(data)
            while written is None:  # the descriptor is non-blocking and full
                select.select([], [self], [])
                written = super().write(data)
        except OSError:
            return memoryview(data).nbytes
        return written


@contextlib.contextmanager
def shown_briefly(text: str) -> Iterator[None]:
    """Show on a terminal what the block does, which prints nothing, until it ends; elsewhere, show nothing."""
    stream = sys.stderr
    shows = stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    if shows:
        stream.write(f"{text} ...")
        stream.flush()
    try:
        yield
    finally:
        if shows:
            stream.write(EMPTY_LINE)
            stream.flush()


def hide_known_warnings() -> None:
    """Hide warnings of Paddle and Pillow about which a command's user can do nothing, in a command's own processes."""
    warnings.filterwarnings("ignore", "No ccache found", UserWarning)  # by Paddle's import: a tool for own operators
    warnings.filterwarnings("ignore", "You are using GPU version Paddle")  # on a CPU: the process plan reports this
    # About odd but readable files; unreadable and very large ones raise an error.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
    warnings.filterwarnings("ignore", r"Image size \(\d+ pixels\) exceeds limit")


def ignore_broken_pipe() -> None:
    """Make this process's stdout and stderr drop output that they cannot write, unless a notebook replaced them."""
    open_closed_descriptors()
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            stream = io.TextIOWrapper(io.FileIO(descriptor, "w", closefd=False), encoding="utf-8", write_through=True)
        if type(stream) is io.TextIOWrapper and not is_safe(stream) and stream.fileno() == descriptor:
            setattr(sys, name, make_safe(stream, descriptor))


def open_closed_descriptors() -> None:
    """Open /dev/null for closed standard descriptors: otherwise prints would go to the next file that is opened."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
            os.set_inheritable(descriptor, True)


def is_safe(stream: io.TextIOWrapper) -> bool:
    """Return whether a stream drops what it cannot write."""
    return isinstance(getattr(stream.buffer, "raw", stream.buffer), DroppingWriter)


def make_safe(stream: io.TextIOWrapper, descriptor: int) -> io.TextIOWrapper:
    """Return a stream like this one that drops what the descriptor no longer accepts."""
    with contextlib.suppress(OSError):  # earlier output without a reader is dropped, too
        stream.flush()
    raw = DroppingWriter(descriptor, "w", closefd=False)
    raw.name = f"<{'stdout' if descriptor == 1 else 'stderr'}>"
    return io.TextIOWrapper(
        raw if isinstance(stream.buffer, io.RawIOBase) else io.BufferedWriter(raw),
        encoding=stream.encoding,
        # A file name that the terminal's encoding cannot show is not a reason to fail.
        errors="backslashreplace" if stream.errors == "strict" else stream.errors,
        newline="\n",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


_USER = re.compile(r"://[^/\s?#'\"]+@")
_HALF = re.compile("[\ud800-\udc7f\udd00-\udfff]")  # others stand for bytes
_ADDRESS = re.compile(r"(://[^\s?#'\"]*)(\?[^\s#'\"]+)?")  # its query; always matches, so no text is read twice


def count(number: int, noun: str) -> str:
    """Format a number and a noun: ``1 image``, ``2,000 images``, ``2 boxes``, ``3 categories``."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith("x") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def agree(number: int, singular: str = "is", plural: str = "are") -> str:
    """Return the word that agrees with a number: ``singular`` for 1."""
    return singular if number == 1 else plural


def one_line(text: object) -> str:
    r"""Return ``text`` as one line that can be shown anywhere.

    Characters that are not printable are escaped: line breaks and tabs, escape sequences, C1 controls, marks that
    reverse the direction of text, and bytes that are not UTF-8 (``\xe9``). Passwords and query values in URLs are
    hidden.
    """
    text = without_credentials(str(text))
    return text if text.isprintable() else "".join(map(_show, text))


def shorten(text: object, max_length: int = 160) -> str:
    """Return ``one_line``, cut to at most ``max_length`` characters."""
    text = one_line(text)
    return text if len(text) <= max_length else text[: max_length - 3] + "..."


def _show(character: str) -> str:
    if character.isprintable() or character == "\u00a0":
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # Python's form of a file name's byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


_FORMULA = ("=", "+", "-", "@")  # first characters by which a spreadsheet recognizes a formula


def cell(value: object) -> Any:
    """Return a value for a table that users open in a spreadsheet or a terminal.

    Text that a spreadsheet would take for a formula gets an apostrophe; control characters, and bytes of a file name
    that are not UTF-8, are escaped. Numbers are unchanged, and ``predictions.jsonl`` does not use this.
    """
    if not isinstance(value, str):
        return value
    shown = "".join(char if char.isprintable() or char > "\x9f" else repr(char)[1:-1] for char in utf8(value))
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def parse_cell(shown: str) -> str:
    """Return the text before ``cell`` added an apostrophe."""
    return shown[1:] if shown[:1] == "'" and shown[1:].startswith(_FORMULA) else shown


def utf8(value: object) -> Any:
    """Escape the bytes and halves of characters in a text that are not UTF-8; return any other value unchanged."""
    if not isinstance(value, str):
        return value
    value = _HALF.sub(lambda half: ascii(half[0])[1:-1], value)  # JSON may have them
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def block(text: str) -> str:
    """Make several lines, such as a traceback, safe like ``one_line``, and unlike the line that ends a run."""
    lines = [one_line(line) for line in text.split("\n")]
    return "\n".join(f"  {line}" if line.startswith("error:") else line for line in lines)


def without_credentials(text: str) -> str:
    """Replace user and password, and the values of the query, by ``***`` in each URL of ``text``."""
    if "://" not in text:
        return text
    without_user = _USER.sub("://***@", text)
    return _ADDRESS.sub(lambda match: match[1] + re.sub(r"=[^&]*", "=***", match[2] or ""), without_user)


def show_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print a traceback safely, as ``sys.excepthook``: its message cannot imitate other lines."""
    print(block("".join(traceback.format_exception(kind, error, trace))), end="", file=sys.stderr)


@contextlib.contextmanager
def captured_output() -> Iterator[Any]:
    """Redirect this process's stdout and stderr, including output of C++, to the file that the block gets."""
    import tempfile  # slow to import for a command line that ends at once

    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile("w+b") as output:
        copies = [os.dup(descriptor) for descriptor in (1, 2)]
        try:
            for number in (1, 2):
                os.dup2(output.fileno(), number)
            yield output
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, copy in zip((1, 2), copies):
                os.dup2(copy, number)
                os.close(copy)


def describe_value(value: Any) -> str:
    """Describe what a user's code returned: its kind, its parts, dtype and shape, and an image's mode."""
    try:
        return _describe(value)
    except Exception:  # a user's class may raise anything
        return type(value).__name__


def _describe(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, (Mapping, tuple, list)):
        parts = map(repr if isinstance(value, Mapping) else describe_value, value)
        return shorten(f"{kind} of {len(value)} ({', '.join(parts)})")
    if isinstance(getattr(value, "mode", None), str):
        return f"{kind} of mode {value.mode}"
    if hasattr(value, "shape"):
        return f"{kind} {str(getattr(value, 'dtype', '')).removeprefix('paddle.')} {tuple(value.shape)}"
    return shorten(repr(value))
