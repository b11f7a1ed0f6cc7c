"""Models of normalized images as functions of pixels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from ..runtime.errors import UserError

_CHANNELS_FIRST, _CHANNELS_LAST = "batch, channels, height, width", "batch, height, width, channels"


def of_pixels(trained: Any) -> Any:
    """The same as a function of pixels, uint8 (batch, height, width, channels), of the size that is exported.

    Args:
        trained: ``command.TrainedModel``.
    Raises:
        UserError: nobody knows how its images are normalized, or it takes no images.
    """
    steps = dict(trained.about.get("preprocessing") or {})
    if trained.parts is None:
        raise UserError(
            "export: -input=uint8: weights alone do not say how images are normalized: export the run's folder"
        )
    if "mean" not in trained.about or steps.get("layout") != _CHANNELS_FIRST:
        raise UserError("export: -input=uint8 is for images, and this model takes none: leave it out")
    inside = {name: steps.pop(name) for name in ("divide_by", "subtract", "divide_by_deviation")}
    normalized = trained.about["mean"], trained.about["standard_deviation"]
    batch, channels, *size = trained.about["input_shape"]
    more = {"input_type": "uint8", "input_shape": [batch, *size, channels]}
    about = {**trained.about, **more, "preprocessing": {**steps, "layout": _CHANNELS_LAST}, "computed_inside": inside}
    model = OfPixels(trained.model, *normalized)
    model.eval()
    example = {**trained.parts.example}
    example["input"] = to_pixels(example["input"], *normalized)
    return trained._replace(model=model, about=about, parts=trained.parts._replace(example=example, paddlex=None))


class OfPixels(paddle.nn.Layer):
    """A model of normalized images (N, channels, height, width) as one of pixels, uint8 (N, height, width, channels).

    Args:
        mean, deviation: of each channel, of pixels from 0 to 1.
    """

    def __init__(self, model: paddle.nn.Layer, mean: Sequence[float], deviation: Sequence[float]) -> None:
        super().__init__()
        self.model, self._shift, self._scale = model, *_of_levels(mean, deviation)

    def forward(self, pixels: paddle.Tensor, sizes: paddle.Tensor | None = None):
        shift, scale = (paddle.to_tensor(row.reshape(1, -1, 1, 1)) for row in (self._shift, self._scale))
        images = (pixels.astype("float32").transpose([0, 3, 1, 2]) - shift) / scale
        return self.model(images) if sizes is None else self.model(images, sizes)


def to_pixels(images: np.ndarray, mean: Sequence[float], deviation: Sequence[float]) -> np.ndarray:
    """The pixels, uint8 (N, height, width, channels), of normalized images float32 (N, channels, height, width)."""
    shift, scale = _of_levels(mean, deviation)
    return np.rint(images.transpose(0, 2, 3, 1) * scale + shift).clip(0, 255).astype(np.uint8)


def _of_levels(*rows: Sequence[float]) -> list[np.ndarray]:
    return [255 * np.asarray(row, np.float32) for row in rows]
