"""The commands for leakage on the guide to scores, on images with nine copies; the page shows what they print."""

import re
import sys

from support.processes import run_command, succeeded
from support.samples.leaking_images import write_leaking

from .reading import make_text

PAGE = "docs/guides/troubleshooting_metrics.md"
RECIPE = """
BASE: vit_digits.yaml
DATA:
  DATASET: folder
  DATA_PATH: images
  IMAGE_SIZE: 32
  IMAGE_CHANNELS: 3
  BATCH_SIZE: 8
MODEL:
  PATCH_SIZE: 8
TRAIN:
  NUM_EPOCHS: 2
  WARMUP_EPOCHS: 0
"""


def test_copies_in_two_splits_are_found_and_excluded(tmp_path):
    write_leaking(tmp_path / "images")
    (tmp_path / "small.yaml").write_text(RECIPE, encoding="utf-8")

    def run(command: str) -> str:
        return succeeded(run_command([sys.executable, "-m", "paddlevit_dist", *command.split()], folder=tmp_path)).out

    run("train -cfg=small.yaml -output=output/mine")
    commands = re.findall(r"^paddlevit-dist ((?:inspect leaks|evaluate .* -exclude_leaked).*)$", make_text(PAGE), re.M)
    search, evaluation = map(run, commands)
    (line,) = re.findall(r"^leaks: .*$", search, re.MULTILINE)
    assert line in make_text(PAGE).splitlines()
    (shown,) = re.findall(r"^without leaks: .* (\(without .*\))$", make_text(PAGE), re.MULTILINE)
    pattern = rf"^without leaks: top-1 [\d.]+ \[[\d., ]+\] loss [\d.]+ {re.escape(shown)}\ntop-1 "
    assert re.search(pattern, evaluation, re.MULTILINE)
    assert (tmp_path / "output" / "look" / "leaks.png").is_file()
