"""Input of weights as the files of timm and transformers beside them say it."""

import json

import pytest

from paddlevit_dist.images.classification.task import Classification
from paddlevit_dist.runtime.errors import UserError
from paddlevit_dist.settings import load

NAMES = ("IMAGE_SIZE", "CROP_PCT", "CROP_MODE", "INTERPOLATION")


def load_with(folder, file: str, content: dict, *words: str):
    (folder / file).write_text(json.dumps(content))
    return load(["-dataset=folder", "MODEL.NAME", "vit_base_patch16_224", f"-pretrained={folder}", *words])


def found_by(folder, content: dict) -> tuple:
    about = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 3, **content}
    data = load_with(folder, "preprocessor_config.json", about).values.DATA
    return tuple(data[name] for name in NAMES[:3])


SQUARE = {"height": 224, "width": 224}


@pytest.mark.parametrize(
    "about, expected",
    [
        ({"size": SQUARE}, (224, 1.0, "squash")),
        ({"size": {"height": 256, "width": 256}, "crop_size": SQUARE}, (224, 0.875, "squash")),
        ({"size": {"height": 256, "width": 256}, "crop_size": SQUARE, "do_center_crop": False}, (256, 1.0, "squash")),
        ({"size": 224, "feature_extractor_type": "ViTFeatureExtractor"}, (224, 1.0, "squash")),
        ({"size": 224, "crop_size": 224, "feature_extractor_type": "CLIPFeatureExtractor"}, (224, 1.0, "center")),
        ({"size": {"shortest_edge": 256}, "crop_size": SQUARE}, (224, 0.875, "center")),
        (
            {"size": {"shortest_edge": 224}, "crop_pct": 0.875, "image_processor_type": "ConvNextImageProcessor"},
            (224, 0.875, "center"),
        ),
        (
            {"size": {"shortest_edge": 384}, "crop_pct": 0.875, "image_processor_type": "ConvNextImageProcessor"},
            (384, 1.0, "squash"),
        ),
    ],
)
def test_sizes_of_transformers_mean_what_its_processors_make(tmp_path, about, expected):
    assert found_by(tmp_path, about) == expected


@pytest.mark.parametrize(
    "about, said",
    [
        ({"size": {"height": 224, "width": 448}}, "a size of 224 x 448: expected a square"),
        ({"size": SQUARE, "resample": 1}, "interpolation lanczos: expected bicubic or bilinear"),
    ],
)
def test_a_processor_that_is_not_followed_is_refused(tmp_path, about, said):
    with pytest.raises(UserError, match=said):
        found_by(tmp_path, about)


TIMMS = {"mean": [0.5] * 3, "std": [0.5] * 3, "input_size": [3, 224, 224], "crop_pct": 0.9, "crop_mode": "squash"}


def test_timms_crop_mode_is_read(tmp_path):
    assert load_with(tmp_path, "config.json", TIMMS).values.DATA.CROP_MODE == "squash"
    with pytest.raises(UserError, match="crop_mode border: expected center or squash"):
        load_with(tmp_path, "config.json", {**TIMMS, "crop_mode": "border"})


def test_a_crop_of_the_command_line_leaves_the_rest_to_the_weights(tmp_path):
    about = {**TIMMS, "interpolation": "bilinear"}
    data = load_with(tmp_path, "config.json", about, "DATA.CROP_PCT", "0.8").values.DATA
    assert tuple(data[name] for name in NAMES) == (224, 0.8, "squash", "bilinear")


def test_the_input_is_told_and_what_given_weights_expect_otherwise(tmp_path):
    values = load_with(tmp_path, "config.json", TIMMS, "DATA.CROP_PCT", "0.8").values
    line = "input: 224 pixels, crop 0.8 of a square, bicubic, mean 0.5, 0.5, 0.5, deviation 0.5, 0.5, 0.5"
    assert Classification(values).notices == [f"{line}; {tmp_path}/config.json expects crop 0.9 of a square"]
