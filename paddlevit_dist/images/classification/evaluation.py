"""How a classifier of pictures is scored, and its figures."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle

from ...contracts.dataset import Samples
from ...contracts.figures import Figure, Gallery
from ...labelling.classification import ClassificationMetrics
from ...labelling.classifier import Classifier, joined
from ...labelling.classifier_figures import Evaluated, galleries, surest_mistakes, tables
from ...runtime.errors import UserError
from ..transforms.on_device import Normaliser
from .rollout import overlaid, rolled_out

_LOOKED_AT = 8  # pictures whose attention is shown


class ClassifierEvaluation(Classifier):
    """The scores of a classifier and its figures."""

    normaliser: Normaliser
    evaluated_classes: Sequence[str] | None = None  # their names, where the data know them

    def logits(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> paddle.Tensor:
        return model(self.normaliser(batch["images"]))

    def build_metrics(self) -> ClassificationMetrics:
        return ClassificationMetrics(self.num_classes, self.evaluated_classes)

    def figures(self, samples: Samples, records: Sequence[tuple[int, bytes]], model: paddle.nn.Layer) -> list[Figure]:
        evaluated = Evaluated(*joined(records), self.num_classes, samples.class_names)
        return report_figures(evaluated, samples, lambda images: rolled_out(model, self.normaliser(images)))


def report_figures(
    evaluated: Evaluated, samples: Samples, look: Callable[[paddle.Tensor], np.ndarray | None]
) -> list[Figure]:
    """All figures, most telling first; without pictures that can no longer be read.

    Args:
        samples: what was evaluated.
        look: images uint8 (batch, channels, height, width) -> how much the model looks at each of their patches,
            (batch, rows, columns); None: that cannot be said of it.
    """

    @functools.cache
    def image_of(index: int) -> np.ndarray | None:
        try:
            return samples.sample(index, np.random.default_rng(0))[0]  # uint8 (channels, height, width)
        except (UserError, OSError):
            return None

    def drawn(index: int) -> np.ndarray | None:
        image = image_of(index)
        return None if image is None else _pixels(image)

    places = _looked_at(evaluated)
    looked_at = [(image_of(index), place, index) for place, index in zip(places, evaluated.indices[places].tolist())]
    seen = [
        (image, evaluated.caption(place, samples.describe(index)))
        for image, place, index in looked_at
        if image is not None
    ]
    shares = look(paddle.to_tensor(np.stack([image for image, _ in seen]))) if seen else None
    attention: list[Figure] = []
    if shares is not None:
        pictures = [(overlaid(_pixels(image), share), caption) for (image, caption), share in zip(seen, shares)]
        note = "Brighter patches reach the classifier more (attention roll-out, Abnar and Zuidema 2020)."
        attention = [Gallery("What the model looks at", pictures, note)]
    return [*galleries(evaluated, drawn, samples.describe), *tables(evaluated), *attention]


def _looked_at(evaluated: Evaluated) -> np.ndarray:
    """Places of some pictures: the surest mistakes, and some evenly taken from those that are right."""
    sure, right = surest_mistakes(evaluated), np.flatnonzero(evaluated.is_right)
    evenly = right[np.linspace(0, len(right) - 1, min(len(right), _LOOKED_AT)).astype(np.int64)]
    half = _LOOKED_AT // 2
    return np.concatenate([sure[:half], evenly[: max(half, _LOOKED_AT - len(sure))]])


def _pixels(image: np.ndarray) -> np.ndarray:
    """(channels, height, width) -> (height, width[, 3]); of other numbers of channels, the first."""
    return image.transpose(1, 2, 0) if len(image) == 3 else image[0]
