"""Runs of the entry point on GPUs for ``make accept-gpu``, and the losses that they record."""

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
QUEUED = Path(__file__).with_name("queued_steps.py")


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
    """That of each update. Raises AssertionError: one is not finite."""
    found = {event["update"]: loss_in(event) for event in events(output, "training")}
    assert found and all(map(math.isfinite, found.values())), f"losses {found}"
    return found


def loss_in(event: dict[str, Any]) -> float:
    """That of a classifier, or what a family calls the first of its losses."""
    names = ("loss", "class", "classes", "semantic", "heatmap", "cross_entropy")
    return float(next(event[name] for name in names if name in event))


def largest_difference(one: dict[int, float], other: dict[int, float], updates: Sequence[int]) -> float:
    """Relative, over these updates."""
    return max(abs(one[update] - other[update]) / abs(one[update]) for update in updates)
