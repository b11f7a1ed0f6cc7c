"""Limits of the shell or the system for a process: memory, open files, space for files. Needs nothing but Python."""

import errno
import os
import re
import resource
from pathlib import Path

CONTROL_GROUPS = Path("/sys/fs/cgroup")
_NUMBERS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_SIGNS = ("bad_alloc", "Unable to allocate", "ResourceExhausted", "Too many open files")
# Why a file cannot grow.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FAILED_DISK = (errno.EIO, errno.EROFS, errno.ESTALE)
_NUMBER_IN_TEXT = re.compile(r"\(os error (\d+)\)")  # as libraries in Rust format it
SIGNS_OF_A_LIMIT = (
    *("Cannot allocate memory", "Resource temporarily unavailable", "can't start new thread"),
    *("failed to map segment", "Allocation failed"),
)


def explain(error: BaseException) -> str | None:
    """Format one line about an error due to a limit of shell, machine or files, with advice; None for other errors."""
    text = f"{type(error).__name__}: {error}"
    number = error.errno if isinstance(error, OSError) else None
    first = text.splitlines()[0].strip().rstrip(":.")
    if number == errno.ENAMETOOLONG:
        return f"{first}: give a shorter path"
    if number == errno.EROFS or (number is not None and ".cache" in text):
        return f"{first}: Paddle needs a writable HOME, and several processes need a writable /dev/shm"
    found = find_os_error(error)
    if found is not None and found.errno in _FULL:
        return f"{first}: free space, or raise the limit of file sizes (`ulimit -f`)"
    is_limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    signs = (*_SIGNS, *(SIGNS_OF_A_LIMIT if is_limited else ()))
    if isinstance(error, MemoryError) or number in _NUMBERS or any(sign in text for sign in signs):
        return (
            f"{first}: too little memory or too few open files in this shell or machine (`ulimit -a`, `free`): "
            "raise the limit, or lower -ngpus, -num_workers, -batch_size or -image_size"
        )
    return None


def find_os_error(error: BaseException) -> OSError | None:
    """Return why the file system refused to write if ``error`` is, names or follows that; None for other errors."""
    each: BaseException | None = error
    while each is not None:
        if isinstance(each, OSError) and each.errno in (*_FULL, *_FAILED_DISK):
            return each
        named = _NUMBER_IN_TEXT.search(str(each))
        if named is not None and int(named[1]) in (*_FULL, *_FAILED_DISK):
            return OSError(int(named[1]), os.strerror(int(named[1])))
        each = each.__cause__ or each.__context__
    return None


def out_of_memory_kills() -> dict[str, int]:
    """Count how often the kernel has killed a process of this control group because its memory ran out.

    Returns:
        Counter file -> kills, of the group (a container or job) and its parents; empty if none is readable.
    """
    kills_by_counter = {}
    for folder in list_memory_groups():
        for name in ("memory.events", "memory.oom_control"):  # versions 2 and 1 of control groups
            try:
                lines = (folder / name).read_text(encoding="utf-8").splitlines()
                kills_by_counter[str(folder / name)] = next(
                    int(line.split()[1]) for line in lines if line.startswith("oom_kill ")
                )
            except (OSError, ValueError, StopIteration):
                continue
    return kills_by_counter


def memory_kill_since(before: dict[str, int]) -> str | None:
    """Return why the system has killed a process if its group's memory ran out since ``before``; None otherwise."""
    for counter, kills in out_of_memory_kills().items():
        if kills > before.get(counter, kills):
            return (
                f"killed by the system because the memory of its container or job, {format_memory(counter)}, ran out: "
                "raise that limit, or lower -batch_size or -num_workers"
            )
    return None


def format_memory(counter: str) -> str:
    """Format the memory limit of a counter's group."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        try:
            return f"{int(Path(counter).with_name(name).read_text(encoding='utf-8')) / 2**30:.1f} GiB"
        except (OSError, ValueError):
            continue
    return "of unknown size"


def list_memory_groups() -> list[Path]:
    """Return the folders of this process's memory group: by its path, or as a container sees its own."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    folders = []
    for line in lines:
        _, controller, path = line.split(":", 2)
        if controller in ("", "memory"):
            folders += [CONTROL_GROUPS / controller / path.lstrip("/"), CONTROL_GROUPS / controller]
    return list(dict.fromkeys(folders))


def read_memory() -> tuple[int, int] | None:
    """Read total and available memory in bytes, of the machine or a smaller control group; None if unknown."""
    try:
        values = dict(line.split()[:2] for line in Path("/proc/meminfo").read_bytes().splitlines())
        total, available = (int(values[name]) * 1024 for name in (b"MemTotal:", b"MemAvailable:"))
    except (OSError, KeyError, ValueError):
        return None
    for folder, limit, used in (
        (CONTROL_GROUPS, "memory.max", "memory.current"),
        (CONTROL_GROUPS / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            allowed = int((folder / limit).read_bytes())
            unused = allowed - int((folder / used).read_bytes())
        except (OSError, ValueError):  # no such group, or no limit
            continue
        total, available = min(total, allowed), min(available, max(unused, 0))
    return total, available
