"""UPerNet: pooled pyramids of the last map and a feature pyramid of all, on any backbone with four maps.

Source: Xiao et al., Unified Perceptual Parsing for Scene Understanding, 2018 (arXiv 1807.10221, section 3.1), in
mmsegmentation's form, which the authors of Swin and ConvNeXt took, with an auxiliary head. Names of the heads'
parameters are mmsegmentation's, and timm's in the backbone; Linear weights are (in, out) as Paddle stores them.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

from ...core.runtime.autocast import as_dtype
from ...core.runtime.errors import UserError
from ...core.tasks.model import KeyMap, Variants
from . import foundation_variants as foundation
from .convnext import ConvNeXt
from .foundation_names import MM_VIT
from .key_names import BACKBONE, rename, rename_network, without
from .layers import ChannelDropout, Conv2D, LayerNorm
from .pvt_v2 import PyramidVisionTransformer
from .segmenter import NormalizedConvolution, Segmenter, drop_layers, pixel_classifier, resize_maps
from .swin import SwinTransformer

_POOLED = (1, 2, 3, 6)  # sides of the pooled maps
_NECK_SCALES = (4.0, 2.0, 1.0, 0.5)
_BEHIND_THE_MAPS = ("norm", "head", "fc_norm", "attn_pool")  # layers of a classifier that no map depends on


class MeanPooling(nn.Layer):
    """Means of ``side`` x ``side`` windows that cover a map, and overlap where that does not divide it.

    An export multiplies by matrices: ONNX has such windows only where they divide the map.
    """

    def __init__(self, side: int):
        super().__init__()
        self.side = side

    def forward(self, x):
        """Pool (N, channels, height, width) to (N, channels, side, side)."""
        if paddle.in_dynamic_mode():
            return F.adaptive_avg_pool2d(x, self.side)
        height, width = x.shape[2], x.shape[3]
        x = paddle.matmul(self.weigh_windows(height), x)
        return paddle.matmul(x, self.weigh_windows(width), transpose_y=True)  # (N, channels, side, side)

    def weigh_windows(self, length):
        """float32 (side, length): of each window 1 / its length at its positions; ``length`` may be a tensor."""
        edges, places = paddle.arange(self.side + 1) * length, paddle.arange(length)
        first, last = edges[:-1] // self.side, (edges[1:] + self.side - 1) // self.side
        is_inside = paddle.logical_and(places >= first.unsqueeze(1), places < last.unsqueeze(1))
        return is_inside.astype("float32") / (last - first).unsqueeze(1).astype("float32")


class UPerHead(nn.Layer):
    """The main head on maps of ``inputs`` channels, from fine to coarse; dropout is of whole channels."""

    def __init__(self, inputs: Sequence[int], channels: int, num_classes: int, dropout: float):
        super().__init__()
        self.psp_modules = nn.LayerList(
            [nn.Sequential(MeanPooling(side), NormalizedConvolution(inputs[-1], channels, 1)) for side in _POOLED]
        )
        self.bottleneck = NormalizedConvolution(inputs[-1] + len(_POOLED) * channels, channels, 3)
        self.lateral_convs = nn.LayerList([NormalizedConvolution(width, channels, 1) for width in inputs[:-1]])
        self.fpn_convs = nn.LayerList([NormalizedConvolution(channels, channels, 3) for _ in inputs[:-1]])
        self.fpn_bottleneck = NormalizedConvolution(len(inputs) * channels, channels, 3)
        self.dropout = ChannelDropout(dropout)
        self.conv_seg = pixel_classifier(channels, num_classes)

    def forward(self, maps: Sequence[paddle.Tensor]) -> paddle.Tensor:
        """Compute logits (N, classes, height, width) of maps (N, channels, height, width), at the size of the first."""
        last = maps[-1]
        pooled = [resize_maps(module(last), last.shape[2:]) for module in self.psp_modules]
        above = self.bottleneck(paddle.concat([last, *pooled], axis=1))
        levels = [above]
        for convolution, x in zip(reversed(self.lateral_convs), reversed(maps[:-1])):
            above = convolution(x) + resize_maps(above, x.shape[2:])
            levels.insert(0, above)
        size = maps[0].shape[2:]
        levels = [resize_maps(layer(features), size) for layer, features in zip(self.fpn_convs, levels)] + [
            resize_maps(levels[-1], size)
        ]
        return self.conv_seg(self.dropout(self.fpn_bottleneck(paddle.concat(levels, axis=1))))


class AuxiliaryHead(nn.Layer):
    """A fully convolutional head on one map, from which earlier layers learn directly."""

    def __init__(self, inputs: int, channels: int, num_classes: int, dropout: float):
        super().__init__()
        self.convs = nn.LayerList([NormalizedConvolution(inputs, channels, 3)])
        self.dropout = ChannelDropout(dropout)
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


# UPerNet, Xiao et al., 2018, as the authors of its backbones have it: Liu et al., Swin Transformer, 2021, appendix
# A2.3; Liu et al., ConvNeXt, 2022, appendix A.3; mmsegmentation's configs/vit. Norms of maps add Swin's epsilon or
# ConvNeXt's; a stage of PVTv2 ends with one. A ViT's four maps have one resolution, and the auxiliary head reads
# the last.
_SWINS = {
    "tiny": "swin_tiny_patch4_window7_224",
    "small": "swin_small_patch4_window7_224",
    "base": "swin_base_patch4_window7_224",
    "base_window12": "swin_base_patch4_window12_384",
}
_OF_VIT = {"backbone_options": {"any_size": True}, "has_neck": True, "auxiliary_map": 3}

VARIANTS: Variants = {
    **{
        f"upernet_swin_{size}": {"backbone": name, "backbone_options": {"any_size": True}, "norm_epsilon": 1e-5}
        for size, name in _SWINS.items()
    },
    **{
        f"upernet_convnext_{size}": {"backbone": f"convnext_{size}", "norm_epsilon": 1e-6}
        for size in ("tiny", "small", "base")
    },
    **{f"upernet_pvtv2_b{number}": {"backbone": f"pvt_v2_b{number}"} for number in range(6)},
    "upernet_vit_base": dict(_OF_VIT, backbone="vit_base_patch16_224", has_last_norm=True),
    "upernet_deit_small": dict(_OF_VIT, backbone="deit_small_patch16_224"),
    "upernet_deit_base": dict(_OF_VIT, backbone="deit_base_patch16_224"),
    **{f"upernet_{name}": dict(_OF_VIT, backbone=backbone) for name, backbone in foundation.ON_MAPS.items()},
}

# UPerNet on Swin, ConvNeXt, PVTv2 and ViT: the backbone's name is in brackets where a project has several

_SWIN_BLOCK = r"^stages\.(\d+)\.blocks\.(\d+)\."
_IN_SWIN = r"layers.\1.blocks.\2."
_SWIN_MMSEGMENTATION = (
    (r"^patch_embed\.projection\.", "patch_embed.proj."),
    (r"^stages\.(\d+)\.downsample\.", lambda m: f"layers.{int(m[1]) + 1}.downsample."),
    (_SWIN_BLOCK + r"attn\.w_msa\.", _IN_SWIN + "attn."),
    (_SWIN_BLOCK + r"ffn\.layers\.0\.0\.", _IN_SWIN + "mlp.fc1."),
    (_SWIN_BLOCK + r"ffn\.layers\.1\.", _IN_SWIN + "mlp.fc2."),
    (_SWIN_BLOCK, _IN_SWIN),
)
_CONVNEXT_MMSEGMENTATION = (
    (r"\.depthwise_conv\.", ".dwconv."),
    (r"\.pointwise_conv([12])\.", r".pwconv\1."),
)
_HEAD = "decode_head."
_UNFOLDED = [0, 2, 1, 3]  # which of mmsegmentation's four neighbors, row by row, are ours, column by column


def _swin_from_mmsegmentation(state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename mmsegmentation's Swin, which merges patches with the four values of each channel side by side."""
    ours = rename(without(state, ("relative_position_index",)), _SWIN_MMSEGMENTATION)
    for name, value in ours.items():
        if ".downsample." in name and value.shape[-1] % 4 == 0:
            apart = value.reshape(*value.shape[:-1], -1, 4)[..., _UNFOLDED]  # (..., channels, neighbors)
            ours[name] = np.moveaxis(apart, -1, -2).reshape(value.shape)
    return ours


