"""Semantic segmentation of point clouds: a class for every point, from a network on voxels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import paddle
import paddle.nn.functional as F

from ...contracts.figures import Figure
from ...contracts.prediction import Row
from ...contracts.task import EvaluationStep, Records, Step, Term
from ...models import create_model
from ..data.pictures import CELL_PX, draw, draw_classes, in_cell
from ..data.samples import compile_loops
from ..data.scene import IGNORED
from ..data.scenes import SceneDataset
from ..inputs import SceneInputs, describe_points
from ..outputs import SceneOutputs
from ..scene_figures import chosen, confusion_of, point_set, semantic_layers, semantic_tables, short_name
from ..scene_task import SceneTask, slices_of, written_scenes
from ..sparse import Plan, SparseTensor
from .input import PointSamples, feature_channels, training_steps
from .losses import lovasz_softmax, semantic_terms, summed_cross_entropy
from .metrics import SemanticMetrics
from .writer import SceneWriter


class SemanticSegmentation(SceneTask):
    """Trains and evaluates a sparse network that labels points.

    The loss is the mean over all labelled points of all ranks; predictions and metrics are per point, each taking those
    of its voxel.
    """

    best_metric = ("mIoU", True)
    count_names = ("loss",)
    of_each_rank = {"POINTS.LOVASZ_WEIGHT": 0.0}  # it orders the points of a rank by their errors

    def build_dataset(self, split: str, cache_folder: Path) -> PointSamples:
        return self.samples_of(self.open_scenes(split, cache_folder), self.trains_on(split))

    def samples_of(self, dataset: SceneDataset, is_training: bool) -> PointSamples:
        points = self.config.POINTS
        return PointSamples(
            dataset,
            training_steps(points, dataset) if is_training else (),
            self.voxel_features,
            self.config.DATA.VOXEL_SIZE_M,
            tuple(points.FEATURES),
            tuple(points.COLOR_RANGE),
            1 if is_training else points.TEST_ROTATIONS,
            self.notices_of(dataset),
        )

    def counts(self, batch: Dict[str, Any]) -> Dict[str, int]:
        return {"loss": int(np.count_nonzero(batch["labels"] != IGNORED))}

    def build_model(self, num_classes: Optional[int] = None) -> paddle.nn.Layer:
        model = create_model(
            self.config.MODEL.NAME,
            num_classes=num_classes or self.num_classes,
            in_channels=feature_channels(self.config.POINTS.FEATURES),
        )
        self.plan_spec = model.plan_spec()
        compile_loops()
        return model

    def about_input(self) -> Dict[str, Any]:
        return {**super().about_input(), "POINTS.FEATURES": list(self.config.POINTS.FEATURES)}

    def train_step(self, model: paddle.nn.Layer, batch: Dict[str, paddle.Tensor], step: Step) -> Dict[str, Term]:
        labels = batch["labels"]
        logits = self.point_logits(model, batch)  # (P, classes)
        terms = dict(zip(("loss", "accuracy"), semantic_terms(logits, labels)))
        weight = self.config.POINTS.LOVASZ_WEIGHT
        if weight:
            terms["lovasz"] = Term(*lovasz_softmax(logits, labels), weight=weight)
        return terms

    def point_logits(self, model: paddle.nn.Layer, batch: Dict[str, Any]) -> paddle.Tensor:
        """Float32 (views x P, classes)."""
        voxels = SparseTensor(batch["features"], plan=Plan.of_batch(batch))
        logits = model(voxels).astype("float32")  # (M, classes)
        return paddle.gather(logits, batch["inverse"])

    def eval_step(
        self, model: paddle.nn.Layer, batch: Dict[str, paddle.Tensor], step: EvaluationStep
    ) -> Optional[Records]:
        labels, logits = batch["labels"], self._mean_logits(model, batch)
        predicted = logits.argmax(axis=-1)
        step.metrics.update(predicted, labels, summed_cross_entropy(logits, labels))
        if step.writer is not None:
            classes = predicted.numpy()
            true = labels.numpy()
            for (name, xyz, offset), part in zip(written_scenes(batch), slices_of(batch)):
                step.writer.write(name, xyz, classes[part], offset, true[part])
        if not step.keeps_records:
            return None
        classes = predicted.numpy()
        records = self.figure_records(batch, [classes[part] for part in slices_of(batch)])
        return lambda: records

    def _mean_logits(self, model: paddle.nn.Layer, batch: Dict[str, Any]) -> paddle.Tensor:
        """Float32 (P, classes), over all rotations in which a scene is seen."""
        logits, views = self.point_logits(model, batch), self.config.POINTS.TEST_ROTATIONS
        if views == 1:
            return logits
        shares = F.softmax(logits, axis=-1).reshape([views, -1, logits.shape[1]])
        return paddle.log(shares.mean(axis=0))

    def predict_step(self, model: paddle.nn.Layer, batch: Dict[str, paddle.Tensor]) -> List[np.ndarray]:
        """The class of each point, int64 (points,), for each scene."""
        classes = self._mean_logits(model, batch).argmax(axis=-1).numpy()
        return [classes[part] for part in slices_of(batch)]

    def figure_records(self, batch: Mapping[str, Any], predictions: Sequence[np.ndarray]) -> List[np.ndarray]:
        """What each scene's points are and are taken for, int64 (classes, classes)."""
        true, ends = np.asarray(batch["labels"]), np.asarray(batch["offsets"]).tolist()
        parts = zip(ends[:-1], ends[1:], predictions)
        return [confusion_of(true[first:end], found, len(self.class_names)) for first, end, found in parts]

    def figures(self, samples: Any, records: Sequence[Tuple[int, Any]], model: paddle.nn.Layer) -> List[Figure]:
        confusions = [confusion for _, confusion in records]
        if not confusions:
            return []
        made: List[Figure] = []
        for place in chosen(confusions):
            again = self.predicted_again(samples, records[place][0], model)
            if again is not None:
                scene, predicted = again
                made.append(point_set(scene.name, scene, *semantic_layers(scene, predicted, self.class_names)))
        names = [short_name(samples.describe(index)) for index, _ in records]
        return [*semantic_tables(confusions, names, self.class_names), *made]

    def prediction_writer(self, folder: Path) -> SceneWriter:
        return SceneWriter(folder, self.class_names)

    def sees_colours(self) -> bool:
        return "rgb" in self.config.POINTS.FEATURES

    def prediction_rows(self, prediction: np.ndarray) -> List[Row]:
        """How many points have which class."""
        return [describe_points(prediction, self.class_names)]

    def output_writer(self, folder: Path, samples: SceneInputs) -> SceneOutputs:  # type: ignore[override] # as opened
        return SceneOutputs(samples, SceneWriter(folder, self.class_names))

    def pictures(self, samples: PointSamples, batch: Dict[str, Any], epoch: int) -> List[Tuple[np.ndarray, str]]:
        """The voxels of a training batch from above, with their counts: in the colours that the network sees, if it
        sees any, and beside that in the colours of their classes."""
        labels = np.full(len(batch["coordinates"]), IGNORED)
        labels[batch["inverse"]] = np.tile(batch["labels"], len(batch["inverse"]) // max(len(batch["labels"]), 1))
        colours, names = None, list(samples.features)
        if "rgb" in names:
            first = feature_channels(names[: names.index("rgb")])
            low, high = samples.color_range
            shares = (batch["features"][:, first : first + 3] - low) / (high - low)
            colours = np.rint(255 * np.clip(shares, 0.0, 1.0)).astype(np.uint8)
        return [self._picture(batch, labels, colours, number) for number in range(len(batch["offsets"]) - 1)]

    def _picture(
        self, batch: Dict[str, Any], labels: np.ndarray, colours: Optional[np.ndarray], number: int
    ) -> Tuple[np.ndarray, str]:
        """Image and caption of one scene of a batch, seen from its first direction."""
        is_own = batch["coordinates"][:, 0] == number
        voxels = batch["coordinates"][is_own, 1:].astype(np.float32)
        points = int(np.diff(batch["offsets"])[number])
        views = [in_cell(draw_classes(voxels, labels[is_own], self.class_names, CELL_PX))]
        if colours is not None:
            views.insert(0, in_cell(draw(voxels, colours[is_own], np.ones(len(voxels), bool), CELL_PX)))
        return np.concatenate(views, axis=1), f"{len(voxels):,} voxels of {points:,} points"

    def evaluation_pictures(self, samples: PointSamples, indices: Sequence[int]) -> List[Tuple[np.ndarray, str]]:
        """The same for scenes as evaluated."""
        plain = replace(samples, steps=())
        nothing_random = np.random.default_rng(0)
        return self.pictures(plain, self.collate([plain.sample(index, nothing_random) for index in indices]), 0)

    def build_metrics(self) -> SemanticMetrics:
        return SemanticMetrics(self.class_names)
