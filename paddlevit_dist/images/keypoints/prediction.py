"""Predictions of keypoints: tables, drawn skeletons, results in COCO's format, and data sets for labelling tools."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...core.runtime.errors import UserError
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.prediction import PredictionWriter, Row
from ...core.tasks.sample_checks import BadSample
from ..data.inputs import InputImages
from ..detection.coco_files import Id
from ..detection.detections import BOXES, RESULT_FILES, corners_to_boxes
from ..detection.predicted_dataset import complete_ids
from ..detection.prediction import DetectionWriter, ObjectPrediction
from .detected_keypoints import DetectedKeypoints
from .drawing import DrawnObjects, draw_keypoints
from .keypoint_set import KeypointSet
from .predicted_dataset import PredictedKeypoints

_COLUMNS = ("category", "score", "x", "y", "width", "height")
_POINT_COLUMNS = ("x", "y", "score")


class KeypointPrediction(ObjectPrediction):
    """Base class of both tasks' predictions.

    They add ``predict_step``, which returns ``DetectedKeypoints``, and ``open_inputs``.
    """

    task: Any  # with ``class_names``, ``category_ids`` and ``keypoint_sets``

    def save_predictions_as(self, layout: str) -> None:
        """Let ``prediction_writer`` also write a data set; raise UserError if the layout has no keypoints."""
        if layout not in PredictedKeypoints.datasets:
            known = " or ".join(PredictedKeypoints.datasets)
            raise UserError(f"predict: -save_as={layout} has no keypoints: choose {known}")
        super().save_predictions_as(layout)

    @property
    def least_score(self) -> float:
        """Lowest score of an object in rows, drawings and data sets."""
        return float(self.task.config.DETECTION.SCORE_THRESHOLD)

    def prediction_rows(self, prediction: DetectedKeypoints) -> list[Row]:
        """Return table rows of a prediction."""
        task = self.task
        return build_rows(prediction, task.class_names, task.keypoint_sets, self.least_score)

    def prediction_writer(self, folder: Path, dataset: TransformedDataset) -> PredictionWriter:
        """Return the writer of predictions in a folder."""
        task, saved = self.task, None
        least_score, names, ids = self.least_score, task.class_names, task.category_ids
        images, categories = self.choose_ids(dataset)
        if self.saved_as is not None and isinstance(dataset, InputImages):
            options = folder, dataset, self.saved_as, names, complete_ids(categories, ids), least_score
            saved = PredictedKeypoints(*options, keypoint_sets=task.keypoint_sets)
        return KeypointWriter(folder, dataset, names, categories, least_score, None, images, saved, task.keypoint_sets)


def build_rows(
    detected: DetectedKeypoints, class_names: Sequence[str], keypoint_sets: Sequence[KeypointSet], least_score: float
) -> list[Row]:
    """Return a row for each object of at least this score, best first; one empty row if there is none.

    After category, score and box a row has x, y and score of each point of all categories, by name.

    Raises:
        BadSample: a score, a point or a box is not finite.
    """
    if len(detected.finite().scores) < len(detected.scores):
        raise BadSample("the model's outputs for it are not finite")
    shown = detected.only(detected.scores >= least_score)
    shown = shown.only(np.argsort(-shown.scores, kind="stable"))
    names = list(dict.fromkeys(name for points in keypoint_sets for name in points.names))
    empty: Row = dict.fromkeys([*_COLUMNS, *(f"{name} {what}" for name in names for what in _POINT_COLUMNS)])
    rows = []
    for points, score, label, box in zip(
        shown.points.tolist(),
        shown.scores.tolist(),
        shown.labels.tolist(),
        corners_to_boxes(shown.span_boxes()).tolist(),
    ):
        values = (class_names[label], round(score, 4), *(round(value, 2) for value in box))
        row = {**empty, **dict(zip(_COLUMNS, values))}
        for name, (x, y, certainty) in zip(keypoint_sets[label].names, points):
            row[f"{name} x"], row[f"{name} y"], row[f"{name} score"] = round(x, 2), round(y, 2), round(certainty, 4)
        rows.append(row)
    return rows or [empty]


class KeypointWriter(DetectionWriter):
    """Writes results in COCO's format, and draws skeletons on images without annotations.

    Args:
        keypoint_sets: points of each category; ``DetectionWriter`` describes the other arguments.
    """

    nouns = "objects"

    def __init__(self, *options: Any) -> None:
        *others, self.keypoint_sets = options
        super().__init__(*others)

    def draw(self, pixels: np.ndarray, shown: DetectedKeypoints) -> np.ndarray:
        """Draw the skeletons of the shown objects on an image, uint8 (height, width, 3)."""
        return draw_keypoints(pixels, DrawnObjects.from_detected(shown), self.keypoint_sets, self.class_names)

    def build_results(self, image_id: Id, prediction: DetectedKeypoints, name: str) -> dict[str, list[dict[str, Any]]]:
        """Return the results of an image in the file of results."""
        numbers = [len(points.names) for points in self.keypoint_sets]
        results = build_coco_results(image_id, prediction, self.category_ids, numbers, name, self.result_names)
        return {RESULT_FILES[BOXES]: results}


def build_coco_results(
    image_id: Id,
    detected: DetectedKeypoints,
    category_ids: Sequence[Id | None],
    numbers: Sequence[int],
    path: str = "",
    category_names: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return the results for one image in COCO's format, with the names of image and category if there are any.

    Numbers are exact, so that scores equal the network's. There are no boxes, since COCO's tools would otherwise use
    their areas for medium and large objects. Objects that are not finite or without a category are omitted.

    Args:
        category_ids: ids in the order of labels; None: the label has no category.
        numbers: number of points of each category.
    """
    detected = detected.finite()
    return [
        {
            "image_id": image_id,
            "category_id": category_ids[label],
            "keypoints": [value for point in points[: numbers[label]] for value in point],
            "score": score,
            **({"file_name": path} if path else {}),
            **({"category_name": category_names[label]} if label < len(category_names) else {}),
        }
        for points, score, label in zip(detected.points.tolist(), detected.scores.tolist(), detected.labels.tolist())
        if label < len(category_ids) and category_ids[label] is not None
    ]
