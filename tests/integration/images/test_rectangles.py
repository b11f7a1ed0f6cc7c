"""Images that are not square in a training, and in another shape in its export; what follows on one at night."""

import re

import numpy as np
import pytest
import yaml
from PIL import Image
from support.processes import run_main
from support.trainings.runs import IMAGES, read_events, refused, well, write_images

from paddlevit_dist.extensions.export.command import run as export

WORDS = [word for word in IMAGES if not word.startswith("-image_size")]
MIXED = "TRAIN.MIXUP_ALPHA 0.8 TRAIN.CUTMIX_ALPHA 1.0 TRAIN.RANDOM_ERASE_PROB 0.5 TRAIN.RAND_AUGMENT True".split()
LANCZOS = "DATA.CROP_MODE border DATA.INTERPOLATION lanczos DATA.CROP_PCT 0.9".split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run on 16 x 24 pixels in "run", and its images in "data"."""
    return train(tmp_path_factory.mktemp("rectangles"))


def train(folder, *words):
    write_images(folder / "data", 8, 5)
    data = [*WORDS, f"-data_path={folder}/data", "-image_size=16x24", *MIXED, *LANCZOS]
    well(run_main(*data, f"-output={folder}/run", "TRAIN.WARMUP_EPOCHS", "0", *words))
    return folder


def test_an_export_may_have_another_rectangle(folder):
    words = ["-image_size=24x16", "DATA.CROP_MODE", "squash", "-allow_changes"]
    export([str(folder / "run"), str(folder / "lying" / "model"), *words])
    about = yaml.safe_load((folder / "lying" / "model.about.yaml").read_text())
    assert about["input_shape"] == [None, 3, 24, 16] and about["preprocessing"]["center_crop"] == [24, 16]
    example = np.load(folder / "lying" / "model.example.npz")
    assert example["input"].shape == (1, 3, 24, 16)
    steps = yaml.safe_load((folder / "lying" / "model.yml").read_text())["PreProcess"]["transform_ops"]
    assert steps[0]["ResizeImage"] == {"size": [17, 26], "backend": "pil", "interpolation": "LANCZOS4"}
    assert steps[1] == {"CropImage": {"size": [16, 24]}}
    resized = Image.fromarray(example["picture"]).resize((17, 26), Image.Resampling.LANCZOS)
    left, top = round(0.5), round(1)
    pixels = np.asarray(resized.crop((left, top, left + 16, top + 24)), np.float32).transpose(2, 0, 1)
    np.testing.assert_allclose(example["input"][0], (pixels / 255 - 0.5) / 0.5, atol=1e-6)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-image_size=16x24x3"], "-image_size is '16x24x3': expected pixels such as 224, or HEIGHTxWIDTH"),
        (["DATA.IMAGE_SIZE", "[16,24,32]"], "DATA.IMAGE_SIZE .*expected a whole number .* or a list of 2 of them"),
        (["-image_size=16x20"], "image size 16 x 20 does not divide into patches of 8 px: instead of 20 use 16 or 24"),
    ],
)
def test_a_wrong_size_is_one_line(folder, words, said):
    message = refused(*WORDS, f"-data_path={folder}/data", *words, f"-output={folder}/refused")
    assert re.search(said, message), message


def test_epochs_have_a_loss(folder):
    assert all(np.isfinite(event["loss"]) for event in read_events(folder / "run") if "loss" in event)
