"""Memory is that of a process and all that it has started."""

import os
import subprocess
import sys

from paddlevit_dist.logging.meters import resident_mib

CHILD = "import sys; held = b'x' * (200 << 20); print('ready', flush=True); sys.stdin.read()"


def test_a_child_of_a_child_counts():
    before = resident_mib(os.getpid())
    command = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"
    child = subprocess.Popen([sys.executable, "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    during = resident_mib(os.getpid())
    child.communicate(b"")
    assert 200 < during - before < 300
    assert resident_mib(2**22 + 1) is None  # larger than any process's number
