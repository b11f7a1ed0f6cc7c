"""What is drawn where: on terminals only, above bars, as wide as the terminal."""

import fcntl
import io
import os
import struct
import sys
import termios
from types import SimpleNamespace

import pytest

from paddlevit_dist.logging import progress
from paddlevit_dist.logging.progress import BarSafeStream, ProgressBar, ReportField


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
    with open(ends[0]), open(ends[1], "w") as pipe, open(tmp_path / "file", "w") as file:
        monkeypatch.setenv("TERM", kind)
        monkeypatch.setattr(sys, "stderr", Terminal() if is_terminal else io.StringIO())
        monkeypatch.setattr(sys, "stdout", {**streams, "pipe": pipe, "file": file}[stdout])
        found = progress.can_be_drawn()
        monkeypatch.undo()
    assert found == bool(is_terminal and kind == "xterm" and is_undisturbed)


def test_a_bar_is_shown_if_it_is_asked_for_and_can_be_drawn(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    for shown, can_be_drawn in ((True, False), (False, True), (True, True)):
        monkeypatch.setattr(progress, "can_be_drawn", lambda can_be_drawn=can_be_drawn: can_be_drawn)
        bar = ProgressBar(4, "epoch 2", shown)
        assert bar.is_shown == (shown and can_be_drawn) and progress._bars == bar.is_shown
        bar.step(3)
        bar.note("a note", at_once=True)
        bar.show([ReportField("loss 1", "1")])
        drawn = getattr(sys.stderr, "stream", sys.stderr).getvalue()
        assert [text in drawn for text in ("epoch 2", "| 3/4", "a note", "loss 1")] == [bar.is_shown] * 4
        bar.close()
        bar.close()
        assert progress._bars == 0 and not bar.is_shown and bar.left == 1


def test_streams_print_above_bars_while_there_are_any(monkeypatch):
    written = []
    monkeypatch.setattr(progress, "write_above", lambda text, stream: written.append((text, stream)))
    own = {name: Terminal() for name in ("stdout", "stderr")}
    for name, stream in own.items():
        monkeypatch.setattr(sys, name, stream)
    for more in (1, 1, -1):
        progress.count_bars(more)
        assert all(isinstance(getattr(sys, name), BarSafeStream) for name in own)
        assert [getattr(sys, name).stream for name in own] == [*own.values()]
    sys.stderr.write("incomplete")
    progress.count_bars(-1)
    assert (sys.stdout, sys.stderr) == (own["stdout"], own["stderr"]) and written == [("incomplete", own["stderr"])]
    assert not isinstance(sys.stdout, BarSafeStream) and not isinstance(sys.stderr, BarSafeStream)
    plain = io.StringIO()
    monkeypatch.setattr(sys, "stdout", plain)
    monkeypatch.setattr(sys, "stderr", None)
    progress.count_bars(1)
    assert sys.stdout is plain and sys.stderr is None
    progress.count_bars(-1)
    assert sys.stdout is plain and sys.stderr is None and progress._bars == 0


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize("has_bars", [True, False])
def test_a_line_is_written_above_bars_that_may_be_there(monkeypatch, capsys, is_terminal, has_bars):
    above = []
    monkeypatch.setattr(progress, "write_above", lambda text, stream: above.append(text))
    monkeypatch.setattr(sys, "stderr", Terminal() if is_terminal else io.StringIO())
    monkeypatch.setitem(sys.modules, "tqdm", None)
    if not has_bars:
        monkeypatch.delitem(sys.modules, "tqdm")
    progress.write_line("two\nlines")
    printed = capsys.readouterr().out
    assert (above, printed) == ((["two\\nlines\n"], "") if is_terminal and has_bars else ([], "two\\nlines\n"))


def test_the_time_since_the_last_output_is_measured(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    progress.note_output()
    now[0] = 107.5
    assert progress.seconds_since_output() == 7.5
    progress.write_line("a line")
    assert progress.seconds_since_output() == 0.0
