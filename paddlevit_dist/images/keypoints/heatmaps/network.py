"""Networks that return a heatmap for each keypoint of the object in a crop: ViTPose and SimpleBaseline.

Sources: Xu et al., ViTPose: Simple Vision Transformer Baselines for Human Pose Estimation, arXiv 2204.12484, section 3;
Xiao et al., Simple Baselines for Human Pose Estimation and Tracking, ECCV 2018, section 2.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

from ....core.runtime import autocast
from ....core.runtime.autocast import like_products
from ....core.runtime.errors import UserError
from ....core.runtime.transfers import constant
from ....core.tasks.model import Model, Variants
from ....core.tasks.model_factory import fit_backbone_options
from ...image_size import as_pair
from ...models.key_names import BACKBONE
from ...models.layers import Conv2D, Conv2DTranspose
from ...models.segmenter import batch_norm
from . import key_names
from .backbone import create_backbone

_DEVIATION = 0.001  # of the first weights of a decoder
_SIDE = 3  # of the simple decoder's convolution
_DIMENSIONS = ("patch_size", "embed_dim", "depth", "num_heads", "mlp_ratio", "depths", "dims")

Decoder = Literal["classic", "simple"]


def _vitpose(size: str, backbone: str, **options: Any) -> Variants:
    variant = {"backbone": backbone, **({"backbone_options": options} if options else {})}
    return {f"vitpose_{size}": variant, f"vitpose_{size}_simple": {**variant, "decoder": "simple"}}


VARIANTS: Variants = {
    "vitpose": {"backbone": "vit_base_patch16_224"},  # a start for configurations that give their own dimensions
    **_vitpose("small", "vit_small_patch16_224", num_heads=12),
    **_vitpose("base", "vit_base_patch16_224"),
    **_vitpose("large", "vit_large_patch16_224"),
    **_vitpose("huge", "vit_huge_patch14_224", patch_size=16),
    # for crops of about 64 pixels, on CPUs, trained from scratch
    "vitpose_tiny": {
        "backbone": "vit_tiny_patch16_224",
        "backbone_options": {"patch_size": 8, "embed_dim": 128, "depth": 6, "num_heads": 4},
        "channels": 64,
    },
    "simple_baseline_tiny": {
        "backbone": "resnet18",
        "backbone_options": {"depths": (2, 2, 2), "dims": (32, 64, 128)},
        "channels": 64,
    },
    **{f"simple_baseline_resnet{depth}": {"backbone": f"resnet{depth}"} for depth in (18, 34, 50, 101)},
    "simple_baseline_resnet152": {"backbone": "resnet101", "backbone_options": {"depths": (3, 8, 36, 3)}},
}


class ClassicDecoder(nn.Layer):
    """Transposed convolutions that double the resolution, each with a batch norm and a ReLU, and one of 1 x 1."""

    def __init__(self, in_channels: int, points: int, scale: int, channels: int):
        super().__init__()
        self.number = scale.bit_length() - 1
        for index in range(1, self.number + 1):
            layer = Conv2DTranspose(
                in_channels, channels, 4, stride=2, padding=1, weight_attr=_normal(), bias_attr=False
            )
            setattr(self, f"deconv{index}", layer)
            setattr(self, f"batchnorm{index}", batch_norm(channels))
            in_channels = channels
        self.conv = build_last_layer(in_channels, points, 1)

    def forward(self, x):
        """Map features (batch, channels, rows, columns) to heatmaps (batch, points, rows * scale, columns * scale)."""
        for transposed, norm in zip(*self.stages()):
            x = F.relu(norm(transposed(x)))
        return self.conv(x)

    def stages(self) -> tuple[list[nn.Layer], list[nn.Layer]]:
        """Return the transposed convolutions and their batch norms."""
        numbers = range(1, self.number + 1)
        return [getattr(self, f"deconv{k}") for k in numbers], [getattr(self, f"batchnorm{k}") for k in numbers]


class SimpleDecoder(nn.Layer):
    """A ReLU, bilinear upsampling and a convolution of 3 x 3.

    Both are linear: each of the nine products of the convolution is computed before the upsampling, at the resolution
    of the features, and its shift is part of the matrices that upsample rows and columns. The features of a ViT-B are
    768 maps; for 17 points, the products are 153.
    """

    def __init__(self, in_channels: int, points: int, scale: int):
        super().__init__()
        self.scale = scale
        self.conv = build_last_layer(in_channels, points, _SIDE)

    def forward(self, x):
        """Map features (batch, channels, rows, columns) to heatmaps (batch, points, rows * scale, columns * scale)."""
        _, channels, rows, columns = x.shape
        dtype = "float64" if self.conv.weight.dtype == paddle.float64 else "float32"
        down, across = (constant(upsample_shifted, size, self.scale, dtype) for size in (rows, columns))
        points = self.conv.weight.shape[0]
        weight = self.conv.weight.transpose([0, 2, 3, 1]).reshape([-1, channels])  # (points * 9, channels)
        products = paddle.matmul(like_products(weight), F.relu(x).flatten(2))  # (batch, points * 9, rows * columns)
        with autocast.off():
            # (batch, points, 3 down, 3 across, rows, columns) -> (batch, points, 3 down, rows, 3 across, columns)
            parts = products.astype(dtype).reshape([-1, points, _SIDE, _SIDE, rows, columns])
            parts = parts.transpose([0, 1, 2, 4, 3, 5]).reshape([-1, points, _SIDE * rows, _SIDE * columns])
            maps = paddle.matmul(paddle.matmul(down, parts), across, transpose_y=True)
            return maps + self.conv.bias.astype(dtype).reshape([1, -1, 1, 1])


def upsample_shifted(size: int, scale: int, dtype: str) -> np.ndarray:
    """Return the matrix (size * scale, 3 * size) that upsamples a line bilinearly, shifted by -1, 0 and 1 places.

    The place before the first and after the last are 0, as a convolution pads them.
    """
    large = size * scale
    places = np.clip((np.arange(large) + 0.5) / scale - 0.5, 0, size - 1)
    low = np.floor(places).astype(np.int64)
    plain, lines = np.zeros((large + 2, size)), np.arange(1, large + 1)
    plain[lines, low] = 1 - (places - low)
    plain[lines, np.minimum(low + 1, size - 1)] += places - low
    return np.concatenate([plain[shift : shift + large] for shift in range(_SIDE)], axis=1).astype(dtype)


class HeatmapNetwork(Model):
    """A backbone and a decoder of its last feature map; heatmaps have a fraction of the crop's sides.

    The same object shows a point in one place of its heatmap, a Gaussian around it. Parameter names are transformers'
    in the decoder, behind ``head.``, and the backbone's behind ``backbone.``.

    Args:
        num_classes: number of keypoints, a heatmap each.
        image_size: height and width of crops in pixels.
        backbone, backbone_options: name of a classifier with feature maps, and its options.
        decoder: "classic", transposed convolutions; or "simple", upsampling and one convolution.
        heatmap_stride: pixels of a crop between cells of its heatmaps; a power of two fraction of the map's stride.
        channels: of the transposed convolutions.
        patch_size, embed_dim, depth, num_heads, mlp_ratio, depths, dims: of a backbone that has them; None: its own.
        dropout, attention_dropout, drop_path: rates of the backbone.

    Raises:
        UserError: names or options are not known, the crop is not a multiple of the map's stride, or that stride not
            the heatmaps' times a power of two.
    """

    variants = VARIANTS
    key_maps = key_names.KEY_MAPS
    classifier_layers = ("head.conv",)
    image_size: tuple[int, int]

    def __init__(
        self,
        num_classes: int = 17,
        image_size: int | tuple[int, int] = (256, 192),
        backbone: str = "vit_base_patch16_224",
        backbone_options: Mapping[str, Any] | None = None,
        decoder: Decoder = "classic",
        heatmap_stride: int = 4,
        channels: int = 256,
        patch_size: int | None = None,
        embed_dim: int | None = None,
        depth: int | None = None,
        num_heads: int | None = None,
        mlp_ratio: float | None = None,
        depths: Sequence[int] | None = None,
        dims: Sequence[int] | None = None,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        drop_path: float = 0.0,
    ):
        super().__init__()
        given = dict(zip(_DIMENSIONS, (patch_size, embed_dim, depth, num_heads, mlp_ratio, depths, dims)))
        rates = {"dropout": dropout, "attention_dropout": attention_dropout, "drop_path": drop_path}
        options = {**{name: rate for name, rate in rates.items() if rate}, **(backbone_options or {})}
        options |= {name: value for name, value in given.items() if value is not None}
        self.image_size = as_pair(image_size)
        self.backbone = create_backbone(backbone, self.image_size, options)
        self.in_channels, self.num_classes = self.backbone.in_channels, num_classes
        stride, self.heatmap_stride = self.backbone.feature_strides[-1], heatmap_stride
        scale = stride // heatmap_stride
        if any(side % stride for side in self.image_size):
            size = f"{self.image_size[0]} x {self.image_size[1]}"
            raise UserError(
                f"crops of {size} px (HEATMAPS.CROP_SIZE): {backbone} takes sides that are multiples of {stride}"
            )
        if decoder not in ("classic", "simple"):
            raise UserError(f"option decoder '{decoder}' is not known: expected classic or simple")
        if scale * heatmap_stride != stride or scale & (scale - 1) or scale < 1:
            raise UserError(
                f"heatmap_stride {heatmap_stride} (HEATMAPS.STRIDE): the maps of {backbone} have stride {stride}; "
                f"expected that divided by a power of two, such as {max(stride // 4, 1)}"
            )
        width = self.backbone.feature_channels[-1]
        self.head: nn.Layer = (
            ClassicDecoder(width, num_classes, scale, channels)
            if decoder == "classic"
            else SimpleDecoder(width, num_classes, scale)
        )

    @classmethod
    def build(cls, name: str, num_classes: int, image_size: Any | None = None, **options: Any) -> Model:
        """Build a variant; another backbone than the variant's takes only the options that it has."""
        return super().build(name, num_classes, image_size, **fit_backbone_options(cls.variants.get(name, {}), options))

    @classmethod
    def default_classes(cls, name: str) -> int:
        """Return the number of points of a person in COCO."""
        return 17

    @property
    def heatmap_size(self) -> tuple[int, int]:
        """Rows and columns of a heatmap."""
        height, width = self.image_size
        return height // self.heatmap_stride, width // self.heatmap_stride

    @property
    def pretrained_part(self) -> Model:
        """The model whose weights a classifier or a masked autoencoder brings."""
        return self.backbone

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        """Compute heatmaps (batch, points, rows, columns) of normalized crops (batch, 3, height, width)."""
        return self.head(self.backbone.feature_maps(images)[-1])

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the last layer with a newly initialized one for ``num_classes`` points."""
        self.num_classes, last = num_classes, self.head.conv
        self.head.conv = build_last_layer(last.weight.shape[1], num_classes, last.weight.shape[2])

    def list_resize_notices(self, names: Sequence[str]) -> list[str]:
        """Return the backbone's lines about resized parameters."""
        return self.backbone.list_resize_notices([name.removeprefix(BACKBONE) for name in names])

    def list_source_notices(self, naming: str, state: Mapping[str, Any]) -> list[str]:
        """Return no notices; a ``UserError`` refuses mixtures of experts, which this network does not have."""
        if any(".experts." in name for name in state):
            raise UserError(
                "these are weights of ViTPose+, whose MLPs have experts for several datasets: take ViTPose's, such as "
                "hf:usyd-community/vitpose-base-simple"
            )
        return []

    def no_weight_decay(self) -> tuple[str, ...]:
        """Return the names that the backbone does not decay."""
        return tuple(BACKBONE + name for name in self.backbone.no_weight_decay())

    def layer_groups(self) -> list[list[str]]:
        """Return the backbone's groups, then the decoder as one group."""
        groups = [[BACKBONE + name for name in group] for group in self.backbone.layer_groups()]
        head = [name for name, _ in self.named_parameters() if not name.startswith(BACKBONE)]
        return [*filter(None, groups), head]

    def recomputed_layers(self) -> list[nn.Layer]:
        """Return the backbone's blocks."""
        return self.backbone.recomputed_layers()


def build_last_layer(channels: int, points: int, side: int) -> Conv2D:
    """Make the last layer: a convolution of ``side`` x ``side`` to a heatmap for each point."""
    return Conv2D(channels, points, side, padding=side // 2, weight_attr=_normal())


def _normal() -> paddle.ParamAttr:
    return paddle.ParamAttr(initializer=nn.initializer.Normal(0.0, _DEVIATION))
