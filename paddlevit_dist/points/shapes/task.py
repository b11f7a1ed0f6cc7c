"""Classification of shapes: a class for each, from a sparse network on its voxels."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paddle

from ...core.losses import adjusted_losses
from ...core.metrics.classification import ClassificationMetrics, ClassifierTask, require_num_classes
from ...core.tasks.class_labels import require_label
from ...core.tasks.class_names import require_classes_of_own, resolve_class_names
from ...core.tasks.dataset import TransformedDataset, dataset_class, is_training_split
from ...core.tasks.loss_checks import adds_own_loss
from ...core.tasks.model_factory import create_configured
from ...core.tasks.sample_checks import BadSample, require_finite
from ...core.tasks.step_types import LossTerm, StepPosition, TaskTraits
from ..data.augment import rotation
from ..data.samples import compile_loops
from ..data.voxels import discretize, first_occurrences, sparse_collate
from ..scene_task import compute_outputs
from ..sparse import Plan, PlanSpec, SparseTensor, build_plan
from .data import NO_LABEL, SampledShape, ShapeDataset
from .settings import ShapeSection, ShapeSettings

_CHANNELS = {"xyz": 3, "normals": 3, "ones": 1}
# PointNet++'s provider.py: range of the scale factor, maximum shift along each axis, deviation of each point's noise.
_SCALE, _SHIFT, _JITTER = (0.8, 1.25), 0.1, 0.01


class ShapeSample(NamedTuple):
    """A shape as network input: voxels int32 (M, 3), features float32 (M, C) of their first points, and its class."""

    voxels: np.ndarray
    features: np.ndarray
    label: int


class ShapeSamples(TransformedDataset):
    """A dataset of shapes as network input, augmented at random in training."""

    def __init__(self, dataset: ShapeDataset, shapes: ShapeSection, is_training: bool) -> None:
        self.dataset, self.shapes, self.is_training = dataset, shapes, is_training
        self.class_names = dataset.class_names

    def sample(self, index: int, generator: np.random.Generator) -> ShapeSample:
        """Return shape ``index`` as network input."""
        return build_sample(self.dataset.read(index), self.shapes, generator if self.is_training else None)


def build_sample(shape: SampledShape, keys: ShapeSection, generator: np.random.Generator | None = None) -> ShapeSample:
    """Return a shape as network input, augmented if there is a generator; BadSample if it has no normals.

    Normals are only needed if they are a feature.
    """
    xyz, normals, label = shape
    if normals is None and "normals" in keys.FEATURES:
        raise BadSample('this shape has no normals: remove "normals" from SHAPES.FEATURES')
    normals = np.zeros_like(xyz) if normals is None else normals
    # Selected at random: the first points of a scan would cover only a part of it.
    selected = (generator or np.random.default_rng(0)).permutation(len(xyz))[: keys.POINTS]
    xyz, normals = xyz[selected] - xyz[selected].mean(axis=0), normals[selected]
    xyz = (xyz / max(float(np.linalg.norm(xyz, axis=1).max()), 1e-12)).astype(np.float32)
    if generator is not None:
        xyz, normals = _augment(xyz, normals, keys, generator)
    voxels = discretize(xyz, keys.VOXEL_SIZE)
    first, _ = first_occurrences(voxels)
    columns = {"xyz": xyz, "normals": normals, "ones": np.ones((len(xyz), 1))}
    features = np.concatenate([columns[name][first] for name in keys.FEATURES], axis=1)
    return ShapeSample(voxels[first], features.astype(np.float32), label)


def _augment(
    xyz: np.ndarray, normals: np.ndarray, keys: ShapeSection, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    angle = math.radians(keys.ROTATION_DEGREES) * generator.uniform(-1, 1)
    matrix = rotation("xyz".index(keys.UP_AXIS), angle).astype(np.float32)
    noise = generator.standard_normal(xyz.shape, np.float32) * np.float32(_JITTER)
    shift = generator.uniform(-_SHIFT, _SHIFT, 3)
    return (xyz @ matrix * generator.uniform(*_SCALE) + noise + shift).astype(np.float32), normals @ matrix


class ShapeClassification(ClassifierTask):
    """Trains and evaluates a sparse classifier of shapes. The loss is the mean over all shapes of all ranks."""

    aspects = {
        "Predictable": ".prediction:ShapePrediction",
        "Ensembling": ".prediction:ShapePrediction",
        "Reportable": ".figures:ShapeFigures",
        "Drawable": ".figures:ShapeDrawing",
        "Checkable": ".checks:ShapeChecks",
    }
    config: ShapeSettings
    traits = TaskTraits(
        sample_name="shapes", batch_norm="sync", normalizers_per_sample={"loss": 1}, uses_cross_entropies=True
    )

    def __init__(self, config: ShapeSettings) -> None:
        super().__init__(config)
        self.num_classes: int | None = config.MODEL.NUM_CLASSES
        self.class_names: list[str] = []
        self.plan_spec: PlanSpec | None = None  # known once a worker has built the network

    def build_dataset(self, split: str, cache_folder: Path) -> ShapeSamples:
        """Return the samples of ``split``, with augmentation if the task trains on it."""
        config = self.config
        dataset = dataset_class(config, ShapeDataset).open(config, split, cache_folder)
        require_classes_of_own(dataset, config)
        names, number, before = dataset.class_names, dataset.num_classes, self.class_names
        self.class_names = resolve_class_names(config, names, number=number, before=before)
        self.num_classes = len(self.class_names)
        return ShapeSamples(dataset, config.SHAPES, is_training_split(config, split))

    def check_sample(self, sample: ShapeSample) -> None:
        """Check that features are finite, and the range of the label."""
        require_finite(sample.features, "shape")
        if sample.label != NO_LABEL:
            require_label(sample.label, self.num_classes)

    def collate(self, samples: Sequence[ShapeSample]) -> dict[str, Any]:
        """Return a batch with the network's plan."""
        coordinates, features = sparse_collate(
            [sample.voxels for sample in samples], [sample.features for sample in samples]
        )
        labels = np.array([sample.label for sample in samples], np.int64).reshape(len(samples))
        if self.plan_spec is None:  # a batch for display, without a network
            return {"coordinates": coordinates, "labels": labels}
        return {"features": features, "labels": labels, **build_plan(coordinates, self.plan_spec, len(samples))}

    def signature(self, samples: TransformedDataset | None = None) -> dict[str, Any]:
        """Return the preprocessing settings that the weights depend on, or the number and classes of samples."""
        if samples is not None:
            return {**super().signature(samples), "classes": list(self.class_names)}
        shapes = self.config.SHAPES
        return {"SHAPES.VOXEL_SIZE": shapes.VOXEL_SIZE, "SHAPES.FEATURES": list(shapes.FEATURES)}

    def build_model(self, num_classes: int | None = None) -> paddle.nn.Layer:
        """Create the network."""
        channels = sum(_CHANNELS[name] for name in self.config.SHAPES.FEATURES)
        classes = num_classes or self.num_classes
        model = create_configured(self, num_classes=classes, in_channels=channels)
        self.plan_spec = model.plan_spec()
        compile_loops()
        return model

    def logits(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> paddle.Tensor:
        """Return the logits of a batch, float32 (batch, classes)."""
        inputs = SparseTensor(batch["features"], plan=Plan.of_batch(batch))
        return compute_outputs(model, inputs, (batch["labels"].shape[0], self.num_classes), "shape")

    def train_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: StepPosition
    ) -> dict[str, LossTerm]:
        """Return the loss and the accuracy of a batch."""
        logits, labels = self.logits(model, batch), batch["labels"]
        number = labels.shape[0]
        if adds_own_loss(self):
            loss = self._sum_own_loss(logits, batch)
        else:
            losses = adjusted_losses(logits, labels, NO_LABEL, smoothing=self.config.TRAIN.SMOOTHING)
            loss = LossTerm(losses.sum(), number)
        with paddle.no_grad():
            correct = (logits.argmax(axis=-1) == labels).astype("float32").sum()
        return {"loss": loss, "accuracy": LossTerm(correct, number, weight=0.0)}

    def build_metrics(self) -> "ShapeMetrics":
        """Return empty metrics."""
        return ShapeMetrics(require_num_classes(self.num_classes), self.class_names)


class ShapeMetrics(ClassificationMetrics):
    """Classification metrics, and the balanced accuracy: the mean class accuracy in papers on ModelNet40."""

    def summary(self, values: dict[str, float]) -> str:
        """Return the main metrics as one line for the log."""
        return f"{super().summary(values)} balanced accuracy {values['balanced accuracy']:.2f}"
