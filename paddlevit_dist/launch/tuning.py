"""The environment a process must start with to be fast on a CPU, and the proof that it changes no results.

Three things are set for Paddle on a CPU. Its MKL takes a slow path on AMD processors unless told which instruction set
to use, which is most of the gain (docs/explanation/benchmarks.md). glibc's malloc returns large tensors to the kernel,
which then has to zero the pages again for the next one. And Paddle's views of a tensor (``transpose``, slices) are
read much more slowly by the operations after them than a copy is made. Libraries read such variables when they are
loaded, and malloc when the process starts, which can be told by a call, too. So the entry sets them before it imports
Paddle or NumPy, and spawned workers inherit them; where that is too late, it replaces itself with the same command.
"""

import contextlib
import ctypes
import functools
import os
import platform
import re
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..runtime import signals
from ..runtime.environment import paddle_version, restart
from ..runtime.processor import KERNELS, chose_in_time, forget_kernels, math_kernels, processor
from . import devices

_MARK = "PADDLEVIT_DIST_ENVIRONMENT"  # set in a process started with the environment below

# Of malloc; -1 is the largest size. Each with the parameter of mallopt(3) that its variable sets when a process starts.
_MALLOC = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1", "MALLOC_TOP_PAD_": str(64 << 20)}
_MALLOPT = {"MALLOC_MMAP_MAX_": -4, "MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_TOP_PAD_": -2}

_THREADS = "PADDLEVIT_DIST_THREADS"  # what OMP_NUM_THREADS becomes once Paddle is imported, see ``use_threads``

_OPENMP, _MKL = re.compile(r"/lib[gi]omp[^/]*$"), re.compile(r"/lib(mklml_intel|mkl_rt)[^/]*$")

_COPIES = "FLAGS_use_stride_kernel"  # 0: no operation returns a view of its argument

_PLAIN_LAYERS = "PADDLEVIT_DIST_PLAIN_LAYERS"  # 1: the fast layers of cpu_kernels/ compute nothing

# Of a product's largest deviation to its largest entry. Rounding normally distributed factors to the nearest of the 11
# significant bits of TF32 changes each by 0.42 x 2**-11 of itself (root mean square), and the sums of products by 0.60
# x 2**-11 = 2.9e-4 of their spread, however long they are; the largest of many deviations is to the largest of as many
# sums as spread is to spread. Seen: 2.9e-4 with 512 x 512 on an H100 and an H200, 3.4e-4 with 2,048 x 2,048, where
# float32 has 3e-7 and 2e-6, and factors of bfloat16 2.5e-3. The limits lie between.
TF32_LIMIT = 2.0**-10
FLOAT32_LIMIT = 1e-4

_QUIET = {
    "GLOG_minloglevel": "2",  # lines of the rendezvous store
    "PYTHONWARNINGS": "ignore::UserWarning:paddle.utils.cpp_extension.extension_utils,"  # "no ccache found"
    "ignore::UserWarning:paddle.nn.layer.norm,"  # batch normalization announces its usual behavior
    "ignore:You are using GPU version Paddle:UserWarning",  # on a CPU: the process plan already reports this
}


# What reads the variables of threads and kernels when it is loaded.
_READERS = ("numpy", "paddle", "numba")


def has_slow_views() -> bool:
    """Whether the installed Paddle makes views that are better replaced by copies: on CPUs, from 2.6 to 3.

    With the flag below, ``transpose`` and slices copy. On an AMD EPYC (Zen 4) with Paddle 3.3 a training step of ViT-Ti
    is 1.4 times as fast, its evaluation 1.7 times. On a GPU views are worth having.
    """
    if devices.expected_gpus():
        return False
    return (paddle_version() or "").startswith(("2.6.", "3."))


