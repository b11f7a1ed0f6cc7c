"""What a GPU is busy with: our training against a plain loop, and both against timm, in samples/s and peak memory.

    python benchmarks/gpu_throughput.py --peer-python PYTHON [--recipe NAME] [--gpus 1 2] [--precisions float32 ...]
        [--batch 256] [--image_size 224] [--updates 20] [--rounds 5] [--tf32 off] [KEY VALUE ...]

For each number of GPUs and each precision these contenders take turns, of so many updates, in rounds:

- plain: our model, forward pass, cross-entropy, backward pass, Paddle's AdamW, on one batch that is on the device
- trainer: the recipe by ``Trainer.train()``, each update on the same batch, which is on the device as the loader has
  put it there: what users get, with captured passes and fused kernels where the run chooses them, which a line tells.
  ``TRAIN.CAPTURE False GPU_KERNELS False`` at the end: what the engine costs
- recipe: the same with the recipe's dropout, and each batch from the run's own loader: processes that hand over uint8
  images of noise, which nobody has to decode or transform. A training on files is no faster than its files are read
- timm: timm's model in a plain loop of torch, eager, on one batch that is on the device, by PYTHON, which has both
- timm, compiled: the same by torch.compile, on GPUs

plain, trainer and timm compute the same: weights that are drawn once, one batch, AdamW with one rate and decay, nothing
dropped, smoothed or mixed. Before any ratio is printed, the losses of their first three updates have to agree, as a
device or a library that computes something else may be fast; a contender whose losses differ gets no ratio. Keys at the
end are those of a recipe, for all but timm. Plain computes in half precision what our trainer does
(``TrainingPrecision.autocast``), with Paddle's scaler; timm what ``torch.autocast`` does, which has one level: in O2 it
is left out. TF32 is on, or off, for everybody, and cuDNN may search for its fastest algorithms. Recipes of other tasks
are measured on the data that they name, such as drawn shapes, with their own losses and dropout in both, without timm.
On a CPU there is float32 alone. After its rounds each Paddle contender makes one turn more under Paddle's profiler: how
long its GPU is busy in an update, and how often the training thread waits for it, and other threads do.

Contenders share the device's memory, where each holds its own, and its compute mode has to let several processes in
("Default"). Where one more would fill the memory, each starts, makes all its turns and ends before the next one, which
a line says: a full GPU is slow for everybody. One that fails is named with its last line; the others go on, and the
exit code is 1.
"""

import argparse
import contextlib
import functools
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from multiprocessing.connection import Listener, wait
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import children
import rounds
from contenders import group_environments
from gpu_throughput_worker import COMPILED_TIMM, FIRST_LOSSES, PLAIN, PRECISIONS, RECIPE, TIMM, TRAINER, WEIGHTS
from rounds import ROOT, Spread
from smallest import sized

from paddlevit_dist.core import settings
from paddlevit_dist.core.launch.devices import count_gpus, cpu_cores, default_workers

WORKER = str(Path(__file__).with_name("gpu_throughput_worker.py"))
READY_SECONDS, TURN_SECONDS = 180, 300
# Numerator, denominator and goal of what the RESULT line names; of memory the goal is the most.
SPEEDS: tuple[tuple[str, str, float | None], ...] = (
    (TRAINER, PLAIN, 0.98),
    (TRAINER, TIMM, 1.0),
    (TRAINER, COMPILED_TIMM, None),
    (RECIPE, TRAINER, 0.95),
)
MEMORY = ((TRAINER, PLAIN, 1.05), (TRAINER, TIMM, 1.0))
SCALING_GOAL = 1.95  # of two GPUs over one
# Losses agree to a share of the loss, by rounding, and to one of what the reference has learned since its first update.
ROUNDING = {"float32": 0.003, "half": 0.01}
LEARNED = 0.1
FULL = 0.85  # share of a GPU's memory; the rest is for what its processes hold beside their tensors


class Failed(Exception):
    """A contender has ended, or does not answer; the message is the last line that it has said."""


