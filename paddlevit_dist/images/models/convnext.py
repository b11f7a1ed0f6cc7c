"""ConvNeXt: a convolutional network built from what made transformers good.

Source: Liu et al., A ConvNet for the 2020s, 2022 (section 2, appendix A). Parameter names are timm's; Linear weights
are (in, out) as Paddle stores them.
"""

from collections.abc import Sequence

from paddle import nn

from . import key_names
from .classifier import PyramidClassifier
from .layers import (
    ChannelsLastConv,
    ChannelsLastDepthwiseConv,
    DropPath,
    LayerNorm,
    Mlp,
    as_pair,
    rates_of_stages,
    starting_values,
)
from .variants import CONVNEXT

_DEVIATION = 0.02  # standard deviation of the initial weights


class ConvNeXtBlock(nn.Layer):
    """A depth-wise 7 x 7 convolution, a norm and an MLP over the channels, scaled and added to what came in.

    Like all layers here it works on (batch, height, width, channels), where norms and linear layers need no transpose.
    """

    def __init__(self, dim: int, init_values: float, drop_path: float):
        super().__init__()
        self.conv_dw = ChannelsLastDepthwiseConv(dim, 7, **starting_values(_DEVIATION))
        self.norm = LayerNorm(dim, epsilon=1e-6)
        self.mlp = Mlp(dim, 4 * dim)
        self.gamma = self.create_parameter([dim], default_initializer=nn.initializer.Constant(init_values))
        self.drop_path = DropPath(drop_path)

    def forward(self, x):
        """Map (batch, height, width, dim) to the same shape."""
        branch = self.mlp(self.norm(self.conv_dw(x)))
        return x + self.drop_path(self.gamma * branch)  # (batch, height, width, dim)


class ConvNeXtStage(nn.Layer):
    """Blocks at one resolution, after a norm and a stride-2 convolution in all stages but the first."""

    def __init__(self, in_channels: int, dim: int, halves: bool, init_values: float, drop_path: Sequence[float]):
        super().__init__()
        self.downsample = nn.Identity()
        if halves:
            self.downsample = nn.Sequential(
                LayerNorm(in_channels, epsilon=1e-6),
                ChannelsLastConv(in_channels, dim, 2, stride=2, **starting_values(_DEVIATION)),
            )
        self.blocks = nn.LayerList([ConvNeXtBlock(dim, init_values, rate) for rate in drop_path])

    def forward(self, x):
        """Map positions (batch, rows, columns, channels) to (batch, height, width, dim)."""
        x = self.downsample(x)
        for block in self.blocks:
            x = block(x)
        return x  # (batch, height, width, dim)


class ConvNeXt(PyramidClassifier):
    """ConvNeXt classifier.

    Args, in addition to the arguments of ``Classifier``:
        depths, dims: blocks and channels of each stage.
        init_values: initial scale of the residual branches.
    """

    variants = CONVNEXT
    key_maps = key_names.CONVNEXT
    classifier_layers = ("head.fc",)
    layer_names = r"stages\.\d+\.(?:downsample|blocks\.\d+)"

    def __init__(
        self,
        num_classes: int = 1000,
        image_size: int | tuple[int, int] = 224,
        patch_size: int = 4,
        depths: Sequence[int] = (3, 3, 9, 3),
        dims: Sequence[int] = (96, 192, 384, 768),
        init_values: float = 1e-6,
        in_channels: int = 3,
        dropout: float = 0.0,
        drop_path: float = 0.0,
    ):
        super().__init__()
        self.image_size, self.in_channels = as_pair(image_size), in_channels
        self.stem = nn.Sequential(
            ChannelsLastConv(
                in_channels, dims[0], patch_size, patch_size, is_channels_last=False, **starting_values(_DEVIATION)
            ),
            LayerNorm(dims[0], epsilon=1e-6),
        )
        self.stages = nn.LayerList(
            [
                ConvNeXtStage(dims[max(index - 1, 0)], dims[index], index > 0, init_values, rates)
                for index, rates in enumerate(rates_of_stages(drop_path, tuple(depths)))
            ]
        )
        self.feature_strides = tuple(patch_size * 2**index for index in range(len(depths)))
        self.feature_channels = tuple(dims)
        self.embed_dim = dims[-1]
        self.dropout = nn.Dropout(dropout)
        self.head = nn.LayerDict({"norm": LayerNorm(self.embed_dim, epsilon=1e-6)})
        self.reset_classifier(num_classes)

    def forward_features(self, x):
        """Compute the normalized mean (batch, embed_dim) over the positions of images (N, channels, height, width)."""
        return self.head["norm"](self.outputs(x)[-1].mean(axis=[1, 2]))

    def parts(self):
        """Return the stem, and the stages."""
        return (self.stem,), self.stages

    def forward(self, x):
        """Logits (batch, num_classes), or the features when the model has no classes."""
        return self.head["fc"](self.dropout(self.forward_features(x)))
