"""Files of each format that try to do more than be read, and damaged ones."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import paddle
import pytest

from paddlevit_dist.checkpoint.safetensors_files import write_safetensors
from paddlevit_dist.checkpoint.weights import read_state
from paddlevit_dist.errors import UserError

from .corpus import READ_ALL, in_another_process, mutations

FILES = Path(__file__).with_name("files")
MAGIC = [0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}]


class Calls:
    """Pickles as the call of a function."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def as_zip(content, **entries):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("archive/data.pkl", content)
        for name, data in entries.items():
            archive.writestr(f"archive/{name}", data)
    return stream.getvalue()


def as_legacy(content):
    return b"".join(pickle.dumps(part, 2) for part in MAGIC) + content + pickle.dumps([], 2)


def in_each_format(folder, content):
    """The pickle as a file of Paddle and as the two kinds of PyTorch."""
    for name, data in (
        ("file.pdparams", content),
        ("zip.pth", as_zip(content)),
        ("legacy.bin", as_legacy(content)),
    ):
        (folder / name).write_bytes(data)
        yield folder / name


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_calls_of_the_files_choice_are_refused_and_not_made(tmp_path, protocol):
    mark = tmp_path / "executed"
    for function, arguments in (
        (os.system, (f"touch {mark}",)),
        (eval, (f"open({str(mark)!r}, 'w')",)),
        (exec, (f"open({str(mark)!r}, 'w')",)),
        (open, (str(mark), "w")),
        (os.mkdir, (str(mark),)),
        (getattr, (os, "getpid")) if protocol > 5 else (print, ("hello",)),
        (bytearray, (10,)),
        (Path, (str(mark),)),
        (np.load, (str(mark),)),
    ):
        content = pickle.dumps({"weight": np.ones(2), "evil": Calls(function, *arguments)}, protocol)
        for path in in_each_format(tmp_path, content):
            with pytest.raises(UserError, match="is refused: it asks for .*nothing was executed"):
                read_state(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02(S'touch x'\nios\nsystem\n.",
        b"\x80\x02(cos\nsystem\nX\x01\x00\x00\x00xo.",
        b"\x80\x02cos\nsystem\n)\x81.",
        b"\x80\x02cos\nsystem\n)}\x92.",
        b"\x80\x02\x82\x01.",
        b"\x80\x02Pname\n.",
    ],
    ids=["INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "PERSID"],
)
def test_other_ways_to_make_objects_are_refused(tmp_path, content):
    for path in in_each_format(tmp_path, content):
        with pytest.raises(UserError, match="is refused|is damaged"):
            read_state(path)


def test_a_training_checkpoint_with_its_arguments_says_what_is_too_much(tmp_path):
    from argparse import Namespace

    content = pickle.dumps({"model": OrderedDict(a=np.ones(2)), "args": Namespace(lr=1)}, 2)
    (tmp_path / "run.pth").write_bytes(as_zip(content))
    with pytest.raises(UserError, match="it asks for 'argparse.Namespace'.*save it again as a state dict of tensors"):
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


def state_of(*values):
    entries = b"".join(b"X\x01\x00\x00\x00" + bytes([97 + index]) + value for index, value in enumerate(values))
    return b"\x80\x02}(" + entries + b"u."


def write_zip(folder, pickled, data=b"\0" * 16):
    path = folder / "file.pth"
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/data/0", data)
    path.write_bytes(stream.getvalue())
    return path


def test_the_hand_made_file_is_a_right_one(tmp_path):
    data = np.arange(4, dtype="<f4").tobytes()
    state = read_state(
        write_zip(tmp_path, state_of(tensor(shape=(2, 2), strides=(1, 2)), tensor(offset=3, shape=(1,))), data)
    )
    np.testing.assert_array_equal(state["a"], [[0, 2], [1, 3]])
    np.testing.assert_array_equal(state["b"], [3])


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
        (tensor(shape=(1,) * 40, strides=(1,) * 40), "no valid shape"),
        (tensor(storage(count=1 << 40)), "16 bytes where 1099511627776 numbers"),
        (tensor(storage(count=3), shape=(3,)), "16 bytes where 3 numbers"),
        (tensor(storage(key="1")), "archive/data/1"),
        (tensor(storage(key="../../etc/passwd")), "is damaged"),
        (tensor(storage(kind="ComplexFloatStorage")), "asks for 'torch.ComplexFloatStorage'"),
        (tensor(b"K\x01"), "in a place where none belongs"),
    ],
)
def test_tensors_beyond_their_storage_are_refused(tmp_path, value, reason):
    with pytest.raises(UserError, match=reason):
        read_state(write_zip(tmp_path, state_of(value)))


def test_a_compressed_archive_is_no_file_of_torch(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", state_of(tensor()))
        archive.writestr("archive/data/0", b"\0" * 100_000_000)
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


@pytest.mark.parametrize("name", ["zip.pth", "legacy.pth", "plain.safetensors", "arrays.npz"])
def test_single_flipped_bits_are_read_or_refused(tmp_path, name):
    if name == "arrays.npz":
        np.savez_compressed(tmp_path / name, a=np.arange(50), b=np.ones((2, 3)))
    whole = (tmp_path / name if name == "arrays.npz" else FILES / name).read_bytes()
    for bit in range(0, 8 * len(whole), 37):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << bit % 8
        (tmp_path / name).write_bytes(content)
        with contextlib.suppress(UserError):
            read_state(tmp_path / name)


def test_a_header_made_to_keep_the_reader_busy_is_refused_at_once(tmp_path):
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"1" * 9000 + b"x), }"
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    with zipfile.ZipFile(tmp_path / "busy.npz", "w") as archive:
        archive.writestr("a.npy", array)
    done = in_another_process(READ_ALL, tmp_path)  # with a limit of time
    assert (done.returncode, done.stdout.split()) == (0, ["0", "1"]), done.stderr


def test_a_corpus_of_damaged_files_of_each_format_reads_or_is_refused_and_never_crashes(tmp_path):
    state = {"weight": np.arange(400, dtype="float32").reshape(20, 20), "bias": np.ones(20, "float16")}
    originals = {name: (FILES / name).read_bytes() for name in ("zip.pth", "legacy.pth", "plain.safetensors")}
    write_safetensors(tmp_path / "a.safetensors", state)
    originals["a.safetensors"] = (tmp_path / "a.safetensors").read_bytes()
    for name, save in (("a.npz", np.savez), ("b.npz", np.savez_compressed)):
        save(tmp_path / name, **state)
        originals[name] = (tmp_path / name).read_bytes()
    paddle.save({key: paddle.to_tensor(value) for key, value in state.items()}, str(tmp_path / "a.pdparams"))
    originals["a.pdparams"] = (tmp_path / "a.pdparams").read_bytes()
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name, content in originals.items():
        for index, mutated in enumerate(mutations([content], 100)):
            (folder / f"{index:03d}_{name}").write_bytes(mutated)
    done = in_another_process(READ_ALL, folder)
    assert done.returncode == 0, done.stderr
    read, refused = map(int, done.stdout.split())
    assert read + refused == 100 * len(originals) and read > 30 and refused > 350
