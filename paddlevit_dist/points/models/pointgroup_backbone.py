"""PointGroup's network: a residual sparse U-Net with a semantic and an offset head, and its score branch.

Source: L. Jiang et al., "PointGroup: Dual-Set Point Grouping for 3D Instance Segmentation", CVPR 2020, arXiv
2004.01658, sections 3.2 and 3.4; state-dict names and the weight layout of spconv 1.x as in its published checkpoints.
"""

from __future__ import annotations

from typing import Optional, Sequence, Tuple

import paddle
from paddle import nn

from ..sparse.layers import BatchNorm, ReLU, RowsBatchNorm, SparseNetwork
from ..sparse.spconv_layers import InverseConv3D, StridedConv3D, SubmanifoldConv3D
from ..sparse.tensor import SparseTensor, cat
from .variants import from_torch_names

_EPSILON = 1e-4  # of every batch normalisation; the momentum is 0.1 in PyTorch's sense
NUM_LEVELS = 7


class ResidualBlock(nn.Layer):
    """Two convolutions, each after normalisation and ReLU, beside a shortcut."""

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        same = in_channels == out_channels
        self.i_branch = nn.Sequential(nn.Identity() if same else SubmanifoldConv3D(in_channels, out_channels, 1))
        self.conv_branch = nn.Sequential(
            BatchNorm(in_channels, epsilon=_EPSILON),
            ReLU(),
            SubmanifoldConv3D(in_channels, out_channels, 3),
            BatchNorm(out_channels, epsilon=_EPSILON),
            ReLU(),
            SubmanifoldConv3D(out_channels, out_channels, 3),
        )

    def forward(self, x: SparseTensor) -> SparseTensor:
        return self.conv_branch(x) + self.i_branch(x)


class UBlock(nn.Layer):
    """One level of the U-Net and, inside it, all deeper ones.

    Args:
        widths: channels of this level and of those below it.
        repeats: residual blocks on the way down, and as many on the way up.
    """

    def __init__(self, widths: Sequence[int], repeats: int = 2):
        super().__init__()
        width = widths[0]
        self.blocks = _blocks([width] * (repeats + 1))
        self.is_deepest = len(widths) == 1
        if self.is_deepest:
            return
        self.conv = nn.Sequential(
            BatchNorm(width, epsilon=_EPSILON), ReLU(), StridedConv3D(width, widths[1], 2, stride=2)
        )
        self.u = UBlock(widths[1:], repeats)
        self.deconv = nn.Sequential(
            BatchNorm(widths[1], epsilon=_EPSILON), ReLU(), InverseConv3D(widths[1], width, 2, stride=2)
        )
        self.blocks_tail = _blocks([2 * width] + [width] * repeats)

    def forward(self, x: SparseTensor) -> SparseTensor:
        x = self.blocks(x)
        if self.is_deepest:
            return x
        from_below = self.deconv(self.u(self.conv(x)))
        return self.blocks_tail(cat(x, from_below))


def _blocks(channels: Sequence[int]) -> nn.Sequential:
    steps = zip(channels[:-1], channels[1:])
    return nn.Sequential(*((f"block{i}", ResidualBlock(*step)) for i, step in enumerate(steps)))


class PointGroupBackbone(SparseNetwork):
    """U-Net of seven levels, semantic scores and offsets to the centre of a point's instance.

    The original's strided convolution drops voxels at an odd upper border of its grid; this one keeps them.

    Args:
        num_classes: semantic classes.
        in_channels: of the voxel features; 6 are colour and position.
        width: channels of the first level, ``m`` in the paper's code; level i has i times as many.
        repeats: residual blocks of a level on each way.
    """

    classifier_layers = ("linear",)
    key_maps = {"PointGroup": from_torch_names}

    def __init__(self, num_classes: int = 20, in_channels: int = 6, width: int = 16, repeats: int = 2):
        super().__init__(in_channels, 3)
        self.width, self.repeats = width, repeats
        self.input_conv = nn.Sequential(SubmanifoldConv3D(in_channels, width, 3))
        self.unet = UBlock([width * level for level in range(1, NUM_LEVELS + 1)], repeats)
        self.output_layer = nn.Sequential(BatchNorm(width, epsilon=_EPSILON), ReLU())
        self.reset_classifier(num_classes)
        self.offset = nn.Sequential(nn.Linear(width, width), RowsBatchNorm(width, epsilon=_EPSILON), nn.ReLU())
        self.offset_linear = nn.Linear(width, 3)

    def forward_features(self, x: SparseTensor) -> SparseTensor:
        """Features (N, width) on the voxels of ``x``, which is (N, in_channels) at stride 1."""
        return self.output_layer(self.unet(self.input_conv(x)))

    def forward(
        self, x: SparseTensor, inverse: Optional[paddle.Tensor] = None
    ) -> Tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
        """Features, semantic scores and offsets of the points, or of the voxels without ``inverse``.

        Args:
            x: voxels.
            inverse: int (P,), the voxel row of each point.

        Returns:
            features (P, width), semantic scores (P, num_classes), offsets (P, 3) in the unit of the positions.
        """
        voxels = self.forward_features(x)
        features = voxels.features if inverse is None else voxels.slice(inverse)  # (P, width)
        return features, self.linear(features), self.offset_linear(self.offset(features))

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the semantic head by a fresh one."""
        self.num_classes = num_classes
        self.linear = nn.Linear(self.width, num_classes)


class PointGroupNetwork(PointGroupBackbone):
    """The backbone and the parts that score clusters: a U-Net of two levels over the voxels of each cluster."""

    def __init__(self, num_classes: int = 20, in_channels: int = 6, width: int = 16, repeats: int = 2):
        super().__init__(num_classes, in_channels, width, repeats)
        self.score_unet = UBlock([width, 2 * width], repeats)
        self.score_outputlayer = nn.Sequential(BatchNorm(width, epsilon=_EPSILON), ReLU())
        self.score_linear = nn.Linear(width, 1)

    def score_features(self, clusters: SparseTensor) -> paddle.Tensor:
        """Features (N, width) of the clusters' voxels, from which the largest of each cluster is scored.

        Args:
            clusters: features (N, width), the cluster's number in column 0 of the coordinates.
        """
        return self.score_outputlayer(self.score_unet(clusters)).features
