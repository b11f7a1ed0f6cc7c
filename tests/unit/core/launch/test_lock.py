"""One run at a time in an output folder, also after a kill, and what a killed run leaves."""

import errno
import fcntl
import json
import os
import socket
import sys
import tempfile
import time
from pathlib import Path

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.launch import lock, stale_resources
from paddlevit_dist.core.launch.lock import FILE, is_running, lock_output_dir

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc and /dev/shm")


def test_the_lock_does_not_keep_passwords_of_the_command_line(tmp_path, command_line):
    command_line("train", "-pretrained=https://me:secret@example.org/w?token=hidden")
    with lock_output_dir(tmp_path, print, is_evaluation=False):
        content = (tmp_path / FILE).read_text()
    assert "https://***@example.org/w?token=***" in content and "secret" not in content and "hidden" not in content


def test_the_lock_says_bytes_of_the_command_line_that_are_no_text(tmp_path, command_line):
    command_line("train", "-output=\udcff", "-data_path=\udce4\u00e4")
    with lock_output_dir(tmp_path, print, is_evaluation=False):
        assert r"-output=\xff" in json.loads((tmp_path / FILE).read_text(encoding="utf-8"))["command"]


@pytest.fixture
def lock_file(monkeypatch):
    """Return a function that sets what happens when this process locks a file, after an error or in place of it."""
    usual = fcntl.flock

    def act_before(act) -> None:
        monkeypatch.setattr(fcntl, "flock", lambda descriptor, operation: act() or usual(descriptor, operation))

    return act_before


def refuse(number: int):
    """Return a function that raises a system error."""

    def raise_error() -> None:
        raise OSError(number, os.strerror(number))

    return raise_error


@pytest.fixture
def no_locks(lock_file):
    """A file system that refuses them."""
    lock_file(refuse(errno.ENOLCK))


def change_holder(folder, **values) -> None:
    content = json.loads((folder / FILE).read_text())
    (folder / FILE).write_text(json.dumps({**content, **values}))


def test_without_locks_a_living_process_of_this_machine_holds_the_folder_and_what_it_keeps(tmp_path, take, no_locks):
    assert take(tmp_path) == [
        f"{tmp_path} is on a file system without locks: runs on other machines can write there at the same time"
    ]
    assert is_running(tmp_path) is True
    kept = stale_resources.SHARED_MEMORY / f"sem.{stale_resources.PREFIX}{stale_resources.token()}-of-the-first"
    kept.touch()
    half_written = tmp_path / "log.txt.tmp"
    half_written.touch()
    try:
        with pytest.raises(
            UserError, match=f"is in use by process {os.getpid()} on .*; choose another -output for this"
        ):
            take(tmp_path)
        assert kept.exists() and half_written.exists()
    finally:
        kept.unlink()


@pytest.mark.parametrize(
    "values, running",
    [({"pid": 2**22 + 1}, False), ({"started": 1}, False), ({"host": "other-host"}, None)],
    ids=["it has ended", "its number is another's now", "of another machine"],
)
def test_without_locks_a_holder_that_has_ended_is_no_obstacle(tmp_path, take, no_locks, values, running):
    take(tmp_path)
    change_holder(tmp_path, token="0123456789abcdef", **values)
    assert is_running(tmp_path) is running
    assert len(take(tmp_path)) == 1
    assert json.loads((tmp_path / FILE).read_text())["pid"] == os.getpid()


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


def test_folders_that_cannot_be_locked_are_named_and_not_known_to_run(tmp_path):
    with (
        pytest.raises(UserError, match=f"^-output={tmp_path}/absent .SAVE. cannot be written: No such file"),
        lock_output_dir(tmp_path / "absent", print, is_evaluation=False),
    ):
        pytest.fail("it is locked")
    (tmp_path / FILE).mkdir()
    assert is_running(tmp_path) is None


def test_a_lock_file_of_64_kib_is_read_and_no_further(tmp_path, take, simulated_time):
    take(tmp_path)
    content, size = (tmp_path / FILE).read_bytes(), 64 * 1024
    for text, who in (
        (content.ljust(size), f"process {os.getpid()} on "),
        (content.ljust(size) + b"x", f"process {os.getpid()} on "),  # what follows is not read
        (b" " * size + content, "another run"),
    ):
        (tmp_path / FILE).write_bytes(text)
        with pytest.raises(UserError, match=f"is in use by {who}"):
            take(tmp_path)


@pytest.mark.parametrize("is_evaluation", [False, True])
def test_a_folder_is_running_while_a_training_run_holds_it(tmp_path, is_evaluation):
    assert is_running(tmp_path) is False
    with lock_output_dir(tmp_path, print, is_evaluation=is_evaluation):
        assert is_running(tmp_path) is not is_evaluation
        with (
            pytest.raises(UserError, match=f"choose another -output for this {'evaluation' if is_evaluation else 't'}"),
            lock_output_dir(tmp_path, print, is_evaluation=is_evaluation),
        ):
            pytest.fail("both hold it")
    assert is_running(tmp_path) is False and list(tmp_path.iterdir()) == []
    with lock_output_dir(tmp_path, print, is_evaluation, should_lock=False):
        assert list(tmp_path.iterdir()) == []


