"""Semantic segmentation of point clouds: a class for every point, from a network on voxels."""

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import paddle
import paddle.nn.functional as F

from ...core.losses import adjusted_losses, look_up_weights, lovasz_softmax, scene_dice_losses
from ...core.metrics.counts import count_confusion
from ...core.registry.required_methods import missing_method
from ...core.runtime.errors import UserError
from ...core.runtime.transfers import read, to_device
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.loss_checks import adds_own_loss, call_losses, sum_losses
from ...core.tasks.model_factory import create_configured
from ...core.tasks.step_types import EvaluationStep, LossTerm, StepPosition
from ...core.tasks.task import Records
from ..data import augment
from ..data.augment import RandomApply, RandomRotation, to_meters
from ..data.features import HEIGHT, POSITION, feature_channels, point_features
from ..data.samples import PointSample, SceneSamples, SceneView, VoxelizedSample, collate_samples, compile_loops
from ..data.scene import IGNORED, Scene
from ..data.scenes import SceneDataset
from ..data.voxels import discretize
from ..scene_task import SceneTask, compute_outputs, get_slices
from ..sparse import Plan, SparseTensor, build_plan
from .feature_origin import FeatureOrigin
from .fragments import BlockNetwork, FloorBlocks, score_fragments
from .fragments import cross_entropies as host_cross_entropies
from .metrics import SemanticMetrics, point_losses, semantic_terms
from .settings import SceneSegmentationSettings, SegmentationPointSection
from .voting import score_votes

_ELASTIC_M = ((0.1, 0.4), (0.4, 1.6))  # granularity and magnitude of each pass, meters


class WholeScene(NamedTuple):
    """A scene that the network processes in parts."""

    scene: Scene
    views: list[SceneView]
    point_features: list[np.ndarray]  # float32 (P, C) of each view, for votes; else none
    bounds: list[np.ndarray]  # of each view, see ``FeatureOrigin.find_bounds``; else none


@dataclass(frozen=True)
class PointSamples(SceneSamples):
    """Scenes as segmentation input.

    Args:
        rotations: number of rotations about z, each giving a view.
        flips: add a view of each rotation mirrored along x.
        scales: factors of the scene's size, each giving all of these views.
        in_fragments: the network processes a scene in parts, so its batch has no plan of the whole.
        votes: passes of the network over the points of each voxel, at most; more than 1 are in parts.
        protocol: description of the evaluation protocol; "" for the usual one.
        origin: from where training measures features; needed in fragments.
    """

    voxel_size_m: float
    color_range: tuple[float, float]
    rotations: int
    notices: Sequence[str] = ()
    flips: bool = False
    in_fragments: bool = False
    eval_protocol: str = ""
    scales: Sequence[float] = (1.0,)
    votes: int = 1
    origin: FeatureOrigin | None = None

    def voxelize(self, scene: Scene) -> PointSample | WholeScene:
        """Return the sample of a scene to which all steps have been applied."""
        directions = [2 * math.pi * number / self.rotations for number in range(self.rotations)]
        kinds = itertools.product(self.scales, directions, (False, True)[: 1 + self.flips])
        views, point_features, bounds = [], [], []
        for turned in (self._turn(scene, *kind) for kind in kinds):
            views.append(self._view(turned))
            if self.votes > 1:
                point_features.append(self._features(turned, slice(None)))
            if self.in_fragments and self.origin is not None:
                bounds.append(self.origin.find_bounds(turned, views[-1]))
        if not self.in_fragments:
            return PointSample(scene, views)
        return WholeScene(scene, views, point_features, [each for each in bounds if each is not None])

    def _turn(self, scene: Scene, scale: float, angle: float, is_flipped: bool) -> Scene:
        matrix = scale * augment.rotation(2, angle)
        if is_flipped:
            matrix = matrix * np.array([-1.0, 1.0, 1.0])  # mirrors x after the rotation
        if angle != 0.0 or is_flipped or scale != 1.0:
            return augment.map_around_middle(scene, matrix)  # as in training, which matters to the feature xyz
        return scene

    def _features(self, scene: Scene, points: np.ndarray | slice) -> np.ndarray:
        return point_features(scene, points, self.features, self.color_range)

    def _view(self, scene: Scene) -> SceneView:
        voxels = discretize(scene.xyz, self.voxel_size_m)  # (P, 3)
        return self.view(voxels, functools.partial(self._features, scene))


