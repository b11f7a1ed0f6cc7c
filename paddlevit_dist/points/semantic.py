"""Semantic segmentation of point clouds: a class for every point, from a network on voxels."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import numpy as np
import paddle
import paddle.nn.functional as F

from ..engine.task import Moment, Task, Term
from ..models import create_model
from .export import SceneWriter
from .losses import lovasz_softmax, summed_cross_entropy
from .samples import PointSample, PointSamples, augmentation_of, compile_loops, feature_channels, join_views
from .scene import IGNORED
from .semantic_metrics import SemanticMetrics
from .sources import number_of_classes, open_scenes
from .sparse import Plan, PlanSpec, SparseTensor, build_plan


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

    def build_dataset(self, split: str, cache_folder: Path) -> PointSamples:
        points = self.config.POINTS
        dataset = open_scenes(self.config, split, cache_folder)
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
        )

    def collate(self, samples: Sequence[PointSample]) -> Dict[str, Any]:
        batch: Dict[str, Any] = join_views(samples)
        coordinates = batch.pop("coordinates")
        labels = np.concatenate([sample.scene.semantic for sample in samples]).astype(np.int64)
        batch["labels"] = labels if len(labels) else np.array([IGNORED])  # (P,)
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

    def build_metrics(self) -> SemanticMetrics:
        return SemanticMetrics(self.class_names)
