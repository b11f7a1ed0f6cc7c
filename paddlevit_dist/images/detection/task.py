"""Object detection: training, evaluation and prediction of any detector."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle.nn import functional as F

from ...models import model_options
from ...runtime.environment import program
from ...runtime.errors import UserError
from ...runtime.printing import one_line
from ...runtime.transfers import to_device
from ...tasks.dataset import TransformedDataset
from ...tasks.figures import Color, Figure
from ...tasks.metrics import Metrics
from ...tasks.prediction import CheckpointMeta, InputSamples, PredictionWriter, Row
from ...tasks.sample_checks import require_finite, require_labels
from ...tasks.task import EvaluationStep, ExportParts, LossTerm, Records, StepPosition
from ..backbone_task import TURNED, BackboneTask, is_turned
from .data.detection_dataset import DetectionDataset
from .data.samples import (
    EVALUATED_AS,
    SECONDS,
    DetectionSample,
    DetectionSamples,
    collate,
    host_facts,
    largest_side,
    note_crowded,
    open_samples,
    passes,
)
from .data.transforms import batch_side, evaluation_transform, export_size
from .detections import DetectedObjects, SpeedMeter, boxes_to_corners
from .detector import (
    COCO_CATEGORIES,
    DetectionCriterion,
    DetectionTargets,
    Detector,
    Outputs,
    choose_images,
    zero_padding,
)
from .evaluation.accumulation import MAX_DETECTIONS, resolve_detection_limits
from .rtdetr.denoising import DenoisingQueries
from .settings import EQUAL_SHAPES, ONE_SIZE, OPTIONS, DetectionSettings


class Detection(BackboneTask):
    """Trains and evaluates a network that finds objects in images."""

    config: DetectionSettings
    best_metric = ("AP", True)
    classes_word = "categories"
    makes_figures = True
    image_size_key = "DETECTION.EXPORT_SIZE"
    rank_local_options = {
        **dict.fromkeys(("MODEL.DROPOUT", "MODEL.ATTENTION_DROPOUT", "MODEL.DROPPATH"), 0.0),
        "TRAIN.DETECTION_NORMALIZER": "global",
        "TRAIN.RANDOM_SAMPLING": False,
        "DETECTION.PAD_TO_BATCH_MAX": False,
    }

    def __init__(self, config: DetectionSettings) -> None:
        super().__init__(config)
        self.category_ids: list[int] = []
        self.evaluated: DetectionDataset | None = None
        self._padded_side = 0  # to which training images are padded at least
        self._turned: dict[str, bool] = {}  # of each split that is open
        self._are_named = True  # the categories, by more than their numbers
        self._given_ids: Any = None  # what ``take_ids`` has found
        self._criterion: DetectionCriterion | None = None
        self.speed = SpeedMeter()
        self.model_options.update(self._own_options())

    def _own_options(self) -> dict[str, Any]:
        """Options of the model that are keys of this task.

        Raises:
            UserError: the model is no detector, or cannot do what is asked of it.
        """
        model = self.config.MODEL
        if not (isinstance(self._family, type) and issubclass(self._family, Detector)):
            raise UserError(
                f"MODEL.NAME {model.NAME} is not a model that finds objects: take detr_resnet50, for example, or "
                f"another that '{program('inspect')} --list' names below TASK detection"
            )
        known = model_options(model.NAME).defaults
        options = {"dropout": model.DROPOUT} if "dropout" in known else {}  # also where 0 is not the variant's
        if "random_samples" in known:
            options["random_samples"] = self.config.TRAIN.RANDOM_SAMPLING
        asked = {key: model[key] for key in OPTIONS if model[key] is not None}
        for key, value in {**asked, **({"MASK_PADDING": True} if model.MASK_PADDING else {})}.items():
            if key.lower() not in known:
                raise UserError(f"MODEL.{key} {value}: {model.NAME} has no such option; leave it out")
            options[key.lower()] = value
        most = self.config.DETECTION.MAX_DETECTIONS or 0
        if most > MAX_DETECTIONS[-1] and "rules" in known:  # an evaluation could not count what is not found
            options["rules"] = {**(known["rules"] or {}), "detections": most}
        return options

    # ---- data --------------------------------------------------------------------------------------------------

    def build_dataset(self, split: str, cache_folder: Path) -> DetectionSamples:
        is_training = self.trains_on(split)
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
            samples.notices += self._note_crowded(samples.dataset, split, resolve_detection_limits(self._most)[-1])
            samples.notices.append(f"{split} is evaluated with {EVALUATED_AS[self.config.DETECTION.EVAL_BATCHING]}")
            return samples
        if not self.config.DETECTION.PAD_TO_BATCH_MAX:
            self._padded_side = largest_side(self.config.DATA, samples.dataset.sizes)
        normalizer, divided = self.config.TRAIN.DETECTION_NORMALIZER, "by the counts of all devices and micro-batches"
        divided = self._family.reference_normalizer if normalizer == "reference" else divided
        self._criterion = self.criterion  # what it needs is asked for before processes are started
        samples.noise = self._criterion.noise
        if self.config.DATA.BATCH_SIDES and self._family.learns_masks:
            raise UserError(
                f"DATA.BATCH_SIDES: {self.config.MODEL.NAME} learns from masks, which keep their size: leave it out"
            )
        samples.notices += self._note_crowded(samples.dataset, split)
        samples.notices.append(f"losses are divided {divided} (TRAIN.DETECTION_NORMALIZER {normalizer})")
        self.replace_unreadable(samples)
        return samples

    @property
    def _most(self) -> int | None:
        return self.config.DETECTION.MAX_DETECTIONS

    def _note_crowded(self, dataset: DetectionDataset, split: str, counted: int | None = None) -> list[str]:
        known = model_options(self.config.MODEL.NAME).defaults
        found = self._family.most_objects(**{**known, **self.model_options})
        return note_crowded(dataset, split, found, counted) if self.config.DATA.DATA_PATH else []  # drawn: few objects

    def about_samples(self, samples: Any) -> Iterable[str]:
        counts, names = samples.dataset.class_counts(), self.class_names
        width = max(map(len, [*names, "category"]))
        return [
            f"{'category':{width}}   objects    images",
            *(f"{name:{width}} {objects:9,} {images:9,}" for name, (objects, images) in zip(names, counts.tolist())),
        ]

    def _check_classes(self, dataset: DetectionDataset) -> None:
        """Take the categories of the first split; those of every other one must be the same."""
        names, ids = list(map(str, dataset.class_names or ())), list(dataset.category_ids)
        self.take_classes(names)
        self._are_named = bool(names)
        if self.category_ids and ids != self.category_ids:
            raise UserError(
                f"dataset {self.config.DATA.DATASET}: categories have other ids in training and validation data; give "
                "both the same list of categories"
            )
        self.category_ids = ids

    def describe_samples(self, samples: Any) -> str:
        if not isinstance(samples, DetectionSamples):  # a program's own
            return super().describe_samples(samples)
        return one_line(samples.dataset.summary())

    def dataset_signature(self, samples: Any) -> dict[str, Any]:
        facts = super().dataset_signature(samples)
        if isinstance(samples, DetectionSamples):
            facts["number of classes"] = len(samples.dataset.category_ids)
            facts["classes"] = list(map(str, samples.dataset.class_names or ()))
            facts["category ids"] = list(map(int, samples.dataset.category_ids))
            facts[TURNED] = is_turned(samples.dataset)
        return facts

    def preprocess_signature(self) -> dict[str, Any]:
        data = self.config.DATA
        names = ["EVAL_SHORTEST_SIDE", "EVAL_LONGEST_SIDE", "EVAL_RESIZE", "IMAGENET_MEAN", "IMAGENET_STD"]
        shown = {**{f"DATA.{name}": data[name] for name in names}, **self._turned}
        return {**shown, "interpolation": "bilinear", "MODEL.MASK_PADDING": self.config.MODEL.MASK_PADDING}

    @property
    def turns(self) -> bool:
        opened = list(self._turned.values())
        return opened[-1] if opened else super().turns

    def mismatch_hint(self, name: str, theirs: Any) -> str:
        if name in self._turned:
            return f"DATA.EXIF_ROTATE {str(theirs).lower()} reads images as they were read there"
        return super().mismatch_hint(name, theirs)

    def classes_in(self, sample: DetectionSample) -> np.ndarray | None:
        return np.asarray(sample.labels, dtype=np.int64)

    def check_sample(self, sample: DetectionSample) -> None:
        require_finite(sample.boxes, "boxes")
        require_labels(sample.labels, self.num_classes, -1, "category")

    def collate(self, samples: Sequence[DetectionSample]) -> dict[str, Any]:
        if not samples[0].is_training:
            return collate(samples)
        return collate(samples, self._padded_side, self.criterion.noise)

    def finish_epoch(self) -> list[str]:
        """Say what the losses say of the epoch; and merge the unreadable images found by all ranks into one list. Every
        rank must call this."""
        return [*self.criterion.epoch_lines(), *super().finish_epoch()]

    def images(self, samples: Any, batch: dict[str, Any], epoch: int) -> list[tuple[np.ndarray, str]]:
        """A collated training batch as the model sees it, with the boxes that it learns."""
        from .drawing import fit_in_cell

        facts = host_facts(batch)
        drawn = []
        for row, ((height, width), number) in enumerate(zip(facts["sizes"].tolist(), facts["box_counts"].tolist())):
            pixels = batch["images"][row, :, :height, :width].transpose(1, 2, 0)
            masks = batch["masks"][row, :number, :height, :width] if "masks" in batch else None
            boxes, labels = batch["boxes"][row, :number], batch["labels"][row, :number]
            caption = f"{width} x {height}, {number} box{'' if number == 1 else 'es'}"
            drawn.append((fit_in_cell(np.ascontiguousarray(pixels), boxes, labels, self.class_names, masks), caption))
        return drawn

    def evaluation_images(self, samples: Any, indices: Sequence[int]) -> list[tuple[np.ndarray, str]]:
        """Images as an evaluation has them, with all that is annotated; crowds are gray."""
        from .drawing import fit_in_cell
        from .prediction import DetectionInput

        transform = DetectionInput(evaluation_transform(self.config))
        drawn = []
        for index in indices:
            stored, annotations = samples.dataset.read(index)
            image = transform(stored, np.random.default_rng(0)).image
            scale = np.array([image.shape[2] / stored.size[0], image.shape[1] / stored.size[1]] * 2)
            boxes = boxes_to_corners(annotations.boxes) * scale
            labels = np.where(annotations.is_crowd, -1, annotations.labels)
            pixels = np.ascontiguousarray(np.rint(image.transpose(1, 2, 0)).astype(np.uint8))
            caption = f"{image.shape[2]} x {image.shape[1]}, {len(boxes)} annotated"
            drawn.append((fit_in_cell(pixels, boxes, labels, self.class_names), caption))
        return drawn

    def image_legend(self) -> list[tuple[str, Color]]:
        from .drawing import CROWD, get_label_colors

        number = len(self.class_names)
        return [*self.build_legend(get_label_colors(np.arange(number), number)), ("a crowd", CROWD)]

    # ---- model -------------------------------------------------------------------------------------------------

    def _create(self, num_classes: int) -> paddle.nn.Layer:
        """As every task on a backbone, unless it takes no images of the configured sides.

        Raises:
            UserError: it takes none.
        """
        model, data = super()._create(num_classes), self.config.DATA
        squares = {"DATA.SHORTEST_SIDES": data.SHORTEST_SIDES, "DATA.BATCH_SIDES": data.BATCH_SIDES}
        squares = squares if data.RESIZE_TO_SQUARE and not self.config.EVAL else {}
        sizes = [(name, (side, side)) for name, sides in squares.items() for side in sides]
        if self.config.DETECTION.EVAL_BATCHING == ONE_SIZE:
            name = "DETECTION.EXPORT_SIZE" if self.config.DETECTION.EXPORT_SIZE else "DATA.EVAL_SHORTEST_SIDE"
            sizes.append((name, export_size(self.config)))
        for name, size in sizes:
            model.require_size(name, size, self.config.MODEL.NAME)
        return model

    @property
    def criterion(self) -> DetectionCriterion:
        """The losses of the configured model, known once the data are open."""
        if self._criterion is None:
            train, name = self.config.TRAIN, self.config.MODEL.NAME
            losses = {"normalizer": train.DETECTION_NORMALIZER, "class_weight": train.CLASS_LOSS_WEIGHT}
            self._criterion = self._family.criterion(name, self.num_classes, losses, **self.model_options)
        return self._criterion

    @property
    def count_names(self) -> tuple[str, ...]:  # type: ignore[override] # the model's
        return self.criterion.count_names

    @property
    def communicates_in_step(self) -> bool:  # type: ignore[override]
        return self.criterion.communicates

    def counts(self, batch: dict[str, Any]) -> dict[str, Any]:
        return dict(self.criterion.counts(batch))

    def decays(self, name: str, parameter: paddle.Tensor, exempt: set[str]) -> bool:
        return self.config.TRAIN.DECAY_ALL_PARAMETERS or super().decays(name, parameter, exempt)

    # ---- training ----------------------------------------------------------------------------------------------

    def normalize(
        self, images: paddle.Tensor, sizes: np.ndarray, on_device: paddle.Tensor | None = None
    ) -> paddle.Tensor:
        """Pixels (N, 3, H, W) -> float32; exactly zero where padded.

        Args:
            sizes: int64 (N, 2), height and width of each image without padding.
            on_device: the same on the device, if they are there.
        """
        return zero_padding(self.normalizer(images), sizes, on_device)

    def train_step(self, model: paddle.nn.Layer, batch: dict[str, Any], step: StepPosition) -> dict[str, LossTerm]:
        facts = host_facts(batch)
        targets = DetectionTargets(
            batch["boxes"],
            batch["labels"],
            batch["sizes"],
            facts["box_counts"],
            batch.get("masks"),
            DenoisingQueries.of(batch) if self.criterion.noise else None,
        )
        if not self._family.takes_padding and (facts["sizes"] != batch["images"].shape[2:]).any():
            raise UserError(
                f"{self.config.MODEL.NAME} takes images of one size, and a batch has several, or DETECTION."
                "PAD_TO_BATCH_MAX false pads them: set DATA.RESIZE_TO_SQUARE true"
            )
        images = self.normalize(batch["images"], facts["sizes"], batch["sizes"])
        side, stored = batch_side(self.config.DATA, self.config.SEED, step.update, step.epochs_left), images.shape[-1]
        if side not in (None, stored):  # by nearest neighbors on the device, as RT-DETR's authors have it
            images = F.interpolate(images, [side, side], mode="nearest")
            sizes = paddle.full_like(targets.sizes, side)
            targets = targets._replace(boxes=targets.boxes * (side / stored), sizes=sizes)
        self.criterion.note_objects(facts["box_counts"], step)
        outputs = model(images, targets.sizes, targets)
        return dict(self.criterion.terms(outputs, targets))

    # ---- evaluation --------------------------------------------------------------------------------------------

    def build_metrics(self) -> Metrics:
        from .metrics import DetectionMetrics

        if self.evaluated is None:
            return DetectionMetrics(self.class_names, max_detections=self._most)
        with_masks = self._family.learns_masks and self.evaluated.has_masks
        least = self.config.DETECTION.SCORE_THRESHOLD
        return DetectionMetrics(self.class_names, len(self.evaluated), with_masks, least, self._most)

    def eval_step(self, model: paddle.nn.Layer, batch: dict[str, Any], step: EvaluationStep) -> Records | None:
        if self.evaluated is None:
            raise UserError("detection is evaluated on the data that its configuration names")
        facts, records, predictions = host_facts(batch), [], self.predict_step(model, batch)
        least = self.config.DETECTION.SCORE_THRESHOLD
        sizes = [tuple(size) for size in facts["original_sizes"].tolist()]
        for index, size, found in zip(facts["indices"].tolist(), sizes, predictions):
            image_id, truth = self.evaluated.image_id(index), self.evaluated.annotations(index)
            table = step.metrics.update(image_id, truth, found, size)
            if step.keeps_records:
                from .figures import DetectionRecord

                records.append(DetectionRecord.of(table, truth, found.finite(), least))
        if step.writer is not None:
            step.writer.add(predictions)
        return (lambda: records) if step.keeps_records else None

    def figures(self, samples: Any, records: Sequence[tuple[int, Any]], model: paddle.nn.Layer) -> list[Figure]:
        if not records or not isinstance(samples, DetectionSamples):
            return []
        from .figures import detection_figures

        def predict(index: int) -> DetectedObjects:
            return self.predict_again(samples, index, model).finite()

        least = self.config.DETECTION.SCORE_THRESHOLD
        return detection_figures(
            samples, records, self.class_names, least, predict, resolve_detection_limits(self._most)
        )

    def prediction_writer(self, folder: Path, samples: TransformedDataset) -> PredictionWriter:
        from .prediction import DetectionWriter

        least, names = self.config.DETECTION.SCORE_THRESHOLD, self.class_names
        if self._given_ids is None or not isinstance(samples, InputSamples):
            return DetectionWriter(folder, samples, names, self.category_ids, least, self._are_named)
        images, categories = self._given_ids
        return DetectionWriter(folder, samples, names, categories, least, self._are_named, images)

    def predict_step(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> list[DetectedObjects]:
        """Find what is found in each image, in its own pixels, best first."""
        facts, started = host_facts(batch), time.perf_counter()
        found: list[Any] = [None] * len(facts["sizes"])
        outputs: list[tuple[list[int], Outputs]] = []
        for rows in passes(facts["sizes"], self.config.DETECTION.EVAL_BATCHING):
            sizes = facts["sizes"][rows]
            images = self.normalize(choose_images(batch["images"], rows, sizes), sizes)
            is_padded = (sizes != sizes[0]).any()
            outputs.append((rows, model(images, to_device(sizes) if is_padded else None)))
        if self.config.EVAL and not images.place.is_cpu_place():
            paddle.device.synchronize()  # which what follows would wait for as well
        computed = time.perf_counter()
        for rows, of_pass in outputs:  # a GPU has its work by now, and is waited for
            decoded = model.decode(of_pass, facts["sizes"][rows], facts["original_sizes"][rows])
            for row, one in zip(rows, decoded):
                found[row] = one.best_of_classes(self._most)
        if getattr(model, "computes_alone", True):
            self.speed.add(len(found), batch.get(SECONDS, 0.0), computed - started, time.perf_counter() - computed)
        return found

    def evaluation_lines(self) -> list[str]:
        """Say how many images a second this process found boxes in."""
        return [line] if (line := self.speed.line()) else []

    def name_classes(self, number: int, learned: CheckpointMeta) -> None:
        """Take names and ids from the weights; of those that say nothing, 80 categories are COCO's."""
        ids = learned.data.get("category ids")
        if not learned.class_names and number == len(COCO_CATEGORIES):
            learned = learned._replace(class_names=tuple(COCO_CATEGORIES.values()))
            ids = list(COCO_CATEGORIES)
        super().name_classes(number, learned)
        self.category_ids = [int(one) for one in ids or range(1, number + 1)][:number]
        self._are_named = len(learned.class_names or ()) >= number

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> InputSamples:
        from .prediction import DetectionInput

        return self.new_images(inputs, cache_folder, DetectionInput(evaluation_transform(self.config)))

    def take_ids(self, annotations: str, samples: InputSamples) -> list[str]:
        from .prediction import ids_in

        if not self._are_named:
            raise UserError("predict -annotations: the weights do not name their classes: add -class_names=FILE")
        names = self.class_names[: len(self.category_ids)]
        self._given_ids, lines = ids_in(annotations, samples.names, names, self.category_ids)
        return lines

    def prediction_rows(self, prediction: DetectedObjects) -> list[Row]:
        from .prediction import build_rows

        return build_rows(prediction, self.class_names, self.config.DETECTION.SCORE_THRESHOLD)

    def export_parts(self) -> ExportParts:
        from .export import export_parts

        if not self._family.is_exportable:
            raise UserError(
                f"export: {self.config.MODEL.NAME} decides on the host how many regions each image has, by Paddle's "
                "nms, at which paddle2onnx ends: export an RT-DETR, D-FINE or DETR, or predict with this package"
            )
        is_one_size = self.config.DETECTION.EVAL_BATCHING == ONE_SIZE
        return export_parts(self.config.DATA, export_size(self.config), self.turns, is_one_size)

    def exported_model(self, model: paddle.nn.Layer) -> paddle.nn.Layer:
        from .export import ExportedDetector

        return ExportedDetector(model)

    def evaluated_model(self, function: paddle.nn.Layer) -> paddle.nn.Layer:
        from .export import EvaluatedFunction

        if self.config.DETECTION.EVAL_BATCHING != ONE_SIZE:
            raise UserError(
                "an exported detector takes images of one size, and DETECTION.EVAL_BATCHING "
                f"{self.config.DETECTION.EVAL_BATCHING} keeps their proportions: set it to {ONE_SIZE}"
            )
        return EvaluatedFunction(function, self.num_classes)