def test_the_lock_says_who_holds_it(tmp_path, command_line):
    command_line("train", "-a b")
    ticks = os.sysconf("SC_CLK_TCK")
    before = os.umask(0o026)
    try:
        with lock_output_dir(tmp_path, print, is_evaluation=True):
            owner = json.loads((tmp_path / FILE).read_text())
            assert os.stat(tmp_path / FILE).st_mode & 0o777 == 0o640  # as the umask says
    finally:
        os.umask(before)
    begun = time.time() - float(Path("/proc/uptime").read_text().split()[0]) + owner.pop("started") / ticks
    assert 0 <= time.time() - begun < 24 * 3600  # this process's start
    since = time.mktime(time.strptime(owner.pop("since"), "%Y-%m-%d %H:%M:%S %z"))
    assert abs(since - time.time()) < 600
    assert owner == {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "command": "train '-a b'",
        "token": stale_resources.token(),
        "temporary": tempfile.gettempdir(),
        "is_evaluation": True,
    }


def test_the_holder_is_described_in_a_short_line():
    owner = lock.LockOwner("h" * 81, 5, "s" * 41, "c" * 161, "", "")
    assert owner.describe() == f"process 5 on {'h' * 77}... since {'s' * 37}... ({'c' * 157}...)"
    owner = lock.LockOwner("h" * 80, 5, "s" * 40, "c" * 160, "", "")
    assert (owner.is_evaluation, owner.started) == (False, None)
    assert owner.describe() == f"process 5 on {'h' * 80} since {'s' * 40} ({'c' * 160})"


@pytest.mark.parametrize("state, started", [("S", 22), ("Z", None), ("X", None)])
def test_the_start_of_a_process_is_a_field_after_its_name(tmp_path, state, started):
    fields = " ".join(map(str, range(4, 53)))
    stat = tmp_path / "41" / "stat"
    stat.parent.mkdir()
    stat.write_bytes(b"41 (a) \xff) 9) " + f"{state} {fields}\n".encode())
    assert lock.find_start(41, tmp_path) == started
    stat.unlink()
    assert lock.find_start(41, tmp_path) is None


def test_half_written_files_of_the_killed_run_are_removed(tmp_path, take):
    with lock_output_dir(tmp_path, print, is_evaluation=False):
        owner = json.loads((tmp_path / FILE).read_text())
    number, other = 2**22 + 1, 2**22 + 2
    (tmp_path / FILE).write_text(json.dumps({**owner, "pid": number}))
    names = {
        **dict.fromkeys(("a.txt.7.0123abcd.tmp", f"b.{other}.0123abcd.tmp", "predictions/c.7.0123abcd.tmp"), True),
        **dict.fromkeys((f"data/e.{number}.0123abcd.tmp", "g.tmp", "other/h.7.0123abcd.tmp"), False),
    }
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "0.7.0123abcd.tmp").mkdir()  # cannot be removed like a file, and disturbs nothing
    kept = stale_resources.SHARED_MEMORY / f"sem.{stale_resources.PREFIX}{owner['token']}-of-the-first"
    kept.touch()
    take(tmp_path)
    assert not kept.exists()
    assert {name for name in names if (tmp_path / name).exists()} == {name for name, gone in names.items() if not gone}


def test_a_lock_whose_holder_is_about_to_end_is_waited_for(tmp_path, lock_file, take, simulated_time):
    sleeps = simulated_time.waits
    simulated_time.meanwhile = lambda number: setattr(simulated_time, "now", simulated_time.now + 4.95)
    lock_file(refuse(errno.EWOULDBLOCK))
    content = {"host": socket.gethostname(), "pid": 2**22 + 1, "since": "", "command": "", "token": "", "temporary": ""}
    for holder in ("", json.dumps(content)):
        sleeps.clear()
        (tmp_path / FILE).write_text(holder)
        before = os.listdir("/proc/self/fd")
        who = rf"process {2**22 + 1} on .*" if holder else "another run"
        with pytest.raises(UserError, match=f"is in use by {who}; choose another -output for this training, or end"):
            take(tmp_path)
        assert sleeps == [0.05] * 3 and os.listdir("/proc/self/fd") == before  # up to 10 s
    (tmp_path / FILE).write_text(json.dumps({**content, "pid": os.getpid()}))
    sleeps.clear()
    with pytest.raises(UserError, match=f"is in use by process {os.getpid()} on"):
        take(tmp_path)
    assert sleeps == []


def test_a_file_that_its_holder_has_removed_is_no_lock(tmp_path, lock_file, simulated_time):
    locked = []

    def remove_once() -> None:
        locked.append(os.stat(tmp_path / FILE).st_ino)
        if len(locked) == 1:
            os.rename(tmp_path / FILE, tmp_path / "removed")

    lock_file(remove_once)
    with lock_output_dir(tmp_path, print, is_evaluation=False):
        assert simulated_time.waits == [0.05] and len(set(locked)) == 2
        assert os.stat(tmp_path / FILE).st_ino == locked[1] and (tmp_path / "removed").read_bytes() == b""


def open_files(folder) -> list[str]:
    """The files in a folder that this process has open."""
    paths = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    return [path for path in paths if path.startswith(os.path.realpath(folder))]


def test_a_forked_process_closes_the_file_and_leaves_it(tmp_path, monkeypatch):
    with lock_output_dir(tmp_path, print, is_evaluation=False):
        assert len(open_files(tmp_path)) == 1
    assert open_files(tmp_path) == []
    with lock_output_dir(tmp_path, print, is_evaluation=False):
        lock.close_in_child()
        assert open_files(tmp_path) == []
        monkeypatch.setattr(os, "getpid", lambda: 1)
    assert (tmp_path / FILE).exists()  # and what is closed was not closed again


def test_a_refused_file_is_closed(tmp_path, take):
    os.mkfifo(tmp_path / FILE)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(UserError, match="is not a file"):
        take(tmp_path)
    assert os.listdir("/proc/self/fd") == before
