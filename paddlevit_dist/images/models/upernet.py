"""UPerNet: pooled pyramids of the last map and a feature pyramid of all, on any backbone with four maps.

Source: Xiao et al., Unified Perceptual Parsing for Scene Understanding, 2018 (arXiv 1807.10221, section 3.1), in
mmsegmentation's form, which the authors of Swin and ConvNeXt took, with an auxiliary head. Names of the heads'
parameters are mmsegmentation's, and timm's in the backbone; Linear weights are (in, out) as Paddle stores them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

from ...runtime.autocast import as_dtype
from ...runtime.errors import UserError
from . import segmentation_names
from .layers import Conv2D, LayerNorm
from .segmenter import NormalizedConvolution, Segmenter, drop_layers, pixel_classifier, resize_maps
from .variants import UPERNET

_POOLED = (1, 2, 3, 6)  # sides of the pooled maps
_NECK_SCALES = (4.0, 2.0, 1.0, 0.5)
_BEHIND_THE_MAPS = ("norm", "head", "fc_norm", "attn_pool")  # layers of a classifier that no map depends on


class MeanPooling(nn.Layer):
    """Means of ``side`` x ``side`` windows that cover a map, and overlap where that does not divide it.

    An export of one size multiplies by matrices: ONNX has such windows only where they divide the map.
    """

    def __init__(self, side: int):
        super().__init__()
        self.side = side

    def forward(self, x):
        """Pool (N, channels, height, width) to (N, channels, side, side)."""
        if paddle.in_dynamic_mode() or -1 in x.shape[2:]:
            return F.adaptive_avg_pool2d(x, self.side)
        down, across = (paddle.to_tensor(self._windows(length)) for length in x.shape[2:])
        return paddle.matmul(paddle.matmul(down, x), across, transpose_y=True)  # (N, channels, side, side)

    def _windows(self, length: int) -> np.ndarray:
        """float32 (side, length): of each window 1 / its length at its positions."""
        edges = np.arange(self.side + 1) * length
        first, last = edges[:-1] // self.side, -(-edges[1:] // self.side)
        places = np.arange(length)
        inside = (places >= first[:, None]) & (places < last[:, None])
        return (inside / inside.sum(axis=1, keepdims=True)).astype(np.float32)


class UPerHead(nn.Layer):
    """The main head.

    Args:
        inputs: channels of the maps, from fine to coarse.
        channels: of the head's maps.
        dropout: rate before the last layer, of whole channels.
    """

    def __init__(self, inputs: Sequence[int], channels: int, num_classes: int, dropout: float):
        super().__init__()
        self.psp_modules = nn.LayerList(
            [nn.Sequential(MeanPooling(side), NormalizedConvolution(inputs[-1], channels, 1)) for side in _POOLED]
        )
        self.bottleneck = NormalizedConvolution(inputs[-1] + len(_POOLED) * channels, channels, 3)
        self.lateral_convs = nn.LayerList([NormalizedConvolution(width, channels, 1) for width in inputs[:-1]])
        self.fpn_convs = nn.LayerList([NormalizedConvolution(channels, channels, 3) for _ in inputs[:-1]])
        self.fpn_bottleneck = NormalizedConvolution(len(inputs) * channels, channels, 3)
        self.dropout = nn.Dropout2D(dropout)
        self.conv_seg = pixel_classifier(channels, num_classes)

    def forward(self, maps: Sequence[paddle.Tensor]) -> paddle.Tensor:
        """Logits (N, classes, height, width) of maps (N, channels, height, width), at the size of the first."""
        last = maps[-1]
        pooled = [resize_maps(module(last), last.shape[2:]) for module in self.psp_modules]
        above = self.bottleneck(paddle.concat([last, *pooled], axis=1))
        levels = [above]
        for convolution, x in zip(reversed(self.lateral_convs), reversed(maps[:-1])):
            above = convolution(x) + resize_maps(above, x.shape[2:])
            levels.insert(0, above)
        size = maps[0].shape[2:]
        levels = [resize_maps(convolution(x), size) for convolution, x in zip(self.fpn_convs, levels)] + [
            resize_maps(levels[-1], size)
        ]
        return self.conv_seg(self.dropout(self.fpn_bottleneck(paddle.concat(levels, axis=1))))


class AuxiliaryHead(nn.Layer):
    """A fully convolutional head on one map, from which earlier layers learn directly."""

    def __init__(self, inputs: int, channels: int, num_classes: int, dropout: float):
        super().__init__()
        self.convs = nn.LayerList([NormalizedConvolution(inputs, channels, 3)])
        self.dropout = nn.Dropout2D(dropout)
        self.conv_seg = pixel_classifier(channels, num_classes)

    def forward(self, x):
        """Compute logits (N, classes, height, width) at the size of the map."""
        return self.conv_seg(self.dropout(self.convs[0](x)))  # (N, classes, height, width) of the map


class ViTNeck(nn.Layer):
    """Four maps of a ViT, which have one resolution, at four: each is interpolated between two convolutions.

    Source: mmsegmentation's MultiLevelNeck, whose published networks this is for.
    """

    def __init__(self, channels: int):
        super().__init__()
        self.lateral_convs = nn.LayerList([Conv2D(channels, channels, 1) for _ in _NECK_SCALES])
        self.convs = nn.LayerList([Conv2D(channels, channels, 3, padding=1) for _ in _NECK_SCALES])

    def forward(self, maps: Sequence[paddle.Tensor]) -> list[paddle.Tensor]:
        """Resize four maps of one resolution to strides 4, 8, 16 and 32 of a ViT with patches of 16."""
        scaled = []
        for x, first, second, scale in zip(maps, self.lateral_convs, self.convs, _NECK_SCALES):
            x = first(x)
            if scale != 1.0:
                x = as_dtype(F.interpolate(x, scale_factor=scale, mode="bilinear", align_corners=False), x.dtype)
            scaled.append(second(x))
        return scaled


class UPerNet(Segmenter):
    """UPerNet; its logits have the resolution of the finest map, a quarter of the image's sides.

    With batches of one image the statistics of the map that is pooled to a single value say nothing: train with more.

    Args, in addition to the arguments of ``Segmenter``:
        channels, auxiliary_channels: of the heads.
        auxiliary_map: which of the four maps the auxiliary head is on.
        norm_epsilon: each map is normalized over its channels, with this epsilon; None: none is.
        has_last_norm: the last map is normalized by the backbone's own last norm.
        has_neck: maps of one resolution, a ViT's, are brought to four.
    """

    variants = UPERNET
    key_maps = segmentation_names.UPERNET
    classifier_layers = ("decode_head.conv_seg", "auxiliary_head.conv_seg")
    auxiliary_weight = 0.4

    def __init__(
        self,
        num_classes: int = 150,
        image_size: int | tuple[int, int] = 512,
        backbone: str = "swin_tiny_patch4_window7_224",
        backbone_options: Mapping[str, Any] | None = None,
        channels: int = 512,
        auxiliary_channels: int = 256,
        auxiliary_map: int = 2,
        norm_epsilon: float | None = None,
        has_last_norm: bool = False,
        has_neck: bool = False,
        dropout: float = 0.0,
        drop_path: float = 0.0,
    ):
        super().__init__(num_classes, image_size, backbone, backbone_options, drop_path)
        widths = self.backbone.feature_channels[-4:]
        self.has_last_norm = has_last_norm
        drop_layers(self.backbone, _BEHIND_THE_MAPS[1 if has_last_norm else 0 :])
        self.norms = nn.LayerList([LayerNorm(width, epsilon=norm_epsilon) for width in widths if norm_epsilon])
        self.neck = ViTNeck(widths[-1]) if has_neck else None
        self.auxiliary_map = auxiliary_map
        self.decode_head = UPerHead(widths, channels, num_classes, dropout)
        self.auxiliary_head = AuxiliaryHead(widths[auxiliary_map], auxiliary_channels, num_classes, dropout)

    def forward(self, images: paddle.Tensor) -> paddle.Tensor | tuple[paddle.Tensor, paddle.Tensor]:
        """Compute logits (N, classes, rows, columns), in training also the auxiliary head's."""
        maps = self.maps(images)
        logits = self.decode_head(maps)
        return (logits, self.auxiliary_head(maps[self.auxiliary_map])) if self.training else logits

    def maps(self, images: paddle.Tensor) -> list[paddle.Tensor]:
        """Compute what the heads see: four maps (N, channels, height, width), from fine to coarse."""
        maps = self.backbone.features(images)[-4:]
        norms = list(self.norms) or [None] * 3 + [self.backbone.norm if self.has_last_norm else None]
        maps = [x if norm is None else _over_channels(norm, x) for norm, x in zip(norms, maps)]
        return maps if self.neck is None else self.neck(maps)

    def list_source_notices(self, naming: str, state: Mapping[str, Any]) -> list[str]:
        """None.

        Raises:
            UserError: the weights are of a ViT whose last map is normalized, and this one's is not.
        """
        if self.neck is not None and not self.has_last_norm and f"{segmentation_names.BACKBONE}norm.weight" in state:
            raise UserError(
                "these are weights of a UPerNet that normalizes the last map of its ViT, which this one does not: "
                "build it with has_last_norm=True, as upernet_vit_base is"
            )
        return []


def _over_channels(norm: nn.Layer, x: paddle.Tensor) -> paddle.Tensor:
    return norm(x.transpose([0, 2, 3, 1])).transpose([0, 3, 1, 2])
