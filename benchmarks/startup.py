"""Seconds from the command to the first training step, and what is pickled for each worker.

    python benchmarks/startup.py

The peer of the first part is a script of its own (``startup_by_hand.py``): it starts itself with
``paddle.distributed.spawn`` and builds the same model, data and optimizer by hand, with the same number of loader
processes (none) and in an environment that already has the tuning which our entry has to give itself. The peer of the
second part keeps Python lists of paths and labels in its dataset. The first part alone: ``--first-step``.
"""

import functools
import itertools
import json
import pickle
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import children
import rounds
from rounds import ROOT, Spread
from smallest import sized

from paddlevit_dist.core.launch import tuning

RECIPE = ROOT / "configs" / "vit_digits.yaml"
ROUNDS = 7
STEP_TIMEOUT_SECONDS = 60
SIZES = sized((1_000, 100_000, 1_281_167), (1_000,))
PROCESSES = sized((1, 2), (1,))


def start_ours(processes: int, folder: Path) -> float:
    """Seconds until ``main_multi_gpu.py`` notes its first training step in its metrics."""
    command = [sys.executable, str(ROOT / "main_multi_gpu.py"), f"-cfg={RECIPE}", f"-output={folder}"]
    command += [f"-ngpus={processes}", "-num_workers=0", "REPORT_FREQ", "1"]
    events = folder / "metrics.jsonl"

    def first_step() -> float | None:
        lines = events.read_text(encoding="utf-8").splitlines(keepends=True) if events.exists() else []
        complete = (json.loads(line) for line in lines if line.endswith("\n"))
        return next((event["time"] for event in complete if event["kind"] == "training"), None)

    return _seconds_until(command, children.clean_environment(), folder, first_step)


def start_by_hand(processes: int, folder: Path) -> float:
    """Seconds until the peer's first rank writes down the time of its first step."""
    noted = folder / "first_step"
    command = [sys.executable, str(Path(__file__).with_name("startup_by_hand.py")), str(processes), str(noted)]

    def first_step() -> float | None:
        text = noted.read_text(encoding="utf-8") if noted.exists() else ""
        return float(text) if text.endswith("\n") else None

    return _seconds_until(command, children.tuned_environment(processes), folder, first_step)


def _seconds_until(
    command: list[str], environment: dict[str, str], folder: Path, first_step: Callable[[], float | None]
) -> float:
    output = folder / "output.txt"
    with open(output, "w", encoding="utf-8") as stream:
        started = time.time()
        # What a killed process leaves in its temporary folder goes with the benchmark's own.
        process = children.start(command, {**environment, "TMPDIR": str(folder)}, stdout=stream, stderr=stream)
        try:
            while time.time() < started + STEP_TIMEOUT_SECONDS:
                ended = process.poll() is not None
                reached = first_step()
                if reached is not None:
                    return reached - started
                if ended:
                    break
                time.sleep(0.02)
        finally:
            children.end(process)
    raise SystemExit(f"{' '.join(command)} made no training step\n{output.read_text(encoding='utf-8')[-3000:]}")


class ListsOfSamples:
    """The peer's dataset: a Python list of paths and one of labels, read in the parent."""

    def __init__(self, folder: Path, list_name: str) -> None:
        self.img_path_list: list[str] = []
        self.label_list: list[int] = []
        with open(folder / list_name, encoding="utf-8") as lines:
            for line in lines:
                path, label = line.split()
                self.img_path_list.append(str(folder / path))
                self.label_list.append(int(label))

    def __len__(self) -> int:
        return len(self.label_list)

    def describe(self, index: int) -> str:
        return self.img_path_list[index]


class Handed(NamedTuple):
    """What one way hands to each worker, for one number of samples."""

    num_bytes: int
    cross_seconds: list[float]  # to pickle and unpickle it and to name one sample, for each round
    read_seconds: float  # from the list files to datasets, once


