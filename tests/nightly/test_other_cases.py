"""The cases of unit tests that do not run by day; see ``support/night.py``."""

import sys

import pytest
from support.night import AT_NIGHT
from support.processes import ROOT, run_command

FILES: dict[str, list[str]] = {}  # by folder, such as images/data
for _file in sorted((ROOT / "tests" / "unit").rglob("test_*.py")):
    if "@by_day(" in _file.read_text(encoding="utf-8"):
        FILES.setdefault("/".join(_file.relative_to(ROOT / "tests" / "unit").parts[:-1][:2]), []).append(str(_file))


@pytest.mark.parametrize("folder", FILES)
def test_other_cases_pass(folder):
    words = ["-m", "pytest", "-q", "-m", "by_day", "-p", "no:cacheprovider", *FILES[folder]]
    ended = run_command([sys.executable, *words], timeout=1200.0, **{AT_NIGHT: "1"})
    assert ended.code == 0, ended.out[-4000:]
