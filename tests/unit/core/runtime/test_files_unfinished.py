"""What killed processes leave unfinished, and who may remove it."""

import os
import time

import pytest

from paddlevit_dist.core.runtime import files
from paddlevit_dist.core.runtime.files import atomic_file, remove_abandoned, temporary_name, unfinished_folder


def leave(folder, name="a.bin", content=b"half", age=0.0):
    path = folder / temporary_name(name)
    path.write_bytes(content)
    os.utime(path, times=(time.time() - age,) * 2)
    return path


def test_files_of_killed_processes_are_removed_and_those_of_living_ones_stay(tmp_path, monkeypatch):
    (tmp_path / "volumes").mkdir()
    with atomic_file(tmp_path / "a.bin") as file:
        file.write(b"x" * 100_000)
        gone = [leave(tmp_path), leave(tmp_path / "volumes"), leave(tmp_path, content=b"", age=4000.0)]
        kept = [leave(tmp_path, content=b"")]  # its process may be about to lock it
        with monkeypatch.context() as patched:
            patched.setattr(files.socket, "gethostname", lambda: "other.host")
            kept += [leave(tmp_path), leave(tmp_path, age=3500.0)]
            gone.append(leave(tmp_path, age=3700.0))
        kept.append(tmp_path / "mine.tmp")
        kept[-1].touch()
        remove_abandoned(tmp_path)
    assert (tmp_path / "a.bin").stat().st_size == 100_000
    assert all(path.exists() for path in kept) and not any(path.exists() for path in gone)
    remove_abandoned(tmp_path / "missing")


def test_of_a_users_folder_only_what_belongs_to_a_name_is_removed(tmp_path):
    gone, kept = leave(tmp_path, "a[1].bin"), [leave(tmp_path, "b.bin"), leave(tmp_path, "ba[1].bin")]
    remove_abandoned(tmp_path, "a[1].bin")
    assert not gone.exists() and all(path.exists() for path in kept)


def test_an_unfinished_folder_goes_with_its_block_and_after_a_kill_with_the_next_one(tmp_path):
    target = tmp_path / "model"
    killed = tmp_path / temporary_name(".model")
    killed.mkdir()
    (killed / "weights").write_bytes(b"half")
    with unfinished_folder(target) as first:
        assert first.parent == tmp_path and not killed.exists()
        with unfinished_folder(target) as second:
            assert first.is_dir() and second != first
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("length", [1, 120, 220, 229])
def test_a_temporary_name_is_no_longer_than_file_systems_allow(tmp_path, length):
    path = leave(tmp_path, "ä" * (length // 2) + "a" * (length % 2))
    assert files.is_temporary(path.name) and len(os.fsencode(path.name)) <= 255
