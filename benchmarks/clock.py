"""The clock of benchmarks that may run on a GPU: what has been asked of it is done when the clock is read.

A GPU computes behind the program's back, so the time between two readings would be that of asking. Needs nothing of
this repository: a peer's interpreter reads the same clock.
"""

import sys
import time
from collections.abc import Callable
from typing import Any


def now() -> float:
    """Seconds of ``time.perf_counter`` at which nothing is under way."""
    synchronize_device()
    return time.perf_counter()


def synchronize_device() -> None:
    """Wait for the GPU of this process, by the framework that it has loaded; a CPU's operations are done when they
    return."""
    framework = _on_gpu()
    if framework is not None:
        (framework.device.cuda if framework.__name__ == "paddle" else framework.cuda).synchronize()


def peak_bytes() -> int | None:
    """The most memory that tensors have held at once on this process's GPU; None: it computes on a CPU."""
    framework = _on_gpu()
    if framework is None:
        return None
    return int((framework.device.cuda if framework.__name__ == "paddle" else framework.cuda).max_memory_allocated())


def memory_bytes() -> dict[str, int]:
    """``memory_bytes`` of this process's GPU, and the most that the framework has ``reserved_bytes`` of it; none on a
    CPU."""
    framework = _on_gpu()
    if framework is None:
        return {}
    cuda = framework.device.cuda if framework.__name__ == "paddle" else framework.cuda
    total = cuda.get_device_properties(None if framework.__name__ == "paddle" else cuda.current_device()).total_memory
    return {"memory_bytes": int(total), "reserved_bytes": int(cuda.max_memory_reserved())}


def device_facts() -> dict[str, Any]:
    """``device``: its name, "CPU" where this process computes on one; ``framework`` with its version, ``cuda``'s."""
    framework = _on_gpu()
    loaded = framework or sys.modules.get("paddle") or sys.modules["torch"]
    facts = {"device": "CPU", "framework": f"{loaded.__name__} {loaded.__version__}", "cuda": "none"}
    if framework is None:
        return facts
    if framework.__name__ == "paddle":
        return {**facts, "device": framework.device.cuda.get_device_name(), "cuda": framework.version.cuda()}
    return {**facts, "device": framework.cuda.get_device_name(), "cuda": framework.version.cuda}


def _on_gpu() -> Any | None:
    """The framework by which this process computes on a GPU."""
    paddle, torch = sys.modules.get("paddle"), sys.modules.get("torch")
    if paddle is not None:
        return paddle if paddle.is_compiled_with_cuda() and paddle.get_device().startswith("gpu") else None
    return torch if torch is not None and torch.cuda.is_available() else None


def time_call(function: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds that a call takes, by the clock and of the processor."""
    started, busy = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - started, time.process_time() - busy
