"""The environment that makes a process fast on a CPU, and checks that it changes no results.

Paddle's MKL takes a slow path on AMD processors unless a variable names the instruction set; this is most of the gain
(docs/explanation/benchmarks.md). glibc's malloc returns every large tensor to the kernel, which then has to zero the
pages again. And operations read Paddle's views of a tensor (``transpose``, slices) much more slowly than a copy takes
to make. Libraries read such variables when they are loaded, malloc when the process starts or by a call. So the entry
point sets them before it imports Paddle or NumPy, and spawned workers inherit them; where that is too late, the process
replaces itself with the same command.
"""

import contextlib
import ctypes
import functools
import multiprocessing
import os
import platform
import re
import resource
import sys
import time
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from ..runtime import signals
from ..runtime.environment import paddle_version, restart
from ..runtime.printing import shown_briefly
from ..runtime.processor import KERNELS, math_kernels, processor
from . import devices

_MARK = "PADDLEVIT_DIST_ENVIRONMENT"  # set in a process started with the environment below

# Of malloc; -1 is the largest size. Below, the parameter of mallopt(3) for each variable.
_MALLOC = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1", "MALLOC_TOP_PAD_": str(64 << 20)}
_MALLOPT = {"MALLOC_MMAP_MAX_": -4, "MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_TOP_PAD_": -2}

_THREADS = "PADDLEVIT_DIST_THREADS"  # OMP_NUM_THREADS after Paddle's import, see ``use_threads``

OPENMP, MKL = re.compile(r"/lib[gi]omp[^/]*$"), re.compile(r"/lib(mklml_intel|mkl_rt)[^/]*$")

_COPIES = "FLAGS_use_stride_kernel"  # 0: no operation returns a view of its argument

_CHOSEN = "PADDLEVIT_DIST_KERNELS"  # value that ``choose_kernels`` has set MKL's variable to

_ENOUGH_FILES = 65536  # open at once; some programs try every number up to the limit

_PLAIN_LAYERS = "PADDLEVIT_DIST_PLAIN_LAYERS"  # 1: the fast layers of cpu_kernels/ are not used

# Of a product's largest deviation, relative to its largest entry. Rounding normally distributed factors to the nearest
# of the 11 significant bits of TF32 changes each by 0.42 x 2**-11 of itself (root mean square), and sums of products by
# 0.60 x 2**-11 = 2.9e-4 of their spread, independent of their length; the largest deviation relates to the largest
# sum like their spreads. Measured: 2.9e-4 with 512 x 512 on an H100 and an H200, 3.4e-4 with 2,048 x 2,048, where
# float32 has 3e-7 and 2e-6, and factors of bfloat16 2.5e-3. The limits are between these.
TF32_LIMIT = 2.0**-10
FLOAT32_LIMIT = 1e-4

_QUIET = {
    "GLOG_minloglevel": "2",  # lines of the rendezvous store
    "PYTHONWARNINGS": "ignore::UserWarning:paddle.utils.cpp_extension.extension_utils,"  # "no ccache found"
    "ignore::UserWarning:paddle.nn.layer.norm,"  # batch normalization's usual behavior
    "ignore:You are using GPU version Paddle:UserWarning",  # on a CPU: the process plan reports this
}


_READERS = ("numpy", "paddle", "numba")


def has_slow_views() -> bool:
    """Return whether the installed Paddle makes views that should be replaced with copies: on CPUs, from 2.6 to 3.

    With the flag below, ``transpose`` and slices copy: 1.4 times as fast in training of ViT-Ti on Zen 4. On a GPU
    views are faster.
    """
    if devices.expected_gpus():
        return False
    return (paddle_version() or "").startswith(("2.6.", "3.", "0.0.0"))  # 0.0.0: built from source


