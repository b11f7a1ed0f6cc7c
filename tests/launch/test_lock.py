"""One run at a time in an output folder, also after a kill, and what a killed run leaves."""

import contextlib
import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from support.processes import run_main, start_command
from support.runs import DIGITS, MAIN, refused, well

from paddlevit_dist.launch.lock import FILE, is_running, own
from paddlevit_dist.runtime.errors import UserError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc and /dev/shm")
FORK_AND_WAIT = """
import os, sys, time
from pathlib import Path
from paddlevit_dist.launch.lock import own

with own(Path(sys.argv[1]), print, is_evaluation=False):
    child = os.fork()
    if child:
        print(child, flush=True)
    time.sleep(100)
"""


def test_the_lock_does_not_keep_passwords_of_the_command_line(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train", "-pretrained=https://me:secret@example.org/w?token=hidden"])
    with own(tmp_path, print, is_evaluation=False):
        content = (tmp_path / FILE).read_text()
    assert "https://***@example.org/w?token=***" in content and "secret" not in content and "hidden" not in content


@pytest.fixture
def take():
    """Locks folders, and gives them back at the end."""
    with contextlib.ExitStack() as locks:

        def taken(folder: Path) -> list[str]:
            said: list[str] = []
            locks.enter_context(own(folder, said.append, is_evaluation=False))
            return said

        yield taken


def names_of(token: str) -> list:
    """What the run with this token has outside its output folder."""
    places = (Path("/dev/shm"), Path(tempfile.gettempdir()))
    return [str(path) for place in places for path in place.glob(f"*paddlevit_dist_*{token}*")]


def wait_until(condition, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.long
def test_after_a_kill_the_next_start_gets_the_folder_at_once_and_removes_what_was_left(tmp_path):
    words = [*DIGITS, f"-output={tmp_path}", "-ngpus=2", "-num_workers=1", "-epochs=400", "-resume=auto"]
    stale = "127.0.0.1:9"  # the master of an earlier launch, of which the shell has kept the address
    first = start_command([sys.executable, str(MAIN), *words], PADDLE_MASTER=stale)
    try:
        lines = []
        deadline = threading.Timer(50.0, os.killpg, (first.pid, signal.SIGKILL))  # waiting for that one takes 60 s
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
    assert any("ends" in name for name in names_of(token))
    Path("/dev/shm", f"sem.paddlevit_dist_{token}-abcdefgh").touch()  # of a start that was killed half-way
    half_written = tmp_path / f"metrics.jsonl.{first.pid}.0123abcd.tmp"
    half_written.touch()
    hidden = tmp_path / "checkpoints" / f".epoch_0009.node.{first.pid}.0123abcd.tmp"  # of a save
    hidden.mkdir()
    began = time.monotonic()
    well(run_main(*words[:-4], "-batch_size=128", "-epochs=400", "-resume=auto", "TRAIN.STOP_AFTER_EPOCH", "1"))
    assert time.monotonic() - began < 60
    assert names_of(token) == []
    assert not half_written.exists() and not hidden.exists() and not (tmp_path / FILE).exists()


def test_a_running_one_is_named_unless_only_the_configuration_is_shown(tmp_path, take):
    take(tmp_path)
    before = sorted(tmp_path.iterdir())
    for words, advice in ((["-eval", "-resume=auto"], "for this evaluation"), ([], "for this training")):
        message = refused(f"-output={tmp_path}", *DIGITS, *words)
        assert f"-output={tmp_path} (SAVE) is in use by process {os.getpid()} on" in message
        assert advice in message
    assert sorted(tmp_path.iterdir()) == before
    assert run_main(f"-output={tmp_path}", *DIGITS, "-show_config").code == 0


def test_a_forked_process_does_not_keep_the_lock(tmp_path, take):
    holder = subprocess.Popen([sys.executable, "-c", FORK_AND_WAIT, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    child = int(holder.stdout.readline())
    try:
        with pytest.raises(UserError, match=f"process {holder.pid} on"):
            take(tmp_path)
        holder.kill()
        holder.wait()
        began = time.monotonic()
        take(tmp_path)
        assert time.monotonic() - began < 5
        os.kill(child, 0)  # it lives, and had the file open
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_file_system_without_locks_is_told(tmp_path, take, monkeypatch):
    def refuse(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert take(tmp_path) == [
        f"{tmp_path} is on a file system without locks: nothing keeps a second run from writing there"
    ]
    assert is_running(tmp_path) is None


def test_what_a_lock_file_says_is_shown_without_what_a_terminal_would_obey(tmp_path, take):
    take(tmp_path)
    content = json.loads((tmp_path / FILE).read_text())
    content.update(host="other-host", command="train \x1b[31mred\nerror: no")
    (tmp_path / FILE).write_text(json.dumps(content))
    with pytest.raises(UserError, match=f"process {os.getpid()} on other-host") as refusal:
        take(tmp_path)
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"[" * 50_000, b'{"host": 1}', b"\xff\x00"], ids=range(6))
def test_a_lock_file_without_a_holder_is_no_obstacle(content, tmp_path, take):
    (tmp_path / FILE).write_bytes(content)
    take(tmp_path)
    assert json.loads((tmp_path / FILE).read_text())["pid"] == os.getpid()


def test_what_is_no_file_is_named(tmp_path, take):
    (tmp_path / FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=f"{FILE} is not a file.*remove it"):
        take(tmp_path)
    assert not (tmp_path / "elsewhere").exists()
    (tmp_path / FILE).unlink()
    os.mkfifo(tmp_path / FILE)
    with pytest.raises(UserError, match=f"{FILE} is not a file; remove it"):
        take(tmp_path)
