"""The transform of images for one classifier, as evaluation and prediction have it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import paddle
from paddle import nn

from ...core.library.models import FeatureMaps, create_model, find_settings
from ...core.registry.lookup import annotation_type, find_package
from ...core.registry.manifest import CLASS_LABELS
from ...core.runtime.errors import UserError
from ...core.tasks.task_factory import make_task
from ..data.inputs import InMemoryImages
from ..data.reading import ReadConfig, decode_image, read_file
from ..image_size import ImageSize
from .samples import ClassificationInput, evaluation_transform, find_dataset_class
from .task import Classification
from .training_samples import build_training_transform

if TYPE_CHECKING:
    from PIL import Image


def create_transform(model: nn.Layer | str | os.PathLike[str], training: bool = False) -> ImageTransform:
    """Create the image transform that ``evaluate`` and ``predict`` use for these weights.

    Args:
        model: a classifier of ``create_model`` or of a run; or a ``name`` for ``create_model(name, pretrained=True)``.
        training: use the augmentation of the recipe instead.

    Raises:
        UserError: the preprocessing of the model is unknown, or it is not an image classifier.
    """
    if isinstance(model, (str, os.PathLike)):
        model = create_model(model, pretrained=True)
    body = model.body if isinstance(model, FeatureMaps) else model
    config = find_settings(body)
    if config is None:
        kind = type(body).__name__
        raise UserError(
            f"create_transform: the preprocessing of {kind} is unknown: use a model of create_model, or weights"
        )
    name = config.MODEL.NAME
    package, learns = find_package("model", name), annotation_type("model", name)  # both None: a user's own model
    if package not in (None, "images") or learns not in (None, CLASS_LABELS):
        raise UserError(f"create_transform is for image classifiers, not for {name}: use Predictor")
    return ImageTransform(config, training)


class ImageTransform:
    """Resize, crop and normalize an image for one model: ``transform(image)``.

    Loader processes should call ``pixels``; the device should call ``normalize`` on whole batches. With ``training``
    it is the training augmentation.
    """

    def __init__(self, config: Any, training: bool = False) -> None:
        task = make_task(config)
        if not isinstance(task, Classification):
            raise UserError(f"create_transform is for image classifiers, not for TASK {config.TASK}: use Predictor")
        data, dataset = task.config.DATA, find_dataset_class(task.config)
        self.image_size: ImageSize = data.IMAGE_SIZE  # one number, or [height, width]
        self.mean, self.std = tuple(data.IMAGENET_MEAN), tuple(data.IMAGENET_STD)
        self._normalizer, self._mode = task.normalizer, dataset.image_mode
        self._reading = ReadConfig(bool(data.EXIF_ROTATE), data.MAX_PIXELS)
        evaluated = ClassificationInput(evaluation_transform(data, dataset.kind), data.MAX_PIXELS)
        trained = build_training_transform(task.config, dataset.kind) if training else None
        self._transform = trained or (lambda image, generator: evaluated(image, generator)[0])

    def __call__(self, image: Any, generator: np.random.Generator | int | None = None) -> paddle.Tensor:
        """Transform one image to float32 (channels, height, width): ``model(transform(image).unsqueeze(0))``.

        ``image`` is a path, a PIL image, or uint8 (height, width[, 3]); ``generator``, of the augmentation, may be a
        seed; None: a new one. A ``UserError`` says that the image cannot be read.
        """
        return self.normalize(paddle.to_tensor(self.pixels(image, generator)[None]))[0]

    def pixels(self, image: Any, generator: np.random.Generator | int | None = None) -> np.ndarray:
        """Transform one image to uint8 (channels, height, width) without Paddle; arguments of ``__call__``."""
        if isinstance(image, (str, os.PathLike)):
            path = os.fspath(image)
            decoded: Image.Image = decode_image(read_file(path), path, self._mode, self._reading)
        else:
            decoded = InMemoryImages([image], self._transform, self._mode, self._reading).image(0)
        return cast(np.ndarray, self._transform(decoded, np.random.default_rng(generator)))

    def normalize(self, images: paddle.Tensor) -> paddle.Tensor:
        """Normalize uint8 (batch, channels, height, width) to float32, on the images' device."""
        return self._normalizer(images)
