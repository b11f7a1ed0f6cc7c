"""Instance segmentation of point clouds with PointGroup: training, evaluation and prediction."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from ...core.distributed import rank
from ...core.metrics.counts import count_confusion
from ...core.runtime.errors import UserError
from ...core.runtime.transfers import read_later, to_device
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.model_factory import create_configured
from ...core.tasks.step_types import EvaluationStep, LossTerm, StepPosition
from ...core.tasks.task import Records
from ..data.features import feature_channels
from ..data.samples import compile_loops
from ..data.scene import IGNORED, Scene
from ..data.scenes import SceneDataset
from ..scene_task import SceneTask, get_slices
from ..segmentation.metrics import point_losses, semantic_terms
from ..sparse import Plan, SparseTensor
from .batches import instance_fields
from .grouping import PointClusters, proposal_ious
from .input import InstanceSample, InstanceSamples, build_steps, compile_loop
from .matching import InstancePrediction, find_largest
from .metrics import InstanceMetrics, InstanceRecord
from .pointgroup import GroupingInput, PointGroupOutput, offset_losses, score_loss
from .proposals import score_targets, select_predictions
from .settings import InstanceSettings
from .stuff_classes import find_instance_classes

CENTERED = np.full(3, 0.5)
_AP_MIN_POINTS = "POINTS.INSTANCES.AP_MIN_POINTS"
# From the published program: edge in voxels of the cube in which a cluster is scored, and the IoU with the truth below
# which a cluster's target score is 0, and above which it is 1.
_SCORE_GRID, _BACKGROUND_IOU, _FOREGROUND_IOU = 14, 0.25, 0.75


class InstanceSegmentation(SceneTask):
    """Trains and evaluates a network that labels points and groups them into instances.

    Point losses are means over all valid points of all ranks. The score loss is a mean over a rank's clusters, which
    exist only after the forward pass, and then over the ranks.
    """

    aspects = {
        "Predictable": ".prediction:InstanceScenePrediction",
        "Reportable": ".figures:InstanceFigures",
        "Drawable": ".figures:InstanceDrawing",
    }
    config: InstanceSettings
    best_metric = ("AP", True)
    traits = replace(
        SceneTask.traits,
        normalizer_names=("semantic", "offset", "direction"),
        # Each rank draws the shift of the grid in which its clusters are scored.
        selftest_overrides={"POINTS.INSTANCES.PREPARE_EPOCHS": 10**6},
    )
    _default_voxel_features = "mean"

    def __init__(self, config: InstanceSettings) -> None:
        super().__init__(config)
        self.keys = config.POINTS.INSTANCES
        # The input of a backbone's published weights is a choice of features alone.
        self.has_positions = (config.MODEL.OPTIONS or {}).get("backbone") is None

    def build_samples(self, dataset: SceneDataset, is_training: bool) -> InstanceSamples:
        """Return the dataset's scenes as network input."""
        if not self._instance_classes:
            raise UserError(
                f"POINTS.INSTANCES.STUFF_CLASSES names all classes of dataset {self.config.DATA.DATASET}: remove the "
                "classes that have instances from it"
            )
        data, notices = self.config.DATA, [*self.list_notices(dataset), *self._check_instances(dataset, is_training)]
        steps = build_steps(self.config.POINTS, 1.0 / data.VOXEL_SIZE_M, is_training, data.UNIT_M)
        facts = self.voxel_features, notices, self.has_positions
        return InstanceSamples(dataset, steps, *facts, features=self.features)

    def _check_instances(self, dataset: SceneDataset, is_training: bool) -> list[str]:
        """Return lines on the instances to learn from, or on those that AP counts.

        Without any that AP counts, mIoU chooses the best checkpoint. UserError if a training run has no instance.
        """
        if not dataset.labeled:
            return []
        scenes = map(dataset.read, range(len(dataset)))
        if is_training:
            return self._check_training_instances(scenes, len(dataset))
        least, classes = self.keys.AP_MIN_POINTS, self._instance_classes
        rule = f"AP: instances of fewer than {least} points do not count, true or predicted ({_AP_MIN_POINTS})"
        if any(find_largest(scene.semantic, scene.instance, classes) >= least for scene in scenes):
            return [rule]
        self.best_metric = ("mIoU", True)
        return [rule, "note: no true instance is large enough: AP is not defined, and mIoU chooses the best checkpoint"]

    def _check_training_instances(self, scenes: Iterable[Scene], number: int) -> list[str]:
        needed, largest = max(self.keys.CLUSTER_POINTS, self.keys.MIN_PREDICTION_POINTS + 1), 0
        for scene in scenes:
            largest = max(largest, int(np.bincount(scene.instance[scene.instance >= 0]).max(initial=0)))
            if largest >= needed:
                return []
        if not largest:
            raise UserError(
                f"no point of the {number:,} training scenes of dataset {self.config.DATA.DATASET} has an instance: "
                "name the property with the object when you prepare them (--instance), or set TASK "
                "semantic_segmentation"
            )
        return [
            f"note: the largest instance of the training scenes has {largest:,} points, and a prediction needs "
            f"{needed:,}: set POINTS.INSTANCES.CLUSTER_POINTS and POINTS.INSTANCES.MIN_PREDICTION_POINTS lower"
        ]

    @property
    def _instance_classes(self) -> list[int]:
        return find_instance_classes(self.class_names, self.keys.STUFF_CLASSES)

    def collate(self, samples: Sequence[InstanceSample]) -> dict[str, Any]:
        """Return a batch with the instance fields."""
        return {**super().collate(samples), **instance_fields(samples)}

    def loss_normalizers(self, batch: dict[str, Any]) -> dict[str, int]:
        """Return the number of points in each loss."""
        in_instances = int(np.count_nonzero(batch["instance_labels"] >= 0))
        labeled = int(np.count_nonzero(batch["labels"] != IGNORED))
        return {"semantic": labeled, "offset": in_instances, "direction": in_instances}

    def build_model(self, num_classes: int | None = None) -> paddle.nn.Layer:
        """Create the network."""
        model = create_configured(
            self,
            num_classes=num_classes or self.num_classes,
            in_channels=feature_channels(self.features) + 3 * self.has_positions,
        )
        self.plan_spec = model.plan_spec()
        compile_loops()
        compile_loop()
        return model

    def signature(self, samples: TransformedDataset | None = None) -> dict[str, Any]:
        """Return the preprocessing settings that the weights depend on, or the number and classes of samples."""
        scale = {} if samples is not None else {"POINTS.INSTANCES.SCORE_SCALE": self.keys.SCORE_SCALE}
        return {**super().signature(samples), **scale}

    def train_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: StepPosition
    ) -> dict[str, LossTerm]:
        """Return the losses of a batch."""
        generator = np.random.default_rng([self.config.SEED, step.update, rank(), step.micro])
        points = HostPoints(batch)
        seed = self.config.SEED, step.update  # the same on each rank and in each micro-batch
        output = self.forward(model, batch, points, generator.random(3), step.epoch, seed)
        labels, instances = batch["labels"], batch["instance_labels"]
        distance, direction = offset_losses(output.offsets, batch["xyz"], batch["instance_centers"], instances)
        with paddle.no_grad():
            in_instances = (instances >= 0).astype("float32").sum()
        semantic, accuracy = semantic_terms(output.semantic_scores, labels)
        return {
            "semantic": semantic,
            "offset": LossTerm(distance, in_instances),
            "direction": LossTerm(direction, in_instances),
            "accuracy": accuracy,
            "score": self._score_term(output, points),
        }

    def _score_term(self, output: PointGroupOutput, points: "HostPoints") -> LossTerm:
        clusters, scores = output.clusters, output.scores
        if scores is None:
            raise ValueError("the output has no scores: the network is not in training mode")
        count = paddle.full([], 0.0 if clusters is None else float(clusters.number))
        if clusters is None or not clusters.number:
            return LossTerm(scores.reshape([]), count, is_local=True)  # the single 0
        members = points.instances
        sizes = np.bincount(members[members >= 0])
        ious = proposal_ious(clusters, members, sizes)
        targets = score_targets(ious, _BACKGROUND_IOU, _FOREGROUND_IOU)
        return LossTerm(score_loss(scores, to_device(targets)), count, is_local=True)

    def forward(
        self,
        model: paddle.nn.Layer,
        batch: dict[str, Any],
        points: "HostPoints",
        shares: np.ndarray,
        epoch: int | None = None,
        seed: Any = None,
    ) -> PointGroupOutput:
        """Run the network; without grouping in the first epochs (PREPARE_EPOCHS) and in the evaluations after them.

        ``seed`` is the plan's.
        """

        def grouping() -> GroupingInput:
            return GroupingInput(
                points.xyz,
                points.scenes,
                np.isin(np.arange(self.num_classes), self._instance_classes),
                self.keys.RADIUS_M,
                self.keys.CLUSTER_POINTS,
                _SCORE_GRID,
                self.keys.SCORE_SCALE,
                shares,
            )

        voxels = SparseTensor(batch["features"], plan=Plan.of_batch(batch))
        voxels.plan.seed = seed
        groups = epoch is None or epoch > self.keys.PREPARE_EPOCHS
        if groups:
            points.start_copy()
        output = model(voxels, batch["inverse"], grouping if groups else None)
        scores = None if output.scores is None else output.scores.astype("float32")  # mixed precision ends here
        return output._replace(
            semantic_scores=output.semantic_scores.astype("float32"),
            offsets=output.offsets.astype("float32"),
            scores=scores,
        )

    def eval_step(self, model: paddle.nn.Layer, batch: dict[str, Any], step: EvaluationStep) -> Records | None:
        """Add a batch to the metrics, and write its predictions if requested."""
        metrics, min_points = step.metrics, self.keys.PANOPTIC_MIN_POINTS
        points = HostPoints(batch)
        output = self.forward(model, batch, points, CENTERED, step.epoch)
        labels = batch["labels"]
        predicted = output.semantic_scores.argmax(axis=-1)
        losses = point_losses(output.semantic_scores, output.semantic_scores, labels)
        metrics.update(predicted, labels, losses, batch["offsets"])
        true_class, true_instance, classes = labels.numpy(), points.instances, predicted.numpy()
        parts, predictions_by_scene = get_slices(batch), self.select_instances(output, classes, batch)
        for part, predictions in zip(parts, predictions_by_scene):
            metrics.update_instances(true_class[part], true_instance[part], predictions)
            if min_points is not None:
                metrics.update_panoptic(true_class[part], true_instance[part], classes[part], predictions, min_points)
        if step.writer is not None:
            # The truth is known if any point has a class, even if there are no instances.
            truth = [true_instance[piece] if (true_class[piece] >= 0).any() else None for piece in parts]
            step.writer.add(
                [(classes[piece], instances) for piece, instances in zip(parts, predictions_by_scene)], truth
            )
        if not step.keeps_records:
            return None
        number = len(self.class_names)
        records = [
            InstanceRecord(count_confusion(true_class[piece], classes[piece], number), matches)
            for piece, matches in zip(parts, metrics.tables[-len(parts) :])
        ]
        return lambda: records

    def select_instances(
        self, output: PointGroupOutput, classes: np.ndarray, batch: dict[str, Any]
    ) -> list[list[InstancePrediction]]:
        """Return the instances of each scene, best first, with point indices within it."""
        parts = get_slices(batch)
        if output.clusters is None or not output.clusters.number:
            return [[] for _ in parts]
        limits = self.keys.SCORE_THRESHOLD, self.keys.MIN_PREDICTION_POINTS, self.keys.NMS_IOU
        scores = F.sigmoid(output.scores).numpy()
        results = []
        for part in parts:
            scene_clusters, numbers = _select_clusters(output.clusters, part.start, part.stop)
            results.append(select_predictions(scene_clusters, scores[numbers], classes[part], *limits))
        return results

    def build_metrics(self) -> InstanceMetrics:
        """Return empty metrics."""
        return InstanceMetrics(self.class_names, self._instance_classes, self.keys.AP_MIN_POINTS)


