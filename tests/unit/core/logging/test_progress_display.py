"""The line of a report, as long as the terminal is wide, and streams whose output leaves bars alone."""

import io
import sys
import time

import pytest

from paddlevit_dist.core.logging import progress
from paddlevit_dist.core.logging.progress import BarSafeStream, ProgressBar, ReportField, build_fields, fit, fit_line
from paddlevit_dist.core.runtime.printing import EMPTY_LINE, shown_briefly

VALUES = {
    "skipped_updates": 0,
    "data_wait_fraction": 0.126,
    "samples_per_second": 123.456,
    "learning_rate": 0.00123,
    "gradient_norm": 1.2345,
    "memory_mib": 1536.0,
}
TERMS = {"top-1": 45.21999, "loss": 0.41237, "boxes": 2.0}


def test_a_report_has_its_most_important_values_first():
    fields = build_fields(VALUES, TERMS, "images")
    assert [field.long for field in fields] == [
        "loss 0.4124",
        "123.5 images/s",
        "data wait 13%",
        "gradient norm 1.23",
        "memory 1.5 GiB",
        "learning rate 1.23e-03",
        "top-1 45.22",
        "boxes 2",
    ]
    assert [field.short for field in fields][2:6] == ["wait 13%", "norm 1.23", "1.5 GiB", "lr 1.23e-03"]


@pytest.mark.parametrize(
    "changed, terms, position, text",
    [
        ({"skipped_updates": 3}, TERMS, 1, "3 skipped"),
        ({"memory_mib": 1023.4}, TERMS, 4, "memory 1023 MiB"),
        ({"memory_mib": 1024.0}, TERMS, 4, "memory 1.0 GiB"),
        ({"memory_mib": None}, TERMS, 4, "learning rate 1.23e-03"),
        ({}, {"masks": 3.0, "boxes": 2.0}, 0, "masks 3"),
        ({}, {}, 0, "123.5 images/s"),
    ],
)
def test_values_are_shown_if_there_are_any(changed, terms, position, text):
    assert build_fields({**VALUES, **changed}, terms, "images")[position].long == text
    without = {name: value for name, value in VALUES.items() if name not in ("gradient_norm", "memory_mib")}
    assert [field.short for field in build_fields(without, {}, "scenes")] == [
        "123.5 scenes/s",
        "wait 13%",
        "lr 1.23e-03",
    ]


@pytest.mark.parametrize(
    "width, text",
    [
        (24, "loss 1  memory 2  rate 3"),
        (23, "loss 1  2  3"),
        (12, "loss 1  2  3"),
        (11, "loss 1  2"),
        (9, "loss 1  2"),
        (8, "loss 1"),
        (6, "loss 1"),
        (4, "loss"),
        (0, ""),
        (-1, ""),
    ],
)
def test_a_line_is_shortened_from_its_end(width, text):
    fields = [ReportField("loss 1", "loss 1"), ReportField("memory 2", "2"), ReportField("rate 3", "3")]
    assert fit(fields, width) == text


@pytest.mark.parametrize(
    "width, text",
    [
        (42, "epoch 1: loss 1 masks 2 data wait 3% (4 s)"),
        (41, "epoch 1: loss 1 masks 2 wait 3% (4 s)"),
        (36, "epoch 1: loss 1 masks 2 (4 s)"),
        (28, "epoch 1: loss 1 (4 s)"),
        (5, "epoch 1: loss 1 (4 s)"),
    ],
)
def test_a_line_loses_what_is_least_important_first(width, text):
    texts = ["epoch 1:", "loss 1", "masks 2", "data wait 3%", "(4 s)"]
    fields = [ReportField(text, text.removeprefix("data ")) for text in texts]
    assert fit_line(fields, [3, 2], width) == text


def test_lines_are_complete_when_they_appear():
    stream, seen = BarSafeStream(io.StringIO()), []
    for text, number in (("one", 3), (" two\nthree\nfo", 13), ("ur", 2), ("\n", 1)):
        assert stream.write(text) == number
        seen.append(stream.getvalue())
    lines = "one two\nthree\n"
    assert seen == ["", lines, lines, f"{lines}four\n"]
    stream.end()
    stream.write("rest")
    assert stream.getvalue() == f"{lines}four\n"
    stream.end()
    stream.end()
    assert stream.getvalue() == f"{lines}four\nrest"


def test_a_forked_process_writes_over_the_first_bar():
    stream = BarSafeStream(io.StringIO())
    stream._process += 1
    assert stream.write("text") == 9 and stream.write("\n") == 1
    assert stream.getvalue() == "\r\x1b[2Ktext\n"
    other = BarSafeStream(stream.stream)
    assert stream == stream.stream and stream == stream and stream not in (io.StringIO(), other)


def test_a_bar_that_is_not_shown_counts_its_steps():
    bar = ProgressBar(10, "training", shown=False)
    bar.step()
    bar.step(3)
    bar.note("text", at_once=True)
    bar.show([ReportField("a", "b")])
    assert bar.left == 6 and not bar.is_shown
    bar.close()


class Terminal(io.StringIO):
    """A stream that says whether it is a terminal."""

    def __init__(self, is_terminal=True):
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self):
        return self.is_terminal


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_shows_what_is_done_until_a_line_is_printed(is_terminal, monkeypatch):
    screen = Terminal(is_terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("TERM", "xterm")
    with shown_briefly("importing"):
        assert screen.getvalue() == ("importing ..." if is_terminal else "")
    with progress.Heartbeat(progress.write_line, quiet_seconds=60.0, poll_seconds=0.01).at("reading the data"):
        while is_terminal and "reading" not in screen.getvalue():
            time.sleep(0.005)
        time.sleep(0.05)
        progress.write_line("data: digits")
    shown = [part for part in screen.getvalue().split(EMPTY_LINE) if part]
    assert shown[-1 if shown[-1].startswith("data") else -2] == "data: digits\n"
    drawn = {"importing ...", "reading the data (0 s)"} if is_terminal else set()
    assert {part for part in shown if not part.startswith("data")} == drawn
    assert screen.getvalue().endswith(EMPTY_LINE if is_terminal and not shown[-1].startswith("data") else "\n")
