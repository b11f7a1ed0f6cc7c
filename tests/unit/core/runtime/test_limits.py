"""Which errors are limits of the machine, and what the kernel's counters say about a kill."""

import errno
import os
import resource

import pytest

from paddlevit_dist.core.runtime import limits

ADVICE = (
    ": too little memory or too few open files in this shell or machine (`ulimit -a`, `free`): raise the limit, or "
    "lower -ngpus, -num_workers, -batch_size or -image_size"
)
FREE = "free space, or raise the limit of file sizes (`ulimit -f`)"
HOME = ": Paddle needs a writable HOME, and several processes need a writable /dev/shm"


def refused(number, *more):
    return OSError(number, os.strerror(number), *more)


@pytest.mark.parametrize(
    "error, text",
    [
        (MemoryError(), f"MemoryError{ADVICE}"),
        (refused(errno.EMFILE), f"OSError: [Errno 24] Too many open files{ADVICE}"),
        (refused(errno.ENFILE, "a"), f"OSError: [Errno 23] Too many open files in system: 'a'{ADVICE}"),
        (refused(errno.ENOMEM), f"OSError: [Errno 12] Cannot allocate memory{ADVICE}"),
        (refused(errno.ENAMETOOLONG), "OSError: [Errno 36] File name too long: give a shorter path"),
        (refused(errno.EROFS), f"OSError: [Errno 30] Read-only file system{HOME}"),
        (refused(errno.EACCES, "/x/.cache/y"), f"PermissionError: [Errno 13] Permission denied: '/x/.cache/y'{HOME}"),
        (refused(errno.EACCES, "/x/y"), None),
        (refused(errno.EMFILE, "a"), f"OSError: [Errno 24] Too many open files: 'a'{ADVICE}"),
        (refused(errno.ENOSPC), f"OSError: [Errno 28] No space left on device: {FREE}"),
        (refused(errno.ENOENT), None),
        (RuntimeError("x .cache y"), None),  # no error of a file
        (RuntimeError("std::bad_alloc:"), f"RuntimeError: std::bad_alloc{ADVICE}"),
        (RuntimeError("Too many open files."), f"RuntimeError: Too many open files{ADVICE}"),
        (RuntimeError("\n\n  (ResourceExhausted) no room.\nmore"), f"RuntimeError{ADVICE}"),
        (RuntimeError("std::bad_alloc"), f"RuntimeError: std::bad_alloc{ADVICE}"),
        (RuntimeError("Unable to allocate 3 GiB.\nmore"), f"RuntimeError: Unable to allocate 3 GiB{ADVICE}"),
        (RuntimeError("no room in .cache"), None),
        (RuntimeError("can't start new thread"), None),
    ],
)
def test_an_error_of_a_limit_is_one_line_with_advice(error, text):
    assert limits.explain(error) == text


SIGNS = ["Cannot allocate memory", "Resource temporarily unavailable", "can't start new thread"]
SIGNS += ["failed to map segment", "Allocation failed"]  # of the C library, Python, the loader, and others


@pytest.mark.parametrize("text", SIGNS)
def test_some_errors_are_due_to_a_limit_only_if_there_is_one(text):
    before = resource.getrlimit(resource.RLIMIT_AS)
    assert limits.explain(RuntimeError(text)) is None
    resource.setrlimit(resource.RLIMIT_AS, (1 << 46, before[1]))  # bytes, more than there are
    try:
        assert limits.explain(RuntimeError(text)) == f"RuntimeError: {text}{ADVICE}"
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Control groups of versions 2 (a job in a container) and 1, with their counters."""
    monkeypatch.setattr(limits, "CONTROL_GROUPS", tmp_path / "groups")
    lines = ["0::/job/step", "4:memory:/old", "7:cpu,cpuacct:/other"]
    (tmp_path / "cgroup").write_text("\n".join(lines))
    monkeypatch.setattr(
        limits, "Path", lambda path: tmp_path / "cgroup" if path == "/proc/self/cgroup" else type(tmp_path)(path)
    )
    for name in ("job/step", "memory/old"):
        (tmp_path / "groups" / name).mkdir(parents=True)
    files = {
        "job/step/memory.events": "low 0\noom 5\noom_kill 2\noom_group_kill 9\n",
        "job/step/memory.oom_control": "oom_kill 4\n",
        "memory.events": "oom_kill many\n",
        "memory/old/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n",
        "memory/memory.oom_control": "under_oom 0\n",
    }
    for name, text in files.items():
        (tmp_path / "groups" / name).write_text(text)
    return tmp_path / "groups"


def test_kills_are_counted_in_the_group_and_its_container_by_both_versions(groups):
    assert limits.list_memory_groups() == [groups / "job/step", groups, groups / "memory/old", groups / "memory"]
    assert limits.out_of_memory_kills() == {
        str(groups / "job/step/memory.events"): 2,
        str(groups / "job/step/memory.oom_control"): 4,
        str(groups / "memory/old/memory.oom_control"): 7,
    }


def test_a_kill_since_then_is_told_with_the_limit(groups, monkeypatch):
    before = limits.out_of_memory_kills()
    old = str(groups / "memory/old/memory.oom_control")
    assert limits.memory_kill_since(before) is None and limits.memory_kill_since({}) is None
    (groups / "memory/old/memory.limit_in_bytes").write_text(f"{5 * 2**29}\n")
    assert limits.memory_kill_since({**before, old: 6}) == (
        "killed by the system because the memory of its container or job, 2.5 GiB, ran out: raise that limit, or lower "
        "-batch_size or -num_workers"
    )
    (groups / "memory/old/memory.max").write_text(f"{2**30}")
    assert limits.format_memory(old) == "1.0 GiB"
    (groups / "memory/old/memory.max").write_text("max\n")
    assert limits.format_memory(old) == "2.5 GiB"
    assert limits.format_memory(str(groups / "job/step/memory.events")) == "of unknown size"
    os.unlink(groups.parent / "cgroup")
    assert limits.list_memory_groups() == [] and limits.out_of_memory_kills() == {}
