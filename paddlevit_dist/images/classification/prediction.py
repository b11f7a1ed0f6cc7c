"""Predictions of a classifier for images without labels."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from ...core.metrics.classifier_prediction import ClassifierPrediction, best_classes
from ...core.runtime.text_rendering import LINE_PX, render_text
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.prediction import InputSamples, PredictionRecord, PredictionWriter, Row
from ..data.image_dataset import ImageDataset
from ..data.inputs import EXAMPLE_IMAGE, IMAGES, AnnotatedImages, open_image_inputs
from ..data.reading import ReadConfig
from ..imagenet_classes import names_by_synset
from .samples import ClassificationInput, build_view_transform, evaluation_transform, find_dataset_class
from .task import Classification

_MOST_IMAGES = 500  # that are drawn: each takes as long as some predictions
_IMAGE_PX, _NAMES_PX = 320, 280  # longer side, and width of the names next to it
_BAR = (190, 215, 245)


class ImageClassPrediction(ClassifierPrediction):
    """Predicts the classes of images."""

    task: Classification
    example_input = EXAMPLE_IMAGE

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> InputSamples:
        """Open images at paths, or in memory, with the transform of an evaluation; a ``UserError`` if mixed."""
        data, dataset = self.task.config.DATA, find_dataset_class(self.task.config)
        views = build_view_transform(data, dataset.kind)
        transform = ClassificationInput(views or evaluation_transform(data, dataset.kind), data.MAX_PIXELS)
        reading = ReadConfig(bool(data.EXIF_ROTATE), data.MAX_PIXELS)
        samples = open_image_inputs(inputs, cache_folder, transform, dataset.image_mode, reading)
        if dataset is ImageDataset:
            note = f"note: dataset {data.DATASET} is not registered here; its images are treated as photographs"
            samples.notices = [note, *samples.notices]
        if views is not None:
            samples.notices = [*samples.notices, f"probabilities are the {views.describe()}"]
        return samples

    def prediction_writer(self, folder: Path, dataset: TransformedDataset) -> PredictionWriter:
        """Return the writer that draws the predicted classes."""
        return ImageClassWriter(folder, dataset, self.task.class_names)


class ImageClassWriter(PredictionWriter):
    """Draws the most probable classes next to the first images; WordNet ids are replaced by names."""

    #: what is drawn, and how the line for the user ends
    noun, remark = "classes", ""

    def __init__(self, folder: Path, samples: TransformedDataset, class_names: Sequence[str] | None) -> None:
        self._folder, self._number, self._class_names = folder, len(samples), class_names
        self._images = AnnotatedImages(folder, samples)

    def write(self, index: int, prediction: np.ndarray, truth: Any = None) -> Row:
        """Draw the best classes of one of the first images."""
        if index < _MOST_IMAGES:
            names, scores = self.choose(prediction)
            self._images.write(index, lambda image: draw_classes(image, names, scores))
        return {}

    def choose(self, prediction: np.ndarray) -> tuple[Sequence[str], Sequence[float]]:
        """Return names and scores of what is drawn, best first."""
        best = list(best_classes(prediction, self._class_names).values())
        return best[::2], best[1::2]

    def finish(self, entries: Iterable[PredictionRecord]) -> list[str]:
        """Return a line with the folder of the drawings."""
        if not (self._folder / IMAGES).is_dir():
            return []
        which = "the images" if self._number <= _MOST_IMAGES else f"the first {_MOST_IMAGES} images"
        drawn = f"the {self.noun} are drawn next to {which} in {self._folder / IMAGES}{self.remark}"
        return [drawn, *self._images.notes()]


def draw_classes(image: Image.Image, names: Sequence[str], scores: Sequence[float]) -> Image.Image:
    """Resize an image to ``_IMAGE_PX`` and draw names and scores from 0 to 1 in lines on its right."""
    factor = _IMAGE_PX / max(image.size)
    width, height = (max(1, round(side * factor)) for side in image.size)
    filters = Image.Resampling
    fitted = image.convert("RGB").resize((width, height), filters.NEAREST if factor > 1 else filters.BILINEAR)
    canvas = Image.new("RGB", (width + _NAMES_PX, max(height, LINE_PX * len(names))), "white")
    canvas.paste(fitted, (0, 0))
    pen, name_of_synset = ImageDraw.Draw(canvas), names_by_synset()
    for line, (name, score) in enumerate(zip(names, scores)):
        left, top = width + LINE_PX // 2, line * LINE_PX
        pen.rectangle([left, top, left + round(score * (_NAMES_PX - LINE_PX)), top + LINE_PX - 3], fill=_BAR)
        canvas.paste("black", (left, top), render_text(f"{score:.1%} {name_of_synset.get(name, name)}"))
    return canvas
