"""What the audit of installed packages makes of pip-audit's answers."""

import importlib.util

import pytest
from support.processes import ROOT

spec = importlib.util.spec_from_file_location("audit", ROOT / "tools" / "audit.py")
audit = importlib.util.module_from_spec(spec)
spec.loader.exec_module(audit)

PACKAGES = [("numpy", "2.0"), ("pillow", "9.0")]
CLEAN = {"name": "numpy", "version": "2.0", "vulns": []}
BAD = {"name": "pillow", "version": "9.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["9.1"]}]}
SKIPPED = {"name": "pillow", "skip_reason": "Dependency not found"}


@pytest.mark.parametrize("answers, trouble, code, line", [
    ({PACKAGES[0]: CLEAN, PACKAGES[1]: {**BAD, "vulns": []}}, None, 0, "2 of 2 packages have no known"),
    ({PACKAGES[0]: CLEAN, PACKAGES[1]: BAD}, None, 1, "vulnerable: pillow==9.0: PYSEC-1; fixed by 9.1"),
    ({PACKAGES[0]: CLEAN, PACKAGES[1]: SKIPPED}, None, 3, "not looked up: pillow==9.0: Dependency not found"),
    ({PACKAGES[0]: CLEAN}, None, 3, "not looked up: pillow==9.0: no answer"),
    ({}, "no network", 3, "not looked up: numpy==2.0: no network"),
])  # fmt: skip
def test_what_could_not_be_looked_up_is_listed_and_not_counted_as_clean(answers, trouble, code, line):
    lines, found = audit.summarize(PACKAGES, answers, trouble)
    assert found == code and any(one.startswith(line) for one in lines)


def test_the_installed_packages_are_found_under_their_normal_names():
    names = [name for name, _ in audit.list_installed(None)]
    assert "numpy" in names and "pyyaml" in names and "paddlevit-dist" not in names
