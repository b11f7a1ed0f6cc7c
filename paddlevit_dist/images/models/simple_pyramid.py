"""ViTDet's simple feature pyramid: four maps of the one that a plain Vision Transformer ends with.

Source: Li et al., Exploring Plain Vision Transformer Backbones for Object Detection, arXiv 2203.16527, section 3 and
appendix A.2.
"""

import paddle
from paddle import nn
from paddle.nn import functional as F

from ...core.runtime.errors import UserError
from .layers import Conv2D, Conv2DTranspose, LayerNorm

_EPSILON = 1e-6


class ChannelNorm(LayerNorm):
    """Over the channels of (batch, channels, height, width)."""

    def __init__(self, channels: int):
        super().__init__(channels, epsilon=_EPSILON)

    def forward(self, x):
        """Normalize the channels of (batch, channels, height, width)."""
        return LayerNorm.forward(self, x.transpose([0, 2, 3, 1])).transpose([0, 3, 1, 2])


class SimplePyramid(nn.Layer):
    """Make the last ``maps`` of four maps, of strides 4, 8, 16 and 32 pixels for patches of 16, from a ViT's map.

    The map of ``width`` channels is enlarged, taken unchanged, and pooled by maxima; each result passes a convolution
    of 1 x 1 and one of 3 x 3 to ``channels``. A ``UserError`` refuses patches that are not a multiple of 4 pixels.
    """

    def __init__(self, width: int, channels: int, maps: int, patch_size: int):
        super().__init__()
        if patch_size % 4:
            raise UserError(
                f"option pyramid: a quarter of a patch needs patches of a multiple of 4 pixels, not {patch_size}: "
                "take a backbone with patch16 in its name"
            )
        self.strides = (patch_size // 4, patch_size // 2, patch_size, 2 * patch_size)[-maps:]

        def enlarge(inputs: int) -> nn.Layer:
            return Conv2DTranspose(inputs, inputs // 2, 2, stride=2)

        quarter = [enlarge(width), ChannelNorm(width // 2), nn.GELU(), enlarge(width // 2)]
        scales = [nn.Sequential(*quarter), enlarge(width), nn.Identity(), nn.MaxPool2D(2, 2)]
        self.scales = nn.LayerList(scales[-maps:])
        widths = (width // 4, width // 2, width, width)[-maps:]
        self.outputs = nn.LayerList([_output(inputs, channels) for inputs in widths])

    def forward(self, x: paddle.Tensor) -> list[paddle.Tensor]:
        """Make maps (batch, channels, height, width), from fine to coarse, of (batch, width, rows, columns)."""
        odd = [side % 2 for side in x.shape[2:]]
        padded = F.pad(x, [0, odd[1], 0, odd[0]], mode="replicate") if any(odd) else x  # no patch is lost
        *finer, last = zip(self.scales, self.outputs)
        return [*(output(scale(x)) for scale, output in finer), last[1](last[0](padded))]


def _output(inputs: int, channels: int) -> nn.Sequential:
    first = Conv2D(inputs, channels, 1, bias_attr=False)
    second = Conv2D(channels, channels, 3, padding=1, bias_attr=False)
    return nn.Sequential(first, ChannelNorm(channels), second, ChannelNorm(channels))
