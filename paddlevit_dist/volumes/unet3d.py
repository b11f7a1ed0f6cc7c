"""Residual U-Net in three dimensions.

Source: O. Çiçek et al., 2016, "3D U-Net", arXiv 1606.06650, for the shape of the network. Residual blocks follow K. He
et al., 2016, arXiv 1512.03385, and skip connections are added instead of concatenated.
"""

import math
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import nn

from ..core.runtime.autocast import as_dtype, widen_for_sum
from ..core.runtime.errors import UserError
from ..core.tasks.model import Model
from .settings import VolumeSection

Lengths = tuple[int, int, int]  # along depth, height and width
_CUBE, _HALF = (3, 3, 3), (2, 2, 2)
Activation = Callable[[paddle.Tensor], paddle.Tensor]
_ACTIVATIONS: dict[str, Activation] = {"relu": F.relu, "leaky_relu": F.leaky_relu}  # the slope below 0 is 0.01


class InstanceNorm3D(nn.InstanceNorm3D):
    """Paddle's instance norm, with sums over many voxels in float64 on CPUs."""

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Normalize each channel of (batch, channels, depth, height, width)."""
        wide = widen_for_sum(x, math.prod(x.shape[2:]))
        if wide is x:
            return super().forward(x)
        scale, bias = self.scale.astype(wide.dtype), self.bias.astype(wide.dtype)
        return F.instance_norm(wide, weight=scale, bias=bias, eps=self._epsilon).astype(x.dtype)


_NORMS = {"batch": nn.BatchNorm3D, "instance": InstanceNorm3D}


class UNetBlock(nn.Layer):
    """Two convolutions with normalization and a residual shortcut."""

    def __init__(self, channels: int, kernel: Lengths, norm: str, activation: str) -> None:
        super().__init__()
        self.activation, padding = _ACTIVATIONS[activation], [length // 2 for length in kernel]
        self.conv1 = nn.Conv3D(channels, channels, kernel, padding=padding, bias_attr=False)
        self.norm1 = _NORMS[norm](channels)
        self.conv2 = nn.Conv3D(channels, channels, kernel, padding=padding, bias_attr=False)
        self.norm2 = _NORMS[norm](channels)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Run a forward pass on a volume (batch, channels, depth, height, width)."""
        inner = self.activation(self.norm1(self.conv1(x)))
        return self.activation(x + self.norm2(self.conv2(inner)))


class UNetLevel(nn.Layer):
    """Blocks of one resolution."""

    def __init__(self, channels: int, kernel: Lengths, blocks: int, norm: str, activation: str) -> None:
        super().__init__()
        self.blocks = nn.LayerList([UNetBlock(channels, kernel, norm, activation) for _ in range(blocks)])

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Run a forward pass on a volume (batch, channels, depth, height, width)."""
        for block in self.blocks:
            x = block(x)
        return x


class ResolutionChange(nn.Layer):
    """Convolution with normalization that halves (stride 2) or keeps the resolution along each axis."""

    def __init__(self, inputs: int, outputs: int, kernel: Lengths, stride: Lengths, norm: str) -> None:
        super().__init__()
        padding = [(length - 1) // 2 for length in kernel]
        self.conv = nn.Conv3D(inputs, outputs, kernel, stride=stride, padding=padding, bias_attr=False)
        self.norm = _NORMS[norm](outputs)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Run a forward pass on a volume (batch, channels, depth, height, width)."""
        return self.norm(self.conv(x))


