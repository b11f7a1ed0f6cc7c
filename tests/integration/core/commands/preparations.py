"""Preparations of images, and how they go on after an end amid their work."""

import os
import re
import signal
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
from PIL import Image
from support.processes import left_behind, run_command, start_command, wait_until
from support.trainings.runs import well

COMMAND = [sys.executable, "-m", "paddlevit_dist", "prepare", "images"]


def prepare(*arguments):
    return run_command([*COMMAND, *map(str, arguments)])


def write(path, size, mode="RGB", form=None, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    # Smooth, so that JPEG changes little.
    rows, columns = np.mgrid[: size[1], : size[0]]
    pixels = np.stack([rows * 255 // size[1], columns * 255 // size[0], (rows + columns) % 64], axis=-1)
    Image.fromarray(pixels.astype(np.uint8)).convert(mode).save(path, form, **options)


def members(folder, pattern="*.tar"):
    """Name -> content of all members of all tar files."""
    found = {}
    for path in sorted(folder.glob(pattern)):
        with tarfile.open(path) as tar:
            found.update({member.name: tar.extractfile(member).read() for member in tar})
    return found


def require_continuation_after_ctrl_c(everyone: bool, tmp_path: Path) -> None:
    images, output = tmp_path / "pictures", tmp_path / "output"
    write(images / "a" / "0000.jpg", (600, 400))
    for number in range(1, 240):
        os.link(images / "a" / "0000.jpg", images / "a" / f"{number:04d}.jpg")
    command = [*COMMAND, str(images), str(output), "--shorter_side=340", "--shard_size=20", "--workers=2"]
    process = start_command(command)
    wait_until(lambda: list(output.glob("*.tar")) or process.poll() is not None, "it makes no tar file")
    (os.killpg if everyone else os.kill)(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert (process.returncode, out) == (130, "")
    assert err == "interrupted; finished tar files are kept: run the same command to continue\n"
    assert left_behind(process.pid) == []
    finished = {file.name: file.stat().st_mtime_ns for file in output.glob("*.tar")}
    assert 1 <= len(finished) < 12
    assert {file.suffix for file in output.iterdir()} == {".tar", ".json", ".txt"}
    well(run_command(command))
    assert len(list(output.glob("*.tar"))) == 12 and len(members(output)) == 480
    assert {name: (output / name).stat().st_mtime_ns for name in finished} == finished


def require_continuation_after_kills(name: str, tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    for number in range(24):
        write(tmp_path / "in/train" / "ab"[number % 2] / f"{number}.jpg", (900, 700))
    command = [*COMMAND, str(tmp_path / "in"), str(tmp_path / "out"), "-shard_size=2", "-workers=2"]
    temporary = {"TMPDIR": str(tmp_path / "temporary")}
    tokens: set[str] = set()  # of these processes: other tests have theirs in shared memory, too

    def left():
        tried = re.compile("[a-z0-9_]{8}")  # Python's own file, with which it sees whether a folder can be written
        files = {file for file in os.listdir(tmp_path / "temporary") if not tried.fullmatch(file)}
        tokens.update(token for file in files for token in re.findall("[0-9a-f]{16}", file))
        return files | {file for file in os.listdir("/dev/shm") if any(token in file for token in tokens)}

    def at_work():
        return any(file.name.endswith(".tar") for file in (tmp_path / "out").glob("*"))

    moments = (left, (tmp_path / "out").exists, at_work)
    for reached in moments:
        process = start_command(command, **temporary)
        while not reached() and process.poll() is None:
            time.sleep(0.001)
        os.killpg(process.pid, getattr(signal, name))  # the tracker of semaphores dies, too
        process.communicate(timeout=600)
    (tmp_path / "out/prepared.json.4711.0123abcd.tmp").touch()  # as one that is killed in its first write leaves it
    os.utime(tmp_path / "out/prepared.json.4711.0123abcd.tmp", (0, 0))
    if not at_work():
        (tmp_path / "out/prepared.json").unlink(missing_ok=True)
    well(run_command(command, **temporary))
    assert len(members(tmp_path / "out")) == 48 and left() == set()
    assert not list((tmp_path / "out").glob("*.tmp"))
