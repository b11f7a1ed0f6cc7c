"""Files of weights are read by their content, whatever they are called."""

import gzip
import io
import json
import tarfile
import zipfile

import numpy as np
import paddle
import pytest
from support.processes import ROOT

from paddlevit_dist.checkpoint.array_files import write_safetensors
from paddlevit_dist.checkpoint.file_formats import find_format
from paddlevit_dist.checkpoint.weights import read_state, read_weights
from paddlevit_dist.runtime.errors import UserError

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


@pytest.mark.parametrize("low_byte", range(256))
def test_no_length_of_a_header_looks_like_a_pickle(tmp_path, low_byte):
    for high_byte in (0, 2, 4):
        (tmp_path / "a").write_bytes(bytes([low_byte, high_byte, 0, 0, 0, 0, 0, 0]) + b"{" + b" " * 600)
        assert find_format(tmp_path / "a") == "safetensors"


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
    places["lost"] = "a.safetensors"
    (tmp_path / "any.json").write_text(json.dumps({"weight_map": places}))
    with pytest.raises(UserError, match="names arrays that its files do not have: lost; download"):
        read_state(tmp_path / "any.json")
