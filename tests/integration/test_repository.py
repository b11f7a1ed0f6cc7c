"""What is committed."""

import subprocess

import pytest
from support.processes import ROOT

# A command that is tried in the project's folder leaves others there, such as ``predictions``.
FOLDERS = {".ci", ".github", "benchmarks", "configs", "docker", "docs", "examples", "paddlevit_dist", "tests", "tools"}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="it is not a clone")
def test_no_output_of_a_command_is_committed():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {path.partition("/")[0] for path in listed.splitlines() if "/" in path} == FOLDERS
