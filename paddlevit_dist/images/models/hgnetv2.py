"""PP-HGNetV2: stages whose blocks join what each of their convolutions says.

Source: PaddleClas, ``pp_hgnet_v2.py`` and its page of the model; Zhao et al., DETRs Beat YOLOs on Real-time Object
Detection, CVPR 2024, which takes it as a backbone. Names are timm's.
"""

from collections.abc import Sequence
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
from .pretrained_input import ExpectedInput, list_inputs
from .resnet import FrozenBatchNorm

_EPSILON = 1e-5
_HEAD = 2048  # channels before the classifier


class AffineScale(nn.Layer):
    """scale * x + bias, one number each, as learned ("LAB")."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = self.create_parameter([1], default_initializer=nn.initializer.Constant(1.0))
        self.bias = self.create_parameter([1], is_bias=True)

    def forward(self, x):
        """Scale and shift a tensor of any shape."""
        return self.scale * x + self.bias


class LayerStyle(NamedTuple):
    """What all layers share: ``scales``, an ``AffineScale`` after each ReLU, and ``frozen`` batch norms."""

    scales: bool
    frozen: bool


class ConvNormReLU(nn.Layer):
    """A convolution without bias and a batch norm, with a ReLU where it is ``active``."""

    def __init__(
        self,
        style: LayerStyle,
        inputs: int,
        outputs: int,
        kernel_size: int,
        stride: int = 1,
        groups: int = 1,
        active: bool = True,
    ):
        super().__init__()
        start = paddle.ParamAttr(initializer=nn.initializer.KaimingNormal())
        how = {"groups": groups, "weight_attr": start, "bias_attr": False}
        self.conv = nn.Conv2D(inputs, outputs, kernel_size, stride, (kernel_size - 1) // 2, **how)
        self.bn = FrozenBatchNorm(outputs) if style.frozen else nn.BatchNorm2D(outputs, momentum=0.9, epsilon=_EPSILON)
        self.active = active
        self.lab = AffineScale() if active and style.scales else None

    def forward(self, x):
        """Map (batch, channels, height, width) to the convolution's channels and size."""
        x = self.bn(self.conv(x))
        x = F.relu(x) if self.active else x
        return x if self.lab is None else self.lab(x)


class LightConvNorm(nn.Layer):
    """A point-wise convolution, followed by a depth-wise one."""

    def __init__(self, style: LayerStyle, inputs: int, outputs: int, kernel_size: int):
        super().__init__()
        self.conv1 = ConvNormReLU(style, inputs, outputs, 1, active=False)
        self.conv2 = ConvNormReLU(style, outputs, outputs, kernel_size, groups=outputs)

    def forward(self, x):
        """Map (batch, channels, height, width) to other channels."""
        return self.conv2(self.conv1(x))


