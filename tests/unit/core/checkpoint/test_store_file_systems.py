"""Errors of the file system are told as what they are, and lose nothing."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.refusals import refusal_of
from support.trainings.runs import STATE

from paddlevit_dist.core.checkpoint import store as checkpoint_store
from paddlevit_dist.core.checkpoint.store import HostTensor
from paddlevit_dist.core.runtime.files import atomic_file

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
    state = checkpoint_store.RunState({"epoch": epoch, "consumed": 0, "update": epoch}, {}, STATE)
    return checkpoint_store.save(folder, checkpoint_store.epoch_name(epoch), weights, state)


def make_message(act: Callable[[], object]) -> str:
    return refusal_of(act)


@pytest.mark.parametrize("name", ADVICE)
def test_each_error_comes_with_its_own_advice(tmp_path, monkeypatch, name):
    """Injected where data are flushed to the disk: most of them take a disk of their own to provoke."""
    save(tmp_path, 1)
    number = getattr(errno, name)

    def refuse(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    told = [make_message(lambda: save(tmp_path, 2))]
    if name != "EBUSY":  # not one that a user can do something about in general
        told.append(make_message(lambda: write(tmp_path / "other")))
    for message in told:
        assert os.strerror(number) in message and ADVICE[name] in message and str(tmp_path) in message
        assert ("free space" in message) == (name == "ENOSPC")
    assert "epoch_0002" in told[0] and "-resume=auto" in told[0]
    checkpoint_store.verify(tmp_path / "epoch_0001")
    assert os.listdir(tmp_path) == ["epoch_0001"]


def write(path: Path) -> None:
    with atomic_file(path) as file:
        file.write(b"content")


def test_a_file_a_loop_and_a_long_name_in_the_way_of_the_folder_are_named(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    for name, reason in (
        ("file", "File exists; there is a file where a folder is expected"),
        ("file/below", "Not a directory; there is a file where a folder is expected"),
        ("loop/below", "the links form a loop"),
        ("n" * 300, "File name too long; choose a folder with a shorter path"),
    ):
        assert reason in make_message(lambda folder=tmp_path / name: save(folder, 1))