def training_steps(
    points: SegmentationPointSection, dataset: SceneDataset, unit_m: float = 1.0
) -> tuple[augment.Step, ...]:
    """Return the steps configured under POINTS for a training scene, and for scenes of ``dataset`` mixed into it.

    ``unit_m`` is meters per unit of the scenes' coordinates. UserError if the scale range is reversed.
    """
    keys = points.AUGMENT
    if keys.SCALE[0] > keys.SCALE[1]:
        raise UserError(f"POINTS.AUGMENT.SCALE is {list(keys.SCALE)}: expected the smaller factor first")
    turns = enumerate(map(math.radians, (keys.TILT_DEGREES, keys.TILT_DEGREES, keys.ROTATION_DEGREES)))
    recolor = _apply_with(keys.COLOR_PROB, augment.PointColorJitter(keys.COLOR_JITTER, keys.COLOR_SHIFT))
    # This distortion has no key; its numbers are still drawn so that a seed gives the same scenes as in older versions.
    parts: tuple[augment.Step, ...] = (
        augment.MatrixDistortion(0.0),
        augment.RandomFlip(keys.FLIP, axes=2),
        *(_apply_with(keys.ROTATION_PROB, RandomRotation(*turn)) for turn in turns),
        augment.RandomScale(*keys.SCALE),
    )
    candidates = [
        (True, augment.AffineMap(parts)),
        (keys.ELASTIC, RandomApply(keys.ELASTIC, augment.ElasticDistortion(_ELASTIC_M))),
        (keys.JITTER_M, augment.PointJitter(keys.JITTER_M)),
        (keys.DROPOUT, RandomApply(keys.DROPOUT_PROB, augment.PointDropout(keys.DROPOUT))),
        (keys.COLOR_CONTRAST, RandomApply(keys.COLOR_CONTRAST, augment.ColorContrast())),
        (keys.COLOR_JITTER or keys.COLOR_SHIFT, recolor),
    ]
    # First, so that a large scene is cropped before it is rotated and distorted.
    crop_around_point = () if points.CROP is None else (augment.PointCrop(points.CROP, points.CROP_SIZE_M),)
    changes = (*augment.to_meters(unit_m), *crop_around_point, *(step for is_enabled, step in candidates if is_enabled))
    crop = () if points.MAX_POINTS is None else (augment.CropToBudget(points.MAX_POINTS),)
    return (*changes, augment.Mix3D(dataset, changes, points.MIX_PROB), *crop)


def _apply_with(probability: float, step: augment.Step) -> augment.Step:
    return step if probability == 1.0 else RandomApply(probability, step)


