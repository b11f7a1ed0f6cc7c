"""A training of two processes that something happens to every minute, against the same training left in peace.

    python benchmarks/soak.py
    python benchmarks/soak.py --minutes 3 --interval 20

After each fault the training is resumed with -resume=auto, as a scheduler does it. In the end it has to have the
undisturbed run's weights and moments to the bit; memory, shared memory and open files of its processes, looked at
before each fault, must not grow by more than 2 % over the last two thirds; and no process may stay behind. The digits
are read slowly, so that half an hour needs few updates, and without delay by the undisturbed run.

Nothing else may use /dev/shm meanwhile: what lies there is counted for the training.
"""

import argparse
import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import children
import numpy as np
import rounds
from process_memory import get_members, get_own_memory
from rounds import ROOT
from smallest import sized

from paddlevit_dist import register_dataset
from paddlevit_dist.core.settings.table import find_keys
from paddlevit_dist.images.data.small_sets import Digits

DELAY = "SOAK_SECONDS_PER_SAMPLE"
SECONDS_PER_SAMPLE = sized(0.01, 0.001)
FLAT = 0.02
ENDS_WITHIN_SECONDS = 120.0  # after a fault that ends the run
SHM = Path("/dev/shm")
TRAINING = [
    *("-dataset=slow_digits", "-ngpus=2", "-batch_size=16", "-num_workers=1", "-epochs=100000", "-seed=7"),
    *("MODEL.EMBED_DIM=32", "MODEL.DEPTH=2", "MODEL.NUM_HEADS=2", "TRAIN.WARMUP_EPOCHS=0"),
    *("TRAIN.LR_SCHEDULER.NAME=constant", "TRAIN.BASE_LR=1e-3", "TRAIN.MODEL_EMA=true"),
    *("VALIDATE_FREQ=5", "SAVE_FREQ=100000", f"SAVE_EVERY_UPDATES={sized(30, 5)}", "REPORT_FREQ=10"),
]


class SlowDigits(Digits):
    """The digits, each training image after a delay."""

    def read(self, index: int) -> Any:
        if self.split == "train":
            time.sleep(float(os.environ.get(DELAY, "0")))
        return super().read(index)


register_dataset("slow_digits", SlowDigits)


