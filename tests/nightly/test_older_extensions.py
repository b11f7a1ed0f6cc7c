"""Programs of users from before ``TableMetrics``: their metrics and kinds of scores are compared as before."""

import re

from integration.test_older_extensions import INTERVAL, SMALL, folder, run_tool  # noqa: F401
from support.trainings.runs import last_line


def test_runs_with_metrics_of_their_own_are_compared(folder):  # noqa: F811
    lines = []
    for program, task, options in (
        ("counting.py", "counting", ("-ngpus=2", "-output=plain")),
        ("paired.py", "paired_counting", ("-ngpus=2", "-output=one")),
        ("paired.py", "paired_counting", ("-ngpus=1", "-seed=1", "-output=two")),
    ):
        words = ("train", f"-import={program}", "-cfg=counting.yaml", *SMALL, *options, "TASK", task)
        lines.append(last_line(run_tool(folder, *words)))
    pattern = rf"mean error ([\d.]+) {INTERVAL} correct ([\d.]+) % \(last and best, epoch 1\)"
    error, correct = re.fullmatch(pattern, lines[1]).groups()
    assert lines[0] == f"mean error {error} correct {correct} % (last and best, epoch 1)"  # sums, without a table
    other = re.fullmatch(pattern, lines[2])[1]
    compared = run_tool(folder, "compare", "-import=paired.py", "one", "two").out
    assert re.search(rf"^one  {error} {INTERVAL}$", compared, re.MULTILINE), compared
    assert re.search(rf"^two  {other} {INTERVAL}  [+-][\d.]+ \[", compared, re.MULTILINE), compared
    assert re.search(r"^fixed \d+ ", compared, re.MULTILINE)
    planned = run_tool(folder, "compare", "-import=paired.py", "one", "-plan=0.05").out
    assert "one: 100 samples give +-" in planned
