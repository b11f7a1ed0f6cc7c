"""What is drawn on a terminal, as a terminal shows it."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest
from support.processes import ROOT

from paddlevit_dist.core.logging.progress import ReportField, fit

PROGRAM = """
import os, sys, time, warnings
from paddlevit_dist.core.runtime import printing
from paddlevit_dist.core.logging import progress
printing.ignore_broken_pipe()
bar = progress.ProgressBar(40, "epoch 1/4", True)
values = {"skipped_updates": 2, "samples_per_second": 412.3, "data_wait_fraction": 0.031, "gradient_norm": 1.234,
          "memory_mib": 1234.0, "learning_rate": 0.001}
for step in range(40):
    bar.step()
    time.sleep(0.005)
    if step == 4:
        bar.note("20 s left, run 12 min left")
        bar.show(progress.build_fields(values, {"loss": 0.4123, "top-1": 45.2}, "images"))
    if step == 8:
        print("print of a user")
    if step == 12:
        progress.write_line("line of the log")
    if step == 16:
        warnings.warn("a warning")
    if step == 20:
        print("begun", end=" ")
    if step == 24:
        print("and ended")
    if step == 28:
        sys.stderr.write("two\\nlines\\n")
bar.close()
print("the end", type(sys.stdout).__name__)
"""


def screen(written: str, width: int) -> list:
    """The lines that a terminal of this width shows, without the spaces at their ends."""
    rows, row, column = [""], 0, 0
    position = 0
    while position < len(written):
        character = written[position]
        if written.startswith("\x1b[A", position):
            row, position = row - 1, position + 2
        elif character == "\n":
            row += 1
        elif character == "\r":
            column = 0
        else:
            if column == width:
                row, column = row + 1, 0
            rows += [""] * (row + 1 - len(rows))
            rows[row] = rows[row][:column].ljust(column) + character + rows[row][column + 1 :]
            column += 1
        rows += [""] * (row + 1 - len(rows))
        position += 1
    return [line.rstrip() for line in rows]


def shown(width: int, stdout_is_pipe: bool = False, **variables: str) -> str:
    """What the program sends to a terminal of this width."""
    reading, writing = pty.openpty()
    fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **variables}
    out = subprocess.PIPE if stdout_is_pipe else writing
    run = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=out, stderr=writing, env=settings)
    os.close(writing)
    written = b""
    try:
        while part := os.read(reading, 4096):
            written += part
    except OSError:  # the other end is closed
        pass
    os.close(reading)
    if run.stdout:
        run.stdout.close()
    assert run.wait(timeout=600) == 0
    return written.decode("utf-8")


@pytest.mark.parametrize("width", [40, 80, 130])
def test_nothing_that_is_printed_is_torn_and_nothing_drawn_remains(width):
    written = shown(width)
    lines = [line for line in screen(written, width) if line]
    whole = ["print of a user", "line of the log", "begun and ended", "two", "lines", "the end TextIOWrapper"]
    assert [line for line in lines if line in whole] == whole
    assert not [line for line in lines if "%|" in line or "images/s" in line]
    pieces = [piece for piece in written.replace("\x1b[A", "\r").replace("\n", "\r").split("\r") if "images/s" in piece]
    assert pieces and all(len(piece) <= width for piece in pieces)
    assert any(piece.startswith("loss 0.4123  2 skipped  412.3 images/s") for piece in pieces)
    if width == 130:
        assert any("data wait 3%  gradient norm 1.23  memory 1.2 GiB  learning rate 1.00e-03" in p for p in pieces)


def test_without_unicode_the_bar_is_made_of_ascii():
    written = shown(80, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert "%|" in written and written.isascii()


@pytest.mark.parametrize("how", [{"stdout_is_pipe": True}, {"TERM": "dumb"}], ids=["behind tee", "a dumb terminal"])
def test_where_lines_would_be_torn_nothing_is_drawn(how):
    written = shown(80, **how)
    assert "%|" not in written and "\x1b" not in written and "a warning" in written


def test_fields_are_shortened_before_they_are_left_out():
    fields = [
        ReportField("loss 1", "loss 1"),
        ReportField("data wait 3%", "wait 3%"),
        ReportField("learning rate 1", "lr 1"),
    ]
    assert fit(fields, 60) == "loss 1  data wait 3%  learning rate 1"
    assert fit(fields, 36) == "loss 1  wait 3%  lr 1"
    assert fit(fields, 20) == "loss 1  wait 3%"
    assert fit(fields, 4) == "loss"
    assert fit([], 10) == ""
