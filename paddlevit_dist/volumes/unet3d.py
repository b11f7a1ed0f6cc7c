"""Residual U-Net in three dimensions.

Source: O. Çiçek et al., 2016, "3D U-Net", arXiv 1606.06650, for the shape of the network. Residual blocks follow K. He
et al., 2016, arXiv 1512.03385, and skip connections are added instead of concatenated.
"""

from collections.abc import Callable

import paddle
import paddle.nn.functional as F
from paddle import nn

from ..runtime.autocast import as_dtype
from ..runtime.errors import UserError
from ..tasks.model import Model

_NORMS = {"batch": nn.BatchNorm3D, "instance": nn.InstanceNorm3D}
Activation = Callable[[paddle.Tensor], paddle.Tensor]
_ACTIVATIONS: dict[str, Activation] = {"relu": F.relu, "leaky_relu": F.leaky_relu}  # the slope below 0 is 0.01


class UNetBlock(nn.Layer):
    """Two 3 x 3 x 3 convolutions with normalization and a residual shortcut."""

    def __init__(self, channels: int, norm: str, activation: str) -> None:
        super().__init__()
        self.activation = _ACTIVATIONS[activation]
        self.conv1 = nn.Conv3D(channels, channels, 3, padding=1, bias_attr=False)
        self.norm1 = _NORMS[norm](channels)
        self.conv2 = nn.Conv3D(channels, channels, 3, padding=1, bias_attr=False)
        self.norm2 = _NORMS[norm](channels)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Run a forward pass on a volume (batch, channels, depth, height, width)."""
        inner = self.activation(self.norm1(self.conv1(x)))
        return self.activation(x + self.norm2(self.conv2(inner)))


class UNetLevel(nn.Layer):
    """Blocks of one resolution."""

    def __init__(self, channels: int, blocks: int, norm: str, activation: str) -> None:
        super().__init__()
        self.blocks = nn.LayerList([UNetBlock(channels, norm, activation) for _ in range(blocks)])

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Run a forward pass on a volume (batch, channels, depth, height, width)."""
        for block in self.blocks:
            x = block(x)
        return x


class ResolutionChange(nn.Layer):
    """Convolution with normalization that halves (stride 2) or keeps the resolution."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, norm: str) -> None:
        super().__init__()
        self.conv = nn.Conv3D(inputs, outputs, kernel, stride=stride, padding=(kernel - 1) // 2, bias_attr=False)
        self.norm = _NORMS[norm](outputs)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Run a forward pass on a volume (batch, channels, depth, height, width)."""
        return self.norm(self.conv(x))


