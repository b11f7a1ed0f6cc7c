"""Radial errors of landmarks in millimeters, as sums and counts."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...intervals import ProportionRecompute, quotient, weighted_sums
from ...tasks.metrics import PerSampleMetrics, SampleTable
from ...tasks.score_kind import Arrays, ScoreKind, join_arrays

RADII_MM = (2.0, 2.5, 3.0, 4.0)
_PLACES = ("x_mm", "y_mm", "z_mm", "true x_mm", "true y_mm", "true z_mm", "confidence")
_SUMS = 3  # columns before the hits: count, sum, sum of squares


class LandmarkMetrics(PerSampleMetrics):
    """Mean radial error, its standard deviation, and success detection rates.

    The deviation is over landmarks and volumes (dividing by their number). Rates are the percentages of landmarks found
    within 2, 2.5, 3 and 4 mm. Missing landmarks do not count.
    """

    lists = ("_volumes", "_places", "_worlds")

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.names = list(names)
        self.state = {"table": np.zeros((len(self.names), _SUMS + len(RADII_MM)))}
        self._volumes: list[np.ndarray] = []  # sums of each volume
        self._places: list[np.ndarray] = []
        self._worlds: list[str] = []

    def update(self, errors_mm: np.ndarray, places: np.ndarray | None = None, world: str = "") -> None:
        """Add the errors of one volume, float64 (landmarks,), NaN where the landmark is missing.

        ``places`` are predicted x, y, z in mm, true x, y, z in mm, and confidence, float64 (landmarks, 7), in the
        convention ``world``, such as "RAS"; None: unknown.
        """
        self._places.append(np.full((len(self.names), len(_PLACES)), np.nan) if places is None else places)
        self._worlds.append(world)
        is_present = np.isfinite(errors_mm)
        errors = np.where(is_present, errors_mm, 0.0)
        hits = [(is_present & (errors <= radius)).astype(np.float64) for radius in RADII_MM]
        self._volumes.append(np.stack([is_present.astype(np.float64), errors, errors**2, *hits], axis=1))
        self.state["table"] += self._volumes[-1]

    def compute(self, state: dict[str, Any]) -> dict[str, float]:
        """Compute the values from summed counts."""
        table = state["table"]
        values = describe(table.sum(axis=0))
        for name, row in zip(self.names, table):
            if row[0]:
                values.update({f"{name} {key}": value for key, value in describe(row).items()})
        return values

    def per_sample(self) -> list[np.ndarray]:
        """Return sums, positions, float64 (volumes, landmarks, 7) each, see ``update``, and conventions (volumes,)."""
        places = np.array(self._places).reshape(-1, len(self.names), len(_PLACES))
        tables = np.array(self._volumes).reshape(-1, *self.state["table"].shape)
        return [tables, places, np.array(self._worlds, "U8")]

    def bootstrap_values(self, table: Sequence[np.ndarray], weights: np.ndarray) -> dict[str, np.ndarray]:
        """Compute the values of resampled volumes, one for each row of ``weights``."""
        flat = table[0].reshape(len(table[0]), -1)
        sums = weighted_sums(weights, flat).reshape(len(weights), *table[0].shape[1:])
        values = _describe(sums.sum(axis=1))
        for index, name in enumerate(self.names):
            values.update({f"{name} {key}": value for key, value in _describe(sums[:, index]).items()})
        return values

    def proportions(self, table: Sequence[np.ndarray]) -> dict[str, int]:
        """Return the number of landmarks for each value that is a proportion."""
        counts = dict(zip(self.names, table[0][:, :, 0].sum(axis=0).astype(int).tolist()))
        rates_by_landmark = {f"{name} {rate_name(radius)}": n for name, n in counts.items() for radius in RADII_MM if n}
        return {**{rate_name(radius): sum(counts.values()) for radius in RADII_MM}, **rates_by_landmark}

    def to_sample_table(self, table: Sequence[np.ndarray]) -> SampleTable:
        """Return the sums of each volume for comparisons of runs."""
        return SampleTable("landmarks", self.names, {"sums": table[0]})

    def columns(self, table: Sequence[np.ndarray]) -> dict[str, Sequence[Any]]:
        """Return errors, positions and confidences of each volume and landmark, by column."""
        sums, places, worlds = table
        values: dict[str, Sequence[Any]] = dict(_describe(sums.sum(axis=1)))
        for number, name in enumerate(self.names):
            values[f"{name} error_mm"] = quotient(sums[:, number, 1], sums[:, number, 0])
            values.update({f"{name} {what}": places[:, number, place] for place, what in enumerate(_PLACES)})
        return {**values, "world": worlds.tolist()}

    def summary(self, values: dict[str, float]) -> str:
        """Format the main values as one log line."""
        rates = " ".join(f"{radius:g} mm {values[rate_name(radius)]:.2f}" for radius in RADII_MM)
        interval = self.format_interval("mre_mm", 3)
        return f"mre {values['mre_mm']:.4f} mm{interval} sd {values['sd_mm']:.4f} mm sdr {rates}"


class LandmarkScores(ScoreKind):
    """Scores of tables that ``LandmarkMetrics`` writes; the classes are landmarks."""

    class_score = "{} mre_mm"

    def recompute(self, parts: Sequence[Arrays], classes: Sequence[str]) -> ProportionRecompute:
        """Return ``LandmarkMetrics.bootstrap_values`` of the volumes."""
        metrics, sums = LandmarkMetrics(classes), join_arrays(parts, "sums")
        return ProportionRecompute(
            lambda weights: metrics.bootstrap_values([sums], weights), metrics.proportions([sums])
        )

    def is_valid(self, arrays: Arrays, samples: int, classes: int) -> bool:
        """Return whether there are sums of each volume and landmark."""
        return arrays["sums"].shape == (samples, classes, _SUMS + len(RADII_MM))

    def truth(self, arrays: Arrays) -> np.ndarray:
        """Return which landmarks each volume has."""
        return arrays["sums"][..., 0]

    def hits(self, arrays: Arrays, classes: Sequence[str]) -> dict[str, np.ndarray]:
        """Return which landmarks are found within each radius."""
        sums, rates = arrays["sums"], {}
        for place, radius in enumerate(RADII_MM, _SUMS):
            hits = sums[..., place] > 0  # (volumes, landmarks)
            rates[rate_name(radius)] = hits[sums[..., 0] > 0]
            for name, landmark_hits, is_annotated in zip(classes, hits.T, sums[..., 0].T > 0):
                rates[f"{name} {rate_name(radius)}"] = landmark_hits[is_annotated]
        return rates


def rate_name(radius: float) -> str:
    """Return the key of the success detection rate within ``radius`` millimeters."""
    return f"sdr_{radius:g}mm"


def describe(row: np.ndarray) -> dict[str, float]:
    """Compute the values of one row of sums: (count, sum, sum of squares, hits for each radius)."""
    count = max(row[0], 1.0)
    mean = row[1] / count
    values = {"mre_mm": mean, "sd_mm": math.sqrt(max(row[2] / count - mean**2, 0.0))}
    values.update({rate_name(radius): 100.0 * hits / count for radius, hits in zip(RADII_MM, row[_SUMS:])})
    values["landmarks"] = int(row[0])
    return values


def _describe(rows: np.ndarray) -> dict[str, np.ndarray]:
    """Compute ``describe`` for rows of sums (draws, 7), without the count; NaN where the count is 0."""
    count, total, squares, *hits = rows.T
    mean = quotient(total, count)
    values = {"mre_mm": mean, "sd_mm": np.sqrt(np.maximum(quotient(squares, count) - mean**2, 0.0))}
    values.update({rate_name(radius): 100.0 * quotient(hit_count, count) for radius, hit_count in zip(RADII_MM, hits)})
    return values


def build_rows(metrics_state: dict[str, Any], names: list[str]) -> list[list[Any]]:
    """Build the table of per_landmark.csv: name, values and count of each landmark and, last, of all."""
    table = metrics_state["table"]
    lines = [*zip(names, table), ("all", table.sum(axis=0))]
    return [[name, *(f"{value:.6g}" for value in describe(row).values())] for name, row in lines if row[0]]
