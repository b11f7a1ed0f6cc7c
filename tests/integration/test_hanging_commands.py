"""A command of a test that hangs is ended with all that it has started, and fails its test."""

import pytest
from support.processes import left_behind, run_command


def test_a_process_in_another_session_does_not_hold_its_test(tmp_path):
    """The sleeping one has a session of its own and the output of its parent."""
    script = f"setsid bash -c 'echo $$ > {tmp_path}/pid; exec sleep 600' & sleep 600"
    with pytest.raises(AssertionError, match="ran longer than 5.0 s"):
        run_command(["bash", "-c", script], timeout=5.0)
    assert left_behind(int((tmp_path / "pid").read_text())) == []
