"""``prepare images`` tells of images whose further bits are lost."""

import re

import numpy as np
from PIL import Image
from support.trainings.runs import write_images

from paddlevit_dist.images.prepare import command


def test_images_of_more_than_eight_bits_are_counted_before_a_preparation(tmp_path, capsys):
    root = write_images(tmp_path / "data", train=6, val=3)
    deep = root / "train" / "ant" / "deep.png"
    Image.fromarray(np.full((6, 8), 40_000, np.uint16)).save(deep)
    said = f"stored with more than 8 bits a pixel, such as {deep}; "
    for words in ([str(root)], [str(root), str(tmp_path / "out"), "--workers=1"]):
        command.run_images(words)
        assert re.search(f"note: 1 of 13 images is {said}", capsys.readouterr().out)
