"""``inspect data`` writes an image of what the model will see."""

import sys

import numpy as np
import pytest
from PIL import Image
from support.processes import run_command, succeeded

from paddlevit_dist import UserError
from paddlevit_dist.core.commands import inspect_data
from paddlevit_dist.core.runtime.text_rendering import LINE_PX

DIGITS = ["-image_size=16", "DATA.IMAGE_CHANNELS", "1"]


def inspect(output, *arguments: str):
    command = [sys.executable, "-m", "paddlevit_dist", "inspect", "data", f"-output={output}", *arguments]
    return succeeded(run_command(command))


def test_the_sheet_shows_the_evaluated_and_the_trained_images(tmp_path):
    ended = inspect(tmp_path / "a", *DIGITS, "TRAIN.MIXUP_ALPHA", "0.8", "TRAIN.RANDOM_ERASE_PROB", "1.0")
    assert str(tmp_path / "a" / "data.png") in ended.out
    sheet = np.asarray(Image.open(tmp_path / "a" / "data.png"))
    enlarged, cell = 7, 16 * 7 + 4  # 16 pixels by a whole factor to at least 112
    assert sheet.shape[1] == 7 * cell and sheet.shape[2] == 3

    from paddlevit_dist.images.data.small_sets import Digits

    digits = Digits(None, "train", None)
    first = int(np.random.default_rng(0).permutation(len(digits))[0])
    expected = np.asarray(digits.read(first)[0].resize((16, 16), Image.Resampling.BICUBIC))
    top = LINE_PX
    shown = sheet[top : top + 16 * enlarged : enlarged, : 16 * enlarged : enlarged, 0]
    np.testing.assert_array_equal(shown, expected)
    trained = sheet[top : top + 16 * enlarged : enlarged, cell : cell + 16 * enlarged : enlarged, 0]
    assert np.abs(trained.astype(int) - expected).mean() > 5


def test_what_is_refused_leaves_no_folder(tmp_path):
    words = [
        "-cfg=finetune_folder",
        "-dataset=folder",
        f"-data_path={tmp_path}",
        f"-output={tmp_path / 'a' / 'look'}",
    ]
    with pytest.raises(UserError, match="expect"):
        inspect_data.run(words)
    assert not [*tmp_path.iterdir()]


def test_the_same_flags_give_the_same_sheet(tmp_path):
    for name in ("a", "b"):
        inspect(tmp_path / name, *DIGITS, "TRAIN.CUTMIX_ALPHA", "1.0")
    assert (tmp_path / "a" / "data.png").read_bytes() == (tmp_path / "b" / "data.png").read_bytes()


def test_a_sheet_fits_a_laptop_and_tells_of_names_that_it_cannot_draw(tmp_path):
    for name in ("cat", "猫", "ไก่"):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(5):
            pixels = np.random.default_rng(number).integers(0, 256, (60, 80, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / name / f"{number}.png")
    flags = ["-cfg=finetune_folder", f"-data_path={tmp_path / 'pictures'}"]
    ended = inspect(tmp_path / "out", *flags)
    width, height = Image.open(tmp_path / "out" / "data.png").size
    assert 900 < width <= 1366 and height <= 1500
    (note,) = (line for line in ended.out.splitlines() if "no font" in line)
    assert "ไก่" in note and "cat" not in note