class Run:
    """A training in a session of its own, writing to ``output``."""

    def __init__(self, output: Path, delay: float, *arguments: str) -> None:
        self.output = output
        self.log = output.with_suffix(".txt")
        recipe = ROOT / "configs" / "vit_digits.yaml"
        watchdog = ["WATCHDOG_SECONDS=20"] if "WATCHDOG_SECONDS" in find_keys() else []
        command = [sys.executable, __file__, "--train", f"-cfg={recipe}", f"-output={output}", *TRAINING, *watchdog]
        self.started = time.time()
        with open(self.log, "a", encoding="utf-8") as stream:
            self.process = children.start(
                [*command, *arguments],
                {**children.clean_environment(), DELAY: str(delay), "OMP_NUM_THREADS": "1"},
                stdout=stream,
                stderr=stream,
            )

    def members(self) -> list[int]:
        """Process ids of the session that are no zombies."""
        return [pid for pid in map(int, get_members([self.process.pid])) if _state(pid) not in ("Z", "")]

    def workers(self) -> list[int]:
        """The two ranks: children of the parent with children of their own, or spawned ones."""
        spawned = [pid for pid in self.members() if _parent(pid) == self.process.pid and "spawn_main" in _command(pid)]
        return sorted(spawned)

    def loaders(self) -> list[int]:
        """Loader processes: children of the ranks."""
        ranks = self.workers()
        return [pid for pid in self.members() if _parent(pid) in ranks]

    def has_trained(self) -> bool:
        """Whether it has reported an update since it was started."""
        file = self.output / "metrics.jsonl"
        with contextlib.suppress(OSError, ValueError):
            lines = file.read_text(encoding="utf-8").splitlines()
            return any(json.loads(line)["time"] > self.started and '"training"' in line for line in lines[-40:])
        return False

    def wait(self, seconds: float) -> int | None:
        """Its exit code, or None if it still runs after that time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(seconds)
        return None

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _stat(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return ["", "0"]


def _state(pid: int) -> str:
    return _stat(pid)[0]


def _parent(pid: int) -> int:
    return int(_stat(pid)[1])


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return ""


# ---- faults ----------------------------------------------------------------------------------------------------------


class Fault(NamedTuple):
    """What is done to a run.

    Attributes:
        act: does it.
        codes: exit codes that are right afterwards; empty: the run may go on.
    """

    act: Callable[[Run, random.Random], None]
    codes: tuple[int, ...]


def _signal_one(number: int, which: Callable[[Run], list[int]]) -> Callable[[Run, random.Random], None]:
    def act(run: Run, generator: random.Random) -> None:
        chosen = which(run)
        if chosen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(generator.choice(chosen), number)

    return act


def _pause_a_rank(run: Run, generator: random.Random) -> None:
    pid = generator.choice(run.workers())
    os.kill(pid, signal.SIGSTOP)
    time.sleep(5.0)
    os.kill(pid, signal.SIGCONT)


def _kill_group(run: Run, generator: random.Random) -> None:
    run.kill()


def _damage(run: Run, generator: random.Random) -> None:
    """kill -9 of everything, and one byte of the newest checkpoint changes."""
    run.kill()
    newest = (run.output / "checkpoints" / "last").resolve()
    file = generator.choice([newest / name for name in ("model.pdparams", "optimizer.npz", "state.json")])
    if file.is_file():
        content = bytearray(file.read_bytes())
        content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        file.write_bytes(content)


def _fill_the_disk(run: Run, generator: random.Random) -> None:
    """No file of the ranks may grow beyond 64 kB, as if the disk were full. What ranks exchange messages through is a
    file to the kernel, too, but smaller."""
    for pid in run.workers():
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (65_536, resource.RLIM_INFINITY))


def _get_parent(run: Run) -> list[int]:
    return [run.process.pid]


STOPPED = (75, 130)  # 130 before stops saved
KILLED = (-signal.SIGKILL,)
FAULTS: dict[str, Fault] = {
    "kill -9 of a rank": Fault(_signal_one(signal.SIGKILL, Run.workers), (1,)),
    "kill -9 of the group": Fault(_kill_group, KILLED),
    "kill -9 of the parent": Fault(_signal_one(signal.SIGKILL, _get_parent), KILLED),
    "kill -9 of a loader process": Fault(_signal_one(signal.SIGKILL, Run.loaders), (1,)),
    "SIGTERM to the parent": Fault(_signal_one(signal.SIGTERM, _get_parent), STOPPED),
    "SIGINT to the parent": Fault(_signal_one(signal.SIGINT, _get_parent), STOPPED),
    "SIGTERM to a rank": Fault(_signal_one(signal.SIGTERM, Run.workers), (*STOPPED, 1)),
    "SIGSTOP of a rank": Fault(_signal_one(signal.SIGSTOP, Run.workers), (1,)),
    "SIGSTOP of a rank for 5 s": Fault(_pause_a_rank, ()),
    "damaged newest checkpoint": Fault(_damage, KILLED),
    "full disk": Fault(_fill_the_disk, (2,)),
}


# ---- what is measured ------------------------------------------------------------------------------------------------


class Sample(NamedTuple):
    """What the processes of a run hold, ``at`` seconds after the beginning.

    Attributes:
        memory_bytes: of all processes, without libraries.
        shared_bytes: of the files in /dev/shm.
        shared_files: their number.
        descriptors: open files of all processes.
    """

    at: float
    memory_bytes: float
    shared_bytes: float
    shared_files: float
    descriptors: float


def measure(run: Run, began: float, seconds: float) -> Sample:
    """Medians over some seconds, as single looks meet batches that come and go; of open files the least number."""
    looks: list[tuple[float, ...]] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until and run.process.poll() is None:
        descriptors = 0
        for pid in run.members():
            with contextlib.suppress(OSError):
                descriptors += len(os.listdir(f"/proc/{pid}/fd"))
        sizes = [_bytes(file) for file in SHM.iterdir()]
        looks.append((get_own_memory([run.process.pid]), sum(sizes), len(sizes), descriptors))
        time.sleep(0.5)
    found = np.array(looks or [(0.0,) * 4])
    found[:, 3] = found[:, 3].min()  # an evaluation opens a dozen files for as long as it takes
    return Sample(time.monotonic() - began, *(float(value) for value in np.median(found, axis=0)))


def _bytes(file: Path) -> int:
    with contextlib.suppress(OSError):
        return file.stat().st_blocks * 512
    return 0


def growth(samples: Sequence[Sample], field: str, since: float) -> float:
    """How much a straight line through the values since then rises, as a share of their mean. Its slope is the median
    over all pairs of samples (Theil and Sen), so that one look at an unusual moment does not decide."""
    points = [(sample.at, getattr(sample, field)) for sample in samples if sample.at >= since]
    if len(points) < 3:
        return 0.0
    at, values = np.array(points).T
    first, second = np.triu_indices(len(points), 1)
    slope = np.median((values[second] - values[first]) / (at[second] - at[first]))
    return float(slope * (at.max() - at.min()) / max(values.mean(), 1.0))


def same_result(one: Path, other: Path, epoch: int) -> str | None:
    """The first thing that is not bit-equal in two runs' checkpoints of an epoch, or None."""
    import paddle

    for name in ("model.pdparams", "model_ema.pdparams", "optimizer.npz"):
        states = []
        for output in (one, other):
            file = output / "checkpoints" / f"epoch_{epoch:04d}" / name
            states.append(np.load(file) if name.endswith("npz") else paddle.load(str(file), return_numpy=True))
        if set(states[0]) != set(states[1]):
            return f"{name}: other names"
        for key in states[0]:
            if np.asarray(states[0][key]).tobytes() != np.asarray(states[1][key]).tobytes():
                return f"{name}: {key}"
    return None


