"""TRAIN.PIN_CORES: the processes of a machine get separate CPU cores, and their loader processes get others.

A process that drives a GPU is one thread that must not wait: if it comes late, all devices wait for it in the next
exchange. The system moves it between cores, and puts loader processes next to it. With separate cores, whole ones with
all their hardware threads, the processes keep caches and memory near.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_TOPOLOGY = Path("/sys/devices/system/cpu")
# Cores of a process that drives an accelerator: it computes on one thread, and NCCL, copies and saves on others.
_MOST_OWN = 4

_usable: int | None = None  # number of hardware threads before this process was pinned; None: it is not
_for_loaders: set[int] = set()


class CoreShare(NamedTuple):
    """Hardware threads of one process of a machine."""

    own: list[int]
    loaders: list[int]  # of its loader processes; the same ones if there are too few


def pin(requested: str | None) -> str:
    """Pin this process, one of several of a machine, as TRAIN.PIN_CORES says; return a log line, or an empty one.

    Call it in each process, before loader processes start.

    Args:
        requested: "auto" pins processes that drive accelerators, "always" also those that compute on CPUs; None: none.
    """
    if requested is None:
        return ""
    number, size = local_rank(os.environ)
    try:
        share, reason = _choose(requested, number, size)
        if share is not None:
            apply(share)
    except (AttributeError, OSError, ValueError) as error:  # no such system calls or files; a sandbox forbids them
        share, reason = None, f"this system does not tell or give its cores ({type(error).__name__})"
    if share is None:
        return f"TRAIN.PIN_CORES {requested}: cores are not pinned: {reason}"
    text = f"cores: each of {size} processes has {len(share.own)} separate hardware threads"
    if share.loaders != share.own:
        text += f", its loader processes have {len(share.loaders)} others"
    return f"{text} (TRAIN.PIN_CORES {requested})"


def local_rank(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return the position of this process among the processes of this machine, and their number."""
    number = environment.get("PADDLE_LOCAL_RANK", environment.get("PADDLE_TRAINER_ID", "0"))
    size = environment.get("PADDLE_LOCAL_SIZE", environment.get("PADDLE_TRAINERS_NUM", "1"))
    return int(number), int(size)


def count_usable() -> int | None:
    """Return the number of hardware threads that this process could use before it was pinned; None: it is not."""
    return _usable


def use_loader_cores() -> None:
    """Move this loader process, which a pinned process has just forked, to the cores of loader processes."""
    if _for_loaders:
        os.sched_setaffinity(0, _for_loaders)


def _choose(requested: str, number: int, size: int) -> tuple[CoreShare | None, str]:
    """Return this process's share of the cores, or None and the reason."""
    from ..runtime import device_kinds

    on_cpu = device_kinds.current().name == device_kinds.CPU
    available = os.sched_getaffinity(0)
    if size == 1:
        return None, "this is the only process of this machine"
    if on_cpu and requested == "auto":
        return None, "processes compute on CPUs, where the system shares the cores out"
    if available != os.sched_getaffinity(os.getppid()):
        return None, "the launcher has given each process separate cores"
    cores = read_cores(available)
    needed = size if on_cpu else 2 * size
    if len(cores) < needed:
        return None, f"{size} processes need {needed} cores, these are {len(cores)}"
    return divide(cores, size, on_cpu)[number], ""


def read_cores(available: set[int], folder: Path = _TOPOLOGY) -> list[list[int]]:
    """Return the available hardware threads of each core, cores of one socket after another.

    Raises:
        OSError: the system does not tell.
    """
    cores: dict[tuple[int, int], list[int]] = {}
    for thread in sorted(available):
        topology = folder / f"cpu{thread}" / "topology"
        socket, core = (
            int((topology / name).read_text(encoding="ascii")) for name in ("physical_package_id", "core_id")
        )
        cores.setdefault((socket, core), []).append(thread)
    return [cores[place] for place in sorted(cores)]


def divide(cores: Sequence[Sequence[int]], processes: int, on_cpu: bool) -> list[CoreShare]:
    """Divide cores, at least as many as processes, into a share of neighbors for each process.

    A process that drives an accelerator gets up to half of its share, at most four cores, and its loader processes the
    rest; one that computes on CPUs gets all of it, and its loader processes the same.
    """
    shares = []
    for number in range(processes):
        share = cores[number * len(cores) // processes : (number + 1) * len(cores) // processes]
        count = len(share) if on_cpu else max(1, min(_MOST_OWN, len(share) // 2))
        own, others = ([thread for core in part for thread in core] for part in (share[:count], share[count:]))
        shares.append(CoreShare(own, others or own))
    return shares


def apply(share: CoreShare) -> None:
    """Pin all threads of this process, and the loader processes that it forks later."""
    global _usable
    usable = len(os.sched_getaffinity(0))
    for thread in os.listdir("/proc/self/task"):  # Linux pins threads; new ones inherit from their parent
        try:
            os.sched_setaffinity(int(thread), share.own)
        except ProcessLookupError:
            continue  # it has ended
    _usable = usable if _usable is None else _usable
    _for_loaders.clear()
    _for_loaders.update(share.loaders)