def environment(processes: int, tuned: bool, current: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to add for this number of processes here, apart from those that ``current`` sets."""
    threads = str(max(1, devices.cpu_cores() // processes))
    variables = {"FLAGS_paddle_num_threads": threads, **_QUIET}
    if threads == "1":
        variables["OMP_NUM_THREADS"] = threads
    elif tuned and "OMP_NUM_THREADS" not in current and not devices.expected_gpus():
        variables[_THREADS] = threads
        variables["KMP_BLOCKTIME"] = "1"  # ms that an idle thread spins and blocks others; default 200
        variables["OPENBLAS_NUM_THREADS"] = "1"  # NumPy's: each loader process would use all cores
    if tuned:
        if platform.libc_ver()[0] == "glibc":  # a single process also works elsewhere
            variables.update(_MALLOC)
        kernels = math_kernels(processor())
        if kernels:
            variables[KERNELS] = kernels
        if has_slow_views():
            variables[_COPIES] = "0"
    else:
        variables[_PLAIN_LAYERS] = "1"
    return {name: value for name, value in variables.items() if name not in current}


def restart_with_environment(
    requested_processes: int, tuned: bool, device: str = "auto", computes: bool = True
) -> None:
    """Give this process, once, the environment above, import Paddle, and raise the limit of open files.

    If a module that has read these variables is already imported, the process is replaced with the same command, unless
    the command computes nothing.
    """
    devices.hide_gpus(device)
    forget_kernels()
    if _MARK not in os.environ:
        added = environment(devices.expected_processes(requested_processes), tuned, os.environ)
        os.environ.update(added)
        os.environ[_MARK] = ",".join(sorted(added))
        if not take_effect(added) and computes:
            restart()
    import_paddle()
    raise_open_files()


def choose_kernels() -> None:
    """Set MKL_DEBUG_CPU_TYPE for a program that computes with this package, unless it or a run has set it.

    MKL reads the variable in its first product. A command's own environment replaces it (``forget_kernels``).
    """
    kernels = math_kernels(processor())
    if kernels is not None and not {_MARK, KERNELS} & os.environ.keys():
        os.environ.update({KERNELS: kernels, _CHOSEN: kernels})


def forget_kernels() -> None:
    """Remove the variable that ``choose_kernels`` has set here or in the parent process."""
    kernels = os.environ.pop(_CHOSEN, None)
    if kernels is not None and os.environ.get(KERNELS) == kernels:
        del os.environ[KERNELS]


def raise_open_files() -> None:
    """Raise this process's limit of open files, and that of its children, to the user's maximum, 65,536 at most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_FILES)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))


@contextlib.contextmanager
def environment_for_call(requested_processes: int, tuned: bool) -> Iterator[list[str]]:
    """Set the environment above for a program that calls a run, and import Paddle; restore it after the block.

    Yields a note if Paddle was imported before, so that its threads or kernels may differ.
    """
    global _is_set_for_calls
    before = dict(os.environ)
    forget_kernels()
    added = environment(devices.expected_processes(requested_processes), tuned, os.environ)
    is_late = "paddle" in sys.modules
    _is_set_for_calls = _is_set_for_calls or not is_late
    changed = {name for name in (_THREADS, KERNELS) if name in added and added[name] != before.get(name)}
    late = [] if _is_set_for_calls else changed
    os.environ.update(added, **{_MARK: before.get(_MARK, ",".join(sorted(added)))})
    try:
        import_paddle()
        import paddle

        views = paddle.get_flags([_COPIES])
        if is_late and _COPIES in added:
            paddle.set_flags({_COPIES: False})
        note = (
            "note: Paddle was imported before this call: if it has computed, it keeps its threads and kernels, and last"
        )
        try:
            yield [f"{note} digits may differ from the command's: import it afterwards"] if late else []
        finally:
            paddle.set_flags(views)
    finally:
        os.environ.clear()
        os.environ.update(before)


_is_set_for_calls = False


def import_paddle() -> None:
    """Import Paddle while signals wait, and NumPy with it: their threads then leave signals to the main thread."""
    is_first = "paddle" not in sys.modules and multiprocessing.parent_process() is None
    with signals.blocked(), shown_briefly("importing Paddle") if is_first else contextlib.nullcontext():
        import paddle  # noqa: F401


