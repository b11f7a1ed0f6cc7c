"""The environment a process must start with to be fast on a CPU, and the proof that it changes no results.

Two things are set for Paddle's CPU wheel. Its MKL takes a slow path on AMD processors unless told which instruction set
to use, which is most of the gain (docs/benchmarks.md). And glibc's malloc returns every large tensor to the kernel,
which then has to zero the pages again for the next one. Libraries read such variables when they are loaded, and malloc
when the process starts, which can be told by a call, too. So the entry sets them before it imports Paddle or NumPy, and
spawned workers inherit them; where that is too late, it replaces itself with the same command.
"""

from __future__ import annotations

import ctypes
import os
import platform
import time
from typing import Any, Dict, Mapping, Optional

from ..environment import restart
from . import devices, in_process

_MARK = "PADDLEVIT_DIST_ENVIRONMENT"  # set in a process started with the environment below

_MALLOC = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
    "MALLOC_TOP_PAD_": str(64 << 20),
}

_QUIET = {
    "GLOG_minloglevel": "2",  # lines of the rendezvous store
    "PYTHONWARNINGS": "ignore::UserWarning:paddle.utils.cpp_extension.extension_utils,"  # "no ccache found"
    "ignore::UserWarning:paddle.nn.layer.norm,"  # batch normalisation announces its usual behaviour
    "ignore:You are using GPU version Paddle:UserWarning",  # on a CPU: the process plan already reports this
}


def processor() -> Dict[str, Any]:
    """Vendor, model name and instruction-set flags of the CPU, empty where the system does not report them."""
    info: Dict[str, Any] = {"vendor": "", "model": platform.processor(), "flags": []}
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            fields = dict(line.split(":", 1) for line in lines.read().split("\n\n")[0].splitlines() if ":" in line)
    except OSError:
        return info
    fields = {name.strip(): value.strip() for name, value in fields.items()}
    info["vendor"] = fields.get("vendor_id", "")
    info["model"] = fields.get("model name", info["model"])
    info["flags"] = fields.get("flags", "").split()
    return info


def math_kernels(cpu: Mapping[str, Any]) -> Optional[str]:
    """The MKL_DEBUG_CPU_TYPE that selects this processor's own instruction set, or None to leave MKL alone."""
    if cpu["vendor"] != "AuthenticAMD":
        return None
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= set(cpu["flags"]):
        return "7"
    return "5" if "avx2" in cpu["flags"] else None


def environment(processes: int, tuned: bool, current: Mapping[str, str]) -> Dict[str, str]:
    """Variables to add for ``processes`` processes on this machine, except those the user has set."""
    threads = str(max(1, devices.cpu_cores() // processes))
    wanted = {"FLAGS_paddle_num_threads": threads, **_QUIET}
    if threads == "1":  # Paddle warns about any other value
        wanted["OMP_NUM_THREADS"] = threads
    if tuned:
        if platform.libc_ver()[0] == "glibc":
            wanted.update(_MALLOC)
        kernels = math_kernels(processor())
        if kernels:
            wanted["MKL_DEBUG_CPU_TYPE"] = kernels
    return {name: value for name, value in wanted.items() if name not in current}


def restart_with_environment(requested_processes: int, tuned: bool) -> None:
    """Give this process, once, the environment above. Call before importing Paddle. Where something that has read these
    variables is imported already, the process is replaced with the same command."""
    if _MARK in os.environ:
        return
    added = environment(devices.expected_processes(requested_processes), tuned, os.environ)
    os.environ.update(added)
    os.environ[_MARK] = ",".join(sorted(added))
    if not in_process.take_effect(added):
        restart()


def give_back_memory() -> None:
    """Return this process's unused heap to the kernel: the variables above keep malloc from doing so itself."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):  # glibc
        library.malloc_trim(0)


def settings() -> Dict[str, str]:
    """The tuning variables in effect in this process, and which of them we set."""
    names = ["FLAGS_paddle_num_threads", "OMP_NUM_THREADS", "MKL_DEBUG_CPU_TYPE", *_MALLOC]
    in_force = {name: os.environ[name] for name in names if name in os.environ}
    in_force["set_by_us"] = os.environ.get(_MARK, "")
    return in_force


def check_product(size: int = 512) -> Dict[str, float]:
    """Time one float32 matrix product and compare it with float64, to prove that the chosen kernels are correct.

    Returns:
        ``gigaflops`` of the fastest of five products on this process's threads, and ``relative_error``, the largest
        deviation from the float64 product divided by its largest entry.
    Raises:
        RuntimeError: the product is wrong (relative error above 1e-4).
    """
    import numpy as np
    import paddle

    generator = np.random.default_rng(0)
    left, right = (generator.standard_normal((size, size)).astype(np.float32) for _ in range(2))
    a, b = paddle.to_tensor(left), paddle.to_tensor(right)
    seconds = []
    for _ in range(6):  # the first loads the kernels
        started = time.perf_counter()
        product = paddle.matmul(a, b).numpy()
        seconds.append(time.perf_counter() - started)
    exact = left.astype(np.float64) @ right.astype(np.float64)
    error = float(np.abs(product - exact).max() / np.abs(exact).max())
    if not error < 1e-4:
        raise RuntimeError(
            f"a {size}x{size} float32 product is off by {error:.1e} with {settings()}; "
            "run with CPU_TUNING False and report this processor"
        )
    return {"gigaflops": round(2 * size**3 / min(seconds[1:]) / 1e9, 1), "relative_error": error}
