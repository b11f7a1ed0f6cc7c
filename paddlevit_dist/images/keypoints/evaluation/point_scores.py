"""Errors of the points of one object an image: PCK and mean radial error. Needs no Paddle."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....intervals import quotient, weighted_sums
from ....tasks.score_kind import Arrays, FormatInterval, ScoreKind

KIND = "keypoint_errors"
TASKS = ("keypoint_heatmaps", "keypoint_detection")  # which find keypoints in different ways
PCK_SHARE = 0.05  # of the object's size
RADII_MM = (2.0, 2.5, 3.0, 4.0)  # of success detection rates, as for landmarks in volumes
_MORE_SHARES = (0.1, 0.2)
_UNITS = ("px", "mm")
_PLACES = ("x", "y", "score", "true x", "true y")  # columns of "places"
_SUMS = 3  # columns of a unit: count, sum, sum of squares


class KeypointErrorScores(ScoreKind):
    """Percentage of correct keypoints (PCK) and mean radial error (MRE); the classes are points.

    PCK is the share of labeled points within a distance, a share of the object's size: "share", 0.05 by default, and
    0.1 and 0.2. The size is the longer side of the extent of the labeled points. A point of an object that is not
    detected counts as wrong there, and has no radial error. Where the size of a pixel is known, errors are also in
    millimeters, with the share of points within 2, 2.5, 3 and 4 mm (success detection rate, SDR). Deviations are over
    points and images, dividing by their number.

    Arrays have a row for each image: "errors", float64 (images, points), pixels, NaN for a point that is not labeled
    and infinite for one that is not detected; "errors_mm", likewise, NaN also where the size of a pixel is not known;
    "sides", float64 (images,), size of the object in pixels. "places", float64 (images, points, 5), of an
    evaluation, are x, y and score of each point and true x, y in pixels.

    Source: Y. Yang and D. Ramanan, "Articulated Human Detection with Flexible Mixtures of Parts", TPAMI 2013.
    """

    class_score = "{} PCK"
    decimals = 2
    tasks = TASKS
    settings = ("share",)
    unsaved = ("places",)
    zeros = ("PCK",)

    def compute(self, arrays: Arrays, weights: np.ndarray) -> dict[str, np.ndarray]:
        """Compute the values of weighted images, of all points and of each."""
        values: dict[str, np.ndarray] = {}
        points: dict[str, np.ndarray] = {}
        for name, is_hit, is_labeled in _list_rates(arrays):
            sums = weighted_sums(weights, np.stack([is_hit, is_labeled], axis=-1).astype(np.float64))
            hits, labeled = np.moveaxis(sums, -1, 0)  # (draws, points) each
            values[name] = 100.0 * quotient(hits.sum(axis=1), labeled.sum(axis=1))
            points[name] = 100.0 * quotient(hits, labeled)
        for unit in _UNITS:
            drawn = weighted_sums(weights, sum_errors(arrays["errors" if unit == "px" else "errors_mm"]))
            for key, column in describe_errors(drawn.sum(axis=1)).items():
                values[f"{key}_{unit}"] = column
            points[f"mre_{unit}"] = describe_errors(drawn)["mre"]
        for number, point in enumerate(self.classes):
            values.update({f"{point} {key}": column[:, number] for key, column in points.items()})
        return values

    def counts(self, arrays: Arrays) -> dict[str, int]:
        """Count the images, the labeled points, and the points of objects that are not detected."""
        errors = arrays["errors"]
        missing = int(np.isinf(errors).sum())
        numbers = {"images": len(errors), "points": int((~np.isnan(errors)).sum())}
        return {**numbers, **({"points not detected": missing} if missing else {})}

    def columns(self, arrays: Arrays) -> dict[str, Sequence[Any]]:
        """Return the mean error of each image, and error and places of each of its points."""
        values: dict[str, Sequence[Any]] = {}
        rates = _list_rates(arrays)
        values["PCK"] = 100.0 * quotient(rates[0][1].sum(axis=1), rates[0][2].sum(axis=1))
        for unit, name in zip(_UNITS, ("errors", "errors_mm")):
            errors = np.where(np.isfinite(arrays[name]), arrays[name], np.nan)
            if unit == "px" or not np.isnan(errors).all():
                values[f"mre_{unit}"] = describe_errors(sum_errors(errors).sum(axis=1))["mre"]
                values.update({f"{point} error_{unit}": column for point, column in zip(self.classes, errors.T)})
        for number, point in enumerate(self.classes):
            values.update({f"{point} {what}": arrays["places"][:, number, at] for at, what in enumerate(_PLACES)})
        return values

    def summary(self, values: Mapping[str, float], format_interval: FormatInterval) -> str:
        """Format the main values as one log line."""
        parts = [
            f"{name} {values[name]:.2f}%{format_interval(name, 1)}"
            for name in ("PCK", *map(_pck_name, _MORE_SHARES))
            if name in values
        ]
        for unit in _UNITS:
            if f"mre_{unit}" in values:
                mean, deviation = values[f"mre_{unit}"], values[f"sd_{unit}"]
                parts.append(f"mre {mean:.4f} {unit}{format_interval(f'mre_{unit}', 3)} sd {deviation:.4f} {unit}")
        rates = [f"{radius:g} mm {values[name]:.2f}" for radius in RADII_MM if (name := _sdr_name(radius)) in values]
        parts += [f"sdr {' '.join(rates)}"] if rates else []
        if values.get("points not detected"):  # unknown for a part of the images
            parts.append(f"({int(values['points not detected']):,} points of objects that are not detected)")
        return " ".join(parts)

    def is_valid(self, arrays: Arrays, samples: int, classes: int) -> bool:
        """Return whether there are errors of each image and point."""
        errors, sides = [arrays[name] for name in ("errors", "errors_mm")], arrays["sides"]
        return (
            all(array.shape == (samples, classes) and array.dtype.kind == "f" for array in errors)
            and sides.shape == (samples,)
            and arrays["share"].shape == ()
        )

    def truth(self, arrays: Arrays) -> np.ndarray:
        """Return which points are labeled in each image."""
        return (~np.isnan(arrays["errors"])).astype(np.int8)

    def hits(self, arrays: Arrays, classes: Sequence[str]) -> dict[str, np.ndarray]:
        """Return which labeled points are within each distance."""
        rates = {}
        for rate, is_hit, is_labeled in _list_rates(arrays):
            rates[rate] = is_hit[is_labeled]
            for number, point in enumerate(classes):
                rates[f"{point} {rate}"] = is_hit[is_labeled[:, number], number]
        return rates


def _pck_name(share: float) -> str:
    return f"PCK@{share:g}"


def _sdr_name(radius: float) -> str:
    return f"sdr_{radius:g}mm"


def _list_rates(arrays: Arrays) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Return name, hits and decisions of each rate, bool (images, points); rates of millimeters if they are known."""
    errors, errors_mm, sides = arrays["errors"], arrays["errors_mm"], arrays["sides"][:, None]
    is_labeled, has_mm = ~np.isnan(errors), ~np.isnan(errors_mm)
    share = float(arrays["share"])
    rates = [("PCK", is_labeled & (errors <= share * sides), is_labeled)]
    rates += [(_pck_name(more), is_labeled & (errors <= more * sides), is_labeled) for more in _MORE_SHARES]
    if has_mm.any():
        rates += [(_sdr_name(radius), has_mm & (errors_mm <= radius), has_mm) for radius in RADII_MM]
    return rates


def sum_errors(errors: np.ndarray) -> np.ndarray:
    """Return whether an error (...) is finite, the error, and its square, float64 (..., 3); zeros if it is not."""
    is_finite = np.isfinite(errors)
    finite = np.where(is_finite, errors, 0.0)
    return np.stack([is_finite, finite, finite**2], axis=-1).astype(np.float64)


def describe_errors(sums: np.ndarray) -> dict[str, np.ndarray]:
    """Return mean radial error, "mre", and standard deviation, "sd", (...), of sums (..., 3), see ``sum_errors``."""
    count, total, squares = np.moveaxis(sums, -1, 0)
    mean = quotient(total, count)
    return {"mre": mean, "sd": np.sqrt(np.maximum(quotient(squares, count) - mean**2, 0.0))}
