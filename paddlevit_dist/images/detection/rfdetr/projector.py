"""RF-DETR's projector, which joins the maps of a plain Vision Transformer to one of each level.

Source: Chen et al., LW-DETR, arXiv 2406.03458, section 3.1 and figure 2, with the authors' ``MultiScaleProjector``;
its block is YOLOv8's C2f with layer norms. ``bn`` (here a layer norm), ``cv1``, ``cv2`` and ``m`` are the names of the
authors' parameters.
"""

from collections.abc import Callable, Sequence

import paddle
from paddle import nn
from paddle.nn import functional as F

from ....core.runtime.errors import UserError
from ...models.layers import Conv2D, Conv2DTranspose
from ...models.simple_pyramid import ChannelNorm

_BOTTLENECKS = 3
FINE, PLAIN, COARSE = 3, 4, 5  # levels: twice as fine as the backbone's maps, as fine, half as fine

Activation = Callable[[paddle.Tensor], paddle.Tensor]


class ConvLayerNorm(nn.Layer):
    """A convolution without bias, a layer norm over channels, and an activation."""

    def __init__(self, inputs: int, outputs: int, kernel_size: int, stride: int = 1, activation: Activation = F.silu):
        super().__init__()
        self._activation = activation
        self.conv = Conv2D(inputs, outputs, kernel_size, stride=stride, padding=kernel_size // 2, bias_attr=False)
        self.bn = ChannelNorm(outputs)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Apply the layers to (batch, inputs, height, width)."""
        return self._activation(self.bn(self.conv(x)))


class ProjectorBottleneck(nn.Layer):
    """Two convolutions, without a residual connection."""

    def __init__(self, channels: int):
        super().__init__()
        self.cv1, self.cv2 = (ConvLayerNorm(channels, channels, 3) for _ in range(2))

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Apply the layers to (batch, channels, height, width)."""
        return self.cv2(self.cv1(x))


class CrossStageBlock(nn.Layer):
    """C2f: half of the channels pass consecutive bottlenecks, and all results are concatenated."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        half = outputs // 2
        self.cv1 = ConvLayerNorm(inputs, 2 * half, 1)
        self.m = nn.LayerList([ProjectorBottleneck(half) for _ in range(_BOTTLENECKS)])
        self.cv2 = ConvLayerNorm((2 + _BOTTLENECKS) * half, outputs, 1)

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


class MapScaler(nn.LayerList):
    """Brings maps of the ``widths`` to the size of a level, and concatenates them along channels.

    A ``UserError`` says that there is no such level.
    """

    def __init__(self, widths: Sequence[int], level: int):
        scale = _SCALES.get(level)
        if scale is None:
            raise UserError(f"option levels: level {level} is not known: expected some of {list(_SCALES)}")
        super().__init__([scale(width) for width in widths])
        self.channels = sum(width // 2 if level == FINE else width for width in widths)

    def forward(self, maps: Sequence[paddle.Tensor]) -> paddle.Tensor:
        """Return (batch, channels, rows, columns) of maps (batch, width, height, width in cells)."""
        return paddle.concat([layer(x) for layer, x in zip(self, maps)], axis=1)


_SCALES: dict[int, Callable[[int], nn.Layer]] = {
    FINE: lambda width: Conv2DTranspose(width, width // 2, 2, stride=2),
    PLAIN: lambda width: nn.Identity(),
    COARSE: lambda width: ConvLayerNorm(width, width, 3, stride=2, activation=F.relu),
}
