"""Small files that announce, or become, far more than they are: refused before the memory or the disk is taken."""

import sys

from support.files.bombs import bomb_png
from support.processes import run_command
from support.trainings.runs import write_images


def test_prepare_images_lists_such_an_image(tmp_path):
    root = write_images(tmp_path / "data", 2, 1)
    (root / "train" / "ant" / "bomb.png").write_bytes(bomb_png(13_000))
    command = [sys.executable, "-m", "paddlevit_dist", "prepare", "images", str(root)]
    ended = run_command([*command, "--workers=1"])
    assert "bomb.png" in ended.out + ended.err and "DATA.MAX_PIXELS" in ended.out + ended.err
    assert ended.code == 1 and ended.err == ""
