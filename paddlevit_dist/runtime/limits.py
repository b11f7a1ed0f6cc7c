"""What the shell or the system lets a process have: memory and open files. Needs nothing but Python."""

import errno
import multiprocessing
import os
import resource
import tempfile
from pathlib import Path

CONTROL_GROUPS = Path("/sys/fs/cgroup")
_ENOUGH_FILES = 65536  # some programs try every number up to the limit
_LEAST_ADDRESS_SPACE = 1700 << 20  # measured: a process of Paddle on the CPU takes 1,745 MiB, and fails with 1,460
_OUT_OF_MEMORY = ("Cannot allocate memory", "Resource temporarily unavailable", "can't start new thread", "bad_alloc")
_OUT_OF_MEMORY += ("failed to map segment", "Unable to allocate", "ResourceExhausted", "Allocation failed")
_ALSO_WITHOUT_LIMIT = ("bad_alloc", "Unable to allocate", "ResourceExhausted")  # those of them that mean nothing else
_OUT_OF_FILES = "Too many open files"


def open_files() -> int | None:
    """How many files this process may have open (``ulimit -n``); None: any number."""
    return _limit("RLIMIT_NOFILE")


def raise_open_files() -> None:
    """Allow this process, and those that it starts, as many open files as the user may have, 65,536 at most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def too_low(processes: int, workers: int) -> str | None:
    """What to tell a user whose limits stop a run at its start; None if they do not.

    Args:
        processes: that train together on this machine.
        workers: loader processes of each.
    """
    memory, files = _limit("RLIMIT_AS"), open_files()
    if memory is not None and memory < _LEAST_ADDRESS_SPACE:
        return (
            f"the memory limit of this shell, {memory >> 10} KiB (ulimit -v), is too low: Paddle needs at least "
            f"{_LEAST_ADDRESS_SPACE >> 10} in each process; raise it (`ulimit -v unlimited`)"
        )
    # Counted every 20 ms in runs of 1 to 3 processes with up to 4 loader processes each: 57 for 2 with 2, where 87 were
    # seen for moments. Half of what was counted is added, and some that a task's own files take.
    counted = (12 if processes == 1 else 32 + 4 * processes) + 8 * workers
    needed = counted + counted // 2 + 10
    if files is not None and files < needed:
        return (
            f"the limit of open files, {files} (ulimit -n), is too low: {processes} process(es) with {workers} loader "
            f"process(es) each need {needed}; raise it (`ulimit -n {max(1024, needed)}`), or lower -ngpus or "
            "-num_workers"
        )
    return None


def semaphore_problem() -> str | None:
    """What to tell a user whose system lets no process make a semaphore, which any work in several processes needs."""
    try:
        multiprocessing.get_context().Lock()
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return None  # what does not fit is told by ``require_semaphores``, which knows how many are needed for what
        return (
            f"/dev/shm cannot be written: {error.strerror}; processes need it to work together: make it "
            "writable, or use -ngpus=1 -num_workers=0"
        )
    return None


def home_problem() -> str | None:
    """What to tell a user whose home folder keeps Paddle from being imported: it makes a folder there."""
    home = os.path.expanduser("~")
    folder = os.path.join(home, ".cache", "paddle", "dataset")
    if not os.access(home, os.W_OK):  # it then takes the folder for temporary files
        folder = os.path.join(tempfile.gettempdir(), ".cache", "paddle", "dataset")
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        return (
            f"Paddle cannot create its folder {folder}: {error.strerror}; set HOME to a folder that can be written "
            "and has room"
        )
    return None


def explain(error: BaseException) -> str | None:
    """One line about an error that a limit of shell, machine or files caused, with what to do; None for others."""
    text = f"{type(error).__name__}: {error}"
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.EMFILE, errno.ENFILE) or _OUT_OF_FILES in text:
        return f"{_first_line(text)}: the limit is {open_files()} (ulimit -n); raise it, or lower -num_workers"
    memory = _limit("RLIMIT_AS")
    is_memory = isinstance(error, MemoryError) or number in (errno.ENOMEM, errno.EAGAIN)
    if memory is not None and (is_memory or any(sign in text for sign in _OUT_OF_MEMORY)):
        return (
            f"{_first_line(text)}: the memory limit of this shell, {memory >> 10} KiB for each process (ulimit -v), is "
            "too low; raise it (`ulimit -v unlimited`), or lower -batch_size or -num_workers"
        )
    if isinstance(error, MemoryError) or number == errno.ENOMEM or any(sign in text for sign in _ALSO_WITHOUT_LIMIT):
        return (
            f"this machine has too little memory: {_first_line(text)}; lower -image_size, -batch_size or the model's "
            "sizes (-show_config shows all values and where they are from)"
        )
    if number == errno.ENAMETOOLONG:
        return f"{_first_line(text)}: give a shorter path"
    return None


def out_of_memory_kills() -> dict[str, int]:
    """How often the kernel has killed a process of this one's control group because its memory ran out.

    Returns:
        Counter file -> kills, of the group (a container, a job) and of those around it; empty where none is readable.
    """
    found = {}
    for folder in _memory_groups():
        for name in ("memory.events", "memory.oom_control"):  # versions 2 and 1 of control groups
            try:
                lines = (folder / name).read_text(encoding="utf-8").splitlines()
                found[str(folder / name)] = next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
            except (OSError, ValueError, StopIteration):
                continue
    return found


def memory_kill_since(before: dict[str, int]) -> str | None:
    """Why the system has killed a process, if the memory of its control group ran out since ``before`` was taken."""
    for counter, kills in out_of_memory_kills().items():
        if kills > before.get(counter, kills):
            return (
                f"killed by the system because the memory of its container or job, {memory_of(counter)}, ran out: "
                "raise that limit, or lower -batch_size or -num_workers"
            )
    return None


def memory_of(counter: str) -> str:
    """The memory limit of the group of a counter, in words."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        try:
            return f"{int(Path(counter).with_name(name).read_text(encoding='utf-8')) / 2**30:.1f} GiB"
        except (OSError, ValueError):
            continue
    return "of unknown size"


def _memory_groups() -> list[Path]:
    """The folders of this process's memory group: as its path says, or where a container sees its own."""
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


def _limit(name: str) -> int | None:
    soft = resource.getrlimit(getattr(resource, name))[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _first_line(text: str) -> str:
    return next(line.strip().rstrip(":.") for line in text.splitlines() if line.strip())
