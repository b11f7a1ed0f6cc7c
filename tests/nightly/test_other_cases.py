"""The cases of unit tests that do not run by day; see ``support/night.py``."""

import sys

import pytest
from support.night import AT_NIGHT
from support.processes import ROOT, run_command

FILES = [file for file in sorted((ROOT / "tests/unit").rglob("test_*.py")) if "@by_day(" in file.read_text("utf-8")]


@pytest.mark.parametrize("file", FILES, ids=[str(file.relative_to(ROOT / "tests/unit")) for file in FILES])
def test_other_cases_pass(file):
    words = ["-m", "pytest", "-q", "-m", "by_day", "-p", "no:cacheprovider", str(file)]
    ended = run_command([sys.executable, *words], timeout=900.0, **{AT_NIGHT: "1"})
    assert ended.code == 0, ended.out[-4000:]
