"""Probes: measure the features of a frozen classifier with linear layers or nearest neighbors.

Sources: M. Oquab et al., DINOv2, arXiv 2304.07193, appendix B.3 (linear layers of many learning rates at once); M.
Caron et al., DINO, arXiv 2104.14294, appendix F.1 (votes of neighbors).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn

from ...core.checkpoint.foreign_names import from_torch_names
from ...core.metrics.classification import ClassificationMetrics, record_later, require_num_classes
from ...core.registry.lookup import resolve
from ...core.runtime.errors import UserError
from ...core.tasks.model import KeyMap, Model
from ...core.tasks.step_types import EvaluationStep, LossTerm, StepPosition
from ...core.tasks.task import Records
from ..models.layers import Linear
from .samples import ClassificationSamples
from .settings import ProbeSettings
from .task import LabeledImageTask

_BACKBONE = "backbone."
_BANK_ROWS = 1 << 16  # compared with a batch at a time: 64 x 65,536 similarities are 16 MiB
_TEMPERATURE = 0.07  # of the weights exp(similarity / temperature) of nearest neighbors, DINO's
_LEAST_VOTE = 1e-7  # share of a class without a vote; 0 would make the loss infinite


class FeatureSamples(ClassificationSamples):
    """Images until their features are computed; then the features, and no image is read."""

    features: np.ndarray | None = None  # float32 (samples, channels), memory-mapped

    def sample(self, index: int, generator: np.random.Generator) -> Any:
        """Return the features of sample ``index`` and its label, or before that its image."""
        if self.features is None:
            return super().sample(index, generator)
        return self.features[index], int(self.dataset.labels[index])


class ProbeModel(Model):
    """A frozen ``backbone``, which computes features (batch, embed_dim) of images, and independent linear ``heads``."""

    classifier_layers = ("heads",)

    def __init__(self, backbone: Model, num_classes: int, heads: int) -> None:
        super().__init__()
        self.backbone, self.num_classes = backbone, num_classes
        self.image_size, self.in_channels = backbone.image_size, backbone.in_channels
        for parameter in backbone.parameters():
            parameter.stop_gradient = True
        # Heads start from zero: random weights from the backbone's seed would equal the initial weights of the
        # classifier that it was trained with.
        zero = paddle.ParamAttr(initializer=nn.initializer.Constant(0.0))
        self.heads = nn.LayerList([Linear(backbone.embed_dim, num_classes, zero, zero) for _ in range(heads)])
        plain: dict[str, KeyMap] = {"timm": from_torch_names, **backbone.key_maps}
        classifiers = tuple(f"{_find_removed(backbone, layer)}." for layer in backbone.classifier_layers)
        self.key_maps = {owner: _prefix_backbone(key_map, classifiers) for owner, key_map in plain.items()}

    @property
    def pretrained_part(self) -> Model:
        """The network whose layers have the names of a classifier's weights."""
        return self.backbone

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Compute logits (heads, batch, classes) of images (batch, channels, rows, columns) or features (batch, n)."""
        features = self.compute_features(x) if x.ndim == 4 else x
        return paddle.stack([head(features) for head in self.heads])

    def compute_features(self, images: paddle.Tensor) -> paddle.Tensor:
        """Compute features (batch, embed_dim) of images (batch, channels, rows, columns).

        A network without classes returns them; one whose last layer stays is asked for its ``forward_features``.
        Raises UserError: both have another shape.
        """
        backbone = self.backbone
        features = backbone(images)
        if not self._has_right_shape(features):
            features = backbone.forward_features(images)
        if not self._has_right_shape(features):
            raise UserError(
                f"{type(backbone).__name__}.forward_features returned the shape {list(features.shape)}: a probe needs "
                f"(batch, embed_dim), here (batch, {backbone.embed_dim})"
            )
        return features

    def _has_right_shape(self, features: paddle.Tensor) -> bool:
        return features.ndim == 2 and features.shape[1] == self.backbone.embed_dim

    def resize_parameter(self, name: str, value: np.ndarray) -> np.ndarray | None:
        """Resize a parameter of the backbone."""
        return self.backbone.resize_parameter(name.removeprefix(_BACKBONE), value)

    def list_resize_notices(self, names: Sequence[str]) -> list[str]:
        """Return the backbone's lines about resized parameters."""
        return self.backbone.list_resize_notices([name.removeprefix(_BACKBONE) for name in names])


