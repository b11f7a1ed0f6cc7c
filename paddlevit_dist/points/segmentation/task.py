"""Semantic segmentation of point clouds: a class for every point, from a network on voxels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
import paddle
import paddle.nn.functional as F

from ...contracts.task import Moment, Task, Term
from ...models import create_model
from ..data.pictures import CELL_PX, UNLABELLED, draw, in_cell
from ..data.samples import PointSample, PointSamples, augmentation_of, compile_loops, feature_channels, join_views
from ..data.scene import IGNORED
from ..data.scenes import COORDINATES, coordinates_of, number_of_classes, old_weights_notice, open_scenes, unit_notices
from ..sparse import Plan, PlanSpec, SparseTensor, build_plan
from .export import SceneWriter, class_colours
from .losses import lovasz_softmax, summed_cross_entropy
from .metrics import SemanticMetrics


class SemanticSegmentation(Task):
    """Trains and evaluates a sparse network that labels points.

    The loss is the mean over all labelled points of all ranks; predictions and metrics are per point, each taking the
    voxel's it lies in.
    """

    best_metric = ("mIoU", True)
    batch_norm = "sync"
    sample_name = "scenes"
    count_names = ("loss",)
    writes_predictions = True
    empty_cache_freq = 10

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.num_classes: Optional[int] = config.MODEL.NUM_CLASSES
        self.class_names: List[str] = []
        self.plan_spec: Optional[PlanSpec] = None  # of the network: known once a worker has built it
        self.coordinates: Optional[str] = None
        self.voxel_features: str = config.POINTS.VOXEL_FEATURES or "first"

    def build_dataset(self, split: str, cache_folder: Path) -> PointSamples:
        points = self.config.POINTS
        dataset = open_scenes(self.config, split, cache_folder)
        self.coordinates = coordinates_of(dataset, self.coordinates)
        self.notices += unit_notices(dataset, self.config.DATA.VOXEL_SIZE_M, self.notices)
        self.num_classes = number_of_classes(self.config, dataset)
        self.class_names = [*dataset.class_names, *map(str, range(dataset.num_classes, self.num_classes))]
        is_training = split == "train"
        return PointSamples(
            dataset,
            self.config.DATA.VOXEL_SIZE_M,
            tuple(points.FEATURES),
            augmentation=augmentation_of(points.AUGMENT) if is_training else None,
            max_points=points.MAX_POINTS if is_training else None,
            mix_probability=points.MIX_PROB if is_training else 0.0,
            rotations=1 if is_training else points.TEST_ROTATIONS,
            voxel_features=self.voxel_features,
            color_range=tuple(points.COLOR_RANGE),
        )

    def describe_samples(self, samples: Any) -> str:
        return f"{super().describe_samples(samples)} of {len(self.class_names)} classes: {', '.join(self.class_names)}"

    def about_data(self, samples: Any) -> Dict[str, Any]:
        return {**super().about_data(samples), "classes": list(self.class_names)}

    def collate(self, samples: Sequence[PointSample]) -> Dict[str, Any]:
        batch: Dict[str, Any] = join_views(samples)
        coordinates = batch.pop("coordinates")
        labels = np.concatenate([sample.scene.semantic for sample in samples]).astype(np.int64)
        batch["labels"] = labels if len(labels) else np.array([IGNORED])  # (P,)
        if self.plan_spec is None:  # a batch to look at, without a network
            batch["coordinates"] = coordinates
        else:
            batch.update(build_plan(coordinates, self.plan_spec, len(samples) * len(samples[0].views)))
        if self.predictions is not None:
            batch.update(SceneWriter.pack([sample.scene for sample in samples]))
        return batch

    def counts(self, batch: Dict[str, Any]) -> Dict[str, int]:
        return {"loss": int(np.count_nonzero(batch["labels"] != IGNORED))}

    def build_model(self) -> paddle.nn.Layer:
        model = create_model(
            self.config.MODEL.NAME,
            num_classes=self.num_classes,
            in_channels=feature_channels(self.config.POINTS.FEATURES),
        )
        self.plan_spec = model.plan_spec()
        compile_loops()
        return model

    def about_input(self) -> Dict[str, Any]:
        points = self.config.POINTS
        return {
            "DATA.VOXEL_SIZE_M": self.config.DATA.VOXEL_SIZE_M,
            "POINTS.FEATURES": list(points.FEATURES),
            "POINTS.COLOR_RANGE": list(points.COLOR_RANGE),
            "POINTS.VOXEL_FEATURES": self.voxel_features,
            COORDINATES: self.coordinates,
        }

    def notices_of_old_weights(self) -> List[str]:
        return old_weights_notice(self.coordinates, self.config.POINTS.COLOR_RANGE, self.voxel_features, "first")

    def train_step(self, model: paddle.nn.Layer, batch: Dict[str, paddle.Tensor], moment: Moment) -> Dict[str, Term]:
        labels = batch["labels"]
        logits = self._point_logits(model, batch)  # (P, classes)
        with paddle.no_grad():
            valid = (labels != IGNORED).astype("float32").sum()
            correct = (logits.argmax(axis=-1) == labels).astype("float32").sum()
        terms = {
            "loss": Term(summed_cross_entropy(logits, labels), valid),
            "accuracy": Term(correct, valid, weight=0.0),
        }
        weight = self.config.POINTS.LOVASZ_WEIGHT
        if weight:
            terms["lovasz"] = Term(*lovasz_softmax(logits, labels), weight=weight)
        return terms

    def _point_logits(self, model: paddle.nn.Layer, batch: Dict[str, Any]) -> paddle.Tensor:
        """Float32 (views x P, classes)."""
        voxels = SparseTensor(batch["features"], plan=Plan.of_batch(batch))
        logits = model(voxels).astype("float32")  # (M, classes)
        return paddle.gather(logits, batch["inverse"])

    def eval_step(self, model: paddle.nn.Layer, batch: Dict[str, paddle.Tensor], metrics: SemanticMetrics) -> None:
        labels = batch["labels"]
        logits = self._point_logits(model, batch)
        views = self.config.POINTS.TEST_ROTATIONS
        if views > 1:
            shares = F.softmax(logits, axis=-1).reshape([views, labels.shape[0], -1])
            logits = paddle.log(shares.mean(axis=0))
        predictions = logits.argmax(axis=-1)
        metrics.update(predictions, labels, summed_cross_entropy(logits, labels))
        if self.predictions is not None:
            self._writer().write(batch, predictions.numpy())

    def _writer(self) -> SceneWriter:
        return SceneWriter(self.predictions, self.class_names)

    def finish_predictions(self) -> List[str]:
        return [self._writer().describe()]

    def pictures(self, samples: PointSamples, batch: Dict[str, Any], epoch: int) -> List[Tuple[np.ndarray, str]]:
        """The voxels of a training batch from above, in the colours that the network sees, or in those of the classes
        where it sees none, with their numbers."""
        names = list(samples.features)
        if "rgb" in names:
            first = feature_channels(names[: names.index("rgb")])
            low, high = samples.color_range
            shares = (batch["features"][:, first : first + 3] - low) / (high - low)
            colours = np.rint(255 * np.clip(shares, 0.0, 1.0)).astype(np.uint8)
        else:
            labels = np.empty(len(batch["coordinates"]), np.int64)
            labels[batch["inverse"]] = batch["labels"]
            palette = np.concatenate([class_colours(len(self.class_names)), [UNLABELLED]])
            colours = palette[np.where(labels == IGNORED, -1, labels)].astype(np.uint8)
        return [
            self._picture(batch, colours, number)
            for number in range(int(batch["coordinates"][:, 0].max(initial=-1)) + 1)
        ]

    def _picture(self, batch: Dict[str, Any], colours: np.ndarray, number: int) -> Tuple[np.ndarray, str]:
        """Square picture and caption of one scene of a batch."""
        is_own = batch["coordinates"][:, 0] == number
        voxels = batch["coordinates"][is_own, 1:].astype(np.float32)
        drawn = draw(voxels, colours[is_own], np.ones(len(voxels), bool), CELL_PX)
        points = int(np.count_nonzero(is_own[batch["inverse"]]))
        return in_cell(drawn), f"{len(voxels):,} voxels of {points:,} points"

    def evaluation_pictures(self, samples: PointSamples, indices: Sequence[int]) -> List[Tuple[np.ndarray, str]]:
        """The same of scenes as an evaluation takes them."""
        plain = replace(samples, augmentation=None, max_points=None, mix_probability=0.0)
        nothing_random = np.random.default_rng(0)
        return self.pictures(plain, self.collate([plain.sample(index, nothing_random) for index in indices]), 0)

    def build_metrics(self) -> SemanticMetrics:
        return SemanticMetrics(self.class_names)
