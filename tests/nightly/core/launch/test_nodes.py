"""Two nodes of ``python -m paddle.distributed.launch`` on the loopback address give the same result as one machine."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path

from support.processes import ROOT, run_main, start_nodes, succeeded, wait_until
from support.trainings.runs import read_events

ARGUMENTS = [
    f"-cfg={ROOT}/configs/vit_digits.yaml",
    "-epochs=1",
    *"MODEL.EMBED_DIM 32 MODEL.DEPTH 2 MODEL.NUM_HEADS 2 TRAIN.WARMUP_EPOCHS 0 DATA.NUM_WORKERS 0".split(),
]


def descendants(process: int) -> list[int]:
    """A process and what it has started, whatever sessions they are in; Paddle's launcher gives each rank one."""
    parents = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = [process]
    for one in found:  # grows meanwhile
        found += [child for child, parent in parents.items() if parent == one]
    return found


def metrics(folder) -> list:
    keep = ("kind", "epoch", "update", "loss", "top-1", "top-5", "top-1 count")
    lines = read_events(folder)
    return [{key: line[key] for key in keep if key in line} for line in lines]


def test_two_nodes_equal_two_spawned_processes(tmp_path):
    succeeded(run_main(*ARGUMENTS, f"-output={tmp_path / 'spawned'}", "-ngpus=2"))
    nodes = start_nodes(tmp_path, *ARGUMENTS, f"-output={tmp_path / 'nodes'}")
    for node in nodes:
        out, err = node.communicate(timeout=600)
        assert node.returncode == 0, f"{out[-2000:]}\n{err[-2000:]}"
    assert metrics(tmp_path / "nodes") == metrics(tmp_path / "spawned")
    record = json.loads((tmp_path / "nodes" / "run.json").read_text())
    assert record["processes"] == 2


def test_nodes_whose_processes_were_all_suspended_go_on_as_if_they_had_not_been(tmp_path):
    """As ``scontrol suspend`` and ``docker pause`` do, for longer than a rank may stand still."""
    words = [*ARGUMENTS, "WATCHDOG_SECONDS", "4", "REPORT_FREQ", "1", "-epochs=3"]
    succeeded(run_main(*words, f"-output={tmp_path / 'spawned'}", "-ngpus=2"))
    nodes = start_nodes(tmp_path, *words, f"-output={tmp_path / 'nodes'}")
    written = tmp_path / "nodes" / "metrics.jsonl"
    wait_until(lambda: written.exists() and written.read_text().count("\n") > 2, "no updates")
    members = [member for node in nodes for member in descendants(node.pid)]
    for member in members:
        os.kill(member, signal.SIGSTOP)
    time.sleep(16.0)  # a rank that is stopped alone has 12 s
    for member in members:
        os.kill(member, signal.SIGCONT)
    for node in nodes:
        out, err = node.communicate(timeout=600)
        assert node.returncode == 0, f"{out[-2000:]}\n{err[-2000:]}"
    assert metrics(tmp_path / "nodes") == metrics(tmp_path / "spawned")