# ---- the run ---------------------------------------------------------------------------------------------------------


class Soak:
    """The disturbed training and what is noted about it."""

    def __init__(self, folder: Path, seed: int, interval: float) -> None:
        self.output = folder / "disturbed"
        self.interval = interval
        self.generator = random.Random(seed)
        self.samples: list[Sample] = []
        self.counts: dict[str, int] = {}
        self.wrong: list[str] = []
        self._left: list[str] = []

    def disturb(self, minutes: float) -> None:
        began = time.monotonic()
        run = Run(self.output, SECONDS_PER_SAMPLE)
        while time.monotonic() - began < 60.0 * minutes:
            due = time.monotonic() + self.interval
            run = self._until_it_trains(run)
            time.sleep(max(0.0, due - time.monotonic() - self.interval / 4))
            sample = measure(run, began, self.interval / 4)
            if run.process.poll() is None:
                self.samples.append(sample)
                held = f"{sample.memory_bytes / 2**20:.1f} MiB, {sample.shared_bytes / 2**20:.1f} MiB shared"
                print(f"{sample.at / 60:5.1f} min  {held}, {sample.descriptors:.0f} open files", flush=True)
            run = self._after_a_fault(run, began)
        run.kill()

    def _until_it_trains(self, run: Run) -> Run:
        """Wait for the first report; a run that does not get there in time is noted, and started again."""
        for _ in range(3):
            until = time.monotonic() + ENDS_WITHIN_SECONDS
            while time.monotonic() < until and run.process.poll() is None:
                if run.has_trained():
                    return run
                time.sleep(0.2)
            self._note_wrong(f"does not train after a start, exit code {run.process.poll()}: {_get_end(run.log)}")
            run.kill()
            run = Run(self.output, SECONDS_PER_SAMPLE, "-resume=auto")
        raise SystemExit(f"the training does not start any more; see {run.log}")

    def _after_a_fault(self, run: Run, began: float) -> Run:
        if not self._left:  # each kind once, in a new order each time
            self._left = self.generator.sample(kinds := sized(sorted(FAULTS), ["kill -9 of the group"]), len(kinds))
        name = self._left.pop()
        fault = FAULTS[name]
        self.counts[name] = self.counts.get(name, 0) + 1
        at = time.monotonic()
        if run.process.poll() is not None:
            self._note_wrong(f"ended before '{name}' with code {run.process.returncode}: {_get_end(run.log)}")
        else:
            fault.act(run, self.generator)
        code = run.wait(ENDS_WITHIN_SECONDS if fault.codes else 10.0)
        seconds = time.monotonic() - at
        if code is None and fault.codes:
            self._note_wrong(f"'{name}': still there after {seconds:.0f} s")
        elif code is not None and code not in fault.codes:
            self._note_wrong(f"'{name}': exit code {code}, expected {fault.codes or 'none'}: {_get_end(run.log)}")
        print(f"{(at - began) / 60:5.1f} min  {name}: exit code {code} after {seconds:.1f} s", flush=True)
        if code is None and not fault.codes:
            return run
        time.sleep(1.0)  # for what ends with its parent
        left = run.members() if code is not None else []
        if left:
            self._note_wrong(f"'{name}': processes {left} stayed behind")
        run.kill()
        return Run(self.output, SECONDS_PER_SAMPLE, "-resume=auto")

    def _note_wrong(self, text: str) -> None:
        self.wrong.append(text)
        print(f"WRONG: {text}", flush=True)

    def finish(self, undisturbed: Path) -> tuple[int, str | None]:
        """Finish an epoch, train up to it in peace, and compare; the epoch and what differs."""
        state = json.loads((self.output / "checkpoints" / "last" / "state.json").read_text(encoding="utf-8"))
        epoch = state["position"]["epoch"] + sized(2, 1)
        for output, more in ((self.output, ["-resume=auto"]), (undisturbed, [])):
            began = time.monotonic()
            run = Run(output, 0.0, f"-stop_after_epoch={epoch}", *more)
            if run.wait(7200.0) != 0:
                run.kill()
                raise SystemExit(f"{output} did not finish; see {run.log}: {_get_end(run.log)}")
            print(f"{output.name}: epoch {epoch} reached after {time.monotonic() - began:.0f} s more", flush=True)
        return epoch, same_result(self.output, undisturbed, epoch)


