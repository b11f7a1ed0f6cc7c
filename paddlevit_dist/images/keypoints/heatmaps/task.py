"""Keypoints by heatmaps: training, evaluation and prediction of networks that see the crop of one object."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import paddle

from ....core.registry.lookup import resolve
from ....core.runtime import autocast
from ....core.runtime.errors import UserError
from ....core.runtime.printing import count
from ....core.tasks.dataset import TransformedDataset, is_training_split
from ....core.tasks.metrics import Metrics
from ....core.tasks.model_factory import build_network
from ....core.tasks.network_checks import check_network
from ....core.tasks.step_types import EvaluationStep, LossTerm, StepPosition
from ....core.tasks.task import Records
from ...backbone_task import BackboneTask, is_turned
from ...data.image_samples import ImageSamples, open_dataset
from ...data.seen_images import SeenImages
from ...detection.data.split_checks import check_files, explain_nothing_learned, note_first_objects
from ..data.augmented_objects import ObjectAugmentation
from ..data.keypoint_dataset import KeypointDataset, KeypointsPart
from ..keypoint_set import can_mirror
from .boxes import BoxDetector, choose_boxes
from .inference import HEATMAPS, KeypointFinder
from .network import HeatmapNetwork
from .points import NamedPointsTask
from .samples import HOST, CropConfig, ObjectCrops, ObjectsOfImages, Size, collate, count_cells
from .settings import HeatmapSettings
from .targets import gaussian_losses


class KeypointHeatmaps(NamedPointsTask):
    """Trains and evaluates a network that returns a heatmap for each point of the object in a crop.

    The loss is the mean squared error of all cells, divided by the objects of all ranks and micro-batches. The score is
    AP, or PCK for a dataset in which each image is one object.
    """

    aspects = {
        "AnnotationMatching": ".prediction:HeatmapPrediction",
        "CheckpointMatching": ".checks:CropLog",
        "DatasetSaving": ".prediction:HeatmapPrediction",
        "Drawable": ".drawn_samples:CropDrawing",
        "Exportable": ".export:HeatmapExport",
        "LogContributor": ".checks:CropLog",
        "Predictable": ".prediction:HeatmapPrediction",
        "Reportable": "..figures:KeypointFigures",
    }
    config: HeatmapSettings
    best_metric = ("AP", True)
    traits = replace(
        BackboneTask.traits,
        sample_name="objects",
        normalizers_per_sample={"loss": 1},
        batch_norm="sync",
        fixed_shapes=True,
        supports_capture=True,
        selftest_overrides=dict.fromkeys(("MODEL.DROPOUT", "MODEL.ATTENTION_DROPOUT", "MODEL.DROPPATH"), 0.0),
    )

    def __init__(self, config: HeatmapSettings) -> None:
        super().__init__(config)
        if not (isinstance(self._family, type) and issubclass(self._family, HeatmapNetwork)):
            raise UserError(
                f"MODEL.NAME {config.MODEL.NAME} returns no heatmaps: set vitpose_small or simple_baseline_resnet18, "
                "for example, and MODEL.BACKBONE for another backbone"
            )
        keys, data = config.HEATMAPS, config.DATA
        self._set_options(heatmap_stride=keys.STRIDE)
        height, width = keys.CROP_SIZE
        self.crop_size: Size = (height, width)
        heatmap_size = count_cells(self.crop_size, keys.STRIDE)
        self.crops = CropConfig(self.crop_size, heatmap_size, keys.BOX_SCALE, keys.SIGMA)
        self._training_crops = self.crops._replace(
            shift=keys.SHIFT,
            scale=keys.SCALE,
            rotation=keys.ROTATION,
            flip=data.HORIZONTAL_FLIP,
            jitter=config.TRAIN.COLOR_JITTER,
        )
        self.detector = None if keys.DETECTOR is None else BoxDetector(keys.DETECTOR, keys.BOX_SCORE)
        self.evaluated: KeypointDataset | None = None
        self._reads_boxes = False  # whether the boxes of an evaluation are from a file, known when its data are opened
        # Each image is one object: its score is the share of correct points (PCK), as boxes have nothing to find.
        self._has_whole_objects = getattr(resolve("dataset", data.DATASET), "has_whole_objects", False)
        if self._has_whole_objects:
            self.best_metric = ("PCK", True)

    def build_dataset(self, split: str, cache_folder: Path) -> ImageSamples:
        """Open a split: its objects for training, its images for an evaluation."""
        config, is_training = self.config, is_training_split(self.config, split)
        dataset, notices = open_dataset(config, KeypointDataset, KeypointsPart, split, cache_folder)
        self._opened_turned = is_turned(dataset)
        if self._inspection is not None:
            notices += check_files(dataset, split, self._inspection.replaces_bad and is_training)
            notices += note_first_objects(dataset, split, config.DATA.DATASET)
            height, width = self.crop_size
            notices += self._inspection.inspect(
                dataset,
                split,
                len(dataset.keypoint_sets),
                SeenImages(f"an object in {width} x {height}"),
            )
        self._take_points(dataset)
        if not is_training:
            self.evaluated = dataset
            samples, more = self._build_evaluation(dataset, cache_folder)
            samples.notices = [*notices, *more]
            return samples
        crops = self._training_crops if dataset.can_mirror else self._training_crops._replace(flip=0.0)
        samples = ObjectCrops(dataset, crops, self.channels, cache_folder)
        if not len(samples):
            raise UserError(
                f"dataset {config.DATA.DATASET} has no object to learn in its {count(len(dataset), f'{split} image')}: "
                f"{explain_nothing_learned(dataset)}"
            )
        samples.notices = [*notices, f"{count(len(samples), 'object')} with keypoints are a sample each"]
        if config.DATA.ALBUMENTATIONS is not None:
            samples.augment = ObjectAugmentation(config.DATA.ALBUMENTATIONS, dataset.mirrors)
        self._replace_unreadable(samples)
        return samples

    def _build_evaluation(self, dataset: KeypointDataset, cache_folder: Path) -> tuple[ImageSamples, list[str]]:
        """Return the samples of an evaluation, and lines about the boxes and the mirrored view."""
        keys = self.config.HEATMAPS
        lines = [] if not keys.FLIP or dataset.can_mirror else ["HEATMAPS.FLIP: no effect: no points are mirrored"]
        if self.detector is not None:
            lines += self.detector.match_categories(self.class_names)
            return ObjectsOfImages(dataset, self.crops, None, self.detector.prepare), lines
        whole = self.whole_images if keys.BOXES == "image" else None
        boxes = choose_boxes(keys, dataset, cache_folder, whole)
        self._reads_boxes = keys.BOX_FILE is not None
        samples = ObjectsOfImages(dataset, self.crops, boxes.find)
        samples.eval_protocol = boxes.protocol
        return samples, [*lines, *boxes.notices]

    def signature(self, dataset: TransformedDataset | None = None) -> dict[str, Any]:
        """Return the preprocessing that the weights depend on, or categories and points of samples."""
        if dataset is not None:
            return super().signature(dataset)
        data, keys = self.config.DATA, self.config.HEATMAPS
        values = {f"DATA.{name}": data[name] for name in ("IMAGENET_MEAN", "IMAGENET_STD", "EXIF_ROTATE")}
        return {**values, "HEATMAPS.CROP_SIZE": list(self.crop_size), "HEATMAPS.BOX_SCALE": keys.BOX_SCALE}

    def collate(self, samples: Sequence[Any]) -> dict[str, Any]:
        """Collate samples to a batch."""
        return collate(samples)

    def create_network(self, num_classes: int) -> paddle.nn.Layer:
        """Create the network for the configured crops."""
        return build_network(self.config.MODEL.NAME, num_classes, self.crop_size, self.model_options)

    def train_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: StepPosition
    ) -> dict[str, LossTerm]:
        """Compute the loss of a batch."""
        network = check_network(model, HEATMAPS, len(self.channels), *self.crops.heatmap_size)
        maps = network(self.normalizer(batch["images"]))
        with autocast.off():
            losses = gaussian_losses(maps.astype("float32"), batch["cells"], batch["weights"], self.crops.deviation)
        return {"loss": LossTerm(losses.sum(), len(losses))}

    @property
    def finder(self) -> KeypointFinder:
        """Finds the keypoints of a batch, once categories and points are known."""
        keys = self.config.HEATMAPS
        mirrors = keys.FLIP and can_mirror(self.keypoint_sets)
        has_scores = self.detector is not None or self._reads_boxes
        return KeypointFinder(
            keys, self.crops, self.channels, self.keypoint_sets, self.normalizer, self.detector, mirrors, has_scores
        )

    def build_metrics(self) -> Metrics:
        """Return the metrics of an evaluation."""
        from ..evaluation.metrics import KeypointMetrics, PointMetrics

        if self._has_whole_objects:
            return PointMetrics(self.keypoint_sets[0])
        images, most = None if self.evaluated is None else len(self.evaluated), self.config.DETECTION.MAX_DETECTIONS
        return KeypointMetrics(self.class_names, self.keypoint_sets, images, max_detections=most)

    def eval_step(self, model: paddle.nn.Layer, batch: dict[str, Any], step: EvaluationStep) -> Records | None:
        """Find the keypoints of a batch, and add them to metrics, records and files of results."""
        from ..records import KeypointRecord, PointRecord

        if self.evaluated is None:
            raise UserError("keypoints can only be evaluated on the data of their configuration")
        facts, found, records = batch[HOST], self.finder(model, batch), list[Any]()
        for index, size, detected in zip(facts["indices"], facts["sizes"], found):
            truth = self.evaluated.annotations(index)
            image_id = self.evaluated.image_id(index)
            if self._has_whole_objects:
                spacing = self.evaluated.spacing_mm(index)
                errors = step.metrics.update(image_id, truth, detected, tuple(size), spacing)
                records.append(PointRecord.from_errors(errors, truth, detected, spacing))
            else:
                matches = step.metrics.update(image_id, truth, detected, tuple(size))
                if step.keeps_records:
                    records.append(KeypointRecord.from_matches(matches))
        if step.writer is not None:
            step.writer.add(found)
        return (lambda: records) if step.keeps_records else None
