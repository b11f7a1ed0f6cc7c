"""Memory of whole process groups, as the kernel counts it, with what lies in shared memory for them."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Memory(NamedTuple):
    """Bytes over all processes of a way."""

    pss: float
    uss: float

    def above(self, other: "Memory") -> "Memory":
        return Memory(self.pss - other.pss, self.uss - other.uss)


def get_memory(leaders: Sequence[int]) -> Memory:
    """PSS and USS of the sessions of these processes, and what waits for them in /dev/shm without being mapped."""
    pss = uss = 0
    mapped = set()
    members = get_members(leaders)
    for entry in (Path("/proc", pid) for pid in members):
        try:
            for line in (entry / "smaps_rollup").read_text().splitlines():
                name, _, value = line.partition(":")
                if name == "Pss":
                    pss += 1024 * int(value.split()[0])
                elif name.startswith("Private_") and not name.endswith("Hugetlb"):
                    uss += 1024 * int(value.split()[0])
            maps = (entry / "maps").read_text().splitlines()
            mapped |= {line.split("/dev/shm/")[1].split()[0] for line in maps if "/dev/shm/" in line}
        except (OSError, IndexError):
            continue  # it has ended
    for file in get_files(members):
        with contextlib.suppress(OSError):  # it has been taken meanwhile
            pss += 0 if file.name in mapped else file.stat().st_size
    return Memory(pss, uss)


def get_own_memory(leaders: Sequence[int]) -> int:
    """Bytes that the sessions of these processes have to themselves, shared among their processes or not. Libraries do
    not count: how much of them is a process's share depends on which other programs have loaded them."""
    total = 0
    for pid in get_members(leaders):
        with contextlib.suppress(OSError):  # it has ended
            for line in Path("/proc", pid, "smaps_rollup").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in ("Pss_Anon", "Pss_Shmem"):
                    total += 1024 * int(value.split()[0])
    return total


def get_members(leaders: Sequence[int]) -> list[str]:
    """The processes of these sessions."""
    members = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and int((entry / "stat").read_text().rpartition(")")[2].split()[3]) in leaders:
                members.append(entry.name)
    return members


def get_files(members: Sequence[str]) -> list[Path]:
    """Files in shared memory that have one of these processes in their names, as Paddle's and our loaders' have."""
    return [file for file in Path("/dev/shm").iterdir() if any(f"_{pid}_" in file.name for pid in members)]


def status_bytes(pid: int | str, name: str) -> int:
    """A field of a process's status: VmRSS, what is resident, or VmHWM, the most that has been; shared memory included.

    Args:
        pid: its number, or "self".
    """
    with open(f"/proc/{pid}/status", encoding="utf-8") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
