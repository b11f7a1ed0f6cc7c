"""Names of files that are no text."""

import os
import sys
from pathlib import Path

from PIL import Image
from support.processes import run_command
from support.trainings.runs import IMAGES


def test_paths_that_are_no_text_work_in_every_command(tmp_path):
    """Names in another encoding, as archives of Windows unpack: bytes that are not UTF-8."""
    data, out = (os.path.join(tmp_path, os.fsdecode(name)) for name in (b"d\xe4ta", b"out\xff"))
    for split in ("train", "val"):
        for color, name in enumerate((b"c\xe4t", b"dog")):
            folder = os.path.join(data, split, os.fsdecode(name))
            os.makedirs(folder)
            for number in range(3):
                file = os.path.join(folder, os.fsdecode(b"\xfc%d.png" % number))
                Image.new("RGB", (8, 8), (200 * color, number, 0)).save(file)
    words = [f"-data_path={data}", "-ngpus=1", "-batch_size=2"]
    for command in (
        ["train", *IMAGES, *words, f"-output={out}"],
        ["evaluate", *IMAGES, *words, f"-pretrained={out}", f"-output={out}_scores"],
        ["inspect", "data", *IMAGES, f"-data_path={data}", f"-output={out}_drawn"],
        ["predict", out, os.path.join(data, "val"), f"-output={out}_predicted"],
        ["report", out],
    ):
        ended = run_command([sys.executable, "-m", "paddlevit_dist", *command])
        assert ended.code == 0, (command[0], ended.err[-2000:])
    for file in ("metrics.jsonl", "config.yaml", "run.json", "report.html", "log.txt"):
        Path(out, file).read_text(encoding="utf-8")
    refused = run_command([sys.executable, "-m", "paddlevit_dist", "export", out, f"{out}_model"])
    assert refused.code == 2 and refused.err.splitlines()[-1].endswith(
        "is not UTF-8, which Paddle needs: choose another OUT"
    )