def environment(processes: int, tuned: bool, current: Mapping[str, str]) -> dict[str, str]:
    """Variables to add for ``processes`` processes on this machine, except those the user has set."""
    threads = str(max(1, devices.cpu_cores() // processes))
    wanted = {"FLAGS_paddle_num_threads": threads, **_QUIET}
    if threads == "1":
        wanted["OMP_NUM_THREADS"] = threads
    elif tuned and "OMP_NUM_THREADS" not in current and not devices.expected_gpus():
        wanted[_THREADS] = threads
        wanted["KMP_BLOCKTIME"] = "1"  # ms that a thread without work spins, in the way of others; 200 if not set
        wanted["OPENBLAS_NUM_THREADS"] = "1"  # NumPy's: loader processes, of which each would take all cores
    if tuned:
        if platform.libc_ver()[0] == "glibc":  # elsewhere a single process works, too
            wanted.update(_MALLOC)
        kernels = math_kernels(processor())
        if kernels:
            wanted[KERNELS] = kernels
        if has_slow_views():
            wanted[_COPIES] = "0"
    else:
        wanted[_PLAIN_LAYERS] = "1"
    return {name: value for name, value in wanted.items() if name not in current}


def restart_with_environment(requested_processes: int, tuned: bool, device: str = "auto") -> None:
    """Give this process, once, the environment above, and import Paddle. Where something that has read these variables
    is imported already, the process is replaced with the same command."""
    devices.hide_gpus(device)
    forget_kernels()
    if _MARK not in os.environ:
        added = environment(devices.expected_processes(requested_processes), tuned, os.environ)
        os.environ.update(added)
        os.environ[_MARK] = ",".join(sorted(added))
        if not take_effect(added):
            restart()
    import_paddle()


@contextlib.contextmanager
def environment_of_call(requested_processes: int, tuned: bool) -> Iterator[list[str]]:
    """For a program that calls a run: Paddle is imported, and the environment above is there while the block runs.

    Yields:
        A line where Paddle was imported without it, so that its threads or kernels may be others by now.
    """
    global _is_set_for_calls
    before = dict(os.environ)
    forget_kernels()
    added = environment(devices.expected_processes(requested_processes), tuned, os.environ)
    is_late = "paddle" in sys.modules
    _is_set_for_calls = _is_set_for_calls or not is_late
    late = [] if _is_set_for_calls else sorted({_THREADS, *(() if chose_in_time() else (KERNELS,))} & added.keys())
    os.environ.update(added, **{_MARK: before.get(_MARK, ",".join(sorted(added)))})
    try:
        import_paddle()
        import paddle

        views = paddle.get_flags([_COPIES])
        if is_late and _COPIES in added:
            paddle.set_flags({_COPIES: False})
        told = (
            "note: Paddle was imported before this call: if it has computed, it keeps its threads and kernels, and last"
        )
        try:
            yield [f"{told} digits may differ from the command's: import it afterwards"] if late else []
        finally:
            paddle.set_flags(views)
    finally:
        os.environ.clear()
        os.environ.update(before)


_is_set_for_calls = False


def import_paddle() -> None:
    """Import Paddle while signals wait, and NumPy with it, whose threads then leave them to the main one for good."""
    with signals.blocked():
        import paddle  # noqa: F401

        signals.install_again()


def before(current: Mapping[str, str]) -> dict[str, str]:
    """The variables without those that ``restart_with_environment`` has added: for a process that adds its own."""
    ours = {_MARK, *current.get(_MARK, "").split(",")}
    return {name: value for name, value in current.items() if name not in ours}


def take_effect(added: Mapping[str, str]) -> bool:
    """Do what these variables, which have just been set, would have done at the process's start.

    Returns:
        False if that is not possible any more. The process is to be replaced then.
    """
    if any(name in sys.modules for name in _READERS):
        return False
    for name in added.keys() & _MALLOPT:
        if ctypes.CDLL(None).mallopt(_MALLOPT[name], int(added[name])) != 1:
            return False
    warnings._processoptions(filter(None, added.get("PYTHONWARNINGS", "").split(",")))  # type: ignore[attr-defined]
    return True


def use_threads() -> None:
    """Let Paddle's operations use the threads that the environment above has for them.

    Call after importing Paddle, which would complain about OMP_NUM_THREADS, and before its first operation, which reads
    the variable; FLAGS_paddle_num_threads does nothing for a product or an element-wise operation in 2.6 and 3.3.
    """
    if _THREADS in os.environ:
        os.environ["OMP_NUM_THREADS"] = os.environ[_THREADS]


def hide_threads() -> None:
    """Let processes that are started from here import Paddle in silence; they call ``use_threads`` themselves."""
    if _THREADS in os.environ:
        os.environ["OMP_NUM_THREADS"] = "1"


@contextlib.contextmanager
def one_thread_here() -> Iterator[None]:
    """Context in which the operations that the calling thread begins use no others: it is one of several that share the
    cores among themselves. MKL's own number, which MKL_NUM_THREADS sets, wins in its products over OpenMP's."""
    openmp = _find_loaded(_OPENMP)
    before = [library.omp_get_max_threads() for library in openmp]
    for library in openmp:
        library.omp_set_num_threads(1)
    mkl = [(library, library.MKL_Set_Num_Threads_Local(1)) for library in _find_loaded(_MKL)]
    try:
        yield
    finally:
        for library, threads in zip(openmp, before):
            library.omp_set_num_threads(threads)
        for library, threads in mkl:
            library.MKL_Set_Num_Threads_Local(threads)


@functools.cache
def _find_loaded(names: re.Pattern[str]) -> list[ctypes.CDLL]:
    """The libraries of these names that this process has loaded."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text(encoding="utf-8", errors="replace").splitlines() if maps.exists() else []
    return [ctypes.CDLL(path) for path in sorted({line.split()[-1] for line in lines if names.search(line)})]


def give_back_memory() -> None:
    """Return this process's unused heap to the kernel: the variables above keep malloc from doing so itself."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):  # glibc
        library.malloc_trim(0)


def settings() -> dict[str, str]:
    """The tuning variables in effect in this process, and which of them we set."""
    names = ["FLAGS_paddle_num_threads", "OMP_NUM_THREADS", "KMP_BLOCKTIME", KERNELS]
    names += [_COPIES, _PLAIN_LAYERS, *_MALLOC]
    in_force = {name: os.environ[name] for name in names if name in os.environ}
    in_force["set_by_us"] = os.environ.get(_MARK, "")
    return in_force


def check_product(size: int = 512, device: str = "cpu", limit: float = FLOAT32_LIMIT) -> dict[str, float]:
    """Time one float32 matrix product, compare it with float64 and, on a CPU, with itself: the chosen kernels are
    correct, and the threads of this process share the work in the same way each time.

    Args:
        device: as ``paddle.set_device`` takes it.
        limit: of the relative error: ``TF32_LIMIT`` where the device may round factors to TF32.
    Returns:
        ``gigaflops`` of the fastest of five products on this device, and ``relative_error``, the largest deviation from
        the float64 product divided by its largest entry.
    Raises:
        RuntimeError: the product is wrong, or has other bits when it is repeated on the CPU.
    """
    import numpy as np
    import paddle

    from ..runtime import device_kinds

    is_on_cpu = device == "cpu"
    generator = np.random.default_rng(0)
    left, right = (generator.standard_normal((size, size)).astype(np.float32) for _ in range(2))
    place = device_kinds.get_place(device)
    a, b = paddle.to_tensor(left, place=place), paddle.to_tensor(right, place=place)
    seconds, products = [], []
    for _ in range(6):  # the first loads the kernels
        started = time.perf_counter()
        products.append(paddle.matmul(a, b).numpy())
        seconds.append(time.perf_counter() - started)
    product = products[0]
    if is_on_cpu and not all(np.array_equal(product, other) for other in products):
        raise RuntimeError(
            f"a {size}x{size} float32 product is not the same each time with {settings()}, so that no run could be "
            "repeated; run with OMP_NUM_THREADS=1 and report this processor"
        )
    exact = left.astype(np.float64) @ right.astype(np.float64)
    error = float(np.abs(product - exact).max() / np.abs(exact).max())
    if not error < limit:
        mend = "run with CPU_TUNING False and report this processor"
        mend = mend if is_on_cpu else "report this device, its driver and its libraries"
        raise RuntimeError(
            f"a {size}x{size} float32 product is off by {error:.1e} on {device} (at most {limit:.1e}) with "
            f"{settings()}; {mend}"
        )
    return {"gigaflops": round(2 * size**3 / min(seconds[1:]) / 1e9, 1), "relative_error": error}


def check_copies() -> None:
    """See that transposed and sliced tensors hold the right values and, where views are switched off, are copies.

    Raises:
        RuntimeError: a value is wrong, or a view was returned although there should be none.
    """
    import numpy as np
    import paddle

    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    tensor = paddle.to_tensor(values, place=paddle.CPUPlace())
    results = {
        "transpose": (tensor.transpose([2, 0, 1]), values.transpose(2, 0, 1)),
        "slice": (tensor[:, 1:, ::2], values[:, 1:, ::2]),
        "split": (tensor.split(2, axis=2)[1], values[:, :, 2:]),
    }
    is_copying = os.environ.get(_COPIES) == "0"
    for name, (result, expected) in results.items():
        is_right = np.array_equal(result.numpy(), expected) and np.array_equal((result + 0).numpy(), expected)
        if not is_right or (is_copying and not result.is_contiguous()):
            raise RuntimeError(
                f"Paddle {paddle.__version__} returns a wrong {name} with {settings()}; "
                "run with CPU_TUNING False and report this version"
            )
