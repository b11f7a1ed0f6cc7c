"""The memory-mapped index of paths and labels."""

import hashlib
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from paddlevit_dist.data.path_index import PathIndex, ensure_path_index, make_batch
from paddlevit_dist.runtime.errors import UserError

KEY = hashlib.sha256(b"a source").digest()
PATHS = ["a.jpg", "", "folder with space/Größe.png", "图/b.webp", "c" * 300]
LABELS = np.array([3, 0, -1, 2**31 - 1, 7], np.int32)


def make_batches(paths, labels, batch_size=2):
    encoded = [os.fsencode(path) for path in paths]
    return [
        make_batch(encoded[i : i + batch_size], labels[i : i + batch_size]) for i in range(0, len(paths), batch_size)
    ]


def build(folder, paths=PATHS, labels=LABELS, key=KEY, class_names=None):
    return ensure_path_index(folder, "name", key, lambda: make_batches(paths, labels), class_names)


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
        lambda content: content.replace(b"pathidx", b"pathidy"),
        lambda content: content.replace(b"pathidx\0\3", b"pathidx\0\x09"),
        lambda content: content.replace(KEY, bytes(32)),
    ],
    ids=["short", "cut", "empty", "other path", "other magic", "other version", "other key"],
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
    content = Path(file).read_bytes()
    Path(file).write_bytes(content[8:])
    with pytest.raises(UserError, match=rf"{file} is damaged: expected \d+ bytes, found \d+"):
        PathIndex(file)
    Path(file).write_bytes(content[:-1])
    with pytest.raises(UserError, match=rf"{file} is damaged: it is not an index of version"):
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


def test_folder_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(UserError, match=rf"cannot write {tmp_path}/absent/.*No such file"):
        build(tmp_path / "absent")


def test_position_outside_is_an_error(tmp_path):
    index = build(tmp_path)
    for position in (-1, len(PATHS)):
        with pytest.raises(IndexError, match=r"outside 0..4"):
            index.path(position)
