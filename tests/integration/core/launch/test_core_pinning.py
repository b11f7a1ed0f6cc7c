"""Processes of a real group get separate cores, with all their threads, and so do their loader processes."""

import os
import threading
from typing import Any

import numpy as np
import pytest
from support.processes import run_main, run_workers, succeeded

from paddlevit_dist.core.data.loader import DeviceLoader
from paddlevit_dist.core.data.sampler import SampleKey
from paddlevit_dist.core.launch import core_pinning, devices

CORES = len(os.sched_getaffinity(0))
needs_two_cores = pytest.mark.skipif(CORES < 2, reason="one core")


class Affinities:
    """Samples are the cores of the process that reads them."""

    def __len__(self) -> int:
        return 1

    def sample(self, index: int, generator: Any) -> np.ndarray:
        return np.array(sorted(os.sched_getaffinity(0)))

    def describe(self, index: int) -> str:
        return "cores"


def pin_and_read(requested: str) -> dict[str, Any]:
    """Pin this process; return what it says, the cores of all its threads and of its loader process."""
    waiting = threading.Event()
    threading.Thread(target=waiting.wait, daemon=True).start()
    line = core_pinning.pin(requested)
    threads = {tuple(sorted(os.sched_getaffinity(int(thread)))) for thread in os.listdir("/proc/self/task")}
    waiting.set()
    loader = DeviceLoader(
        Affinities(), [[SampleKey(1, 0, 0)]], lambda samples: {"cores": samples[0]}, num_workers=1, seed=0
    )
    (batch,) = loader
    found = {"line": line, "threads": threads, "loader": batch["cores"].tolist(), "usable": devices.cpu_cores()}
    core_pinning.apply(core_pinning.CoreShare(found["loader"][:1], found["loader"][-1:]))
    (batch,) = loader
    return {**found, "moved": batch["cores"].tolist()}


@needs_two_cores
def test_all_threads_of_a_process_are_pinned_and_loader_processes_with_them():
    found = succeeded(run_workers("integration.core.launch.test_core_pinning:pin_and_read", "always")).results
    for result in found:
        (own,) = result["threads"]
        assert result["loader"] == list(own) and result["usable"] == CORES
        assert result["line"].startswith("cores: each of 2 processes has ")
        assert result["moved"] == [own[-1]]
    (first,), (second,) = (result["threads"] for result in found)
    assert not set(first) & set(second) and len(first) + len(second) == CORES


@needs_two_cores
def test_a_run_tells_whether_its_cores_are_pinned(tmp_path):
    words = ["-cfg=vit_digits", "-ngpus=2", "-epochs=1", "-num_workers=1", "-batch_size=300"]
    for requested, said in (
        ("always", "cores: each of 2 processes has "),
        ("auto", "TRAIN.PIN_CORES auto: cores are not pinned: processes compute on CPUs"),
    ):
        ended = succeeded(run_main(*words, "TRAIN.PIN_CORES", requested, f"-output={tmp_path / requested}"))
        assert ended.out.count(said) == 1, ended.out
