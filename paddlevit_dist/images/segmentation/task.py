"""Semantic segmentation of images: training, evaluation, prediction and export of any segmenter."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import paddle
from msgspec import Meta

from ...core.losses import (
    cross_entropies,
    dice_losses,
    look_up_weights,
    mark_hardest,
    resized_cross_entropy,
    row_lovasz_softmax,
)
from ...core.metrics.counts import pack_counts
from ...core.registry.lookup import annotation_type
from ...core.registry.manifest import MASK_LABELS
from ...core.registry.required_methods import missing_method
from ...core.runtime import autocast
from ...core.runtime.environment import program
from ...core.runtime.errors import UserError
from ...core.runtime.printing import one_line
from ...core.runtime.transfers import read_later
from ...core.tasks.dataset import TransformedDataset, is_training_split
from ...core.tasks.loss_checks import adds_own_loss, call_losses, require_form, require_sums, sum_losses
from ...core.tasks.metrics import Metrics, TableMetrics
from ...core.tasks.network_checks import check_network, require_output
from ...core.tasks.prediction import CheckpointMeta
from ...core.tasks.sample_checks import require_labels
from ...core.tasks.step_types import EvaluationStep, LossTerm, StepPosition
from ...core.tasks.task import Records
from ..backbone_task import TURNED, BackboneTask, is_turned
from ..data.class_lists import published_classes
from ..data.image_samples import open_dataset
from ..mask_queries.criterion import MaskQueryCriterion
from ..models.segmenter import Segmenter
from ..transforms.albumentations_file import AlbumentationsFile
from .class_masks import add_classes, build_targets, count_classes
from .data.segmentation_dataset import IGNORED, SegmentationDataset, summarize_labels
from .metrics import SegmentationMetrics
from .protocols import class_map, describe_protocol, image_logits, most_likely, read_protocol, upsample
from .samples import LabelMapsPart, SegmentationSample, SegmentationSamples, collate, split_batch
from .settings import SegmentationSettings, require_no_pixel_losses
from .transforms import evaluation_transform, see_maps, training_transform

_LOGITS = "logits (images, classes, rows, columns)"
_PIXEL_LOSSES, _CLASS_LOSSES = ("loss", "auxiliary"), ("dice", "lovasz")  # losses divided by pixels, by classes


class _SplitFacts(msgspec.Struct):
    palette: Annotated[str, Meta(pattern=r"^([0-9a-f]{6}){1,65536}\Z")] | None = None  # colors of the classes


class ImageSegmentation(BackboneTask):
    """Trains and evaluates a network that classifies each pixel of an image.

    Cross-entropy is divided by the labeled pixels of all ranks and micro-batches, or by their classes' weights. Dice
    and Lovasz losses are computed for each class in each image and divided by their number. mmsegmentation divides by
    all pixels of a device, including unlabeled ones. Each image is scored alone, all of its pixels once, at its stored
    size; results do not depend on batches or processes.
    """

    aspects = {
        "Checkable": ".checks:PixelChecks",
        "Drawable": ".figures:LabelMapDrawing",
        "Exportable": ".export:SegmenterExport",
        "Predictable": ".prediction:LabelMapPrediction",
        "Reportable": ".figures:LabelMapFigures",
    }
    config: SegmentationSettings
    traits = replace(
        BackboneTask.traits,
        batch_norm="sync",
        supports_capture=True,
        uses_cross_entropies=True,
        selftest_overrides={
            **dict.fromkeys(("MODEL.DROPOUT", "MODEL.ATTENTION_DROPOUT", "MODEL.DROPPATH"), 0.0),
            "SEGMENTATION.OHEM_THRESHOLD": None,
            "TRAIN.RANDOM_SAMPLING": False,
        },
    )
    best_metric = ("mIoU", True)

    def __init__(self, config: SegmentationSettings) -> None:
        super().__init__(config)
        self.palette: np.ndarray | None = None
        self.auxiliary_weight = 0.0  # the model's
        self._has_checked_sums = False  # of a user's terms
        self.criterion: MaskQueryCriterion | None = None  # of a network that has losses, once classes are known
        keys = config.SEGMENTATION
        of_classes = _CLASS_LOSSES if config.TRAIN.DICE_WEIGHT or config.TRAIN.LOVASZ_WEIGHT else ()
        of_pixels = _PIXEL_LOSSES[keys.OHEM_THRESHOLD is not None :]  # hard pixels are counted by the step
        if adds_own_loss(self) and keys.OHEM_THRESHOLD is not None:
            raise UserError(
                f"SEGMENTATION.OHEM_THRESHOLD {keys.OHEM_THRESHOLD:g} chooses pixels by their cross-entropy, but "
                f"{type(self).__name__} has other losses: remove the key"
            )
        self.traits = replace(self.traits, normalizer_names=(*of_pixels, *of_classes))
        if annotation_type("model", config.MODEL.NAME) not in (None, MASK_LABELS):  # None: a user's model
            raise UserError(
                f"MODEL.NAME {config.MODEL.NAME} is not a segmentation model; set segformer_b0, for example, or "
                f"another that '{program('inspect')} --list' names below TASK {config.TASK}"
            )
        if self._has_own_losses:
            require_no_pixel_losses(config)

    def build_dataset(self, split: str, cache_folder: Path) -> SegmentationSamples:
        """Open a split with its transform, check it, and log what was found."""
        data, is_training = self.config.DATA, is_training_split(self.config, split)
        dataset, notices = open_dataset(self.config, SegmentationDataset, LabelMapsPart, split, cache_folder)
        self._opened_turned = is_turned(dataset)
        if self._inspection is not None:
            notices += self._inspection.inspect(dataset, split, dataset.num_classes, see_maps(data, is_training))
            notices += summarize_labels(dataset, split)
        transform: Any = training_transform(data) if is_training else evaluation_transform(data)
        samples = SegmentationSamples(dataset, transform, is_training)
        if is_training and data.ALBUMENTATIONS is not None:
            samples.augmentation = AlbumentationsFile(data.ALBUMENTATIONS)
        samples.notices = [one_line(line) for line in notices]
        self._take_classes(list(map(str, dataset.class_names or range(dataset.num_classes))))
        self.palette = dataset.palette
        weights = self.config.SEGMENTATION.CLASS_WEIGHTS
        if weights is not None and len(weights) != self.num_classes:
            raise UserError(
                f"SEGMENTATION.CLASS_WEIGHTS has {len(weights)} numbers; expected one for each of the "
                f"{self.num_classes} classes"
            )
        if is_training:
            self._replace_unreadable(samples)
            self._build_criterion()
        else:
            samples.eval_protocol = describe_protocol(self.config)
        return samples

    @property
    def _has_own_losses(self) -> bool:
        return getattr(self._family, "criterion", None) is not None

    def _build_criterion(self) -> None:
        """Build the losses of a network that has its own."""
        if self._has_own_losses:
            self.criterion = self._family.criterion(self.config.MODEL.NAME, self.num_classes, **self.model_options)
            # Queries are matched on the host.
            self.traits = replace(self.traits, normalizer_names=self.criterion.normalizer_names, supports_capture=False)
            if self._adds_terms or adds_own_loss(self):
                method = "further_terms" if self._adds_terms else "losses"
                raise UserError(
                    f"MODEL.NAME {self.config.MODEL.NAME} has its own losses, of queries and not of logits of pixels, "
                    f"so {type(self).__name__}.{method} is not computed: override train_step"
                )

    @property
    def network_size(self) -> tuple[int, int] | None:
        """Height and width that the network is built for: of crops, if it learns their positions; else its own."""
        height, width = self.config.DATA.CROP_SIZE
        return (height, width) if self._has_own_losses else None

    def signature(self, dataset: TransformedDataset | None = None) -> dict[str, Any]:
        """Return the preprocessing settings that the weights depend on, or the classes and colors of samples."""
        if dataset is not None:
            return self._identify(dataset)
        data = self.config.DATA
        sides: tuple[str, ...] = ("EVAL_SHORTEST_SIDE", "EVAL_LONGEST_SIDE", "EVAL_DIVISOR")
        if self.config.get("EXPORTED") is not None:
            sides = sides[1:]  # images smaller than an exported model's one size have to be enlarged
        names = (*sides, "RESIZE", "IMAGENET_MEAN", "IMAGENET_STD", "EXIF_ROTATE")
        return {f"DATA.{name}": data[name] for name in names}

    def _identify(self, dataset: TransformedDataset) -> dict[str, Any]:
        """Return what identifies the data of a split: names, classes, orientation and colors."""
        facts = {**super().signature(dataset), "number of classes": self.num_classes, "classes": self.class_names}
        if isinstance(dataset, SegmentationSamples):  # not a program's samples
            facts[TURNED] = is_turned(dataset.dataset)
        return facts if self.palette is None else {**facts, "palette": self.palette.tobytes().hex()}

    def check_sample(self, sample: SegmentationSample) -> None:
        """Check the labels of a sample."""
        require_labels(sample.labels.ravel(), self.num_classes, IGNORED, "class", "pixel")

    def collate(self, samples: Sequence[SegmentationSample]) -> dict[str, Any]:
        """Collate samples to a batch."""
        batch = collate(samples)
        return add_classes(batch) if self.criterion is not None and samples[0].is_training else batch

    def build_model(self, num_classes: int | None = None) -> paddle.nn.Layer:
        """Build the model."""
        model = super().build_model(num_classes)
        self.auxiliary_weight = getattr(model, "auxiliary_weight", Segmenter.auxiliary_weight)  # a user's model
        return model

    def loss_normalizers(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Count the divisors of the losses: labeled pixels, or classes in images."""
        if self.criterion is not None:
            return dict(self.criterion.count(count_classes(batch)))
        weights = self.config.SEGMENTATION.CLASS_WEIGHTS
        image_counts = np.stack([np.bincount(row.ravel(), minlength=IGNORED + 1) for row in batch["labels"]])
        pixels = image_counts[:, :IGNORED].sum(axis=0)  # (classes,)
        labeled = pixels.sum() if weights is None or adds_own_loss(self) else np.dot(pixels[: len(weights)], weights)
        present = np.count_nonzero(image_counts[:, :IGNORED])
        numbers = {**dict.fromkeys(_PIXEL_LOSSES, labeled), **dict.fromkeys(_CLASS_LOSSES, present)}
        # Other names are of a derived class, which adds their numbers.
        return {name: numbers[name] for name in self.traits.normalizer_names if name in numbers}

    def train_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: StepPosition
    ) -> dict[str, LossTerm]:
        """Compute the losses of a batch."""
        if self.criterion is not None:
            self.criterion.note_objects(count_classes(batch), step)
            outputs = model(self.normalizer(batch["images"]), step.update, step.total_updates)
            return dict(self.criterion.terms(outputs, build_targets(batch)))
        labels = batch["labels"].astype("int64")  # (N, H, W)
        outputs = model(self.normalizer(batch["images"]))
        is_several = self.auxiliary_weight and isinstance(outputs, (tuple, list)) and len(outputs) > 1
        shape = labels.shape[0], self.num_classes, None, None
        main, *auxiliary = (
            require_output(one, shape, model, _LOGITS) for one in (outputs if is_several else (outputs,))
        )
        with autocast.off():
            train, logits = self.config.TRAIN, main.astype("float32")
            threshold = self.config.SEGMENTATION.OHEM_THRESHOLD
            if threshold is not None or train.DICE_WEIGHT or train.LOVASZ_WEIGHT or self._adds_terms:
                logits = upsample(main, labels.shape[1:])  # (N, classes, H, W), by far the largest tensor of the step
            terms = {"loss": self._compute_loss(logits, batch, labels, threshold)}
            rows = logits.flatten(2), labels.flatten(1), IGNORED  # (N, classes, pixels), (N, pixels)
            if train.DICE_WEIGHT:
                terms["dice"] = LossTerm(*dice_losses(*rows), train.DICE_WEIGHT)
            if train.LOVASZ_WEIGHT:
                terms["lovasz"] = LossTerm(*row_lovasz_softmax(*rows), train.LOVASZ_WEIGHT)
            others = [self._compute_loss(other.astype("float32"), batch, labels) for other in auxiliary]
            if others:
                total = paddle.stack([term.sum for term in others]).sum()
                terms["auxiliary"] = others[0]._replace(sum=total, weight=self.auxiliary_weight)
            if self._adds_terms:
                own = self.further_terms(logits, labels)
                self._require_sums(own, logits, labels)
                terms.update(own)
        return terms

    def losses(self, outputs: paddle.Tensor, batch: dict[str, paddle.Tensor]) -> paddle.Tensor:
        """Return the loss of each pixel or image, of a task with another loss; by default, there is none.

        Training calls it for the first map that a network returns, and for others with an ``auxiliary_weight``. An
        evaluation calls it for each image at its stored size, and reports the mean as the loss.

        Args:
            outputs: logits, float32 (images, classes, rows, columns), of the labels' size.
            batch: "labels", int64 (images, rows, columns), 255 where a pixel is unlabeled; in training also the other
                parts of ``collate``.

        Returns:
            Float (images, rows, columns), where unlabeled pixels do not count, or (images,).
        """
        raise missing_method(type(self), "losses")

    def _compute_loss(
        self, logits: paddle.Tensor, batch: dict[str, Any], labels: paddle.Tensor, threshold: float | None = None
    ) -> LossTerm:
        """Return the loss of a map of logits, float32 (images, classes, rows, columns) of any resolution."""
        if not adds_own_loss(self):
            return self._cross_entropy(logits, labels, threshold)
        logits, batch = upsample(logits, labels.shape[1:]), {**batch, "labels": labels}
        return sum_losses(call_losses(self, logits, batch, labels.shape, labels.shape[:1]), labels != IGNORED)

    def further_terms(self, logits: paddle.Tensor, labels: paddle.Tensor) -> Mapping[str, LossTerm]:
        """Return terms that are added to the loss, by names of their own; by default none.

        Args:
            logits: float32 (images, classes, rows, columns), of the labels' size.
            labels: int64 (images, rows, columns); 255 is unlabeled.
        """
        return {}

    def _require_sums(self, terms: Any, logits: paddle.Tensor, labels: paddle.Tensor) -> None:
        """Check the first terms that ``further_terms`` has returned."""
        if not self._has_checked_sums:
            require_form(terms, type(self), "further_terms")
            require_sums(self.further_terms, (logits, labels), type(self), "further_terms")
            self._has_checked_sums = True

    @property
    def _adds_terms(self) -> bool:
        return type(self).further_terms is not ImageSegmentation.further_terms

    def _cross_entropy(self, logits: paddle.Tensor, labels: paddle.Tensor, threshold: float | None = None) -> LossTerm:
        keys = self.config.SEGMENTATION
        weights = None if keys.CLASS_WEIGHTS is None else tuple(keys.CLASS_WEIGHTS)
        pixel_weights = (
            (labels != IGNORED).astype("float32") if weights is None else look_up_weights(labels, IGNORED, weights)
        )
        if threshold is None:
            return LossTerm(resized_cross_entropy(logits, labels, IGNORED, weights), pixel_weights.sum())
        losses = cross_entropies(logits, labels, IGNORED, axis=1)
        pixel_weights = pixel_weights * mark_hardest(losses, labels, IGNORED, threshold, keys.OHEM_MIN_KEPT)
        return LossTerm((losses * pixel_weights).sum(), pixel_weights.sum(), is_local=True)

    def build_metrics(self) -> Metrics:
        """Return the metrics of an evaluation."""
        return SegmentationMetrics(self.class_names)

    def class_maps(
        self, model: paddle.nn.Layer, batch: dict[str, Any], metrics: Any = None
    ) -> Iterator[list[np.ndarray]]:
        """Yield class map and labels of each image, uint8 (height, width); a device computes the next meanwhile.

        With ``metrics``, they get the loss if a user's class has one.
        """
        compute = check_network(model, _LOGITS, self.num_classes, None, None)

        def network(pixels: paddle.Tensor) -> paddle.Tensor:
            return compute(self.normalizer(pixels))

        protocol, read_previous = read_protocol(self.config), None
        is_own = isinstance(metrics, TableMetrics) and metrics.expects_loss
        for image in split_batch(batch):
            if is_own and image.labels.shape[0]:
                logits = image_logits(network, image.image, image.original_size, protocol)
                prediction = most_likely([(logits, image.original_size)], image.original_size)
                metrics.add_own_loss(self._compute_loss(logits, {}, image.labels.unsqueeze(0).astype("int64")))
            else:
                prediction = class_map(network, image.image, image.original_size, protocol)
            read_result = read_later(prediction, image.labels)
            if read_previous is not None:
                yield read_previous()
            read_previous = read_result
        if read_previous is not None:
            yield read_previous()

    def eval_step(self, model: paddle.nn.Layer, batch: dict[str, Any], step: EvaluationStep) -> Records | None:
        """Update the metrics, and write the predictions of a batch."""
        predictions, records = [], []
        for predicted, labels in self.class_maps(model, batch, step.metrics):
            if not labels.size:  # a split without label maps
                labels = np.full_like(predicted, IGNORED)
            records.append(pack_counts(*step.metrics.update(predicted, labels)))
            predictions.append(predicted)
        if step.writer is not None:
            step.writer.add(predictions)
        return (lambda: records) if step.keeps_records else None

    def load_meta(self, meta: CheckpointMeta) -> None:
        """Take classes and their colors from a checkpoint's metadata."""
        super().load_meta(meta)
        colors = meta.read_data(_SplitFacts).palette
        if colors is not None:
            self.palette = np.frombuffer(bytes.fromhex(colors), np.uint8).reshape(-1, 3)

    def _name_classes(self, number: int, meta: CheckpointMeta) -> None:
        """Take the names from the weights; without names, use the published classes of their recipe's dataset."""
        if not meta.class_names:
            published = published_classes(self.config.DATA.DATASET.removesuffix("_segmentation"), None, 0)
            if len(published.names) == number:
                meta, self.palette = meta._replace(class_names=tuple(published.names)), published.palette
        super()._name_classes(number, meta)
