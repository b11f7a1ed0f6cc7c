"""Models of normalised images as functions of pixels."""

from collections.abc import Sequence

import numpy as np
import paddle


class OfPixels(paddle.nn.Layer):
    """A model of normalised images (N, channels, height, width) as one of pixels, uint8 (N, height, width, channels).

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
    """The pixels, uint8 (N, height, width, channels), of normalised images float32 (N, channels, height, width)."""
    shift, scale = _of_levels(mean, deviation)
    return np.rint(images.transpose(0, 2, 3, 1) * scale + shift).clip(0, 255).astype(np.uint8)


def _of_levels(*rows: Sequence[float]) -> list[np.ndarray]:
    return [255 * np.asarray(row, np.float32) for row in rows]
