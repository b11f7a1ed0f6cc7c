"""Classification of shapes: a class for each, from a sparse network on its voxels."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paddle

from ...contracts.dataset import Samples, dataset_class
from ...contracts.prediction import InputSamples, Learned, Row, find_inputs
from ...contracts.sample_checks import BadSample, require_finite, require_label
from ...contracts.task import EvaluationStep, Records, Step, Task, Term
from ...labelling.classification import ClassificationMetrics, best_classes, probabilities
from ...labelling.losses import adjusted_losses
from ...models import create_model
from ...runtime.errors import UserError
from ..data.augment import rotation
from ..data.samples import compile_loops
from ..data.voxels import discretize, first_occurrences, sparse_collate
from ..sparse import Plan, PlanSpec, SparseTensor, build_plan
from .data import ENDINGS, Shape, ShapeDataset, read_shape

_CHANNELS = {"xyz": 3, "normals": 3, "ones": 1}
_NO_LABEL = -1


class ShapeSample(NamedTuple):
    """A shape as network input: voxels int32 (M, 3), features float32 (M, C) of their first points, and its class."""

    voxels: np.ndarray
    features: np.ndarray
    label: int


class ShapeSamples(Samples):
    """A dataset of shapes as network input.

    Args:
        shapes: the SHAPES keys.
        is_training: they are varied at random.
    """

    def __init__(self, dataset: ShapeDataset, shapes: Any, is_training: bool) -> None:
        self.dataset, self.shapes, self.is_training = dataset, shapes, is_training
        self.class_names = dataset.class_names

    def sample(self, index: int, generator: np.random.Generator) -> ShapeSample:
        return sample_of(self.dataset.read(index), self.shapes, generator if self.is_training else None)


def sample_of(shape: Shape, keys: Any, generator: np.random.Generator | None = None) -> ShapeSample:
    """A shape as network input.

    Args:
        keys: the SHAPES keys.
        generator: of all that varies in a training; None: nothing does.

    Raises:
        BadSample: it has no points, or no normals where the network sees them.
    """
    xyz, normals, label = shape
    if not len(xyz):
        raise BadSample("the shape has no points")
    require_finite(xyz, "shape")
    if normals is None and "normals" in keys.FEATURES:
        raise BadSample("SHAPES.FEATURES names normals, which this shape has not: leave them out")
    normals = np.zeros_like(xyz) if normals is None else normals
    chosen = slice(keys.POINTS) if generator is None else generator.permutation(len(xyz))[: keys.POINTS]
    xyz, normals = xyz[chosen] - xyz[chosen].mean(axis=0), normals[chosen]
    xyz = xyz / max(float(np.linalg.norm(xyz, axis=1).max()), 1e-12)
    if generator is not None:
        xyz, normals = _varied(xyz, normals, keys, generator)
    voxels = discretize(xyz, keys.VOXEL_SIZE)
    first, _ = first_occurrences(voxels)
    columns = {"xyz": xyz, "normals": normals, "ones": np.ones((len(xyz), 1), np.float32)}
    return ShapeSample(voxels[first], np.concatenate([columns[name][first] for name in keys.FEATURES], axis=1), label)


def _varied(
    xyz: np.ndarray, normals: np.ndarray, keys: Any, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    angle = math.radians(keys.ROTATION_DEGREES) * generator.uniform(-1, 1)
    matrix = rotation("xyz".index(keys.UP), angle).astype(np.float32)
    moved = generator.standard_normal(xyz.shape, np.float32) * np.float32(keys.JITTER)
    shift = generator.uniform(-keys.SHIFT, keys.SHIFT, 3)
    return (xyz @ matrix * generator.uniform(*keys.SCALE) + moved + shift).astype(np.float32), normals @ matrix


class ShapeInputs(InputSamples):
    """Files of shapes to be predicted, as an evaluation would see them."""

    labelled = False

    def __init__(self, shapes: Any, names: Sequence[str], unreadable: Sequence[tuple[str, str]]) -> None:
        self.shapes, self.names, self.unreadable = shapes, names, unreadable

    def sample(self, index: int, generator: np.random.Generator) -> ShapeSample:
        return sample_of(read_shape(self.names[index]), self.shapes)


class ShapeClassification(Task):
    """Trains and evaluates a sparse network that has one output for each shape. The loss is the mean over all shapes of
    all ranks."""

    sample_name = "shapes"
    best_metric = ("top-1", True)
    batch_norm = "sync"
    counts_per_sample = {"loss": 1}

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.num_classes: int | None = config.MODEL.NUM_CLASSES
        self.class_names: list[str] = []
        self.plan_spec: PlanSpec | None = None  # known once a worker has built the network

    def build_dataset(self, split: str, cache_folder: Path) -> ShapeSamples:
        config = self.config
        dataset = dataset_class(config, ShapeDataset).open(config, split, cache_folder)
        own, wanted = dataset.num_classes, config.MODEL.NUM_CLASSES
        if wanted is not None and wanted < own:
            raise UserError(
                f"dataset {config.DATA.DATASET} has {own} classes but MODEL.NUM_CLASSES (-num_classes) is {wanted}; "
                f"set it to {own} or leave it out"
            )
        self.num_classes = wanted or own
        self.class_names = [*dataset.class_names, *map(str, range(own, self.num_classes))]
        return ShapeSamples(dataset, config.SHAPES, self.trains_on(split))

    def check_sample(self, sample: ShapeSample) -> None:
        require_finite(sample.features, "shape")
        if sample.label != _NO_LABEL:
            require_label(sample.label, self.num_classes)

    def collate(self, samples: Sequence[ShapeSample]) -> dict[str, Any]:
        coordinates, features = sparse_collate([one.voxels for one in samples], [one.features for one in samples])
        labels = np.array([one.label for one in samples], np.int64)
        plan = build_plan(coordinates, self.plan_spec, len(samples))
        return {"features": features, "labels": labels, **plan}

    def classes_of(self, samples: ShapeSamples) -> np.ndarray | None:
        return samples.dataset.labels

    def about_data(self, samples: Samples) -> dict[str, Any]:
        return {**super().about_data(samples), "classes": list(self.class_names)}

    def about_input(self) -> dict[str, Any]:
        shapes = self.config.SHAPES
        return {"SHAPES.VOXEL_SIZE": shapes.VOXEL_SIZE, "SHAPES.FEATURES": list(shapes.FEATURES)}

    def build_model(self, num_classes: int | None = None) -> paddle.nn.Layer:
        channels = sum(_CHANNELS[name] for name in self.config.SHAPES.FEATURES)
        classes = num_classes or self.num_classes
        model = create_model(self.config.MODEL.NAME, num_classes=classes, in_channels=channels)
        self.plan_spec = model.plan_spec()
        compile_loops()
        return model

    def logits(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> paddle.Tensor:
        """Float32 (batch, classes)."""
        return model(SparseTensor(batch["features"], plan=Plan.of_batch(batch))).astype("float32")

    def expected_losses(self) -> dict[str, float]:
        return {"loss": math.log(self.num_classes)}

    def train_step(self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: Step) -> dict[str, Term]:
        logits, labels = self.logits(model, batch), batch["labels"]
        losses = adjusted_losses(logits, labels, _NO_LABEL, smoothing=self.config.SHAPES.LABEL_SMOOTHING)
        with paddle.no_grad():
            correct = (logits.argmax(axis=-1) == labels).astype("float32").sum()
        number = labels.shape[0]
        return {"loss": Term(losses.sum(), number), "accuracy": Term(correct, number, weight=0.0)}

    def build_metrics(self) -> "ShapeMetrics":
        return ShapeMetrics(self.num_classes, self.class_names)

    def eval_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: EvaluationStep
    ) -> Records | None:
        step.metrics.update(self.logits(model, batch), batch["labels"])
        return None

    # ---- prediction --------------------------------------------------------------------------------------------

    def predict_step(self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor]) -> list[np.ndarray]:
        """The probability of each class, float64 (classes,), for each shape."""
        return list(probabilities(self.logits(model, batch).numpy()))

    def prediction_rows(self, prediction: np.ndarray) -> list[Row]:
        return [best_classes(prediction, self.class_names)]

    def set_up_from(self, learned: Learned) -> None:
        self.num_classes, self.class_names = learned.num_classes, list(learned.class_names or ())

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> ShapeInputs:
        expected = f"expected {' or '.join(ENDINGS)}, or a folder of these"
        found, unreadable = find_inputs(list(map(str, inputs)), _shapes_in, _as_shape, what="shape", expected=expected)
        return ShapeInputs(self.config.SHAPES, found, unreadable)


class ShapeMetrics(ClassificationMetrics):
    """Those of pictures, and the mean of the classes' accuracies ("balanced accuracy"), which papers on ModelNet40 call
    mean class accuracy."""

    def __init__(self, num_classes: int, class_names: Sequence[str]) -> None:
        super().__init__(num_classes, class_names)
        self.state["of classes"] = paddle.zeros([2, num_classes], dtype="int64")  # right, all

    def update(self, logits: paddle.Tensor, labels: paddle.Tensor) -> None:
        super().update(logits, labels)
        is_right = (logits.argmax(axis=-1) == labels).astype("int64")
        is_of_class = (labels.unsqueeze(1) == paddle.arange(self.num_classes).unsqueeze(0)).astype("int64")
        counted = paddle.stack([(is_of_class * is_right.unsqueeze(1)).sum(axis=0), is_of_class.sum(axis=0)])
        self.state["of classes"] = self.state["of classes"] + counted

    def compute(self, state: dict[str, Any]) -> dict[str, float]:
        right, number = state["of classes"].numpy()
        shares = right[number > 0] / number[number > 0]
        return {**super().compute(state), "balanced accuracy": 100.0 * float(shares.mean())}

    def summary(self, values: dict[str, float]) -> str:
        return f"{super().summary(values)} balanced accuracy {values['balanced accuracy']:.2f}"


def _as_shape(path: str) -> str | None:
    return path if path.lower().endswith(ENDINGS) else None


def _shapes_in(folder: str) -> Iterator[str]:
    yield from (str(file) for file in sorted(Path(folder).rglob("*")) if _as_shape(str(file)) and file.is_file())
