"""Each extension, and each task folder but classification, can be deleted: what it adds is unknown then, and everything
else is as before."""

import re
import sys

from support.hosts.copies_without import FOLDERS, UNKNOWN, in_a_copy_without
from support.processes import ROOT, run_command
from support.trainings.runs import read_events


def test_without_all_extensions_one_trains_evaluates_and_predicts(tmp_path):
    """At night without each of them alone."""
    unknown = {words: said for folder in FOLDERS for words, said in UNKNOWN[folder].items()}
    ended = in_a_copy_without(" ".join(FOLDERS), tmp_path, words=unknown)
    assert ended.code == 0, ended.err
    events = read_events(tmp_path / "run")
    assert [event["update"] for event in events if event["kind"] == "training"] == [2]
    assert "top-1 " in ended.out and (tmp_path / "found").is_dir()
    assert not (tmp_path / "run/report.html").exists()
    for words, said in unknown.items():
        assert f"{words}: {said}" in ended.out


def test_a_batch_and_an_evaluation_enter_nothing_that_has_nothing_to_do():
    ended = run_command([sys.executable, str(ROOT / "tools" / "walk.py"), "-v"], is_copy=False)
    assert ended.code == 0, ended.err
    batch, _, evaluation = ended.out.partition("batch: ")[2].partition("evaluate: ")
    entered = list_files(evaluation)
    assert "core/inference/evaluation.py" in entered and "core/intervals/scores.py" in entered
    assert {file for file in entered if file.startswith("extensions/")} == {"extensions/cpu_kernels/accelerate.py"}
    assert not {"core/launch/rendezvous.py", "core/launch/gpu.py", "core/engine/rank_comparison.py"} & entered
    settings = {file for file in list_files(ended.out) if file.endswith("/settings.py")}
    assert settings == {"core/engine/settings.py", "images/settings.py", "images/classification/settings.py"}
    entered = list_files(batch)
    assert {"core/data/loader.py", "core/engine/step.py"} <= entered
    assert not [file for file in entered if file.startswith("extensions/")]  # compiled layers are disabled there


def list_files(walk):
    """Return the files of the functions in lines such as "      2 core/engine/step.py:283 _wait_for_ranks"."""
    return set(re.findall(r"^ +[\d,]+ (\S+):\d+ \w+$", walk, re.MULTILINE))