def write_lists(folder: Path, samples: int) -> None:
    """``train_list.txt`` and a ``val_list.txt`` of a 25th of it, with paths as in ImageNet; no image exists."""
    for split, count in (("train", samples), ("val", samples // 25)):
        with open(folder / f"{split}_list.txt", "w", encoding="utf-8") as lines:
            for index in range(count):
                label = index % 1000
                lines.write(f"{split}/n{label:08d}/n{label:08d}_{index:07d}.JPEG {label}\n")


def hand_to_workers(samples: int, folder: Path) -> dict[str, Handed]:
    """Build the datasets as the entry does and as the peer does, and pickle what a spawned process is given."""
    from paddlevit_dist.core import settings as configuration
    from paddlevit_dist.images.classification.task import Classification
    from paddlevit_dist.images.data.inspection import SplitInspection

    write_lists(folder, samples)
    config = configuration.load(
        [f"-cfg={ROOT / 'configs' / 'vit_tiny_patch16_224.yaml'}", f"-data_path={folder}", f"-output={folder}"]
    ).values

    def ours() -> Any:
        task = Classification(config)
        with mock.patch.object(SplitInspection, "inspect", return_value=[]):  # no image exists
            return config, task, {split: task.build_dataset(split, folder) for split in ("train", "val")}

    def lists() -> Any:
        return config, {split: ListsOfSamples(folder, f"{split}_list.txt") for split in ("train", "val")}

    given, read_seconds = {}, {}
    for name, build in (("ours", ours), ("lists", lists)):
        started = time.perf_counter()
        given[name] = build()
        read_seconds[name] = time.perf_counter() - started
    assert given["ours"][-1]["train"].describe(samples - 1) == given["lists"][-1]["train"].describe(samples - 1)
    pickles = {name: bytes(ForkingPickler.dumps(value)) for name, value in given.items()}
    contenders = {name: functools.partial(_cross, value) for name, value in given.items()}
    seconds = rounds.interleave(contenders, ROUNDS)
    return {name: Handed(len(pickles[name]), seconds[name], read_seconds[name]) for name in given}


def _cross(given: Any) -> float:
    started = time.perf_counter()
    datasets = pickle.loads(ForkingPickler.dumps(given))[-1]
    datasets["train"].describe(0)
    return time.perf_counter() - started


def measure_first_step(folder: Path) -> dict[str, list[float]]:
    """Seconds to the first step for every way and number of processes, each run in a fresh output folder."""
    numbers = itertools.count()

    def fresh(way: Callable[[int, Path], float], processes: int) -> float:
        own = folder / str(next(numbers))
        own.mkdir()
        return way(processes, own)

    contenders = {
        f"{name}_{processes}": functools.partial(fresh, way, processes)
        for processes in PROCESSES
        for name, way in (("ours", start_ours), ("by_hand", start_by_hand))
    }
    return rounds.interleave(contenders, ROUNDS)


def show_first_step(seconds: dict[str, list[float]]) -> dict[str, float]:
    """Print the table and return the ratios."""
    rows, result = [], {}
    for processes in PROCESSES:
        ours, peer = seconds[f"ours_{processes}"], seconds[f"by_hand_{processes}"]
        ratio = rounds.ratios(ours, peer)
        rows.append([processes, Spread.of(ours).text(), Spread.of(peer).text(), ratio.text()])
        result[f"first_step_{processes}_over_by_hand"] = ratio.median
        result[f"first_step_{processes}_seconds"] = Spread.of(ours).median
    header = ["processes", "main_multi_gpu.py", "by hand", "ours / by hand"]
    rounds.print_table(f"Seconds from command to first step, median of {ROUNDS} rounds [lowest, highest]", header, rows)
    return result


def show_handed(handed: dict[int, dict[str, Handed]]) -> dict[str, float]:
    """Print the table and return the ratios."""
    rows = []
    for samples, ways in handed.items():
        for name, way in ways.items():
            crossing = Spread.of(way.cross_seconds).text(1e3, 2)
            rows.append([f"{samples:,} {name}", f"{way.num_bytes:,}", crossing, f"{way.read_seconds:.2f}"])
    header = ["samples", "bytes per worker", "ms to cross", "s to read the lists"]
    rounds.print_table("Configuration, task and datasets as each worker gets them", header, rows)
    ours = [ways["ours"].num_bytes for ways in handed.values()]
    largest = handed[SIZES[-1]]
    crossing = rounds.ratios(largest["lists"].cross_seconds, largest["ours"].cross_seconds)
    return {
        "bytes_per_worker": max(ours),
        "growth_with_data": max(ours) / min(ours),
        "lists_over_ours_bytes": largest["lists"].num_bytes / largest["ours"].num_bytes,
        "lists_over_ours_crossing_time": crossing.median,
    }


def main() -> None:
    tuning.restart_with_environment(1, True)
    rounds.print_machine()
    with tempfile.TemporaryDirectory(prefix="benchmark_") as folder:
        result = show_first_step(measure_first_step(Path(folder)))
    if "--first-step" in sys.argv:
        rounds.print_result(result)
        return
    handed = {}
    for samples in SIZES:
        with tempfile.TemporaryDirectory(prefix="benchmark_") as folder:
            handed[samples] = hand_to_workers(samples, Path(folder))
    rounds.print_result({**result, **show_handed(handed)})


if __name__ == "__main__":
    main()