def _find_removed(backbone: Model, classifier: str) -> str:
    """Return the outermost layer around a classifier that a network without classes has nothing left of, or itself.

    timm's LeViT and RepViT have a norm in their head, and lose it with the classifier.
    """
    words = classifier.split(".")
    around = (".".join(words[:number]) for number in range(1, len(words)))
    layers = dict(backbone.named_sublayers())
    return next((path for path in around if path in layers and not layers[path].state_dict()), classifier)


def _prefix_backbone(key_map: KeyMap, classifiers: tuple[str, ...]) -> KeyMap:
    """Wrap the key map of a backbone, and drop the classifiers in its weights."""

    def rename(state: Mapping[str, Any]) -> dict[str, Any]:
        if any(name.startswith(_BACKBONE) for name in state):  # weights of a probe
            return dict(state)
        renamed = key_map(state)
        return {_BACKBONE + name: value for name, value in renamed.items() if not name.startswith(classifiers)}

    return rename


class ProbeMetrics(ClassificationMetrics):
    """Scores of several classifiers on the same samples.

    Values, intervals and table are of the ``best`` classifier, known after ``compute``; each one's top-1 is a value,
    too.

    Args:
        kind: what the classifiers differ in, such as "rate".
        names: value of ``kind`` for each classifier.
        chosen: number of the classifier; None: the one with the most correct labels, then with the smallest loss.
    """

    def __init__(
        self, num_classes: int, class_names: Sequence[str] | None, kind: str, names: Sequence[str], chosen: int | None
    ) -> None:
        super().__init__(num_classes, class_names)
        self.kind, self.names, self.best, self._chosen = kind, names, chosen or 0, chosen
        self.each = [ClassificationMetrics(num_classes, class_names) for _ in names]
        self._join()

    def _join(self) -> None:
        self.state = {
            f"{key}, {name}": metrics.state[key]
            for name, metrics in zip(self.names, self.each)
            for key in metrics.state
        }

    def update(self, logits: paddle.Tensor, labels: paddle.Tensor) -> None:
        """Add a batch: logits (classifiers, batch, classes), labels int64 (batch,)."""
        for metrics, head_logits in zip(self.each, logits):
            metrics.update(head_logits, labels)
        self._join()

    def compute(self, state: dict[str, Any]) -> dict[str, float]:
        """Compute the values of the best classifier, and each classifier's top-1."""
        for metrics in self.each:
            metrics.indices = self.indices
        values = [
            metrics.compute({key: state[f"{key}, {name}"] for key in metrics.state})
            for name, metrics in zip(self.names, self.each)
        ]
        if self._chosen is None:
            self.best = max(range(len(values)), key=lambda k: (values[k]["top-1 count"], -values[k]["loss"]))
        best = self.each[self.best]
        self.column_names, self.gathered = best.column_names, best.gathered
        top1 = {self._format_name(name): value["top-1"] for name, value in zip(self.names, values)}
        return {**values[self.best], **(top1 if len(values) > 1 else {})}

    def per_sample(self) -> list[np.ndarray]:
        """Return the per-sample table of the best classifier."""
        return self.each[self.best].per_sample()

    def summary(self, values: dict[str, float]) -> str:
        """Format the scores, with the top-1 of the other classifiers."""
        others = [
            f"{name} {values[self._format_name(name)]:.2f}" for name in self.names if name != self.names[self.best]
        ]
        rest = f"; {', '.join(others)}" if others else ""
        return f"{super().summary(values)} ({self.kind} {self.names[self.best]}{rest})"

    def _format_name(self, name: str) -> str:
        return f"top-1 of {self.kind} {name}"


