"""A residual U-Net in three dimensions.

Source: O. Çiçek et al., 2016, "3D U-Net", arXiv 1606.06650, for the shape of the network, with the residual blocks of
K. He et al., 2016, arXiv 1512.03385, and skip connections that are added instead of concatenated.
"""

import paddle
import paddle.nn.functional as F
from paddle import nn

from ..contracts.model import Model
from ..runtime.autocast import as_dtype
from ..runtime.errors import UserError

_NORMS = {"batch": nn.BatchNorm3D, "instance": nn.InstanceNorm3D}


class Block(nn.Layer):
    """Two 3 x 3 x 3 convolutions with normalisation and a residual shortcut."""

    def __init__(self, channels: int, norm: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv3D(channels, channels, 3, padding=1, bias_attr=False)
        self.norm1 = _NORMS[norm](channels)
        self.conv2 = nn.Conv3D(channels, channels, 3, padding=1, bias_attr=False)
        self.norm2 = _NORMS[norm](channels)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        inner = F.relu(self.norm1(self.conv1(x)))
        return F.relu(x + self.norm2(self.conv2(inner)))


class Level(nn.Layer):
    """The blocks of one resolution."""

    def __init__(self, channels: int, blocks: int, norm: str) -> None:
        super().__init__()
        self.blocks = nn.LayerList([Block(channels, norm) for _ in range(blocks)])

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class Change(nn.Layer):
    """A convolution with normalisation that halves (stride 2) or keeps the resolution."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, norm: str) -> None:
        super().__init__()
        self.conv = nn.Conv3D(inputs, outputs, kernel, stride=stride, padding=(kernel - 1) // 2, bias_attr=False)
        self.norm = _NORMS[norm](outputs)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.norm(self.conv(x))


class UNet3D(Model):
    """Maps a volume to one map per class, of the same size.

    Args:
        num_classes: maps; 0 gives the features.
        in_channels: of the volume.
        width: channels of the first level; level k has ``width * 2**k``.
        depth: levels below the first, each of half the resolution.
        blocks: residual blocks per level, on the way down and on the way up.
        norm: "batch" or "instance".
    """

    works_on = "volumes of any size"

    def __init__(
        self,
        num_classes: int = 1,
        in_channels: int = 1,
        width: int = 16,
        depth: int = 3,
        blocks: int = 1,
        norm: str = "batch",
    ) -> None:
        super().__init__()
        if norm not in _NORMS:
            raise UserError(f"unet3d: norm '{norm}' is not known; expected one of {', '.join(_NORMS)}")
        if min(width, depth, blocks) < 1:
            raise UserError(f"unet3d: width {width}, depth {depth} and blocks {blocks} must be at least 1")
        self.in_channels, self.width, self.depth = in_channels, width, depth
        widths = [width * 2**level for level in range(depth + 1)]
        self.stem = Change(in_channels, width, 3, 1, norm)
        self.encoder = nn.LayerList([Level(channels, blocks, norm) for channels in widths])
        self.down = nn.LayerList([Change(a, b, 2, 2, norm) for a, b in zip(widths, widths[1:])])
        self.up = nn.LayerList([Change(b, a, 1, 1, norm) for a, b in zip(widths, widths[1:])])
        self.decoder = nn.LayerList([Level(channels, blocks, norm) for channels in widths[:-1]])
        self.reset_classifier(num_classes)

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the last layer with a new one for ``num_classes`` maps."""
        self.num_classes = num_classes
        self.head = nn.Conv3D(self.width, num_classes, 1) if num_classes else nn.Identity()
        if num_classes:
            # Heatmaps are 0 almost everywhere, so an untrained network should output that.
            nn.initializer.Normal(std=0.01)(self.head.weight)

    def layer_groups(self) -> list[list[str]]:
        """The stem, each level of the way down and of the way up with what leads to it, and the head."""
        down = [("encoder.0.",), *((f"down.{level}.", f"encoder.{level + 1}.") for level in range(self.depth))]
        up = [(f"up.{level}.", f"decoder.{level}.") for level in reversed(range(self.depth))]
        names = [name for name, _ in self.named_parameters()]
        return [[name for name in names if name.startswith(part)] for part in [("stem.",), *down, *up, ("head.",)]]

    def forward_features(self, x: paddle.Tensor) -> paddle.Tensor:
        """Features of the first level: (batch, in_channels, depth, height, width) to (batch, width, the same)."""
        size = x.shape[2:]
        multiple = 2**self.depth
        padding: list[int] = []
        for length in reversed(size):  # Paddle counts from the last axis
            padding += [0, -length % multiple]
        if any(padding):
            x = F.pad(x, padding, mode="constant", value=0.0, data_format="NCDHW")
        x = F.relu(self.stem(x))
        skips = []
        for level, down in zip(self.encoder, self.down):
            x = level(x)
            skips.append(x)
            x = F.relu(down(x))
        x = self.encoder[self.depth](x)
        for level in reversed(range(self.depth)):
            # Channels are reduced before the resolution rises: an eighth of the work.
            x = F.interpolate(self.up[level](x), scale_factor=2, mode="nearest", data_format="NCDHW")
            x = as_dtype(x, skips[level].dtype)  # under mixed precision Paddle interpolates in float32
            x = self.decoder[level](F.relu(x + skips[level]))
        return x[:, :, : size[0], : size[1], : size[2]] if any(padding) else x

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Maps (batch, num_classes, depth, height, width) of a volume (batch, in_channels, depth, height, width)."""
        return self.head(self.forward_features(x))
