"""ResNet: residual blocks of convolutions at four resolutions.

Source: He et al., Deep Residual Learning for Image Recognition, 2016 (arXiv 1512.03385, table 1), with the stride of a
bottleneck in its 3 x 3 convolution ("v1.5"), as torchvision and timm have it. ResNet-vd: He et al., Bag of Tricks for
Image Classification with Convolutional Neural Networks, 2019 (arXiv 1812.01187, figure 2, C and D), with timm's names.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import paddle
from paddle import nn
from paddle.nn import functional as F

from ...core.checkpoint.foreign_names import from_torch_names
from ...core.distributed import has_batch_norm
from ...core.runtime.errors import UserError
from ...core.tasks.model import KeyMap, Variants
from ..image_size import as_pair
from .classifier import Classifier
from .key_names import rename
from .layers import DropPath, Linear, rates_of_stages
from .pretrained_input import ExpectedInput, list_inputs

_EPSILON = 1e-5
_STEM_STRIDE = 4  # of the first convolution and of the pooling after it


class FrozenBatchNorm(nn.Layer):
    """Batch normalization with statistics, scale and shift that never learn: buffers with ``BatchNorm2D``'s names."""

    def __init__(self, channels: int):
        super().__init__()
        for name, start in (("weight", 1.0), ("bias", 0.0), ("_mean", 0.0), ("_variance", 1.0)):
            self.register_buffer(name, paddle.full([channels], start, dtype=paddle.get_default_dtype()))

    def forward(self, x):
        """Normalize (batch, channels, height, width)."""
        return F.batch_norm(x, self._mean, self._variance, self.weight, self.bias, training=False, epsilon=_EPSILON)


Norm = Callable[[int], nn.Layer]
_batch_norm: Norm = functools.partial(nn.BatchNorm2D, momentum=0.9, epsilon=_EPSILON)


