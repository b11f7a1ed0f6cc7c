"""A series of 141 injected faults, and whether each run ends right.

    python benchmarks/faults.py [ends] [kills] [checkpoints] [store] [--folder FOLDER]

- ends: one of two ranks is killed, raises or leaves with exit code 0, in each of nine phases.
- kills: all processes of a run are killed at once, 53 times, at random moments; each time the run is started again.
- checkpoints: 16 damages to the newest checkpoint, and 6 of the folder around it.
- store: twelve kinds of garbage for the port on which ranks meet.

Right is: the exit code and last line of docs/explanation/failure_modes.md within a minute, no process and no file in
/dev/shm left behind, and after ``-resume=auto`` the weights of a run that was never disturbed, to the bit. The peer is
that undisturbed run. About 40 minutes on two cores.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import children
import injected_run
import rounds
import store_garbage
from rounds import ROOT
from smallest import IS_SMALLEST, sized

RUN = [f"-cfg={ROOT / 'configs' / 'vit_digits.yaml'}", "-ngpus=2", "-num_workers=0", "-epochs=3", "-batch_size=32"]
RUN += ["MODEL.DEPTH", "1", "SAVE_FREQ", "1", "SAVE_EVERY_UPDATES", "5", "REPORT_FREQ", "5"]
LIMIT_SECONDS = 60.0  # from the fault to the end of the run
WHOLE_RUN_SECONDS = 240.0
KILLS = sized(53, 1)
FILES = ("model.pdparams", "optimizer.npz", "state.json", "manifest.json")


class Ended(NamedTuple):
    """How a run ended."""

    code: int
    text: str  # stdout and stderr
    seconds: float
    left: list[str]  # processes, and files in shared memory

    @property
    def last_line(self) -> str:
        return (self.text.strip().splitlines() or [""])[-1]


class Series:
    """Runs, and what was found wrong with them.

    Args:
        folder: for their output.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.right: dict[str, list[bool]] = {}
        self.slowest = 0.0
        self.weights = ""

    def fresh(self, name: str) -> Path:
        """A new output folder."""
        path = self.folder / name.replace(" ", "_")
        shutil.rmtree(path, ignore_errors=True)
        return path

    def start(self, output: Path, *flags: str, fault: str = "") -> subprocess.Popen:
        """Start the run in a session of its own."""
        entry = ROOT / "benchmarks" / "injected_run.py" if fault else ROOT / "main_multi_gpu.py"
        variables = {**children.tuned_environment(2), "TMPDIR": str(self.folder)}
        if fault:
            variables[injected_run.VARIABLE] = fault
        self.text = self.folder / "output.txt"
        with open(self.text, "w", encoding="utf-8") as stream:
            command = [sys.executable, str(entry), *RUN, f"-output={output}", *flags]
            return children.start(command, variables, stdout=stream, stderr=subprocess.STDOUT)

    def finish(self, process: subprocess.Popen, seconds: float) -> Ended:
        """Wait for a run's end, and see what it leaves behind."""
        began = time.monotonic()
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = -999
        took = time.monotonic() - began
        left = [] if code == -999 else left_behind(process.pid)
        children.end(process)
        return Ended(code, self.text.read_text(encoding="utf-8", errors="replace"), took, left)

    def resumes(self, output: Path) -> tuple[bool, str]:
        """Whether the run, started again, ends with the weights of the undisturbed one."""
        ended = self.finish(self.start(output, "-resume=auto"), WHOLE_RUN_SECONDS)
        if ended.code != 0:
            return False, f"resumed: exit code {ended.code}, {ended.last_line}"
        if ended.left:
            return False, f"resumed: leaves {ended.left}"
        if digest(output) != self.weights:
            return False, "resumed: other weights"
        return True, ""

    def note(self, kind: str, name: str, problem: str, said: str = "") -> None:
        """Count one fault and say how it ended."""
        self.right.setdefault(kind, []).append(not problem)
        print(f"{kind} {name}: {'WRONG: ' + problem if problem else 'right'}   {said}", flush=True)


def digest(output: Path) -> str:
    """A hash of a run's last weights."""
    return hashlib.sha256((output / "checkpoints" / "last" / "model.pdparams").read_bytes()).hexdigest()


def left_behind(session: int, seconds: float = 5.0) -> list[str]:
    """Processes of a session, and our files and semaphores in shared memory, that are there after a moment."""
    deadline = time.monotonic() + seconds
    while True:
        left = [f"process {pid}" for pid in members(session)]
        if not IS_SMALLEST:  # which runs beside other tests, that have files of their own there
            left += [path.name for path in Path("/dev/shm").glob("*") if path.name not in BEFORE]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


BEFORE = {path.name for path in Path("/dev/shm").glob("*")}


