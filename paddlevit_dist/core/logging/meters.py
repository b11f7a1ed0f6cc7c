"""Meters of training: terms of the loss, memory, and time spent waiting for data."""

import math
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ..distributed import rank, reduce_dict, world_size
from ..runtime import device_kinds

_MIB = 1 << 20
_SCAN_SECONDS = 1.0  # between scans of all processes, which take some milliseconds
_scanned_at = -math.inf
_memory: float | None = None
_LARGE_SHARE = 0.1  # of the time
_WARMUP_REPORTS = 2  # while loader processes start and fill their buffers
_WORTH_SECONDS = 5.0  # a shorter wait is not worth a hint


class StepMeters:
    """Sums and counts of the terms of training steps; nothing leaves the device before ``reduce``.

    A mean is undefined, and omitted, if its term is only reported (without a weight) and has no elements, or a sum
    that is not finite: only what is learned can diverge.
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self._reported: set[str] = set()  # terms without a weight
        self._sums: paddle.Tensor | None = None  # (terms,) float64
        self._device_counts: paddle.Tensor | None = None  # (terms,) float64, for counts that are tensors
        self._host_counts: list[float] = []
        self._epoch_sums: dict[str, float] = {}
        self._epoch_counts: dict[str, float] = {}

    def add(self, terms: dict[str, Any]) -> None:
        """Add one micro-batch's terms (see ``tasks.task.LossTerm``)."""
        if not self._names:
            self._names = list(terms)
            self._reported = {name for name, term in terms.items() if term.weight == 0}
            self._host_counts = [0.0] * len(self._names)
        # One stacked vector for all terms: a few small operations per step, regardless of their number.
        sums = paddle.stack([terms[name].sum.detach().astype("float32") for name in self._names]).astype("float64")
        self._sums = sums if self._sums is None else self._sums + sums
        counts = [terms[name].count for name in self._names]
        on_device = [number if isinstance(number, paddle.Tensor) else None for number in counts]
        if any(number is not None for number in on_device):
            zero = paddle.zeros([], dtype="float64")
            extra = paddle.stack([zero if c is None else c.detach().astype("float64").reshape([]) for c in on_device])
            self._device_counts = extra if self._device_counts is None else self._device_counts + extra
        for position, count in enumerate(counts):
            if on_device[position] is None:
                self._host_counts[position] += count

    def reduce(self) -> dict[str, float]:
        """Return means over all ranks since the last call, equal on each; one collective. Every rank must call this.

        They are empty if nothing was added.
        """
        if self._sums is None:
            return {}
        counts = paddle.to_tensor(self._host_counts, dtype="float64")
        if self._device_counts is not None:
            counts = counts + self._device_counts
        totals = reduce_dict({"sums": self._sums, "counts": counts}, average=False)
        sums, counts = totals["sums"].numpy().tolist(), totals["counts"].numpy().tolist()
        for name, term_sum, count in zip(self._names, sums, counts):
            self._epoch_sums[name] = self._epoch_sums.get(name, 0.0) + term_sum
            self._epoch_counts[name] = self._epoch_counts.get(name, 0.0) + count
        self._sums, self._device_counts = None, None
        self._host_counts = [0.0] * len(self._names)
        return self._divide(dict(zip(self._names, sums)), dict(zip(self._names, counts)))

    def finish_epoch(self) -> dict[str, float]:
        """Return means since the last call of this method, over all values of ``reduce``."""
        means = self._divide(self._epoch_sums, self._epoch_counts)
        self._epoch_sums, self._epoch_counts = {}, {}
        return means

    def _divide(self, sums: dict[str, float], counts: dict[str, float]) -> dict[str, float]:
        """Return the means that are defined."""
        return {
            name: total / counts[name] if counts[name] else 0.0
            for name, total in sums.items()
            if name not in self._reported or (counts[name] and math.isfinite(total))
        }

    def window(self) -> list[list[float]]:
        """Return the values added on this rank since the last ``reduce``; empty if there were none.

        They are sums, counts on the host and counts on the device, by term. Waits for the device.
        """
        if self._sums is None:
            return []
        device_counts = self._device_counts
        on_device = [0.0] * len(self._names) if device_counts is None else device_counts.numpy().tolist()
        return [self._sums.numpy().tolist(), list(self._host_counts), on_device]

    def state_dict(self, windows: list[list[list[float]]]) -> dict[str, Any]:
        """Return plain numbers for the checkpoint, equal on every rank, from the ``window`` of each rank."""
        epoch_state = {"sums": dict(self._epoch_sums), "counts": dict(self._epoch_counts)}
        names = {"names": list(self._names), "reported": sorted(self._reported)}
        return {**names, **epoch_state, "windows": windows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a ``state_dict``; with another number of ranks, rank 0 gets the sum of all windows."""
        self._names, self._reported = list(state["names"]), set(state.get("reported", ()))
        self._epoch_sums, self._epoch_counts = dict(state["sums"]), dict(state["counts"])
        windows = state["windows"]
        if len(windows) != world_size():
            together = np.sum([window for window in windows if window], axis=0).tolist() if any(windows) else []
            windows = [together, *([[]] * (world_size() - 1))]
        nothing = [[0.0] * len(self._names)] * 3  # all ranks reduce if one has values
        sums, on_host, on_device = windows[rank()] or nothing
        self._host_counts = list(on_host)
        if any(windows):
            self._sums = paddle.to_tensor(sums, dtype="float64")
            self._device_counts = paddle.to_tensor(on_device, dtype="float64") if any(on_device) else None


def memory_mib() -> float | None:
    """Return the memory in use in MiB, without waiting for a device; None if the system does not report it.

    On an accelerator, it is the maximum that Paddle has allocated on this process's device; otherwise the resident
    memory of the run's processes on this machine, including loader processes.
    """
    if (allocated := device_kinds.max_allocated_bytes()) is not None:
        return round(allocated / 2**20, 1)
    global _scanned_at, _memory
    if time.monotonic() - _scanned_at > _SCAN_SECONDS:
        spawned = multiprocessing.parent_process() is not None  # then other ranks are children of the same process
        _memory, _scanned_at = resident_mib(os.getppid() if spawned else os.getpid()), time.monotonic()
    return _memory


def resident_mib(root: int) -> float | None:
    """Return the resident memory in MiB of the process ``root`` and its descendants.

    Shared memory, such as libraries, counts for the first only; memory that a fork still shares with its parent counts
    for both.
    """
    pages = 0
    for number, process in enumerate(list_process_tree(root)):
        try:
            resident, shared = map(int, Path(f"/proc/{process}/statm").read_bytes().split()[1:3])
        except (OSError, ValueError):  # it has just ended, or the system has no such file
            continue
        pages += resident - (shared if number else 0)
    return round(pages * os.sysconf("SC_PAGE_SIZE") / _MIB, 1) if pages else None


def list_process_tree(root: int) -> Iterator[int]:
    """Return the ids of a process and of all its descendants."""
    yield root
    try:
        for thread in os.listdir(f"/proc/{root}/task"):
            for child in Path(f"/proc/{root}/task/{thread}/children").read_bytes().split():
                yield from list_process_tree(int(child))
    except OSError:
        return


class DataWaitHint:
    """Gives one hint when training waits for data for more than a tenth of the time.

    Args:
        workers: loader processes of each training process.
        processes: training processes of this machine.
        cores: cores that the processes share.
        advice: other ways to speed up loading.
    """

    def __init__(self, workers: int, processes: int, cores: int, advice: Sequence[str]) -> None:
        self._workers = workers
        self._processes = processes
        self._cores = cores
        self._advice = advice
        self._reports = 0
        self._seconds = self._waited = 0.0
        self._is_given = False

    def update(self, share: float, seconds: float) -> str | None:
        """Add a report; return the hint, or None. Of the ``seconds`` since the last, ``share`` was spent waiting."""
        self._reports += 1
        if self._is_given or self._reports <= _WARMUP_REPORTS:
            return None
        self._seconds += seconds
        self._waited += share * seconds
        if self._waited < _WORTH_SECONDS or self._waited <= _LARGE_SHARE * self._seconds or share <= _LARGE_SHARE:
            return None
        self._is_given = True
        waited = f"hint: {self._waited / self._seconds:.0%} of the time is spent waiting for data (more than 10%)"
        return f"{waited}: {'; '.join([self._describe_workers(), *self._advice])}"

    def _describe_workers(self) -> str:
        each = f"{self._workers} loader process{'' if self._workers == 1 else 'es'}"
        each += " per training process" if self._processes > 1 else ""
        available = self._cores // self._processes - 1
        if available > self._workers:
            return f"try -num_workers={available} (now {each}, on {self._cores} cores)"
        return f"{each} and {self._processes} training process{'' if self._processes == 1 else 'es'} already share " + (
            f"{self._cores} core{'' if self._cores == 1 else 's'}"
        )
