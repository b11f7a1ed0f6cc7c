"""The memory-mapped index of paths and labels."""

import hashlib
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.data.path_index import PathIndex, ensure_path_index, make_batch

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
    np.testing.assert_array_equal(index.labels, LABELS, strict=True)
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
        lambda content: content.replace(b"pathidx\0\4", b"pathidx\0\x09"),
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


def test_the_file_has_the_parts_in_their_order(tmp_path):
    asked = []
    index = build(tmp_path, ["ab", "c"], np.array([7, -2], np.int32), class_names=lambda: asked.append(1) or ["x"])
    table = b"pathidx\0" + b"".join(number.to_bytes(8, "little") for number in (4, 2, 3, 5)) + KEY
    numbers = np.array([0, 2, 3], "<i8").tobytes() + np.array([7, -2], "<i4").tobytes()
    content = b"abc" + bytes(5) + numbers + b'["x"]' + table
    file = tmp_path / f"name-{KEY.hex()[:16]}.index"
    assert index.file == str(file) and file.read_bytes()[:-16] == content and asked == [1]
    assert (len(index), index.key, index.class_names) == (2, KEY, ["x"])
    paths, offsets = index.buffers()
    assert (bytes(paths), offsets.tolist()) == (b"abc", [0, 2, 3])
    index._maps = None
    assert [index.path(1), index.label(1), index.label(0)] == ["c", -2, 7] and not index.labels.flags.writeable


def test_a_batch_has_the_lengths_and_one_label_or_one_for_each():
    batch = make_batch([b"ab", b"", b"c"], 4)
    assert batch.blob == b"abc" and batch.lengths.tolist() == [2, 0, 1] and batch.labels.tolist() == [4, 4, 4]
    assert (batch.lengths.dtype, batch.labels.dtype) == (np.int64, np.int32)
    assert make_batch([b"ab", b"c"], np.array([4, 5])).labels.tolist() == [4, 5]


def test_a_reader_with_a_key_reads_the_whole_file(tmp_path):
    file = Path(build(tmp_path).file)
    content = file.read_bytes()
    assert PathIndex(file, KEY).path(0) == "a.jpg"
    with pytest.raises(UserError, match=r" is damaged: it belongs to another source; delete it and start the run ag"):
        PathIndex(file, bytes(32))
    file.write_bytes(b"X" + content[1:])
    assert PathIndex(file).path(0) == "X.jpg"
    with pytest.raises(UserError, match=rf"^index {file} is damaged: {file} does not match its checksum; delete it"):
        PathIndex(file, KEY)
    least = 8 + 4 * 8 + 32 + 16  # the table and the trailer
    for size, reason in ((least - 1, "it is truncated"), (least, "it is not an index of version 4")):
        file.write_bytes(bytes(size))
        with pytest.raises(UserError, match=f" is damaged: {reason};"):
            PathIndex(file)
    other = content.replace(b"pathidx\0\4", b"pathidx\0\5")
    file.write_bytes(other)
    with pytest.raises(UserError, match=" is damaged: it is not an index of version 4;"):
        PathIndex(file)