def _get_end(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return lines[-1][:300] if lines else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=sized(30.0, 0.02))
    parser.add_argument("--interval", type=float, default=sized(60.0, 2.0), help="seconds between faults")
    parser.add_argument("--seed", type=int, default=0, help="of the faults")
    options = parser.parse_args()
    rounds.print_machine()
    # Where this was started in the background, SIGINT is ignored, and would be by what is started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="soak_") as name:
        soak = Soak(Path(name), options.seed, options.interval)
        soak.disturb(options.minutes)
        epoch, differing = soak.finish(Path(name) / "undisturbed")
    since = soak.samples[-1].at / 3 if soak.samples else 0.0
    fields = Sample._fields[1:]
    rises = {field: growth(soak.samples, field, since) for field in fields}
    rows = [
        [field, *(f"{value:,.0f}" for value in _first_and_last(soak.samples, field, since)), f"{rises[field]:+.2%}"]
        for field in fields
    ]
    rounds.print_table("the last two thirds", ["", "first", "last", "rise"], rows)
    print(f"weights and moments after epoch {epoch}: {differing or 'equal to the bit'}")
    is_flat = all(rise <= FLAT for rise in rises.values())
    result = {
        "minutes": options.minutes,
        "faults": soak.counts,
        "wrong": soak.wrong,
        "rise": {field: round(rise, 4) for field, rise in rises.items()},
        "is_flat": is_flat,
        "epoch": epoch,
        "differing": differing,
        "ok": is_flat and differing is None and not soak.wrong,
    }
    print("RESULT " + json.dumps(result))
    sys.exit(0 if result["ok"] else 1)


def _first_and_last(samples: Sequence[Sample], field: str, since: float) -> tuple[float, float]:
    values = [getattr(sample, field) for sample in samples if sample.at >= since] or [0.0]
    return values[0], values[-1]


def _train(arguments: list[str]) -> int:
    from paddlevit_dist.core.commands import train
    from paddlevit_dist.core.runtime.errors import run_and_report

    return run_and_report(lambda: train.run(arguments))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        sys.exit(_train(sys.argv[2:]))
    main()
