"""Radial errors of landmarks in millimetres, as sums and counts."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..contracts.task import Metrics

RADII_MM = (2.0, 2.5, 3.0, 4.0)
_SUMS = 3  # columns before the hits: count, sum, sum of squares


class LandmarkMetrics(Metrics):
    """Mean radial error, its standard deviation over landmarks and volumes (dividing by their number), and the success
    detection rates: shares of landmarks found within 2, 2.5, 3 and 4 mm. Missing landmarks do not count."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.names = list(names)
        self.state = {"table": np.zeros((len(self.names), _SUMS + len(RADII_MM)))}

    def update(self, errors_mm: np.ndarray) -> None:
        """Add one volume: float64 (landmarks,), NaN where the landmark is missing."""
        known = np.isfinite(errors_mm)
        errors = np.where(known, errors_mm, 0.0)
        hits = [(known & (errors <= radius)).astype(np.float64) for radius in RADII_MM]
        self.state["table"] += np.stack([known.astype(np.float64), errors, errors**2, *hits], axis=1)

    def compute(self, state: dict[str, Any]) -> dict[str, float]:
        table = state["table"]
        values = describe(table.sum(axis=0))
        for name, row in zip(self.names, table):
            if row[0]:
                values.update({f"{name} {key}": value for key, value in describe(row).items()})
        return values

    def summary(self, values: dict[str, float]) -> str:
        rates = " ".join(f"{radius:g} mm {values[rate_name(radius)]:.2f}" for radius in RADII_MM)
        return f"mre {values['mre_mm']:.4f} mm sd {values['sd_mm']:.4f} mm sdr {rates}"


def rate_name(radius: float) -> str:
    """Key of the success detection rate within so many millimetres."""
    return f"sdr_{radius:g}mm"


def describe(row: np.ndarray) -> dict[str, float]:
    """Figures of one row of sums: (count, sum, sum of squares, hits for each radius)."""
    count = max(row[0], 1.0)
    mean = row[1] / count
    values = {"mre_mm": mean, "sd_mm": math.sqrt(max(row[2] / count - mean**2, 0.0))}
    values.update({rate_name(radius): 100.0 * hits / count for radius, hits in zip(RADII_MM, row[_SUMS:])})
    values["landmarks"] = int(row[0])
    return values


def rows_of(metrics_state: dict[str, Any], names: list[str]) -> list[list[Any]]:
    """A table for people: name, count, mean, deviation and rates of each landmark and, last, of all."""
    table = metrics_state["table"]
    lines = [*zip(names, table), ("all", table.sum(axis=0))]
    return [[name, *(f"{value:.6g}" for value in describe(row).values())] for name, row in lines if row[0]]
