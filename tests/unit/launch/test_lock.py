"""One run at a time in an output folder, also after a kill, and what a killed run leaves."""

import errno
import fcntl
import json
import os
import sys

import pytest

from paddlevit_dist.launch import lock, stale_resources
from paddlevit_dist.launch.lock import FILE, is_running, lock_output_dir
from paddlevit_dist.runtime.errors import UserError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc and /dev/shm")


def test_the_lock_does_not_keep_passwords_of_the_command_line(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train", "-pretrained=https://me:secret@example.org/w?token=hidden"])
    with lock_output_dir(tmp_path, print, is_evaluation=False):
        content = (tmp_path / FILE).read_text()
    assert "https://***@example.org/w?token=***" in content and "secret" not in content and "hidden" not in content


@pytest.fixture
def no_locks(monkeypatch):
    """A file system that refuses them."""

    def refuse(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)


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


def test_a_lock_file_of_64_kib_is_read_and_no_further(tmp_path, take):
    take(tmp_path)
    content = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(content.ljust(64 * 1024))
    assert lock._read(tmp_path / FILE).pid == os.getpid()
    (tmp_path / FILE).write_bytes(content.ljust(64 * 1024) + b"x")
    assert lock._read(tmp_path / FILE).pid == os.getpid()  # what follows is not read
    (tmp_path / FILE).write_bytes(b" " * (64 * 1024) + content)
    assert lock._read(tmp_path / FILE) is None