class UNet3D(Model):
    """Network that maps a volume to one map per class, of the same size.

    Args:
        num_classes: maps; 0 returns the features.
        in_channels: channels of the volume.
        width: channels of the first level; level k has ``width * 2**k``, at most ``max_width``.
        depth: levels below the first, each of a lower resolution.
        blocks: residual blocks per level, in the encoder and in the decoder.
        norm: "batch" or "instance".
        activation: "relu", or "leaky_relu" with a slope of 0.01 below 0.
        supervised: levels below the first with a separate head, whose maps are also returned in training mode; at most
            ``depth`` - 1 (C.-Y. Lee et al., 2015, "Deeply-Supervised Nets", arXiv 1409.5185).
        kernels: sides of the convolutions of each level, the first too, 1 or 3 along each axis; None: 3.
        strides: step from each level to the next one below, 1 or 2 along each axis; None: 2.
        max_width: most channels of a level; None: no limit.
    """

    works_on = "volumes of any size"
    classifier_layers = ("head", "side_heads")
    least_values = {"blocks": 1}

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
        kernels: Sequence[Lengths] | None = None,
        strides: Sequence[Lengths] | None = None,
        max_width: int | None = None,
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
        kernels = [_CUBE] * (depth + 1) if kernels is None else list(kernels)
        self.strides = [_HALF] * depth if strides is None else list(strides)
        for what, found, expected in (("kernels", kernels, depth + 1), ("strides", self.strides, depth)):
            if len(found) != expected:
                raise UserError(f"unet3d: {len(found)} {what} for depth {depth}, expected {expected}")
            for lengths in found:
                are_numbers = isinstance(lengths, (list, tuple)) and all(isinstance(each, Integral) for each in lengths)
                if not are_numbers or len(lengths) != 3:
                    raise UserError(f"unet3d: {what} has {lengths}, expected three whole numbers, such as [1, 2, 2]")
        self.steps = level_steps(self.strides)
        self.widths = widths = [min(width * 2**level, max_width or width * 2**depth) for level in range(depth + 1)]
        one = (1, 1, 1)
        self.stem = ResolutionChange(in_channels, widths[0], kernels[0], one, norm)
        levels = [UNetLevel(*level, blocks, norm, activation) for level in zip(widths, kernels)]
        self.encoder = nn.LayerList(levels)
        changes = list(zip(widths, widths[1:], self.strides))
        self.down = nn.LayerList([ResolutionChange(a, b, stride, stride, norm) for a, b, stride in changes])
        self.up = nn.LayerList([ResolutionChange(b, a, one, one, norm) for a, b, _ in changes])
        levels = [UNetLevel(*level, blocks, norm, activation) for level in zip(widths[:-1], kernels)]
        self.decoder = nn.LayerList(levels)
        self.reset_classifier(num_classes)

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the last layer with a new one for ``num_classes`` maps."""
        self.num_classes = num_classes
        self.head = nn.Conv3D(self.widths[0], num_classes, 1) if num_classes else nn.Identity()
        levels = range(1, self.supervised + 1) if num_classes else ()
        self.side_heads = nn.LayerList([nn.Conv3D(self.widths[level], num_classes, 1) for level in levels])
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
        """Compute the decoder features, first level first; level k has every ``steps[k]``-th voxel of the input."""
        size = x.shape[2:]
        padding: list[int] = []
        for length, multiple in zip(reversed(size), reversed(self.steps[-1])):  # Paddle counts from the last axis
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
            scale = list(self.strides[level])
            x = F.interpolate(self.up[level](x), scale_factor=scale, mode="nearest", data_format="NCDHW")
            x = as_dtype(x, skips[level].dtype)  # under mixed precision Paddle interpolates in float32
            x = self.decoder[level](self.activation(x + skips[level]))
            features.insert(0, x)
        if not any(padding):
            return features
        ends = [[-(-extent // step) for extent, step in zip(size, steps)] for steps in self.steps[: len(features)]]
        return [maps[:, :, :depth, :height, :width] for maps, (depth, height, width) in zip(features, ends)]

    def forward(self, x: paddle.Tensor) -> paddle.Tensor | list[paddle.Tensor]:
        """Compute maps (batch, num_classes, ...) of volumes (batch, in_channels, depth, height, width).

        In training mode with supervised levels, returns a list; map k has every ``steps[k]``-th voxel along each axis.
        """
        if not (self.training and len(self.side_heads)):
            return self.head(self.forward_features(x))
        first, *deeper = self._levels(x)
        return [self.head(first), *(head(level) for head, level in zip(self.side_heads, deeper))]


def level_steps(strides: Sequence[Lengths]) -> list[Lengths]:
    """Return the voxels of the first level between two voxels of each level, along each axis: 1 for the first."""
    steps: list[Lengths] = [(1, 1, 1)]
    for depth, height, width in strides:
        last = steps[-1]
        steps.append((last[0] * depth, last[1] * height, last[2] * width))
    return steps


def read_strides(volumes: VolumeSection) -> list[Lengths]:
    """Return the strides of the configured network; UserError if their number is not UNET_DEPTH."""
    return _read_lengths("UNET_STRIDES", volumes.UNET_STRIDES, volumes.UNET_DEPTH) or [_HALF] * volumes.UNET_DEPTH


def axis_options(volumes: VolumeSection) -> dict[str, Any]:
    """Return the options of ``UNet3D`` that differ between levels and axes, without those at their defaults.

    UserError is as from ``read_strides``, or if the number of kernels is not UNET_DEPTH + 1.
    """
    options = {
        "kernels": _read_lengths("UNET_KERNELS", volumes.UNET_KERNELS, volumes.UNET_DEPTH + 1),
        "strides": _read_lengths("UNET_STRIDES", volumes.UNET_STRIDES, volumes.UNET_DEPTH),
        "max_width": volumes.UNET_MAX_WIDTH,
    }
    return {name: value for name, value in options.items() if value}


def _read_lengths(name: str, texts: Sequence[str], expected: int) -> list[Lengths]:
    if texts and len(texts) != expected:
        of_depth = "UNET_DEPTH" if name == "UNET_STRIDES" else "UNET_DEPTH + 1"
        raise UserError(
            f"VOLUMES.{name} has {len(texts)} values, expected {expected} ({of_depth}), or [] for equal ones"
        )
    lengths = []
    for text in texts:
        depth, height, width = map(int, text.split("x"))
        lengths.append((depth, height, width))
    return lengths
