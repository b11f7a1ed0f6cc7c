"""What a classifier says of pictures without labels."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from ...contracts.dataset import Samples, dataset_class
from ...contracts.prediction import Entry, InputSamples, PredictionWriter, Row, TaskPrediction
from ...contracts.sample_checks import BadSample
from ...labelling.classification import best_classes
from ...runtime.errors import UserError
from ...runtime.lettering import LINE_PX, letters
from ..data.image_dataset import ImageDataset
from ..data.imagenet import names_by_synset
from ..data.inputs import PICTURES, AnnotatedPictures, picture_inputs
from ..data.reading import Reading
from ..transforms.crops import EvaluationTransform, GlyphTransform

_MOST_PICTURES = 500  # are drawn, the first: each takes as long as some predictions
_PICTURE_PX, _NAMES_PX = 320, 280  # longer side, and width of the names beside it
_BAR = (190, 215, 245)


class ClassifierPrediction(TaskPrediction):
    """Pictures without labels, and those that it draws its classes beside."""

    class_names: Sequence[str] | None  # of trained weights

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> InputSamples:
        """Pictures at paths, or in memory, as an evaluation with this configuration would see them.

        Raises:
            UserError: paths and pictures in memory are mixed.
        """
        data, dataset = self.config.DATA, dataset_of(self.config)
        transform = AsEvaluated(evaluation_transform(data, dataset.kind), data.MAX_PIXELS)
        reading = Reading(data.EXIF_ROTATE, data.MAX_PIXELS)
        samples = picture_inputs(inputs, cache_folder, transform, dataset.image_mode, reading)
        if dataset is ImageDataset:
            said = f"note: dataset {data.DATASET} is not registered here: its pictures are taken for photographs"
            samples.notices = [said, *samples.notices]
        return samples

    def prediction_writer(self, folder: Path, samples: Samples) -> "ClassWriter":
        return ClassWriter(folder, samples, self.class_names)


def dataset_of(config: Any) -> type[ImageDataset]:
    """The class of the configured dataset; ``ImageDataset`` for one of a user's that is not registered here."""
    try:
        return dataset_class(config, ImageDataset)
    except UserError:
        return ImageDataset


def evaluation_transform(data: Any, kind: str) -> EvaluationTransform | GlyphTransform:
    """What an evaluation makes of pictures.

    Args:
        data: the configuration's DATA.
        kind: "photo" or "glyph".
    """
    if kind == "glyph":
        return GlyphTransform(data.IMAGE_SIZE, train=False, channels=data.IMAGE_CHANNELS)
    return EvaluationTransform(data.IMAGE_SIZE, data.CROP_PCT, data.IMAGE_CHANNELS, data.INTERPOLATION)


class AsEvaluated(NamedTuple):
    """A picture without a label as an evaluation would see it.

    Attributes:
        largest: pixels of the scaled picture; a picture so narrow that scaling its shorter side would fill the memory
            is refused.
    """

    transform: Any
    largest: int

    def __call__(self, image: Image.Image, generator: np.random.Generator) -> tuple[np.ndarray, int]:
        """As a labelled sample, with a label that nobody looks at.

        Raises:
            BadSample: it would be too large.
        """
        if isinstance(self.transform, EvaluationTransform):
            width, height = self.transform.resized(image.size)
            if width * height > self.largest:
                size = "{} x {}".format(*image.size)
                raise BadSample(f"a picture of {size} pixels would be scaled to {width} x {height}: crop it")
        return self.transform(image, generator), 0


class ClassWriter(PredictionWriter):
    """Draws the most probable classes beside the first pictures.

    Args:
        folder: exists.
        class_names: as of ``best_classes``; of WordNet ids the names are drawn.
    """

    def __init__(self, folder: Path, samples: Samples, class_names: Sequence[str] | None) -> None:
        self._folder, self._number, self._class_names = folder, len(samples), class_names
        self._pictures = AnnotatedPictures(folder, samples)

    def write(self, index: int, prediction: np.ndarray, truth: Any = None) -> Row:
        if index < _MOST_PICTURES:
            best = list(best_classes(prediction, self._class_names).values())
            self._pictures.write(index, lambda picture: beside(picture, best[::2], best[1::2]))
        return {}

    def finish(self, entries: Iterable[Entry]) -> list[str]:
        if not (self._folder / PICTURES).is_dir():
            return []
        which = "the pictures" if self._number <= _MOST_PICTURES else f"the first {_MOST_PICTURES} pictures"
        return [f"the classes are drawn beside {which} in {self._folder / PICTURES}"]


def beside(picture: Image.Image, names: Sequence[str], scores: Sequence[float]) -> Image.Image:
    """A picture, fitted to ``_PICTURE_PX``, with names and scores from 0 to 1 in lines on its right."""
    factor = _PICTURE_PX / max(picture.size)
    width, height = (max(1, round(side * factor)) for side in picture.size)
    filters = Image.Resampling
    fitted = picture.convert("RGB").resize((width, height), filters.NEAREST if factor > 1 else filters.BILINEAR)
    canvas = Image.new("RGB", (width + _NAMES_PX, max(height, LINE_PX * len(names))), "white")
    canvas.paste(fitted, (0, 0))
    pen, known = ImageDraw.Draw(canvas), names_by_synset()
    for line, (name, score) in enumerate(zip(names, scores)):
        left, top = width + LINE_PX // 2, line * LINE_PX
        pen.rectangle([left, top, left + round(score * (_NAMES_PX - LINE_PX)), top + LINE_PX - 3], fill=_BAR)
        canvas.paste("black", (left, top), letters(f"{score:.1%} {known.get(name, name)}"))
    return canvas
