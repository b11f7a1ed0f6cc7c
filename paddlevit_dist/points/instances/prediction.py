"""Prediction of instances: rows and files."""

from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.prediction import ArrayMakers, InputSamples, Row
from ...core.tasks.sample_checks import BadSample
from ..scene_prediction import ScenePrediction, pack_numbers
from ..scene_task import get_slices
from .matching import InstancePrediction
from .stuff_classes import find_instance_classes
from .task import CENTERED, HostPoints, InstanceSegmentation
from .writer import InstanceWriter, get_point_instances

_ROW = ("instance", "class", "confidence", "points")  # columns of the tables of predictions


class InstanceScenePrediction(ScenePrediction):
    """Predicts the class of each point, and instances."""

    task: InstanceSegmentation

    def predict_step(
        self, model: paddle.nn.Layer, batch: dict[str, Any]
    ) -> list[tuple[np.ndarray, list[InstancePrediction]]]:
        """Return the class of each point, int64 (points,), and the instances, best first, for each scene.

        A point whose outputs are not finite has the class -1.
        """
        output = self.task.forward(model, batch, HostPoints(batch), CENTERED)
        scores = output.semantic_scores
        is_known = paddle.isfinite(scores).all(axis=-1).numpy()
        classes = np.where(is_known, scores.argmax(axis=-1).numpy(), -1)
        predictions_by_scene = self.task.select_instances(output, classes, batch)
        return [(classes[part], predictions) for part, predictions in zip(get_slices(batch), predictions_by_scene)]

    def prediction_writer(self, folder: Path, samples: TransformedDataset) -> InstanceWriter:
        """Return the writer of predicted instances."""
        names = self.task.class_names
        return InstanceWriter(folder, samples, names, find_instance_classes(names, self.task.keys.STUFF_CLASSES))

    def prediction_rows(self, prediction: tuple[np.ndarray, list[InstancePrediction]]) -> list[Row]:
        """Return a row for each instance, best first; one without values if there is none.

        BadSample if outputs are not finite.
        """
        if (prediction[0] < 0).any():
            raise BadSample("the model's outputs for it are not finite")
        rows: list[tuple[Any, ...]] = [
            (
                number,
                self.task.class_names[instance.class_number],
                round(float(instance.confidence), 6),
                len(instance.points),
            )
            for number, instance in enumerate(prediction[1])
        ]
        return [dict(zip(_ROW, row)) for row in rows or [(None,) * len(_ROW)]]

    def prediction_arrays(
        self, index: int, prediction: tuple[np.ndarray, list[InstancePrediction]], samples: InputSamples
    ) -> ArrayMakers:
        """Return class and instance of each point; of instances that overlap, the best one."""
        classes, instances = prediction
        numbers = get_point_instances(instances, len(classes))
        return {
            "classes": pack_numbers(classes, len(self.task.class_names), index, samples),
            "instances": pack_numbers(numbers, len(instances), index, samples),
        }
