"""SegFormer: an MiT, and a head that brings its four maps to one width and size, adds and classifies them.

Source: Xie et al., SegFormer: Simple and Efficient Design for Semantic Segmentation with Transformers, 2021 (arXiv
2105.15203, section 3.2, table 6). Parameter names are the authors' (github.com/NVlabs/SegFormer) but for the backbone,
which has timm's; Linear weights are (in, out) as Paddle stores them.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import paddle
from paddle import nn
from paddle.nn import functional as F

from ...core.runtime.errors import UserError
from ...core.tasks.model import KeyMap, Variants
from .key_names import BACKBONE, rename_network
from .layers import ChannelDropout, MatrixProduct, linear
from .mit import MixVisionTransformer
from .segmenter import NormalizedConvolution, Segmenter, pixel_classifier, resize_maps


class MapEmbedding(nn.Layer):
    """The linear layer that brings one map to the head's channels."""

    def __init__(self, inputs: int, channels: int):
        super().__init__()
        self.proj = linear(inputs, channels)


class SegFormerHead(nn.Layer):
    """The authors' head. It computes what the paper's equation 4 says in another order.

    In the paper each map goes through a linear layer and is enlarged; all are concatenated and fused by a convolution
    of 1 x 1. All of this is linear: here each map is multiplied by the product of both weights at its own size, and
    only sums are enlarged. At 512 x 512 B0 has 4.1 G multiply-accumulates in place of 8.4 G (table 1).
    """

    classifier = "linear_pred"

    def __init__(self, inputs: Sequence[int], channels: int, num_classes: int, dropout: float):
        super().__init__()
        self.number = len(inputs)
        for number, width in enumerate(inputs, start=1):
            setattr(self, f"linear_c{number}", MapEmbedding(width, channels))
        self.linear_fuse = NormalizedConvolution(len(inputs) * channels, channels, 1)
        self.product, self.weights_product = MatrixProduct(), MatrixProduct()
        self.dropout = ChannelDropout(dropout)
        self.linear_pred = pixel_classifier(channels, num_classes)

    def forward(self, maps: Sequence[paddle.Tensor]) -> paddle.Tensor:
        """Compute logits (N, classes, height, width) at the size of the first of maps (N, height, width, channels)."""
        return self.linear_pred(self.dropout(F.relu(self.linear_fuse.bn(self.summed(maps)))))

    def summed(self, maps: Sequence[paddle.Tensor]) -> paddle.Tensor:
        """(N, channels, height, width): what the maps give the convolution, before its norm."""
        size, total = maps[0].shape[1:3], None
        for x, (weight, bias) in zip(reversed(maps), reversed(self.joined_weights())):
            x = resize_maps((self.product(x, weight) + bias).transpose([0, 3, 1, 2]), size)
            total = x if total is None else total + x
        return total

    def joined_weights(self) -> list[tuple[paddle.Tensor, paddle.Tensor]]:
        """Multiply each map's linear layer and its part of the convolution: weight (width, channels), bias."""
        parts = self.linear_fuse.conv.weight.flatten(1).split(self.number, axis=1)  # of the coarsest map first
        joined = []
        for index, part in enumerate(reversed(parts)):  # paddle.jit.to_static knows enumerate without a start only
            layer = getattr(self, f"linear_c{index + 1}").proj
            bias = self.weights_product(layer.bias.unsqueeze(0), part.t())  # (1, channels)
            joined.append((self.weights_product(layer.weight, part.t()), bias.squeeze(0)))
        return joined


class MmsegmentationsHead(nn.Layer):
    """mmsegmentation's head: each map, the finest first, has a batch norm and a ReLU before it is enlarged."""

    classifier = "conv_seg"

    def __init__(self, inputs: Sequence[int], channels: int, num_classes: int, dropout: float):
        super().__init__()
        self.convs = nn.LayerList([NormalizedConvolution(width, channels, 1) for width in inputs])
        self.fusion_conv = NormalizedConvolution(len(inputs) * channels, channels, 1)
        self.dropout = ChannelDropout(dropout)
        self.conv_seg = pixel_classifier(channels, num_classes)

    def forward(self, maps: Sequence[paddle.Tensor]) -> paddle.Tensor:
        """Compute logits like ``SegFormerHead.forward``."""
        size = maps[0].shape[1:3]
        maps = [resize_maps(conv(x.transpose([0, 3, 1, 2])), size) for conv, x in zip(self.convs, maps)]
        return self.conv_seg(self.dropout(self.fusion_conv(paddle.concat(maps, axis=1))))


_SIZES = ("b0", "b1", "b2", "b3", "b4", "b5")  # of its MiT
VARIANTS: Variants = {
    f"segformer_{size}": {"backbone": f"mit_{size}", "channels": 256 if size in ("b0", "b1") else 768}
    for size in _SIZES
}