class HostPoints:
    """Positions and labels of a batch's points on the host, as clustering needs them.

    They are copied on first use, or from ``start_copy`` on, while the device continues with its work.
    """

    _arrays: Any = None

    def __init__(self, batch: Mapping[str, paddle.Tensor]) -> None:
        self._batch = batch

    def start_copy(self) -> None:
        """Start copying; an attribute has to be read afterwards, because only that waits for the arrays."""
        self._arrays = read_later(*(self._batch[name] for name in ("xyz", "instance_labels", "offsets")))

    @functools.cached_property
    def _host_arrays(self) -> list[np.ndarray]:
        if self._arrays is None:
            self.start_copy()
        return self._arrays()

    @property
    def xyz(self) -> np.ndarray:
        """float32 (P, 3), meters."""
        return self._host_arrays[0]

    @property
    def instances(self) -> np.ndarray:
        """int32 (P,), instance from 0 over all scenes, or -100."""
        return self._host_arrays[1]

    @property
    def scenes(self) -> np.ndarray:
        """int64 (P,), scene of each point."""
        starts = self._host_arrays[2]
        return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def _select_clusters(clusters: PointClusters, first: int, end: int) -> tuple[PointClusters, np.ndarray]:
    """Return the clusters of the scene with points ``first:end``, and their numbers among all."""
    leading = clusters.points[clusters.offsets[:-1]]
    selected = np.flatnonzero((leading >= first) & (leading < end))
    sizes = np.diff(clusters.offsets)[selected]
    is_member = np.isin(clusters.cluster_numbers, selected)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    cluster_numbers = np.repeat(np.arange(len(selected), dtype=np.int32), sizes)
    return PointClusters(cluster_numbers, clusters.points[is_member] - np.int32(first), offsets), selected
