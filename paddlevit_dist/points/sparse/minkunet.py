"""MinkowskiEngine's U-Nets, a scene classifier with their encoder, and its tutorial's small network.

Parameter names and shapes are MinkowskiEngine's. Source: C. Choy, J. Gwak, S. Savarese, "4D Spatio-Temporal ConvNets:
Minkowski Convolutional Neural Networks", CVPR 2019, arXiv 1904.08755, figure 4; names, widths and depths as in
MinkowskiEngine 0.5 (examples/minkunet.py).
"""

import math
from collections.abc import Sequence

import paddle
from paddle import nn

from ...core.checkpoint.foreign_names import from_torch_names
from ...core.tasks.model import Variants
from .layers import Convolution, NestedBatchNorm, ReLU, SparseNetwork, TransposedConvolution
from .pooling import GlobalPooling
from .tensor import SparseTensor, cat


class ResidualBlock(nn.Layer):
    """Two 3-wide convolutions around a shortcut, normalized after each convolution (He et al., 2016)."""

    def __init__(self, in_channels: int, out_channels: int, dimension: int):
        super().__init__()
        self.conv1 = Convolution(in_channels, out_channels, 3, dimension=dimension)
        self.norm1 = NestedBatchNorm(out_channels)
        self.conv2 = Convolution(out_channels, out_channels, 3, dimension=dimension)
        self.norm2 = NestedBatchNorm(out_channels)
        self.relu = ReLU()
        self.downsample = None
        if in_channels != out_channels:
            shortcut = Convolution(in_channels, out_channels, 1, dimension=dimension)
            self.downsample = nn.Sequential(shortcut, NestedBatchNorm(out_channels))

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Return (N, out_channels) on the voxels of ``x`` (N, in_channels)."""
        y = self.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class MinkEncoder(SparseNetwork):
    """Encoder of MinkowskiEngine's U-Nets: five levels of voxels, strides 1 to 16, four stages of ``depths`` blocks."""

    layer_names = r"block\d\.\d+"
    key_maps = {"MinkowskiEngine": from_torch_names}

    def __init__(
        self, in_channels: int, depths: Sequence[int], widths: Sequence[int], first_channels: int, dimension: int
    ) -> None:
        super().__init__(in_channels, dimension)
        self.relu = ReLU()
        self.conv0p1s1 = Convolution(in_channels, first_channels, 5, dimension=dimension)
        self.bn0 = NestedBatchNorm(first_channels)
        channels = first_channels
        for stage, stride in enumerate((1, 2, 4, 8)):
            down = Convolution(channels, channels, 2, stride=2, dimension=dimension)
            setattr(self, f"conv{stage + 1}p{stride}s2", down)
            setattr(self, f"bn{stage + 1}", NestedBatchNorm(channels))
            setattr(self, f"block{stage + 1}", _stage(channels, widths[stage], depths[stage], dimension))
            channels = widths[stage]

    def levels(self, x: SparseTensor) -> list[SparseTensor]:
        """Return the features of the strides 1, 2, 4, 8 and 16."""
        features = [self.relu(self.bn0(self.conv0p1s1(x)))]
        for stage, stride in enumerate((1, 2, 4, 8), start=1):
            x = getattr(self, f"conv{stage}p{stride}s2")(features[-1])
            x = self.relu(getattr(self, f"bn{stage}")(x))
            features.append(getattr(self, f"block{stage}")(x))
        return features


# MinkowskiEngine 0.5, examples/minkunet.py.
_DOWN = (32, 64, 128, 256)
_DEPTHS = {"14": (1,) * 8, "18": (2,) * 8, "34": (2, 3, 4, 6, 2, 2, 2, 2)}
_UP = {
    "14a": (128, 128, 96, 96),
    "14b": (128, 128, 128, 128),
    "14c": (192, 192, 128, 128),
    "18a": (128, 128, 96, 96),
    "18b": (128, 128, 128, 128),
    "18c": (192, 192, 128, 128),  # not in MinkowskiEngine: the widths of 14c
    "34a": (256, 128, 64, 64),
    "34b": (256, 128, 64, 32),
    "34c": (256, 128, 96, 96),
}
VARIANTS: Variants = {
    f"minkunet{name}": {"depths": _DEPTHS[name[:2]], "widths": _DOWN + up} for name, up in _UP.items()
}


