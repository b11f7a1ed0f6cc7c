"""Callbacks of a command: the example of the page, and what is told before a run."""

import json
import re
import sys

import pytest
from support.processes import ROOT, run_command
from support.runs import DIGITS, refused

from paddlevit_dist import Callback, UserError, register_callback
from paddlevit_dist.logging.callbacks import callbacks_of


def events(output, kind):
    lines = map(json.loads, (output / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == kind]


class Wants(Callback):
    requires = {"no_such_module": "no-such-package"}


def test_a_missing_package_and_an_unknown_name_are_told_before_the_run(tmp_path):
    register_callback("wants", Wants)
    with pytest.raises(UserError, match="LOG_TO wants: not installed; python -m pip install no-such-package"):
        callbacks_of(["wants"])
    assert "callback 'tensorbord' is not known: did you mean 'tensorboard'" in refused(
        *DIGITS, f"-output={tmp_path / 'a'}", "-log_to=tensorbord"
    )


def test_the_example_of_the_page_runs_as_it_is_printed(tmp_path):
    page = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
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
