"""The input of a run without labels, which tasks expect that start from its weights."""

import paddle
import pytest
import yaml

from paddlevit_dist.core.checkpoint.about_schema import ABOUT
from paddlevit_dist.core.checkpoint.directory_names import STATE
from paddlevit_dist.core.settings import load
from paddlevit_dist.images.pretraining.run_input import find_run_input


@pytest.mark.parametrize("channels, crop_pct", [(3, 0.75), (1, 0.9)])
def test_weights_of_a_run_without_labels_expect_its_input(tmp_path, channels, crop_pct):
    checkpoint = tmp_path / "run" / "checkpoints" / "epoch_0001"
    checkpoint.mkdir(parents=True)
    (checkpoint / STATE).touch()
    data = {"IMAGE_CHANNELS": channels, "IMAGENET_MEAN": [0.1] * channels, "IMAGENET_STD": [0.2] * channels}
    data |= {"CROP_PCT": 0.75, "INTERPOLATION": "bilinear", "IMAGE_SIZE": 96, "CROP_MODE": "center"}
    about = {"settings": {"TASK": "masked_autoencoder", "DATA": data, "PRETRAINING": {"NEIGHBORS": 20}}}
    (checkpoint / ABOUT).write_text(yaml.safe_dump(about))
    words = ["-cfg=finetune_folder", "-data_path=any", f"-pretrained={tmp_path / 'run'}"]
    found = load([*words, "MODEL.NAME", "vit_base_patch16_224"]).values.DATA
    expected = [0.1] * 3 if channels == 3 else [0.5] * 3  # an input of one channel says nothing of three
    assert found.IMAGENET_MEAN == expected and found.CROP_PCT == crop_pct
    assert found.INTERPOLATION == ("bilinear" if channels == 3 else "bicubic")
    assert load([*words, "DATA.IMAGENET_MEAN", "[0.3,0.3,0.3]"]).values.DATA.IMAGENET_MEAN == [0.3] * 3


@pytest.mark.parametrize("about", [None, {"settings": {"TASK": "classification", "DATA": {"IMAGE_CHANNELS": 3}}}])
def test_only_a_run_without_labels_says_what_its_weights_expect(tmp_path, about):
    checkpoint = tmp_path / "run" / "checkpoints" / "epoch_0001"
    checkpoint.mkdir(parents=True)
    (checkpoint / STATE).touch()
    if about is not None:
        (checkpoint / ABOUT).write_text(yaml.safe_dump(about))
    timm = [] if paddle.__version__.startswith("2.") else ["timm:resnet18"]  # which Paddle 2.6 cannot build
    for source in (str(tmp_path / "run"), str(tmp_path / "none"), None, *timm):
        assert find_run_input(source) is None
