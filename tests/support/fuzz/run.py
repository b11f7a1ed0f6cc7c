"""Damaged files are read one after another in a forked child with little memory.

``python -m support.fuzz.run COUNT SEED FOLDER READER ...`` in tests/.

A child that is ended by a signal is replaced by another, which goes on with the next case. A line of JSON for each
reader says how many cases were read, how many were refused, and each failure with the number of its case.
"""

import json
import mmap
import os
import resource
import shutil
import signal
import struct
import sys
import traceback
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from support.processes import HANG_SECONDS, run_command, succeeded

from .mutations import mutated
from .readers import READERS, Reader

MEMORY = 1 << 30  # bytes that a case may take beyond what the process has
SECONDS, WALL_SECONDS = 10, 120  # of the processor, and in all: for the machine may be busy, and a reader may sleep
_ENDS = {signal.SIGPROF: f"ran for {SECONDS} s", signal.SIGALRM: f"waited for {WALL_SECONDS} s"}


def run(reader: Reader, count: int, seed: int, folder: Path) -> dict[str, Any]:
    """Outcomes of the cases 0 to ``count - 1``, after case -1: the files as they were made, which have to be read."""
    original, place = folder / "original", folder / "case"
    place.mkdir(parents=True)
    files = [str(file.relative_to(place)) for file in reader.make(place)]  # there, for caches know their data by path
    shutil.copytree(place, original)
    now = mmap.mmap(-1, 24)  # case, read, refused: seen by both processes
    reports = folder / "failures.jsonl"
    failures: list[dict[str, Any]] = []
    struct.pack_into("<qqq", now, 0, -2, 0, 0)
    while struct.unpack_from("<q", now)[0] < count - 1:
        pid = os.fork()
        if pid == 0:
            _child(reader, files, original, folder, now, count, seed, reports)
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            failures.append({"case": struct.unpack_from("<q", now)[0], "how": _ENDS.get(number, f"signal {number}")})
        elif status:
            raise RuntimeError(f"the child that runs the cases ended with {status}")
    if reports.exists():
        failures += [json.loads(line) for line in reports.read_text().splitlines()]
    _, read, refused = struct.unpack_from("<qqq", now)
    return {"read": read, "refused": refused, "failures": sorted(failures, key=lambda failure: failure["case"])}


def damaged(reader: Reader, seed: int, case: int, original: Path, folder: Path, files: list[str]) -> Path:
    """A folder with the files of ``reader``, one of them damaged as in ``case`` of a seed."""
    place = _copy(original, folder)
    if case < 0:
        return place
    rng = np.random.default_rng([seed, case, zlib.crc32(reader.name.encode())])
    file = place / files[int(rng.integers(len(files)))]
    file.write_bytes(mutated(file.read_bytes(), rng, reader.is_text, reader.packing))
    return place


def _copy(original: Path, folder: Path) -> Path:
    place = folder / "case"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(original, place)
    return place


def _child(
    reader: Reader,
    files: list[str],
    original: Path,
    folder: Path,
    now: mmap.mmap,
    count: int,
    seed: int,
    reports: Path,
) -> None:
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libraries complain there of what they then report
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        for case in range(struct.unpack_from("<q", now)[0] + 1, count):
            struct.pack_into("<q", now, 0, case)
            place = damaged(reader, seed, case, original, folder, files)
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS)
            outcome, how = _read(reader, place)
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            if case < 0:
                how = how or ("" if outcome == 1 else "the undamaged file was refused")
                outcome = 0
            if how:
                with open(reports, "a", encoding="utf-8") as out:
                    out.write(json.dumps({"case": case, "how": how}) + "\n")
            elif outcome:
                struct.pack_into("<q", now, 8 * outcome, struct.unpack_from("<q", now, 8 * outcome)[0] + 1)
        code = 0
    finally:
        os._exit(code)


def _read(reader: Reader, place: Path) -> Any:
    """1 if it was read, 2 if it was refused in one line; and what else happened, which is a failure."""
    try:
        reader.read(place)
        return 1, ""
    except reader.refusals as refusal:
        message = str(refusal)
        if "\n" in message:
            return 0, f"a message of several lines: {message[:300]!r}"
        return 2, ""
    except MemoryError:
        return 0, f"more than {MEMORY >> 20} MB: {traceback.format_exc()[-900:]}"
    except BaseException:
        return 0, traceback.format_exc()[-900:]


def check(names: list[str], count: int, folder: Path, seed: int = 0, timeout: float = HANG_SECONDS) -> None:
    """Every case of these readers is read or refused in one line."""
    words = ["-m", "support.fuzz.run", str(count), str(seed), str(folder / "run"), *names]
    ended = succeeded(run_command([sys.executable, *words], timeout))
    found = dict(map(json.loads, ended.out.splitlines()))
    told = [f"{name}, case {one['case']}: {one['how']}" for name in found for one in found[name]["failures"]]
    assert not told, "\n".join([f"seed {seed}", *told[:5]])
    assert set(found) == set(names)
    for name, outcome in found.items():
        assert outcome["read"] + outcome["refused"] == count
        # Else the damage does not reach the reader.
        assert outcome["refused"] >= READERS[name].least_refused * count, f"{name}: {outcome}"


if __name__ == "__main__":
    count, seed, where, *names = sys.argv[1:]
    for number, name in enumerate(names):
        print(json.dumps([name, run(READERS[name], int(count), int(seed), Path(where, str(number)))]), flush=True)
