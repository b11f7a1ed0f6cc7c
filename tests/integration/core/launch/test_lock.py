"""A run that goes on has its output folder for itself, also where it has forked."""

import os
import signal
import subprocess
import sys

import pytest
from support.processes import run_main
from support.trainings.runs import DIGITS, refused

from paddlevit_dist import UserError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc and /dev/shm")
FORK_AND_WAIT = """
import os, sys, time
from pathlib import Path
from paddlevit_dist.core.launch.lock import lock_output_dir

with lock_output_dir(Path(sys.argv[1]), print, is_evaluation=False):
    child = os.fork()
    if child:
        print(child, flush=True)
    time.sleep(100)
"""


def test_a_running_one_is_named_unless_only_the_configuration_is_shown(tmp_path, take):
    take(tmp_path)
    before = sorted(tmp_path.iterdir())
    for words, advice in ((["-eval", "-resume=auto"], "for this evaluation"), ([], "for this training")):
        message = refused(f"-output={tmp_path}", *DIGITS, *words)
        assert f"-output={tmp_path} (SAVE) is in use by process {os.getpid()} on" in message
        assert advice in message
    assert sorted(tmp_path.iterdir()) == before
    assert run_main(f"-output={tmp_path}", *DIGITS, "-show_config").code == 0


def test_a_forked_process_does_not_keep_the_lock(tmp_path, take):
    holder = subprocess.Popen([sys.executable, "-c", FORK_AND_WAIT, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    child = int(holder.stdout.readline())
    try:
        with pytest.raises(UserError, match=f"process {holder.pid} on"):
            take(tmp_path)
        holder.kill()
        holder.wait()
        take(tmp_path)
        os.kill(child, 0)  # it lives, and had the file open
    finally:
        os.kill(child, signal.SIGKILL)
