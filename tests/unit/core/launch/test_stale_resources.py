"""What a killed run leaves outside its output folder, and who may remove it."""

import errno
import fcntl
import multiprocessing
import os

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.launch import stale_resources

OURS, THEIRS = "0123456789abcdef", "fedcba9876543210"


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    monkeypatch.setenv("PADDLEVIT_DIST_RUN", OURS)
    monkeypatch.setattr(stale_resources, "SHARED_MEMORY", tmp_path / "memory")
    monkeypatch.setattr(stale_resources.tempfile, "tempdir", str(tmp_path / "temporary"))
    for name in ("memory", "temporary"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_a_token_is_new_each_time_and_inherited():
    first, second = stale_resources.new_token(), stale_resources.new_token()
    assert first != second == stale_resources.token() == os.environ["PADDLEVIT_DIST_RUN"] and len(second) == 16


@pytest.mark.parametrize("value", ["", "0123", "0123456789ABCDEF", f"{OURS}0", "../../../etc/pass"])
def test_what_is_no_token_counts_as_none(monkeypatch, value):
    monkeypatch.setenv("PADDLEVIT_DIST_RUN", value)
    assert stale_resources.token() == "0" * 16


def test_only_the_files_of_that_run_are_removed(places):
    memory, temporary = places / "memory", places / "temporary"
    kept = [
        memory / f"paddlevit_dist_a_{OURS}_x",
        memory / f"sem.paddlevit_dist_{OURS}-x",
        *(memory / f"paddlevit_dist_a_{'0' * 16}_x", memory / f"sem.paddlevit_dist_{'0' * 16}-x"),
        temporary / f"other_{THEIRS}_x",
    ]
    gone = [
        *(memory / f"paddlevit_dist_a_{THEIRS}_x", memory / f"sem.paddlevit_dist_{THEIRS}-x"),
        temporary / f"paddlevit_dist_b_{THEIRS}_y",
    ]
    for path in [*kept, *gone]:
        path.touch()
    folder, link = temporary / f"paddlevit_dist_c_{THEIRS}_z", temporary / f"paddlevit_dist_d_{THEIRS}_z"
    (folder / "inner").mkdir(parents=True)
    link.symlink_to(places)
    assert sorted(stale_resources.remove(THEIRS, str(temporary))) == sorted(map(str, [*gone, folder, link]))
    assert all(path.exists() for path in kept) and not folder.exists() and (places / "memory").exists()
    for other in (OURS, "0" * 16, "*", THEIRS[:-1]):
        assert stale_resources.remove(other, str(temporary)) == []
    assert all(path.exists() for path in kept)


def test_a_working_folder_removes_those_of_the_killed_and_leaves_those_of_the_living(places):
    temporary = places / "temporary"
    living = "a" * 16
    for run in (THEIRS, "b" * 16, living):
        (temporary / f"paddlevit_dist_mark_{run}_").touch()
        (temporary / f"paddlevit_dist_work_{run}_x").mkdir()
    with open(temporary / f"paddlevit_dist_mark_{living}_", "rb") as mark:
        fcntl.flock(mark, fcntl.LOCK_EX)
        with stale_resources.working_folder("walk") as folder:
            assert folder.name.startswith(f"paddlevit_dist_walk_{stale_resources.token()}_") and folder.is_dir()
            names = {path.name for path in temporary.iterdir()}
            assert names == {
                *(f"paddlevit_dist_mark_{living}_", f"paddlevit_dist_work_{living}_x", folder.name),
                f"paddlevit_dist_mark_{stale_resources.token()}_",
            }
            own = temporary / f"paddlevit_dist_mark_{stale_resources.token()}_"
            with open(own, "rb") as other, pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            own.unlink()  # as a cleaner of old files does
    assert stale_resources.token() == OURS
    assert {path.name for path in temporary.iterdir()} == {
        *(f"paddlevit_dist_mark_{living}_", f"paddlevit_dist_work_{living}_x"),
    }


def test_a_programs_folder_is_removed_once_it_was_killed_and_that_of_a_run_with_the_run(places, monkeypatch):
    temporary = places / "temporary"
    with stale_resources.temporary_folder("work") as folder:
        assert folder.name.startswith(f"paddlevit_dist_work_{OURS}_")
        assert os.listdir(temporary) == [folder.name]  # the lock of the output folder says that it is in use
    monkeypatch.delenv("PADDLEVIT_DIST_RUN")
    with stale_resources.temporary_folder("work") as folder:
        (folder / "large").touch()
        stale_resources.remove_killed()
        assert (folder / "large").exists()
        mark = next(path for path in temporary.iterdir() if path != folder)
        own = mark.name.split("_")[-2]
        of_killed = [temporary / path.name.replace(own, THEIRS) for path in (mark, folder)]
        of_killed[0].touch()
        of_killed[1].mkdir()
        with stale_resources.temporary_folder("other"):
            assert not any(path.exists() for path in of_killed) and folder.exists()
    assert not any(temporary.iterdir())


def test_semaphores_have_the_runs_name_inside_the_block_only():
    config = multiprocessing.current_process()._config
    before = config["semprefix"]
    with pytest.raises(ZeroDivisionError), stale_resources.named_semaphores():
        assert config["semprefix"] == f"/paddlevit_dist_{OURS}"
        raise ZeroDivisionError
    assert config["semprefix"] == before


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EPERM, None])
def test_full_shared_memory_is_told_before_it_fails_halfway(monkeypatch, error):
    created = []

    def create():
        created.append(len(created))
        if error is not None and len(created) == 3:
            raise OSError(error, os.strerror(error))

    monkeypatch.setattr(multiprocessing, "Lock", create)
    if error is None:
        stale_resources.require_semaphores(4, "9 loaders", "use fewer")
        assert len(created) == 4
        return
    with pytest.raises(UserError if error == errno.ENOSPC else PermissionError) as refusal:
        stale_resources.require_semaphores(4, "9 loaders", "use fewer")
    if error == errno.ENOSPC:
        assert str(refusal.value).startswith("/dev/shm is full: it has no room for 9 loaders; use fewer, remove files")
