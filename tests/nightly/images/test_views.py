"""A training whose evaluations have several views of an image, and its exported model."""

import pytest
from integration.images.test_views import COMMAND, WORDS
from support.processes import run_command, run_main
from support.trainings.runs import last_line, read_events, well, write_images

from paddlevit_dist import UserError
from paddlevit_dist.extensions.export.command import run as export


def test_a_training_run_chooses_its_best_checkpoint_by_the_views_and_cannot_be_exported_with_them(tmp_path):
    folder = tmp_path
    write_images(folder / "data", 8, 5)
    words = [*WORDS, f"-data_path={folder}/data", "-image_size=16x24", "-ngpus=2", f"-output={folder}/trained"]
    ended = well(run_main(*words, "DATA.TEST_VIEWS", "[mirrored]", "REPORT", "True"))
    assert "(mean of 2 views: mirrored) (best top-1)" in ended.out
    with pytest.raises(UserError, match=r"^export: DATA.TEST_VIEWS \['mirrored'\].*computes one view of an image: add"):
        export([str(folder / "trained"), str(folder / "exported")])
    export([str(folder / "trained"), str(folder / "exported"), "DATA.TEST_VIEWS", "[]", "DATA.TEST_SCALES", "[1.0]"])
    flags = [f"-cfg={folder}/trained/config.yaml", f"-data_path={folder}/data", f"-output={folder}/scored"]
    ended = well(run_command([*COMMAND, "evaluate", f"{folder}/exported", *flags, "-ngpus=1"], timeout=600))
    assert "(mean of 2 views: mirrored)" in last_line(ended) and "0 of 10 images have another answer" in ended.out
    scores = [read_events(folder / name)[-1] for name in ("trained", "scored")]
    assert scores[1]["trained_values"]["loss"] == pytest.approx(scores[0]["loss"], abs=1e-6)
