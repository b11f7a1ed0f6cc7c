"""The number of processes of a run and the device of each."""

import ctypes
import functools
import glob
import itertools
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ..runtime.environment import program
from ..runtime.errors import UserError

_WSL_DEVICE = "/dev/dxg"  # of WSL 2: one for all GPUs of all vendors
_DRIVER = "libcuda.so.1"
_CAPABILITY = (75, 76)  # the driver's attribute numbers of the compute capability: major and minor
_MOST_PER_CORE = 16  # processes on CPUs: more would only wait for one another


class ProcessPlan(NamedTuple):
    """The processes of a run on this machine."""

    processes: int  # started by this machine's parent; 1: the worker runs in the entry point's process
    device: str  # kind of the device of each, as in ``paddle.set_device``
    by_paddle_launcher: bool  # paddle.distributed.launch has started this process: run the worker in place
    notices: list[str]

    @property
    def uses_gpu(self) -> bool:
        """Whether the processes use CUDA GPUs."""
        from ..runtime import device_kinds

        return self.device == device_kinds.GPU

    @property
    def total_processes(self) -> int:
        """Number of processes in the whole run, over all machines."""
        return int(os.environ.get("PADDLE_TRAINERS_NUM", "1")) if self.by_paddle_launcher else self.processes

    @property
    def is_main(self) -> bool:
        """Whether this process reports for the run: of processes started by Paddle's launcher only one does."""
        return not self.by_paddle_launcher or os.environ.get("PADDLE_TRAINER_ID") == "0"


# Variables that Paddle's launcher sets in addition to the rank, without their prefix PADDLE_.
_NAMES = "MASTER TRAINERS_NUM TRAINER_ENDPOINTS CURRENT_ENDPOINT LOCAL_SIZE LOCAL_RANK GLOBAL_SIZE GLOBAL_RANK NNODES"
LAUNCHER_VARIABLES = tuple(f"PADDLE_{name}" for name in _NAMES.split())
# Rank and number of processes by torchrun, mpirun and srun. The script of sbatch has rank 0 of tasks not started yet.
OTHER_LAUNCHERS: tuple[str, ...] = (
    *("RANK WORLD_SIZE", "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE", "PMI_RANK PMI_SIZE"),
    *("SLURM_PROCID SLURM_STEP_NUM_TASKS", "SLURM_PROCID SLURM_NTASKS"),
)


