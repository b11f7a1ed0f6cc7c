"""Recomputes averaged weights by their formula from the checkpoints of each update."""

import json
import math
import re
from pathlib import Path

import numpy as np

from .commands import read_state
from .runs import Bench
from .values import Combination

_DECAYS = {"half": (0.5, 0), "warmup": (0.9, 3)}  # decay and warm-up in updates, as ``features`` sets them
_TOLERANCE = 2e-6  # of the largest value of an array: rounding to float32 once an update


def check_averages(bench: Bench, combination: Combination) -> str | None:
    """The averages of all checkpoints follow from the weights of each update: ``average += share * (w - average)``.

    Source: docstring of ``ModelEma``; share is 1 - decay, with a warm-up 1 - decay * (1 - exp(-update / warm-up)).
    Where the data have other classes than the first weights, or in another order, a run begins with the rows of those
    with the same name, and draws the others.
    """
    if combination["average"] == "none" or combination["save"] != "update":
        return None
    decay, warmup = _DECAYS[combination["average"]]
    places = _list_checkpoints(bench.train(combination).folder)
    drawn = re.findall(r"[\w.]+", " ".join(re.findall(r"re-initialized (.*)", bench.train(combination).text)))
    updates = sorted(places)
    if updates != list(range(1, len(updates) + 1)):
        return f"checkpoints of updates {updates}: expected one of each"
    averages = {key.split("/")[1]: value for key, value in read_state(bench.get_base(combination["model"])).items()}
    for update in updates:
        state = read_state(places[update])
        share = 1.0 - decay * (-math.expm1(-update / warmup) if warmup else 1.0)
        for key, value in ((key.split("/")[1], value) for key, value in state.items() if key.startswith("model/")):
            found = state[f"model_ema/{key}"]
            begin = averages.get(key)
            if begin is None or begin.shape != value.shape or value.dtype.kind != "f":  # not of the first weights
                averages[key] = found
                continue
            averages[key] = begin + share * (value.astype(np.float64) - begin)
            worst = np.abs(averages[key] - found).max(initial=0.0)
            tolerance = _TOLERANCE * np.abs(found).max(initial=1e-3)
            if worst > tolerance and update == 1:
                first = (found - share * value.astype(np.float64)) / (1.0 - share)
                if key in drawn or share_rows(first, begin, tolerance / (1.0 - share)):
                    averages[key] = found
                    continue
            if worst > tolerance:
                return f"average of {key} after update {update}: off by {worst:.1e} from its formula"
    return None


def share_rows(first: np.ndarray, second: np.ndarray, tolerance: float) -> bool:
    """Whether a row of the one array, along any axis, is a row of the other: at the same place or another."""
    for axis in range(first.ndim):
        rows, others = (np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1) for array in (first, second))
        if any((np.abs(others - row).max(axis=1) <= tolerance).any() for row in rows):
            return True
    return False


def _list_checkpoints(folder: Path) -> dict[int, Path]:
    """List the checkpoints of a run by the number of their update."""
    states = (folder / "checkpoints").glob("[eu]*_*/state.json")
    return {json.loads(file.read_text())["position"]["update"]: file.parent for file in states}
