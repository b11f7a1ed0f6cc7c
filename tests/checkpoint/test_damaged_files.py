"""Files that are damaged, or crafted to exhaust the reader's memory or stack."""

from __future__ import annotations

import contextlib
import pickle
import struct
import tracemalloc

import numpy as np
import paddle
import pytest

from paddlevit_dist.checkpoint.unpickling import restricted_load
from paddlevit_dist.errors import UserError

from .corpus import READ_ALL, in_another_process, mutations


def written(folder, content, name="file.pdparams"):
    path = folder / name
    path.write_bytes(content)
    return path


def repeated_encoding(length, times):
    """One stored string turned into bytes again and again."""
    text = b"X" + struct.pack("<I", length) + b"a" * length + b"q\x01"
    call = b"c_codecs\nencode\nh\x01X\x06\x00\x00\x00latin1\x86R"
    return b"\x80\x02](" + text + call * times + b"e."


def repeated_array(length, times):
    """One stored string of bytes turned into arrays of the other byte order, which copies it."""
    data = b"B" + struct.pack("<I", length * 4) + b"a" * (length * 4) + b"q\x01"
    order = b"(K\x03X\x01\x00\x00\x00>NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    dtype = b"cnumpy\ndtype\nX\x02\x00\x00\x00f4\x89\x88\x87R" + order
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"
    array = empty + b"(K\x01J" + struct.pack("<i", length) + b"\x85" + dtype + b"\x89h\x01tb"
    return b"\x80\x03](" + data + array * times + b"e."


@pytest.mark.parametrize("make", [repeated_encoding, repeated_array])
def test_one_string_cannot_be_turned_into_many_arrays(tmp_path, make):
    assert len(restricted_load(written(tmp_path, make(100_000, 1)))) == 2
    path = written(tmp_path, make(100_000, 5000))
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match="larger than the file"):
            restricted_load(path)
        assert tracemalloc.get_traced_memory()[1] < 20 * path.stat().st_size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04Nr\xff\xff\xff\xff.",  # a memo index that a growing table would need 32 GB for
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"short.",
        b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b"short.",
        b"\x80\x04B\xff\xff\xff\xffshort.",
        b"\x80\x04X\xff\xff\xff\xffshort.",
        b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"N.",
    ],
    ids=["memo index", "bytes of 1 TB", "text of 1 TB", "bytes of 4 GB", "text of 4 GB", "frame of 1 TB"],
)
def test_a_length_in_the_file_is_not_believed(tmp_path, content):
    path = written(tmp_path, content)
    tracemalloc.start()
    try:
        with contextlib.suppress(UserError):
            assert restricted_load(path) is None
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


READ_ONE = """
import sys

from paddlevit_dist.checkpoint.unpickling import restricted_load
try:
    restricted_load(sys.argv[1])
except Exception as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04}" + b")" + b"\x85" * 300_000 + b"Ns.",
        b"\x80\x02}X\x15\x00\x00\x00UnpackBigParamInfor@@}X\x01\x00\x00\x00a}X\x06\x00\x00\x00slices]"
        + b")"
        + b"\x85" * 300_000
        + b"asss.",
    ],
    ids=["as a key", "as a slice"],
)
def test_deeply_nested_tuples_do_not_end_the_interpreter(tmp_path, content):
    path = written(tmp_path, content)
    done = in_another_process(READ_ONE, path)
    assert (done.returncode, done.stdout.strip()) == (0, "UserError")


# Damage


@pytest.mark.parametrize(
    "content", [b"", b"\x80", b"\x80\x04", b"PK\x03\x04 a zip", b"just text", b"\x80\x05N.", b"\x80\x01N."]
)
def test_what_is_no_file_of_paddle_save_is_said_to_be_none(tmp_path, content):
    with pytest.raises(UserError, match="file.pdparams is damaged or is not a paddle.save file"):
        restricted_load(written(tmp_path, content))


def test_every_truncation_of_a_state_is_refused(tmp_path):
    whole = pickle.dumps({"w": np.arange(30.0), "b": np.float32(1), "n": [1, "a"]}, 4)
    for length in range(len(whole)):
        with pytest.raises(UserError, match="damaged"):
            restricted_load(written(tmp_path, whole[:length]))


def test_a_file_that_cannot_be_opened_is_an_error_of_the_user(tmp_path):
    with pytest.raises(UserError, match="cannot be read: No such file"):
        restricted_load(tmp_path / "absent.pdparams")
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        restricted_load(tmp_path)


def test_a_corpus_of_damaged_files_reads_or_is_refused_and_never_crashes(tmp_path):
    originals = []
    paddle.seed(1)
    state = {"w": paddle.randn([7, 300]), "empty": paddle.zeros([0, 4]), "count": paddle.to_tensor([1, -2])}
    run = {"model": {"w": paddle.randn([6, 3]), "b": paddle.zeros([3])}, "epoch": 3, "list": [1.5, "a", None]}
    for protocol in (2, 3, 4):
        for saved in (state, run):
            paddle.save(saved, str(tmp_path / "saved"), protocol=protocol)
            originals.append((tmp_path / "saved").read_bytes())
    folder = tmp_path / "corpus"
    folder.mkdir()
    for index, content in enumerate(mutations(originals, 600)):
        written(folder, content, f"{index:04d}.pdparams")
    done = in_another_process(READ_ALL, folder)
    assert done.returncode == 0, done.stderr
    read, refused = map(int, done.stdout.split())
    assert read + refused == 600 and read > 40 and refused > 200
