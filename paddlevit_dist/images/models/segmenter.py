"""What a network that labels the pixels of pictures is to the task that trains it."""

from collections.abc import Sequence

import paddle
from paddle.nn import functional as F

from ...contracts.model import Model
from ...runtime.autocast import as_dtype


class Segmenter(Model):
    """Base class of networks that give every pixel of a picture of any size a class."""

    #: weight of the auxiliary head's loss; 0 where there is none
    auxiliary_weight: float = 0.0

    @property
    def pretrained_part(self) -> Model:
        """The model whose weights a classifier brings."""
        return self.backbone

    def forward(self, images: paddle.Tensor) -> paddle.Tensor | tuple[paddle.Tensor, paddle.Tensor]:
        """Logits, float32 (N, classes, h, w), at the network's own resolution: whoever calls it resizes them,
        bilinearly between the centres of pixels. In training mode, of a model with an auxiliary head, also that head's.

        Args:
            images: float32 (N, 3, H, W), normalised.
        """
        raise NotImplementedError


def resized(x: paddle.Tensor, size: Sequence[int]) -> paddle.Tensor:
    """Maps (N, channels, height, width) at another (height, width): bilinear between the centres of positions. Under
    mixed precision Paddle interpolates in float32; the result has the dtype of what came in."""
    if list(x.shape[2:]) == list(size):
        return x
    return as_dtype(F.interpolate(x, size=list(size), mode="bilinear", align_corners=False), x.dtype)
