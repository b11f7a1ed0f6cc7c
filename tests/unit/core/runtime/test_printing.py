"""Names from files and errors of libraries are shown so that they cannot pass for anything else."""

import contextlib
import io
import os
import sys
import warnings

import pytest
from PIL import Image
from support.hosts.foreign import EVIL, SHOWN

from paddlevit_dist import UserError
from paddlevit_dist.core.runtime import printing
from paddlevit_dist.core.runtime.errors import WorkerFailure, run_and_report


@pytest.mark.parametrize("text, shown", [
    ("Stra\u00dfe \u732b \U0001f431 a\u00a0b", "Stra\u00dfe \u732b \U0001f431 a\u00a0b"),
    (EVIL, SHOWN),
    ("\udce9.png", "\\xe9.png"),
    ("\ud800", "\\ud800"),
    ("a\u2028b\u2029c\x85d\x7f\0", "a\\u2028b\\u2029c\\x85d\\x7f\\x00"),
    ("\u2066\u200f\ufeff\U000e0041", "\\u2066\\u200f\\ufeff\\U000e0041"),
])  # fmt: skip
def test_what_a_terminal_would_obey_is_escaped(text, shown):
    assert printing.one_line(text) == shown


@pytest.mark.parametrize("text, shown", [
    ("https://me:word@host/a.pth cannot", "https://***@host/a.pth cannot"),
    ("'HTTPS://token@host:80/a?x=1&sig=ab%3D#sha256=00'", "'HTTPS://***@host:80/a?x=***&sig=***#sha256=00'"),
    ("https://host/a@b?flag and s3://k:v@x", "https://host/a@b?flag and s3://***@x"),
    ("me:word@host is no address", "me:word@host is no address"),
])  # fmt: skip
def test_credentials_in_addresses_are_hidden(text, shown):
    assert printing.without_credentials(text) == printing.one_line(text) == shown


def raised(error: BaseException):
    def function() -> None:
        raise error

    return function


@pytest.mark.usefixtures("own_handlers")
def test_the_line_that_says_how_a_run_ended_is_one_line_and_the_last(capsys):
    assert run_and_report(raised(UserError(f"{EVIL} cannot be read"))) == 2
    assert capsys.readouterr().err == f"error: {SHOWN} cannot be read\n"
    trace = f"Traceback ...\n  read()\nValueError: {EVIL}\n"
    assert run_and_report(raised(WorkerFailure(1, "ValueError: first\nerror: second", trace))) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == "error: rank 1 failed: ValueError: first"
    assert [line for line in said if line.startswith("error:")] == said[-1:]
    assert "  error: second" in said and "  error: all is well\\t\\x9b1A" in said


@pytest.mark.parametrize(
    "value, shown",
    [
        *(("=1+1", "'=1+1"), ("+a", "'+a"), ("-a", "'-a"), ("@a", "'@a"), ("a=", "a="), ("", "")),
        *((-1.5, -1.5), (None, None)),
        *(("a\tb\x9b", "a\\tb\\x9b"), ("\xa0\u2028\u732b", "\xa0\u2028\u732b"), ("\udce9", "\\xe9"), ("'=a", "'=a")),
    ],
)  # fmt: skip
def test_a_cell_is_no_formula_and_is_read_back(value, shown):
    assert printing.cell(value) == shown and type(printing.cell(value)) is type(value)
    if isinstance(value, str) and shown.isprintable() and value.isprintable() and not value.startswith("'"):
        assert printing.parse_cell(shown) == value
    assert [printing.parse_cell(text) for text in ("'=", "'a", "''", "=a", "'", "")] == ["=", "'a", "''", "=a", "'", ""]


def test_a_text_is_cut_with_dots():
    assert [printing.shorten("abcdef", size) for size in (5, 6)] == ["ab...", "abcdef"]
    assert printing.shorten("x" * 161) == "x" * 157 + "..." and printing.shorten("x" * 160) == "x" * 160
    assert printing.block("a\tb\nerror: c\n") == "a\\tb\n  error: c\n"
    assert printing.utf8(3) == 3 and printing.utf8("a\udce9\u732b") == "a\\xe9\u732b"
    assert printing.utf8("\ud83d\udc80") == r"\ud83d\x80" and printing.utf8("\ud800\udfff") == r"\ud800\udfff"


@pytest.fixture
def pipe():
    descriptors = list(os.pipe())
    yield descriptors
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def test_output_without_a_reader_counts_as_written(pipe):
    reading, writing = pipe
    raw = printing.DroppingWriter(writing, "w", closefd=False)
    assert raw.write(b"abc") == 3 and os.read(reading, 10) == b"abc"
    os.close(reading)
    assert raw.write(memoryview(b"abcdef").cast("H")) == 6


def test_output_waits_for_a_slow_reader(pipe):
    reading, writing = pipe
    os.set_blocking(writing, False)
    waits = []

    class WaitedFor(printing.DroppingWriter):
        def fileno(self) -> int:  # ``select`` asks for it
            waits.append(self)
            os.read(reading, 1 << 16)
            return super().fileno()

    raw = WaitedFor(writing, "w", closefd=False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writing, bytes(1 << 16)):  # until it is full
            pass
    assert raw.write(b"abc") == 3 and waits == [raw]