class UNet3D(Model):
    """Network that maps a volume to one map per class, of the same size.

    Args:
        num_classes: maps; 0 returns the features.
        in_channels: channels of the volume.
        width: channels of the first level; level k has ``width * 2**k``.
        depth: levels below the first, each of half the resolution.
        blocks: residual blocks per level, in the encoder and in the decoder.
        norm: "batch" or "instance".
        activation: "relu", or "leaky_relu" with a slope of 0.01 below 0.
        supervised: levels below the first with a separate head, whose maps are also returned in training mode; at most
            ``depth`` - 1 (C.-Y. Lee et al., 2015, "Deeply-Supervised Nets", arXiv 1409.5185).
    """

    works_on = "volumes of any size"
    classifier_layers = ("head", "side_heads")

    def __init__(
        self,
        num_classes: int = 1,
        in_channels: int = 1,
        width: int = 16,
        depth: int = 3,
        blocks: int = 1,
        norm: str = "batch",
        activation: str = "relu",
        supervised: int = 0,
    ) -> None:
        super().__init__()
        for what, name, choices in (("norm", norm, _NORMS), ("activation", activation, _ACTIVATIONS)):
            if name not in choices:
                raise UserError(f"unet3d: unknown {what} '{name}'; expected one of {', '.join(choices)}")
        if min(width, depth, blocks) < 1:
            raise UserError(f"unet3d: width {width}, depth {depth} and blocks {blocks} must be at least 1")
        if not 0 <= supervised < depth:
            raise UserError(f"unet3d: supervised is {supervised}, expected 0 to {depth - 1}, one less than depth")
        self.in_channels, self.width, self.depth, self.supervised = in_channels, width, depth, supervised
        self.activation = _ACTIVATIONS[activation]
        widths = [width * 2**level for level in range(depth + 1)]
        self.stem = ResolutionChange(in_channels, width, 3, 1, norm)
        self.encoder = nn.LayerList([UNetLevel(channels, blocks, norm, activation) for channels in widths])
        self.down = nn.LayerList([ResolutionChange(a, b, 2, 2, norm) for a, b in zip(widths, widths[1:])])
        self.up = nn.LayerList([ResolutionChange(b, a, 1, 1, norm) for a, b in zip(widths, widths[1:])])
        self.decoder = nn.LayerList([UNetLevel(channels, blocks, norm, activation) for channels in widths[:-1]])
        self.reset_classifier(num_classes)

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the last layer with a new one for ``num_classes`` maps."""
        self.num_classes = num_classes
        self.head = nn.Conv3D(self.width, num_classes, 1) if num_classes else nn.Identity()
        levels = range(1, self.supervised + 1) if num_classes else ()
        self.side_heads = nn.LayerList([nn.Conv3D(self.width * 2**level, num_classes, 1) for level in levels])
        for head in (self.head, *self.side_heads) if num_classes else ():
            # Heatmaps are 0 almost everywhere, so an untrained network should output that.
            nn.initializer.Normal(std=0.01)(head.weight)

    def layer_groups(self) -> list[list[str]]:
        """Return the parameter names of the stem, each level with its resolution change, and the head."""
        down = [("encoder.0.",), *((f"down.{level}.", f"encoder.{level + 1}.") for level in range(self.depth))]
        up = [(f"up.{level}.", f"decoder.{level}.") for level in reversed(range(self.depth))]
        names = [name for name, _ in self.named_parameters()]
        parts = [("stem.",), *down, *up, ("head.", "side_heads.")]
        return [[name for name in names if name.startswith(part)] for part in parts]

    def forward_features(self, x: paddle.Tensor) -> paddle.Tensor:
        """Compute features (batch, width, depth, height, width) of (batch, in_channels, depth, height, width)."""
        return self._levels(x)[0]

    def _levels(self, x: paddle.Tensor) -> list[paddle.Tensor]:
        """Compute the decoder features, first level first; level k has every 2**k-th voxel of the input."""
        size = x.shape[2:]
        multiple = 2**self.depth
        padding: list[int] = []
        for length in reversed(size):  # Paddle counts from the last axis
            padding += [0, -length % multiple]
        if any(padding):
            x = F.pad(x, padding, mode="constant", value=0.0, data_format="NCDHW")
        x = self.activation(self.stem(x))
        skips = []
        for level, down in zip(self.encoder, self.down):
            x = level(x)
            skips.append(x)
            x = self.activation(down(x))
        x = self.encoder[self.depth](x)
        features: list[paddle.Tensor] = []
        for level in reversed(range(self.depth)):
            # Channels are reduced before the resolution rises: an eighth of the work.
            x = F.interpolate(self.up[level](x), scale_factor=2, mode="nearest", data_format="NCDHW")
            x = as_dtype(x, skips[level].dtype)  # under mixed precision Paddle interpolates in float32
            x = self.decoder[level](self.activation(x + skips[level]))
            features.insert(0, x)
        if not any(padding):
            return features
        ends = [[-(-length // 2**level) for length in size] for level in range(len(features))]
        return [x[:, :, :depth, :height, :width] for x, (depth, height, width) in zip(features, ends)]

    def forward(self, x: paddle.Tensor) -> paddle.Tensor | list[paddle.Tensor]:
        """Compute maps (batch, num_classes, ...) of volumes (batch, in_channels, depth, height, width).

        In training mode with supervised levels, returns a list; map k has every 2**k-th voxel along each axis.
        """
        if not (self.training and len(self.side_heads)):
            return self.head(self.forward_features(x))
        first, *deeper = self._levels(x)
        return [self.head(first), *(head(level) for head, level in zip(self.side_heads, deeper))]
