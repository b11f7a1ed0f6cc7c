"""-pretrained in a training: how much of the model it must fill, which part it loads, and the report it leaves."""

import json

import paddle
import pytest
from support.processes import run_main, succeeded
from support.trainings.runs import DIGITS, write_images

from paddlevit_dist import create_model

SMALL = "MODEL.EMBED_DIM 16 MODEL.DEPTH 2 MODEL.NUM_HEADS 2 MODEL.PATCH_SIZE 8".split()


@pytest.fixture
def half(tmp_path):
    """Weights of everything but the second block, beside averaged ones."""
    model = create_model(
        "vit", num_classes=10, image_size=16, in_channels=1, embed_dim=16, depth=2, num_heads=2, patch_size=8
    )
    state = {name: value for name, value in model.state_dict().items() if not name.startswith("blocks.1.")}
    averaged = {name: value * 0 + 0.5 for name, value in model.state_dict().items()}
    paddle.save({"model": state, "model_ema": averaged}, str(tmp_path / "half.pdparams"))
    return tmp_path / "half"


def run(tmp_path, half, *arguments):
    common = [f"-output={tmp_path / 'out'}", f"-pretrained={half}", *DIGITS, *SMALL, "-epochs=1", "-batch_size=256"]
    return run_main(*common, *arguments)


def test_too_little_stops_the_run_unless_asked_otherwise(tmp_path, half):
    refused = run(tmp_path, half, "MODEL.PRETRAINED_PART", "model")
    assert refused.code == 2 and "MODEL.MIN_LOADED_FRACTION" in refused.err and "blocks.1." in refused.err
    part = ["MODEL.PRETRAINED_PART", "model", "MODEL.MIN_LOADED_FRACTION", "0.3"]
    refused = run(tmp_path, half, *part)
    assert (
        refused.code == 2 and "lacks 12 of this model's 32 tensors" in refused.err and "-allow_changes" in refused.err
    )
    ended = succeeded(run(tmp_path, half, *part, "-allow_changes"))
    assert "12 missing, which stay random: blocks.1." in ended.out
    report = json.loads((tmp_path / "out" / "load_report.json").read_text())
    assert 0.3 < report["loaded_fraction"] < 0.9
    assert all(entry["name"].startswith("blocks.1.") for entry in report["missing"]) and len(report["missing"]) == 12


def test_the_named_part_is_loaded(tmp_path, half):
    ended = succeeded(run(tmp_path, half, "MODEL.PRETRAINED_PART", "model_ema"))
    assert "100.0 % of parameters" in ended.out


@pytest.mark.parametrize("kind", ["nowhere", "empty", "flat"])
def test_data_are_looked_at_before_weights_are_fetched(kind, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat/1.png").write_bytes(b"")
    ended = run_main("-cfg=finetune_folder", f"-data_path={tmp_path / kind}", f"-output={tmp_path / 'run'}")
    assert ended.code == 2 and str(tmp_path / kind) in ended.err and "huggingface" not in ended.err


@pytest.mark.parametrize("words", [[], ["-pretrained=vit_tiny_patch16_224.augreg_in21k_ft_in1k"]])
def test_without_a_network_the_recipe_from_random_weights_is_named(tmp_path, words):
    write_images(tmp_path / "images")
    run = ["-cfg=finetune_folder", f"-data_path={tmp_path / 'images'}", f"-output={tmp_path / 'run'}", *words]
    ended = run_main(*run, HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path / "none"))
    assert ended.code == 2 and "HF_HUB_OFFLINE" in ended.err
    assert ("-cfg=scratch_folder" in ended.err) == (not words)  # weights that are typed are wanted