_MIT = MixVisionTransformer.key_maps
_OWN_HEAD = "decode_head."
_HUGGINGFACE = (
    (r"^decode_head\.linear_c\.(\d)\.proj\.", lambda m: f"{_OWN_HEAD}linear_c{int(m[1]) + 1}.proj."),
    (r"^decode_head\.linear_fuse\.weight$", f"{_OWN_HEAD}linear_fuse.conv.weight"),
    (r"^decode_head\.batch_norm\.", f"{_OWN_HEAD}linear_fuse.bn."),
    (r"^decode_head\.classifier\.", f"{_OWN_HEAD}linear_pred."),
)
_PADDLESEG = (
    (r"^linear_fuse\._conv\.", f"{_OWN_HEAD}linear_fuse.conv."),
    (r"^linear_fuse\._batch_norm\.", f"{_OWN_HEAD}linear_fuse.bn."),
    (r"^linear_(c[1-4]|pred)\.", _OWN_HEAD + r"linear_\1."),
)


def _from_authors(state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename NVlabs' SegFormer, without the classifier that its head inherits and does not use."""
    ours = rename_network(_MIT["the authors'"], BACKBONE, (), state)
    is_used = _OWN_HEAD + "linear_pred.weight" not in ours
    return {name: value for name, value in ours.items() if is_used or not name.startswith(_OWN_HEAD + "conv_seg.")}


KEY_MAPS: dict[str, KeyMap] = {
    "the authors'": _from_authors,
    "Hugging Face": partial(rename_network, _MIT["Hugging Face"], "segformer.", _HUGGINGFACE),
    "PaddleSeg": partial(rename_network, _MIT["the authors'"], BACKBONE, _PADDLESEG),
}


class SegFormer(Segmenter):
    """SegFormer; its logits have a quarter of the image's sides, rounded up. ``channels`` are the head's."""

    variants = VARIANTS
    key_maps = KEY_MAPS
    telling_name = "decode_head.linear_fuse.conv.weight"
    classifier_layers = ("decode_head.linear_pred",)
    head: ClassVar[type[nn.Layer]] = SegFormerHead
    #: whose the other head is, how names of its weights end, and how names of the models that have it begin
    other_head: ClassVar[tuple[str, tuple[str, ...], str]] = (
        "mmsegmentation's or PaddleViT's SegFormer",
        ("fusion_conv.conv.weight",),
        "segformer_mmseg_",
    )

    def __init__(
        self,
        num_classes: int = 150,
        image_size: int | tuple[int, int] = 512,
        backbone: str = "mit_b0",
        backbone_options: Mapping[str, Any] | None = None,
        channels: int = 256,
        dropout: float = 0.0,
        drop_path: float = 0.0,
    ):
        super().__init__(num_classes, image_size, backbone, backbone_options, drop_path)
        if not hasattr(self.backbone, "outputs"):
            raise UserError(
                f"backbone '{backbone}' is not a MiT, which SegFormer needs: choose one, or a model of UPerNet"
            )
        self.decode_head = self.head(self.backbone.feature_channels, channels, num_classes, dropout)

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        """Compute logits (N, classes, rows, columns) of images (N, 3, height, width)."""
        return self.decode_head(self.backbone.outputs(images))

    def list_source_notices(self, naming: str, state: Mapping[str, Any]) -> list[str]:
        """Return no notices; a ``UserError`` refuses weights of the other head, which computes something else."""
        whose, endings, models = self.other_head
        if any(name.endswith(endings) for name in state):
            raise UserError(
                f"these are weights of {whose}, whose head is another network than this model's: take MODEL.NAME "
                f"{models}b0 or its like of another size"
            )
        return []


# mmsegmentation's networks of that name, and PaddleViT's, which has their weights: another head, one epsilon.
MMSEG_VARIANTS: Variants = {
    f"segformer_mmseg_{size}": {
        "backbone": f"mit_{size}",
        "backbone_options": {"patch_epsilon": 1e-6},
        "channels": 256,
    }
    for size in _SIZES
}
MMSEG_KEY_MAPS: dict[str, KeyMap] = {
    naming: partial(rename_network, _MIT[naming], BACKBONE, ()) for naming in ("mmsegmentation", "PaddleViT")
}


class MmsegmentationsSegFormer(SegFormer):
    """SegFormer with mmsegmentation's head, for its weights and PaddleViT's.

    Source: github.com/open-mmlab/mmsegmentation, configs/_base_/models/segformer_mit-b0.py of 2023.
    """

    variants = MMSEG_VARIANTS
    key_maps = MMSEG_KEY_MAPS
    telling_name = "decode_head.fusion_conv.conv.weight"
    classifier_layers = ("decode_head.conv_seg",)
    head = MmsegmentationsHead
    other_head = (
        "the authors' SegFormer (transformers' and PaddleSeg's too)",
        ("linear_c1.proj.weight", "linear_c.0.proj.weight"),
        "segformer_",
    )