_MMSEGMENTATION = (
    (r"^backbone\.norm(\d)\.", r"norms.\1."),
    (r"^(neck\.(?:lateral_convs|convs)\.\d)\.conv\.", r"\1."),
)
_HUGGINGFACE = (
    (r"^backbone\.hidden_states_norms\.stage(\d)\.", lambda m: f"norms.{int(m[1]) - 1}."),
    (r"^(decode|auxiliary)_head\.classifier\.", r"\1_head.conv_seg."),
    (r"\.batch_norm\.", ".bn."),
)


def _in_sequence(match: "re.Match[str]") -> str:
    """Return our name of one of PaddleViT's layers in a row: a convolution, then its norm."""
    heads = {"decoder": "decode_head", "aux_decoder": "auxiliary_head"}
    return f"{heads[match[1]]}.{match[2]}.{'conv' if match[3] == '0' else 'bn'}."


_PADDLEVIT = (
    (r"^layer_norms\.", "norms."),
    (
        r"^decoder\.psp_modules\.pool_branches\.(\d)\.([12])\.",
        lambda m: f"{_HEAD}psp_modules.{m[1]}.1.{'conv' if m[2] == '1' else 'bn'}.",
    ),
    (r"^(aux_decoder|decoder)\.((?:(?:lateral_|fpn_)?convs\.\d)|(?:fpn_)?bottleneck)\.([01])\.", _in_sequence),
    (r"^decoder\.", _HEAD),
    (r"^aux_decoder\.", "auxiliary_head."),
)

