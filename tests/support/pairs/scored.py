"""Reads scores from printed lines and files of samples, and compares them."""

import csv
import re
from pathlib import Path

import numpy as np

from .values import Combination


def fix_thresholds(combination: Combination) -> list[str]:
    """List the keys with which an evaluation has the thresholds of training, which chooses others for later."""
    is_chosen = combination.get("thresholds", "none") not in ("none", "lower")
    return ["MULTI_LABEL.THRESHOLDS", "fixed"] if is_chosen else []


def list_numbers(line: str) -> list[float]:
    """List the scores of a line, without intervals and remarks in parentheses."""
    scores = re.sub(r" \[[^]]*\]", "", line.partition(" (")[0])
    return [float(number) for number in re.findall(r"(?<![\w.])\d+\.\d+", scores)]


def are_near(first: str, second: str, tolerance: float) -> bool:
    """Whether two lines have the same scores; a digit after the point is the last one of some.

    Pixels may differ by 5e-4 of themselves: heatmaps of networks that have hardly learned are so flat that rounding
    moves their refined peaks.
    """
    pairs = list_numbers(first), list_numbers(second)
    relative = 5e-4 if tolerance and " px" in first else tolerance / 10
    return len(pairs[0]) == len(pairs[1]) and np.allclose(*pairs, atol=tolerance, rtol=relative)


def read_rows(path: Path) -> dict[str, dict[str, str]]:
    """Read a file of ``-per_sample``: name of the sample without its folder and suffix -> row."""
    with path.open(newline="") as file:
        return {Path(row["name"]).stem: row for row in csv.DictReader(file)}


def compare_rows(name: str, rows: dict[str, dict[str, str]], found: dict[str, list[str]]) -> str | None:
    """Compare classes and confidences of samples with ``found``: name of the sample -> class and confidence."""
    if rows.keys() != found.keys():
        return f"{name} has {len(found)} rows, evaluate {len(rows)}"
    others = [key for key, (label, _) in found.items() if label != rows[key]["prediction"]]
    worst = max(abs(float(score) - float(rows[key]["confidence"])) for key, (_, score) in found.items())
    if worst > 2e-4 or len(others) > (worst > 0):  # equal logits may fall either way
        return f"{name} differs from evaluate: other classes for {others[:3]}, confidence by {worst:.1e}"
    return None


def compare_tables(first: Path, second: Path) -> str | None:
    """Compare two tables of samples, ``scored_samples.npz``: the same rows in the same order."""
    with np.load(first) as one, np.load(second) as other:
        if set(one.files) != set(other.files):
            return f"tables with other columns: {sorted(set(one.files) ^ set(other.files))}"
        wrong = [name for name in one.files if name != "about" and not _is_equal(one[name], other[name])]
    return f"tables of samples differ in {wrong}" if wrong else None


def _is_equal(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape != other.shape or one.dtype.kind != "f":
        return np.array_equal(one, other)
    return np.allclose(one, other, rtol=1e-5, atol=1e-5, equal_nan=True)