class Contender:
    """A group of processes, one a device, that make updates when asked.

    Args:
        commands: of the processes that are started here, with their environments; they start what else there is.
        processes: that connect.
    """

    def __init__(self, commands: list[tuple[list[str], dict[str, str]]], address: str, processes: int) -> None:
        self.peak_bytes: int | None = None
        self.memory = {"memory_bytes": math.inf, "reserved_bytes": 0}  # of a GPU, and what is kept of it
        self.facts: dict[str, Any] = {}
        self.losses: list[float] = []  # of the first updates of rank 0
        self._processes = processes
        self._listener = Listener(address)
        self._complaints = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - until the processes end
        streams = {"stdin": subprocess.DEVNULL, "stdout": self._complaints, "stderr": self._complaints}
        self._started = [children.start(command, environment, **streams) for command, environment in commands]
        self._ranks: list[Any] = []

    def wait_until_ready(self) -> None:
        """Raises Failed."""
        self._listener._listener._socket.settimeout(1.0)  # type: ignore[attr-defined] # it has no timeout of its own
        for _ in range(READY_SECONDS):
            with contextlib.suppress(TimeoutError):
                self._ranks.append(self._listener.accept())
            if len(self._ranks) == self._processes:
                told = [self._answer(rank) for rank in self._ranks]
                order = sorted(range(len(told)), key=lambda place: told[place]["rank"])  # they connect in any order
                self._ranks, self.facts = [self._ranks[place] for place in order], told[order[0]]
                return
            if any(process.poll() is not None for process in self._started):
                break
        raise Failed(self._last_line())

    def __call__(self, updates: int) -> float:
        """Seconds of an update of the slowest process. Raises Failed."""
        for rank in self._ranks:
            with contextlib.suppress(OSError):  # it has ended, which its answer says
                rank.send(updates)
        answers = [self._answer(rank) for rank in self._ranks]
        self.losses = self.losses or answers[0]["losses"]
        self.facts |= {"captured": answers[0]["captured"]} if "captured" in answers[0] else {}
        peaks = [answer["peak_bytes"] for answer in answers]
        self.peak_bytes = None if None in peaks else max(peaks)
        for name in self.memory:
            self.memory[name] = max(answer.get(name, self.memory[name]) for answer in answers)
        return max(answer["seconds"] for answer in answers) / updates

    def profile(self, updates: int) -> dict[str, float]:
        """Milliseconds that the first process's GPU is busy in an update, and waits of its threads. Raises Failed."""
        for rank in self._ranks:
            with contextlib.suppress(OSError):
                rank.send(-updates)
        seen = [self._answer(rank) for rank in self._ranks][0]
        waits = {name: seen[name] / updates for name in ("waits", "other_waits")}
        return {"busy_ms": 1e3 * seen["busy_seconds"] / updates, **waits}

    def _answer(self, rank: Any) -> dict[str, Any]:
        if wait([rank], TURN_SECONDS):
            with contextlib.suppress(EOFError, OSError):
                return rank.recv()
        raise Failed(self._last_line())

    def _last_line(self) -> str:
        for process in self._started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)  # its last words
        self._complaints.seek(0)
        lines = [line.strip() for line in self._complaints if line.strip()]
        return lines[-1] if lines else "no answer"

    def end(self) -> None:
        for process in self._started:
            children.end(process)
        self._listener.close()


class Cell(NamedTuple):
    """One contender in one column: seconds of an update by round, peak of a device's memory, or why it failed; and what
    the profiler has seen afterwards, if there is a GPU; losses of the first updates."""

    seconds: list[float]
    peak_bytes: int | None
    problem: str = ""
    profile: Mapping[str, float] = MappingProxyType({})
    losses: Sequence[float] = ()


def start(kind: str, options: argparse.Namespace, precision: str, processes: int, folder: str) -> Contender:
    """The processes of a contender, which then load their framework at the same time as the others do."""
    address = f"{folder}/{kind}"
    names = ("recipe", "classifies", "batch", "image_size", "updates", "classes", "keys", "channels", "clips")
    told: dict[str, Any] = {name: getattr(options, name) for name in (*names, "peer_model", "weights")}
    told.update(processes=processes, tf32=options.tf32 == "on")
    told["workers"] = min(options.workers, default_workers(processes, cpu_cores())) if kind == RECIPE else 0
    words = [WORKER, kind, address, precision, json.dumps(told)]
    if kind not in (TIMM, COMPILED_TIMM):
        environment = children.tuned_environment(processes, hides_gpus=False)
        return Contender([([sys.executable, "-W", "ignore", *words], environment)], address, processes)
    environment = children.clean_environment(hides_gpus=False)
    groups = group_environments(kind, processes, environment)
    return Contender([([options.peer_python, *words], group) for group in groups], address, processes)


