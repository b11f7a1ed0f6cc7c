"""The page's search, killed in a trial and continued, equals a search that nobody stopped."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from integration.core.distributed.resumed_runs import assert_bit_equal, weights
from support.processes import ROOT, run_command, start_command, succeeded, wait_until

pytest.importorskip("optuna")
PAGE = ROOT / "docs" / "explanation" / "scoring_and_confidence_intervals.md"
SMALL = "MODEL.EMBED_DIM 32 MODEL.DEPTH 1 MODEL.NUM_HEADS 2 DATA.NUM_WORKERS 0 SAVE_FREQ 1 VALIDATE_FREQ 1 REPORT False"


def command(output: Path, trials: int) -> list[str]:
    [line] = re.findall(r"^paddlevit-dist (search .*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    words = [word for word in line.split() if not word.startswith(("-output", "-trials", "-epochs"))]
    words += ["-epochs=4", f"-trials={trials}", f"-output={output}", *SMALL.split()]
    return [sys.executable, "-m", "paddlevit_dist", *words]


def test_a_killed_search_is_continued_to_the_same_end(tmp_path):
    straight = succeeded(run_command(command(tmp_path / "straight", 4)))
    killed = tmp_path / "killed"
    process = start_command(command(killed, 3), is_copy=True)
    saved = killed / "trial_0001" / "checkpoints" / "epoch_0002"
    wait_until(saved.exists, "the second trial saves nothing", 300, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=600)
    succeeded(run_command(command(killed, 3)))
    ended = succeeded(run_command(command(killed, 4)))
    rows = [
        dict(re.findall(r"^(\d) +([\d.e-]+ +[\d.]+ +\d+|[\d.e-]+ +pruned)$", run.out, re.MULTILINE))
        for run in (straight, ended)
    ]
    assert [sorted(found) for found in rows] == [["0", "1", "2", "3"]] * 2 and "best: trial " in ended.out
    assert [rows[0][n].split()[0] for n in "0123"] == [rows[1][n].split()[0] for n in "0123"]  # the values tried
    finished = [number for number in "0123" if all("pruned" not in found[number] for found in rows)]
    assert "0" in finished
    for number in finished:  # when a trial is stopped depends on the time between two looks
        folders = [tmp_path / name / f"trial_000{number}" for name in ("straight", "killed")]
        assert rows[0][number] == rows[1][number]
        assert_bit_equal(*map(weights, folders))