class SemanticSegmentation(SceneTask):
    """Trains and evaluates a sparse network that labels points.

    The cross-entropy is the mean over all labeled points of all ranks, the Dice loss the mean over the classes of all
    their scenes. Predictions and metrics are per point; a point has the prediction of its voxel.
    """

    aspects = {
        "Predictable": ".prediction:SemanticPrediction",
        "Reportable": ".figures:SemanticFigures",
        "Drawable": ".figures:SemanticDrawing",
        "ParameterGrouping": ".grouping:BlockGrouping",
    }
    config: SceneSegmentationSettings
    best_metric = ("mIoU", True)

    def __init__(self, config: SceneSegmentationSettings) -> None:
        super().__init__(config)
        self.origin = FeatureOrigin(self.features, config.POINTS.CROP, config.POINTS.MAX_POINTS)
        self.traits = replace(
            self.traits,
            normalizer_names=("loss", "dice") if config.TRAIN.DICE_WEIGHT else ("loss",),
            # The Lovasz loss sorts the points of one rank by their errors.
            selftest_overrides={"TRAIN.LOVASZ_WEIGHT": 0.0},
        )

    def build_samples(self, dataset: SceneDataset, is_training: bool) -> PointSamples:
        """Return the dataset's scenes as network input."""
        points, unit_m = self.config.POINTS, self.config.DATA.UNIT_M
        if points.CLASS_WEIGHTS is not None and is_training and len(points.CLASS_WEIGHTS) != self.num_classes:
            raise UserError(
                f"POINTS.CLASS_WEIGHTS has {len(points.CLASS_WEIGHTS)} numbers: expected one for each of the "
                f"{self.num_classes} classes"
            )
        low, high = points.COLOR_RANGE
        return PointSamples(
            dataset,
            training_steps(points, dataset, unit_m) if is_training else to_meters(unit_m),
            self.voxel_features,
            self.config.DATA.VOXEL_SIZE_M,
            (low, high),
            1 if is_training else points.TEST_ROTATIONS,
            self.list_notices(dataset),
            points.TEST_FLIPS and not is_training,
            (points.FRAGMENT_SIZE_M is not None or points.TEST_VOTES > 1) and not is_training,
            "" if is_training else self._protocol(),
            features=self.features,
            scales=(1.0,) if is_training else points.TEST_SCALES,
            votes=1 if is_training else points.TEST_VOTES,
            origin=self.origin,
        )

    def _protocol(self) -> str:
        """Return a description of the evaluation, "" for whole scenes in a single view."""
        points = self.config.POINTS
        parts = [f"{points.TEST_ROTATIONS} directions"] * (points.TEST_ROTATIONS > 1)
        parts += ["mirrored views"] * points.TEST_FLIPS
        parts += [f"{len(points.TEST_SCALES)} scales"] * (points.TEST_SCALES != [1.0])
        parts += [f"up to {points.TEST_VOTES} votes of a voxel's points"] * (points.TEST_VOTES > 1)
        if points.FRAGMENT_SIZE_M is not None:
            parts.append(f"blocks of {points.FRAGMENT_SIZE_M:g} m, {points.FRAGMENT_OVERLAP_M:g} m overlap")
        return ", ".join(parts)

    def collate(self, samples: Sequence[VoxelizedSample]) -> dict[str, Any]:
        """Return a batch, with coordinates instead of a plan for scenes in fragments."""
        scenes = [sample for sample in samples if isinstance(sample, WholeScene)]
        if not scenes:
            return super().collate(samples)
        batch = collate_samples(scenes)
        if scenes[0].point_features:
            rows = [features for view in zip(*(scene.point_features for scene in scenes)) for features in view]
            batch["point_features"] = np.concatenate([*rows, batch["features"][:1]])  # never without rows
        if scenes[0].bounds:
            rows = [bounds for view in zip(*(scene.bounds for scene in scenes)) for bounds in view]
            batch["bounds"] = np.concatenate([*rows, np.zeros((1, 5), np.float32)])  # never without rows
        return batch

    def signature(self, samples: TransformedDataset | None = None) -> dict[str, Any]:
        """Return the preprocessing settings that the weights depend on, or the number and classes of samples."""
        facts = super().signature(samples)
        if samples is None and HEIGHT in self.features:
            facts["heights above the lowest point of a block (POINTS.CROP)"] = self.config.POINTS.CROP == "block"
        if samples is None and POSITION in self.features:
            facts["positions from the middle of a block's floor (POINTS.CROP)"] = self.config.POINTS.CROP == "block"
        return facts

    def loss_normalizers(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the normalizer of each loss."""
        counts = loss_counts(self.config, batch)
        return {**counts, "loss": np.count_nonzero(batch["labels"] != IGNORED)} if adds_own_loss(self) else counts

    def build_model(self, num_classes: int | None = None) -> paddle.nn.Layer:
        """Create the network."""
        model = create_configured(
            self,
            num_classes=num_classes or self.num_classes,
            in_channels=feature_channels(self.features),
        )
        self.plan_spec = model.plan_spec()
        compile_loops()
        return model

    def train_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: StepPosition
    ) -> dict[str, LossTerm]:
        """Return the losses of a batch."""
        seed = self.config.SEED, step.update  # the same on each rank and in each micro-batch
        logits = self.point_logits(model, batch, seed)
        terms = loss_terms(self.config, logits, batch)
        return {**terms, "loss": self._sum_own_loss(logits, batch)} if adds_own_loss(self) else terms

    def losses(self, outputs: paddle.Tensor, batch: dict[str, paddle.Tensor]) -> paddle.Tensor:
        """Return the loss of each point or scene, of a task with another loss; by default, there is none.

        An evaluation reports the mean as the loss.

        Args:
            outputs: logits, float32 (points, classes).
            batch: tensors by name, such as "labels", int64 (points,), -100 where a point is unlabeled, and "offsets",
                (scenes + 1,), the first points of scenes.

        Returns:
            Float (points,), where unlabeled points do not count, or (scenes,).
        """
        raise missing_method(type(self), "losses")

    def _sum_own_loss(self, logits: paddle.Tensor, batch: dict[str, paddle.Tensor]) -> LossTerm:
        labels = batch["labels"]
        losses = call_losses(self, logits, batch, labels.shape, (batch["offsets"].shape[0] - 1,))
        return sum_losses(losses, labels != IGNORED)

    def point_logits(self, model: paddle.nn.Layer, batch: dict[str, Any], seed: Any = None) -> paddle.Tensor:
        """Return the logits of each point in each view, float32 (views x P, classes); ``seed`` is the plan's."""
        inputs = SparseTensor(batch["features"], plan=Plan.of_batch(batch))
        inputs.plan.seed = seed
        logits = compute_outputs(model, inputs, (batch["features"].shape[0], self.num_classes), "voxel")  # (M, classes)
        return paddle.gather(logits, batch["inverse"])

    def eval_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: EvaluationStep
    ) -> Records | None:
        """Add a batch to the metrics, and write its predictions if requested."""
        labels = batch["labels"]
        predicted, losses, *logits = self.score(model, batch, step.metrics.expects_loss)
        step.metrics.update(predicted, labels, losses, batch["offsets"])
        if logits:
            step.metrics.add_own_loss(self._sum_own_loss(logits[0], batch))
        if step.writer is not None:
            classes, true, parts = predicted.numpy(), labels.numpy(), get_slices(batch)
            step.writer.add([classes[part] for part in parts], [true[part] for part in parts])
        if not step.keeps_records:
            return None
        classes, true, number = predicted.numpy(), labels.numpy(), len(self.class_names)
        records = [count_confusion(true[part], classes[part], number) for part in get_slices(batch)]
        return lambda: records

    def score(
        self, model: paddle.nn.Layer, batch: dict[str, Any], keeps_logits: bool = False
    ) -> tuple[paddle.Tensor, ...]:
        """Return the class of each point, int64 (P,), its cross-entropy, float32 (P,), and if asked its logits."""
        if "coordinates" in batch:
            return self._score_in_fragments(model, batch, keeps_logits)
        outputs = self.point_logits(model, batch)
        logits = self._mean_logits(outputs)
        scores = logits.argmax(axis=-1), point_losses(outputs, logits, batch["labels"])
        return (*scores, logits) if keeps_logits else scores

    def _mean_logits(self, logits: paddle.Tensor) -> paddle.Tensor:
        """Return float32 (P, classes), the mean over all views of a scene, from logits (views x P, classes)."""
        points = self.config.POINTS
        views = points.TEST_ROTATIONS * (2 if points.TEST_FLIPS else 1) * len(points.TEST_SCALES)
        if views == 1:
            return logits
        shares = F.softmax(logits, axis=-1).reshape([views, -1, logits.shape[1]])
        return paddle.log(shares.mean(axis=0))

    def _score_in_fragments(
        self, model: paddle.nn.Layer, batch: dict[str, Any], keeps_logits: bool
    ) -> tuple[paddle.Tensor, ...]:
        plan_spec, points, voxel = self.plan_spec, self.config.POINTS, self.config.DATA.VOXEL_SIZE_M
        if plan_spec is None:
            raise ValueError("an evaluation in parts needs a network")
        features = batch["point_features" if points.TEST_VOTES > 1 else "features"]

        def network(coordinates: np.ndarray, rows: np.ndarray) -> BlockNetwork:
            plan, shape = Plan.of_batch(build_plan(coordinates, plan_spec, num_scenes=1)), (len(rows), self.num_classes)
            shift = to_device(self.origin.find_shift(arrays["bounds"][rows])) if "bounds" in arrays else 0.0

            def compute(chosen: np.ndarray) -> np.ndarray:
                inputs = paddle.gather(features, to_device(chosen)) - shift
                return compute_outputs(model, SparseTensor(inputs, plan=plan), shape, "voxel").numpy()

            return compute

        names = [name for name in ("coordinates", "inverse", "labels", "offsets", "bounds") if name in batch]
        arrays = dict(zip(names, read(*(batch[name] for name in names))))
        blocks = FloorBlocks(1 << 32)  # the whole scene
        if points.FRAGMENT_SIZE_M is not None:
            size, overlap = (round(length / voxel) for length in (points.FRAGMENT_SIZE_M, points.FRAGMENT_OVERLAP_M))
            blocks = FloorBlocks(max(size, 1), min(overlap, max(size - 1, 0)))
        score = (
            score_fragments if points.TEST_VOTES == 1 else functools.partial(score_votes, most_votes=points.TEST_VOTES)
        )
        labels, kept = arrays["labels"], []
        classes, losses = np.zeros(len(labels), np.int64), np.zeros(len(labels), np.float32)
        for place, logits in score(network, blocks, arrays):
            classes[place], losses[place] = logits.argmax(axis=1), host_cross_entropies(logits, labels[place])
            if keeps_logits:
                kept.append(logits)
        scores = to_device(classes), to_device(losses)
        return (*scores, to_device(np.concatenate(kept))) if kept else scores

    def build_metrics(self) -> SemanticMetrics:
        """Return empty metrics."""
        return SemanticMetrics(self.class_names)


