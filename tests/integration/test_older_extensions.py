"""Programs of users from before ``TableMetrics``, word for word: their metrics and kinds of scores work as before."""

import re
import sys
from pathlib import Path

import pytest
from support.processes import ROOT, run_command
from support.trainings.runs import last_line, well

PAGE = ROOT / "tests" / "support" / "hosts" / "older_extensions.md"
SMALL = ("-epochs=1", "-num_workers=0", "REPORT", "False")
INTERVAL = r"\[[\d.]+, [\d.]+\]"


def run_tool(folder, *words):
    return well(run_command([sys.executable, "-m", "paddlevit_dist", *words], folder=folder))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    found = tmp_path_factory.mktemp("programs")
    programs = re.findall(
        r"`([\w.]+)`:\n\n```\w+\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    for name, program in programs:
        (found / name).write_text(program, encoding="utf-8")
    assert [name for name, _ in programs] == ["counting.py", "counting.yaml", "worst_class.py", "paired.py"]
    return found


def test_a_score_from_counts_of_classes_chooses_the_checkpoint(folder):
    words = ("-cfg=vit_digits", "MODEL.DEPTH=1", "MODEL.EMBED_DIM=24", "TASK", "worst_class")
    ended = run_tool(folder, "train", "-import=worst_class.py", *words, *SMALL, "-ngpus=1", "-output=worst")
    assert re.fullmatch(
        rf"top-1 [\d.]+ {INTERVAL} top-5 [\d.]+ loss [\d.]+ worst class [\d.]+ \(last and best, epoch 1\)",
        last_line(ended),
    )
