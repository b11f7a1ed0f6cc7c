"""The parents of processes touch no device: one that has computed on a GPU holds memory there as long as it lives."""

import json
import os
import sys

from PIL import Image
from support.processes import run_command
from support.trainings.runs import well
from support.trainings.trained import write_weights


def test_no_parent_computes_anything(tmp_path):
    write_weights(tmp_path / "weights", [str(number) for number in range(10)], channels=1)
    Image.new("RGB", (16, 16)).save(tmp_path / "one.png")
    ended = run_command([sys.executable, "-m", "support.hosts.parents", str(tmp_path)])
    found = json.loads(well(ended).out.splitlines()[-1])
    assert found["calls"] == [
        ["worker", 2, True, False],
        ["run_variant", 2, True, True],
        ["run_variant", 1, True, True],
        ["run_variant", 1, True, True],
        ["worker", 2, True, False],
        ["worker", 2, True, False],
    ]
    assert found["devices"] == []
    assert found["allocated"] == 0, "bytes, as Paddle counts what tensors take"
    pid, total = (tmp_path / "apart").read_text().split()
    assert float(total) == 3.0 and int(pid) not in (found["pid"], os.getpid())
