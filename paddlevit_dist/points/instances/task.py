"""Instance segmentation of point clouds with PointGroup: training, evaluation and what it predicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
import paddle
import paddle.nn.functional as F

from ...contracts.task import Moment, Task, Term
from ...errors import UserError
from ...models import create_model
from ...parallel import rank
from ..data.pictures import CELL_PX, in_cell
from ..data.scene import IGNORED
from ..data.scenes import COORDINATES, coordinates_of, number_of_classes, old_weights_notice, open_scenes, unit_notices
from ..segmentation.losses import summed_cross_entropy
from ..sparse import Plan, PlanSpec, SparseTensor
from .batches import compile_loops, network_batch
from .export import InstanceWriter, draw_instances
from .grouping import Clusters, proposal_ious
from .losses import offset_losses, score_loss
from .metrics import InstanceMetrics, Prediction
from .pointgroup import Grouping, PointGroupOutput
from .proposals import score_targets, select_predictions
from .samples import Changes, InstanceSample, InstanceSamples

_MIDDLE = np.full(3, 0.5)


class InstanceSegmentation(Task):
    """Trains and evaluates a network that labels points and groups them to instances.

    The losses of points are means over all valid points of all ranks. That of the scores is a mean over a rank's own
    clusters, which exist only after the forward pass, and then over the ranks.
    """

    best_metric = ("AP50", True)
    batch_norm = "sync"
    empty_cache_freq = 10
    sample_name = "scenes"
    count_names = ("semantic", "offset", "direction")
    writes_predictions = True

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.keys = config.POINTS.INSTANCES
        if self.keys.BACKGROUND_IOU >= self.keys.FOREGROUND_IOU:
            raise UserError(
                f"POINTS.INSTANCES.BACKGROUND_IOU is {self.keys.BACKGROUND_IOU}, expected less than FOREGROUND_IOU "
                f"({self.keys.FOREGROUND_IOU})"
            )
        self.num_classes: Optional[int] = config.MODEL.NUM_CLASSES
        self.class_names: List[str] = []
        self.plan_spec: Optional[PlanSpec] = None  # of the network: known once a worker has built it
        self.epoch: Optional[int] = None  # that is being trained; None: only evaluated
        self.coordinates: Optional[str] = None
        self.voxel_features: str = config.POINTS.VOXEL_FEATURES or "mean"

    def build_dataset(self, split: str, cache_folder: Path) -> InstanceSamples:
        dataset = open_scenes(self.config, split, cache_folder)
        self.coordinates = coordinates_of(dataset, self.coordinates)
        self.notices += unit_notices(dataset, self.config.DATA.VOXEL_SIZE_M, self.notices)
        self.num_classes = number_of_classes(self.config, dataset)
        self.class_names = [*dataset.class_names, *map(str, range(dataset.num_classes, self.num_classes))]
        if not self.instance_classes:
            raise UserError(
                f"POINTS.INSTANCES.STUFF names all classes of data set {self.config.DATA.DATASET}: no class is left "
                "that could have instances"
            )
        keys = self.keys
        changes = Changes(
            keys.DISTORTION,
            keys.FLIP,
            keys.ROTATION,
            keys.ELASTIC,
            keys.COLOR_NOISE,
            self.config.POINTS.MAX_POINTS,
        )
        scale = 1.0 / self.config.DATA.VOXEL_SIZE_M
        color_range = tuple(self.config.POINTS.COLOR_RANGE)
        return InstanceSamples(dataset, scale, keys.FULL_SCALE, changes if split == "train" else None, color_range)

    @property
    def instance_classes(self) -> List[int]:
        """Classes that have instances."""
        return [number for number, name in enumerate(self.class_names) if name not in self.keys.STUFF]

    def describe_samples(self, samples: Any) -> str:
        return f"{super().describe_samples(samples)} of {len(self.class_names)} classes: {', '.join(self.class_names)}"

    def about_data(self, samples: Any) -> Dict[str, Any]:
        return {**super().about_data(samples), "classes": list(self.class_names)}

    def collate(self, samples: Sequence[InstanceSample]) -> Dict[str, Any]:
        batch = network_batch(samples, self.plan_spec, self.keys.USE_POSITIONS, self.voxel_features)
        if self.predictions is not None:
            batch["scenes"] = json.dumps([(sample.name, sample.offset) for sample in samples])
        return batch

    def counts(self, batch: Dict[str, Any]) -> Dict[str, int]:
        of_instances = int(np.count_nonzero(batch["instance_labels"] >= 0))
        labelled = int(np.count_nonzero(batch["labels"] != IGNORED))
        return {"semantic": labelled, "offset": of_instances, "direction": of_instances}

    def build_model(self) -> paddle.nn.Layer:
        model = create_model(
            self.config.MODEL.NAME,
            num_classes=self.num_classes,
            in_channels=6 if self.keys.USE_POSITIONS else 3,
            width=self.keys.WIDTH,
            repeats=self.keys.BLOCKS,
        )
        self.plan_spec = model.plan_spec()
        compile_loops()
        for part in self.keys.FROZEN:
            for parameter in getattr(model, part).parameters():
                parameter.stop_gradient = True
        return model

    def about_input(self) -> Dict[str, Any]:
        keys = self.keys
        return {
            "DATA.VOXEL_SIZE_M": self.config.DATA.VOXEL_SIZE_M,
            "POINTS.COLOR_RANGE": list(self.config.POINTS.COLOR_RANGE),
            "POINTS.VOXEL_FEATURES": self.voxel_features,
            "POINTS.INSTANCES.USE_POSITIONS": keys.USE_POSITIONS,
            "POINTS.INSTANCES.SCORE_GRID": keys.SCORE_GRID,
            "POINTS.INSTANCES.SCORE_SCALE": keys.SCORE_SCALE,
            COORDINATES: self.coordinates,
        }

    def notices_of_old_weights(self) -> List[str]:
        return old_weights_notice(self.coordinates, self.config.POINTS.COLOR_RANGE, self.voxel_features, "mean")

    def train_step(self, model: paddle.nn.Layer, batch: Dict[str, paddle.Tensor], moment: Moment) -> Dict[str, Term]:
        self.epoch = moment.epoch
        generator = np.random.default_rng([self.config.SEED, moment.update, rank(), moment.micro])
        output = self._forward(model, batch, generator.random(3))
        labels, instances = batch["labels"], batch["instance_labels"]
        weights = self.keys.LOSS_WEIGHTS
        distance, direction = offset_losses(output.offsets, batch["locs_float"], batch["instance_centres"], instances)
        with paddle.no_grad():
            valid = (labels != IGNORED).astype("float32").sum()
            of_instances = (instances >= 0).astype("float32").sum()
            correct = (output.semantic_scores.argmax(axis=-1) == labels).astype("float32").sum()
        terms = {
            "semantic": Term(summed_cross_entropy(output.semantic_scores, labels), valid, weights[0]),
            "offset": Term(distance, of_instances, weights[1]),
            "direction": Term(direction, of_instances, weights[2]),
            "accuracy": Term(correct, valid, weight=0.0),
        }
        terms["score"] = self._score_term(output, instances, weights[3])
        return terms

    def _score_term(self, output: PointGroupOutput, instances: paddle.Tensor, weight: float) -> Term:
        number = 0 if output.clusters is None else output.clusters.number
        count = paddle.to_tensor(float(number))
        if not number:
            return Term(output.scores.sum(), count, weight)
        members = instances.numpy()
        sizes = np.bincount(members[members >= 0])
        ious = proposal_ious(output.clusters, members, sizes)
        targets = score_targets(ious, self.keys.BACKGROUND_IOU, self.keys.FOREGROUND_IOU)
        return Term(score_loss(output.scores, paddle.to_tensor(targets)), count, weight)

    def _forward(self, model: paddle.nn.Layer, batch: Dict[str, Any], shares: np.ndarray) -> PointGroupOutput:
        voxels = SparseTensor(batch["voxel_feats"], plan=Plan.of_batch(batch))
        grouping = None
        if self.epoch is None or self.epoch > self.keys.PREPARE_EPOCHS:
            offsets = batch["offsets"].numpy()
            grouping = Grouping(
                batch["locs_float"].numpy(),
                np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)),
                np.isin(np.arange(self.num_classes), self.instance_classes),
                self.keys.RADIUS_M,
                self.keys.CLUSTER_POINTS,
                self.keys.SCORE_GRID,
                self.keys.SCORE_SCALE,
                shares,
            )
        output = model(voxels, batch["p2v_map"], grouping)
        scores = None if output.scores is None else output.scores.astype("float32")  # mixed precision ends here
        return output._replace(
            semantic_scores=output.semantic_scores.astype("float32"),
            offsets=output.offsets.astype("float32"),
            scores=scores,
        )

    def eval_step(self, model: paddle.nn.Layer, batch: Dict[str, Any], metrics: InstanceMetrics) -> None:
        output = self._forward(model, batch, _MIDDLE)
        labels = batch["labels"]
        predicted = output.semantic_scores.argmax(axis=-1)
        metrics.update_semantic(predicted, labels, summed_cross_entropy(output.semantic_scores, labels))
        classes, true_class = predicted.numpy(), labels.numpy()
        true_instance, offsets = batch["instance_labels"].numpy(), batch["offsets"].numpy()
        scenes = json.loads(batch["scenes"]) if self.predictions is not None else None
        for number, (first, end, predictions) in enumerate(self._of_scenes(output, classes, offsets)):
            truth = true_class[first:end], true_instance[first:end]
            metrics.update_instances(*truth, predictions)
            if scenes is not None:
                name, offset = scenes[number]
                self._writer().write(name, batch["locs_float"].numpy()[first:end], truth[1], predictions, offset)

    def _of_scenes(
        self, output: PointGroupOutput, classes: np.ndarray, offsets: np.ndarray
    ) -> List[Tuple[int, int, List[Prediction]]]:
        """First and last point of each scene, and its predictions with points numbered within it."""
        scenes = list(zip(offsets[:-1].tolist(), offsets[1:].tolist()))
        if output.clusters is None or not output.clusters.number:
            return [(first, end, []) for first, end in scenes]
        keys = self.keys
        scores = F.sigmoid(output.scores).numpy()
        results = []
        for first, end in scenes:
            part, chosen = _clusters_between(output.clusters, first, end)
            predictions = select_predictions(
                part, scores[chosen], classes[first:end], keys.SCORE_THRESHOLD, keys.SMALLEST_PREDICTION, keys.NMS_IOU
            )
            results.append((first, end, predictions))
        return results

    def pictures(self, samples: InstanceSamples, batch: Dict[str, Any], epoch: int) -> List[Tuple[np.ndarray, str]]:
        """The scenes of a training batch from above, coloured by instance, with their sizes."""
        ends = batch["offsets"].tolist()
        parts = [slice(first, end) for first, end in zip(ends[:-1], ends[1:])]
        return [_picture(batch["locs_float"][part], batch["instance_labels"][part]) for part in parts]

    def evaluation_pictures(self, samples: InstanceSamples, indices: Sequence[int]) -> List[Tuple[np.ndarray, str]]:
        """The same of scenes as an evaluation takes them."""
        scenes = [samples.dataset.read(index) for index in indices]
        return [_picture(scene.xyz, scene.instance) for scene in scenes]

    def _writer(self) -> InstanceWriter:
        return InstanceWriter(self.predictions, self.class_names)

    def finish_predictions(self) -> List[str]:
        return [self._writer().describe()]

    def build_metrics(self) -> InstanceMetrics:
        return InstanceMetrics(self.class_names, self.instance_classes)


def _picture(xyz: np.ndarray, instance: np.ndarray) -> Tuple[np.ndarray, str]:
    """Square picture and caption of a scene."""
    drawn = draw_instances(xyz, instance, CELL_PX)
    return in_cell(drawn), f"{len(xyz):,} points, {len(np.unique(instance[instance >= 0]))} instances"


def _clusters_between(clusters: Clusters, first: int, end: int) -> Tuple[Clusters, np.ndarray]:
    """The clusters of the scene with the points from ``first`` to before ``end``, and their numbers among all."""
    leading = clusters.points[clusters.offsets[:-1]]
    chosen = np.flatnonzero((leading >= first) & (leading < end))
    sizes = np.diff(clusters.offsets)[chosen]
    is_member = np.isin(clusters.cluster_of, chosen)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    cluster_of = np.repeat(np.arange(len(chosen), dtype=np.int32), sizes)
    return Clusters(cluster_of, clusters.points[is_member] - np.int32(first), offsets), chosen
