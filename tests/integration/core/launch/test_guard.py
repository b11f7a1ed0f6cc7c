"""A process beside a rank ends it where it can run no Python, and lets it go on where all were suspended together."""

import os
import signal
import sys
import time

from support.processes import HANG_SECONDS, ended_by_itself, session_members, start_command, wait_until

BEGIN = "import ctypes, os, signal, sys; from paddlevit_dist.core.launch.guard import Guard; guard = Guard(3, 0.5); "
BEGIN += "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); "


def ending(program: str):
    return ended_by_itself(start_command([sys.executable, "-c", BEGIN + program]), HANG_SECONDS)


def test_a_stopped_process_is_killed_and_named():
    ended = ending("os.kill(os.getpid(), signal.SIGSTOP)")
    assert ended.code == -signal.SIGKILL
    last = ended.err.strip().splitlines()[-1]
    assert last.startswith("error: rank 3 failed: it has run no Python for ") and "WATCHDOG_SECONDS" in last


def test_a_process_that_keeps_pythons_lock_shows_its_stack_and_is_killed():
    ended = ending("[ctypes.PyDLL(None).sleep(1000) for _ in range(3)]")  # a signal ends one
    assert ended.code == -signal.SIGKILL
    assert "most recent call first" in ended.err and "error: rank 3 failed: it has run no Python" in ended.err


def test_one_that_closes_it_goes_on():
    ended = ending("guard.close(); import time; time.sleep(5.0); guard.signal_alive(); print('done')")
    assert (ended.code, ended.out) == (0, "done\n"), ended.err


def test_processes_that_were_suspended_together_go_on():
    waits = "print('ready', flush=True); signal.sigwait([signal.SIGTERM])"
    process = start_command([sys.executable, "-c", BEGIN.replace("0.5", "4.0") + waits])
    assert process.stdout.readline() == "ready\n"
    wait_until(lambda: len(session_members(process.pid)) == 2, "no guard", process=process)
    members = session_members(process.pid)
    for member in members:
        os.kill(member, signal.SIGSTOP)
    time.sleep(9.0)  # longer than it lets one live that is stopped alone
    for member in members:
        os.kill(member, signal.SIGCONT)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert ended_by_itself(process, HANG_SECONDS).code == 0
