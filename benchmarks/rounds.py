"""What the benchmarks share: interleaved rounds, medians with their spread, tables, the machine and the result."""

import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
# Programs are started by their paths, also by interpreters of peers, in which this package is not installed.
for _place in (ROOT, ROOT / "benchmarks"):
    if str(_place) not in sys.path:
        sys.path.insert(0, str(_place))

from smallest import IS_SMALLEST  # noqa: E402

from paddlevit_dist.core.launch import devices, tuning  # noqa: E402


class Spread(NamedTuple):
    """Median and range over the rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Compute median and range of the values."""
        return cls(statistics.median(values), min(values), max(values))

    def text(self, scale: float = 1.0, digits: int = 2) -> str:
        """Format ``median [low, high]`` after multiplication with ``scale``."""
        low, median, high = (f"{scale * value:.{digits}f}" for value in (self.low, self.median, self.high))
        return f"{median} [{low}, {high}]"


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> Spread:
    """Compute median and range of the ratio within each round: what slows a whole round down cancels."""
    return Spread.of([a / b for a, b in zip(numerators, denominators)])


def interleave(contenders: Mapping[str, Callable[[], float]], rounds: int, warm_up: int = 1) -> dict[str, list[float]]:
    """Let all contenders measure themselves once per round, each round beginning with the next of them.

    Returns:
        The measured values of each contender, in the order of the rounds, without the first ``warm_up`` rounds; of a
        single round in the smallest form.
    """
    if IS_SMALLEST:
        rounds, warm_up = min(rounds, 1), 0
    names = list(contenders)
    values: dict[str, list[float]] = {name: [] for name in names}
    for number in range(warm_up + rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            value = contenders[name]()
            if number >= warm_up:
                values[name].append(value)
    return values


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows under a header, the first column flush left, the others right."""
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    print(f"\n{title}")
    for row in cells:
        first, *others = (cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths)))
        print("  " + "  ".join([first, *others]))


def print_machine(cpu_only: bool = True) -> None:
    """Print one line about the processor and the versions.

    Args:
        cpu_only: the figures are a processor's by nature. False: the benchmark names the device that it has measured.
    Raises:
        SystemExit: Paddle would use a GPU for what is meant for processors.
    """
    from importlib import metadata

    if cpu_only and devices.count_gpus():
        program = os.path.relpath(sys.argv[0])
        raise SystemExit(f"this measures processors; hide the GPUs: CUDA_VISIBLE_DEVICES= python {program}")

    installed = {}
    for name in ("paddlepaddle", "paddlepaddle-gpu", "numpy"):
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    versions = ", ".join(f"{name} {version}" for name, version in installed.items())
    only = "; CPU only" if cpu_only else ""
    print(f"{os.cpu_count()} x {tuning.processor()['model']}; Python {platform.python_version()}, {versions}{only}")


def print_result(values: Mapping[str, float]) -> None:
    """Print the last line of a benchmark."""
    print("RESULT " + json.dumps({name: round(value, 4) for name, value in values.items()}), flush=True)
