"""Predicted landmarks of volumes, and their output files."""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ...runtime.files import atomic_file
from ...runtime.printing import cell
from ...tasks.prediction import PredictionRecord, PredictionWriter, Row
from ..geometry import VolumeGeometry, convert
from ..images import orthogonal_slices
from ..slicer_files import LandmarkPoint, format_fcsv, format_markups
from .metrics import RADII_MM, LandmarkMetrics, build_rows, rate_name

_COLUMNS = ["case", "landmark", "x_mm", "y_mm", "z_mm", "confidence", "radial_error_mm", "world"]


class LandmarkPrediction(NamedTuple):
    """Predicted landmarks of one volume.

    Attributes:
        index: index of the volume in its dataset.
        geometry: geometry of the volume.
        voxels: float64 (landmarks, 3), positions z, y, x in voxels.
        confidences: float (landmarks,), the values of the peaks.
        volume: float32 (depth, height, width), the network's input.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used
    geometry: VolumeGeometry
    voxels: np.ndarray
    confidences: np.ndarray
    volume: Any

    @property
    def world(self) -> np.ndarray:
        """Positions in RAS millimeters, float64 (landmarks, 3): x to the right, y to the front, z up."""
        return self.geometry.world(self.voxels)


class LandmarkGroundTruth(NamedTuple):
    """Ground truth of an evaluated volume.

    Attributes:
        errors: float64 (landmarks,), millimeters; NaN where the truth is unknown.
        places: float64 (landmarks, 3), z, y, x in voxels; NaN where unknown.
    """

    errors: np.ndarray
    places: np.ndarray


class LandmarkWriter(PredictionWriter):
    """Writer of point lists for Slicer and an image of each volume.

    An evaluation also writes ``landmarks.csv`` and ``per_landmark.csv``.

    Args:
        folder: existing folder.
        names: of the landmarks.
        cases: file name of each volume, and the convention ("ras" or "lps") of its positions.
    """

    writes_evaluations = True

    def __init__(self, folder: Path, names: Sequence[str], cases: Sequence[tuple[str, str]]) -> None:
        self.folder = folder
        self.names = list(names)
        self.cases = list(cases)

    def write(self, index: int, prediction: LandmarkPrediction, truth: LandmarkGroundTruth | None = None) -> Row:
        """Write the files of one volume and return their names."""
        case, convention = self.cases[index]
        points = build_points(prediction, self.names, convention)
        files = {"fcsv": f"{case}.fcsv", "mrk_json": f"{case}.mrk.json", "picture": f"{case}.png"}
        _write(self.folder / files["fcsv"], format_fcsv(points, convention))
        _write(self.folder / files["mrk_json"], format_markups(points, convention))
        volume, places = np.asarray(prediction.volume), None if truth is None else truth.places
        spacing = prediction.geometry.spacing
        drawn = orthogonal_slices(volume, spacing, prediction.voxels, places, shows_sides=True, names=self.names)
        with atomic_file(self.folder / files["picture"]) as file:
            Image.fromarray(drawn).save(file, format="PNG")
        return files

    def summarize(
        self, index: int, prediction: LandmarkPrediction, truth: LandmarkGroundTruth | None = None
    ) -> list[list[str]] | None:
        """Return the rows of ``landmarks.csv``, None without ground truth."""
        if truth is None:
            return None
        case, convention = self.cases[index]
        points = build_points(prediction, self.names, convention)
        return [
            [
                cell(case),
                cell(point.name),
                *point.position,
                f"{confidence:.4f}",
                "" if math.isnan(error) else f"{error:.4f}",
            ]
            + [convention.upper()]
            for point, confidence, error in zip(points, prediction.confidences, truth.errors)
        ]

    def finish(self, entries: Iterable[PredictionRecord]) -> list[str]:
        """Write the tables of an evaluation and return lines for the log."""
        if not self.cases:
            return []
        lines = [f"point lists for Slicer (.fcsv, .mrk.json) and an image of each volume are in {self.folder}"]
        metrics, rows = LandmarkMetrics(self.names), []
        for entry in entries:
            if entry.summary is not None:
                rows += entry.summary
                metrics.update(np.array([float(row[6] or "nan") for row in entry.summary]))
        if rows:
            _write_csv(self.folder / "landmarks.csv", _COLUMNS, sorted(rows))
            header = ["landmark", "mre_mm", "sd_mm", *map(rate_name, RADII_MM), "count"]
            landmark_rows = build_rows(metrics.state, list(map(cell, self.names)))
            _write_csv(self.folder / "per_landmark.csv", header, landmark_rows)
            worlds = " and ".join(sorted({row[7] for row in rows}))
            lines.insert(0, f"wrote {len(rows)} positions in world millimeters ({worlds}) to {self.folder}")
        return lines


def build_points(prediction: LandmarkPrediction, names: Sequence[str], convention: str) -> list[LandmarkPoint]:
    """Build the output points of a volume: millimeters with four digits, in a convention."""
    points = []
    for name, position, confidence in zip(names, convert(prediction.world, convention), prediction.confidences):
        x, y, z = (f"{value:.4f}" for value in position)
        points.append(LandmarkPoint(name, (x, y, z), f"confidence {confidence:.4f}"))
    return points


def _write_csv(file: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    _write(file, text.getvalue())


def _write(file: Path, text: str) -> None:
    with atomic_file(file) as out:
        out.write(text.encode("utf-8"))
