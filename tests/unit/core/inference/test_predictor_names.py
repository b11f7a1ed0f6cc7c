"""Rows of predictions have the name at the place of the class, whatever the order of the names."""

from types import SimpleNamespace

import numpy as np
import pytest

from paddlevit_dist.images.detection.detections import DetectedObjects
from paddlevit_dist.images.detection.prediction import BoxPrediction
from paddlevit_dist.images.segmentation.prediction import LabelMapPrediction
from paddlevit_dist.points.instances.matching import InstancePrediction
from paddlevit_dist.points.instances.prediction import InstanceScenePrediction
from paddlevit_dist.points.segmentation.prediction import SemanticPrediction
from paddlevit_dist.volumes.geometry import VolumeGeometry
from paddlevit_dist.volumes.landmarks.prediction import LandmarkPredictor
from paddlevit_dist.volumes.landmarks.results import LandmarkPrediction
from paddlevit_dist.volumes.segmentation.prediction import VolumeLabelPrediction

NAMES = ["wasp", "ant", "moth"]
BOXES = DetectedObjects(
    np.array([[0, 1, 1, 4], [1, 2, 5, 9], [0, 0, 4, 3], [2, 2, 3, 7]], np.float32),
    np.array([0.875, 0.75, 0.5, 0.375], np.float32),  # the third is just shown, the last is not
    np.array([0, 1, 2, 0]),
)
VOXELS = np.array([[1, 2, 4], [5, 0, 3], [2, 6, 1]], np.float64)  # z, y, x
LANDMARKS = LandmarkPrediction(
    0,
    VolumeGeometry((7, 8, 9), np.diag([0.5, 2.0, 3.0, 1.0])),
    VOXELS,
    np.array([0.25, 0.75, 0.5]),
    np.zeros((7, 8, 9), np.float32),
)
LABELS = np.repeat([0, 1, 2], [3, 2, 1])


@pytest.mark.parametrize(
    "aspect, prediction, expected",
    [
        (LabelMapPrediction, LABELS.reshape(2, 3).astype(np.uint8), [(0.5, 0.333333, 0.166667)]),
        (SemanticPrediction, LABELS, [(6, 3, 2, 1)]),
        (
            VolumeLabelPrediction,
            SimpleNamespace(labels=LABELS.reshape(1, 2, 3).astype(np.uint8), spacing=np.diag([10.0, 5.0, 20.0])),
            [(2.0, 1.0)],
        ),
        (BoxPrediction, BOXES, [("wasp", 0.875), ("ant", 0.75), ("moth", 0.5)]),
        (
            InstanceScenePrediction,
            (LABELS, [InstancePrediction(2, 0.75, np.arange(5)), InstancePrediction(0, 0.5, np.arange(3))]),
            [(0, "moth", 0.75, 5), (1, "wasp", 0.5, 3)],
        ),
        (
            LandmarkPredictor,
            LANDMARKS,
            [("wasp", 2.0, 4.0, 3.0), ("ant", 1.5, 0.0, 15.0), ("moth", 0.5, 12.0, 6.0)],
        ),
    ],
)
def test_a_row_has_the_name_at_the_place_of_its_class(aspect, prediction, expected):
    config = SimpleNamespace(DETECTION=SimpleNamespace(SCORE_THRESHOLD=0.5))
    task = SimpleNamespace(class_names=NAMES, names=NAMES, regions=[], config=config, cases=[("a", "ras")])
    rows = aspect(task).prediction_rows(prediction)
    assert [tuple(row.values())[: len(values)] for row, values in zip(rows, expected, strict=True)] == expected
    if aspect in (LabelMapPrediction, SemanticPrediction, VolumeLabelPrediction):
        named = [name.rpartition("_")[2].rpartition(" ")[2] for name in rows[0]]
        assert [name for name in named if name != "points"] == NAMES[-len(expected[0]) :]
