"""Storage that is away for a while: what is asked again, for how long, and what is a fact."""

import errno
import os

import pytest

from paddlevit_dist import StorageOutage
from paddlevit_dist.core.runtime import outages
from paddlevit_dist.core.runtime.files import read_regular
from paddlevit_dist.core.runtime.outages import find_missing_folder, find_outage, read_through_outages


@pytest.fixture(autouse=True)
def time_passes(simulated_time, monkeypatch):
    monkeypatch.setattr(outages, "_ends", -outages.SECONDS)
    return simulated_time


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data" / "ball").mkdir(parents=True)
    for name in ("1.png", "2.png"):
        (tmp_path / "data" / "ball" / name).write_bytes(b"image")
    return tmp_path / "data" / "ball"


def fail(number, path="a/b"):
    raise OSError(number, os.strerror(number), path)


@pytest.mark.parametrize(
    "number", [errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.EHOSTDOWN, errno.ETIMEDOUT, errno.ENODEV]
)
def test_a_network_drive_that_comes_back_is_read_and_told_once(number, time_passes, capsys):
    answers = iter([number, number, None, number, None])
    read = lambda: "content" if (answer := next(answers)) is None else fail(answer)  # noqa: E731
    assert read_through_outages(read) == "content" and time_passes.waits == [0.05, 0.1]
    assert (
        capsys.readouterr().err == f"note: a/b cannot be reached: {os.strerror(number)}; asked again for up to 30 s\n"
    )
    assert read_through_outages(read) == "content" and "note: a/b" in capsys.readouterr().err  # another outage


def test_one_that_stays_away_ends_with_the_code_of_a_stopped_run_and_later_calls_at_once(time_passes, capsys):
    with pytest.raises(
        StorageOutage, match=r"^a/b cannot be reached: .*, asked again for 3\d s: .* -resume=auto"
    ) as caught:
        read_through_outages(lambda: fail(errno.EIO))
    assert caught.value.exit_code == 75 and 30 < sum(time_passes.waits) < 33 and max(time_passes.waits) == 2.0
    waits = len(time_passes.waits)
    for _ in range(2):  # such as the other images of a batch
        with pytest.raises(StorageOutage):
            read_through_outages(lambda: fail(errno.EIO))
    assert len(time_passes.waits) == waits and capsys.readouterr().err.count("note:") == 1


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOENT, errno.ENOTDIR, errno.ENOSPC])
def test_other_errors_are_raised_at_once(number, time_passes):
    with pytest.raises(OSError, match="a/b"):
        read_through_outages(lambda: fail(number))
    with pytest.raises(ZeroDivisionError):
        read_through_outages(lambda: 1 / 0, was_there=True)
    assert not time_passes.waits


def test_a_folder_that_was_there_is_waited_for_and_a_file_is_not(folder, time_passes):
    gone, file = folder.with_name("gone"), folder / "1.png"
    folder.rename(gone)
    with pytest.raises(FileNotFoundError):
        read_regular(file)  # a mistake in a path is told at once
    time_passes.meanwhile = lambda number: gone.rename(folder) if number == 3 else None
    assert read_through_outages(lambda: read_regular(file), was_there=True) == b"image"
    file.unlink()
    with pytest.raises(FileNotFoundError):
        read_through_outages(lambda: read_regular(file), was_there=True)
    assert len(time_passes.waits) == 3


def test_what_counts_as_away(folder, tmp_path):
    missing = FileNotFoundError(errno.ENOENT, "", str(folder / "3.png"))
    assert find_outage(missing, was_there=True) is None
    (folder / "3.png").touch()  # it is back already
    assert find_outage(missing, was_there=True) is missing and find_outage(missing) is None
    for name in ("1.png", "2.png", "3.png"):
        (folder / name).unlink()
    assert find_outage(missing, was_there=True) is missing  # an empty folder, as a mount point is
    assert find_missing_folder(folder / "3.png") == str(folder)
    assert find_outage(missing, was_there=True, absent={str(folder)}) is None  # it was missing before
    (folder / "link.png").symlink_to(tmp_path / "drive" / "1.png")
    linked = FileNotFoundError(errno.ENOENT, "", str(folder / "link.png"))
    assert find_missing_folder(linked.filename) == str(tmp_path / "drive")
    assert find_outage(linked, was_there=True) is linked


def test_an_error_that_another_one_hides_is_found():
    try:
        try:
            fail(errno.ESTALE)
        except OSError as error:
            raise ValueError("unreadable") from error
    except ValueError as hiding:
        assert find_outage(hiding).errno == errno.ESTALE
