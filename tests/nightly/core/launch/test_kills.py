"""After a kill nothing is in the way of the next start, and nothing stays."""

import json
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from support.processes import run_main, start_command
from support.trainings.runs import DIGITS, MAIN, refused, well

from paddlevit_dist.core.launch.lock import FILE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc and /dev/shm")


def make_names(token: str) -> list:
    """What the run with this token has outside its output folder."""
    places = (Path("/dev/shm"), Path(tempfile.gettempdir()))
    return [str(path) for place in places for path in place.glob(f"*paddlevit_dist_*{token}*")]


def test_after_a_kill_the_next_start_gets_the_folder_at_once_and_removes_what_was_left(tmp_path):
    words = [*DIGITS, f"-output={tmp_path}", "-ngpus=2", "-num_workers=1", "-epochs=400", "-resume=auto"]
    stale = "127.0.0.1:9"  # the master of an earlier launch, of which the shell has kept the address
    first = start_command([sys.executable, str(MAIN), *words], PADDLE_MASTER=stale)
    try:
        lines = []
        deadline = threading.Timer(600.0, os.killpg, (first.pid, signal.SIGKILL))
        deadline.start()
        for line in first.stdout:
            lines.append(line)
            if line.startswith("epoch 2"):
                break
        deadline.cancel()
        assert any(line.startswith("ignored") and f"PADDLE_MASTER={stale}" in line for line in lines)
        token = json.loads((tmp_path / FILE).read_text())["token"]
        message = refused(*words)
        assert f"process {first.pid} on {os.uname().nodename}" in message and "another -output" in message
        assert first.poll() is None
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.communicate()
    assert any("ends" in name for name in make_names(token))
    Path("/dev/shm", f"sem.paddlevit_dist_{token}-abcdefgh").touch()  # of a start that was killed half-way
    half_written = tmp_path / f"metrics.jsonl.{first.pid}.0123abcd.tmp"
    half_written.touch()
    hidden = tmp_path / "checkpoints" / f".epoch_0009.node.{first.pid}.0123abcd.tmp"  # of a save
    hidden.mkdir()
    well(run_main(*words[:-4], "-batch_size=128", "-epochs=400", "-resume=auto", "TRAIN.STOP_AFTER_EPOCH", "1"))
    assert make_names(token) == []
    assert not half_written.exists() and not hidden.exists() and not (tmp_path / FILE).exists()