class ProbeTask(LabeledImageTask):
    """Base class of probes: features of the samples are computed once the backbone has its weights.

    A probe measures features. It is not a classifier, and neither predicts nor exports.
    """

    aspects = {
        "CheckpointMatching": ".probe_features:ProbeMatching",
        "FeatureCaching": ".probe_features:ProbeFeatures",
        "Reportable": ".probe_figures:ProbeFigures",
    }
    config: ProbeSettings
    _samples_type = FeatureSamples
    num_heads: int

    def logits(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> paddle.Tensor:
        """Compute the logits of each of several classifiers, (classifiers, batch, classes)."""
        raise NotImplementedError

    def build_dataset(self, split: str, cache_folder: Path) -> FeatureSamples:
        """Open a split, which must have labels, with the transform of an evaluation."""
        samples = cast(FeatureSamples, self._open_evaluated(split, cache_folder))
        if samples.dataset.labels is None:
            raise UserError(
                f"dataset {self.config.DATA.DATASET} does not expose its labels, which a probe needs: give it an "
                "attribute 'labels'"
            )
        return samples

    def collate(self, samples: Sequence[Any]) -> dict[str, np.ndarray]:
        """Stack images and labels to a batch; once they are computed, features (batch, channels)."""
        inputs, labels = zip(*samples)
        name = "features" if inputs[0].ndim == 1 else "images"
        return {name: np.stack(inputs), "labels": np.asarray(labels, dtype=np.int64)}

    def create_network(self, num_classes: int) -> ProbeModel:
        """Create the frozen backbone with its heads."""
        name = self.config.MODEL.NAME
        needed = "a probe needs an attribute embed_dim, and forward_features that returns (batch, embed_dim)"
        if getattr(resolve("model", name), "forward_features", None) is Model.forward_features:
            raise UserError(f"MODEL.NAME {name}: {needed}")
        backbone = super().create_network(0)
        if not isinstance(getattr(backbone, "embed_dim", None), int):
            raise UserError(f"MODEL.NAME {name}: {needed}")
        return ProbeModel(backbone, num_classes, self.num_heads)

    def eval_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: EvaluationStep
    ) -> Records | None:
        """Update the metrics; return the records of the best head, if they are kept."""
        logits, labels, metrics = self.logits(model, batch), batch["labels"], step.metrics
        metrics.update(logits, labels)
        if not step.keeps_records:
            return None
        heads, size = logits.shape[:2]
        all_records = record_later(logits.flatten(0, 1), labels.tile([heads]))
        # Called when the best head is known.
        return lambda: all_records()[metrics.best * size : (metrics.best + 1) * size]