class MinkUNet(MinkEncoder):
    """U-Net over five levels of voxels, strides 1 to 16, with eight stages of residual blocks, four down and four up.

    With ``num_classes`` 0 it returns features.
    """

    variants = VARIANTS
    telling_name = "convtr#p#s#.kernel"
    classifier_layers = ("final",)

    def __init__(
        self,
        num_classes: int = 20,
        in_channels: int = 3,
        depths: Sequence[int] = VARIANTS["minkunet14a"]["depths"],
        widths: Sequence[int] = VARIANTS["minkunet14a"]["widths"],
        first_channels: int = 32,
        dimension: int = 3,
    ):
        super().__init__(in_channels, depths[:4], widths[:4], first_channels, dimension)
        self.num_features = widths[7]
        channels, skipped = widths[3], [first_channels, *widths[:3]]
        for stage, stride in zip(range(4, 8), (16, 8, 4, 2)):
            width = widths[stage]
            up = TransposedConvolution(channels, width, 2, stride=2, dimension=dimension)
            setattr(self, f"convtr{stage}p{stride}s2", up)
            setattr(self, f"bntr{stage}", NestedBatchNorm(width))
            setattr(self, f"block{stage + 1}", _stage(width + skipped.pop(), width, depths[stage], dimension))
            channels = width
        self.reset_classifier(num_classes)
        _initialize(self)

    def forward_features(self, x: SparseTensor) -> SparseTensor:
        """Return features (N, num_features) on the voxels of ``x``, which is (N, in_channels) at stride 1."""
        *skipped, x = self.levels(x)
        for stage, stride in zip(range(4, 8), (16, 8, 4, 2)):
            x = getattr(self, f"convtr{stage}p{stride}s2")(x)
            x = self.relu(getattr(self, f"bntr{stage}")(x))
            x = getattr(self, f"block{stage + 1}")(cat(x, skipped.pop()))
        return x

    def forward(self, x: SparseTensor) -> paddle.Tensor:
        """Return logits (N, num_classes) of the voxels, in their order; features if the network has no classes."""
        return self.final(self.forward_features(x)).features

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the classifier by a new one with ``num_classes`` outputs; 0 removes it."""
        self.num_classes = num_classes
        self.final = _classifier(self.num_features, num_classes, self.dimension)


CLASSIFIER_VARIANTS: Variants = {f"mink_classifier{name}": {"depths": depths[:4]} for name, depths in _DEPTHS.items()}


class MinkClassifier(MinkEncoder):
    """Classifier of scenes: encoder of the U-Nets, mean over the voxels of each scene, and a linear layer.

    A U-Net's weights fit all layers but the linear one. With ``num_classes`` 0 it returns features.
    """

    variants = CLASSIFIER_VARIANTS
    telling_name = "conv#p#s#.kernel"
    classifier_layers = ("head",)

    def __init__(
        self,
        num_classes: int = 40,
        in_channels: int = 3,
        depths: Sequence[int] = CLASSIFIER_VARIANTS["mink_classifier14"]["depths"],
        widths: Sequence[int] = VARIANTS["minkunet14a"]["widths"][:4],
        first_channels: int = 32,
        dimension: int = 3,
    ):
        super().__init__(in_channels, depths, widths, first_channels, dimension)
        self.num_features = widths[3]
        self.pooling = GlobalPooling()
        self.reset_classifier(num_classes)
        _initialize(self)

    def forward_features(self, x: SparseTensor) -> paddle.Tensor:
        """Return features (scenes, num_features)."""
        return self.pooling(self.levels(x)[-1])

    def forward(self, x: SparseTensor) -> paddle.Tensor:
        """Return logits (scenes, num_classes); features if the network has no classes."""
        return self.head(self.forward_features(x))

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the classifier by a new one with ``num_classes`` outputs; 0 removes it."""
        self.num_classes = num_classes
        self.head = nn.Linear(self.num_features, num_classes) if num_classes else nn.Identity()


class TutorialNetwork(SparseNetwork):
    """Four layers: a convolution, one of stride 2, its transpose, and the classifier, unless ``num_classes`` is 0."""

    variants = {"minkunet_tutorial": {}}
    classifier_layers = ("conv4",)
    key_maps = {"MinkowskiEngine": from_torch_names}
    telling_name = "conv#.kernel"

    def __init__(self, num_classes: int = 20, in_channels: int = 3, dimension: int = 3):
        super().__init__(in_channels, dimension)
        self.relu = ReLU()
        self.conv1 = Convolution(in_channels, 32, 3, dimension=dimension)
        self.bn1 = NestedBatchNorm(32)
        self.conv2 = Convolution(32, 64, 3, stride=2, dimension=dimension)
        self.bn2 = NestedBatchNorm(64)
        self.conv3 = TransposedConvolution(64, 32, 3, stride=2, dimension=dimension)
        self.bn3 = NestedBatchNorm(32)
        self.reset_classifier(num_classes)

    def forward_features(self, x: SparseTensor) -> SparseTensor:
        """Return features (N, 32) on the voxels of ``x``, which is (N, in_channels) at stride 1."""
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        return self.relu(self.bn3(self.conv3(x)))

    def forward(self, x: SparseTensor) -> paddle.Tensor:
        """Return logits (N, num_classes) of the voxels, in their order; features if the network has no classes."""
        return self.conv4(self.forward_features(x)).features

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the classifier by a new one with ``num_classes`` outputs; 0 removes it."""
        self.num_classes = num_classes
        self.conv4 = _classifier(32, num_classes, self.dimension)


def _stage(in_channels: int, out_channels: int, depth: int, dimension: int) -> nn.Sequential:
    return nn.Sequential(
        *(ResidualBlock(out_channels if block else in_channels, out_channels, dimension) for block in range(depth))
    )


def _classifier(in_channels: int, num_classes: int, dimension: int) -> nn.Layer:
    return Convolution(in_channels, num_classes, 1, bias=True, dimension=dimension) if num_classes else nn.Identity()


def _initialize(network: nn.Layer) -> None:
    """Initialize convolutions with normal weights of variance 2 / (C_out K) (He et al., 2015, backward case).

    MinkowskiEngine's U-Nets start with the same distribution. Transposed convolutions keep their uniform weights.
    """
    for layer in network.sublayers():
        if type(layer) is Convolution:
            deviation = math.sqrt(2.0 / (layer.out_channels * layer.kernel_volume))
            nn.initializer.Normal(0.0, deviation)(layer.kernel)
