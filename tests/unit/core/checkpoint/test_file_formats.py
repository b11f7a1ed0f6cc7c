"""Files of weights are read by their content, whatever they are called."""

import gzip
import io
import itertools
import json
import tarfile
import zipfile

import numpy as np
import paddle
import pytest
from support.processes import ROOT
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.array_files import write_safetensors
from paddlevit_dist.core.checkpoint.file_formats import choose_format, find_format, may_be_weights
from paddlevit_dist.core.checkpoint.weights import read_state, read_weights

TORCH = ROOT / "tests" / "support" / "files" / "weights_of_torch"  # made by make_files.py there


def write(folder, kind):
    """Write one array "w" in a format, and return its bytes and whether it is in Paddle's layout."""
    values = {"w": np.arange(6, dtype="float32").reshape(2, 3)}
    file = folder / "original"
    if kind == "safetensors":
        write_safetensors(file, values, {"format": "pt", "filler": "x" * 560})
    elif kind == "npz":
        with open(file, "wb") as stream:
            np.savez(stream, **values)
    else:
        paddle.save({name: paddle.to_tensor(value) for name, value in values.items()}, str(file))
    return file.read_bytes()


@pytest.mark.parametrize("kind, in_paddle_layout", [("safetensors", False), ("npz", True), ("paddle", True)])
@pytest.mark.parametrize(
    "name", ["a.pth.tar", "b.ckpt", "c.pt.zip", "d.bin", "e.pdparams", "f.safetensors", "g.npz", "h"]
)
def test_a_name_does_not_decide_how_a_file_is_read(tmp_path, kind, in_paddle_layout, name):
    content = write(tmp_path, kind)
    (tmp_path / name).write_bytes(content)
    weights = read_weights(tmp_path / name)
    np.testing.assert_array_equal(weights.state["w"], np.arange(6).reshape(2, 3))
    assert weights.in_paddle_layout == in_paddle_layout


@pytest.mark.parametrize("stored", ["zip.pth", "legacy.pth"])
@pytest.mark.parametrize("name", ["model_best.pth.tar", "last.pt.zip", "c.tar", "d.pdparams", "e.safetensors", "f.npz"])
def test_files_of_torch_may_have_any_name(tmp_path, stored, name):
    (tmp_path / name).write_bytes((TORCH / stored).read_bytes())
    assert list(read_state(tmp_path / name)) == list(read_state(TORCH / stored))
    assert not read_weights(tmp_path / name).in_paddle_layout


def test_no_length_of_a_header_looks_like_a_pickle(tmp_path):
    for low_byte, high_byte in itertools.product(range(256), (0, 2, 4)):
        (tmp_path / "a").write_bytes(bytes([low_byte, high_byte, 0, 0, 0, 0, 0, 0]) + b"{" + b" " * 600)
        assert find_format(tmp_path / "a") == "safetensors", (low_byte, high_byte)


def pack(kind, content):
    packed = io.BytesIO()
    if kind == "gzip":
        return gzip.compress(content)
    if kind == "zip":
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("inner.pth", content)
    else:
        with tarfile.open(fileobj=packed, mode="w") as archive:
            about = tarfile.TarInfo("inner.pth")
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
    return packed.getvalue()


@pytest.mark.parametrize(
    "kind, said",
    [("gzip", r"compressed \(gzip\)"), ("zip", "a zip archive of other"), ("tar", "a tar archive of other")],
)
def test_an_archive_of_weights_is_to_be_unpacked(tmp_path, kind, said):
    file = tmp_path / f"model.pdparams.{kind}"
    file.write_bytes(pack(kind, (TORCH / "zip.pth").read_bytes()))
    with pytest.raises(UserError, match=f"{kind} is {said}.*: unpack it"):
        read_state(file)


def test_a_pointer_of_git_lfs_is_told(tmp_path):
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(UserError, match="a pointer of Git LFS, .*run git lfs pull"):
        read_state(tmp_path)


def test_the_checkpoint_in_a_folder_of_timm_is_found(tmp_path):
    (tmp_path / "model_best.pth.tar").write_bytes((TORCH / "zip.pth").read_bytes())
    (tmp_path / "model_best.pth.md5").write_text("0123")
    (tmp_path / "args.yaml").write_text("model: resnet18\n")
    # The suffix .md5 hides no weights.
    assert list(read_state(tmp_path)) == list(read_state(TORCH / "zip.pth"))


