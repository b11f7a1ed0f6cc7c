"""The memory-mapped index of paths and labels."""

from __future__ import annotations

import hashlib
import os
import pickle
import time

import numpy as np
import pytest

from paddlevit_dist.errors import UserError
from paddlevit_dist.loading.path_index import PathIndex, ensure_path_index, make_batch

KEY = hashlib.sha256(b"a source").digest()
PATHS = ["a.jpg", "", "folder with space/Größe.png", "图/b.webp", "c" * 300]
LABELS = np.array([3, 0, -1, 2**31 - 1, 7], np.int32)


def batches_of(paths, labels, batch_size=2):
    encoded = [os.fsencode(path) for path in paths]
    return [
        make_batch(encoded[i : i + batch_size], labels[i : i + batch_size]) for i in range(0, len(paths), batch_size)
    ]


def build(folder, paths=PATHS, labels=LABELS, key=KEY, class_names=None):
    return ensure_path_index(folder, "name", key, lambda: batches_of(paths, labels), class_names)


def entries(index):
    return [(index.path(i), index.label(i)) for i in range(len(index))]


def test_entries_come_back_as_they_were_put_in(tmp_path):
    index = build(tmp_path, class_names=["one", "zwei ß", "\udce9"])
    assert entries(index) == list(zip(PATHS, LABELS.tolist()))
    np.testing.assert_array_equal(index.labels, LABELS)
    assert index.class_names == ["one", "zwei ß", "\udce9"]


def test_index_without_class_names_or_entries_is_readable(tmp_path):
    index = build(tmp_path, [], LABELS[:0])
    assert len(index) == 0 and index.class_names is None


def test_second_use_builds_nothing(tmp_path):
    build(tmp_path)
    again = ensure_path_index(tmp_path, "name", KEY, lambda: pytest.fail("built a second time"))
    assert entries(again) == list(zip(PATHS, LABELS.tolist()))


def test_another_key_makes_another_file_and_leaves_the_old_one_to_its_readers(tmp_path):
    old = pickle.loads(pickle.dumps(build(tmp_path)))
    new = build(tmp_path, ["other.jpg"], LABELS[:1], key=hashlib.sha256(b"changed").digest())
    assert entries(new) == [("other.jpg", 3)]
    assert entries(old) == list(zip(PATHS, LABELS.tolist()))


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content[:100],
        lambda content: b"",
        lambda content: b"X" + content[1:],
        lambda content: content[:8] + b"\x09" + content[9:],
        lambda content: content.replace(KEY, bytes(32)),
    ],
    ids=["short", "header cut", "empty", "other magic", "other version", "other key"],
)
def test_unfit_file_is_rebuilt(tmp_path, damage):
    file = build(tmp_path).file
    with open(file, "rb") as stream:
        content = stream.read()
    with open(file, "wb") as stream:
        stream.write(damage(content))
    assert entries(build(tmp_path)) == list(zip(PATHS, LABELS.tolist()))
    with open(file, "rb") as stream:
        assert stream.read() == content


@pytest.mark.parametrize("path_bytes", range(1, 9))
def test_numbers_are_aligned_whatever_the_length_of_the_paths(tmp_path, path_bytes):
    index = build(tmp_path, ["x" * path_bytes], LABELS[:1])
    assert index.labels.flags.aligned and entries(index) == [("x" * path_bytes, 3)]


def test_damaged_file_is_named_by_a_reader(tmp_path):
    file = build(tmp_path).file
    os.truncate(file, os.path.getsize(file) - 1)
    with pytest.raises(UserError, match=rf"{file} is damaged: expected \d+ bytes, found \d+"):
        PathIndex(file)
    os.unlink(file)
    with pytest.raises(UserError, match=rf"{file} cannot be opened.*start the run again"):
        PathIndex(file)


def test_failed_build_leaves_nothing_behind(tmp_path):
    def broken():
        yield make_batch([b"a"], 0)
        raise UserError("line 2 is wrong")

    with pytest.raises(UserError, match="line 2 is wrong"):
        ensure_path_index(tmp_path, "name", KEY, broken)
    assert list(tmp_path.iterdir()) == []


def test_two_runs_may_build_the_same_index_at_once(tmp_path):
    def while_another_builds_too():
        first, *rest = batches_of(PATHS, LABELS)
        yield first
        assert entries(build(tmp_path)) == list(zip(PATHS, LABELS.tolist()))
        yield from rest

    index = ensure_path_index(tmp_path, "name", KEY, while_another_builds_too)
    assert entries(index) == list(zip(PATHS, LABELS.tolist()))
    assert [str(file) for file in tmp_path.iterdir()] == [index.file]


def test_folder_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(UserError, match=rf"cannot write {tmp_path}/absent/.*No such file"):
        build(tmp_path / "absent")


def test_position_outside_is_an_error(tmp_path):
    index = build(tmp_path)
    for position in (-1, len(PATHS)):
        with pytest.raises(IndexError, match=r"outside 0..4"):
            index.path(position)


def test_labels_cannot_be_changed(tmp_path):
    with pytest.raises(ValueError, match="read-only"):
        build(tmp_path).labels[0] = 1


def test_pickle_is_the_file_name(tmp_path):
    index = build(tmp_path)
    assert len(pickle.dumps(index)) < len(index.file) + 120


def test_hundred_thousand_entries_open_and_are_found_in_no_time(tmp_path):
    paths = [f"train/n{i % 1000:08d}/picture_{i}.JPEG" for i in range(100_000)]
    labels = np.arange(100_000) % 1000
    pickled = pickle.dumps(ensure_path_index(tmp_path, "name", KEY, lambda: batches_of(paths, labels, 4096)))
    wanted = np.random.default_rng(0).integers(0, 100_000, 2000).tolist()

    start = time.perf_counter()
    index = pickle.loads(pickled)
    assert index.path(99_999) == paths[99_999]
    opened = time.perf_counter()
    found = [(index.path(i), index.label(i)) for i in wanted]
    ended = time.perf_counter()

    assert found == [(paths[i], i % 1000) for i in wanted]
    assert opened - start < 0.05  # measured: 0.1 ms
    assert (ended - opened) / len(wanted) < 100e-6  # measured: 1.5 µs; the bound leaves room for a busy machine
