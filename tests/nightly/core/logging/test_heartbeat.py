"""A process that compiles a loop says so, once."""

import os
import subprocess
import sys

from support.processes import ROOT


def test_while_a_loop_is_compiled_the_line_says_so_and_a_cached_one_is_not_told(tmp_path):
    """In processes of their own, as a loop is compiled once in each."""
    (tmp_path / "loops.py").write_text(
        "from paddlevit_dist.core.runtime.compiled import compiled\n\n\n@compiled\ndef doubled(x):\n    return 2 * x\n"
    )
    script = (
        "from loops import doubled\nfrom paddlevit_dist.core.logging.progress import Heartbeat\nsaid = []\n"
        "with Heartbeat(said.append, quiet_seconds=0.0, poll_seconds=0.001).at('in epoch 1'):\n    doubled(3)\n"
        "print(any(line.startswith('still compiling, once (') for line in said))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT), *sys.path])}
    environment.pop("NUMBA_CACHE_DIR", None)
    runs = [subprocess.run([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE) for _ in range(2)]
    assert [run.stdout.decode().strip() for run in runs] == ["True", "False"]