def write_weights(options: argparse.Namespace, folder: str) -> str:
    """Write the weights that all contenders start with, on the CPU; return their file, or "" without a classifier."""
    if not options.classifies:
        return ""
    target = f"{folder}/first.safetensors"
    names = ("recipe", "classifies", "batch", "image_size", "updates", "classes", "keys", "channels", "clips")
    told = {name: getattr(options, name) for name in names}
    told.update(processes=1, tf32=False, workers=0, weights="")
    words = [sys.executable, "-W", "ignore", WORKER, WEIGHTS, target, "float32", json.dumps(told)]
    children.run(words, children.tuned_environment(1), READY_SECONDS)
    return target


def get_kinds(options: argparse.Namespace, precision: str) -> list[str]:
    """The contenders of a precision."""
    kinds = [PLAIN, TRAINER, RECIPE]
    if options.peer_python and not precision.startswith("O2"):
        kinds += [TIMM, *([COMPILED_TIMM] if count_gpus() else [])]
    return kinds


@contextlib.contextmanager
def started(
    kinds: Sequence[str], options: argparse.Namespace, precision: str, processes: int
) -> Iterator[dict[str, Contender]]:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark_"))
        running = {}
        for kind in kinds:
            running[kind] = start(kind, options, precision, processes, folder)
            stack.callback(running[kind].end)
        yield running


def measure(
    kinds: Sequence[str],
    start_all: Callable[[Sequence[str]], AbstractContextManager[Mapping[str, Contender]]],
    options: argparse.Namespace,
) -> tuple[dict[str, Cell], dict[str, dict]]:
    """What every contender has done in one column, and what each says about itself."""
    with start_all(kinds) as running:
        problems = warm_up(running, options.updates)
        if problems is not None:
            return compete(running, problems, options)
    print("  all at once would fill the memory of a GPU: one contender after the other", flush=True)
    cells: dict[str, Cell] = {}
    facts: dict[str, dict] = {}
    for kind in kinds:
        with start_all([kind]) as running:
            cell, fact = compete(running, warm_up(running, options.updates) or {}, options)
        cells, facts = {**cells, **cell}, {**facts, **fact}
    return cells, facts


def warm_up(running: Mapping[str, Contender], updates: int) -> dict[str, str] | None:
    """Let each make a turn that is not counted, and return what has failed; None: one more would fill a GPU."""
    problems: dict[str, str] = {}
    reserved, total = [0.0], math.inf
    for kind, contender in running.items():
        try:
            contender.wait_until_ready()
            if sum(reserved) + max(reserved) > FULL * total:
                return None
            contender(max(updates, FIRST_LOSSES))
            reserved.append(contender.memory["reserved_bytes"])
            total = contender.memory["memory_bytes"]
        except Failed as failure:
            problems[kind] = str(failure)
    return problems


def compete(
    running: Mapping[str, Contender], problems: dict[str, str], options: argparse.Namespace
) -> tuple[dict[str, Cell], dict[str, dict]]:
    """Measure contenders that have made their first turn, in turns."""

    def turn(kind: str) -> float:
        try:
            if kind not in problems:
                return running[kind](options.updates)
        except Failed as failure:
            problems[kind] = str(failure)
        return math.nan

    turns = {kind: functools.partial(turn, kind) for kind in running}
    seconds = rounds.interleave(turns, options.rounds, warm_up=0)
    cells = {}
    for kind, contender in running.items():
        profile: dict[str, float] = {}
        if kind not in (TIMM, COMPILED_TIMM, *problems) and contender.peak_bytes is not None:
            try:
                profile = contender.profile(options.updates)
            except Failed as failure:  # its speed is measured, the profiler may not work here
                print(f"  {kind} is not profiled: {failure}")
        is_bad = kind in problems
        measured = Cell(seconds[kind], contender.peak_bytes, "", profile, contender.losses)
        cells[kind] = Cell([], None, problems[kind]) if is_bad else measured
    return cells, {kind: contender.facts for kind, contender in running.items() if contender.facts}


