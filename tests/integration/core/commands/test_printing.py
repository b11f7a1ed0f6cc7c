"""Whatever happens to the terminal, a command continues and exits with the code it would have had."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from support.processes import environment, left_behind, run_command
from support.trainings.runs import DIGITS, MAIN

TRAINING = [*DIGITS, "REPORT_FREQ", "1"]


def start(command, **streams) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, *map(str, command)], env=environment(), start_new_session=True, **streams)


def finish(process: subprocess.Popen) -> int:
    code = process.wait(timeout=600)
    assert left_behind(process.pid) == []
    return code


def make_log(output: Path) -> list:
    """The lines of ``log.txt`` without their times."""
    return [line[20:] for line in (output / "log.txt").read_text(encoding="utf-8").splitlines()]


def test_a_training_whose_reader_leaves_and_whose_errors_find_no_room_leaves_the_whole_log(tmp_path):
    with open("/dev/full", "wb") as full:
        command = [MAIN, *TRAINING, "-ngpus=2", f"-output={tmp_path}"]
        process = start(command, stdout=subprocess.PIPE, stderr=full)
        first = process.stdout.readline().decode()
        process.stdout.close()
        assert finish(process) == 0
    log = make_log(tmp_path)
    assert log[0] == first.rstrip("\n") and log[-1].startswith("top-1 ")
    assert any(line.startswith("saved ") for line in log[-3:-1])  # in the background, beside the evaluation


def test_a_training_outlives_its_terminal_and_a_bar_on_it(tmp_path):
    ours, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 120, 0, 0))  # a bar needs room
    process = start([MAIN, *TRAINING, f"-output={tmp_path}"], stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    seen = b""
    while b"%|" not in seen:  # of the bar
        seen += os.read(ours, 1000)
    os.close(ours)  # hangs up: what is written from now on is an input/output error
    assert finish(process) == 0
    assert make_log(tmp_path)[-1].startswith("top-1 ")


COMMANDS = {
    "help": ([MAIN, "-h"], 0),
    "configuration": ([MAIN, "-show_config"], 0),
    "list of models": (["-m", "paddlevit_dist", "inspect", "--list"], 0),
    "help of a tool": (["-m", "paddlevit_dist", "convert", "-h"], 0),
    "mistake": ([MAIN, "-nonsense"], 2),
    "mistake with a tool": (["-m", "paddlevit_dist", "prepare", "images", "/nowhere"], 2),
}


@pytest.mark.parametrize("command, code", COMMANDS.values(), ids=COMMANDS)
def test_a_command_whose_reader_has_left_says_nothing_of_it(command, code):
    process = start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    said = process.stderr.read().decode()
    assert finish(process) == code
    assert said == "" if code == 0 else said.startswith("error: ") and said.count("\n") == 1


@pytest.mark.parametrize("closing", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_from_the_start(closing, tmp_path):
    command = ["sh", "-c", f'exec "$@" {closing}', "sh", sys.executable, str(MAIN)]
    assert run_command([*command, "-h"]).code == 0
    assert run_command([*command, "-nonsense"]).code == 2


PROGRAM = """
from paddlevit_dist.core.runtime import printing
printing.ignore_broken_pipe()
printing.ignore_broken_pipe()
print("Gr\\u00fc\\u00dfe \\udcff", flush=True)
open("/dev/stdout", "w").write("by its own means\\n")
"""


def test_what_the_terminal_cannot_show_is_escaped():
    ended = run_command([sys.executable, "-c", PROGRAM], PYTHONIOENCODING="ascii")
    assert ended.code == 0 and ended.err == ""
    assert ended.out == "Gr\\xfc\\xdfe \\udcff\nby its own means\n"
