"""Loader processes where none can be started: in a thread, and in a worker of a process pool."""

import multiprocessing
import threading

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.launch import devices, spawn
from paddlevit_dist.core.launch.devices import ProcessPlan


@pytest.fixture(autouse=True)
def not_told_yet():
    devices._log_once.cache_clear()


def test_a_thread_reads_itself_and_says_so_once(capfd):
    found = []
    for _ in range(2):
        thread = threading.Thread(
            target=lambda: found.append((devices.startable_loaders(3), devices.startable_loaders(0)))
        )
        thread.start()
        thread.join()
    assert found == [(0, 0), (0, 0)] and devices.startable_loaders(3) == 3
    line = "note: only the main thread can start loader processes: samples are read in a thread (DATA.NUM_WORKERS 0), "
    assert capfd.readouterr().err == f"{line}which may be slower\n"


def test_a_worker_of_a_pool_reads_itself_and_starts_no_run_of_several_processes(monkeypatch, capfd):
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    assert devices.startable_loaders(0) == 0 and not capfd.readouterr().err
    assert devices.startable_loaders(3) == 0
    assert "a worker of a process pool cannot start processes: samples are read" in capfd.readouterr().err
    with pytest.raises(UserError, match=r"2 processes \(NGPUS\): a worker of a process pool cannot start processes; "):
        spawn.launch_workers(print, (), ProcessPlan(2, "cpu", False, []))
