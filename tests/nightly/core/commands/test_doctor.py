"""A whole checkup."""

import sys

from support.processes import run_command
from support.trainings.runs import PLAIN, TINY


def test_a_whole_checkup_finds_a_rate_that_teaches_nothing(tmp_path):
    words = [PLAIN, *TINY, "-dataset=digits", "-batch_size=32", "DATA.IMAGE_CHANNELS", "1", "-ngpus=2"]
    command = [sys.executable, "-m", "paddlevit_dist", "doctor", *words, "TRAIN.BASE_LR", "1e-9"]
    ended = run_command([*command, f"-output={tmp_path / 'run'}"])
    lines = {line.split()[1]: line for line in ended.out.splitlines() if line.startswith(("ok ", "failure "))}
    assert ended.code == 1 and [name for name, line in lines.items() if line.startswith("failure")] == ["a"], ended.out
    assert {"devices", "data", "labels"} < set(lines) and lines["a"].startswith("failure  a step")
    assert "ln(classes) is 2.303; after 20 updates" in lines["a"] and "the model does not learn" in lines["a"]
    assert abs(float(lines["a"].partition(": loss ")[2].split()[0]) - 2.3) < 0.3
    assert list(tmp_path.iterdir()) == []