def find_disagreeing(losses: Mapping[str, Sequence[float]], precision: str) -> tuple[str, list[str]]:
    """Return the contender whose losses are the reference, timm's if there are any, and those that have others.

    Args:
        losses: of the first updates by contender; those that have none are not compared.
        precision: a key of ``PRECISIONS``.
    """
    told = {kind: values for kind, values in losses.items() if values}
    reference = next((kind for kind in (TIMM, COMPILED_TIMM, PLAIN) if kind in told), "")
    if not reference:
        return "", []
    expected = told[reference]
    share = ROUNDING.get(precision, ROUNDING["half"])
    allowed = [share * abs(value) + LEARNED * abs(value - expected[0]) for value in expected]
    return reference, [
        kind
        for kind, values in told.items()
        if not all(abs(one - other) <= bound for one, other, bound in zip(values, expected, allowed))
        or len(values) != len(expected)
    ]


def drop_disagreeing(cells: Mapping[str, Cell], precision: str) -> dict[str, Cell]:
    """Return the cells that ratios may be made of, and print the losses of the first updates."""
    losses = {kind: cell.losses for kind, cell in cells.items()}
    reference, wrong = find_disagreeing(losses, precision)
    for kind, values in losses.items():
        if values:
            said = f" (differs from {reference}: no ratio)" if kind in wrong else ""
            print(f"  losses of the first updates: {kind} {', '.join(f'{value:.4f}' for value in values)}{said}")
    if wrong:
        print("  a device or a library computes something else: `paddlevit-dist doctor` compares it with NumPy")
    return {
        kind: cell for kind, cell in cells.items() if kind not in wrong and (TRAINER not in wrong or kind != RECIPE)
    }


def get_ratios(cells: Mapping[str, Cell]) -> dict[str, tuple[Spread, float | None]]:
    """Each ratio with its goal, by name; above 1 the first is faster, or has more memory."""
    found: dict[str, tuple[Spread, float | None]] = {}
    for one, other, goal in SPEEDS:
        if all(kind in cells and cells[kind].seconds for kind in (one, other)):
            found[f"{one}/{other}"] = rounds.ratios(cells[other].seconds, cells[one].seconds), goal
    for one, other, goal in MEMORY:
        peaks = [cells[kind].peak_bytes if kind in cells else None for kind in (one, other)]
        if all(peaks):
            found[f"memory {one}/{other}"] = Spread.of([peaks[0] / peaks[1]]), goal
    return found


def show(name: str, cells: Mapping[str, Cell], samples: int, ratios: Mapping[str, tuple[Spread, Any]]) -> None:
    """Print a column as soon as it is measured; ``samples`` are those of one update over all processes."""
    rows = []
    for kind, cell in cells.items():
        if cell.problem:
            rows.append([kind, "stops", "", "", "", ""])
            continue
        memory = "not measured" if cell.peak_bytes is None else f"{cell.peak_bytes / 1e6:,.0f}"
        figures = ("busy_ms", "waits", "other_waits")
        seen = [f"{cell.profile[what]:.1f}" if what in cell.profile else "" for what in figures]
        rows.append([kind, Spread.of([samples / seconds for seconds in cell.seconds]).text(digits=1), memory, *seen])
    columns = ["", "samples/s", "peak MB of a GPU", "GPU busy ms/update", "waits/update", "in other threads"]
    rounds.print_table(name, columns, rows)
    for kind, cell in cells.items():
        if cell.problem:
            print(f"  {kind} stops: {cell.problem}")
    for what, (spread, goal) in ratios.items():
        sign = "<=" if what.startswith("memory") else ">="
        said = ""
        if goal is not None:
            is_kept = spread.median <= goal if sign == "<=" else spread.median >= goal
            said = f", goal {sign} {goal}: {'kept' if is_kept else 'missed'}"
        print(f"  {what} {spread.text()}{said}", flush=True)


