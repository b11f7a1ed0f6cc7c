"""Maps of one width at all resolutions, each with what the coarser ones have found.

Source: Lin et al., Feature Pyramid Networks for Object Detection, 2017, section 3. Parameter names are torchvision's.
"""

from __future__ import annotations

import math
from typing import List, Sequence

import paddle
from paddle import nn
from paddle.nn import functional as F

from ....autocast import as_dtype
from ....contracts.model import Model
from ...kernels.layers import Conv2D, LayerNorm
from ..detector import uniform, zeros

_BEHIND_THE_MAPS = ("norm.", "head.")  # a backbone's layers that no map depends on: they have nothing to learn from


class FeaturePyramid(nn.Layer):
    """As many maps as it is given, and one of half the last one's resolution.

    Args:
        inputs: channels of the maps, from fine to coarse.
        channels: of its own maps.
    """

    def __init__(self, inputs: Sequence[int], channels: int):
        super().__init__()
        self.inner_blocks = nn.LayerList([nn.Sequential(_convolution(width, channels, 1)) for width in inputs])
        self.layer_blocks = nn.LayerList([nn.Sequential(_convolution(channels, channels, 3)) for _ in inputs])

    def forward(self, maps: Sequence[paddle.Tensor]) -> List[paddle.Tensor]:
        """(N, channels, height, width) of each level of ``maps``, and of the additional one."""
        above, results = None, []
        for number in reversed(range(len(maps))):
            x = self.inner_blocks[number](maps[number])
            if above is not None:
                # Under mixed precision Paddle interpolates in float32.
                x = x + as_dtype(F.interpolate(above, size=x.shape[2:], mode="nearest"), x.dtype)
            above = x
            results.insert(0, self.layer_blocks[number](x))
        return [*results, F.max_pool2d(results[-1], kernel_size=1, stride=2)]


def _convolution(inputs: int, outputs: int, kernel_size: int) -> Conv2D:
    """A convolution whose values begin as torchvision's (He et al., 2015, uniform, with gain 1)."""
    bound = math.sqrt(3.0 / (inputs * kernel_size**2))
    return Conv2D(inputs, outputs, kernel_size, padding=kernel_size // 2, weight_attr=uniform(bound), bias_attr=zeros())


class PyramidBackbone(nn.Layer):
    """A classifier's body with a pyramid on its last four maps.

    Args:
        body: a model that has ``features``, without classifier.
        channels: of the pyramid's maps.
        has_norm: whether each of the body's maps is normalised over its channels first.

    Attributes:
        strides: pixels to a position of each of the pyramid's maps.
    """

    def __init__(self, body: Model, channels: int, has_norm: bool):
        super().__init__()
        self.body = body
        widths = body.feature_channels[-4:]
        self.norms = nn.LayerList([LayerNorm(width, epsilon=1e-5) for width in widths] if has_norm else [])
        self.fpn = FeaturePyramid(widths, channels)
        for name, parameter in body.named_parameters():
            if name.startswith(_BEHIND_THE_MAPS):
                parameter.stop_gradient = True
        strides = body.feature_strides[-4:]
        self.strides = (*strides, 2 * strides[-1])

    def forward(self, images: paddle.Tensor) -> List[paddle.Tensor]:
        """Maps of images (N, 3, H, W), from fine to coarse."""
        maps = self.body.features(images)[-4:]
        if len(self.norms):
            maps = [norm(x.transpose([0, 2, 3, 1])).transpose([0, 3, 1, 2]) for norm, x in zip(self.norms, maps)]
        return self.fpn(maps)