@pytest.mark.parametrize("descriptor, name", [(1, "<stdout>"), (2, "<stderr>")])
@pytest.mark.parametrize("errors, buffered", [("strict", True), ("replace", False)])
def test_a_stream_is_replaced_by_one_like_it(pipe, descriptor, name, errors, buffered):
    reading, writing = pipe
    raw = io.FileIO(writing, "w", closefd=False)
    buffer = io.BufferedWriter(raw) if buffered else raw
    stream = io.TextIOWrapper(buffer, "latin-1", errors, line_buffering=buffered, write_through=not buffered)
    stream.write("before\n")
    safe = printing.make_safe(stream, descriptor)
    assert os.read(reading, 100) == b"before\n" and printing.is_safe(safe) and not printing.is_safe(stream)
    assert (safe.encoding, safe.errors) == ("latin-1", "backslashreplace" if errors == "strict" else errors)
    assert (safe.line_buffering, safe.write_through) == (buffered, not buffered)
    own = getattr(safe.buffer, "raw", safe.buffer)
    assert (own.name, own.fileno(), own.closefd) == (name, descriptor, False)
    assert isinstance(safe.buffer, io.BufferedWriter) is buffered
    if buffered:
        os.close(reading)
        stream.write("lost")
        printing.make_safe(stream, descriptor)  # what nobody reads is dropped


@contextlib.contextmanager
def streams(stdout, stderr):
    """Inside the block, these are the standard streams of this process."""
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        yield


def is_null(descriptor: int) -> bool:
    return os.path.samestat(os.fstat(descriptor), os.stat(os.devnull))


def test_only_this_processs_own_streams_are_replaced():
    notebooks = io.StringIO()
    with open(os.devnull, "w") as other, streams(notebooks, other):
        printing.ignore_broken_pipe()
        assert sys.stdout is notebooks and sys.stderr is other  # which is of another descriptor
    with streams(io.TextIOWrapper(io.FileIO(1, "w", closefd=False)), None):
        printing.ignore_broken_pipe()
        made = [sys.stdout, sys.stderr]
        printing.ignore_broken_pipe()
        assert [sys.stdout, sys.stderr] == made  # once
    assert all(map(printing.is_safe, made)) and [stream.fileno() for stream in made] == [1, 2]
    assert (made[1].encoding, made[1].write_through) == ("utf-8", True)


@pytest.mark.parametrize("act", [printing.open_closed_descriptors, printing.ignore_broken_pipe])
def test_closed_descriptors_are_opened(act):
    with open(os.devnull, "w") as other, streams(other, other):
        copies = {descriptor: os.dup(descriptor) for descriptor in (0, 2)}
        for descriptor in copies:
            os.close(descriptor)
        try:
            act()
            found = {descriptor: (is_null(descriptor), os.get_inheritable(descriptor)) for descriptor in range(3)}
            with open(os.devnull, "w") as following:
                number = following.fileno()
            os.write(0, b"as to a terminal"), os.read(2, 1)
        finally:
            for descriptor, copy in copies.items():
                os.dup2(copy, descriptor)
                os.close(copy)
    assert found[0] == found[2] == (True, True) and number > 2 and not is_null(1)


def test_all_output_of_a_block_is_captured_and_none_around_it(capfd):
    files = [io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False)) for descriptor in (1, 2)]
    with streams(*map(io.TextIOWrapper, files)):
        capture_between_lines(capfd)


def capture_between_lines(capfd) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for stream in (sys.stdout, sys.stderr):
        stream.write("before ")
    with printing.captured_output() as output:
        os.write(1, b"of C, and ")
        os.write(2, b"its errors")
        output.seek(0)
        assert output.read() == b"of C, and its errors"
        for stream in (sys.stdout, sys.stderr):
            stream.write("of Python")
    os.write(1, b"after")
    os.write(2, b"as well")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    assert capfd.readouterr() == ("before after", "before as well")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_traceback_is_shown_as_safely_as_other_lines(capsys):
    error = ValueError("a\nerror: b\x1b")
    printing.show_uncaught(ValueError, error, None)
    assert capsys.readouterr() == ("", "ValueError: a\n  error: b\\x1b\n")


def test_a_command_hides_warnings_that_its_user_can_do_nothing_about():
    shown = [("PIL.Image", UserWarning, "Palette images with Transparency"), ("own", UserWarning, "Palette images")]
    bomb = "Image size (9 pixels) exceeds limit of 4 pixels, could be decompression bomb DOS attack."
    shown += [("PIL.Image", Image.DecompressionBombWarning, bomb), ("own", RuntimeWarning, "Image")]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        printing.hide_known_warnings()
        for module, kind, text in shown:
            warnings.warn_explicit(text, kind, "file.py", 1, module)
    assert [str(each.message) for each in seen] == ["Palette images", "Image"]