def test_shards_of_one_prefix_each_keep_their_names(tmp_path):
    write_safetensors(tmp_path / "a.safetensors", {"model.x": np.zeros(1, "float32")})
    write_safetensors(tmp_path / "b.safetensors", {"model.y": np.zeros(1, "float32"), "head": np.ones(1, "float32")})
    places = {"model.x": "a.safetensors", "model.y": "b.safetensors", "head": "b.safetensors"}
    (tmp_path / "any.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    assert sorted(read_state(tmp_path / "any.json")) == ["head", "model.x", "model.y"]
    for name, said in (("lost", "lost"), ("gone", "gone and 1 more"), ("y", "gone and 2 more")):
        places[name] = "a.safetensors"
        (tmp_path / "any.json").write_text(json.dumps({"weight_map": places}))
        with pytest.raises(UserError, match=f"names arrays that its files do not have: {said}; download"):
            read_state(tmp_path / "any.json")


MAGIC = bytes.fromhex("6cfc9c46f9206aa85019")  # PyTorch's number in files before 1.6


@pytest.mark.parametrize(
    "content, found",
    [
        (b"PK\x03\x04broken", None),
        (b"\1\2\0\0\0\0\0\0{}", "safetensors"),
        (b"\1\2\0\0\0\1\0\0{}", None),
        (b"\1\2\0\0\0\0\0\0[]", None),
        (b"\x80\x02" + bytes(20) + MAGIC, "torch"),
        (b"\x80\x02" + bytes(21) + MAGIC, "paddle"),
        (b"\x80\x04anything", "paddle"),
        (b" \n\t{}", "index"),
        (b"[{}]", None),
        (b"", None),
    ],
)
def test_the_first_bytes_decide(tmp_path, content, found):
    (tmp_path / "a").write_bytes(content)
    assert find_format(tmp_path / "a") == found


@pytest.mark.parametrize(
    "names, found",
    [
        (["m/data.pkl", "m/data/0"], "torch"),
        (["m/data.pkl", "w.npy"], "torch"),
        (["m/n/data.pkl"], None),
        (["data.pkl"], None),
        (["v.npy", "w.npy"], "npz"),
        (["v.npy", "w.txt"], None),
    ],
)
def test_the_names_in_a_zip_decide(tmp_path, names, found):
    with zipfile.ZipFile(tmp_path / "a", "w") as archive:
        for name in names:
            archive.writestr(name, b"")
    assert find_format(tmp_path / "a") == found


@pytest.mark.parametrize(
    "content, name, said",
    [
        (b"\x1f\x8b", "a.bin", "compressed (gzip), expected weights: unpack it"),
        (b"\x89HDF", "a", "an HDF5 file, expected weights: convert it to safetensors"),
        (b"GGUF", "a", "a GGUF file, expected weights: convert it to safetensors"),
        (b"\x93NUMPY", "a.npy", "a single array (numpy.save), expected weights: save all arrays with numpy.savez"),
        (bytes(257) + b"ustar", "a.pth", "a tar archive of other files, expected weights: unpack it"),
        (b"PK\5\6" + bytes(18), "a.other", "a zip archive of other files, expected weights: unpack it"),
    ],
)
def test_other_formats_are_named(tmp_path, content, name, said):
    (tmp_path / name).write_bytes(content)
    assert refusal_of(choose_format, tmp_path / name) == f"{tmp_path / name} is {said}, and give the file of weights"


@pytest.mark.parametrize(
    "content, name, found",
    [
        *((b"?", f"a{suffix}", "torch") for suffix in (".pth", ".PT", ".bin", ".ckpt", ".tar", ".zip")),
        *((b"?", "a.safetensors", "safetensors"), (b"?", "a.npz", "npz"), (b"?", "a.json", "index")),
        *((b"?", "a.pdparams", "paddle"), (b"?", "a", "paddle"), (bytes(258) + b"ustar", "a", "paddle")),
        *((b"PK\5\6" + bytes(18), f"a{suffix}", kind) for suffix, kind in ((".PTH", "torch"), (".npz", "npz"))),
    ],
)
def test_a_damaged_file_is_read_by_its_suffix(tmp_path, content, name, found):
    (tmp_path / name).write_bytes(content)
    assert choose_format(tmp_path / name) == found


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    with pytest.raises(UserError, match=r"/none cannot be read: No such file or directory$"):
        choose_format(tmp_path / "none")


@pytest.mark.parametrize(
    "name, content, may_be",
    [
        ("a.pth", b"", True),
        ("a.SAFETENSORS", b"", True),
        ("a.pth.tar", b"\x80\x02", True),
        ("a.pth.md5", b"0123", False),
        ("a.pth.json", b"{}", False),
        ("a.txt", b"\x80\x02", False),
    ],
)
def test_files_of_weights_are_told_by_suffix_or_content(tmp_path, name, content, may_be):
    (tmp_path / name).write_bytes(content)
    assert may_be_weights(tmp_path / name) is may_be
    assert may_be_weights(tmp_path / f"none.{name}") is name.lower().endswith((".pth", ".safetensors"))


@pytest.mark.parametrize("name", ["a.PTH", "a.Pdparams", "a.SAFETENSORS", "a.npz", "a.pt", "a.bin", "a.CKPT"])
def test_a_suffix_of_weights_is_enough_in_any_case(tmp_path, name):
    assert may_be_weights(tmp_path / name) and not may_be_weights(tmp_path / f"{name}x")


@pytest.mark.parametrize(
    ("name", "is_named_so"), [("a.PTH.TAR", True), ("a.pt.zip", True), ("a.tar", False), ("a", False)]
)
def test_behind_another_suffix_the_content_decides(tmp_path, name, is_named_so):
    assert not may_be_weights(tmp_path / name)  # there is none
    (tmp_path / name).write_bytes(b"of another program")
    assert not may_be_weights(tmp_path / name)
    (tmp_path / name).write_bytes((TORCH / "zip.pth").read_bytes())
    assert may_be_weights(tmp_path / name) is is_named_so
