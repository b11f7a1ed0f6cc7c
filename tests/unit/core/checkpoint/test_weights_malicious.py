"""Files that try to do more than be read, or take more than they hold, or are cut; ``fuzz`` damages them otherwise."""

import contextlib
import io
import os
import pickle
import struct
import time
import tracemalloc
import zipfile
from argparse import Namespace
from collections import OrderedDict
from pathlib import PurePosixPath

import numpy as np
import pytest
from support.processes import ROOT

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.unpickling import restricted_load
from paddlevit_dist.core.checkpoint.weights import read_state

from .test_unpickling import refused, written

FILES = ROOT / "tests" / "support" / "files" / "weights_of_torch"
MAGIC = [0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}]


class PickledCall:
    """Pickles as the call of a function."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def as_zip(content, data=b""):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("archive/data.pkl", content)
        archive.writestr("archive/data/0", data)
    return stream.getvalue()


def as_legacy(content):
    return b"".join(pickle.dumps(part, 2) for part in MAGIC) + content + pickle.dumps([], 2)


def test_entries_that_share_their_bytes_are_refused(tmp_path):
    content = bytearray(as_zip(make_state(tensor()), bytes(16)))
    entry = content.rindex(b"PK\x01\x02")  # of the last file in the directory, with its size at byte 24
    content[entry + 24 : entry + 28] = struct.pack("<I", 5000)
    (tmp_path / "file.pth").write_bytes(content)
    with pytest.raises(UserError, match="its entries are larger than the file"):
        read_state(tmp_path / "file.pth")


@pytest.mark.parametrize("place", [0, 2])
def test_tensors_in_the_head_of_a_legacy_file_are_refused(tmp_path, place):
    parts = [pickle.dumps(part, 2) for part in MAGIC]
    parts[place] = b"\x80\x02" + tensor() + b"."
    (tmp_path / "file.bin").write_bytes(b"".join(parts) + make_state() + pickle.dumps([], 2))
    with pytest.raises(UserError, match="file.bin .*"):
        read_state(tmp_path / "file.bin")


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("file", ["zip.pth", "legacy.bin"])
def test_calls_of_the_files_choice_are_refused_and_not_made(tmp_path, file, protocol):
    mark = tmp_path / "executed"
    for call in (
        PickledCall(os.system, f"touch {mark}"),
        PickledCall(eval, f"open({str(mark)!r}, 'w')"),
        PickledCall(bytearray, 10),
    ):
        content = pickle.dumps({"weight": np.ones(2), "evil": call}, protocol)
        (tmp_path / file).write_bytes(as_zip(content) if file == "zip.pth" else as_legacy(content))
        with pytest.raises(UserError, match="is rejected: it names .*no code was executed"):
            read_state(tmp_path / file)
    assert not mark.exists()


def test_the_weights_of_a_training_checkpoint_are_read_without_its_parsed_arguments(tmp_path):
    arguments = Namespace(lr=1, nested=Namespace(names=["a"]))
    content = pickle.dumps({"args": arguments, "again": [arguments], "model": OrderedDict(a=np.ones(2))}, 2)
    (tmp_path / "run.pth").write_bytes(as_zip(content))
    assert list(read_state(tmp_path / "run.pth")) == ["a"]


def test_a_training_checkpoint_with_other_objects_says_what_is_too_much(tmp_path):
    content = pickle.dumps({"model": OrderedDict(a=np.ones(2)), "args": Namespace(output=PurePosixPath("out"))}, 2)
    (tmp_path / "run.pth").write_bytes(as_zip(content))
    with pytest.raises(UserError, match="it names 'pathlib.*PurePosixPath'.*save it again as a state dict of tensors"):
        read_state(tmp_path / "run.pth")


# Tensors of PyTorch that are not what they say


def storage(kind="FloatStorage", key="0", count=4):
    """Instructions that push the storage ``key``."""
    text = b"".join(b"X" + struct.pack("<I", len(word)) + word.encode() for word in ("storage",))
    text += b"ctorch\n" + kind.encode() + b"\n"
    text += b"".join(b"X" + struct.pack("<I", len(word)) + word.encode() for word in (key, "cpu"))
    return b"(" + text + b"\x8a\x08" + struct.pack("<q", count) + b"tQ"


def tensor(pushed=None, offset=0, shape=(4,), strides=(1,)):
    def numbers(values):
        return b"(" + b"".join(b"\x8a\x08" + struct.pack("<q", value) for value in values) + b"t"

    place = b"\x8a\x08" + struct.pack("<q", offset)
    arguments = (pushed or storage()) + place + numbers(shape) + numbers(strides) + b"\x89N"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + arguments + b"tR"


def make_state(*values):
    entries = b"".join(b"X\x01\x00\x00\x00" + bytes([97 + index]) + value for index, value in enumerate(values))
    return b"\x80\x02}(" + entries + b"u."


def write_zip(folder, pickled, data=b"\0" * 16):
    (folder / "file.pth").write_bytes(as_zip(pickled, data))
    return folder / "file.pth"


def test_the_hand_made_file_is_a_right_one(tmp_path):
    data = np.arange(4, dtype="<f4").tobytes()
    state = read_state(
        write_zip(tmp_path, make_state(tensor(shape=(2, 2), strides=(1, 2)), tensor(offset=3, shape=(1,))), data)
    )
    np.testing.assert_array_equal(state["a"], [[0, 2], [1, 3]])
    np.testing.assert_array_equal(state["b"], [3])
    most = (tensor(shape=(1,) * 32, strides=(1,) * 32), tensor(shape=(1,), strides=((1 << 48) - 1,)))
    state = read_state(write_zip(tmp_path, make_state(*most), data))
    assert (state["a"].shape, state["b"].shape) == ((1,) * 32, (1,)) and not state["b"].flags.writeable


@pytest.mark.parametrize(
    "value, reason",
    [
        (tensor(shape=(5,)), "larger than its storage"),
        (tensor(offset=1), "larger than its storage"),
        (tensor(shape=(1 << 40,), strides=(0,)), "larger than its storage"),
        (tensor(shape=(2, 2), strides=(1 << 40, 1)), "larger than its storage"),
        (tensor(shape=(-4,)), "no valid shape"),
        (tensor(strides=(-1,)), "no valid shape"),
        (tensor(shape=(4, 1)), "no valid shape"),
        (tensor(shape=(1,) * 33, strides=(1,) * 33), "no valid shape"),
        (tensor(shape=(1,), strides=(1 << 48,)), "no valid shape"),
        (tensor(storage(count=1 << 40)), "16 bytes where 1099511627776 numbers"),
        (tensor(storage(count=3), shape=(3,)), "16 bytes where 3 numbers"),
        (tensor(storage(key="1")), "archive/data/1"),
        (tensor(storage(key="../../etc/passwd")), "is damaged"),
        (tensor(storage(kind="ComplexFloatStorage")), "it names 'torch.ComplexFloatStorage'"),
        (tensor(b"K\x01"), "in a place where none belongs"),
    ],
)
def test_tensors_beyond_their_storage_are_refused(tmp_path, value, reason):
    with pytest.raises(UserError, match=reason):
        read_state(write_zip(tmp_path, make_state(value)))


@pytest.mark.parametrize("names", [[], ["data.pkl"], ["a/b/data.pkl"], ["a/data.pkl", "b/data.pkl"], ["a/xdata.pkl"]])
def test_an_archive_without_one_pickle_in_its_folder_is_no_file_of_torch(tmp_path, names):
    with zipfile.ZipFile(tmp_path / "file.pth", "w") as archive:
        for name in ["a/readme", *names]:
            archive.writestr(name, make_state())
    with pytest.raises(UserError, match="damaged or is not a torch.save file: the archive has no data.pkl; copy or "):
        read_state(tmp_path / "file.pth")


def test_a_compressed_archive_is_no_file_of_torch(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", make_state(tensor()), zipfile.ZIP_STORED)
        archive.writestr("archive/data/0", b"\0" * 10_000_000)
    with pytest.raises(UserError, match="entries are compressed, which torch does not do"):
        read_state(tmp_path / "bomb.pth")


@pytest.mark.parametrize("name", ["zip.pth", "legacy.pth", "plain.safetensors"])
def test_every_truncation_is_refused(tmp_path, name):
    whole = (FILES / name).read_bytes()
    path = tmp_path / name
    for length in [*range(0, len(whole), 13), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match="is damaged"):
            read_state(path)


def test_a_header_made_to_keep_the_reader_busy_is_refused_at_once(tmp_path):
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"1" * 9000 + b"x), }"
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    with zipfile.ZipFile(tmp_path / "busy.npz", "w") as archive:
        archive.writestr("a.npy", array)
    began = time.process_time()
    with pytest.raises(UserError):
        read_state(tmp_path / "busy.npz")
    assert time.process_time() - began < 60


# Files of Paddle made to exhaust memory or stack


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
    content = make(100_000, 300)
    assert refused(tmp_path, content, "larger than the file") < 20 * len(content)


LENGTHS = {
    "memo index": b"Nr\xff\xff\xff\xff.",  # that a growing table would need 32 GB for
    "bytes of 1 TB": b"\x8e" + struct.pack("<Q", 1 << 40) + b"short.",
    "text of 1 TB": b"\x8d" + struct.pack("<Q", 1 << 40) + b"short.",
    "bytes of 4 GB": b"B\xff\xff\xff\xffshort.",
    "text of 4 GB": b"X\xff\xff\xff\xffshort.",
    "frame of 1 TB": b"\x95" + struct.pack("<Q", 1 << 40) + b"N.",
}


@pytest.mark.parametrize("content", LENGTHS.values(), ids=LENGTHS)
def test_a_length_in_the_file_is_not_believed(tmp_path, content):
    path = written(tmp_path, b"\x80\x04" + content)
    tracemalloc.start()
    try:
        with contextlib.suppress(UserError):
            assert restricted_load(path) is None
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def described(change):
    """A tensor whose storage's description has something else."""
    return tensor(storage().replace(*change))


