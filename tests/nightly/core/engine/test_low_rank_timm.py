"""TRAIN.LORA with a model of timm: runs at another image size, and what their checkpoints compute."""

from pathlib import Path

import numpy as np
import paddle
import pytest
from support.networks import timm_zoo
from support.trainings import small_runs

from paddlevit_dist import Trainer, UserError, create_model, load_weights
from paddlevit_dist.core.checkpoint.weights import read_state
from paddlevit_dist.core.engine.low_rank_layers import add_low_rank_terms

pytestmark = timm_zoo.needs_compat
RECIPE = """
DATA: {DATASET: digits, BATCH_SIZE: 16, IMAGE_SIZE: 32, IMAGE_CHANNELS: 3, NUM_WORKERS: 0}
MODEL: {NAME: "timm:test_vit"}
TRAIN: {WARMUP_EPOCHS: 0, NUM_EPOCHS: 1, BASE_LR: 1.0e-2}
REPORT: False
"""


def train(folder: Path, *words: str) -> Trainer:
    (folder.parent / "recipe.yaml").write_text(RECIPE)
    sizes = {"train": 32, "val": 32}
    run = small_runs.make_trainer(folder, [f"-cfg={folder.parent / 'recipe.yaml'}", *words], sizes)
    run.train()
    return run


def outputs(model) -> np.ndarray:
    model.eval()
    images = np.random.default_rng(1).standard_normal((2, 3, 48, 48)).astype("float32")
    return model(paddle.to_tensor(images)).numpy()


def load(file: Path):
    model = create_model("timm:test_vit", 10, 48)
    load_weights(model, str(file), strict=True)
    return model


def test_runs_at_another_size_and_from_one_another_are_loaded_as_they_were(tmp_path):
    train(tmp_path / "base")
    words = ["-image_size=48", "TRAIN.LORA.RANK", "4", "TRAIN.MODEL_EMA", "True", "TRAIN.MODEL_EMA_DECAY", "0.5"]
    first = train(tmp_path / "first", *words, f"-pretrained={tmp_path / 'base'}")
    folder = tmp_path / "first" / "checkpoints" / "last"
    held = {name for name in read_state(folder / "model.pdparams") if "lora_" not in name}
    assert held == {"pos_embed", "head.weight", "head.bias"}  # the first is resized
    np.testing.assert_allclose(outputs(load(folder / "model.pdparams")), outputs(first.model), rtol=1e-4, atol=1e-5)
    with first.ema.in_place():
        expected = outputs(first.model)
    np.testing.assert_allclose(outputs(load(folder / "model_ema.pdparams")), expected, rtol=1e-4, atol=1e-5)

    words += ["TRAIN.LORA.TARGETS", "[proj]", "TRAIN.LORA.ALPHA", "2"]
    second = train(tmp_path / "second", *words, f"-pretrained={tmp_path / 'first'}")
    folder = tmp_path / "second" / "checkpoints" / "last"
    np.testing.assert_allclose(outputs(load(folder / "model.pdparams")), outputs(second.model), rtol=1e-4, atol=1e-5)


def test_every_chosen_layer_of_a_model_of_timm_learns_and_separate_biases_are_named():
    model = create_model("timm:swin_tiny_patch4_window7_224", 3, depths=(1, 1, 1, 1), embed_dim=24)
    model.eval()
    images = paddle.to_tensor(np.random.default_rng(2).standard_normal((1, 3, 224, 224)).astype("float32"))
    before = model(images).numpy()
    add_low_rank_terms(model, 2, 4.0, ["qkv", "proj", "mlp"], lambda line: None)
    np.testing.assert_array_equal(model(images).numpy(), before)
    (model(images) ** 2).sum().backward()
    trained = {name: p for name, p in model.named_parameters() if not p.stop_gradient}
    assert sum(name.endswith("lora_b") for name in trained) == 16
    assert all(name.startswith("head") for name in trained if "lora_" not in name)
    assert all(np.abs(p.grad.numpy()).max() > 0 for name, p in trained.items() if not name.endswith("lora_a"))
    with pytest.raises(UserError, match="separate biases and takes no term; leave qkv out"):
        add_low_rank_terms(create_model("timm:swinv2_tiny_window8_256", 3), 2, 4.0, ["qkv"], print)
