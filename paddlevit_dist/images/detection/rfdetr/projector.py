"""RF-DETR's projector, which joins the maps of a plain Vision Transformer to one.

Source: Chen et al., LW-DETR, arXiv 2406.03458, section 3.1 and figure 2, with the authors' ``MultiScaleProjector``;
its block is YOLOv8's C2f with layer norms. ``bn`` (here a layer norm), ``cv1``, ``cv2`` and ``m`` are the names of the
authors' parameters.
"""

import paddle
from paddle import nn
from paddle.nn import functional as F

from ...models.layers import Conv2D
from ...models.simple_pyramid import ChannelNorm

_BOTTLENECKS = 3


class ConvLayerNormSiLU(nn.Layer):
    """A convolution without bias, a layer norm over channels, and SiLU."""

    def __init__(self, inputs: int, outputs: int, kernel_size: int):
        super().__init__()
        self.conv = Conv2D(inputs, outputs, kernel_size, padding=kernel_size // 2, bias_attr=False)
        self.bn = ChannelNorm(outputs)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Apply the layers to (batch, inputs, height, width)."""
        return F.silu(self.bn(self.conv(x)))


class ProjectorBottleneck(nn.Layer):
    """Two convolutions of 3 x 3."""

    def __init__(self, channels: int):
        super().__init__()
        self.cv1, self.cv2 = (ConvLayerNormSiLU(channels, channels, 3) for _ in range(2))

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Apply the layers to (batch, channels, height, width)."""
        return self.cv2(self.cv1(x))


class CrossStageBlock(nn.Layer):
    """C2f: half of the channels pass consecutive bottlenecks, and all results are concatenated."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        half = outputs // 2
        self.cv1 = ConvLayerNormSiLU(inputs, 2 * half, 1)
        self.m = nn.LayerList([ProjectorBottleneck(half) for _ in range(_BOTTLENECKS)])
        self.cv2 = ConvLayerNormSiLU((2 + _BOTTLENECKS) * half, outputs, 1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Return (batch, outputs, height, width) of (batch, inputs, height, width)."""
        parts = self.cv1(x).chunk(2, axis=1)
        for bottleneck in self.m:
            parts.append(bottleneck(parts[-1]))
        return self.cv2(paddle.concat(parts, axis=1))


class Projector(nn.Sequential):
    """Joins maps of one size, concatenated along channels, to a map of ``outputs`` channels."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(CrossStageBlock(inputs, outputs), ChannelNorm(outputs))
