"""A loader process that is stopped or killed ends the run promptly and with the reason."""

import os
import signal
import time

from integration.core.commands.loader_processes import end, require_end_after_a_kill, start_training

SECONDS = 4.0  # for a batch


def test_a_stopped_loader_process_ends_the_run_after_the_timeout(tmp_path):
    process, loader = start_training(tmp_path, SECONDS)
    stopped = time.monotonic()
    os.kill(loader, signal.SIGSTOP)
    err = end(process)
    assert time.monotonic() - stopped >= SECONDS
    assert err.splitlines() == [
        f"error: no batch arrived for {SECONDS:g} s (DATA.LOADER_TIMEOUT_SECONDS); "
        f"loader processes: {loader} T (stopped)"
    ]


def test_a_killed_loader_process_ends_the_run_with_the_signal(tmp_path):
    require_end_after_a_kill(tmp_path, 2, "error: rank 1 failed: ")
