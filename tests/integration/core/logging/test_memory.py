"""Memory is that of a process and all that it has started."""

import os
import queue
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from paddlevit_dist.core.logging.meters import list_process_tree, resident_mib

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


def test_children_of_all_threads_and_their_children_are_found():
    children, may_end = queue.Queue(), threading.Event()

    def start(_):
        command = ["sh", "-c", "sleep 600 & sleep 600 & echo begun; wait"]
        children.put(subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True))
        may_end.wait(60)

    with ThreadPoolExecutor(2) as pool:
        ended = [pool.submit(start, number) for number in range(2)]
        begun = []
        try:
            begun += [children.get(timeout=60) for _ in ended]
            assert [child.stdout.readline() for child in begun] == [b"begun\n"] * 2
            trees = {child.pid: list(list_process_tree(child.pid)) for child in begun}
            found = list(list_process_tree(os.getpid()))
        finally:
            may_end.set()
            for child in begun:
                os.killpg(child.pid, signal.SIGKILL)
                child.communicate()
    assert all(tree[0] == number and len(set(tree)) == 3 for number, tree in trees.items())
    assert {number for tree in trees.values() for number in tree} <= set(found) and found[0] == os.getpid()
