"""The callback of the page."""

import re
import sys

from support.processes import ROOT, run_command
from support.trainings.runs import DIGITS, read_events


def events(output, kind):
    lines = read_events(output)
    return [line for line in lines if line["kind"] == kind]


def test_the_example_of_the_page_runs_as_it_is_printed(tmp_path):
    page = (ROOT / "docs" / "guides" / "running.md").read_text(encoding="utf-8")
    (program,) = [code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "Callback" in code]
    name = re.search(r"`(\w+\.py)`:\n\n```python\n[^`]*Callback", page)[1]
    (tmp_path / name).write_text(program, encoding="utf-8")
    words = [*DIGITS, "-epochs=2", "TRAIN.WARMUP_EPOCHS", "0", "-ngpus=2", "-log_to=csv", f"-output={tmp_path / 'out'}"]
    command = [sys.executable, str(tmp_path / name), *words]
    ended = run_command(command, folder=tmp_path)
    assert ended.code == 0, ended.err
    rows = (tmp_path / "out" / "scores.csv").read_text().splitlines()
    scores = [f"{event['epoch']},{event['top-1']}" for event in events(tmp_path / "out", "evaluation")]
    assert [re.sub(r"^(\d+),\d+,", r"\1,", row) for row in rows] == scores and len(rows) == 2
