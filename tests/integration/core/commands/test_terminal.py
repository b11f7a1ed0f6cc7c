"""What a person at a terminal sees: a bar that keeps its text, and an interruption that is logged."""

import contextlib
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

import pytest
from support.processes import environment, start_command, wait_until
from support.trainings.runs import DIGITS, MAIN, refused, write_images


def test_bar_and_values_fit_80_columns_and_lines_stay_whole(tmp_path):
    reading, writing = pty.openpty()
    fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, str(MAIN), f"-output={tmp_path / 'output'}", *DIGITS, "REPORT_FREQ", "2"]
    # However fast the updates are, the bar is drawn within the epoch.
    variables = {**environment(1), "TERM": "xterm", "TQDM_MININTERVAL": "0.01"}
    run = subprocess.Popen(command, stdout=writing, stderr=writing, env=variables, start_new_session=True)
    os.close(writing)
    shown = b""
    try:
        while part := os.read(reading, 4096):
            shown += part
    except OSError:  # how Linux says that the last process has closed the terminal
        pass
    os.close(reading)
    assert run.wait(timeout=600) == 0
    pieces = re.split(r"[\r\n]+|\x1b\[A", shown.decode())
    bars = [piece for piece in pieces if re.match(r"epoch 1/1 +\d+%\|", piece)]
    values = [piece for piece in pieces if re.match(r"loss [\d.]+  [\d.e+]+ images/s  ", piece)]
    assert bars and max(map(len, bars)) <= 80 and values and max(map(len, values)) <= 80
    left = [re.fullmatch(r"epoch 1/1 +\d+%\|.+\| \d+/22, \d+ s left, run \d+ s left *", bar) for bar in bars]
    assert any(left)
    norm = r"  (gradient )?norm [\d.]+  (memory )?[\d.]+ [MG]iB  (lr|learning rate) \d"
    assert any(re.search(r"wait \d+%" + norm, piece) for piece in values)
    log = [line[20:] for line in (tmp_path / "output" / "log.txt").read_text().splitlines()]
    assert len(log) > 8
    lines = {re.sub(r"\x1b\[[\d;]*[A-Za-z]", "", piece).rstrip() for piece in pieces}
    updates = [
        line for line in log if re.match(r"epoch 1( update|/1 training)", line)
    ]  # of which the terminal has a part
    assert [line for line in log if line not in {*lines, *updates}] == [], sorted(lines)


@pytest.mark.parametrize("answer, starts", [("\n", True), ("n\n", False), ("\x04", False)])
def test_enter_starts_the_recipe_that_fits_a_folder_of_images(tmp_path, answer, starts):
    write_images(tmp_path / "my_data")
    person, terminal = pty.openpty()
    command = [sys.executable, str(MAIN), "-data_path=my_data", "-pretrained=nowhere"]
    run = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, cwd=tmp_path, env=environment(1))
    os.close(terminal)
    shown = b""
    with contextlib.suppress(OSError):  # how Linux says that the last process has closed the terminal
        while part := os.read(person, 4096):
            is_asked = b"type anything else to stop: " in shown
            shown += part
            if not is_asked and b"type anything else to stop: " in shown:
                os.write(person, answer.encode())
    os.close(person)
    said = shown.decode()
    assert run.wait(timeout=600) == 2
    assert "The recipe for this data is finetune_folder: ViT-S/16 fine-tuned on your own images" in said
    assert ("error: no weights at nowhere" in said) == starts
    assert ("error: -data_path 'my_data': no recipe is named: add -cfg=finetune_folder" in said) != starts


def test_without_a_terminal_nobody_is_asked(tmp_path):
    write_images(tmp_path / "my_data")
    message = refused(f"-data_path={tmp_path / 'my_data'}")
    assert "no recipe is named: add -cfg=finetune_folder" in message


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

    def has_told_an_epoch() -> bool:
        return run.poll() is not None or (metrics.is_file() and '"epoch"' in metrics.read_text())

    wait_until(has_told_an_epoch, "it tells no epoch")
    os.killpg(run.pid, signal.SIGINT)  # as a terminal sends it: to all processes
    run.communicate(timeout=600)
    assert run.returncode == 75
    events = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert events[-1]["kind"] == "interruption" and events[-1]["reason"] == "asked to stop (SIGINT)"
    assert events[-1]["epoch"] >= 1
    assert "stopped: asked to stop (SIGINT): saved " in (output / "log.txt").read_text().splitlines()[-1]