class HGStem(nn.Layer):
    """A quarter of the resolution, by pooling and convolutions side by side."""

    def __init__(self, style: LayerStyle, inputs: int, middle: int, outputs: int):
        super().__init__()
        self.stem1 = ConvNormReLU(style, inputs, middle, 3, stride=2)
        self.stem2a = ConvNormReLU(style, middle, middle // 2, 2)
        self.stem2b = ConvNormReLU(style, middle // 2, middle, 2)
        self.stem3 = ConvNormReLU(style, 2 * middle, middle, 3, stride=2)
        self.stem4 = ConvNormReLU(style, middle, outputs, 1)

    def forward(self, x):
        """Map images (batch, channels, height, width) to a quarter of the resolution."""
        x = _widen(self.stem1(x))
        branch = self.stem2b(_widen(self.stem2a(x)))
        return self.stem4(self.stem3(paddle.concat([F.max_pool2d(x, 2, 1), branch], axis=1)))


def _widen(x):
    """Append a row and a column of zeros at the bottom and the right."""
    return F.pad(x, [0, 1, 0, 1])


class HGBlock(nn.Layer):
    """Convolutions one after the other, all of whose outputs are joined and squeezed.

    There are ``layers`` of them, of ``LightConvNorm`` if ``light``. With ``residual`` the input is added.
    """

    def __init__(
        self,
        style: LayerStyle,
        inputs: int,
        middle: int,
        outputs: int,
        kernel_size: int,
        layers: int,
        light: bool,
        residual: bool,
    ):
        super().__init__()
        kind = LightConvNorm if light else ConvNormReLU
        widths = [inputs, *[middle] * layers]
        self.layers = nn.LayerList([kind(style, before, middle, kernel_size) for before in widths[:-1]])
        joined = inputs + layers * middle
        self.aggregation = nn.Sequential(
            ConvNormReLU(style, joined, outputs // 2, 1), ConvNormReLU(style, outputs // 2, outputs, 1)
        )
        self.residual = residual

    def forward(self, x):
        """Map (batch, channels, height, width) to other channels."""
        parts = [x]
        for layer in self.layers:
            parts.append(layer(parts[-1]))
        squeezed = self.aggregation(paddle.concat(parts, axis=1))
        return squeezed + x if self.residual else squeezed


class HGStage(nn.Layer):
    """Blocks of one resolution, half of what comes before where it ``downsamples``."""

    def __init__(self, style: LayerStyle, inputs: int, outputs: int, depth: int, downsamples: bool, *block: Any):
        super().__init__()
        middle, kernel_size, layers, light = block
        self.downsample = (
            ConvNormReLU(style, inputs, inputs, 3, stride=2, groups=inputs, active=False)
            if downsamples
            else nn.Identity()
        )
        self.blocks = nn.Sequential(
            *(
                HGBlock(
                    style, inputs if number == 0 else outputs, middle, outputs, kernel_size, layers, light, number > 0
                )
                for number in range(depth)
            )
        )

    def forward(self, x):
        """Map (batch, channels, height, width) to the stage's channels and resolution."""
        return self.blocks(self.downsample(x))


# PaddleClas, ppcls/arch/backbone/legendary_models/pp_hgnet_v2.py.
VARIANTS: Variants = {
    "hgnetv2_b0": {},
    "hgnetv2_b1": {"stem_dims": (24, 32), "middle_dims": (32, 48, 96, 192)},
    "hgnetv2_b2": {
        "stem_dims": (24, 32),
        "depths": (1, 1, 3, 1),
        "dims": (96, 384, 768, 1536),
        "middle_dims": (32, 64, 128, 256),
        "layers": 4,
    },
    "hgnetv2_b3": {
        "stem_dims": (24, 32),
        "depths": (1, 1, 3, 1),
        "dims": (128, 512, 1024, 2048),
        "middle_dims": (32, 64, 128, 256),
        "layers": 5,
    },
    "hgnetv2_b4": {
        "stem_dims": (32, 48),
        "depths": (1, 1, 3, 1),
        "dims": (128, 512, 1024, 2048),
        "middle_dims": (48, 96, 192, 384),
        "layers": 6,
        "use_lab": False,
    },
    "hgnetv2_b5": {
        "stem_dims": (32, 64),
        "depths": (1, 2, 5, 2),
        "dims": (128, 512, 1024, 2048),
        "middle_dims": (64, 128, 256, 512),
        "layers": 6,
        "use_lab": False,
    },
}

# timm's and the D-FINE authors' names are ours, apart from the batch norms' statistics.
_OF_HGNETV2 = r"^(?:model\.backbone\.model\.)?"  # also as the backbone of a D-FINE
_HUGGINGFACE = (
    (_OF_HGNETV2 + r"embedder\.", "stem."),
    (_OF_HGNETV2 + r"encoder\.stages\.", "stages."),
)
_LAYERS = ((r"\.convolution\.", ".conv."), (r"\.normalization\.", ".bn."))

KEY_MAPS: dict[str, KeyMap] = {
    "PyTorch's": from_torch_names,
    # HGNetV2Backbone of transformers, whose classifier has a layer less
    "Hugging Face": lambda state: rename(rename(from_torch_names(state), _HUGGINGFACE), _LAYERS),
}


class HGNetV2(Classifier):
    """PP-HGNetV2 classifier, and the backbone of detectors.

    Args, in addition to the arguments of ``Classifier``:
        stem_dims: channels within the stem, and of what leaves it.
        depths, dims, middle_dims: blocks of each stage, channels that leave it, and of its convolutions.
        kernel_sizes, light: of these, see ``HGBlock``; layers: of each block, one number or one for each stage.
        use_lab: a learned scale and shift after each ReLU.
        frozen_batch_norm: statistics, scale and shift of every batch norm are fixed.
        frozen_stages: how many parts do not learn: 1 is the stem, 2 the first stage too, and so on; their batch norms
            are fixed.
    """

    variants = VARIANTS
    expected_inputs = list_inputs(VARIANTS, ExpectedInput(crop_pct=0.965))
    key_maps = KEY_MAPS
    telling_name = "stem.stem#.conv.weight"
    classifier_layers = ("head.fc",)
    layer_names = r"stages\.\d+\.blocks\.\d+"

    def __init__(
        self,
        num_classes: int = 1000,
        image_size: int | tuple[int, int] = 224,
        stem_dims: Sequence[int] = (16, 16),
        depths: Sequence[int] = (1, 1, 2, 1),
        dims: Sequence[int] = (64, 256, 512, 1024),
        middle_dims: Sequence[int] = (16, 32, 64, 128),
        kernel_sizes: Sequence[int] = (3, 3, 5, 5),
        light: Sequence[bool] = (False, False, True, True),
        layers: int | Sequence[int] = 3,
        use_lab: bool = True,
        frozen_batch_norm: bool = False,
        frozen_stages: int = 0,
        in_channels: int = 3,
        dropout: float = 0.0,
    ):
        super().__init__()
        numbers = (layers,) * len(depths) if isinstance(layers, int) else tuple(layers)
        each = depths, dims, middle_dims, kernel_sizes, light, numbers
        if len({len(values) for values in each}) > 1:
            raise UserError(
                f"HGNetV2: depths {tuple(depths)}, dims {tuple(dims)} and the others have one entry for each stage: "
                "change them"
            )
        if not 0 <= frozen_stages <= 1 + len(depths):
            raise UserError(f"HGNetV2: frozen_stages {frozen_stages} is not from 0 to {1 + len(depths)}: change it")
        styles = [LayerStyle(use_lab, frozen_batch_norm or i < frozen_stages) for i in range(1 + len(depths))]
        self.image_size, self.in_channels, self.feature_channels = as_pair(image_size), in_channels, tuple(dims)
        self.feature_strides = tuple(4 * 2**i for i in range(len(dims)))
        self.stem = HGStem(styles[0], in_channels, *stem_dims)
        inputs, stages = stem_dims[1], []
        for index, (depth, outputs, middle, size, is_light, number) in enumerate(zip(*each)):
            stages.append(HGStage(styles[index + 1], inputs, outputs, depth, index > 0, middle, size, number, is_light))
            inputs = outputs
        self.stages = nn.LayerList(stages)
        scales = [AffineScale()] if use_lab else []
        self.head = nn.Layer()
        self.head.last_conv = nn.Sequential(nn.Conv2D(inputs, _HEAD, 1, bias_attr=False), nn.ReLU(), *scales)
        self.head.dropout = nn.Dropout(dropout)
        self.embed_dim = _HEAD
        self.reset_classifier(num_classes)
        parts: list[nn.Layer] = [self.stem, *stages]
        for part in parts[:frozen_stages]:
            for parameter in part.parameters():
                parameter.stop_gradient = True

    def feature_maps(self, x, sizes: paddle.Tensor | None = None) -> list[paddle.Tensor]:
        """Return the output of each stage, for images (batch, in_channels, height, width)."""
        x, maps = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return maps

    def forward_features(self, x):
        """Compute (batch, 2048): the mean of the last map, widened."""
        return self.head.last_conv(self.feature_maps(x)[-1].mean(axis=[2, 3], keepdim=True)).flatten(1)

    def forward(self, x):
        """Compute logits (batch, num_classes), or the features when the model has no classes."""
        return self.head.fc(self.head.dropout(self.forward_features(x)))

    def recomputed_layers(self) -> list[nn.Layer]:
        """Return the blocks if all batch norms are fixed; a batch norm that learns would count each batch twice."""
        return [] if has_batch_norm(self) else super().recomputed_layers()
