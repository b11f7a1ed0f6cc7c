"""Radial errors of landmarks in millimeters, as sums and counts."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...intervals import quotient, weighted_sums
from ...tasks.metrics import Metrics, SampleTable

RADII_MM = (2.0, 2.5, 3.0, 4.0)
_PLACES = ("x_mm", "y_mm", "z_mm", "true x_mm", "true y_mm", "true z_mm", "confidence")
_SUMS = 3  # columns before the hits: count, sum, sum of squares


class LandmarkMetrics(Metrics):
    """Mean radial error, its standard deviation over landmarks and volumes (dividing by their number), and the success
    detection rates: shares of landmarks found within 2, 2.5, 3 and 4 mm. Missing landmarks do not count."""

    lists = ("_volumes", "_places", "_worlds")

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.names = list(names)
        self.state = {"table": np.zeros((len(self.names), _SUMS + len(RADII_MM)))}
        self._volumes: list[np.ndarray] = []  # a table of each
        self._places: list[np.ndarray] = []
        self._worlds: list[str] = []

    def update(self, errors_mm: np.ndarray, places: np.ndarray | None = None, world: str = "") -> None:
        """Add one volume: float64 (landmarks,), NaN where the landmark is missing.

        Args:
            places: float64 (landmarks, 7), x, y, z in mm of where each was found and of where it is, and how sure that
                is; None: unknown.
            world: the convention of ``places``, such as "RAS".
        """
        self._places.append(np.full((len(self.names), len(_PLACES)), np.nan) if places is None else places)
        self._worlds.append(world)
        known = np.isfinite(errors_mm)
        errors = np.where(known, errors_mm, 0.0)
        hits = [(known & (errors <= radius)).astype(np.float64) for radius in RADII_MM]
        self._volumes.append(np.stack([known.astype(np.float64), errors, errors**2, *hits], axis=1))
        self.state["table"] += self._volumes[-1]

    def compute(self, state: dict[str, Any]) -> dict[str, float]:
        table = state["table"]
        values = describe(table.sum(axis=0))
        for name, row in zip(self.names, table):
            if row[0]:
                values.update({f"{name} {key}": value for key, value in describe(row).items()})
        return values

    def per_sample(self) -> list[np.ndarray]:
        """The table of each volume, float64 (volumes, landmarks, 7); places, of the same shape, and their worlds, text
        (volumes,), see ``update``."""
        places = np.array(self._places).reshape(-1, len(self.names), len(_PLACES))
        tables = np.array(self._volumes).reshape(-1, *self.state["table"].shape)
        return [tables, places, np.array(self._worlds, "U8")]

    def bootstrap_values(self, table: Sequence[np.ndarray], weights: np.ndarray) -> dict[str, np.ndarray]:
        flat = table[0].reshape(len(table[0]), -1)
        sums = weighted_sums(weights, flat).reshape(len(weights), *table[0].shape[1:])
        values = _describe(sums.sum(axis=1))
        for place, name in enumerate(self.names):
            values.update({f"{name} {key}": value for key, value in _describe(sums[:, place]).items()})
        return values

    def proportions(self, table: Sequence[np.ndarray]) -> dict[str, int]:
        counts = dict(zip(self.names, table[0][:, :, 0].sum(axis=0).astype(int).tolist()))
        own = {f"{name} {rate_name(radius)}": n for name, n in counts.items() for radius in RADII_MM if n}
        return {**{rate_name(radius): sum(counts.values()) for radius in RADII_MM}, **own}

    def to_sample_table(self, table: Sequence[np.ndarray]) -> SampleTable:
        return SampleTable("landmarks", self.names, {"sums": table[0]})

    def columns(self, table: Sequence[np.ndarray]) -> dict[str, Sequence[Any]]:
        """Errors of each volume, and of each landmark its error, where it was found and is, and how sure that was."""
        sums, places, worlds = table
        values: dict[str, Sequence[Any]] = dict(_describe(sums.sum(axis=1)))
        for number, name in enumerate(self.names):
            values[f"{name} error_mm"] = quotient(sums[:, number, 1], sums[:, number, 0])
            values.update({f"{name} {what}": places[:, number, place] for place, what in enumerate(_PLACES)})
        return {**values, "world": worlds.tolist()}

    def summary(self, values: dict[str, float]) -> str:
        rates = " ".join(f"{radius:g} mm {values[rate_name(radius)]:.2f}" for radius in RADII_MM)
        interval = self.format_interval("mre_mm", 3)
        return f"mre {values['mre_mm']:.4f} mm{interval} sd {values['sd_mm']:.4f} mm sdr {rates}"


def rate_name(radius: float) -> str:
    """Key of the success detection rate within so many millimeters."""
    return f"sdr_{radius:g}mm"


def describe(row: np.ndarray) -> dict[str, float]:
    """Figures of one row of sums: (count, sum, sum of squares, hits for each radius)."""
    count = max(row[0], 1.0)
    mean = row[1] / count
    values = {"mre_mm": mean, "sd_mm": math.sqrt(max(row[2] / count - mean**2, 0.0))}
    values.update({rate_name(radius): 100.0 * hits / count for radius, hits in zip(RADII_MM, row[_SUMS:])})
    values["landmarks"] = int(row[0])
    return values


def _describe(rows: np.ndarray) -> dict[str, np.ndarray]:
    """``describe`` of each of several rows of sums (draws, 7), without the count; not a number where it is 0."""
    count, total, squares, *hits = rows.T
    mean = quotient(total, count)
    values = {"mre_mm": mean, "sd_mm": np.sqrt(np.maximum(quotient(squares, count) - mean**2, 0.0))}
    values.update({rate_name(radius): 100.0 * quotient(found, count) for radius, found in zip(RADII_MM, hits)})
    return values


def build_rows(metrics_state: dict[str, Any], names: list[str]) -> list[list[Any]]:
    """A table for people: name, count, mean, deviation and rates of each landmark and, last, of all."""
    table = metrics_state["table"]
    lines = [*zip(names, table), ("all", table.sum(axis=0))]
    return [[name, *(f"{value:.6g}" for value in describe(row).values())] for name, row in lines if row[0]]
