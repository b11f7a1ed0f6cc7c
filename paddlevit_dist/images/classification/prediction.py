"""What a classifier says of pictures without labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterable, List, NamedTuple, Optional, Sequence

import numpy as np
from PIL import Image, ImageDraw

from ...contracts.dataset import dataset_class
from ...contracts.prediction import InputSamples, OutputWriter, Row
from ...contracts.sample_checks import BadSample
from ...errors import UserError
from ...lettering import LINE_PX, letters
from ..data.annotated import PICTURES, AnnotatedPictures
from ..data.image_dataset import ImageDataset
from ..data.imagenet import names_by_synset
from ..data.inputs import picture_inputs
from ..data.reading import Reading
from ..transforms.crops import EvaluationTransform, build_transform

_MOST_CLASSES = 5
_DIGITS = 7  # of a score; float32 has no more
_MOST_PICTURES = 500  # are drawn, the first: each takes as long as some predictions
_PICTURE_PX, _NAMES_PX = 320, 280  # longer side, and width of the names beside it
_BAR = (190, 215, 245)


def open_inputs(config: Any, inputs: Sequence[Any], cache_folder: Path) -> InputSamples:
    """Pictures at paths, or in memory, as an evaluation with this configuration would see them.

    Raises:
        UserError: paths and pictures in memory are mixed.
    """
    data, notices = config.DATA, []
    try:
        kind, mode = _kind_of(config)
    except UserError:
        kind, mode = ImageDataset.kind, ImageDataset.image_mode
        notices.append(f"note: dataset {data.DATASET} is not registered here: its pictures are taken for photographs")
    transform = evaluation_transform(config, kind)
    if isinstance(transform, EvaluationTransform):
        transform = Bounded(transform, data.MAX_PIXELS)
    reading = Reading(data.EXIF_ROTATE, data.MAX_PIXELS)
    samples = picture_inputs(inputs, cache_folder, transform, mode, reading)
    samples.notices = [*notices, *samples.notices]
    return samples


def evaluation_transform(config: Any, kind: str) -> Any:
    """What an evaluation makes of pictures of this kind, "photo" or "glyph"."""
    data = config.DATA
    return build_transform(
        kind,
        "val",
        image_size=data.IMAGE_SIZE,
        channels=data.IMAGE_CHANNELS,
        crop_pct=data.CROP_PCT,
        crop_scale=data.CROP_SCALE,
        crop_ratio=data.CROP_RATIO,
        flip_probability=0.0,
    )


class Bounded(NamedTuple):
    """An evaluation's transform that refuses a picture so narrow that scaling its shorter side would fill the memory.

    Attributes:
        largest: pixels of the scaled picture.
    """

    transform: EvaluationTransform
    largest: int

    def __call__(self, image: Image.Image, generator: np.random.Generator) -> np.ndarray:
        """As the transform.

        Raises:
            BadSample: it would be too large.
        """
        width, height = self.transform.resized(image.size)
        if width * height > self.largest:
            raise BadSample(
                f"a picture of {image.size[0]} x {image.size[1]} pixels would be scaled to {width} x {height}: crop it"
            )
        return self.transform(image, generator)


def _kind_of(config: Any) -> Sequence[str]:
    dataset = dataset_class(config, ImageDataset)
    return dataset.kind, dataset.image_mode


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Softmax in float64, in which different logits never become equal.

    Args:
        logits: float32 (batch, classes).
    """
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    shares = np.exp(shifted)
    return shares / shares.sum(axis=-1, keepdims=True)


def best_classes(shares: np.ndarray, class_names: Optional[Sequence[str]]) -> Row:
    """The most probable classes, at most five, as ``class, score, class_2, score_2, ...``; the first of equal ones
    comes first, as in an evaluation.

    Args:
        shares: float64 (classes,), probabilities.
        class_names: None, or too few: a class without one is called by its number.
    Raises:
        BadSample: the probabilities are not finite.
    """
    if not np.isfinite(shares).all():
        raise BadSample("the model's outputs for it are not finite")
    names = class_names or ()
    row: Row = {}
    for place, label in enumerate(np.argsort(-shares, kind="stable")[:_MOST_CLASSES].tolist()):
        ending = f"_{place + 1}" if place else ""
        row[f"class{ending}"] = names[label] if label < len(names) else str(label)
        row[f"score{ending}"] = float(f"{shares[label]:.{_DIGITS}g}")
    return row


class ClassOutputs(OutputWriter):
    """Draws the most probable classes beside the first pictures.

    Args:
        folder: exists.
        class_names: as of ``best_classes``; of WordNet ids the names are drawn.
    """

    def __init__(self, folder: Path, samples: InputSamples, class_names: Optional[Sequence[str]]) -> None:
        self._folder, self._number, self._class_names = folder, len(samples), class_names
        self._pictures = AnnotatedPictures(folder, samples)

    def write(self, index: int, prediction: np.ndarray) -> Row:
        if index < _MOST_PICTURES:
            best = list(best_classes(prediction, self._class_names).values())
            self._pictures.write(index, lambda picture: beside(picture, best[::2], best[1::2]))
        return {}

    def finish(self, rows: Iterable[Row]) -> List[str]:
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