FOR_A_VIEW = (b"tQ", b"NtQ"), (b"tQ", b"K\x01tQ"), (b"tQ", b"NNtQ")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (described(FOR_A_VIEW[0]), None),  # old files had a view here
        (described(FOR_A_VIEW[1]), "the description of a storage in it is not torch's"),
        (described(FOR_A_VIEW[2]), "the description of a storage in it is not torch's"),
        (described((b"storage", b"Storage")), "the description of a storage in it is not torch's"),
    ],
)
def test_descriptions_of_storages_are_torchs(tmp_path, value, reason):
    file = write_zip(tmp_path, make_state(value))
    if reason is None:
        assert read_state(file)["a"].shape == (4,)
        return
    with pytest.raises(UserError, match=reason):
        read_state(file)


@pytest.mark.parametrize("other", [storage("IntStorage"), storage(count=3)])
def test_a_storage_has_one_type_and_length(tmp_path, other):
    assert len(read_state(write_zip(tmp_path, make_state(tensor(), tensor(storage()))))) == 2
    with pytest.raises(UserError, match="a storage in it is described in two ways"):
        read_state(write_zip(tmp_path, make_state(tensor(), tensor(other, shape=(3,)))))


@pytest.mark.parametrize("order", [b"little", b"big"])
def test_numbers_of_other_processors_are_refused(tmp_path, order):
    content = make_state(tensor())
    with zipfile.ZipFile(tmp_path / "file.pth", "w") as archive:
        for name, part in (("data.pkl", content), ("byteorder", order), ("data/0", b"\0" * 16)):
            archive.writestr(f"archive/{name}", part)
    system = {"protocol_version": 1001, "little_endian": order == b"little", "type_sizes": {}}
    head = b"".join(pickle.dumps(part, 2) for part in (*MAGIC[:2], system))
    keys = pickle.dumps(["0"], 2) + struct.pack("<q", 4) + b"\0" * 16
    (tmp_path / "legacy.bin").write_bytes(head + content + keys)
    for name in ("file.pth", "legacy.bin"):
        if order == b"little":
            assert read_state(tmp_path / name)["a"].tolist() == [0] * 4
            continue
        with pytest.raises(UserError, match="its numbers are in big-endian order"):
            read_state(tmp_path / name)


def test_a_tensor_before_the_weights_is_refused(tmp_path):
    (tmp_path / "legacy.bin").write_bytes(make_state(tensor()))
    with pytest.raises(UserError):
        read_state(tmp_path / "legacy.bin")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda saved: saved, None),
        (lambda saved: saved + b"x", "does not have the bytes that its shape and type need"),
        (lambda saved: saved[:-1], "does not have the bytes that its shape and type need"),
        (lambda saved: saved[:6] + b"\x03\x00" + saved[8:], "it holds an array of a structured type"),
        (lambda saved: saved.replace(b"'<f4'", b"'<c8'"), "it holds an array of type 'complex64'"),
    ],
)
def test_arrays_of_numpy_have_the_bytes_that_they_announce(tmp_path, change, reason):
    stream = io.BytesIO()
    np.save(stream, np.arange(6, dtype="<f4").reshape(2, 3))
    with zipfile.ZipFile(tmp_path / "file.npz", "w") as archive:
        archive.writestr("a.npy", change(stream.getvalue()))
    if reason is None:
        assert read_state(tmp_path / "file.npz")["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
        return
    with pytest.raises(UserError, match=reason):
        read_state(tmp_path / "file.npz")
