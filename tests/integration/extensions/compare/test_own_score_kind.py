"""A task in a user's file, with a kind of scores of its own: its runs are searched, compared and planned."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from support.processes import ROOT, run_command

from paddlevit_dist.core.intervals.quantiles import student_quantile
from paddlevit_dist.extensions.compare.plan import plan_samples

COMMAND = [sys.executable, "-m", "paddlevit_dist"]
SETTINGS = [
    *("-ngpus=1", "-num_workers=0", "-epochs=2", "-batch_size=16", "TASK", "adding", "DATA.DATASET", "vectors"),
    *("MODEL.NAME", "summing", "TRAIN.WARMUP_EPOCHS", "0", "REPORT", "False"),
]


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """The user's file, and the folders of two trainings, which a search has ranked."""
    folder = tmp_path_factory.mktemp("own")
    file = folder / "scored_vectors.py"
    shutil.copyfile(ROOT / "tests" / "support" / "samples" / "scored_vectors.py", file)
    words = [*SETTINGS, "TRAIN.BASE_LR=0.3|0.35", "-trials=2", f"-output={folder / 'found'}", f"-import={file}"]
    ended = run_command([*COMMAND, "search", *words])
    assert ended.code == 0, ended.err
    assert "against the second, trial " in ended.out
    return file, [str(folder / "found" / name) for name in ("trial_0000", "trial_0001")]


def compare(words):
    ended = run_command([*COMMAND, "compare", *words])
    assert ended.code == 0, ended.err
    return ended.out


def read_errors(folder):
    with np.load(Path(folder, "scored_samples.npz")) as arrays:
        return arrays["errors"]


def test_runs_of_an_own_task_are_compared_as_slow_loops_do(searched):
    file, folders = searched
    (found,) = json.loads(compare([*folders, "-json", f"-import={file}"]))["comparisons"]
    first, second = map(read_errors, folders)
    number, value, difference = len(first), second.mean() - first.mean(), found["difference"]
    deviation = (second - first).std(ddof=1) / number**0.5  # of halves without repeats, but for their number
    reach = student_quantile(0.975, number - 1) * deviation
    ends = [difference["low"] - value, difference["high"] - value]
    assert difference["value"] == pytest.approx(value, rel=1e-4) and ends == pytest.approx([-reach, reach], rel=0.08)
    assert found["values"]["near"]["of_first"]["value"] == pytest.approx(100 * np.mean(first < 0.5), rel=1e-4)
    fixed, broken = ([row["sample"] for row in found[what]] for what in ("fixed", "broken"))
    assert fixed == [f"vector {1000 + row}" for row in np.flatnonzero((first >= 0.5) & (second < 0.5))]
    assert broken == [f"vector {1000 + row}" for row in np.flatnonzero((first < 0.5) & (second >= 0.5))]
    assert fixed or broken
    signs = np.random.default_rng(1).choice([-1, 1], (20_000, number))
    assert found["p"] == pytest.approx(
        np.mean(np.abs(signs @ (second - first)) >= abs(number * value) - 1e-9), abs=0.015
    )
    planned = json.loads(compare([*folders, "-plan=0.01", "-json", f"-import={file}"]))
    assert planned["half_width"] == pytest.approx(1.959964 * deviation, rel=0.08)
    assert planned["samples_needed"] == pytest.approx(plan_samples(number, planned["half_width_limit"], 0.01), rel=1e-3)


def test_without_its_module_an_own_task_is_refused_in_a_line_that_names_it(searched):
    file, folders = searched
    for words in (folders, [folders[0], "-plan=0.01"]):
        ended = run_command([*COMMAND, "compare", *words])
        assert ended.code == 2 and len(ended.err.splitlines()) == 1
        assert "the metrics of task adding have results of the kind 'errors of sums'" in ended.err
        assert f"add -import={file}, which has to call register_score_kind('errors of sums', ...)" in ended.err
        assert "damaged" not in ended.err
