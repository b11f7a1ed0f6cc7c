"""Predictions for volumes, and the files they are written to."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from PIL import Image

from ..contracts.prediction import OutputWriter, Row
from ..contracts.task import PredictionWriter
from ..files import atomic_file
from ..parallel import all_gather, is_main
from .geometry import Geometry, convert
from .metrics import RADII_MM, LandmarkMetrics, rate_name, rows_of
from .pictures import orthogonal_slices
from .slicer_files import Point, fcsv_text, markups_text

_COLUMNS = ["case", "landmark", "x_mm", "y_mm", "z_mm", "confidence", "radial_error_mm", "world"]


class Found(NamedTuple):
    """The landmarks of one volume.

    Attributes:
        index: of the volume in its dataset.
        geometry: of the volume.
        voxels: float64 (landmarks, 3), positions z, y, x in voxels.
        confidences: float (landmarks,), the values of the peaks.
        picture: uint8 (height, width, 3), where it was asked for.
    """

    index: int
    geometry: Geometry
    voxels: np.ndarray
    confidences: np.ndarray
    picture: Optional[np.ndarray] = None

    @property
    def world(self) -> np.ndarray:
        """The same positions in millimetres, float64 (landmarks, 3): x, y, z to the right, to the front, upwards."""
        return self.geometry.world(self.voxels)


class LandmarkWriter(PredictionWriter):
    """Draws each case immediately; rows are gathered from all ranks at the end.

    Args:
        folder: must exist.
        names: of the landmarks.
        cases: name of each volume, and the convention ("ras" or "lps") that its positions are written in.
    """

    def __init__(self, folder: Path, names: Sequence[str], cases: Sequence[Tuple[str, str]]) -> None:
        self.folder = folder
        self.names = list(names)
        self.cases = list(cases)
        self._rows: List[List[Any]] = []  # predicted by this rank

    def add(self, found: Found, errors: np.ndarray, true: np.ndarray, volume: np.ndarray) -> None:
        """Keep the positions of a volume and draw them.

        Args:
            errors: float64 (landmarks,), millimetres; NaN where the truth is unknown.
            true: float64 (landmarks, 3), z, y, x in voxels; NaN where unknown.
            volume: float32 (depth, height, width).
        """
        case, convention = self.cases[found.index]
        for point, sure, error in zip(points_of(found, self.names, convention), found.confidences, errors):
            known = "" if math.isnan(error) else f"{error:.4f}"
            self._rows.append([case, point.name, *point.position, f"{sure:.4f}", known, convention.upper()])
        _write_png(self.folder / f"{case}.png", picture_of(volume, found, self.names, true))

    def finish(self) -> List[str]:
        """Gather all ranks' rows; the main process writes ``landmarks.csv``, ``per_landmark.csv`` and, for each case,
        point lists for Slicer."""
        rows = sorted(row for part in all_gather(self._rows) for row in part)
        if not is_main():
            return []
        _write_csv(self.folder / "landmarks.csv", _COLUMNS, rows)
        by_case: Dict[str, Dict[str, List[Any]]] = {}
        for row in rows:
            by_case.setdefault(row[0], {})[row[1]] = row
        metrics = LandmarkMetrics(self.names)
        for case, convention in self.cases:
            if case not in by_case:
                continue
            found = [by_case[case][name] for name in self.names]
            metrics.update(np.array([float(row[6] or "nan") for row in found]))
            points = [Point(row[1], tuple(row[2:5]), f"confidence {row[5]}") for row in found]
            _write_point_lists(self.folder, case, points, convention)
        header = ["landmark", "mre_mm", "sd_mm", *map(rate_name, RADII_MM), "count"]
        _write_csv(self.folder / "per_landmark.csv", header, rows_of(metrics.state, self.names))
        worlds = " and ".join(sorted({row[7] for row in rows}))
        return [
            f"wrote {len(rows)} positions in world millimetres ({worlds}), and point lists for Slicer and a picture of "
            f"each case, to {self.folder}"
        ]


class LandmarkOutputs(OutputWriter):
    """Writes point lists for Slicer and a picture of each volume that is predicted.

    Args:
        folder: must exist.
        cases: name of each volume's files, and the convention ("ras" or "lps") that its positions are written in.
    """

    def __init__(self, folder: Path, names: Sequence[str], cases: Sequence[Tuple[str, str]]) -> None:
        self.folder = folder
        self.names = list(names)
        self.cases = list(cases)

    def write(self, index: int, prediction: Found) -> Row:
        case, convention = self.cases[index]
        files = _write_point_lists(self.folder, case, points_of(prediction, self.names, convention), convention)
        if prediction.picture is not None:
            files["picture"] = f"{case}.png"
            _write_png(self.folder / files["picture"], prediction.picture)
        return files

    def finish(self, rows: Iterable[Row]) -> List[str]:
        if not self.cases:
            return []
        return [f"point lists for Slicer (.fcsv, .mrk.json) and a picture of each volume are in {self.folder}"]


def points_of(found: Found, names: Sequence[str], convention: str) -> List[Point]:
    """The landmarks of a volume as they are written: millimetres with four digits, in a convention."""
    return [
        Point(name, tuple(f"{value:.4f}" for value in place), f"confidence {sure:.4f}")
        for name, place, sure in zip(names, convert(found.world, convention), found.confidences)
    ]


def picture_of(volume: np.ndarray, found: Found, names: Sequence[str], true: Optional[np.ndarray] = None) -> np.ndarray:
    """Slices of a volume (depth, height, width) with what was found, and the truth (landmarks, 3) where known."""
    return orthogonal_slices(volume, found.geometry.spacing, found.voxels, true, shows_sides=True, names=names)


def _write_point_lists(folder: Path, case: str, points: Sequence[Point], convention: str) -> Row:
    names = {"fcsv": f"{case}.fcsv", "mrk_json": f"{case}.mrk.json"}
    _write(folder / names["fcsv"], fcsv_text(points, convention))
    _write(folder / names["mrk_json"], markups_text(points, convention))
    return names


def _write_png(file: Path, picture: np.ndarray) -> None:
    content = io.BytesIO()
    Image.fromarray(picture).save(content, format="PNG")
    with atomic_file(file) as out:
        out.write(content.getvalue())


def _write_csv(file: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    _write(file, text.getvalue())


def _write(file: Path, text: str) -> None:
    with atomic_file(file) as out:
        out.write(text.encode("utf-8"))