def loss_counts(config: SceneSegmentationSettings, batch: dict[str, Any]) -> dict[str, float]:
    """Return the normalizer of each loss of a batch with ``labels`` (P,) and ``offsets`` (scenes + 1,), arrays.

    The cross-entropy is divided by the number of labeled points, or the sum of their class weights; the Dice loss by
    the number of classes in all scenes.
    """
    labels, weights = batch["labels"], config.POINTS.CLASS_WEIGHTS
    if weights is None:
        labeled = np.count_nonzero(labels != IGNORED)
    else:
        numbers = np.bincount(labels[labels != IGNORED], minlength=len(weights))
        labeled = float(np.dot(numbers, weights))
    counts = {"loss": labeled}
    if config.TRAIN.DICE_WEIGHT:
        parts = np.split(labels, batch["offsets"][1:-1])
        counts["dice"] = sum(len(np.unique(part[part != IGNORED])) for part in parts)
    return counts


def loss_terms(config: SceneSegmentationSettings, logits: paddle.Tensor, batch: dict[str, Any]) -> dict[str, LossTerm]:
    """Return a step's terms from logits float32 (P >= 1, classes) and a batch as in ``loss_counts``, tensors."""
    points, train = config.POINTS, config.TRAIN
    labels, offsets = batch["labels"], batch["offsets"]
    terms = dict(zip(("loss", "accuracy"), semantic_terms(logits, labels)))
    weights = None if points.CLASS_WEIGHTS is None else tuple(points.CLASS_WEIGHTS)
    if weights is not None or train.SMOOTHING or points.FOCAL_GAMMA:
        losses = adjusted_losses(logits, labels, IGNORED, weights, train.SMOOTHING, points.FOCAL_GAMMA)
        count = terms["loss"].count if weights is None else look_up_weights(labels, IGNORED, weights).sum()
        terms["loss"] = LossTerm(losses.sum(), count)
    if train.LOVASZ_WEIGHT:
        terms["lovasz"] = LossTerm(*lovasz_softmax(logits, labels, IGNORED), train.LOVASZ_WEIGHT, is_local=True)
    if train.DICE_WEIGHT:
        scenes = get_scene_numbers(offsets, labels.shape[0])
        dice = scene_dice_losses(logits, labels, scenes, offsets.shape[0] - 1, IGNORED)
        terms["dice"] = LossTerm(*dice, weight=train.DICE_WEIGHT)
    return terms


def get_scene_numbers(offsets: paddle.Tensor, num_points: int) -> paddle.Tensor:
    """Return the scene of each point, int64 (P,), for first points of scenes, int (scenes + 1,)."""
    return paddle.searchsorted(offsets[1:].astype("int64"), paddle.arange(num_points), right=True)
