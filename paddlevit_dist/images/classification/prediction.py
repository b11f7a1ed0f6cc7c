"""What a classifier says of pictures without labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, Optional, Sequence

import numpy as np
from PIL import Image

from ...contracts.dataset import dataset_class
from ...contracts.prediction import InputSamples, Row
from ...contracts.sample_checks import BadSample
from ...errors import UserError
from ..data.image_dataset import ImageDataset
from ..data.inputs import picture_inputs
from ..data.reading import Reading
from ..transforms.crops import EvaluationTransform, build_transform

_MOST_CLASSES = 5
_DIGITS = 7  # of a score; float32 has no more


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