def _convolution(inputs: int, outputs: int, kernel_size: int, stride: int = 1, dilation: int = 1) -> nn.Conv2D:
    """Make a convolution without bias that maps n pixels to ceil(n / stride).

    Weights start with the variance 2 / fan-out (He et al., 2015, arXiv 1502.01852), as torchvision's.
    """
    deviation = math.sqrt(2.0 / (kernel_size * kernel_size * outputs))
    return nn.Conv2D(
        inputs,
        outputs,
        kernel_size,
        stride=stride,
        padding=dilation * (kernel_size // 2),
        dilation=dilation,
        weight_attr=paddle.ParamAttr(initializer=nn.initializer.Normal(0.0, deviation)),
        bias_attr=False,
    )


def _mask(x, mask: paddle.Tensor | None):
    return x if mask is None else x * mask.astype(x.dtype)


class ShortcutConfig(NamedTuple):
    """Describe a shortcut: a mean of 2 x 2 before it (ResNet-vd), and a convolution even if the size stays."""

    pools: bool = False
    is_always: bool = False


def _shortcut(inputs: int, outputs: int, stride: int, pools: bool, norm: Norm) -> nn.Sequential:
    if not pools:
        return nn.Sequential(_convolution(inputs, outputs, 1, stride), norm(outputs))
    pool = nn.AvgPool2D(2, 2, ceil_mode=True, exclusive=True) if stride > 1 else nn.Identity()
    return nn.Sequential(pool, _convolution(inputs, outputs, 1), norm(outputs))


class _BottleneckBase(nn.Layer):
    """The input, added to a branch of convolutions that a subclass has."""

    expansion = 1  # channels that leave the block to ``channels``

    def __init__(
        self,
        inputs: int,
        channels: int,
        stride: int,
        dilations: tuple[int, int],
        shortcut: ShortcutConfig,
        norm: Norm,
        drop_path: float,
    ):
        super().__init__()
        outputs = channels * self.expansion
        self.downsample = None
        if shortcut.is_always or stride != 1 or inputs != outputs:
            self.downsample = _shortcut(inputs, outputs, stride, shortcut.pools, norm)
        self.drop_path = DropPath(drop_path)
        self.create_branch(inputs, channels, stride, dilations, norm)

    def forward(self, x, before: paddle.Tensor | None = None, after: paddle.Tensor | None = None):
        """Map (batch, inputs, ...) to (batch, outputs, height, width).

        Masks (batch, 1, height, width) of the input and the output are 0 where an image is padded; None: nowhere.
        """
        shortcut = x if self.downsample is None else self.downsample(x)
        branch = self.drop_path(self.branch(x, before, after))
        return _mask(F.relu(shortcut + branch), after)

    def create_branch(self, inputs: int, channels: int, stride: int, dilations: tuple[int, int], norm: Norm) -> None:
        raise NotImplementedError

    def branch(self, x, before: paddle.Tensor | None, after: paddle.Tensor | None):
        raise NotImplementedError


class BasicBlock(_BottleneckBase):
    """Two convolutions of 3 x 3; ``dilations`` are of each, where its stage keeps the resolution by dilation."""

    def create_branch(self, inputs: int, channels: int, stride: int, dilations: tuple[int, int], norm: Norm) -> None:
        """Create the convolutions and their norms."""
        self.conv1 = _convolution(inputs, channels, 3, stride, dilations[0])
        self.bn1 = norm(channels)
        self.conv2 = _convolution(channels, channels, 3, 1, dilations[1])
        self.bn2 = norm(channels)

    def branch(self, x, before: paddle.Tensor | None, after: paddle.Tensor | None):
        """Compute the residual branch of (batch, channels, height, width)."""
        x = _mask(F.relu(self.bn1(self.conv1(x))), after)
        return self.bn2(self.conv2(x))


class Bottleneck(_BottleneckBase):
    """A convolution of 3 x 3 between two of 1 x 1 that narrow and widen."""

    expansion = 4

    def create_branch(self, inputs: int, channels: int, stride: int, dilations: tuple[int, int], norm: Norm) -> None:
        """Create the convolutions and their norms."""
        self.conv1 = _convolution(inputs, channels, 1)
        self.bn1 = norm(channels)
        self.conv2 = _convolution(channels, channels, 3, stride, dilations[0])
        self.bn2 = norm(channels)
        self.conv3 = _convolution(channels, 4 * channels, 1)
        self.bn3 = norm(4 * channels)

    def branch(self, x, before: paddle.Tensor | None, after: paddle.Tensor | None):
        """Compute the residual branch of (batch, channels, height, width)."""
        x = _mask(F.relu(self.bn1(self.conv1(x))), before)  # the 3 x 3 convolution sees zeros next to an image
        x = F.relu(self.bn2(self.conv2(x)))
        return self.bn3(self.conv3(x))


VARIANTS: Variants = {
    "resnet18": {"depths": (2, 2, 2, 2), "is_bottleneck": False},
    "resnet34": {"depths": (3, 4, 6, 3), "is_bottleneck": False},
    "resnet50": {"depths": (3, 4, 6, 3), "is_bottleneck": True},
    "resnet101": {"depths": (3, 4, 23, 3), "is_bottleneck": True},
}
# ResNet-vd, as timm calls it
VARIANTS.update({f"{name}d": {**options, "is_vd": True} for name, options in VARIANTS.items()})

_EXCEPTIONS: Variants = {
    **dict.fromkeys(("resnet18d", "resnet34d", "resnet50d"), {"crop_pct": 0.875}),
    "resnet101d": {"image_size": 256},
}

# torchvision's and timm's names are ours, apart from the batch norms' statistics.
_OF_RESNET = r"^(?:resnet\.)?"
_KINDS = {"convolution": ("conv", 0), "normalization": ("bn", 1)}  # and the number in a shortcut
_BLOCK = _OF_RESNET + r"encoder\.stages\.(\d+)\.layers\.(\d+)\."
_HUGGINGFACE = (
    (_OF_RESNET + r"embedder\.embedder\.convolution\.", "conv1."),
    (_OF_RESNET + r"embedder\.embedder\.normalization\.", "bn1."),
    (
        _BLOCK + r"layer\.(\d+)\.(convolution|normalization)\.",
        lambda m: f"layer{int(m[1]) + 1}.{m[2]}.{_KINDS[m[4]][0]}{int(m[3]) + 1}.",
    ),
    (
        _BLOCK + r"shortcut\.(convolution|normalization)\.",
        lambda m: f"layer{int(m[1]) + 1}.{m[2]}.downsample.{_KINDS[m[3]][1]}.",
    ),
)
_HUGGINGFACE_CLASSIFIER = (r"^classifier\.1\.", "fc.")


def _from_hugging_face(state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the parameters of transformers' ResNet; a batch norm has the name of its classifier in FCN's head."""
    weight = state.get("classifier.1.weight")
    is_linear = weight is None or len(weight.shape) == 2
    return rename(from_torch_names(state), (*_HUGGINGFACE, *([_HUGGINGFACE_CLASSIFIER] if is_linear else [])))


KEY_MAPS: dict[str, KeyMap] = {
    "torchvision": from_torch_names,
    # ResNetForImageClassification of transformers, also without the classifier
    "Hugging Face": _from_hugging_face,
}


# Fields of transformers' configuration that no shape tells, see ``Model.network_facts``.
RESNET_FACTS = {"hidden_act": "relu", "downsample_in_first_stage": False, "downsample_in_bottleneck": False}


def _require_consistent(depths: tuple[int, ...], dims: tuple[int, ...], frozen_stages: int, dilation: int) -> None:
    if not 0 <= frozen_stages <= 1 + len(depths):
        raise UserError(f"ResNet: frozen_stages {frozen_stages} is not from 0 to {1 + len(depths)}: change it")
    if len(dims) != len(depths):
        raise UserError(
            f"ResNet: dims {dims} and depths {depths} have one number for each stage: change one "
            "(MODEL.DIMS, MODEL.DEPTHS)"
        )
    if not 0 <= dilation < len(depths):
        raise UserError(
            f"ResNet: dilation {int(dilation)} is of stages after the first, depths {depths} have "
            f"{len(depths) - 1}: change it"
        )


class ResNet(Classifier):
    """ResNet classifier, and the backbone of detectors.

    Args, in addition to the arguments of ``Classifier``:
        depths, dims: blocks of each stage, and channels of their 3 x 3 convolutions.
        stem_dim: channels of the stem; None: as many as the first stage has.
        is_bottleneck: blocks of three convolutions, whose outputs are 4 times as wide, instead of two.
        frozen_batch_norm: statistics, scale and shift of every batch norm are fixed (``FrozenBatchNorm``).
        frozen_stages: parts that do not learn, counted from the input: 1 is the stem, 2 the stem and ``layer1`` (as
            detectors begin), and so on. Their batch norms are fixed.
        dilation: how many of the last stages keep the resolution of what comes before them, by convolutions that are
            dilated by 2, then by 4 (but a stage's first, by what the stage before has), as torchvision's
            ``replace_stride_with_dilation``: 1 is DETR's DC5, 2 has an eighth of the image's resolution.
        mask_padding: ``feature_maps`` sets padded positions to zero after each layer, so that an image in a padded
            batch gives the numbers of the image alone.
        is_vd: three convolutions begin it instead of one, and shortcuts pool.
        first_shortcut: the first block has a shortcut with a convolution although nothing changes there, as RT-DETR's
            ResNet-18-vd and -34-vd have.
    """

    variants = VARIANTS
    expected_inputs = list_inputs(VARIANTS, ExpectedInput(crop_pct=0.95), _EXCEPTIONS)
    key_maps = KEY_MAPS
    telling_name = "layer#.#.conv#.weight"
    classifier_layers = ("fc",)
    layer_names = r"layer\d+\.\d+"

    def __init__(
        self,
        num_classes: int = 1000,
        image_size: int | tuple[int, int] = 224,
        depths: Sequence[int] = (3, 4, 6, 3),
        dims: Sequence[int] = (64, 128, 256, 512),
        is_bottleneck: bool = True,
        frozen_batch_norm: bool = False,
        frozen_stages: int = 0,
        dilation: int = 0,
        mask_padding: bool = False,
        is_vd: bool = False,
        first_shortcut: bool = False,
        stem_dim: int | None = None,
        in_channels: int = 3,
        dropout: float = 0.0,
        drop_path: float = 0.0,
    ):
        super().__init__()
        if is_vd and mask_padding:
            raise UserError("MODEL.MASK_PADDING: a ResNet-vd's shortcuts pool what is padded: use a ResNet")
        _require_consistent(tuple(depths), tuple(dims), frozen_stages, dilation)
        self.image_size, self.in_channels = as_pair(image_size), in_channels
        self.frozen_batch_norm, self.frozen_stages, self.mask_padding = frozen_batch_norm, frozen_stages, mask_padding
        width = stem_dim or dims[0]
        self.conv1 = self._stem(width) if is_vd else _convolution(in_channels, width, 7, stride=2)
        self.bn1 = self._build_norm(0)(width)
        self.maxpool = nn.MaxPool2D(3, stride=2, padding=1)
        block = Bottleneck if is_bottleneck else BasicBlock
        self.feature_channels = tuple(block.expansion * channels for channels in dims)
        inputs, strides, reached = width, [], 1
        for index, rates in enumerate(rates_of_stages(drop_path, tuple(depths))):
            stride, before = 1 if index == 0 else 2, reached
            if index >= len(depths) - dilation:
                stride, reached = 1, 2 * before
            strides.append(stride)
            blocks = [
                block(
                    inputs if number == 0 else self.feature_channels[index],
                    dims[index],
                    stride=stride if number == 0 else 1,
                    dilations=(before if number == 0 else reached, reached),
                    shortcut=ShortcutConfig(is_vd, first_shortcut and index == number == 0),
                    norm=self._build_norm(index + 1),
                    drop_path=rate,
                )
                for number, rate in enumerate(rates)
            ]
            setattr(self, f"layer{index + 1}", nn.Sequential(*blocks))
            inputs = self.feature_channels[index]
        self.feature_strides = tuple(_STEM_STRIDE * math.prod(strides[: i + 1]) for i in range(len(depths)))
        self.embed_dim = inputs
        self.own_parts = ("layer1.0.downsample.",) if first_shortcut and not is_bottleneck else ()
        self.dropout = nn.Dropout(dropout)
        self.reset_classifier(num_classes)
        self._freeze()

    def _stem(self, width: int) -> nn.Sequential:
        narrow, norm = width // 2, self._build_norm(0)
        first, second = _convolution(self.in_channels, narrow, 3, stride=2), _convolution(narrow, narrow, 3)
        last = _convolution(narrow, width, 3)
        return nn.Sequential(first, norm(narrow), nn.ReLU(), second, norm(narrow), nn.ReLU(), last)

    def _build_norm(self, part: int) -> Norm:
        return FrozenBatchNorm if self.frozen_batch_norm or part < self.frozen_stages else _batch_norm

    def _freeze(self) -> None:
        parts: list[list[nn.Layer]] = [[self.conv1, self.bn1], *([stage] for stage in self.stages)]
        for layer in (module for part in parts[: self.frozen_stages] for module in part):
            for parameter in layer.parameters():
                parameter.stop_gradient = True

    @property
    def stages(self) -> list[nn.Sequential]:
        """``layer1``, ``layer2`` and so on."""
        return [getattr(self, f"layer{number + 1}") for number in range(len(self.feature_channels))]

    def forward_features(self, x):
        """Compute the mean (batch, embed_dim) over the positions of images (N, channels, height, width)."""
        return self.feature_maps(x)[-1].mean(axis=[2, 3])

    def feature_maps(self, x, sizes: paddle.Tensor | None = None) -> list[paddle.Tensor]:
        """Return the output of each stage for images (batch, in_channels, height, width), padded at right and bottom.

        With ``mask_padding`` and ``sizes``, int64 (batch, 2), height and width of each image without its padding, a map
        holds an image's ceil(height / stride) x ceil(width / stride) positions, and zeros elsewhere.
        """
        masks = self._masks(x, sizes)
        x = F.relu(self.bn1(self.conv1(_mask(x, masks.get(1)))))  # (batch, width of the stem, height / 2, width / 2)
        x, stride = self.maxpool(_mask(x, masks.get(2))), _STEM_STRIDE
        x, maps = _mask(x, masks.get(stride)), []
        for stage, reached in zip(self.stages, self.feature_strides):
            for block in stage:
                x = block(x) if not masks else block(x, masks[stride], masks[reached])
                stride = reached
            maps.append(x)
        return maps

    def _masks(self, x, sizes: paddle.Tensor | None) -> dict[int, paddle.Tensor]:
        """Return for each stride the mask of its maps; empty where nothing is masked."""
        if not self.mask_padding or sizes is None:
            return {}
        height, width = x.shape[2:]
        strides = {1, 2, _STEM_STRIDE, *self.feature_strides}
        return {stride: padding_mask(sizes, (-(-height // stride), -(-width // stride)), stride) for stride in strides}

    def forward(self, x):
        """Compute logits (batch, num_classes), or the features when the model has no classes."""
        return self.fc(self.dropout(self.forward_features(x)))

    @classmethod
    def read_described(cls, content: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the options that transformers' ResNet has, see ``Model.read_described``."""
        if content.get("model_type") != "resnet":
            return None
        is_bottleneck = content.get("layer_type", "bottleneck") == "bottleneck"
        dims = tuple(width // (4 if is_bottleneck else 1) for width in content["hidden_sizes"])
        options = {"depths": tuple(content["depths"]), "is_bottleneck": is_bottleneck}
        is_usual = dims == (64, 128, 256, 512) and content["embedding_size"] == dims[0]
        return options if is_usual else {**options, "dims": dims, "stem_dim": content["embedding_size"]}

    def network_facts(self) -> Mapping[str, Any]:
        """Return what no shape tells, see ``Model.network_facts``."""
        return {"model_type": ("resnet",), **RESNET_FACTS}

    def new_classifier(self, num_classes: int) -> nn.Layer:
        """Build a classifier that starts as torchvision's: uniform up to 1 / sqrt(inputs)."""
        bound = 1.0 / math.sqrt(self.embed_dim)
        start: dict[str, Any] = {
            name: paddle.ParamAttr(initializer=nn.initializer.Uniform(-bound, bound))
            for name in ("weight_attr", "bias_attr")
        }
        return Linear(self.embed_dim, num_classes, **start)

    def recomputed_layers(self) -> list[nn.Layer]:
        """Return the blocks if all batch norms are fixed; a batch norm that learns would count each batch twice."""
        return [] if has_batch_norm(self) else super().recomputed_layers()


def padding_mask(sizes: paddle.Tensor, grid: tuple[int, int], stride: int) -> paddle.Tensor:
    """Return 1.0 where the maps of padded images hold an image, and 0.0 elsewhere; (batch, 1, height, width).

    ``sizes`` are int64 (batch, 2), height and width of each image in pixels, ``grid`` of the maps. An image has
    ceil(pixels / stride) positions.
    """
    covered = (sizes + (stride - 1)) // stride  # (batch, 2)
    rows = paddle.arange(grid[0], dtype=covered.dtype) < covered[:, :1]  # (batch, height)
    columns = paddle.arange(grid[1], dtype=covered.dtype) < covered[:, 1:]  # (batch, width)
    both = paddle.logical_and(rows.unsqueeze(2), columns.unsqueeze(1))  # (batch, height, width)
    return both.unsqueeze(1).astype(paddle.get_default_dtype())