def members(session: int) -> list[int]:
    """Living processes of a session."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(entry.name))
    return found


# ---- the four kinds ------------------------------------------------------------------------------------------------


def ends_of_ranks(series: Series) -> None:
    """One of two ranks ends."""
    for phase in injected_run.PHASES:
        for rank in (0, 1):
            for way in injected_run.WAYS:
                name = f"{phase} rank {rank} {way}"
                output, marker = series.fresh(f"end {name}"), series.folder / "marker"
                marker.unlink(missing_ok=True)
                process = series.start(output, fault=f"{phase} {rank} {way} {marker}")
                ended = series.finish(process, WHOLE_RUN_SECONDS)
                problem = judge_end(ended, rank, marker)
                if not problem:
                    problem = series.resumes(output)[1]
                series.note("ends", name, problem, ended.last_line)
                shutil.rmtree(output, ignore_errors=True)


def judge_end(ended: Ended, rank: int, marker: Path) -> str:
    """What is wrong with the end of a run in which ``rank`` has ended; empty for nothing."""
    if not marker.exists():
        return "the fault was never reached"
    seconds = time.time() - float(marker.read_text())
    if ended.code != 1:
        return f"exit code {ended.code}"
    if not ended.last_line.startswith(f"error: rank {rank} failed"):
        return f"the last line is: {ended.last_line}"
    if ended.left:
        return f"leaves {ended.left}"
    return "" if seconds < LIMIT_SECONDS else f"took {seconds:.0f} s"


def kills_of_the_group(series: Series, whole_seconds: float) -> None:
    """All processes are killed, again and again; each run that gets to its end must have the right weights."""
    chance = random.Random(0)
    output, number, finished = series.fresh("kills 0"), 0, 0
    while number < KILLS:
        process = series.start(output, "-resume=auto")
        try:
            code: int | None = process.wait(chance.uniform(0.2, whole_seconds))
        except subprocess.TimeoutExpired:
            code = None
        if code is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            number += 1
            problem = f"leaves {members(process.pid)}" if waits_for_none(process.pid) else ""
            series.note("kills", f"{number} of {KILLS}", problem)
            continue
        ended = series.finish(process, 1.0)
        if code != 0:
            series.note("kills", f"start after {number}", f"exit code {code}: {ended.last_line}")
        elif digest(output) != series.weights:
            series.note("kills", f"the run that ended after {number}", "other weights")
        finished += 1
        output = series.fresh(f"kills {finished}")
    problem = series.resumes(output)[1]
    leftovers = [name for name in hidden_files(output) if not problem]
    series.right["kills"][-1] &= not problem and not leftovers
    print(f"kills: the last start {problem or 'ends right'}; left over: {leftovers}", flush=True)


def waits_for_none(session: int) -> bool:
    """Whether a killed session still has members after five seconds."""
    deadline = time.monotonic() + 5.0
    while members(session):
        if time.monotonic() > deadline:
            return True
        time.sleep(0.05)
    return False


def hidden_files(output: Path) -> list[str]:
    """Half-written things in an output folder."""
    return [str(path) for path in output.rglob("*") if path.suffix == ".tmp" or path.parent.name.startswith(".epoch")]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x41
    path.write_bytes(bytes(content))


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES: tuple[tuple[str, Callable[[Path], None]], ...] = (
    ("truncated", truncate),
    ("flipped", flip),
    ("emptied", empty),
    ("removed", Path.unlink),
)


def last_to(target: str) -> Callable[[Path], None]:
    """Make ``last`` a link to something else."""

    def change(folder: Path) -> None:
        (folder / "last").unlink()
        (folder / "last").symlink_to(target)

    return change


def last_a_folder(folder: Path) -> None:
    (folder / "last").unlink()
    (folder / "last").mkdir()


def all_manifests(folder: Path) -> None:
    for path in folder.glob("*_[0-9]*/manifest.json"):
        path.write_text("{}")


def wrong_state(folder: Path) -> None:
    """Valid JSON with a valid hash, and an impossible position."""
    newest = (folder / "last").resolve()
    state, manifest = newest / "state.json", newest / "manifest.json"
    content = json.loads(state.read_text())
    content["position"]["epoch"] = -5
    state.write_text(json.dumps(content))
    listed = json.loads(manifest.read_text())
    raw = state.read_bytes()
    listed["files"]["state.json"] = {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    manifest.write_text(json.dumps(listed))


def folder_of_a_negative_epoch(folder: Path) -> None:
    shutil.copytree((folder / "last").resolve(), folder / "epoch_-005")


AROUND: tuple[tuple[str, Callable[[Path], None], int], ...] = (
    ("last is a loop", last_to("last"), 0),
    ("last leads nowhere", last_to("epoch_9999"), 0),
    ("last is a folder", last_a_folder, 0),
    ("a folder of epoch -5", folder_of_a_negative_epoch, 0),
    ("state of epoch -5", wrong_state, 0),
    ("all manifests", all_manifests, 2),
)


def damaged_checkpoints(series: Series) -> None:
    """A run that stopped after its second epoch goes on, although something is damaged."""
    stopped = series.fresh("stopped")
    ended = series.finish(series.start(stopped, "-stop_after_epoch=2"), WHOLE_RUN_SECONDS)
    if ended.code != 0:
        raise SystemExit(f"the run to be damaged ended with {ended.code}: {ended.last_line}")
    for file in FILES:
        for name, damage in DAMAGES:
            damage_and_resume(
                series, stopped, f"{file} {name}", lambda f, file=file, act=damage: act(f / "last" / file)
            )
    for name, change, code in AROUND:
        damage_and_resume(series, stopped, name, change, code)


def damage_and_resume(series: Series, stopped: Path, name: str, damage: Callable[[Path], None], code: int = 0) -> None:
    """One damaged copy of a run."""
    output = series.fresh("damaged")
    shutil.copytree(stopped, output, symlinks=True)
    damage(output / "checkpoints")
    before = get_list(output / "checkpoints")
    ended = series.finish(series.start(output, "-resume=auto"), WHOLE_RUN_SECONDS)
    problem = ""
    if ended.code != code:
        problem = f"exit code {ended.code}: {ended.last_line}"
    elif "Traceback" in ended.text:
        problem = "a traceback"
    elif code and get_list(output / "checkpoints") != before:
        problem = "it has changed the checkpoints"
    elif not code and digest(output) != series.weights:
        problem = "other weights"
    series.note("checkpoints", name, problem, ended.last_line)


def get_list(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.lstat().st_mtime_ns) for path in folder.rglob("*"))


def garbage_to_the_store(series: Series) -> None:
    """A stranger sends something to the port on which the ranks meet."""
    for name, send in sized(store_garbage.KINDS, store_garbage.KINDS[:1]):
        output = series.fresh("garbage")
        process = series.start(output)
        stranger = store_garbage.Stranger(process.pid)
        try:
            port = stranger.wait_for_port(WHOLE_RUN_SECONDS)
            said = send(stranger, port) if port else "no port was open"
            ended = series.finish(process, WHOLE_RUN_SECONDS)
        finally:
            stranger.leave()
        problem = ""
        if ended.code == 0 and digest(output) != series.weights:
            problem = "other weights"
        elif ended.code not in (0, 1) or ended.left:
            problem = f"exit code {ended.code}, {ended.last_line}, leaves {ended.left}"
        elif ended.code == 1 and not ended.last_line.startswith("error: "):
            problem = f"the last line is: {ended.last_line}"
        elif ended.code == 1 and not series.resumes(output)[0]:
            problem = "does not resume"
        series.note("store", name, problem, f"{said}; exit code {ended.code}: {ended.last_line}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", help="ends, kills, checkpoints, store; all by default")
    parser.add_argument("--folder", type=Path, help="for the runs' output; a temporary one by default")
    chosen = parser.parse_args()
    kinds: Iterable[str] = chosen.kinds or sized(("ends", "kills", "checkpoints", "store"), ("store",))
    rounds.print_machine()
    with tempfile.TemporaryDirectory(prefix="benchmark_") as name:
        series = Series(chosen.folder or Path(name))
        series.folder.mkdir(parents=True, exist_ok=True)
        undisturbed = series.fresh("undisturbed")
        ended = series.finish(series.start(undisturbed), WHOLE_RUN_SECONDS)
        if ended.code != 0 or ended.left:
            raise SystemExit(
                f"the undisturbed run ends with {ended.code} and leaves {ended.left}\n{ended.text[-2000:]}"
            )
        series.weights = digest(undisturbed)
        print(f"the undisturbed run takes {ended.seconds:.1f} s", flush=True)
        acts: dict[str, Callable[[], None]] = {
            "ends": lambda: ends_of_ranks(series),
            "kills": lambda: kills_of_the_group(series, 0.9 * ended.seconds),
            "checkpoints": lambda: damaged_checkpoints(series),
            "store": lambda: garbage_to_the_store(series),
        }
        for kind in kinds:
            acts[kind]()
    result = {f"{kind}_right": float(sum(right)) for kind, right in series.right.items()}
    result.update({f"{kind}_injected": float(len(right)) for kind, right in series.right.items()})
    rounds.print_result(
        {**result, "share_right": sum(map(sum, series.right.values())) / sum(map(len, series.right.values()))}
    )


if __name__ == "__main__":
    main()
