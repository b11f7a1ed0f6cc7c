"""Errors of the points of one object an image: PCK and mean radial error. Needs no Paddle."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....core.intervals import ScoreRange, quotient, weighted_sums
from ....core.intervals.score_ranges import ERROR_RANGE
from ....core.runtime.printing import count
from ....core.tasks.score_kind import Arrays, FormatInterval, ScoreKind
from ..detected_keypoints import DetectedKeypoints

if TYPE_CHECKING:
    from ...detection.data.image_annotations import ImageAnnotations

KIND = "keypoint_errors"
TASKS = ("keypoint_heatmaps", "keypoint_detection")  # which find keypoints in different ways
PCK_SHARE = 0.05  # of the object's size
RADII_MM = (2.0, 2.5, 3.0, 4.0)  # of success detection rates, as for landmarks in volumes
_MORE_SHARES = (0.1, 0.2)
_UNITS = ("px", "mm")
_PLACES = ("x", "y", "score", "true_x", "true_y")  # columns of "places"
_SUMS = 3  # columns of a unit: count, sum, sum of squares


def _pck_name(share: float) -> str:
    return f"PCK@{share:g}"


def _sdr_name(radius: float) -> str:
    return f"sdr_{radius:g}mm"


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
    other_class_scores = (
        *(f"{{}} {_pck_name(share)}" for share in _MORE_SHARES),
        *(f"{{}} {_sdr_name(radius)}" for radius in RADII_MM),
        *(f"{{}} mre_{unit}" for unit in _UNITS),
    )
    units = {f"{error}_{unit}": unit for unit in ("px", "mm") for error in ("mre", "sd")}
    directions = {"sd_px": "lower", "sd_mm": "lower"}
    pooled_rates = ("PCK", *map(_pck_name, _MORE_SHARES), *map(_sdr_name, RADII_MM))
    is_ranking = False
    decimals = 2
    tasks = TASKS
    settings = ("share",)
    unsaved = ("places",)

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

    def find_ranges(self, arrays: Arrays, classes: Sequence[str]) -> dict[str, ScoreRange | None]:
        """Return the range of errors; None for deviations, whose intervals hold too seldom."""
        points = ("", *(f"{name} " for name in classes))
        errors = [f"{point}mre_{unit}" for point in points for unit in _UNITS]
        return {**dict.fromkeys(errors, ERROR_RANGE), **dict.fromkeys([f"sd_{unit}" for unit in _UNITS])}

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
            parts.append(f"({count(int(values['points not detected']), 'point')} of objects that are not detected)")
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


def compare_object(
    truth: "ImageAnnotations", detected: DetectedKeypoints, number: int, spacing_mm: Sequence[float] | None
) -> dict[str, Any]:
    """Return the row of an image with one object, by column: "errors", "errors_mm", "sides" and "places".

    ``number`` is the number of points, ``spacing_mm`` width and height of a pixel in millimeters; None: not known.
    """
    errors, places = measure_points(truth, detected, number)
    errors_mm = np.full(number, np.nan)
    if spacing_mm is not None:
        errors_mm = measure_points(truth, detected, number, spacing_mm)[0]
    return {"errors": errors, "errors_mm": errors_mm, "sides": find_side(truth, number), "places": places}


def measure_points(
    truth: "ImageAnnotations", detected: DetectedKeypoints, number: int, spacing_mm: Sequence[float] = (1.0, 1.0)
) -> tuple[np.ndarray, np.ndarray]:
    """Measure the distances of the best object's points from the first annotation's.

    Args:
        truth: annotations with points in pixels; without one, no point is labeled.
        detected: objects; those that are not finite are ignored.
        number: number of points, K.
        spacing_mm: width and height of a pixel; by default, distances are in pixels.

    Returns:
        Errors, float64 (K,), NaN for a point that is not labeled and infinite where nothing is detected; and x, y,
        score, true x and true y of each point in pixels, float64 (K, 5), NaN where not known.
    """
    places = np.full((number, 5), np.nan)
    if truth.points is not None and len(truth.points):
        own = np.asarray(truth.points[0, :number], np.float64)
        is_labeled = own[:, 2] > 0
        places[np.flatnonzero(is_labeled), 3:] = own[is_labeled, :2]
    detected = detected.finite()
    if len(detected.scores):
        best = np.asarray(detected.points[int(np.argmax(detected.scores))], np.float64)[:number]
        places[: len(best), :3] = best
    errors = np.linalg.norm((places[:, :2] - places[:, 3:]) * np.asarray(spacing_mm, np.float64), axis=1)
    is_missing = ~np.isnan(places[:, 3]) & np.isnan(places[:, 0])
    return np.where(is_missing, np.inf, errors), places


def find_side(truth: "ImageAnnotations", number: int) -> float:
    """Return the size of the first annotation in pixels: the longer side of the extent of its ``number`` points.

    With less than two labeled points it is the longer side of the box; NaN without an annotation. A box says little
    where it is the whole image, as in a table of one object an image.
    """
    if not len(truth.labels):
        return np.nan
    points = np.zeros((0, 3)) if truth.points is None else np.asarray(truth.points[0, :number], np.float64)
    labeled = points[points[:, 2] > 0, :2]
    if len(labeled) < 2:
        return float(truth.boxes[0, 2:].max())
    return float((labeled.max(axis=0) - labeled.min(axis=0)).max())
