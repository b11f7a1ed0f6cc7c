"""Object detection: training, evaluation and prediction of any detector."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle.nn import functional as F

from ...runtime.errors import UserError
from ...runtime.printing import one_line
from ...tasks.dataset import TransformedDataset, is_training_split
from ...tasks.figures import Color, Figure
from ...tasks.metrics import Metrics
from ...tasks.model_factory import model_options
from ...tasks.prediction import CheckpointMeta, InputSamples, PredictionWriter, Row
from ...tasks.protocols import (
    AnnotationMatching,
    Checkable,
    CheckpointMatching,
    DatasetSaving,
    Drawable,
    Exportable,
    Reportable,
)
from ...tasks.sample_checks import require_finite, require_labels
from ...tasks.step_types import EvaluationStep, ExportParts, LossTerm, StepPosition
from ...tasks.task import Records
from ..backbone_task import TURNED, BackboneTask, is_turned
from .data.detection_dataset import DetectionDataset
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
from .data.transforms import batch_side, build_evaluation_transform, build_window_plan
from .denoising import DenoisingQueries
from .detections import DetectedObjects, SpeedMeter
from .detector import COCO_CATEGORIES, DetectionCriterion, DetectionTargets, zero_padding
from .evaluation.accumulation import resolve_detection_limits
from .evaluation.operating_points import WishedRates
from .inference import detect_objects
from .model_options import list_fixed_sizes, read_model_options
from .settings import EQUAL_SHAPES, DetectionSettings


class Detection(
    BackboneTask,
    AnnotationMatching,
    DatasetSaving,
    Exportable,
    Reportable,
    Drawable,
    Checkable,
    CheckpointMatching,
):
    """Trains and evaluates a network that detects objects in images."""

    config: DetectionSettings
    best_metric = ("AP", True)
    classes_word = "categories"
    image_size_key = "DETECTION.EXPORT_SIZE"
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
        self._turned: dict[str, bool] = {}  # whether each open split is rotated by EXIF
        self._are_named = True  # whether categories have names, not only numbers
        self._annotation_ids: Any = None  # set by ``load_annotation_ids``
        self._saved_as: str | None = None  # set by ``save_predictions_as``
        self._criterion: DetectionCriterion | None = None
        self.speed = SpeedMeter()
        self.model_options.update(read_model_options(config, self._family))

    # ---- data --------------------------------------------------------------------------------------------------

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
            by_shape=not is_training and self.config.DETECTION.EVAL_BATCHING == EQUAL_SHAPES,
        )
        self._check_classes(samples.dataset)
        self._turned[f"{split} {TURNED}"] = is_turned(samples.dataset)
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
        if self.config.DATA.BATCH_SIDES and self._family.learns_masks:
            name = self.config.MODEL.NAME
            raise UserError(f"DATA.BATCH_SIDES: {name} needs masks, which are not resized: remove DATA.BATCH_SIDES")
        samples.notices += self._note_crowded(samples.dataset, split)
        if not self.config.TRAIN.RANDOM_SAMPLING and "random_samples" not in self.model_options:
            name = self.config.MODEL.NAME
            samples.notices.append(f"TRAIN.RANDOM_SAMPLING False: no effect: it is for Mask R-CNN, not for {name}")
        samples.notices.append(f"losses are divided {how} (TRAIN.DETECTION_NORMALIZER {normalizer})")
        self.replace_unreadable(samples)
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

    def summarize_samples(self, dataset: Any) -> Iterable[str]:
        """Return a table of objects and images per category."""
        counts, names = dataset.dataset.class_counts(), self.class_names
        width = max(map(len, [*names, "category"]))
        return [
            f"{'category':{width}}   objects    images",
            *(f"{name:{width}} {objects:9,} {images:9,}" for name, (objects, images) in zip(names, counts.tolist())),
        ]

    def _check_classes(self, dataset: DetectionDataset) -> None:
        """Use the categories of the first split, and check that the other splits have the same."""
        names, ids = list(map(str, dataset.class_names or ())), list(dataset.category_ids)
        self.take_classes(names)
        self._are_named = bool(names)
        if self.category_ids and ids != self.category_ids:
            raise UserError(
                f"dataset {self.config.DATA.DATASET}: ids of categories differ between training and validation data; "
                "use the same list of categories in both"
            )
        self.category_ids = ids

    def describe_samples(self, dataset: Any) -> str | None:
        """Describe the dataset of a split in one line."""
        if not isinstance(dataset, DetectionSamples):  # a user's dataset
            return None
        return one_line(dataset.dataset.summary())

    def signature(self, dataset: Any = None) -> dict[str, Any]:
        """Return the preprocessing settings that the weights depend on, or the categories of samples."""
        if dataset is not None:
            return self._identify(dataset)
        data = self.config.DATA
        names = ["EVAL_SHORTEST_SIDE", "EVAL_LONGEST_SIDE", "EVAL_RESIZE", "IMAGENET_MEAN", "IMAGENET_STD"]
        values = {**{f"DATA.{name}": data[name] for name in names}, **self._turned}
        return {**values, "interpolation": "bilinear", "MODEL.MASK_PADDING": self.config.MODEL.MASK_PADDING}

    def _identify(self, dataset: Any) -> dict[str, Any]:
        """Return facts that identify the dataset."""
        facts = super().signature(dataset)
        if isinstance(dataset, DetectionSamples):
            facts["number of classes"] = len(dataset.dataset.category_ids)
            facts["classes"] = list(map(str, dataset.dataset.class_names or ()))
            facts["category ids"] = list(map(int, dataset.dataset.category_ids))
            facts[TURNED] = is_turned(dataset.dataset)
        return facts

    @property
    def turns(self) -> bool:
        """Whether images are rotated by their EXIF orientation."""
        opened = list(self._turned.values())
        return opened[-1] if opened else super().turns

    def mismatch_hint(self, name: str, trained_value: Any) -> str:
        """Return how to resolve a difference from a checkpoint's setting."""
        if name in self._turned:
            return f"set DATA.EXIF_ROTATE {str(trained_value).lower()} to read images as in training"
        return super().mismatch_hint(name, trained_value)

    def labels_in(self, sample: DetectionSample) -> np.ndarray | None:
        """Return the labels of the objects in a sample."""
        return np.asarray(sample.labels, dtype=np.int64)

    def check_sample(self, sample: DetectionSample) -> None:
        """Check boxes and labels of a sample."""
        require_finite(sample.boxes, "boxes")
        require_labels(sample.labels, self.num_classes, -1, "category")

    def collate(self, samples: Sequence[DetectionSample]) -> dict[str, Any]:
        """Collate samples into a batch."""
        if not samples[0].is_training:
            return collate(samples)
        return collate(samples, self._padded_side, self.criterion.noise)

    def finish_epoch(self) -> list[str]:
        """Return log lines on the losses of the epoch, and merge all ranks' unreadable images into one list.

        Every rank must call this.
        """
        return [*self.criterion.epoch_lines(), *super().finish_epoch()]

    def visualize_batch(self, dataset: Any, batch: dict[str, Any], epoch: int) -> list[tuple[np.ndarray, str]]:
        """Return the images of a training batch as the model receives them, with boxes, and captions."""
        from .drawing import draw_batch

        facts = host_facts(batch)
        return draw_batch(batch, facts["sizes"], facts["box_counts"], self.class_names)

    def visualize_eval_samples(self, dataset: Any, indices: Sequence[int]) -> list[tuple[np.ndarray, str]]:
        """Return images as in an evaluation with all annotations, and captions; crowds are gray."""
        from .prediction import draw_eval_samples

        return draw_eval_samples(dataset, indices, self.config, self.class_names)

    def image_legend(self) -> list[tuple[str, Color]]:
        """Return the names and colors of categories."""
        from .drawing import CROWD, get_label_colors

        number = len(self.class_names)
        return [*self.build_legend(get_label_colors(np.arange(number), number)), ("a crowd", CROWD)]

    # ---- model -------------------------------------------------------------------------------------------------

    def _create(self, num_classes: int) -> paddle.nn.Layer:
        """Create the model, and check that it takes images of the configured sizes.

        Raises:
            UserError: it does not.

        """
        model = super()._create(num_classes)
        for name, size in list_fixed_sizes(self.config):
            model.require_size(name, size, self.config.MODEL.NAME)
        return model

    @property
    def criterion(self) -> DetectionCriterion:
        """Losses of the configured model, available once the data are open."""
        if self._criterion is None:
            train, name = self.config.TRAIN, self.config.MODEL.NAME
            losses = {"normalizer": train.DETECTION_NORMALIZER, "class_weight": train.CLASS_LOSS_WEIGHT}
            self._criterion = criterion = self._family.criterion(name, self.num_classes, losses, **self.model_options)
            self.traits = replace(
                self.traits, normalizer_names=criterion.normalizer_names, communicates_in_step=criterion.communicates
            )
        return self._criterion

    def loss_normalizers(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the normalizers of a batch."""
        return dict(self.criterion.loss_normalizers(batch))

    def decays(self, name: str, parameter: paddle.Tensor, exempt: set[str]) -> bool:
        """Return whether a parameter has weight decay."""
        return self.config.TRAIN.DECAY_ALL_PARAMETERS or super().decays(name, parameter, exempt)

    # ---- training ----------------------------------------------------------------------------------------------

    def normalize(
        self, images: paddle.Tensor, sizes: np.ndarray, on_device: paddle.Tensor | None = None
    ) -> paddle.Tensor:
        """Normalize pixels (N, 3, H, W) to float32, exactly zero where padded.

        Args:
            images: pixels of a batch.
            sizes: int64 (N, 2), height and width of each image without padding.
            on_device: the sizes in device memory, if available.

        """
        return zero_padding(self.normalizer(images), sizes, on_device)

    def train_step(self, model: paddle.nn.Layer, batch: dict[str, Any], step: StepPosition) -> dict[str, LossTerm]:
        """Run the forward pass of a micro-batch and return its loss terms."""
        facts = host_facts(batch)
        targets = DetectionTargets(
            batch["boxes"],
            batch["labels"],
            batch["sizes"],
            facts["box_counts"],
            batch.get("masks"),
            DenoisingQueries.from_batch(batch) if self.criterion.noise else None,
        )
        if not self._family.takes_padding and (facts["sizes"] != batch["images"].shape[2:]).any():
            raise UserError(
                f"{self.config.MODEL.NAME} takes unpadded images of one size, but a batch has several sizes, or "
                "DETECTION.PAD_TO_BATCH_MAX false pads them: set DATA.RESIZE_TO_SQUARE true"
            )
        images = self.normalize(batch["images"], facts["sizes"], batch["sizes"])
        side, stored = batch_side(self.config.DATA, self.config.SEED, step.update, step.epochs_left), images.shape[-1]
        if side not in (None, stored):  # by nearest neighbor on the device, as RT-DETR's authors do
            images = F.interpolate(images, [side, side], mode="nearest")
            sizes = paddle.full_like(targets.sizes, side)
            targets = targets._replace(boxes=targets.boxes * (side / stored), sizes=sizes)
        self.criterion.note_objects(facts["box_counts"], step)
        outputs = model(images, targets.sizes, targets)
        return dict(self.criterion.terms(outputs, targets))

    # ---- evaluation --------------------------------------------------------------------------------------------

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
        facts, records, predictions = host_facts(batch), [], self.predict_step(model, batch)
        least_score = self.config.DETECTION.SCORE_THRESHOLD
        sizes = [tuple(size) for size in facts["original_sizes"].tolist()]
        for index, size, detections in zip(facts["indices"].tolist(), sizes, predictions):
            image_id, truth = self.evaluated.image_id(index), self.evaluated.annotations(index)
            table = step.metrics.update(image_id, truth, detections, size)
            if step.keeps_records:
                from .figures import DetectionRecord

                records.append(DetectionRecord.from_table(table, truth, detections.finite(), least_score))
        if step.writer is not None:
            step.writer.add(predictions)
        return (lambda: records) if step.keeps_records else None

    def figures(self, dataset: Any, records: Sequence[tuple[int, Any]], model: paddle.nn.Layer) -> list[Figure]:
        """Return the figures of an evaluation."""
        if not records or not isinstance(dataset, DetectionSamples):
            return []
        from .figures import build_report_figures

        def predict(index: int) -> DetectedObjects:
            return self.predict_again(dataset, index, model).finite()

        return build_report_figures(dataset, records, self.class_names, self.config, predict)

    def prediction_writer(self, folder: Path, dataset: TransformedDataset) -> PredictionWriter:
        """Return the writer of predictions in a folder."""
        from ..data.inputs import InputImages
        from .predicted_dataset import PredictedDataset
        from .prediction import DetectionWriter

        least_score, names, saved = self.config.DETECTION.SCORE_THRESHOLD, self.class_names, None
        if self._saved_as is not None and isinstance(dataset, InputImages):
            saved = PredictedDataset(folder, dataset, self._saved_as, names, self.category_ids, least_score)
        images, categories = None, self.category_ids
        if self._annotation_ids is not None and isinstance(dataset, InputSamples):
            images, categories = self._annotation_ids
        return DetectionWriter(folder, dataset, names, categories, least_score, self._are_named, images, saved)

    def predict_step(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> list[DetectedObjects]:
        """Return the detections in each image, in its pixels, best first."""
        return detect_objects(model, batch, self.normalize, self.config, self.speed)

    def evaluation_lines(self) -> list[str]:
        """Return a line on this process's detection speed."""
        return [line] if (line := self.speed.line()) else []

    def name_classes(self, number: int, learned: CheckpointMeta) -> None:
        """Take names and ids of classes from the weights; 80 classes without names are COCO's."""
        ids = learned.data.get("category ids")
        if not learned.class_names and number == len(COCO_CATEGORIES):
            learned = learned._replace(class_names=tuple(COCO_CATEGORIES.values()))
            ids = list(COCO_CATEGORIES)
        super().name_classes(number, learned)
        self.category_ids = [int(id_) for id_ in ids or range(1, number + 1)][:number]
        self._are_named = len(learned.class_names or ()) >= number

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> InputSamples:
        """Return samples of images to predict."""
        from .prediction import DetectionInput

        transform = DetectionInput(build_evaluation_transform(self.config), build_window_plan(self.config))
        return self.new_images(inputs, cache_folder, transform)

    def save_predictions_as(self, layout: str) -> None:
        """Let ``prediction_writer`` also write a data set of the predictions, in one of its ``LAYOUTS``."""
        self._saved_as = layout

    def load_annotation_ids(self, annotations: str, samples: InputSamples) -> list[str]:
        """Use the ids in an annotation file for inputs and classes, and return log lines."""
        from .prediction import find_annotation_ids

        if not self._are_named:
            raise UserError("predict -annotations: the weights have no class names: add -class_names=FILE")
        names = self.class_names[: len(self.category_ids)]
        self._annotation_ids, lines = find_annotation_ids(annotations, samples.names, names, self.category_ids)
        return lines

    def prediction_rows(self, prediction: DetectedObjects) -> list[Row]:
        """Return table rows of a prediction."""
        from .prediction import build_rows

        return build_rows(prediction, self.class_names, self.config.DETECTION.SCORE_THRESHOLD)

    def export_parts(self) -> ExportParts:
        """Return the description of the exported model."""
        from .export import build_export_parts, require_exportable

        require_exportable(self._family, self.config.MODEL.NAME)
        return build_export_parts(self.config, self.turns)

    def exported_model(self, model: paddle.nn.Layer) -> paddle.nn.Layer:
        """Return the function that is exported."""
        from .export import ExportedDetector

        return ExportedDetector(model)

    def evaluated_model(self, function: paddle.nn.Layer) -> paddle.nn.Layer:
        """Return a model that evaluates an exported function."""
        from .export import EvaluatedFunction, require_one_size

        require_one_size(self.config)
        return EvaluatedFunction(function, self.num_classes)
