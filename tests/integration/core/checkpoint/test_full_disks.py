"""A save that meets a limit of file sizes or a full disk ends with one line and keeps what was there."""

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.forks import in_child
from support.processes import ROOT, run_command
from support.refusals import refusal_of
from support.trainings.runs import DIGITS, STATE

from paddlevit_dist.core.checkpoint import store as checkpoint_store
from paddlevit_dist.core.checkpoint.store import HostTensor


def save(folder: Path, epoch: int) -> Path:
    weights = {"weight": HostTensor(np.zeros(20_000, np.float32), "linear_0.w_0")}
    state = checkpoint_store.RunState({"epoch": epoch, "consumed": 0, "update": epoch}, {}, STATE)
    return checkpoint_store.save(folder, checkpoint_store.epoch_name(epoch), weights, state)


def test_a_limit_of_file_sizes_is_named(tmp_path):
    """In a process of its own, as the limit stays."""
    save(tmp_path, 1)

    def limited() -> str:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        return refusal_of(save, tmp_path, 2)

    assert "epoch_0002: File too large; raise the limit of file sizes (ulimit -f)" in in_child(limited)()
    assert os.listdir(tmp_path) == ["epoch_0001"]


MOUNT = ["unshare", "--user", "--map-root-user", "--mount"]


@pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.run([*MOUNT, "true"], capture_output=True).returncode != 0,
    reason="this user may not mount a small file system",
)
def test_a_training_on_a_full_disk_ends_with_one_line_and_keeps_what_it_had(tmp_path):
    """On a file system with room for one checkpoint and a half; it is gone with the process, hence the copy."""
    output, left = tmp_path / "output", tmp_path / "left"
    (output / "checkpoints").mkdir(parents=True)
    main = [sys.executable, str(ROOT / "main_multi_gpu.py"), f"-output={output}", *DIGITS, "-epochs=3", "-resume=auto"]
    mount, keep = 'mount -t tmpfs -o size=128k none "$0/checkpoints"', 'cp -a "$0/checkpoints" "$1"'
    script = f'{mount} && "${{@:2}}"; code=$?; {keep}; exit $code'
    ended = run_command([*MOUNT, "bash", "-c", script, str(output), str(left), *main])
    assert ended.code == 2, ended.err
    lines = ended.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: cannot write the checkpoint"), ended.err
    assert "No space left on device; free space, then -resume=auto" in lines[0]
    names = sorted(os.listdir(left))
    assert {"last"} < set(names) and not any(name.startswith(".") for name in names), names
    checkpoint_store.verify((left / "last").resolve())
