"""Runs of the entry point on GPUs for ``make accept-gpu``, and the losses that they record."""

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[3]
HIGHEST, EXPLODED = 1e4, 5.0  # units of a loss, and times its first
# What the record of an update has beside its losses; "direction" is minus a cosine.
NO_LOSSES = {"kind", "time", "epoch", "update", "learning_rate", "gradient_norm", "skipped_updates", "direction"}
NO_LOSSES |= {"samples_per_second", "data_wait_fraction", "memory_mib", "accuracy", "iou", "top-1"}
QUEUED = ROOT / "tests" / "support" / "trainings" / "queued_steps.py"


class Place(NamedTuple):
    """Where a row works."""

    on_cpu: bool
    folder: Path
    queues: bool = False  # on a CPU, too


def make_command(place: Place, name: str, words: Sequence[str]) -> list[str]:
    more = [f"-output={place.folder / name}", *([f"-import={QUEUED}"] if place.queues else [])]
    given = [sys.executable, "-W", "ignore", str(ROOT / "main_multi_gpu.py"), *words, *more]
    return given if any(word.startswith("-ngpus") for word in words) else [*given, "-ngpus=1"]


def job(place: Place, name: str, *words: str) -> str:
    """Run the main job to its end, with a folder of this name, showing what it says; returns its last line."""
    command = make_command(place, name, words)
    print(f"$ {' '.join(command)}", flush=True)
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    last = ""
    for line in process.stdout or ():
        if " update " not in line:  # one for each of them
            print(f"  {line}", end="", flush=True)
        last = line.strip() or last
    assert process.wait() == 0, f"exit code {process.returncode}: {last}"
    return last


def events(output: Path, kind: str) -> list[dict[str, Any]]:
    lines = (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == kind and "superseded" not in event]


def losses(output: Path) -> dict[int, float]:
    """That of each update. Raises AssertionError: they are implausible."""
    found = {event["update"]: loss_in(event) for event in events(output, "training")}
    require_plausible([*found.values()])
    return found


def require_plausible(found: Sequence[float]) -> None:
    """Raise AssertionError unless losses are finite, not negative, and none is absurd or far above the first.

    No loss of these trainings can be negative; untrained networks lose as much as guessing does, a few units a term.
    """
    assert found and all(map(math.isfinite, found)), f"losses {found}"
    assert min(found) >= 0, f"a loss of {min(found):.4g} is below zero"
    assert found[0] <= HIGHEST, f"the first loss is {found[0]:.4g}, above {HIGHEST:g}"
    assert max(found) <= EXPLODED * found[0], f"the loss grows from {found[0]:.4g} to {max(found):.4g}"


def loss_in(event: dict[str, Any]) -> float:
    """The sum of its losses, each once."""
    found = [float(value) for name, value in event.items() if name not in NO_LOSSES]
    assert found, f"no loss in {event}"
    return sum(found)


def largest_difference(one: dict[int, float], other: dict[int, float], updates: Sequence[int]) -> float:
    """Relative, over these updates."""
    return max(abs(one[update] - other[update]) / abs(one[update]) for update in updates)