KEY_MAPS: dict[str, KeyMap] = {
    "PaddleViT": partial(rename_network, SwinTransformer.key_maps["PaddleViT"], "encoder.", _PADDLEVIT),
    **{
        f"{naming} ({kind})": partial(rename_network, to_ours, BACKBONE, rules)
        for naming, kind, to_ours, rules in (
            ("the authors'", "Swin", SwinTransformer.key_maps["the authors'"], _MMSEGMENTATION),
            ("the authors'", "ConvNeXt", ConvNeXt.key_maps["the authors'"], _MMSEGMENTATION),
            ("the authors'", "PVTv2", PyramidVisionTransformer.key_maps["the authors'"], ()),
            ("mmsegmentation", "Swin", _swin_from_mmsegmentation, _MMSEGMENTATION),
            (
                "mmsegmentation",
                "ConvNeXt",
                lambda state: ConvNeXt.key_maps["the authors'"](rename(state, _CONVNEXT_MMSEGMENTATION)),
                _MMSEGMENTATION,
            ),
            ("mmsegmentation", "ViT", partial(rename, rules=MM_VIT), _MMSEGMENTATION),
            ("Hugging Face", "Swin", SwinTransformer.key_maps["Hugging Face"], _HUGGINGFACE),
            ("Hugging Face", "ConvNeXt", ConvNeXt.key_maps["Hugging Face"], _HUGGINGFACE),
        )
    },
}


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

    variants = VARIANTS
    key_maps = KEY_MAPS
    telling_name = "decode_head.fpn_bottleneck.conv.weight"
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
        maps = self.backbone.feature_maps(images)[-4:]
        norms = list(self.norms) or [None] * 3 + [self.backbone.norm if self.has_last_norm else None]
        maps = [
            x if norm is None else norm(x.transpose([0, 2, 3, 1])).transpose([0, 3, 1, 2])
            for norm, x in zip(norms, maps)
        ]
        return maps if self.neck is None else self.neck(maps)

    def list_source_notices(self, naming: str, state: Mapping[str, Any]) -> list[str]:
        """Return no notices; a ``UserError`` refuses weights of a ViT with a normalized last map unlike this one's."""
        if self.neck is not None and not self.has_last_norm and f"{BACKBONE}norm.weight" in state:
            raise UserError(
                "these are weights of a UPerNet that normalizes the last map of its ViT, which this one does not: "
                "build it with has_last_norm=True, as upernet_vit_base is"
            )
        return []
