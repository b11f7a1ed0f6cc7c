"""What the shell or the system lets a process have: memory and open files. Needs nothing but Python."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Dict, Optional

if sys.platform != "win32":
    import resource

_ENOUGH_FILES = 65536  # some programs try every number up to the limit
_LEAST_ADDRESS_SPACE = 1700 << 20  # measured: a process of Paddle on the CPU takes 1,745 MiB, and fails with 1,460
_OUT_OF_MEMORY = ("Cannot allocate memory", "Resource temporarily unavailable", "can't start new thread", "bad_alloc")
_OUT_OF_MEMORY += ("failed to map segment", "Unable to allocate", "ResourceExhausted", "Allocation failed")
_OUT_OF_FILES = "Too many open files"


def address_space() -> Optional[int]:
    """Bytes that this process may map (``ulimit -v``); None: any number."""
    return _limit("RLIMIT_AS")


def open_files() -> Optional[int]:
    """How many files this process may have open (``ulimit -n``); None: any number."""
    return _limit("RLIMIT_NOFILE")


def raise_open_files() -> None:
    """Allow this process, and those that it starts, as many open files as the user may have, 65,536 at most."""
    if sys.platform == "win32":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def too_low(processes: int, workers: int) -> Optional[str]:
    """What to tell a user whose limits stop a run at its start; None if they do not.

    Args:
        processes: that train together on this machine.
        workers: loader processes of each.
    """
    memory, files = address_space(), open_files()
    if memory is not None and memory < _LEAST_ADDRESS_SPACE:
        return (
            f"the memory limit of this shell, {memory >> 10} KiB (ulimit -v), is too low: Paddle needs at least "
            f"{_LEAST_ADDRESS_SPACE >> 10} in each process; raise it (`ulimit -v unlimited`)"
        )
    # As counted in runs of 1, 2 and 4 processes: loaders of training and evaluation have four each per process.
    needed = (12 if processes == 1 else 28 + 4 * processes) + 8 * workers
    if files is not None and files < needed:
        return (
            f"the limit of open files, {files} (ulimit -n), is too low: {processes} process(es) with {workers} loader "
            f"process(es) each need {needed}; raise it (`ulimit -n 1024`), or lower -ngpus or -num_workers"
        )
    return None


def explain(error: BaseException) -> Optional[str]:
    """One line about an error that a limit caused, with what to do; None if it is not such an error."""
    text = f"{type(error).__name__}: {error}"
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.EMFILE, errno.ENFILE) or _OUT_OF_FILES in text:
        return f"{_first_line(text)}: the limit is {open_files()} (ulimit -n); raise it, or lower -num_workers"
    memory = address_space()
    is_memory = isinstance(error, MemoryError) or number in (errno.ENOMEM, errno.EAGAIN)
    if memory is not None and (is_memory or any(sign in text for sign in _OUT_OF_MEMORY)):
        return (
            f"{_first_line(text)}: the memory limit of this shell, {memory >> 10} KiB for each process (ulimit -v), is "
            "too low; raise it (`ulimit -v unlimited`), or lower -batch_size or -num_workers"
        )
    return None


def out_of_memory_kills(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> Dict[str, int]:
    """How often the kernel has killed a process of this one's control group because its memory ran out.

    Returns:
        Counter file -> kills, of the group (a container, a job) and of those around it; empty where none is readable.
    """
    found = {}
    for folder in _memory_groups(root, own):
        for name in ("memory.events", "memory.oom_control"):  # versions 2 and 1 of control groups
            try:
                lines = (folder / name).read_text(encoding="utf-8").splitlines()
                found[str(folder / name)] = next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
            except (OSError, ValueError, StopIteration):
                continue
    return found


def memory_of(counter: str) -> str:
    """The memory limit of the group of a counter, in words."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        try:
            return f"{int(Path(counter).with_name(name).read_text(encoding='utf-8')) / 2**30:.1f} GiB"
        except (OSError, ValueError):
            continue
    return "of unknown size"


def _memory_groups(root: Path, own: Path) -> list:
    """The folders of this process's memory group: as its path says, or where a container sees its own."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    folders = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers not in ("", "memory"):
            continue
        for base in (root / controllers, root / "unified") if not controllers else (root / controllers,):
            folders += [base / path.lstrip("/"), base]
    return list(dict.fromkeys(folders))


def _limit(name: str) -> Optional[int]:
    if sys.platform == "win32":
        return None
    soft = resource.getrlimit(getattr(resource, name))[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else text
