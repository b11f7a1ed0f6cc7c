"""Which ends of a training run are worth another start, and how many."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from paddlevit_dist.core.logging.restarts import RestartCount, format_reason


def record(folder: Path, kind: str) -> None:
    with open(folder / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps({"kind": kind, "epoch": 1}) + "\n")


def save(folder: Path, number: int) -> None:
    (folder / "checkpoints").mkdir(exist_ok=True)
    last = folder / "checkpoints" / "last"
    last.unlink(missing_ok=True)
    last.symlink_to(f"epoch_{number:04d}")
    os.utime(last, (number, number), follow_symlinks=False)


@pytest.mark.parametrize(
    "kind, code, is_due",
    [
        ("interruption", 1, True),  # the parent recorded that a rank was lost
        ("failure", 1, False),
        ("failure", -9, False),  # killed after it had failed
        (None, -9, True),
        (None, -15, True),
        (None, -11, False),
        (None, 1, False),
        (None, 2, False),
        ("epoch", 2, False),
        (None, 0, False),
    ],
)
def test_a_record_of_this_start_decides_and_else_the_exit_code(tmp_path, kind, code, is_due):
    for earlier in ("interruption", "failure"):
        record(tmp_path, earlier)
        count = RestartCount(tmp_path)
        if kind is not None:
            record(tmp_path, kind)
        assert count.is_due(code, "seed 1") == is_due


def test_three_restarts_may_bring_no_checkpoint_and_one_that_brings_some_begins_anew(tmp_path, capsys):
    count, dues = RestartCount(tmp_path), []
    for start in range(8):
        if start == 3:
            save(tmp_path, start)
        dues.append(count.is_due(-9, "trial 2"))
    assert dues == [True] * 6 + [False] * 2  # the restarts 4, 5 and 6 after the checkpoint of the third
    line = "trial 2: 3 restarts have brought no new checkpoint: it is not started again"
    assert capsys.readouterr().out.splitlines()[-1] == line


def test_the_reason_of_the_first_run_that_recorded_one_is_given_or_that_a_disk_is_full(tmp_path, monkeypatch):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        record(folder, "epoch")
    assert format_reason([first, second, tmp_path / "gone"]) == ""
    usage = SimpleNamespace(free=(1 << 16) - 1)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage)
    assert format_reason([first, second]) == f"the disk of {first} is full: free space; "
    usage.free += 1
    assert format_reason([first, second]) == ""
    (second / "metrics.jsonl").write_text('{"kind": "failure", "reason": "No space left on device; free space"}\n')
    assert format_reason([first, second]) == "No space left on device; free space; "
    record(second, "interruption")
    assert format_reason([first, second]) == ""
