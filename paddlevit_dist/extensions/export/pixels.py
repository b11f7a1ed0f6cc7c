"""Models that take pixels and normalize them inside."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from ...core.runtime.errors import UserError
from .files import as_mapping

_CHANNELS_FIRST, _CHANNELS_LAST = "batch, channels, height, width", "batch, height, width, channels"


def convert_to_pixel_input(trained: Any) -> Any:
    """Convert a ``TrainedModel`` to take pixels, uint8 (batch, height, width, channels), of the exported size.

    Raises:
        UserError: the normalization of the images is unknown, or the model does not take images.
    """
    steps = {**as_mapping(trained.about.get("preprocessing"))}
    if trained.parts is None:
        raise UserError(
            "export: -input=uint8: weights alone do not store the normalization of images: export the run's folder"
        )
    if "mean" not in trained.about or steps.get("layout") != _CHANNELS_FIRST:
        raise UserError("export: -input=uint8 is for models of images: remove it")
    inside = {name: steps.pop(name) for name in ("divide_by", "subtract", "divide_by_deviation")}
    normalized = trained.about["mean"], trained.about["standard_deviation"]
    batch, channels, *size = trained.about["input_shape"]
    more = {"input_type": "uint8", "input_shape": [batch, *size, channels]}
    about = {**trained.about, **more, "preprocessing": {**steps, "layout": _CHANNELS_LAST}, "computed_inside": inside}
    model = PixelInputModel(trained.model, *normalized)
    model.eval()
    example = {**trained.parts.example}
    example["input"] = to_pixels(example["input"], *normalized)
    return trained._replace(model=model, about=about, parts=trained.parts._replace(example=example, paddlex=None))


class PixelInputModel(paddle.nn.Layer):
    """Model of pixels, uint8 (N, height, width, channels), around a model of normalized images (N, C, H, W).

    ``mean`` and ``deviation`` of each channel are for pixels from 0 to 1.
    """

    def __init__(self, model: paddle.nn.Layer, mean: Sequence[float], deviation: Sequence[float]) -> None:
        super().__init__()
        self.model, self._shift, self._scale = model, *_to_levels(mean, deviation)

    def forward(self, pixels: paddle.Tensor, sizes: paddle.Tensor | None = None):
        """Normalize the pixels and call the model."""
        shift, scale = (paddle.to_tensor(row.reshape(1, -1, 1, 1)) for row in (self._shift, self._scale))
        images = (pixels.astype("float32").transpose([0, 3, 1, 2]) - shift) / scale
        return self.model(images) if sizes is None else self.model(images, sizes)


def to_pixels(images: np.ndarray, mean: Sequence[float], deviation: Sequence[float]) -> np.ndarray:
    """Convert normalized images, float32 (N, channels, height, width), to uint8 (N, height, width, channels)."""
    shift, scale = _to_levels(mean, deviation)
    return np.rint(images.transpose(0, 2, 3, 1) * scale + shift).clip(0, 255).astype(np.uint8)


def _to_levels(*rows: Sequence[float]) -> list[np.ndarray]:
    return [255 * np.asarray(row, np.float32) for row in rows]
