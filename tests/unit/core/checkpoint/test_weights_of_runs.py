"""Which file of a run has the weights that its scores are of."""

import json
from pathlib import Path

import paddle
import pytest

from paddlevit_dist import UserError, load_weights
from paddlevit_dist.core.checkpoint.records import find_directory, resolve_checkpoint
from paddlevit_dist.core.checkpoint.weight_files import evaluated_weights, find_weights_file


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run whose best epoch is not its last, as ``run`` in the working directory; nothing reads its empty files."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run" / "checkpoints"
    for epoch in (1, 2):
        (folder / f"epoch_{epoch:04d}").mkdir(parents=True)
        (folder / f"epoch_{epoch:04d}" / "model.pdparams").touch()
    (folder / "best").symlink_to("epoch_0001")
    (folder / "last").symlink_to("epoch_0002")
    return folder


@pytest.mark.parametrize("source, link", [("run", "best"), ("./run", "best"), ("run/checkpoints/last", "last")])
def test_scores_are_of_the_average_where_there_is_one(run, source, link):
    found = evaluated_weights(source)
    assert found == (f"run/checkpoints/{link}" if link == "best" else source)
    (run / link / "model_ema.pdparams").touch()
    assert evaluated_weights(source) == f"run/checkpoints/{link}/model_ema.pdparams"


@pytest.mark.parametrize("source", ["vit_tiny", "./vit_tiny", "run/checkpoints/best/model.pdparams", "https://a.org/b"])
def test_other_weights_keep_their_spelling(run, source):
    (run / "best" / "model_ema.pdparams").touch()
    assert evaluated_weights(source) == source


@pytest.mark.parametrize("place", ["run", "run/checkpoints/best", "run/checkpoints/best/model_ema.pdparams"])
def test_a_run_is_loaded_with_the_weights_that_were_scored(run, place):
    raw, averaged, model = (paddle.nn.Linear(2, 3) for _ in range(3))
    paddle.save(raw.state_dict(), f"{run}/best/model.pdparams")
    paddle.save(averaged.state_dict(), f"{run}/best/model_ema.pdparams")
    load_weights(model, place, strict=True)
    assert model.weight.numpy().tolist() == averaged.weight.numpy().tolist()
    load_weights(model, "run/checkpoints/best/model.pdparams", strict=True)
    assert model.weight.numpy().tolist() == raw.weight.numpy().tolist()


@pytest.mark.parametrize("name", ["epoch_90", "epoch_0090", "update_7", "epoch_x", "epoch_0001.replaced", "my_epoch_1"])
@pytest.mark.parametrize("file", ["model.pdparams", "model_ema.pdparams", "pytorch_model.bin", "net.safetensors"])
def test_weights_in_a_folder_are_found_whatever_it_is_called(tmp_path, monkeypatch, name, file):
    """Other programs call folders as this one does."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "theirs" / name
    folder.mkdir(parents=True)
    (folder / file).touch()
    (folder / "config.json").touch()
    assert find_weights_file(f"theirs/{name}") == Path("theirs", name, file)
    assert find_weights_file(f"theirs/{name}/{file}") == Path("theirs", name, file)
    assert (
        evaluated_weights(f"theirs/{name}") == f"theirs/{name}{'/model_ema.pdparams' * (file == 'model_ema.pdparams')}"
    )
    assert find_directory(f"theirs/{name}") == Path("theirs", name)
    is_checkpoint = name in ("epoch_90", "epoch_0090", "update_7")
    if is_checkpoint:  # the only one of its run
        assert find_weights_file("theirs") == Path("theirs", name, file)
    else:
        with pytest.raises(UserError, match="theirs contains no model.pdparams"):
            find_weights_file("theirs")


@pytest.mark.parametrize(
    ("folders", "links", "best", "meant"),
    [
        (("epoch_0002", "epoch_0010"), {}, None, "epoch_0010"),
        (("epoch_9", "epoch_90", "update_00000100"), {}, None, "epoch_90"),
        (("update_00000099", "update_00000100"), {}, None, "update_00000100"),
        (("epoch_0001", "epoch_0002.replaced"), {}, None, "epoch_0001"),
        (("epoch_0001", "epoch_0002", "epoch_0003"), {}, 2, "epoch_0002"),
        (("epoch_0001", "epoch_0003"), {}, 2, "epoch_0003"),  # the best was removed
        (("epoch_0001", "epoch_0002"), {"last": "epoch_0001"}, 2, "last"),
        (("epoch_0001", "epoch_0002"), {"last": "epoch_0002", "best": "epoch_0001"}, None, "best"),
        (("epoch_0001", "best"), {}, None, "best"),  # a copy in place of the link
        (("epoch_0001", "last"), {}, None, "epoch_0001"),
    ],
)
@pytest.mark.parametrize("place", ["run", "run/checkpoints"])
def test_a_run_means_its_best_checkpoint_else_its_last(tmp_path, monkeypatch, place, folders, links, best, meant):
    monkeypatch.chdir(tmp_path)
    checkpoints = tmp_path / "run" / "checkpoints"
    record = {"name": "top-1", "value": 1.0, "epoch": best, "line": ""}
    for name in folders:
        (checkpoints / name).mkdir(parents=True)
        (checkpoints / name / "state.json").touch()
        if best is not None:
            (checkpoints / name / "evaluation.json").write_text(json.dumps({"best": record}))
    for name, target in links.items():
        (checkpoints / name).symlink_to(target)
    assert resolve_checkpoint(place) == Path("run", "checkpoints", meant)


@pytest.mark.parametrize(
    "suffix", [".npy", ".onnx", ".h5", ".msgpack", ".PDIPARAMS", ".pdmodel", ".pdopt", ".tflite", ".gguf"]
)
def test_files_of_other_formats_are_refused_by_their_suffix(tmp_path, suffix):
    file = tmp_path / f"net{suffix}"
    file.write_bytes(b"of another program")
    with pytest.raises(UserError, match=f"net{suffix}: {suffix} files are not read, only "):
        find_weights_file(file)
    assert find_weights_file(file.rename(tmp_path / "net.own")) == tmp_path / "net.own"  # its content decides


FILES = ["model_ema.pdparams", "model.pdparams", "model.safetensors", "model.safetensors.index.json"]
FILES += ["pytorch_model.bin", "pytorch_model.bin.index.json"]


@pytest.mark.parametrize("first", range(len(FILES)))
def test_of_a_folder_with_several_files_the_first_of_the_usual_names_is_read(tmp_path, first):
    for name in [*FILES[first:], "other.safetensors"]:
        (tmp_path / name).touch()
    assert find_weights_file(tmp_path) == tmp_path / FILES[first]


def test_a_file_is_found_without_its_suffix_and_before_a_folder(tmp_path):
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "model.pdparams").touch()
    assert find_weights_file(tmp_path / "net") == tmp_path / "net" / "model.pdparams"
    (tmp_path / "net.pdparams").touch()
    assert find_weights_file(tmp_path / "net") == tmp_path / "net.pdparams"
