"""Radial errors of landmarks in millimeters."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...core.intervals import ScoreRange, quotient, weighted_sums
from ...core.intervals.score_ranges import ERROR_RANGE
from ...core.tasks.class_names import name_all
from ...core.tasks.metrics import TableMetrics
from ...core.tasks.score_kind import Arrays, FormatInterval, ScoreKind

RADII_MM = (2.0, 2.5, 3.0, 4.0)
_PLACES = ("x_mm", "y_mm", "z_mm", "true_x_mm", "true_y_mm", "true_z_mm", "confidence")
_SUMS = 3  # columns before the hits: count, sum, sum of squares


def rate_name(radius: float) -> str:
    """Return the key of the success detection rate within ``radius`` millimeters."""
    return f"sdr_{radius:g}mm"


class LandmarkMetrics(TableMetrics):
    """Collect the errors and the positions of landmarks in each volume, see ``LandmarkScores``."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__("landmarks", names)

    def update(self, errors_mm: np.ndarray, places: np.ndarray | None = None, world: str = "") -> None:
        """Add the errors of one volume, float64 (landmarks,), NaN where the landmark is missing.

        ``places`` are predicted x, y, z in mm, true x, y, z in mm, and confidence, float64 (landmarks, 7), in the
        convention ``world``, such as "RAS"; None: unknown.
        """
        places = np.full((len(self.class_names), len(_PLACES)), np.nan) if places is None else places
        self.add(sums=sum_errors(errors_mm), places=places, worlds=world)


class LandmarkScores(ScoreKind):
    """Mean radial error, its standard deviation, and success detection rates; the classes are landmarks.

    The deviation is over landmarks and volumes (dividing by their number). Rates are the percentages of landmarks found
    within 2, 2.5, 3 and 4 mm. Missing landmarks do not count. Arrays: "sums", see ``sum_errors``; "places" and "worlds"
    of an evaluation, see ``LandmarkMetrics.update``.
    """

    class_score = "{} mre_mm"
    other_class_scores = ("{} sd_mm", *(f"{{}} {rate_name(radius)}" for radius in RADII_MM))
    units = {"mre_mm": "mm", "sd_mm": "mm"}
    directions = {"sd_mm": "lower"}
    pooled_rates = (*map(rate_name, RADII_MM),)
    few = 100  # means of errors with rare large ones
    is_ranking = False
    unsaved = ("places", "worlds")

    def compute(self, arrays: Arrays, weights: np.ndarray) -> dict[str, np.ndarray]:
        """Compute the values of weighted volumes, of all landmarks and of each."""
        drawn = weighted_sums(weights, arrays["sums"])
        values, by_landmark = describe(drawn.sum(axis=1)), describe(drawn)
        for index, name in enumerate(self.classes):
            values.update({f"{name} {key}": column[:, index] for key, column in by_landmark.items()})
        return values

    def find_ranges(self, arrays: Arrays, classes: Sequence[str]) -> dict[str, ScoreRange | None]:
        """Return the range of errors; None for deviations, whose intervals hold too seldom."""
        landmarks = ("", *(f"{name} " for name in classes))
        known: dict[str, ScoreRange | None] = {"mre_mm": ERROR_RANGE, "sd_mm": None}
        return {f"{landmark}{score}": bounds for landmark in landmarks for score, bounds in known.items()}

    def counts(self, arrays: Arrays) -> dict[str, int]:
        """Count the landmarks, and the volumes with each one that occurs."""
        numbers = dict(zip(self.classes, arrays["sums"][..., 0].sum(axis=0).astype(int).tolist()))
        return {"landmarks": sum(numbers.values()), **{f"{name} landmarks": n for name, n in numbers.items() if n}}

    def columns(self, arrays: Arrays) -> dict[str, Sequence[Any]]:
        """Return errors, positions and confidences of each volume and landmark, by column."""
        values: dict[str, Sequence[Any]] = dict(describe(arrays["sums"].sum(axis=1)))
        errors = describe(arrays["sums"])["mre_mm"]  # (volumes, landmarks)
        for number, name in enumerate(self.classes):
            values[f"{name} error_mm"] = errors[:, number]
            values.update({f"{name} {what}": arrays["places"][:, number, at] for at, what in enumerate(_PLACES)})
        return {**values, "world": arrays["worlds"].tolist()}

    def summary(self, values: Mapping[str, float], format_interval: FormatInterval) -> str:
        """Format the main values as one log line."""
        rates = " ".join(f"{radius:g} mm {values[rate_name(radius)]:.2f}" for radius in RADII_MM)
        interval = format_interval("mre_mm", 3)
        return f"mre {values['mre_mm']:.4f} mm{interval} sd {values['sd_mm']:.4f} mm sdr {rates}"

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


def sum_errors(errors_mm: np.ndarray) -> np.ndarray:
    """Return what scores are computed from, float64 (..., 7), from errors (...), NaN for missing landmarks.

    These are whether there is an error, the error, its square, and whether it is within each radius; or sums of these.
    """
    is_present = np.isfinite(errors_mm)
    errors = np.where(is_present, errors_mm, 0.0).astype(np.float64)
    hits = [is_present & (errors <= radius) for radius in RADII_MM]
    return np.stack([is_present, errors, errors**2, *hits], axis=-1).astype(np.float64)


def sum_volumes(sums: np.ndarray) -> np.ndarray:
    """Add sums (volumes, landmarks, 7) to sums (landmarks + 1, 7), of each landmark and, last, of all."""
    return np.stack([*sums.sum(axis=0), sums.sum(axis=(0, 1))])


def describe(sums: np.ndarray) -> dict[str, np.ndarray]:
    """Compute the scores by name, (...), from sums (..., 7), see ``sum_errors``; NaN where there is no error."""
    count, total, squares, *hits = np.moveaxis(sums, -1, 0)
    mean = quotient(total, count)
    values = {"mre_mm": mean, "sd_mm": np.sqrt(np.maximum(quotient(squares, count) - mean**2, 0.0))}
    values.update({rate_name(radius): 100.0 * quotient(hit_count, count) for radius, hit_count in zip(RADII_MM, hits)})
    return values


def build_rows(sums: np.ndarray, names: Sequence[str]) -> list[list[Any]]:
    """Build the table of per_landmark.csv: name, values and count of each landmark and, last, of all.

    ``sums`` are (volumes, landmarks, 7), see ``sum_errors``. Landmarks of no volume have no row.
    """
    totals = sum_volumes(sums)
    rows = zip([*names, name_all(names)], *describe(totals).values(), totals[:, 0])
    return [[name, *(f"{number:.6g}" for number in numbers)] for name, *numbers in rows if numbers[-1]]