def refuse_to_start_in_a_worker() -> None:
    """Raise SystemExit if a worker imports a program that starts a run at its top level, again in each worker."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # until the program has been imported
        program = os.path.basename(sys.argv[0])
        raise SystemExit(
            f'error: {program} starts a run outside `if __name__ == "__main__"`, so that its worker processes would '
            "start it again: put the call inside it, and registrations outside"
        )


def check_launcher_variables(requested: int) -> None:
    """Check that variables which make this process one of several come from a launcher, not from an earlier run.

    With variables left in a shell, a single process would start instead of several, or wait for a master that is gone.
    Raises UserError if PADDLE_TRAINER_ID is set and the variables around it do not fit; or more GPUs are requested than
    any machine has, and more processes than this machine's cores can run; or another launcher has started several.
    """
    if not is_launched():
        _refuse_other_launchers()
        gpus, cores = expected_gpus(), cpu_cores()
        if requested > max(gpus, _MOST_PER_CORE * cores):
            raise UserError(
                f"-ngpus={requested} (NGPUS): this machine has {gpus} visible GPU(s) and {cores} core(s): use at most "
                f"{gpus or cores}, or omit the flag"
            )
        return
    number, total = os.environ["PADDLE_TRAINER_ID"], os.environ.get("PADDLE_TRAINERS_NUM")
    local = os.environ.get("PADDLE_LOCAL_SIZE", "1")
    variables = [name for name in ("PADDLE_TRAINER_ID", *LAUNCHER_VARIABLES) if name in os.environ]
    problem = None
    if total is None:
        problem = "PADDLE_TRAINERS_NUM is not"
    elif not (number.isdecimal() and total.isdecimal() and local.isdecimal() and int(number) < int(total)):
        problem = f"it is not one of PADDLE_TRAINERS_NUM={total} processes, PADDLE_LOCAL_SIZE={local} of them here"
    elif requested > 1 and total == "1" and not has_launcher():
        problem = f"-ngpus={requested} requests more processes than PADDLE_TRAINERS_NUM={total}"
    if problem is not None:
        raise UserError(
            f"PADDLE_TRAINER_ID={number} is set in this shell, but {problem}; `unset {' '.join(variables)}` to start "
            "the processes here, or use python -m paddle.distributed.launch"
        )


def _refuse_other_launchers() -> None:
    """Raise UserError in each of several processes of a launcher whose ranks Paddle does not read."""
    for name, size_name in map(str.split, OTHER_LAUNCHERS):
        number, size = os.environ.get(name, ""), os.environ.get(size_name, "")
        is_several = number.isdecimal() and size.isdecimal() and int(size) > 1
        if is_several and (int(number) > 0 or size_name != "SLURM_NTASKS"):
            raise UserError(
                f"{name}={number} and {size_name}={size}: each process of torchrun, mpirun or srun would train alone: "
                f"on one machine run `{program('train')} -ngpus={size}` without it; on several, start `python -m "
                "paddle.distributed.launch --nnodes N --rank I --master ADDRESS:PORT main_multi_gpu.py` once on each; "
                f"for a separate run in each process, `unset {name}`"
            )


def drop_stale_variables() -> list[str]:
    """Remove what an earlier launch left in this shell's environment, unless launched; return a notice with names."""
    if is_launched():
        return []
    dropped = [f"{name}={os.environ.pop(name)}" for name in LAUNCHER_VARIABLES if name in os.environ]
    if not dropped:
        return []
    return [f"ignored, as no launcher started this run: {', '.join(dropped)} (left in this shell; unset them)"]


