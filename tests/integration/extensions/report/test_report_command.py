"""The command writes a report where it is told to."""

import sys

from support.processes import ROOT, run_command
from support.trainings.report_runs import Page, write_run


def test_the_command_writes_where_it_is_told_to(tmp_path):
    one, two = write_run(tmp_path / "a"), write_run(tmp_path / "b")
    target = tmp_path / "new" / "both.html"
    command = [sys.executable, "-m", "paddlevit_dist", "report", str(one), str(two), f"-output={target}"]
    ended = run_command(command, folder=ROOT)
    assert ended.code == 0 and "both.html" in ended.out, ended
    assert Page(target.read_text(encoding="utf-8")).text
