"""Runs commands of the package, and reads what their runs wrote."""

import re
import sys
from pathlib import Path

import numpy as np

from paddlevit_dist.core.checkpoint.unpickling import restricted_load
from support.processes import Finished, run_command

LIMIT_SECONDS = 400.0
TOOL = [sys.executable, "-m", "paddlevit_dist"]


def execute(*words: object, limit_seconds: float = LIMIT_SECONDS) -> Finished:
    """Run a command of the package; a hang or a process that it leaves behind raises AssertionError."""
    command = [*TOOL, *map(str, words)]
    try:
        return run_command(command, timeout=limit_seconds)
    except AssertionError as error:
        raise AssertionError(str(error).replace(str(command), str(words[0]), 1)) from None


def get_last_line(ended: Finished) -> str:
    return ((ended.out + ended.err).strip().splitlines() or [""])[-1][:250]


def succeed(*words: object, limit_seconds: float = LIMIT_SECONDS) -> str:
    """Run a command that must end well; return the last line of its output."""
    ended = execute(*words, limit_seconds=limit_seconds)
    assert ended.code == 0, f"{words[0]}: exit code {ended.code}: {get_last_line(ended)}"
    return (ended.out.strip().splitlines() or [""])[-1]


def read_printed(folder: Path, kind: str = "evaluation") -> dict[int, str]:
    """Read the lines that a training run printed after its epochs: epoch -> scores."""
    pattern = rf"epoch (\d+) {kind}: (.*?)(?: \(best .*\))?$"
    found = re.findall(pattern, (folder / "log.txt").read_text(encoding="utf-8"), re.MULTILINE)
    return {int(epoch): line for epoch, line in found}


def read_state(folder: Path, with_optimizer: bool = False) -> dict[str, np.ndarray]:
    """Read weights, averages and statistics of a checkpoint: "model/name" or "model_ema/name" -> array."""
    found = {}
    for part in ("model.pdparams", "model_ema.pdparams"):
        if (folder / part).exists():
            values = restricted_load(str(folder / part))
            arrays = {name: np.asarray(value) for name, value in values.items() if hasattr(value, "dtype")}
            found |= {f"{part.split('.')[0]}/{name}": array for name, array in arrays.items()}
    if with_optimizer:
        with np.load(folder / "optimizer.npz") as state:
            found |= {f"optimizer/{name}": state[name] for name in state.files}
    return found
