"""The line that says what a run does to its images."""

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.images.data.seen_images import SeenImages, describe_change, see_sides, see_whole
from paddlevit_dist.images.transforms.crops import EvaluationTransform


@pytest.mark.parametrize(
    ("sizes", "modes", "seen", "line"),
    [
        (
            [(480, 640)] * 3,
            ["RGB"] * 3,
            see_whole(16, 1),
            "640 x 480 color -> 16 x 16 gray; lost: colors, 99.9 % of the",
        ),
        ([(480, 640)], ["L"], see_whole((16, 32), 1), "640 x 480 gray -> 32 x 16 gray; lost: 99.8 % of the pixels"),
        ([(8, 8)], ["P"], see_whole(16, 3), "8 x 8 color -> 16 x 16 color"),
        (  # enlarged to 32 x 64, of which 32 of 64 rows are seen: half of the pixels, and none of these is lost
            [(16, 8)],
            ["RGB"],
            see_whole(32, 3, EvaluationTransform(32, 1.0)),
            "8 x 16 color -> 32 x 32 color; lost: 50 % of the pixels (an evaluation crops to the middle 50 %)",
        ),
        (  # reduced to 32 x 64: of 64 x 128 stored pixels 64 x 64 are in the crop, which has 32 x 32
            [(128, 64)],
            ["RGB"],
            see_whole(32, 3, EvaluationTransform(32, 1.0)),
            "color; lost: 87.5 % of the pixels (an evaluation crops to the middle 50 %)",
        ),
        ([(16, 8)], ["RGB"], see_whole(32, 3, EvaluationTransform(32, 0.8, crop_mode="border")), "32 color"),
        (
            [(100, 50), (10, 20), (40, 30)],
            ["RGB", "LA", "I;16"],
            see_whole(24),
            "20 x 10 to 50 x 100, typically 30 x 40, color and gray -> 24 x 24 color; lost: 52 % of the pixels",
        ),
        (
            [(9, 9)],
            ["1"],
            see_sides([480, 800], 1333),
            "9 x 9 gray -> shorter side 480 to 800, longer side at most 1333",
        ),
        ([(9, 9)], ["RGB"], see_sides([640], 1, True), "9 x 9 color -> squares of 640 color"),
        ([(9, 9)], ["RGB"], SeenImages("the stored size", None, True), "-> the stored size gray; lost: colors"),
    ],
)
def test_stored_and_seen_size_and_colors_and_what_is_lost_are_told(sizes, modes, seen, line):
    assert line in describe_change(sizes, modes, seen, "train")


WORDS = {  # of tasks of images, and what their networks see of an image of 40 x 30 pixels
    "vit_digits": ("-dataset=folder", "16 x 16 gray; lost: colors, 78.7 % of the pixels"),
    "vit_digits DATA.IMAGE_CHANNELS 3 -image_size=32": ("-dataset=folder", "32 x 32 color; lost: 23.8 % of the pixels"),
    "dino_digits": ("-dataset=folder", "gray; lost: colors"),
}


@pytest.mark.parametrize("words", WORDS)
def test_each_start_tells_it_once(tmp_path, words):
    dataset, seen = WORDS[words]
    for split in ("train", "val"):
        for kind in "ab":
            path = tmp_path / split / kind / f"{split}.png"
            path.parent.mkdir(parents=True)
            generator = np.random.default_rng(len(str(path)))
            Image.fromarray(generator.integers(0, 255, (30, 40, 3), np.uint8)).save(path)
    recipe, *more = words.split()
    values = load([f"-cfg={recipe}", dataset, f"-data_path={tmp_path}", *more], "vit_digits").values
    task = make_task(values)
    (tmp_path / "cache").mkdir()
    lines = [line for split in ("train", "val") for line in task.build_dataset(split, tmp_path / "cache").notices]
    (line,) = [line for line in lines if "->" in line]
    assert line.startswith("images of train: 40 x 30 color -> ") and seen in line