def has_launcher(kernel: Path = Path("/proc")) -> bool:
    """Return whether Paddle's launcher is among the parents of this process, as the ``kernel`` lists them."""
    pid = os.getppid()
    for _ in range(16):
        try:
            words = (kernel / str(pid) / "cmdline").read_bytes()
            status = (kernel / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return False
        if any(name in words for name in (b"paddle.distributed.launch", b"paddle/distributed/launch", b"fleetrun")):
            return True
        pid = int(status.rpartition(")")[2].split()[1])
    return False


def cpu_cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_launched() -> bool:
    """Return whether ``python -m paddle.distributed.launch`` started this process and set its rank."""
    return "PADDLE_TRAINER_ID" in os.environ


def count_gpus() -> int:
    """Return the number of CUDA GPUs that Paddle can use."""
    from ..runtime import device_kinds

    return device_kinds.count_gpus()


def hide_gpus(requested: str) -> None:
    """Hide all CUDA GPUs from Paddle, which is not imported yet, if DEVICE is "cpu"."""
    if requested.lower() == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def expected_gpus() -> int:
    """Return the likely number of visible GPUs, found from the environment and the driver, without Paddle.

    Settings that precede Paddle's import depend on it: the thread count, and copies instead of views.
    """
    present = len(glob.glob("/dev/nvidia[0-9]*"))
    if not present:
        driver = _load_driver() if os.path.exists(_WSL_DEVICE) else None
        return 0 if driver is None else _ask_driver(driver.cuDeviceGetCount)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return present
    # CUDA reads numbers, UUIDs and names of MIG instances up to the first that is not of this machine.
    named = itertools.takewhile(lambda name: _is_device(name.strip(), present), visible.split(","))
    return min(present, len(list(named)))


class GpuCard(NamedTuple):
    """The properties of a GPU that decide which build of Paddle it needs."""

    capability: tuple[int, int]  # compute capability
    cuda: tuple[int, int]  # newest CUDA version that its driver supports


def find_newest_card() -> GpuCard | None:
    """Return the visible NVIDIA GPU of the highest compute capability, from its driver without Paddle, or None."""
    driver = _load_driver()
    number = 0 if driver is None else _ask_driver(driver.cuDeviceGetCount)
    if driver is None or not number:
        return None
    capabilities = []
    for ordinal in range(number):
        device = _ask_driver(driver.cuDeviceGet, ordinal)
        major, minor = (_ask_driver(driver.cuDeviceGetAttribute, attribute, device) for attribute in _CAPABILITY)
        capabilities.append((major, minor))
    version = _ask_driver(driver.cuDriverGetVersion)
    return GpuCard(max(capabilities), (version // 1000, version % 1000 // 10))


def _load_driver() -> Any:
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        return None
    return driver if driver.cuInit(0) == 0 else None


def _ask_driver(function: Callable[..., int], *arguments: int) -> int:
    """Return the number that a function of CUDA's driver writes; 0 if it fails."""
    number = ctypes.c_int()
    return number.value if function(ctypes.byref(number), *arguments) == 0 else 0


def _is_device(name: str, present: int) -> bool:
    return int(name) < present if name.isdecimal() else name.startswith(("GPU-", "MIG-"))


def expected_processes(requested: int) -> int:
    """Return the likely number of processes on this machine, found like ``expected_gpus``."""
    if is_launched():
        return int(os.environ.get("PADDLE_LOCAL_SIZE", "1"))
    return max(1, expected_gpus()) if requested == -1 else requested


def is_pool_worker() -> bool:
    """Return whether this process may not have children, like a worker of ``multiprocessing.Pool``."""
    return multiprocessing.current_process().daemon


def startable_loaders(number: int) -> int:
    """Return the number of loader processes, or 0 with a note outside the main thread, where signals cannot be set."""
    reason = _explain_no_loaders() if number else ""
    if reason:
        _log_once(f"note: {reason}: samples are read in a thread (DATA.NUM_WORKERS 0), which may be slower")
    return 0 if reason else number


@functools.cache
def _log_once(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _explain_no_loaders() -> str:
    if is_pool_worker():
        return "a worker of a process pool cannot start processes"
    is_main = threading.current_thread() is threading.main_thread()
    return "" if is_main else "only the main thread can start loader processes"


def default_workers(processes: int, cores: int) -> int:
    """Return the loader processes of each training process: its share of the cores minus itself, at most 8."""
    return max(0, min(8, cores // processes - 1))


def plan_processes(requested: int, device: str = "auto") -> ProcessPlan:
    """Plan this machine's processes from ``NGPUS``: -1 means every visible device, or one process on a CPU.

    Raises:
        UserError: Paddle sees no such device, or more are requested than are visible.
    """
    from ..runtime import device_kinds

    gpus = count_gpus()
    visible = {**({device_kinds.GPU: gpus} if gpus else {}), **device_kinds.count_others()}  # CUDA first
    kind, notices = device_kinds.choose(device, visible)
    if is_launched():
        return ProcessPlan(int(os.environ.get("PADDLE_LOCAL_SIZE", "1")), kind.name, True, notices)
    number = visible.get(kind.name, 0)
    if number:
        if requested > number:
            value = os.environ.get(kind.visible, "not set")
            raise UserError(
                f"-ngpus={requested} (NGPUS) is more than the {number} visible {kind.noun}(s); "
                f"lower it or make more visible with {kind.visible} (now: {value})"
            )
        return ProcessPlan(number if requested == -1 else requested, kind.name, False, notices)
    if expected_gpus():
        notices.append("this Paddle cannot use this machine's GPU: training on the CPU (run `doctor` for the reason)")
    processes = 1 if requested == -1 else requested
    cores = cpu_cores()
    if processes > cores:
        notices.append(f"{processes} processes share {cores} core(s): they will slow one another down")
    return ProcessPlan(processes, kind.name, False, notices)
