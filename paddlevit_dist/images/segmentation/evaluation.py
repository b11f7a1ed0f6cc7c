"""How a network that segments pictures is scored: each picture alone, all of its pixels once, at its stored size."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import paddle

from ...contracts.figures import Figure
from ...contracts.task import EvaluationStep, Metrics, Records
from ...labelling.counts import packed
from ...runtime.transfers import read_later
from ..backbone_task import BackboneTask
from .data.segmentation_dataset import IGNORED
from .metrics import SegmentationMetrics
from .protocols import Protocol, class_map
from .samples import SegmentationSamples, pictures_of
from .transforms import Size


class SegmentationEvaluation(BackboneTask):
    """Scores and figures; no number depends on batches or processes."""

    best_metric = ("mIoU", True)
    makes_figures = True

    @property
    def crop(self) -> Size:
        """Height and width of a window, and of the input of an exported model."""
        height, width = self.config.SEGMENTATION.CROP or self.config.DATA.CROP_SIZE
        return height, width

    @property
    def protocol(self) -> Protocol:
        """What SEGMENTATION says of evaluations."""
        keys, crop = self.config.SEGMENTATION, self.crop
        stride = tuple(keys.STRIDE or (max(1, 2 * side // 3) for side in crop))
        more = tuple(keys.SCALES), keys.FLIP, keys.LOGITS_BY == "stored", self.config.DATA.EVAL_DIVISOR
        return Protocol(crop if keys.PROTOCOL == "slide" else None, stride, *more)

    def protocol_line(self) -> str:
        """What a score depends on besides the weights and the data."""
        data, said = self.config.DATA, "stored size"
        if data.EVAL_SHORTEST_SIDE is not None:
            said = f"shorter side {data.EVAL_SHORTEST_SIDE}"
            said += f", longer at most {data.EVAL_LONGEST_SIDE}" if data.EVAL_LONGEST_SIDE is not None else ""
        said += f", multiples of {data.EVAL_DIVISOR}" if data.EVAL_DIVISOR > 1 else ""
        return f"{said}{'' if said == 'stored size' else f', bilinear of {data.RESIZE}'}; {self.protocol}"

    def build_metrics(self) -> Metrics:
        return SegmentationMetrics(self.class_names)

    def class_maps(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> Iterator[list[np.ndarray]]:
        """Class map and labels of each picture of a batch, uint8 (height, width); a device computes the next one while
        a picture is looked at."""

        def network(pixels: paddle.Tensor) -> paddle.Tensor:
            return model(self.normaliser(pixels))

        protocol, before = self.protocol, None
        for picture in pictures_of(batch):
            found = class_map(network, picture.image, picture.original_size, protocol)
            later = read_later(found, picture.labels)
            if before is not None:
                yield before()
            before = later
        if before is not None:
            yield before()

    def eval_step(self, model: paddle.nn.Layer, batch: dict[str, Any], step: EvaluationStep) -> Records | None:
        predictions, records = [], []
        for predicted, labels in self.class_maps(model, batch):
            if not labels.size:  # of a split without label maps
                labels = np.full_like(predicted, IGNORED)
            records.append(packed(*step.metrics.update(predicted, labels)))
            predictions.append(predicted)
        if step.writer is not None:
            step.writer.add(predictions)
        return (lambda: records) if step.keeps_records else None

    def predict_step(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> list[np.ndarray]:
        """The class of each pixel of each picture, uint8 of its stored size; ``IGNORED`` where nothing can be said."""
        return [predicted for predicted, _ in self.class_maps(model, batch)]

    def figures(self, samples: Any, records: Sequence[tuple[int, Any]], model: paddle.nn.Layer) -> list[Figure]:
        if not records or not isinstance(samples, SegmentationSamples):
            return []
        from .figures import segmentation_figures

        def predict(index: int) -> np.ndarray:
            return self.predicted_again(samples, index, model)

        return segmentation_figures(samples, records, self.class_names, predict)
