"""How a network that segments pictures is scored: each picture alone, all of its pixels once, at its stored size."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import paddle

from ...contracts.figures import Figure
from ...contracts.task import EvaluationStep, Metrics, Records, TaskEvaluation
from ...runtime.transfers import read_later, to_device
from ..transforms.on_device import Normaliser
from .data.segmentation_dataset import IGNORED
from .metrics import SegmentationMetrics
from .protocols import Protocol, class_map
from .samples import Picture, SegmentationSamples, pictures_of


class SegmentationEvaluation(TaskEvaluation):
    """Scores and figures; no number depends on batches or processes."""

    best_metric = ("mIoU", True)
    makes_figures = True

    config: Any
    normaliser: Normaliser
    class_names: list[str]

    @property
    def protocol(self) -> Protocol:
        """What SEGMENTATION says of evaluations."""
        keys = self.config.SEGMENTATION
        crop = tuple(keys.CROP) if keys.PROTOCOL == "slide" else None
        stride = tuple(keys.STRIDE or (max(1, 2 * side // 3) for side in keys.CROP))
        return Protocol(
            crop, stride, tuple(keys.SCALES), keys.FLIP, keys.LOGITS_BY == "stored", self.config.DATA.EVAL_DIVISOR
        )

    def protocol_line(self) -> str:
        """What a score depends on besides the weights and the data."""
        data = self.config.DATA
        sides = "stored size"
        if data.EVAL_SHORTEST_SIDE is not None:
            most = f", longer at most {data.EVAL_LONGEST_SIDE}" if data.EVAL_LONGEST_SIDE is not None else ""
            sides = f"shorter side {data.EVAL_SHORTEST_SIDE}{most}"
        multiples = f", multiples of {data.EVAL_DIVISOR}" if data.EVAL_DIVISOR > 1 else ""
        return f"{sides}{multiples}; {self.protocol}"

    def build_metrics(self) -> Metrics:
        return SegmentationMetrics(self.class_names)

    def class_maps(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> Iterator[tuple[Picture, list[np.ndarray]]]:
        """Each picture of a batch with its class map and labels, uint8 (height, width); a device computes the next one
        while a picture is looked at."""
        protocol, before = self.protocol, None
        for picture in pictures_of(batch):
            found = class_map(
                lambda pixels: model(self.normaliser(pixels)), picture.image, picture.original_size, protocol
            )
            later = read_later(found, picture.labels)
            if before is not None:
                yield before[0], before[1]()
            before = picture, later
        if before is not None:
            yield before[0], before[1]()

    def eval_step(self, model: paddle.nn.Layer, batch: dict[str, Any], step: EvaluationStep) -> Records | None:
        from .figures import SegmentationRecord

        predictions, truths, records = [], [], []
        for _, (predicted, labels) in self.class_maps(model, batch):
            if not labels.size:  # of a split without label maps
                labels = np.full_like(predicted, IGNORED)
            counted = step.metrics.update(predicted, labels)
            predictions.append(predicted)
            truths.append(labels)
            records.append(SegmentationRecord.of(*counted) if step.keeps_records else None)
        if step.writer is not None:
            step.writer.add(predictions, truths)
        return (lambda: records) if step.keeps_records else None

    def predict_step(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> list[np.ndarray]:
        """The class of each pixel of each picture, uint8 of its stored size; ``IGNORED`` where nothing can be said."""
        return [predicted for _, (predicted, _) in self.class_maps(model, batch)]

    def figures(self, samples: Any, records: Sequence[tuple[int, Any]], model: paddle.nn.Layer) -> list[Figure]:
        if not records or not isinstance(samples, SegmentationSamples):
            return []
        from .figures import segmentation_figures

        def predict(index: int) -> np.ndarray:
            batch = self.collate([samples.sample(index, np.random.default_rng(0))])
            tensors = {
                name: to_device(value) if isinstance(value, np.ndarray) else value for name, value in batch.items()
            }
            return self.predict_step(model, tensors)[0]

        return segmentation_figures(samples, records, self.class_names, predict)