class LinearProbe(ProbeTask):
    """A linear layer for each learning rate; the score is the best one's, or that of PROBE.LEARNING_RATE."""

    aspects = {"ParameterGrouping": ".probe_features:HeadGrouping"}

    def __init__(self, config: ProbeSettings) -> None:
        super().__init__(config)
        self.rates = list(config.PROBE.LEARNING_RATES)
        self.num_heads = len(self.rates)
        self._chosen = None if config.PROBE.LEARNING_RATE is None else self.rates.index(config.PROBE.LEARNING_RATE)

    def train_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: StepPosition
    ) -> dict[str, LossTerm]:
        """Compute the losses of all heads."""
        logits = self.logits(model, batch).astype("float32")  # (heads, batch, classes)
        labels, heads = batch["labels"].tile([self.num_heads]), self.num_heads
        losses = F.cross_entropy(logits.flatten(0, 1), labels, reduction="sum")
        # Their mean is logged; each layer learns from its own whole loss.
        return {"loss": LossTerm(losses / heads, len(batch["labels"]), weight=heads)}

    def logits(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> paddle.Tensor:
        """Compute logits (heads, batch, classes)."""
        is_known = "features" in batch  # False for images of a check before training
        return model(batch["features"] if is_known else self.normalize(batch["images"]))

    def build_metrics(self) -> ProbeMetrics:
        """Return the metrics of all heads."""
        names = [f"{rate:g}" for rate in self.rates]
        return ProbeMetrics(require_num_classes(self.num_classes), self.evaluated_classes, "rate", names, self._chosen)


class KnnProbe(ProbeTask):
    """Votes of the most similar training images, by cosine, weighted with exp(similarity / temperature).

    The score is the one of the first number of neighbors in PROBE.KNN_K.
    """

    aspects = {"FeatureCaching": ".probe_features:NeighborFeatures"}
    train_step: Any = None  # it trains nothing

    def __init__(self, config: ProbeSettings) -> None:
        super().__init__(config)
        if not config.EVAL:
            raise UserError(f"TASK {config.TASK} trains nothing: add -eval")
        self.num_heads = 0
        self.bank_samples: FeatureSamples | None = None
        #: normalized features and labels of training images
        self.bank: tuple[paddle.Tensor, paddle.Tensor] | None = None

    def build_dataset(self, split: str, cache_folder: Path) -> FeatureSamples:
        """Open the split to evaluate, and the training images."""
        if split == "train":
            raise UserError("-split=train: each image would be its own nearest neighbor; take another split")
        self.bank_samples = super().build_dataset("train", cache_folder)
        most = max(self.config.PROBE.KNN_K)
        if most > len(self.bank_samples):
            raise UserError(f"PROBE.KNN_K {most}: there are only {len(self.bank_samples):,} training images; lower it")
        samples = super().build_dataset(split, cache_folder)
        samples.notices = list(dict.fromkeys([*self.bank_samples.notices, *samples.notices]))
        return samples

    def signature(self, dataset: Any = None) -> dict[str, Any]:
        """Return the signature without the classes of samples, which may differ from the weights' classes."""
        facts = super().signature(dataset)
        return {name: fact for name, fact in facts.items() if "classes" not in name}

    def logits(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> paddle.Tensor:
        """Compute the logarithms of the classes' shares of the votes, (neighbors, batch, classes)."""
        assert self.bank is not None
        bank, labels = self.bank
        numbers, queries = self.config.PROBE.KNN_K, F.normalize(batch["features"], axis=-1)
        similarity, place = find_nearest(queries, bank, max(numbers))  # (batch, most)
        votes = weigh_votes(similarity, labels[place], require_num_classes(self.num_classes))
        sums = paddle.stack([votes[:, :number].sum(axis=1) for number in numbers])
        return paddle.log((sums / sums.sum(axis=-1, keepdim=True)).clip(min=_LEAST_VOTE))

    def build_metrics(self) -> ProbeMetrics:
        """Return the metrics of all numbers of neighbors."""
        names = [str(number) for number in self.config.PROBE.KNN_K]
        return ProbeMetrics(require_num_classes(self.num_classes), self.evaluated_classes, "neighbors", names, 0)


def weigh_votes(
    similarity: paddle.Tensor, labels: paddle.Tensor, num_classes: int, temperature: float = _TEMPERATURE
) -> paddle.Tensor:
    """Compute votes of neighbors for their classes, exp(similarity / temperature) divided by the nearest one's.

    Cosines are float32, in descending order, and labels int64, both (batch, neighbors); votes are float32 (batch,
    neighbors, classes).
    """
    similarity = similarity - similarity[:, :1]  # does not change the shares, and avoids overflow
    return paddle.exp(similarity / temperature).unsqueeze(-1) * F.one_hot(labels, num_classes)


def find_nearest(queries: paddle.Tensor, bank: paddle.Tensor, number: int) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Find the ``number`` largest products of each query with rows of the bank, which is read in parts, and their rows.

    Queries and bank are float32 (rows, channels). Products, in descending order, are float32 and rows int64, (queries,
    number) each.
    """
    best, places = [], []
    for first in range(0, bank.shape[0], _BANK_ROWS):
        products = paddle.matmul(queries, bank[first : first + _BANK_ROWS], transpose_y=True)
        values, rows = paddle.topk(products, min(number, products.shape[1]), axis=-1)
        best.append(values)
        places.append(rows + first)
    values, order = paddle.topk(paddle.concat(best, axis=-1), number, axis=-1)
    return values, paddle.take_along_axis(paddle.concat(places, axis=-1), order, axis=-1)
