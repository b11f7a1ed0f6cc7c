"""What is drawn where: on terminals only, above bars, as wide as the terminal."""

import contextlib
import fcntl
import io
import os
import re
import struct
import sys
import termios
from types import SimpleNamespace

import pytest

from paddlevit_dist.core.logging import progress
from paddlevit_dist.core.logging.progress import BarSafeStream, ProgressBar, ReportField


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal():
    """Open a terminal; return a function that sets its width and returns its stream."""
    ends = os.openpty()

    def widen(columns):
        fcntl.ioctl(ends[1], termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        return SimpleNamespace(fileno=lambda: ends[1], write=lambda text: None, flush=lambda: None)

    yield widen
    for end in ends:
        os.close(end)


def test_the_width_is_that_of_the_terminal_or_80(terminal):
    assert [progress.count_columns(terminal(width)) for width in (57, 0)] == [57, 80]
    assert progress.count_columns(io.StringIO()) == progress.count_columns(None) == 80


@pytest.mark.parametrize(
    "width, length, is_short", [(57, 56, False), (57, 57, True), (20, 19, False), (10, 19, False), (10, 20, True)]
)
def test_the_line_below_a_bar_is_as_wide_as_the_terminal(terminal, width, length, is_short):
    line = progress.line_below(terminal(width))
    line.fields = [ReportField("x" * length, "short")]
    assert str(line) == ("short" if is_short else "x" * length)
    line.close()


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize("kind", ["xterm", "dumb"])
@pytest.mark.parametrize(
    "stdout, is_undisturbed", [(None, 1), ("terminal", 1), ("memory", 1), ("pipe", 0), ("file", 1)]
)
def test_bars_are_drawn_where_no_line_can_tear_them(monkeypatch, tmp_path, is_terminal, kind, stdout, is_undisturbed):
    ends = os.pipe()
    streams = {"terminal": Terminal(), "memory": io.StringIO(), None: None}
    monkeypatch.setenv("TERM", kind)
    with open(ends[0]), open(ends[1], "w") as pipe, open(tmp_path / "file", "w") as file:
        printed = {**streams, "pipe": pipe, "file": file}[stdout]
        shown = Terminal() if is_terminal else io.StringIO()
        with contextlib.redirect_stderr(shown), contextlib.redirect_stdout(printed):
            found = progress.can_be_drawn()
    assert found == bool(is_terminal and kind == "xterm" and is_undisturbed)


def test_a_bar_is_shown_if_it_is_asked_for_and_can_be_drawn(monkeypatch):
    for shown, kind, is_shown in ((True, "dumb", False), (False, "xterm", False), (True, "xterm", True)):
        monkeypatch.setenv("TERM", kind)
        stream = Terminal()
        with contextlib.redirect_stderr(stream), contextlib.redirect_stdout(Terminal()):
            bar = ProgressBar(4, "epoch 2", shown)
            assert bar.is_shown == isinstance(sys.stderr, BarSafeStream) == is_shown
            bar.step(3)
            bar.note("a note", at_once=True)
            bar.show([ReportField("loss 1", "1")])
            drawn = stream.getvalue()
            assert [text in drawn for text in ("epoch 2", "| 3/4", "a note", "loss 1")] == [bar.is_shown] * 4
            bar.close()
            bar.close()
            assert sys.stderr is stream and not bar.is_shown and bar.left == 1


def read_screen(written: str) -> list[str]:
    """The lines that a terminal shows after it was sent a text."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\r|\n|\x1b\[A|[^\r\n\x1b]+", written):
        if part == "\r":
            column = 0
        elif part == "\n":
            row, column = row + 1, 0
            lines += [""] * (row == len(lines))
        elif part == "\x1b[A":
            row -= 1
        else:
            lines[row] = (lines[row].ljust(column)[:column] + part + lines[row][column + len(part) :]).rstrip()
            column += len(part)
    return lines


def test_fields_have_a_line_of_their_own_below_the_bar_and_none_when_it_is_closed(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with contextlib.redirect_stderr(stream), contextlib.redirect_stdout(Terminal()):
        bar = ProgressBar(4, "epoch 2", True)
        bar.show([ReportField("loss 1", "1")])
        bar.step()
        first, second = read_screen(stream.getvalue())
        bar.close()
    assert first.startswith("epoch 2") and "loss" not in first and second == "loss 1"
    assert not any(read_screen(stream.getvalue()))


def test_streams_print_above_bars_while_there_are_any():
    own = {name: Terminal() for name in ("stdout", "stderr")}
    with contextlib.redirect_stdout(own["stdout"]), contextlib.redirect_stderr(own["stderr"]):
        for more in (1, 1, -1):
            progress.count_bars(more)
            assert all(isinstance(getattr(sys, name), BarSafeStream) for name in own)
            assert [getattr(sys, name).stream for name in own] == [*own.values()]
        sys.stderr.write("incomplete")
        assert own["stderr"].getvalue() == ""
        progress.count_bars(-1)
        assert sys.stdout is own["stdout"] and sys.stderr is own["stderr"]
    assert [stream.getvalue() for stream in own.values()] == ["", "incomplete"]
    plain = io.StringIO()
    with contextlib.redirect_stdout(plain), contextlib.redirect_stderr(None):
        for more in (1, -1):
            progress.count_bars(more)
            assert sys.stdout is plain and sys.stderr is None


def test_a_line_is_written_above_bars_that_are_there(monkeypatch):
    stream = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        bar = ProgressBar(4, "epoch 2", True)
        progress.write_line("two\nlines")
        before, line, after = stream.getvalue().partition("\rtwo\\nlines\n")
        bar.close()
    assert "epoch 2" in before and line and "epoch 2" in after


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_a_line_is_written_as_it_is_where_no_bars_can_be(monkeypatch, capsys, stream):
    if stream.isatty():
        monkeypatch.delitem(sys.modules, "tqdm", raising=False)
    with contextlib.redirect_stderr(stream):
        progress.write_line("two\nlines")
    assert (capsys.readouterr().out, stream.getvalue()) == ("two\\nlines\n", "")


def test_the_time_since_the_last_output_is_measured(simulated_time):
    progress.note_output()
    simulated_time.now += 7.5
    assert progress.seconds_since_output() == 7.5
    progress.write_line("a line")
    assert progress.seconds_since_output() == 0.0
