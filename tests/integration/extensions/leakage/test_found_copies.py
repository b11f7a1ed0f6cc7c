"""Pairs of copies are shown side by side by the command; at night by the one that shows samples, too."""

import json
import sys
from pathlib import Path

import pytest
from PIL import Image
from support.processes import run_command, succeeded
from support.samples.leaking_images import write_leaking
from support.trainings.runs import IMAGES


@pytest.fixture(scope="module")
def leaking(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("leaking")
    write_leaking(root, train=24, val=7)
    return root


def test_the_pairs_are_shown_side_by_side(leaking, tmp_path):
    require_pairs_side_by_side("leaks", leaking, tmp_path)


def require_pairs_side_by_side(command, leaking, tmp_path):
    words = ["inspect", command, *IMAGES, f"-data_path={leaking}", f"-output={tmp_path}"]
    ended = succeeded(run_command([sys.executable, "-m", "paddlevit_dist", *words]))
    (line,) = (line for line in ended.out.splitlines() if line.startswith("leaks: "))
    assert "9 of 16 images of val are also in train (1 same file, 1 same content, 7 near duplicate)" in line
    listed = json.loads((tmp_path / "leaks.json").read_text())["pairs"]
    assert len(listed) == 9 and all(Path(row["train"]).is_file() for row in listed)
    assert Image.open(tmp_path / "leaks.png").width > 2 * 200
