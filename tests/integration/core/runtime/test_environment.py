"""The interpreter of a command, seen from outside, in a process without Paddle."""

import sys

from support.processes import ROOT, run_command


def test_a_process_that_was_told_to_end_is_not_replaced(tmp_path):
    """The signal arrives while a module is imported, where it raises nothing."""
    lines = (
        "import signal",
        "from paddlevit_dist.core.runtime import environment",
        "signal.raise_signal(signal.SIGTERM)",
    )
    (tmp_path / "a_restart.py").write_text("\n".join([*lines, "environment.restart('/bin/true')"]))
    program = "from paddlevit_dist.core.runtime import signals\nwith signals.installed():\n    import a_restart"
    ended = run_command([sys.executable, "-c", program], folder=tmp_path, PYTHONPATH=f"{ROOT}:{tmp_path}")
    assert ended.code != 0 and ended.err.strip().endswith("ProcessInterrupted: SIGTERM"), ended
