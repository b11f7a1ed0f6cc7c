"""What a person at a terminal sees: a bar that keeps its text, and an interruption that is logged."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time

from support.processes import environment, start_command
from support.runs import DIGITS, MAIN


def test_the_bar_keeps_its_text_on_80_columns(tmp_path):
    reading, writing = pty.openpty()
    fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, str(MAIN), f"-output={tmp_path / 'output'}", *DIGITS, "REPORT_FREQ", "2"]
    # Only stderr is the terminal; tqdm asks it for its width
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writing, env=environment(1), start_new_session=True)
    os.close(writing)
    shown = b""
    try:
        while part := os.read(reading, 4096):
            shown += part
    except OSError:  # how Linux says that the last process has closed the terminal
        pass
    os.close(reading)
    run.communicate(timeout=60)
    assert run.returncode == 0
    bars = [line for line in re.split(r"[\r\n]+", shown.decode()) if "|" in line]
    with_text = [line for line in bars if line.rstrip().endswith(" left")]
    assert bars and max(map(len, bars)) <= 80
    assert any(re.search(r"epoch 1/1 +\d+%\|.{20,}\| \d+/22, loss [\d.]+, \d+ s left", line) for line in with_text)


def test_an_interruption_is_an_event_and_a_line_of_the_log(tmp_path):
    output = tmp_path / "output"
    arguments = [word for word in DIGITS if word != "-epochs=1"] + [
        "-epochs=500",
        "-ngpus=2",
        "-num_workers=1",
        f"-output={output}",
    ]
    run = start_command([sys.executable, str(MAIN), *arguments])
    metrics = output / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while not (metrics.is_file() and '"epoch"' in metrics.read_text()) and run.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)  # until the first epoch was told
    os.killpg(run.pid, signal.SIGINT)  # as a terminal sends it: to all processes
    run.communicate(timeout=60)
    assert run.returncode == 75
    events = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert events[-1]["kind"] == "interruption" and events[-1]["reason"] == "asked to stop (SIGINT)"
    assert events[-1]["epoch"] >= 1
    assert "stopped: asked to stop (SIGINT): saved " in (output / "log.txt").read_text().splitlines()[-1]
