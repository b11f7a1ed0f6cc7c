"""The programs in docs/pointclouds.md and docs/sparse.md, extracted from the pages and run."""

import re
import shlex
import sys
from pathlib import Path

import pytest
from support.processes import ROOT, run_command

PAGE = (ROOT / "docs" / "pointclouds.md").read_text(encoding="utf-8")
(OWN_DATA,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SPARSE = (ROOT / "docs" / "sparse.md").read_text(encoding="utf-8")
TUTORIAL, CLASSIFICATION, COMPLETION, SEQUENCE = re.findall(r"```python\n(.*?)```", SPARSE, re.DOTALL)


def run(program: str, path: Path, *arguments: str) -> str:
    path.write_text(program)
    folders = f"{ROOT}:{path.parent}"
    ended = run_command([sys.executable, str(path), *arguments], timeout=200, PYTHONPATH=folders)
    assert ended.code == 0, ended.out + ended.err
    return ended.out + ended.err


@pytest.mark.parametrize("program", [TUTORIAL, CLASSIFICATION, SEQUENCE], ids=["tutorial", "classification", "4-D"])
def test_the_programs_for_sparse_tensors_learn(program, tmp_path):
    out = run(program, tmp_path / "program.py")
    assert float(re.search(r"accuracy ([\d.]+)", out)[1]) > 0.9


@pytest.mark.long
def test_half_spheres_are_completed(tmp_path):
    out = run(COMPLETION, tmp_path / "completion.py")
    assert float(re.search(r"IoU ([\d.]+)", out)[1]) > 0.7


def test_own_scenes_train_on_two_processes(tmp_path):
    command = re.search(r"python my_scenes\.py (.*?)\n```", PAGE, re.DOTALL)[1].replace("\\\n", " ")
    words = [word for word in shlex.split(command) if not word.startswith("-output")]
    assert len([line for line in OWN_DATA.splitlines() if line.startswith((" ", "class"))]) < 20
    out = run(OWN_DATA, tmp_path / "my_scenes.py", *words, f"-output={tmp_path / 'out'}")
    last = re.findall(r"^mIoU ([\d.]+) ", out, re.MULTILINE)[-1]
    assert float(last) > 0.8, out
    assert "IoU ball" in (tmp_path / "out" / "metrics.jsonl").read_text()
