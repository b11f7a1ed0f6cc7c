"""Trainings meet small files that announce, or become, far more than they are."""

import sys

from support.files.bombs import bomb_png
from support.processes import run_command
from support.trainings.runs import IMAGES, MAIN, refused, write_images


def test_training_stops_at_such_an_image_or_leaves_it_out(tmp_path):
    root = write_images(tmp_path / "data")
    (root / "train" / "ant" / "04.jpg").unlink()  # of 16 images, each is in a batch of four
    bomb = root / "train" / "ant" / "bomb.png"
    bomb.write_bytes(bomb_png(13_000))
    command = [*IMAGES, f"-data_path={root}", f"-output={tmp_path / 'out'}"]
    message = refused(*command)
    assert f"{bomb} cannot be read as an image" in message and "raise DATA.MAX_PIXELS" in message
    ended = run_command([sys.executable, str(MAIN), *command, "DATA.ON_INVALID_SAMPLE", "skip"])
    assert ended.code == 0, ended.err
    assert "raise DATA.MAX_PIXELS" in (tmp_path / "out" / "quarantine.tsv").read_text()
