"""A command of a test that hangs is ended with all that it has started, and fails its test."""

import os
import sys

import pytest
from support.processes import run_command, session_members

# The grandchild has a session of its own and the output of its parent.
HANGS = """
import subprocess, sys, time
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
open(sys.argv[1], "w").write(str(child.pid))
time.sleep(600)
"""


@pytest.mark.parametrize("is_copy", [False, True])
def test_a_process_in_another_session_does_not_hold_its_test(tmp_path, is_copy):
    with pytest.raises(AssertionError, match="ran longer than 3 s"):
        run_command([sys.executable, "-c", HANGS, str(tmp_path / "pid")], timeout=3, is_copy=is_copy)
    child = int((tmp_path / "pid").read_text())
    assert child != os.getpid() and session_members(child) == []