def get_counts(gpus: int) -> list[int]:
    """1, 2, 4 and so on to all of them."""
    return sorted({min(2**power, max(gpus, 1)) for power in range(max(gpus, 1).bit_length() + 1)})


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", default="", metavar="PYTHON", help="an interpreter that has torch and timm")
    parser.add_argument("--recipe", default=sized("vit_tiny_patch16_224", "vit_digits"), help="of configs/, or a file")
    parser.add_argument("--peer_model", default="", help="timm's name of the model, if it is not the recipe's")
    parser.add_argument("--gpus", type=int, nargs="+", help="without a GPU: processes; otherwise 1, 2, 4 ... all")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument(
        "--batch", type=int, default=sized(None, 4), help="samples of a device; default: 256 images, or the recipe's"
    )
    parser.add_argument("--image_size", type=int, default=sized(224, 28))
    parser.add_argument("--classes", type=int, default=sized(1000, 10))
    parser.add_argument("--updates", type=int, default=sized(20, 2), help="in one turn")
    parser.add_argument("--rounds", type=int, default=sized(5, 1), help="after one that is not counted")
    parser.add_argument("--workers", type=int, default=sized(8, 1), help="loader processes of each process, at most")
    parser.add_argument("--tf32", choices=("on", "off"), default="on", help="products of float32 on GPUs that have it")
    parser.add_argument("keys", nargs="*", help="keys of the recipe and their values")
    options = parser.parse_args(arguments)
    named = ROOT / "configs" / f"{options.recipe}.yaml"
    options.recipe = str(named if named.exists() else Path(options.recipe).resolve())
    options.peer_model = options.peer_model or Path(options.recipe).stem
    values = settings.load([f"-cfg={options.recipe}", *options.keys]).values
    options.classifies = values.TASK == "classification"
    options.channels = values.DATA.IMAGE_CHANNELS if options.classifies else 0
    options.clips = values.TRAIN.GRAD_CLIP is not None
    if not options.classifies:
        options.peer_python, options.batch = "", options.batch or values.DATA.BATCH_SIZE
    options.batch = options.batch or 256
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parsed(arguments)
    rounds.print_machine(cpu_only=False)
    gpus = count_gpus()
    precisions = options.precisions
    if not options.peer_python:
        print("left out, as there is no --peer-python: timm, eager and compiled")
    if not gpus:
        left_out = [name for name in precisions if name != "float32"]
        precisions = [name for name in precisions if name == "float32"]
        print(f"no GPU: on the CPU; left out, as this device has none: {', '.join(left_out)}, memory of a GPU")
    with tempfile.TemporaryDirectory(prefix="benchmark_") as folder:
        options.weights = write_weights(options, folder)
        return measure_all(options, options.gpus or get_counts(gpus), precisions)


def measure_all(options: argparse.Namespace, counts: Sequence[int], precisions: Sequence[str]) -> int:
    """Measure and print every column; return the exit code."""
    result: dict[str, float] = {}
    failed = False
    single: dict[str, list[float]] = {}
    for processes in counts:
        for precision in precisions:
            start_all = functools.partial(started, options=options, precision=precision, processes=processes)
            cells, facts = measure(get_kinds(options, precision), start_all, options)
            for kind, said in facts.items():
                print(f"  {kind}: " + ", ".join(f"{name} {value}" for name, value in said.items() if name != "rank"))
            trusted = drop_disagreeing(cells, precision)
            found = get_ratios(trusted)
            name = f"{processes}x {precision}"
            many = f"{options.rounds} rounds of {options.updates} updates"
            size = f" images of {options.image_size} px" if options.classifies else " samples"
            title = f"{Path(options.recipe).stem}, {name}, {options.batch}{size} each, {many}"
            show(f"{title}, TF32 {options.tf32}", cells, processes * options.batch, found)
            failed |= len(trusted) < len(cells) or any(cell.problem for cell in cells.values())
            result.update({f"{name} {what}": spread.median for what, (spread, _) in found.items()})
            trained = trusted[TRAINER].seconds if TRAINER in trusted else []
            if trained and processes == 1:
                single[precision] = trained
            elif trained and precision in single:  # images/s over those of one
                gain = processes * Spread.of(single[precision]).median / Spread.of(trained).median
                result[f"{name} trainer/1x"] = gain
                print(f"  trainer/1x {gain:.2f}" + (f", goal >= {SCALING_GOAL}" if processes == 2 else ""), flush=True)
    rounds.print_result(result)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
