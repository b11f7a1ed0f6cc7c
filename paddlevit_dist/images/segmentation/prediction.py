"""Prediction of label maps: shares of classes, and masks as files."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paddle
from PIL import Image

from ...core.runtime.files import atomic_file
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.prediction import ArrayMakers, InputSamples, PredictionRecord, PredictionWriter, Row, pack_array
from ...core.tasks.sample_checks import BadSample
from ..backbone_prediction import BackbonePrediction
from ..data.inputs import IMAGES, AnnotatedImages
from ..drawing import add_legend, get_palette, overlay_labels
from .data.segmentation_dataset import IGNORED
from .samples import SegmentationSample
from .task import ImageSegmentation
from .transforms import SegmentationEvaluationTransform, evaluation_transform

MASKS, CLASSES = "masks", "classes.txt"  # folder, and file next to it
_NO_LABELS = np.zeros((0, 0), np.uint8)


class LabelMapPrediction(BackbonePrediction):
    """Predicts the class of each pixel."""

    task: ImageSegmentation

    def predict_step(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> list[np.ndarray]:
        """Predict the class of each pixel, uint8 of the stored size; ``IGNORED`` where logits are not finite."""
        return [predicted for predicted, _ in self.task.class_maps(model, batch)]

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> InputSamples:
        """Open images at paths, or in memory, with the transform of an evaluation."""
        return self._open_images(inputs, cache_folder, SegmentationInput(evaluation_transform(self.task.config.DATA)))

    def prediction_rows(self, prediction: np.ndarray) -> list[Row]:
        """Return the share of each class in an image's pixels; raise BadSample if outputs are not finite."""
        counts = np.bincount(prediction.ravel(), minlength=IGNORED + 1)
        if counts[IGNORED]:
            raise BadSample("the model's outputs for it are not finite")
        shares = (counts / prediction.size).round(6).tolist()
        return [{f"share {name}": share for name, share in zip(self.task.class_names, shares)}]

    def prediction_arrays(self, index: int, prediction: np.ndarray, samples: InputSamples) -> ArrayMakers:
        """Return the class of each pixel, as in the mask's file."""
        return {"label_map": pack_array(prediction)}

    def prediction_writer(self, folder: Path, dataset: TransformedDataset) -> PredictionWriter:
        """Return the writer of masks and overlaid images."""
        return MaskWriter(folder, dataset, self.task.class_names, get_palette(self.task, len(self.task.class_names)))


class SegmentationInput(NamedTuple):
    """The input transform of predictions."""

    transform: SegmentationEvaluationTransform

    def __call__(self, image: Image.Image, generator: np.random.Generator) -> SegmentationSample:
        """Transform an image; it has no labels."""
        return SegmentationSample(self.transform(image), _NO_LABELS, -1, (image.height, image.width))


class MaskWriter(PredictionWriter):
    """Writes ``masks/NAME.png`` for each image, with class numbers from 0 as pixels and the classes' colors as palette.

    For new images, also writes a copy overlaid with these colors, with a legend, to the folder ``IMAGES``. ``folder``
    exists; ``palette`` is uint8 (classes, 3).
    """

    writes_evaluations = True
    folders = (MASKS, IMAGES)

    def __init__(
        self, folder: Path, samples: TransformedDataset, class_names: Sequence[str], palette: np.ndarray
    ) -> None:
        self.folder, self.samples, self.class_names, self.palette = folder, samples, list(class_names), palette
        self._images = AnnotatedImages(folder, samples)

    def write(self, index: int, prediction: np.ndarray, truth: object = None) -> Row:
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
        return [*lines, *self._images.notes()]
