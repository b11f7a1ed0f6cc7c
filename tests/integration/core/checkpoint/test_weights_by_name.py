"""Processes that start together share one copy of weights by name."""

import subprocess
import sys

from support.hosts.hubs import NAME


def test_processes_that_start_together_read_the_same(hub):
    program = (
        f"from paddlevit_dist.core.checkpoint.weights import read_weights as r; print(r('{NAME}').state['a'].sum())"
    )
    both = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=600)[0].strip() for process in both] == ["1249975000.0"] * 2
