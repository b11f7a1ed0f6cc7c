"""Errors of the file system are told as what they are, and lose nothing."""

import errno
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.processes import ROOT, run_command
from support.runs import DIGITS, STATE

from paddlevit_dist.checkpoint import store as checkpoints
from paddlevit_dist.checkpoint.store import HostTensor
from paddlevit_dist.runtime.errors import UserError
from paddlevit_dist.runtime.files import atomic_file

ADVICE = {
    "ENOSPC": "free space",
    "EDQUOT": "quota",
    "EFBIG": "ulimit -f",
    "EACCES": "make it writable",
    "EPERM": "make it writable",
    "EROFS": "mounted read-only",
    "EIO": "dmesg",
    "ESTALE": "mount it again",
    "EMFILE": "ulimit -n",
    "EBUSY": "choose another folder",
}


def save(folder: Path, epoch: int) -> Path:
    weights = {"weight": HostTensor(np.zeros(20_000, np.float32), "linear_0.w_0")}
    state = checkpoints.RunState({"epoch": epoch, "consumed": 0, "update": epoch}, {}, STATE)
    return checkpoints.save(folder, checkpoints.epoch_name(epoch), weights, state)


def message_of(act: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        act()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ADVICE)
def test_each_error_comes_with_its_own_advice(tmp_path, monkeypatch, name):
    """Injected where data are flushed to the disk: most of them take a disk of their own to provoke."""
    save(tmp_path, 1)
    number = getattr(errno, name)

    def refuse(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    told = [message_of(lambda: save(tmp_path, 2))]
    if name != "EBUSY":  # not one that a user can do something about in general
        told.append(message_of(lambda: write(tmp_path / "other")))
    for message in told:
        assert os.strerror(number) in message and ADVICE[name] in message and str(tmp_path) in message
        assert ("free space" in message) == (name == "ENOSPC")
    assert "epoch_0002" in told[0] and "-resume=auto" in told[0]
    checkpoints.verify(tmp_path / "epoch_0001")
    assert os.listdir(tmp_path) == ["epoch_0001"]


def write(path: Path) -> None:
    with atomic_file(path) as file:
        file.write(b"content")


def test_a_file_a_loop_and_a_long_name_in_the_way_of_the_folder_are_named(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    for name, reason in (
        ("file", "File exists; a file stands where a folder is expected"),
        ("file/below", "Not a directory; a file stands where a folder is expected"),
        ("loop/below", "links lead round in a circle"),
        ("n" * 300, "File name too long; choose a folder with a shorter path"),
    ):
        assert reason in message_of(lambda folder=tmp_path / name: save(folder, 1))


def test_a_limit_of_file_sizes_is_named(tmp_path):
    """In a process of its own, as the limit stays."""
    save(tmp_path, 1)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        try:
            save(tmp_path, 2)
        except UserError as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as said:
        message = said.read()
    os.waitpid(child, 0)
    assert "epoch_0002: File too large; raise the limit of file sizes (ulimit -f)" in message
    assert os.listdir(tmp_path) == ["epoch_0001"]


MOUNT = ["unshare", "--user", "--map-root-user", "--mount"]


@pytest.mark.long
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
    ended = run_command([*MOUNT, "bash", "-c", script, str(output), str(left), *main], timeout=120.0)
    assert ended.code == 2, ended.err
    lines = ended.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: cannot write the checkpoint"), ended.err
    assert "No space left on device; free space, then -resume=auto" in lines[0]
    names = sorted(os.listdir(left))
    assert {"last"} < set(names) and not any(name.startswith(".") for name in names), names
    checkpoints.verify((left / "last").resolve())
