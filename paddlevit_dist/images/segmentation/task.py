"""Semantic segmentation of images: training, evaluation, prediction and export of any segmenter."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paddle
from PIL import Image

from ...losses import (
    cross_entropies,
    dice_losses,
    look_up_weights,
    mark_hardest,
    resized_cross_entropy,
    row_lovasz_softmax,
)
from ...metrics.counts import pack_counts
from ...registry.lookup import annotation_type
from ...registry.manifest import MASK_LABELS
from ...runtime import autocast
from ...runtime.environment import program
from ...runtime.errors import UserError
from ...runtime.files import atomic_file
from ...runtime.printing import one_line
from ...runtime.transfers import read_later
from ...tasks.dataset import TransformedDataset, is_training_split
from ...tasks.figures import Color, Figure
from ...tasks.metrics import Metrics
from ...tasks.prediction import CheckpointMeta, InputSamples, PredictionRecord, PredictionWriter, Row
from ...tasks.protocols import CaptionedImage, Checkable, Drawable, Exportable, Reportable
from ...tasks.sample_checks import BadSample, require_labels
from ...tasks.step_types import EvaluationStep, ExportParts, LossTerm, StepPosition
from ...tasks.task import Records
from ..backbone_task import TURNED, BackboneTask, is_turned
from ..data.class_lists import published_classes
from ..data.image_samples import open_dataset
from ..data.inputs import IMAGES, AnnotatedImages
from ..drawing import add_legend, fit_in_cell, get_palette, overlay_labels
from ..models.segmenter import Segmenter
from ..transforms.albumentations_file import AlbumentationsFile
from ..transforms.described import describe_input, draw_image, normalize
from .data.segmentation_dataset import IGNORED, SegmentationDataset, summarize_labels
from .metrics import SegmentationMetrics, segmentation_figures
from .protocols import EvaluationProtocol, class_map, upsample
from .samples import LabelMapsPart, SegmentationSample, SegmentationSamples, collate, split_batch
from .settings import SegmentationSettings
from .transforms import SegmentationEvaluationTransform, Size, evaluation_transform, training_transform

MASKS, CLASSES = "masks", "classes.txt"  # folder, and file next to it
_PIXEL_LOSSES, _CLASS_LOSSES = ("loss", "auxiliary"), ("dice", "lovasz")  # losses divided by pixels, by classes
_NO_LABELS = np.zeros((0, 0), np.uint8)
_OUTPUT = (
    "(batch, classes, rows, columns), logits at the network's own resolution: resize them bilinearly between the "
    "centers of pixels (align_corners false, half_pixel) to the size of the image; its class is the largest"
)


class ImageSegmentation(BackboneTask, Exportable, Reportable, Drawable, Checkable):
    """Trains and evaluates a network that classifies each pixel of an image.

    Cross-entropy is divided by the labeled pixels of all ranks and micro-batches, or by their classes' weights. Dice
    and Lovasz losses are computed for each class in each image and divided by their number. mmsegmentation divides by
    all pixels of a device, including unlabeled ones. Each image is scored alone, all of its pixels once, at its stored
    size; results do not depend on batches or processes.
    """

    config: SegmentationSettings
    traits = replace(
        BackboneTask.traits,
        batch_norm="sync",
        selftest_overrides={
            **dict.fromkeys(("MODEL.DROPOUT", "MODEL.ATTENTION_DROPOUT", "MODEL.DROPPATH"), 0.0),
            "SEGMENTATION.OHEM_THRESHOLD": None,
        },
    )
    best_metric = ("mIoU", True)
    image_size_key = "SEGMENTATION.CROP"
    auxiliary_weight = 0.0  # the model's
    palette: np.ndarray | None = None

    def __init__(self, config: SegmentationSettings) -> None:
        super().__init__(config)
        keys = config.SEGMENTATION
        of_classes = _CLASS_LOSSES if keys.DICE_WEIGHT or keys.LOVASZ_WEIGHT else ()
        of_pixels = _PIXEL_LOSSES[keys.OHEM_THRESHOLD is not None :]  # hard pixels are counted by the step
        self.traits = replace(self.traits, normalizer_names=(*of_pixels, *of_classes))
        if annotation_type("model", config.MODEL.NAME) not in (None, MASK_LABELS):  # None: a user's model
            raise UserError(
                f"MODEL.NAME {config.MODEL.NAME} is not a segmentation model; set segformer_b0, for example, or "
                f"another that '{program('inspect')} --list' names below TASK {config.TASK}"
            )

    # ---- data --------------------------------------------------------------------------------------------------

    def build_dataset(self, split: str, cache_folder: Path) -> SegmentationSamples:
        """Open a split with its transform, check it, and log what was found."""
        data, is_training = self.config.DATA, is_training_split(self.config, split)
        dataset, notices = open_dataset(self.config, SegmentationDataset, LabelMapsPart, split, cache_folder)
        if not len(dataset):
            raise UserError(f"dataset {data.DATASET} has no {split} images at {data.DATA_PATH}")
        if self._inspection is not None:
            notices += self._inspection.inspect(dataset, split, dataset.num_classes)
            notices += summarize_labels(dataset, split)
        transform: Any = training_transform(data) if is_training else evaluation_transform(data)
        samples = SegmentationSamples(dataset, transform, is_training)
        if is_training and data.ALBUMENTATIONS is not None:
            samples.augmentation = AlbumentationsFile(data.ALBUMENTATIONS)
        samples.notices = [one_line(line) for line in notices]
        self.take_classes(list(map(str, dataset.class_names or range(dataset.num_classes))))
        self.palette = dataset.palette
        weights = self.config.SEGMENTATION.CLASS_WEIGHTS
        if weights is not None and len(weights) != self.num_classes:
            raise UserError(
                f"SEGMENTATION.CLASS_WEIGHTS has {len(weights)} numbers; expected one for each of the "
                f"{self.num_classes} classes"
            )
        if is_training:
            self.replace_unreadable(samples)
        else:
            samples.eval_protocol = self.protocol_line()
        return samples

    def signature(self, dataset: Any = None) -> dict[str, Any]:
        """Return the preprocessing settings that the weights depend on, or the classes and colors of samples."""
        if dataset is not None:
            return self._identify(dataset)
        data = self.config.DATA
        sides = ("EVAL_SHORTEST_SIDE", "EVAL_LONGEST_SIDE", "EVAL_DIVISOR")
        names = (*sides, "RESIZE", "IMAGENET_MEAN", "IMAGENET_STD", "EXIF_ROTATE")
        return {f"DATA.{name}": data[name] for name in names}

    def _identify(self, dataset: Any) -> dict[str, Any]:
        """Return what identifies the data of a split: names, classes, orientation and colors."""
        facts = {
            **super().signature(dataset),
            "number of classes": self.num_classes,
            "classes": self.class_names,
        }
        if isinstance(dataset, SegmentationSamples):  # not a program's samples
            facts[TURNED] = is_turned(dataset.dataset)
        return facts if self.palette is None else {**facts, "palette": self.palette.tobytes().hex()}

    def labels_in(self, sample: SegmentationSample) -> np.ndarray | None:
        """Return the classes in a sample."""
        return np.setdiff1d(sample.labels, IGNORED).astype(np.int64)

    def check_sample(self, sample: SegmentationSample) -> None:
        """Check the labels of a sample."""
        require_labels(sample.labels.ravel(), self.num_classes, IGNORED, "class", "pixel")

    def collate(self, samples: Sequence[SegmentationSample]) -> dict[str, Any]:
        """Collate samples to a batch."""
        return collate(samples)

    def visualize_batch(self, dataset: Any, batch: dict[str, Any], epoch: int) -> list[CaptionedImage]:
        """Return a collated training batch as the model sees it, overlaid with the colors of its labels."""
        return [self._image(image, labels, dataset) for image, labels in zip(batch["images"], batch["labels"])]

    def visualize_eval_samples(self, dataset: Any, indices: Sequence[int]) -> list[CaptionedImage]:
        """Return the scored images at their stored size, overlaid with the colors of their labels."""
        readings = map(dataset.dataset.read, indices)
        return [self._image(np.asarray(image).transpose(2, 0, 1), labels, dataset) for image, labels in readings]

    def _image(self, image: np.ndarray, labels: np.ndarray, dataset: Any) -> CaptionedImage:
        overlay = overlay_labels(image.transpose(1, 2, 0), labels, get_palette(dataset.dataset, len(self.class_names)))
        share = np.count_nonzero(labels != IGNORED) / max(labels.size, 1)
        return fit_in_cell(overlay), f"{labels.shape[1]} x {labels.shape[0]}, {share:.0%} labeled"

    def image_legend(self) -> list[tuple[str, Color]]:
        """Return the names and colors of the classes."""
        return self.build_legend([tuple(color) for color in get_palette(self, len(self.class_names)).tolist()])

    # ---- model -------------------------------------------------------------------------------------------------

    def build_model(self, num_classes: int | None = None) -> paddle.nn.Layer:
        """Build the model."""
        model = super().build_model(num_classes)
        self.auxiliary_weight = getattr(model, "auxiliary_weight", Segmenter.auxiliary_weight)  # a user's model
        return model

    # ---- training ------------------------------------------------------------------------------------------------

    def loss_normalizers(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Count the divisors of the losses: labeled pixels, or classes in images."""
        weights = self.config.SEGMENTATION.CLASS_WEIGHTS
        image_counts = np.stack([np.bincount(row.ravel(), minlength=IGNORED + 1) for row in batch["labels"]])
        pixels = image_counts[:, :IGNORED].sum(axis=0)  # (classes,)
        labeled = pixels.sum() if weights is None else np.dot(pixels[: len(weights)], weights)
        present = np.count_nonzero(image_counts[:, :IGNORED])
        numbers = {**dict.fromkeys(_PIXEL_LOSSES, labeled), **dict.fromkeys(_CLASS_LOSSES, present)}
        return {name: numbers[name] for name in self.traits.normalizer_names}

    def expected_losses(self) -> dict[str, float]:
        """Return the loss of uniform predictions, to compare the first loss with."""
        return {"loss": math.log(self.num_classes)}

    def train_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: StepPosition
    ) -> dict[str, LossTerm]:
        """Compute the losses of a batch."""
        labels = batch["labels"].astype("int64")  # (N, H, W)
        outputs = model(self.normalizer(batch["images"]))
        main, *auxiliary = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        with autocast.off():
            keys, logits = self.config.SEGMENTATION, main.astype("float32")
            if keys.OHEM_THRESHOLD is not None or keys.DICE_WEIGHT or keys.LOVASZ_WEIGHT:
                logits = upsample(main, labels.shape[1:])  # (N, classes, H, W), by far the largest tensor of the step
            terms = {"loss": self._cross_entropy(logits, labels, keys.OHEM_THRESHOLD)}
            rows = logits.flatten(2), labels.flatten(1), IGNORED  # (N, classes, pixels), (N, pixels)
            if keys.DICE_WEIGHT:
                terms["dice"] = LossTerm(*dice_losses(*rows), keys.DICE_WEIGHT)
            if keys.LOVASZ_WEIGHT:
                terms["lovasz"] = LossTerm(*row_lovasz_softmax(*rows), keys.LOVASZ_WEIGHT)
            for other in auxiliary:
                term = self._cross_entropy(other.astype("float32"), labels)
                terms["auxiliary"] = term._replace(weight=self.auxiliary_weight)
        return terms

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
        return LossTerm((losses * pixel_weights).sum(), pixel_weights.sum())

    # ---- evaluation ----------------------------------------------------------------------------------------------

    @property
    def crop(self) -> Size:
        """Height and width of a window, and of the input of an exported model."""
        height, width = self.config.SEGMENTATION.CROP or self.config.DATA.CROP_SIZE
        return height, width

    @property
    def protocol(self) -> EvaluationProtocol:
        """The evaluation protocol that SEGMENTATION configures."""
        keys, crop = self.config.SEGMENTATION, self.crop
        rows, columns = keys.STRIDE or (max(1, 2 * side // 3) for side in crop)
        more = tuple(keys.SCALES), keys.FLIP, keys.RESIZE_LOGITS_VIA == "stored", self.config.DATA.EVAL_DIVISOR
        return EvaluationProtocol(crop if keys.PROTOCOL == "slide" else None, (rows, columns), *more)

    def protocol_line(self) -> str:
        """Describe what a score depends on in addition to the weights and the data."""
        data, text = self.config.DATA, "stored size"
        if data.EVAL_SHORTEST_SIDE is not None:
            text = f"shorter side {data.EVAL_SHORTEST_SIDE}"
            text += f", longer at most {data.EVAL_LONGEST_SIDE}" if data.EVAL_LONGEST_SIDE is not None else ""
        text += f", multiples of {data.EVAL_DIVISOR}" if data.EVAL_DIVISOR > 1 else ""
        return f"{text}{'' if text == 'stored size' else f', bilinear of {data.RESIZE}'}; {self.protocol}"

    def build_metrics(self) -> Metrics:
        """Return the metrics of an evaluation."""
        return SegmentationMetrics(self.class_names)

    def class_maps(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> Iterator[list[np.ndarray]]:
        """Yield class map and labels of each image of a batch, uint8 (height, width).

        A device computes the next image while the caller processes one.
        """

        def network(pixels: paddle.Tensor) -> paddle.Tensor:
            return model(self.normalizer(pixels))

        protocol, read_previous = self.protocol, None
        for image in split_batch(batch):
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
        for predicted, labels in self.class_maps(model, batch):
            if not labels.size:  # a split without label maps
                labels = np.full_like(predicted, IGNORED)
            records.append(pack_counts(*step.metrics.update(predicted, labels)))
            predictions.append(predicted)
        if step.writer is not None:
            step.writer.add(predictions)
        return (lambda: records) if step.keeps_records else None

    def predict_step(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> list[np.ndarray]:
        """Predict the class of each pixel, uint8 of the stored size; ``IGNORED`` where logits are not finite."""
        return [predicted for predicted, _ in self.class_maps(model, batch)]

    def figures(self, dataset: Any, records: Sequence[tuple[int, Any]], model: paddle.nn.Layer) -> list[Figure]:
        """Build the figures of an evaluation."""
        if not records or not isinstance(dataset, SegmentationSamples):
            return []

        def predict(index: int) -> np.ndarray:
            return self.predict_again(dataset, index, model)

        return segmentation_figures(dataset, records, self.class_names, predict)

    # ---- prediction ----------------------------------------------------------------------------------------------

    def load_meta(self, meta: CheckpointMeta) -> None:
        """Take classes and their colors from a checkpoint's metadata."""
        super().load_meta(meta)
        colors = meta.data.get("palette")
        if isinstance(colors, str):
            self.palette = np.frombuffer(bytes.fromhex(colors), np.uint8).reshape(-1, 3)

    def name_classes(self, number: int, meta: CheckpointMeta) -> None:
        """Take the names from the weights; without names, use the published classes of their recipe's dataset."""
        if not meta.class_names:
            published = published_classes(self.config.DATA.DATASET.removesuffix("_segmentation"), None, 0)
            if len(published.names) == number:
                meta, self.palette = meta._replace(class_names=tuple(published.names)), published.palette
        super().name_classes(number, meta)

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> InputSamples:
        """Open images at paths, or in memory, with the transform of an evaluation."""
        return self.new_images(inputs, cache_folder, SegmentationInput(evaluation_transform(self.config.DATA)))

    def prediction_rows(self, prediction: np.ndarray) -> list[Row]:
        """Return the share of each class in the pixels of an image.

        Raises:
            BadSample: the outputs are not finite.
        """
        counts = np.bincount(prediction.ravel(), minlength=IGNORED + 1)
        if counts[IGNORED]:
            raise BadSample("the model's outputs for it are not finite")
        shares = (counts[: len(self.class_names)] / prediction.size).round(6).tolist()
        return [{f"share {name}": share for name, share in zip(self.class_names, shares)}]

    def prediction_writer(self, folder: Path, dataset: TransformedDataset) -> PredictionWriter:
        """Return the writer of masks and overlaid images."""
        return MaskWriter(folder, dataset, self.class_names, get_palette(self, len(self.class_names)))

    # ---- export --------------------------------------------------------------------------------------------------

    def export_parts(self) -> ExportParts:
        """Return what an export contains in addition to the model."""
        data, size = self.config.DATA, self.crop
        resize = "see 'evaluated'; then windows of the input's size, or the whole image if it has this size"
        meta = {
            **describe_input(data, self.turns, resize, f"bilinear of {data.RESIZE}"),
            "output": _OUTPUT,
            "evaluated": self.protocol_line(),
        }
        image = draw_image(*size)
        example = {"picture": image, "input": normalize(image, data)}
        shape = (self.num_classes, None, None)
        return ExportParts(3, meta, size, example=example, output_names=("logits",), output_shape=shape)

    def evaluated_model(self, function: paddle.nn.Layer) -> paddle.nn.Layer:
        """Wrap an exported model, to check the size of its input."""
        return FixedSizeModel(function, self.crop)


class SegmentationInput(NamedTuple):
    """The input transform of predictions."""

    transform: SegmentationEvaluationTransform

    def __call__(self, image: Image.Image, generator: np.random.Generator) -> SegmentationSample:
        """Transform an image; it has no labels."""
        return SegmentationSample(self.transform(image), _NO_LABELS, -1, (image.height, image.width))


class MaskWriter(PredictionWriter):
    """Writes ``masks/NAME.png`` for each image, with class numbers from 0 as pixels and the classes' colors as palette.

    For new images, also writes a copy overlaid with these colors, with a legend, to the folder ``IMAGES``.

    Args:
        folder: folder of the prediction, exists.
        samples: samples of ``open_inputs``, or of a split.
        class_names: one per class.
        palette: uint8 (classes, 3).
    """

    writes_evaluations = True

    def __init__(
        self, folder: Path, samples: TransformedDataset, class_names: Sequence[str], palette: np.ndarray
    ) -> None:
        self.folder, self.samples, self.class_names, self.palette = folder, samples, list(class_names), palette
        self._images = AnnotatedImages(folder, samples)

    def write(self, index: int, prediction: np.ndarray, truth: Any = None) -> Row:
        """Write the mask of an image, and the overlaid image."""
        name = f"{MASKS}/{self._images.name(index)}.png"
        (self.folder / MASKS).mkdir(exist_ok=True)
        mask = Image.fromarray(prediction)
        mask.putpalette(self.palette.tobytes())
        with atomic_file(self.folder / name) as file:
            mask.save(file, "PNG")
        overlay_name = self._images.write(index, lambda image: self._draw(image, prediction))
        return {"mask": name} if overlay_name is None else {"mask": name, "picture": overlay_name}

    def _draw(self, image: Image.Image, prediction: np.ndarray) -> Image.Image:
        numbers = np.unique(prediction).tolist()
        entries = [(self.class_names[number], tuple(self.palette[number].tolist())) for number in numbers]
        return add_legend(overlay_labels(np.asarray(image), prediction, self.palette), entries)

    def finish(self, entries: Iterable[PredictionRecord]) -> list[str]:
        """Write the class names; return lines about the files."""
        if not any(True for _ in entries):
            return []
        with atomic_file(self.folder / CLASSES) as file:
            file.write("".join(f"{name}\n" for name in self.class_names).encode())
        where = f"masks are in {self.folder / MASKS}: the number of a pixel is the line of its class in "
        lines = [f"{where}{self.folder / CLASSES}, from 0"]
        if isinstance(self.samples, InputSamples):
            lines.append(f"images overlaid with the colors of their classes are in {self.folder / IMAGES}")
        return lines


class FixedSizeModel(paddle.nn.Layer):
    """An exported segmenter with a fixed input size, which replaces the network."""

    def __init__(self, function: paddle.nn.Layer, size: Size) -> None:
        super().__init__()
        self.function, self._size = function, size

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        """Run the exported segmenter.

        Raises:
            UserError: images, or windows of them, have another size.
        """
        if tuple(images.shape[2:]) != self._size:
            size, input_size = ("x".join(map(str, size)) for size in (self._size, images.shape[2:]))
            raise UserError(
                f"the exported model takes {size} pixels (height x width), but the input has {input_size}; set "
                f"SEGMENTATION.PROTOCOL slide with SEGMENTATION.CROP [{size.replace('x', ', ')}], enlarge smaller "
                "images with DATA.EVAL_SHORTEST_SIDE, or export the model for this size (-image_size)"
            )
        return self.function(images)
