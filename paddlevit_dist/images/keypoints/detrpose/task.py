"""Keypoints of several objects in one step: training, evaluation and prediction of DETRPose."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ....core.registry.lookup import resolve
from ....core.runtime.errors import UserError
from ....core.tasks.dataset import TransformedDataset
from ....core.tasks.metrics import Metrics
from ....core.tasks.model_factory import model_options
from ....core.tasks.prediction import CheckpointMeta
from ...detection.data.detection_dataset import DetectionDataset
from ...detection.data.samples import DetectionSamples
from ...detection.denoising import DenoisingQueries
from ...detection.task import Detection
from ..data.keypoint_dataset import KeypointDataset, KeypointsPart
from ..described_points import SIGMA
from ..detected_keypoints import DetectedKeypoints
from ..keypoint_set import COCO_PERSON, KeypointFacts, KeypointSet
from .criterion import PoseTargets
from .network import DetrPose
from .settings import MAL, PoseSettings

_MAL_EXPONENT = 2.0  # the authors' ``gamma``


class KeypointDetection(Detection):
    """Trains and evaluates a network that detects objects with their keypoints."""

    aspects = {
        "AnnotationMatching": ".prediction:PosePrediction",
        "DatasetSaving": ".prediction:PosePrediction",
        "Drawable": "..drawn_samples:KeypointDrawing",
        "Exportable": ".export:PoseExport",
        "Predictable": ".prediction:PosePrediction",
        "Reportable": "..figures:KeypointFigures",
    }
    config: PoseSettings
    _dataset_type, _part_type = KeypointDataset, KeypointsPart

    def __init__(self, config: PoseSettings) -> None:
        super().__init__(config)
        if not (isinstance(self._family, type) and issubclass(self._family, DetrPose)):
            raise UserError(
                f"MODEL.NAME {config.MODEL.NAME} does not detect objects with keypoints: set detrpose_hgnetv2_s, for "
                "example, and MODEL.BACKBONE for another backbone"
            )
        self._has_one_object = getattr(resolve("dataset", config.DATA.DATASET), "has_whole_objects", False)
        if self._has_one_object:
            self.best_metric = ("PCK", True)
        self.keypoint_sets: tuple[KeypointSet, ...] = ()
        self._set_options(matchability=_MAL_EXPONENT if config.POSES.CLASS_LOSS == MAL else None)

    def build_dataset(self, split: str, cache_folder: Path) -> DetectionSamples:
        """Open the samples of a split, with notices on how they are used."""
        samples = super().build_dataset(split, cache_folder)
        samples.window_plan, samples.eval_protocol = None, ""
        return samples

    def _check_classes(self, dataset: DetectionDataset) -> None:
        """Use categories and points of the first split, and check that the other splits have the same."""
        super()._check_classes(dataset)
        sets: tuple[KeypointSet, ...] = dataset.keypoint_sets  # type: ignore[attr-defined]
        if self.keypoint_sets and [each.names for each in sets] != [each.names for each in self.keypoint_sets]:
            raise UserError(
                f"dataset {self.config.DATA.DATASET}: points of categories differ between training and validation "
                "data, or from the weights': use the same names in the same order in all"
            )
        self._set_points(sets)

    def _set_points(self, sets: tuple[KeypointSet, ...]) -> None:
        self.keypoint_sets = sets
        self._set_options(keypoints=max([1, *(len(points.names) for points in sets)]))

    def _identify(self, dataset: TransformedDataset) -> dict[str, Any]:
        """Return facts that identify the dataset."""
        return {**super()._identify(dataset), "points": [points.to_plain() for points in self.keypoint_sets]}

    def _name_classes(self, number: int, meta: CheckpointMeta) -> None:
        """Take categories and points from the weights; one class with 17 points without names is COCO's person."""
        super()._name_classes(number, meta)
        facts = meta.read_data(KeypointFacts)
        if facts.points:
            self._set_points(facts.sets)
            return
        points = model_options(self.config.MODEL.NAME).defaults["keypoints"]
        one = COCO_PERSON
        if points != len(one.names):
            one = KeypointSet(tuple(f"point {k + 1}" for k in range(points)), (), (SIGMA,) * points, ())
        elif number == 1 and not meta.class_names:
            self.class_names, self.num_named = ["person"], 1
        self._set_points((one,) * number)

    def _loss_options(self) -> dict[str, Any]:
        """Return the arguments of the model's losses that keys and data set."""
        most = self.model_options["keypoints"]
        rows = [points.sigmas + (SIGMA,) * (most - len(points.sigmas)) for points in self.keypoint_sets]
        return {
            **super()._loss_options(),
            "sigmas": tuple(tuple(map(float, row)) for row in rows),
            "distill_weight": self.config.POSES.DISTILL_LOSS_WEIGHT,
        }

    def _build_targets(self, batch: dict[str, Any], box_counts: np.ndarray) -> PoseTargets:
        """Return the objects of a training batch; ``box_counts`` are the objects per image."""
        queries = DenoisingQueries.from_batch(batch) if self.criterion.noise else None
        return PoseTargets(batch["points"], batch["areas"], batch["labels"], batch["sizes"], box_counts, queries)

    def _scale_targets(self, targets: PoseTargets, scale: float) -> PoseTargets:
        """Return the objects in images whose sides were multiplied by ``scale``."""
        points = paddle.concat([targets.points[..., :2] * scale, targets.points[..., 2:]], axis=-1)
        return targets._replace(points=points, areas=targets.areas * scale**2)

    def build_metrics(self) -> Metrics:
        """Return the metrics of an evaluation."""
        from ..evaluation.metrics import KeypointMetrics, PointMetrics

        if self._has_one_object:
            return PointMetrics(self.keypoint_sets[0])
        images = None if self.evaluated is None else len(self.evaluated)
        least_score = self.config.DETECTION.SCORE_THRESHOLD
        return KeypointMetrics(self.class_names, self.keypoint_sets, images, least_score, self._max_detections)

    def detect(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> list[DetectedKeypoints]:
        """Return the objects in each image of an evaluation batch, in its pixels, best first.

        Points that a category lacks are at its first point, with score 0.
        """
        numbers, most = np.array([len(points.names) for points in self.keypoint_sets]), self.model_options["keypoints"]
        found = super().detect(model, batch)
        if (numbers == most).all():
            return found
        completed = []
        for detected in found:
            is_missing = np.arange(most) >= numbers[detected.labels][:, None]  # (d, K)
            first = detected.points[:, :1] * np.array([1, 1, 0], np.float32)
            completed.append(detected._replace(points=np.where(is_missing[..., None], first, detected.points)))
        return completed

    def _add_image(
        self, metrics: Any, dataset: Any, index: int, detected: DetectedKeypoints, size: tuple[int, ...]
    ) -> Callable[[], Any]:
        """Add image ``index`` of height and width ``size`` to the metrics, and return what builds its record."""
        from ..records import KeypointRecord, PointRecord

        image_id, truth = dataset.image_id(index), dataset.annotations(index)
        if not self._has_one_object:
            matches = metrics.update(image_id, truth, detected, size)
            return lambda: KeypointRecord.from_matches(matches)
        spacing = dataset.spacing_mm(index)
        errors = metrics.update(image_id, truth, detected, size, spacing)
        return lambda: PointRecord.from_errors(errors, truth, detected, spacing)
