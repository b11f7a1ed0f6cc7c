"""Fine-tuning with two processes, for other classes and another image size; from weights in every format at night."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import paddle
import pytest
from support.networks.other_names import in_torch_layout, of_googles_vit, replaced, with_paddlevit_names
from support.processes import ROOT, run_command, run_main
from support.trainings.runs import PLAIN, last_line, well, write_images

from paddlevit_dist import create_model, load_weights
from paddlevit_dist.core.checkpoint.array_files import write_safetensors

FILES = ROOT / "tests" / "support" / "files" / "weights_of_torch"  # vit.pth and vit_legacy.pth were written by PyTorch
SMALL = {"patch_size": 8, "embed_dim": 48, "depth": 1, "num_heads": 4, "mlp_ratio": 1.0}
KEYS = [word for name, value in SMALL.items() for word in (f"MODEL.{name.upper()}", str(value))]
FORMATS = {
    "PyTorch, zip": "vit.pth",
    "PyTorch, legacy": "vit_legacy.pth",
    "Paddle": "vit",  # without its extension
    "Paddle, PaddleViT's names": "paddlevit.pdparams",
    "safetensors": "vit.safetensors",
    "npz of Google": "google.npz",
    "folder of Hugging Face": "huggingface",
}


def with_huggingface_names(model):
    state = {}
    for name, value in in_torch_layout(model).items():
        if "attn.qkv" in name:
            for part, piece in zip(("query", "key", "value"), np.split(value, 3)):
                state[name.replace("attn.qkv", f"attention.attention.{part}")] = piece
        else:
            state[name] = value
    state = replaced(
        state,
        (r"^cls_token", "embeddings.cls_token"),
        (r"^pos_embed", "embeddings.position_embeddings"),
        (r"^patch_embed\.proj", "embeddings.patch_embeddings.projection"),
        (r"attn\.proj", "attention.output.dense"),
        (r"norm1", "layernorm_before"),
        (r"norm2", "layernorm_after"),
        (r"mlp\.fc1", "intermediate.dense"),
        (r"mlp\.fc2", "output.dense"),
        (r"^norm\.", "layernorm."),
        (r"^blocks\.", "encoder.layer."),
    )
    return {name.replace("head", "classifier") if "head" in name else f"vit.{name}": v for name, v in state.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same weights in every format, and images of two classes."""
    folder = tmp_path_factory.mktemp("fine-tuning")
    model = create_model("vit", num_classes=5, image_size=32, **SMALL)
    assert load_weights(model, FILES / "vit.pth").loaded_fraction == 1.0
    for name in ("vit.pth", "vit_legacy.pth"):
        (folder / name).symlink_to(FILES / name)
    paddle.save(model.state_dict(), str(folder / "vit.pdparams"))
    theirs = with_paddlevit_names({name: value.numpy() for name, value in model.state_dict().items()})
    paddle.save(theirs, str(folder / "paddlevit.pdparams"))
    write_safetensors(folder / "vit.safetensors", in_torch_layout(model))
    np.savez(folder / "google.npz", **of_googles_vit(model))
    (folder / "huggingface").mkdir()
    write_safetensors(folder / "huggingface" / "model.safetensors", with_huggingface_names(model))
    (folder / "huggingface" / "config.json").write_text(json.dumps({"model_type": "vit"}))
    write_images(folder / "pictures", train=8, val=4)
    return folder


def fine_tune(folder: Path, output: Path, *arguments: str):
    common = [PLAIN, "-dataset=folder", f"-data_path={folder / 'pictures'}", "-image_size=48", "-batch_size=2"]
    words = [*common, *KEYS, "-ngpus=2", "-num_workers=0", f"-output={output}", "-epochs=2"]
    return well(run_main(*words, "TRAIN.WARMUP_EPOCHS", "0", "TRAIN.LAYER_DECAY", "0.7", *arguments))


@pytest.fixture(scope="module")
def results(folder):
    """What the runs of the formats so far ended with."""
    return {}


def make_state(output: Path):
    return {name: value.numpy() for name, value in paddle.load(str(output / "checkpoints/last/model.pdparams")).items()}


@pytest.fixture(scope="module")
def first_weights():
    """The weights in the files."""
    model = create_model("vit", num_classes=5, image_size=32, **SMALL)
    load_weights(model, FILES / "vit.pth")
    return {name: value.numpy() for name, value in model.state_dict().items()}


BY_DAY = ("PyTorch, zip", "Paddle, PaddleViT's names", "safetensors")


@pytest.mark.parametrize("name", BY_DAY)
def test_formats_end_with_the_same_weights(folder, results, first_weights, name):
    require_the_same_weights(folder, results, first_weights, name)


def require_the_same_weights(folder, results, first_weights, name):
    output = folder / f"output of {name}"
    ended = fine_tune(folder, output, f"-pretrained={folder / FORMATS[name]}", "-stop_after_epoch=1")
    report = json.loads((output / "load_report.json").read_text())
    assert [entry["name"] for entry in report["resized"]] == ["pos_embed"]
    assert [entry["name"] for entry in report["reinitialized"]] == ["head.weight", "head.bias"]
    assert not report["missing"] and report["loaded_fraction"] == 1.0
    state = make_state(output)
    assert state["head.weight"].shape == (48, 3) and state["pos_embed"].shape == (1, 1 + 36, 48)
    expected_line, expected = results.setdefault("first", (last_line(ended), state))
    assert last_line(ended) == expected_line
    for key, value in expected.items():
        np.testing.assert_array_equal(state[key], value, err_msg=key)
    moved = np.abs(state["blocks.0.mlp.fc1.weight"] - first_weights["blocks.0.mlp.fc1.weight"])
    assert 0 < moved.max() < 0.1  # a fresh layer would differ by up to 0.3


def test_a_resumed_run_and_its_exported_model_are_those_of_an_unbroken_one(folder):
    unbroken, resumed = folder / "unbroken", folder / "resumed"
    weights = f"-pretrained={folder / 'vit.safetensors'}"
    fine_tune(folder, unbroken, weights)
    fine_tune(folder, resumed, weights, "-stop_after_epoch=1")
    ended = fine_tune(folder, resumed, "-resume=auto")
    expected = make_state(unbroken)
    for key, value in make_state(resumed).items():
        np.testing.assert_array_equal(value, expected[key], err_msg=key)
    exported = folder / "exported" / "model"
    command = [sys.executable, "-m", "paddlevit_dist", "export", str(resumed / "checkpoints" / "last"), str(exported)]
    said = run_command(command, timeout=600)
    assert said.code == 0, said.err
    model = create_model("vit", num_classes=3, image_size=48, **SMALL)
    load_weights(model, unbroken / "checkpoints" / "last", strict=True)
    model.eval()
    images = paddle.to_tensor(np.random.default_rng(0).standard_normal((3, 3, 48, 48)).astype("float32"))
    with paddle.no_grad():
        expected = model(images).numpy()
    np.testing.assert_allclose(paddle.jit.load(str(exported))(images).numpy(), expected, rtol=1e-5, atol=1e-5)
    assert re.search(r"epoch 2 evaluation: top-1", ended.out)
