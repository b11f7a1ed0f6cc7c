"""How a network that segments volumes is scored: each volume alone, each voxel once, as its labels are stored."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import paddle

from ...contracts.figures import Figure
from ...contracts.task import EvaluationStep, Metrics, Records, TaskEvaluation
from ...runtime.transfers import read_later, to_device
from ..geometry import between
from ..sliding_window import mirrored, predict
from .dataset import IGNORED
from .figures import segmentation_figures
from .metrics import VolumeMetrics
from .prediction import Segmented
from .samples import Place, SegmentedSamples, volumes_of
from .settings import AXES

_VALUES_AT_ONCE = 1 << 25  # of outputs that are brought to the stored grid, some 500 MB with what they are made of


class VolumeSegmentationEvaluation(TaskEvaluation):
    """Scores and figures; no number depends on batches or processes."""

    best_metric = ("Dice", True)
    makes_figures = True

    config: Any
    class_names: list[str]
    collate: Any

    def protocol_line(self) -> str:
        """What a score depends on besides the weights and the data."""
        volumes = self.config.VOLUMES
        size = " x ".join(map(str, volumes.CROP_SIZE))
        mirroring = f", mean of {2 ** len(self._mirrored())} mirror images" if self._mirrored() else ""
        return f"windows of {size} voxels, overlap {volumes.OVERLAP:g}, {volumes.WINDOW_WEIGHTS} weights{mirroring}"

    def _mirrored(self) -> list[int]:
        volumes = self.config.VOLUMES
        return [AXES.index(axis) for axis in volumes.MIRROR_AXES] if volumes.TEST_MIRROR else []

    def build_metrics(self) -> Metrics:
        return VolumeMetrics(self.class_names, self.config.VOLUMES.SURFACE_DISTANCES)

    def segmented(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> Iterator[tuple[Segmented, np.ndarray]]:
        """The classes of each volume's voxels, and its labels; a device computes the next volume while one is looked
        at."""
        before = None
        for place, volume, labels in volumes_of(batch):
            later = place, read_later(self.class_map(model, volume, place), labels, volume[0])
            if before is not None:
                yield _of(*before)
            before = later
        if before is not None:
            yield _of(*before)

    def class_map(self, model: paddle.nn.Layer, volume: paddle.Tensor, place: Place) -> paddle.Tensor:
        """The class of each voxel, uint8 of the stored labels' shape; ``IGNORED`` where an output is not finite.

        Outputs of windows and their mirror images are averaged, then brought to the stored spacing linearly, and the
        largest one of a voxel is its class.
        """
        volumes = self.config.VOLUMES
        network = mirrored(lambda windows: model(windows).astype("float32"), self._mirrored())
        maps = predict(network, volume, volumes.CROP_SIZE, volumes.OVERLAP, volumes.WINDOW_WEIGHTS)
        steps, planes = np.array(place.stored_spacing) / np.array(place.spacing), []
        every = max(1, _VALUES_AT_ONCE // (len(self.class_names) * place.stored[1] * place.stored[2]))
        for first in range(0, place.stored[0], every):
            part = on_grid(maps, place.stored, steps, slice(first, first + every))
            found, finite = part.argmax(axis=0, dtype="int32"), paddle.isfinite(part).all(axis=0)
            planes.append(paddle.where(finite, found, paddle.full_like(found, IGNORED)).astype("uint8"))
        return paddle.concat(planes)

    def eval_step(self, model: paddle.nn.Layer, batch: dict[str, Any], step: EvaluationStep) -> Records | None:
        found, truths, records = [], [], []
        for predicted, labels in self.segmented(model, batch):
            if not labels.size:  # of a split without labels
                labels = np.full_like(predicted.labels, IGNORED)
            records.append(step.metrics.update(predicted.labels, labels, predicted.spacing))
            found.append(predicted)
            truths.append(labels)
        if step.writer is not None:
            step.writer.add(found, truths)
        return (lambda: records) if step.keeps_records else None

    def predict_step(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> list[Segmented]:
        """The class of each voxel of each volume."""
        return [predicted for predicted, _ in self.segmented(model, batch)]

    def figures(self, samples: Any, records: Sequence[tuple[int, Any]], model: paddle.nn.Layer) -> list[Figure]:
        if not records or not isinstance(samples, SegmentedSamples):
            return []

        def again(index: int) -> tuple[Segmented, np.ndarray]:
            batch = self.collate([samples.sample(index, np.random.default_rng(0))])
            tensors = {name: to_device(own) if isinstance(own, np.ndarray) else own for name, own in batch.items()}
            return next(self.segmented(model, tensors))

        return segmentation_figures(samples, records, self.class_names, again)


def _of(place: Place, values: Any) -> tuple[Segmented, np.ndarray]:
    classes, labels, volume = values()
    return Segmented(place.index, classes, volume, np.array(place.stored_spacing)), labels


def on_grid(maps: paddle.Tensor, shape: Sequence[int], steps: np.ndarray, planes: slice = slice(None)) -> paddle.Tensor:
    """Maps (classes, depth, height, width) at places 0, step, 2 step and so on along each axis, interpolated linearly;
    beyond the last voxel they stay as they are there.

    Args:
        shape: (depth, height, width) of the result.
        steps: of each axis, in voxels of ``maps``.
        planes: of the result's depth, those that are wanted.
    """
    for axis, (count, step) in enumerate(zip(shape, steps), 1):
        length, wanted = maps.shape[axis], planes if axis == 1 else slice(None)
        if count == length and abs(step - 1) < 1e-6:
            maps = maps[:, planes] if axis == 1 else maps
            continue
        lower, share = (line[wanted] for line in between(length, count, step))
        first, second = (
            paddle.index_select(maps, to_device(np.minimum(lower + more, length - 1)), axis) for more in (0, 1)
        )
        maps = first + to_device(share).reshape([-1 if own == axis else 1 for own in range(4)]) * (second - first)
    return maps
