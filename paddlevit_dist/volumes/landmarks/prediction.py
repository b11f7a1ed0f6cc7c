"""Predicted landmarks of volumes, and their output files."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from PIL import Image

from ...core.runtime.files import atomic_file, write_csv
from ...core.runtime.printing import cell
from ...core.tasks.aspects import TaskAspect
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.prediction import PredictionRecord, PredictionWriter, Row
from ...core.tasks.protocols import Predictable
from ...core.tasks.sample_checks import BadSample
from ..geometry import convert
from ..images import orthogonal_slices
from ..inputs import InputVolumes, VolumeInputs, find_volumes
from ..intensities import IntensityConfig
from ..landmark_files import TABLES
from ..nonzero import regions_per_channel
from ..samples import AugmentationConfig, VolumeSamples
from ..slicer_files import LandmarkPoint, format_fcsv, format_markups
from .metrics import RADII_MM, build_rows, rate_name, sum_errors
from .results import LandmarkGroundTruth, LandmarkPrediction
from .task import LandmarkDetection, list_cases

_COLUMNS = ["case", "landmark", "x_mm", "y_mm", "z_mm", "confidence", "radial_error_mm", "world"]


class LandmarkPredictor(TaskAspect, Predictable):
    """Predicts the landmarks of volumes."""

    task: LandmarkDetection

    def __init__(self, task: LandmarkDetection) -> None:
        super().__init__(task)
        self._cases: list[tuple[str, str]] | None = None  # of the inputs, once they are open

    def _get_cases(self) -> list[tuple[str, str]]:
        """Return name and convention of the inputs, or of the evaluated volumes."""
        return self.task.cases if self._cases is None else self._cases

    def predict_step(self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor]) -> list[LandmarkPrediction]:
        """Predict the landmarks of each volume."""
        return self.task.locate(model, batch)

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> VolumeInputs:
        """Open the volumes in files and folders for prediction."""
        task, volumes = self.task, self.task.config.VOLUMES
        intensities = IntensityConfig.from_config(volumes, 1, task.within)
        files, unreadable, skipped = find_volumes(inputs)
        dataset = InputVolumes(files, task.names, task.spacing, volumes.COORDINATE_SYSTEM, volumes.MAX_VOXELS)
        dataset.within = regions_per_channel(intensities.within, intensities.kinds)
        self._cases = list_cases(dataset)
        samples = VolumeSamples(dataset, None, AugmentationConfig(), range(len(task.names)), intensities)
        return VolumeInputs(samples, unreadable, skipped)

    def prediction_rows(self, prediction: LandmarkPrediction) -> list[Row]:
        """Return a row for each landmark, in millimeters of the volume's convention.

        BadSample if the outputs are not finite.
        """
        if not np.isfinite(prediction.confidences).all():
            raise BadSample("the model's outputs are not finite")
        convention = self._get_cases()[prediction.index][1]
        rows = zip(build_points(prediction, self.task.names, convention), prediction.confidences)
        return [
            {
                "landmark": point.name,
                **dict(zip(("x_mm", "y_mm", "z_mm"), map(float, point.position))),
                "confidence": round(float(confidence), 4),
                "world": convention.upper(),
            }
            for point, confidence in rows
        ]

    def prediction_writer(self, folder: Path, samples: TransformedDataset) -> "LandmarkWriter":
        """Create the writer of prediction files."""
        return LandmarkWriter(folder, self.task.names, self._get_cases())


class LandmarkWriter(PredictionWriter):
    """Writer of point lists for Slicer and an image of each volume; an evaluation also writes two tables.

    They are ``landmarks.csv`` and ``per_landmark.csv``. ``cases`` are file name of each volume, and the convention
    ("ras" or "lps") of its positions.
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
        summaries = [entry.summary for entry in entries if entry.summary is not None]
        rows = [row for summary in summaries for row in summary]
        if rows:
            write_csv(self.folder / TABLES[0], [_COLUMNS, *sorted(rows)], "\n")
            header = ["landmark", "mre_mm", "sd_mm", *map(rate_name, RADII_MM), "count"]
            errors = np.array([[float(row[6] or "nan") for row in summary] for summary in summaries])
            landmark_rows = build_rows(sum_errors(errors), list(map(cell, self.names)))
            write_csv(self.folder / TABLES[1], [header, *landmark_rows], "\n")
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


def _write(file: Path, text: str) -> None:
    with atomic_file(file) as out:
        out.write(text.encode("utf-8"))