def without_tuning(current: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that ``restart_with_environment`` has not added, for a process that adds its own."""
    ours = {_MARK, *current.get(_MARK, "").split(",")}
    return {name: value for name, value in current.items() if name not in ours}


def take_effect(added: Mapping[str, str], readers: Collection[str] = _READERS) -> bool:
    """Apply variables as if they had been set at the process's start; False if it must be replaced for that.

    ``readers`` are modules that read the variables of threads and kernels when they are loaded.
    """
    if any(reader in sys.modules for reader in readers):
        return False
    for name in added.keys() & _MALLOPT:
        if ctypes.CDLL(None).mallopt(_MALLOPT[name], int(added[name])) != 1:
            return False
    warnings._processoptions(filter(None, added.get("PYTHONWARNINGS", "").split(",")))  # type: ignore[attr-defined]
    return True


def use_threads() -> None:
    """Let Paddle's operations use the number of threads of the environment above.

    Call after importing Paddle, which would complain about OMP_NUM_THREADS, and before its first operation, which reads
    the variable; FLAGS_paddle_num_threads does nothing for a product or an element-wise operation in 2.6 and 3.3.
    """
    if _THREADS in os.environ:
        os.environ["OMP_NUM_THREADS"] = os.environ[_THREADS]


def hide_omp_threads_from_children() -> None:
    """Let child processes import Paddle without a warning; they call ``use_threads`` themselves."""
    if _THREADS in os.environ:
        os.environ["OMP_NUM_THREADS"] = "1"


@contextlib.contextmanager
def one_thread_here() -> Iterator[None]:
    """Limit the operations of the calling thread to one thread in this context: several such threads share the cores.

    In MKL's products its own number, which MKL_NUM_THREADS sets, overrides OpenMP's.
    """
    openmp = find_loaded(OPENMP)
    before = [handle.omp_get_max_threads() for handle in openmp]
    for library in openmp:
        library.omp_set_num_threads(1)
    mkl = [(handle, handle.MKL_Set_Num_Threads_Local(1)) for handle in find_loaded(MKL)]
    try:
        yield
    finally:
        for library, threads in zip(openmp, before):
            library.omp_set_num_threads(threads)
        for library, threads in mkl:
            library.MKL_Set_Num_Threads_Local(threads)


@functools.cache
def find_loaded(names: re.Pattern[str]) -> list[ctypes.CDLL]:
    """Return the libraries of these names that this process has loaded."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text(encoding="utf-8", errors="replace").splitlines() if maps.exists() else []
    return [ctypes.CDLL(path) for path in sorted({line.split()[-1] for line in lines if names.search(line)})]


def release_memory() -> None:
    """Return this process's unused heap to the kernel: with the variables above malloc does not."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):  # glibc
        library.malloc_trim(0)


def settings() -> dict[str, str]:
    """Return the tuning variables in effect in this process, and which of them this package has set."""
    names = ["FLAGS_paddle_num_threads", "OMP_NUM_THREADS", "KMP_BLOCKTIME", KERNELS]
    names += [_COPIES, _PLAIN_LAYERS, *_MALLOC]
    in_force = {name: os.environ[name] for name in names if name in os.environ}
    in_force["set_by_us"] = os.environ.get(_MARK, "")
    return in_force


def check_product(size: int = 512, device: str = "cpu", limit: float = FLOAT32_LIMIT) -> dict[str, float]:
    """Time one float32 matrix product and compare it with float64 and, on a CPU, with its repetitions.

    This shows that the chosen kernels are correct, and that the threads share the work in the same way each time.
    ``limit`` of the relative error is ``TF32_LIMIT`` if the device may round factors to TF32. Raises RuntimeError if
    the product is wrong, or not bitwise repeatable on the CPU.

    Returns:
        ``gigaflops`` of the fastest of five products on this device, and ``relative_error``, the largest deviation from
        the float64 product divided by its largest entry.
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
            f"a {size}x{size} float32 product differs between repetitions with {settings()}, so runs are not "
            "reproducible; run with OMP_NUM_THREADS=1 and report this processor"
        )
    exact = left.astype(np.float64) @ right.astype(np.float64)
    error = float(np.abs(product - exact).max() / np.abs(exact).max())
    if not error < limit:
        remedy = "run with CPU_TUNING False and report this processor"
        remedy = remedy if is_on_cpu else "report this device, its driver and its libraries"
        raise RuntimeError(
            f"a {size}x{size} float32 product is off by {error:.1e} on {device} (at most {limit:.1e}) with "
            f"{settings()}; {remedy}"
        )
    return {"gigaflops": round(2 * size**3 / min(seconds[1:]) / 1e9, 1), "relative_error": error}


def check_copies() -> None:
    """Raise RuntimeError if transposed or sliced tensors are wrong, or are views although views are switched off."""
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
