"""``export``: an inference model whose outputs match the trained one's."""

import resource
import shutil
import sys

import numpy as np
import paddle
import pytest
import yaml
from support.networks.other_names import in_torch_layout, small
from support.processes import run_command, run_main
from support.trainings.runs import DIGITS, well

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.extensions.export.command import export
from paddlevit_dist.extensions.export.trained_models import TrainedModel, load_trained_model


def images(batch, *shape):
    return np.random.default_rng(3).standard_normal((batch, *shape)).astype("float32")


BY_DAY = ("vit", "deit_tiny_distilled_patch16_224", "resnet50")


@pytest.mark.parametrize("name", BY_DAY)
def test_families_give_the_same_outputs_for_any_batch(name, tmp_path):
    """The other families at night."""
    require_same_outputs(small(name, seed=1), tmp_path)


def require_same_outputs(model, tmp_path):
    shape = [None, 3, *model.image_size]
    inputs = [paddle.to_tensor(images(batch, 3, *model.image_size)) for batch in (1, 4)]
    with paddle.no_grad():
        expected = [model(x).numpy() for x in inputs]  # Paddle 2.6 cannot compute with a model that it has traced
        export(TrainedModel(model, {"input_shape": shape}), str(tmp_path / "out"))
        loaded = paddle.jit.load(str(tmp_path / "out"))
        for x, outputs in zip(inputs, expected):
            np.testing.assert_allclose(loaded(x).numpy(), outputs, rtol=1e-5, atol=1e-5)


def test_an_exported_model_that_computes_something_else_is_noticed(tmp_path, monkeypatch):
    model = small("vit", seed=1)
    monkeypatch.setattr(paddle.jit, "load", lambda path: lambda x: paddle.ones([3, model.num_classes]))
    with pytest.raises(RuntimeError, match="differs from the model it was exported from"):
        export(TrainedModel(model, {"input_shape": [None, 3, *model.image_size]}), str(tmp_path / "out"))
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    well(run_main(*DIGITS, f"-output={folder}", "TRAIN.WARMUP_EPOCHS", "0"))
    return folder


def test_a_runs_folder_is_enough(trained, tmp_path):
    command = [sys.executable, "-m", "paddlevit_dist", "export", str(trained), str(tmp_path / "digits")]
    ended = run_command(command, timeout=600)
    assert ended.code == 0, ended.err
    about = yaml.safe_load((tmp_path / "digits.about.yaml").read_text())
    assert about["num_classes"] == 10 and about["input_shape"] == [None, 1, 16, 16]
    assert about["model"] == "vit" and len(about["mean"]) == 1
    model = create_model(
        "vit", num_classes=10, image_size=16, in_channels=1, patch_size=8, embed_dim=16, depth=1, num_heads=2
    )
    load_weights(model, trained / "checkpoints" / "best", strict=True)
    model.eval()
    x = paddle.to_tensor(images(5, 1, 16, 16))
    with paddle.no_grad():
        np.testing.assert_allclose(
            paddle.jit.load(str(tmp_path / "digits"))(x).numpy(), model(x).numpy(), rtol=1e-5, atol=1e-6
        )


def test_a_checkpoint_and_a_file_in_a_run_mean_the_same_model(trained):
    last = trained / "checkpoints" / "last"
    for source in (last, last / "model.pdparams"):
        about = load_trained_model(str(source)).about
        assert (about["num_classes"], about["model"]) == (10, "vit")
        assert about["classes"] == [str(digit) for digit in range(10)]


def test_what_a_checkpoint_says_of_itself_comes_before_the_configuration_beside_it(trained, tmp_path):
    """The folder's file may be another run's by now: the weights were made by the settings in their checkpoint."""
    copy = tmp_path / "copy"
    shutil.copytree(trained, copy, symlinks=True)
    file = copy / "config.yaml"
    before = load_trained_model(str(copy)).about
    file.write_text(file.read_text().replace("CROP_PCT: ", "CROP_PCT: 0.5 # "))
    assert load_trained_model(str(copy)).about["crop_pct"] == before["crop_pct"] != 0.5
    for about in copy.glob("checkpoints/*/about.yaml"):
        about.unlink()
    assert load_trained_model(str(copy)).about["crop_pct"] == 0.5


def test_weights_from_elsewhere_need_the_models_name(tmp_path):
    model = create_model("deit_tiny_distilled_patch16_224", num_classes=6, image_size=32)
    np.savez(tmp_path / "deit.npz", **in_torch_layout(model))
    with pytest.raises(UserError, match="name the model with -model=NAME"):
        load_trained_model(str(tmp_path / "deit.npz"))
    found = load_trained_model(str(tmp_path / "deit.npz"), "deit_tiny_distilled_patch16_224", image_size=32)
    assert found.about["num_classes"] == 6 and not found.model.training
    np.testing.assert_array_equal(found.model.head_dist.weight.numpy(), model.head_dist.weight.numpy())
    with pytest.raises(UserError, match="does not contain the whole model|has no classifier"):
        load_trained_model(str(tmp_path / "deit.npz"), "convnext_tiny")


@pytest.mark.parametrize("limit", [4096, 1_000_000])  # bytes: the program is cut off, the weights are
def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path, limit):
    model = create_model("resnet18", num_classes=3)
    model.eval()
    about = {"model": "resnet18", "weights": "", "num_classes": 3, "input_shape": [None, 3, 32, 32], "report": ""}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(UserError, match=r"export: .*model cannot be written: File too large; "):
            export(TrainedModel(model, about), str(tmp_path / "model"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())
