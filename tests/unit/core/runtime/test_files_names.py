"""Names and errors of files: what is temporary, what is told of an error, and what a file is read as."""

import errno
import os
import re
import socket
import stat
from types import SimpleNamespace

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.runtime import files


@pytest.mark.parametrize(
    "path, is_one",
    [("s3://a/b", True), ("x+y-1.z://", True), ("1x://a", False), ("s3:/a", False), ("a/s3://b", False), ("", False)],
)
def test_an_address_begins_with_a_scheme(path, is_one):
    assert files.is_address(path) is is_one


def test_an_error_of_the_file_system_is_told_with_what_to_do(tmp_path):
    for number, advice in files._ADVICE.items():
        assert files.explain_write_error(OSError(number, "why")) == f"why; {advice}"
    assert files.explain_write_error(OSError(errno.EBADF, "why")) == "why; choose another folder"
    assert files.explain_write_error(OSError("text")) == "text; choose another folder"
    assert files.explain_write_error(BlockingIOError()) == "BlockingIOError; choose another folder"
    with (
        pytest.raises(UserError, match=r"^cannot write x: why; free space; h$"),
        files.os_errors_as_user_errors("x", "; h"),
    ):
        raise OSError(errno.ENOSPC, "why")
    with pytest.raises(UserError, match=r"^cannot write x: why; free space$"), files.os_errors_as_user_errors("x"):
        raise OSError(errno.ENOSPC, "why")
    with pytest.raises(ValueError), files.os_errors_as_user_errors("x"):
        raise ValueError


def test_temporary_names_are_new_and_recognized(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "höst.example-1" + "x" * 99)
    names = [files.temporary_name("a.b") for _ in range(2)]
    host = "h-st-example-1" + "x" * 46
    assert names[0] != names[1]
    for name in names:
        assert re.fullmatch(rf"a\.b\.{host}\.{os.getpid()}\.[0-9a-f]{{8}}\.tmp", name) and files.is_temporary(name)
    assert files.is_temporary(".x.1.01234567.tmp")
    for name in ("x.1.0123456.tmp", "x.y.01234567.tmp", ".1.01234567.tmp", "x.1.01234567.tmp2", "x.1.0123456G.tmp"):
        assert not files.is_temporary(name)


def test_a_file_appears_once_it_is_complete_and_replaces_another(tmp_path, monkeypatch):
    before, path, synchronized = os.umask(0o026), tmp_path / "a", []
    monkeypatch.setattr(files.os, "fsync", lambda descriptor: synchronized.append(os.fstat(descriptor).st_size))
    try:
        path.write_bytes(b"old")
        path.chmod(0o600)
        with files.atomic_file(path) as out:
            out.write(b"new")
            (temporary,) = (each for each in tmp_path.iterdir() if each != path)
            assert path.read_bytes() == b"old" and files.is_temporary(temporary.name)
            assert temporary.name.startswith("a.") and f".{os.getpid()}." in temporary.name
    finally:
        os.umask(before)
    assert path.read_bytes() == b"new" and stat.S_IMODE(path.stat().st_mode) == 0o640 and synchronized == [3]
    with pytest.raises(ZeroDivisionError), files.atomic_file(path) as out:
        out.write(b"half")
        raise ZeroDivisionError
    with pytest.raises(UserError, match=rf"^cannot write {path}: why; free space$"), files.atomic_file(path):
        raise OSError(errno.ENOSPC, "why")
    with pytest.raises(OSError, match="why"), files.atomic_file(path):
        raise OSError(errno.EBADF, "why")
    assert path.read_bytes() == b"new" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "mode, kind",
    [
        (stat.S_IFIFO, "a named pipe"),
        (stat.S_IFSOCK, "a socket"),
        (stat.S_IFCHR, "a device"),
        (stat.S_IFBLK, "a device"),
    ]
    + [(0o110000, "something else")],
)
def test_what_is_no_file_is_named(monkeypatch, mode, kind):
    monkeypatch.setattr(files.os, "stat", lambda path: SimpleNamespace(st_mode=mode | 0o644))
    with pytest.raises(files.NotAFile) as refused:
        files.require_regular("a")
    text = f"it is {kind}, expected a file: remove or replace it"
    assert (refused.value.errno, refused.value.strerror, refused.value.filename) == (errno.EINVAL, text, "a")


def test_folders_are_told_from_files(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "loop").symlink_to("loop")
    found = {entry.name: files.is_folder(entry) for entry in os.scandir(tmp_path)}
    assert found == {"folder": True, "file": False, "link": True, "loop": False}
    with pytest.raises(IsADirectoryError) as refused:
        files.require_regular(tmp_path / "folder")
    assert refused.value.filename == str(tmp_path / "folder") and refused.value.errno == errno.EISDIR
    names = ["a.LAS", "b.las", "c.obj", "d.b.obj", "e.ply", "README", *["x.xyz"] * 1000]
    assert files.count_by_suffix(names) == "1,000 .xyz, 2 .las, 2 .obj, 1 .ply, 1 without suffix"
    assert files.count_by_suffix([]) == ""


def test_a_file_of_a_user_is_read_or_named(tmp_path):
    (tmp_path / "a").write_bytes(b"abcdef")
    assert files.read_content(tmp_path / "a") == b"abcdef" and files.read_content(str(tmp_path / "a"), 4) == b"abcd"
    with pytest.raises(UserError, match=rf"^{tmp_path}/b cannot be read: No such file or directory$"):
        files.read_content(tmp_path / "b")
