"""Predictions for volumes, and the files they are written to."""

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
from ..slicer_files import LandmarkPoint, fcsv_text, markups_text
from .metrics import RADII_MM, LandmarkMetrics, build_rows, rate_name

_COLUMNS = ["case", "landmark", "x_mm", "y_mm", "z_mm", "confidence", "radial_error_mm", "world"]


class FoundLandmarks(NamedTuple):
    """The landmarks of one volume.

    Attributes:
        index: of the volume in its dataset.
        geometry: of the volume.
        voxels: float64 (landmarks, 3), positions z, y, x in voxels.
        confidences: float (landmarks,), the values of the peaks.
        volume: float32 (depth, height, width), in which they were found.
    """

    index: int
    geometry: VolumeGeometry
    voxels: np.ndarray
    confidences: np.ndarray
    volume: Any

    @property
    def world(self) -> np.ndarray:
        """The same positions in millimeters, float64 (landmarks, 3): x, y, z to the right, to the front, upwards."""
        return self.geometry.world(self.voxels)


class LandmarkGroundTruth(NamedTuple):
    """The truth about a volume that is evaluated.

    Attributes:
        errors: float64 (landmarks,), millimeters; NaN where the truth is unknown.
        places: float64 (landmarks, 3), z, y, x in voxels; NaN where unknown.
    """

    errors: np.ndarray
    places: np.ndarray


class LandmarkWriter(PredictionWriter):
    """Writes point lists for Slicer and an image of each volume; of an evaluation also ``landmarks.csv`` and
    ``per_landmark.csv``.

    Args:
        folder: must exist.
        names: of the landmarks.
        cases: name of each volume's files, and the convention ("ras" or "lps") that its positions are written in.
    """

    writes_evaluations = True

    def __init__(self, folder: Path, names: Sequence[str], cases: Sequence[tuple[str, str]]) -> None:
        self.folder = folder
        self.names = list(names)
        self.cases = list(cases)

    def write(self, index: int, prediction: FoundLandmarks, truth: LandmarkGroundTruth | None = None) -> Row:
        case, convention = self.cases[index]
        points = build_points(prediction, self.names, convention)
        files = {"fcsv": f"{case}.fcsv", "mrk_json": f"{case}.mrk.json", "picture": f"{case}.png"}
        _write(self.folder / files["fcsv"], fcsv_text(points, convention))
        _write(self.folder / files["mrk_json"], markups_text(points, convention))
        volume, places = np.asarray(prediction.volume), None if truth is None else truth.places
        spacing = prediction.geometry.spacing
        drawn = orthogonal_slices(volume, spacing, prediction.voxels, places, shows_sides=True, names=self.names)
        with atomic_file(self.folder / files["picture"]) as file:
            Image.fromarray(drawn).save(file, format="PNG")
        return files

    def summarize(
        self, index: int, prediction: FoundLandmarks, truth: LandmarkGroundTruth | None = None
    ) -> list[list[str]] | None:
        """Rows of ``landmarks.csv``."""
        if truth is None:
            return None
        case, convention = self.cases[index]
        points = build_points(prediction, self.names, convention)
        return [
            [cell(case), cell(point.name), *point.position, f"{sure:.4f}", "" if math.isnan(error) else f"{error:.4f}"]
            + [convention.upper()]
            for point, sure, error in zip(points, prediction.confidences, truth.errors)
        ]

    def finish(self, entries: Iterable[PredictionRecord]) -> list[str]:
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
            of_names = build_rows(metrics.state, list(map(cell, self.names)))
            _write_csv(self.folder / "per_landmark.csv", header, of_names)
            worlds = " and ".join(sorted({row[7] for row in rows}))
            lines.insert(0, f"wrote {len(rows)} positions in world millimeters ({worlds}) to {self.folder}")
        return lines


def build_points(found: FoundLandmarks, names: Sequence[str], convention: str) -> list[LandmarkPoint]:
    """The landmarks of a volume as they are written: millimeters with four digits, in a convention."""
    return [
        LandmarkPoint(name, tuple(f"{value:.4f}" for value in place), f"confidence {sure:.4f}")
        for name, place, sure in zip(names, convert(found.world, convention), found.confidences)
    ]


def _write_csv(file: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    _write(file, text.getvalue())


def _write(file: Path, text: str) -> None:
    with atomic_file(file) as out:
        out.write(text.encode("utf-8"))
