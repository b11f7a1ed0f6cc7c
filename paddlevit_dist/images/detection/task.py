"""Object detection: training, evaluation and prediction of any detector."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import paddle
from msgspec import Meta
from paddle.nn import functional as F

from ...core.registry.required_methods import require_methods
from ...core.runtime.errors import UserError
from ...core.tasks.dataset import TransformedDataset, is_training_split
from ...core.tasks.metrics import Metrics
from ...core.tasks.model_factory import model_options
from ...core.tasks.prediction import CheckpointMeta
from ...core.tasks.sample_checks import require_finite, require_labels
from ...core.tasks.step_types import EvaluationStep, LossTerm, StepPosition
from ...core.tasks.task import Records
from ..backbone_task import TURNED, BackboneTask, is_turned
from .data.detection_dataset import DetectionDataset
from .data.images_part import ImagesPart
from .data.samples import (
    EVALUATED_AS,
    DetectionSample,
    DetectionSamples,
    collate,
    host_facts,
    largest_side,
    open_samples,
)
from .data.split_checks import note_crowded
from .data.transforms import batch_side, export_size
from .denoising import DenoisingQueries
from .detections import SpeedMeter
from .detector import COCO_CATEGORIES, DetectionCriterion, DetectionTargets, zero_padding
from .evaluation.match_tables import resolve_detection_limits
from .evaluation.operating_points import WishedRates
from .inference import detect_objects
from .model_options import list_fixed_sizes, read_model_options, require_evaluated_sizes
from .settings import DetectionSettings


class _SplitFacts(msgspec.Struct):
    category_ids: list[Annotated[int, Meta(ge=-(1 << 53), le=1 << 53)]] | None = msgspec.field(
        name="category ids", default=None
    )


class Detection(BackboneTask):
    """Trains and evaluates a network that detects objects in images."""

    aspects = {
        "AnnotationMatching": ".prediction:BoxPrediction",
        "Checkable": ".checks:BoxChecks",
        "CheckpointMatching": ".checks:BoxMatching",
        "DatasetSaving": ".prediction:BoxPrediction",
        "Drawable": ".drawn_samples:BoxDrawing",
        "Exportable": ".export:BoxExport",
        "LogContributor": ".checks:BoxLog",
        "Predictable": ".prediction:BoxPrediction",
        "Reportable": ".figures:BoxFigures",
    }
    config: DetectionSettings
    best_metric = ("AP", True)
    _dataset_type: type[DetectionDataset] = DetectionDataset
    _part_type: type[ImagesPart] = ImagesPart  # part of a dataset
    _classes_word = "categories"
    traits = replace(
        BackboneTask.traits,
        selftest_overrides={
            **dict.fromkeys(("MODEL.DROPOUT", "MODEL.ATTENTION_DROPOUT", "MODEL.DROPPATH"), 0.0),
            "TRAIN.DETECTION_NORMALIZER": "global",
            "TRAIN.RANDOM_SAMPLING": False,
            "DETECTION.PAD_TO_BATCH_MAX": False,
        },
    )

    def __init__(self, config: DetectionSettings) -> None:
        super().__init__(config)
        self.category_ids: list[int] = []
        self.evaluated: DetectionDataset | None = None
        self._padded_side = 0  # smallest padded side of training images
        self.turned: dict[str, bool] = {}  # whether each open split is rotated by EXIF
        self.num_named = 0  # the first categories, which have names; others only have numbers
        self._criterion: DetectionCriterion | None = None
        self.speed = SpeedMeter()
        self._set_options(**read_model_options(config, self._family))

    def build_dataset(self, split: str, cache_folder: Path) -> DetectionSamples:
        """Open the samples of a split, with notices on how they are used."""
        is_training = is_training_split(self.config, split)
        samples = open_samples(
            self.config,
            split,
            cache_folder,
            is_training,
            self._family.learns_masks,
            inspection=self._inspection,
            base=self._dataset_type,
            part=self._part_type,
        )
        self._check_classes(samples.dataset)
        self.turned[f"{split} {TURNED}"] = self._opened_turned = is_turned(samples.dataset)
        if not is_training:
            self.evaluated = samples.dataset
            samples.notices += self._note_crowded(
                samples.dataset, split, resolve_detection_limits(self._max_detections)[-1]
            )
            samples.notices.append(f"{split} is evaluated with {EVALUATED_AS[self.config.DETECTION.EVAL_BATCHING]}")
            return samples
        if not self.config.DETECTION.PAD_TO_BATCH_MAX:
            self._padded_side = largest_side(self.config.DATA, samples.dataset.sizes)
        normalizer, how = self.config.TRAIN.DETECTION_NORMALIZER, "by the counts of all devices and micro-batches"
        how = self._family.reference_normalizer if normalizer == "reference" else how
        self._criterion = self.criterion  # so that its errors are raised before processes start
        samples.noise = self._criterion.noise
        if self.config.DATA.BATCH_SIDES and self._family.learns_masks and not self._family.masks_are_fractions:
            name = self.config.MODEL.NAME
            raise UserError(f"DATA.BATCH_SIDES: {name} needs masks, which are not resized: remove DATA.BATCH_SIDES")
        samples.notices += self._note_crowded(samples.dataset, split)
        if not self.config.TRAIN.RANDOM_SAMPLING and "random_samples" not in self.model_options:
            name = self.config.MODEL.NAME
            samples.notices.append(
                f"TRAIN.RANDOM_SAMPLING False: no effect: it is for networks with masks, not for {name}"
            )
        samples.notices.append(f"losses are divided {how} (TRAIN.DETECTION_NORMALIZER {normalizer})")
        self._replace_unreadable(samples)
        return samples

    @property
    def _max_detections(self) -> int | None:
        return self.config.DETECTION.MAX_DETECTIONS

    @property
    def _wished(self) -> WishedRates:
        return WishedRates(self.config.DETECTION.WISHED_PRECISION, self.config.DETECTION.WISHED_RECALL)

    def _note_crowded(self, dataset: DetectionDataset, split: str, max_detections: int | None = None) -> list[str]:
        if not self.config.DATA.DATA_PATH:  # synthetic images have few objects
            return []
        defaults = model_options(self.config.MODEL.NAME).defaults
        limit = self._family.most_objects(**{**defaults, **self.model_options})
        return note_crowded(dataset, split, limit, max_detections)

    def _check_classes(self, dataset: DetectionDataset) -> None:
        """Use the categories of the first split, and check that the other splits have the same."""
        names, ids = list(map(str, dataset.class_names or ())), list(dataset.category_ids)
        self._take_classes(names)
        self.num_named = len(names)
        if self.category_ids and ids != self.category_ids:
            raise UserError(
                f"dataset {self.config.DATA.DATASET}: ids of categories differ between training and validation data; "
                "use the same list of categories in both"
            )
        self.category_ids = ids

    def signature(self, dataset: TransformedDataset | None = None) -> dict[str, Any]:
        """Return the preprocessing settings that the weights depend on, or the categories of samples."""
        if dataset is not None:
            return self._identify(dataset)
        data = self.config.DATA
        names = ["EVAL_SHORTEST_SIDE", "EVAL_LONGEST_SIDE", "EVAL_RESIZE", "IMAGENET_MEAN", "IMAGENET_STD"]
        values = {**{f"DATA.{name}": data[name] for name in names}, **self.turned}
        return {**values, "interpolation": "bilinear", "MODEL.MASK_PADDING": self.config.MODEL.MASK_PADDING}

    def _identify(self, dataset: TransformedDataset) -> dict[str, Any]:
        """Return facts that identify the dataset."""
        facts = super().signature(dataset)
        if isinstance(dataset, DetectionSamples):
            facts["number of classes"] = len(dataset.dataset.category_ids)
            facts["classes"] = list(map(str, dataset.dataset.class_names or ()))
            facts["category ids"] = list(map(int, dataset.dataset.category_ids))
            facts[TURNED] = is_turned(dataset.dataset)
        return facts

    def _name_classes(self, number: int, learned: CheckpointMeta) -> None:
        """Take names and ids of classes from the weights; 80 classes without names are COCO's."""
        ids = learned.read_data(_SplitFacts).category_ids
        if not learned.class_names and number == len(COCO_CATEGORIES):
            learned = learned._replace(class_names=tuple(COCO_CATEGORIES.values()))
            ids = list(COCO_CATEGORIES)
        super()._name_classes(number, learned)
        self.category_ids = list(ids or range(1, number + 1))[:number]
        self.num_named = min(len(learned.class_names or ()), number)

    def check_sample(self, sample: DetectionSample) -> None:
        """Check boxes and labels of a sample."""
        require_finite(sample.boxes, "boxes")
        require_labels(sample.labels, self.num_classes, -1, "category")

    def collate(self, samples: Sequence[DetectionSample]) -> dict[str, Any]:
        """Collate samples into a batch."""
        if not samples[0].is_training:
            return collate(samples)
        return collate(samples, self._padded_side, self.criterion.noise)

    def create_network(self, num_classes: int) -> paddle.nn.Layer:
        """Create the model; raise UserError if it does not take images of the configured sizes."""
        model = super().create_network(num_classes)
        for name, size in list_fixed_sizes(self.config):
            model.require_size(name, size, self.config.MODEL.NAME)
        if self.evaluated is not None:
            require_evaluated_sizes(self.config, model, self.evaluated.sizes)
        return model

    @property
    def criterion(self) -> DetectionCriterion:
        """Losses of the configured model, available once the data are open."""
        if self._criterion is None:
            name, losses = self.config.MODEL.NAME, self._loss_options()
            self._criterion = criterion = self._family.criterion(name, self.num_classes, losses, **self.model_options)
            require_methods(type(criterion), f"MODEL.NAME {name}: ")
            self.traits = replace(
                self.traits, normalizer_names=criterion.normalizer_names, communicates_in_step=criterion.communicates
            )
        return self._criterion

    def _loss_options(self) -> dict[str, Any]:
        """Return the arguments of the model's losses that keys set."""
        train = self.config.TRAIN
        return {"normalizer": train.DETECTION_NORMALIZER, "class_weight": train.CLASS_LOSS_WEIGHT}

    def loss_normalizers(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the normalizers of a batch."""
        return dict(self.criterion.loss_normalizers(batch))

    def _normalize(
        self, images: paddle.Tensor, sizes: np.ndarray, on_device: paddle.Tensor | None = None
    ) -> paddle.Tensor:
        """Normalize pixels (N, 3, H, W) to float32, exactly zero outside of ``sizes``, int64 (N, 2), or black."""
        if self._family.pads_with_black:
            return self.normalizer(images)
        return zero_padding(self.normalizer(images), sizes, on_device)

    def train_step(self, model: paddle.nn.Layer, batch: dict[str, Any], step: StepPosition) -> dict[str, LossTerm]:
        """Run the forward pass of a micro-batch and return its loss terms."""
        facts = host_facts(batch)
        targets = self._build_targets(batch, facts["box_counts"])
        if not self._family.takes_padding and (facts["sizes"] != batch["images"].shape[2:]).any():
            raise UserError(
                f"{self.config.MODEL.NAME} takes unpadded images of one size, but a batch has several sizes, or "
                "DETECTION.PAD_TO_BATCH_MAX false pads them: set DATA.RESIZE_TO_SQUARE true"
            )
        images = self._normalize(batch["images"], facts["sizes"], batch["sizes"])
        side, stored = batch_side(self.config.DATA, self.config.SEED, step.update, step.epochs_left), images.shape[-1]
        if side not in (None, stored):  # on the device, as by the authors
            images = F.interpolate(images, [side, side], mode=self._family.batch_filter)
            targets = self._scale_targets(targets._replace(sizes=paddle.full_like(targets.sizes, side)), side / stored)
        self.criterion.note_objects(facts["box_counts"], step)
        if isinstance(targets, DetectionTargets):
            targets = targets._replace(updates=(step.update, step.total_updates))
        outputs = model(images, targets.sizes, targets)
        return dict(self.criterion.terms(outputs, targets))

    def _build_targets(self, batch: dict[str, Any], box_counts: np.ndarray) -> Any:
        """Return the objects of a training batch as the model takes them; ``box_counts`` are the objects per image."""
        return DetectionTargets(
            batch["boxes"],
            batch["labels"],
            batch["sizes"],
            box_counts,
            batch.get("masks"),
            DenoisingQueries.from_batch(batch) if self.criterion.noise else None,
        )

    def _scale_targets(self, targets: Any, scale: float) -> Any:
        """Return the objects in images whose sides were multiplied by ``scale``."""
        return targets._replace(boxes=targets.boxes * scale)

    def build_metrics(self) -> Metrics:
        """Return the metrics of an evaluation."""
        from .metrics import DetectionMetrics

        if self.evaluated is None:
            return DetectionMetrics(self.class_names, max_detections=self._max_detections, wished=self._wished)
        with_masks = self._family.learns_masks and self.evaluated.has_masks
        least_score = self.config.DETECTION.SCORE_THRESHOLD
        limits = with_masks, least_score, self._max_detections, self._wished
        return DetectionMetrics(self.class_names, len(self.evaluated), *limits)

    def eval_step(self, model: paddle.nn.Layer, batch: dict[str, Any], step: EvaluationStep) -> Records | None:
        """Detect objects in a batch, and add them to metrics, records and files of results."""
        if self.evaluated is None:
            raise UserError("detection can only be evaluated on the data of its configuration")
        facts, records = host_facts(batch), list[Any]()
        predictions = self.detect(model, batch)
        sizes = [tuple(shape) for shape in facts["original_sizes"].tolist()]
        for index, size, detections in zip(facts["indices"].tolist(), sizes, predictions):
            build_record = self._add_image(step.metrics, self.evaluated, index, detections, size)
            if step.keeps_records:
                records.append(build_record())
        if step.writer is not None:
            step.writer.add(predictions)
        return (lambda: records) if step.keeps_records else None

    def detect(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> list[Any]:
        """Return the detections in each image of an evaluation batch, in its pixels, best first."""
        return detect_objects(model, batch, self._prepare, self.config, self.speed)

    @property
    def network_size(self) -> tuple[int, int] | None:
        """Height and width that the network is built for, if images fill a square: the one it learns; else its own."""
        side = max(self.config.DATA.SHORTEST_SIDES)
        return (side, side) if self._family.pads_with_black else None

    def _prepare(self, images: paddle.Tensor, sizes: np.ndarray) -> paddle.Tensor:
        """Normalize pixels of an evaluation, for a network that needs it enlarged to a square."""
        height, width = export_size(self.config) if self._family.pads_with_black else (0, 0)
        below, right = max(0, height - images.shape[2]), max(0, width - images.shape[3])
        if below or right:
            images = F.pad(images.astype("float32"), [0, right, 0, below])
        return self._normalize(images, sizes)

    def _add_image(
        self, metrics: Any, dataset: DetectionDataset, index: int, detected: Any, size: tuple[int, ...]
    ) -> Callable[[], Any]:
        """Add image ``index`` of height and width ``size`` to the metrics, and return what builds its record."""
        truth = dataset.annotations(index)
        table = metrics.update(dataset.image_id(index), truth, detected, size)

        def build_record() -> Any:
            from .records import DetectionRecord

            return DetectionRecord.from_table(table, truth, detected.finite(), self.config.DETECTION.SCORE_THRESHOLD)

        return build_record
