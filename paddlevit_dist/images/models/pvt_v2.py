"""PVTv2: a pyramid of four stages with overlapping patches; keys and values come from a smaller feature map.

Source: Wang et al., PVT v2: Improved Baselines with Pyramid Vision Transformer, 2022 (section 3, table 1).
"""

import math
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import paddle
from paddle import nn

from ...core.tasks.model import KeyMap, Variants, group_by_layers
from ..image_size import as_pair
from .attention import MultiHeadAttention, attend, head_dim
from .classifier import PyramidClassifier
from .key_names import rename
from .layers import (
    GELU,
    ChannelsLastConv,
    ChannelsLastDepthwiseConv,
    DropPath,
    LayerNorm,
    linear,
    rates_of_stages,
    starting_values,
)
from .pretrained_input import ExpectedInput, list_inputs

_POOLED = 7  # side of the feature map that yields keys and values in the linear form


def _fan_out(out_channels: int, kernel_size: int, groups: int = 1) -> dict[str, paddle.ParamAttr]:
    """Start a convolution's weights with the variance 2 / fan-out (He et al., 2015), as in the authors' code."""
    return starting_values(math.sqrt(2.0 / (kernel_size * kernel_size * out_channels // groups)))


class SpatialReductionAttention(MultiHeadAttention):
    """Multi-head attention; keys and values come from a map that a convolution of stride ``reduction`` shrinks.

    If ``is_linear``, maps of any size are averaged to 7 x 7 instead; the cost is linear in the number of tokens.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        reduction: int,
        is_linear: bool,
        patch_epsilon: float,
        qkv_bias: bool,
        dropout: float,
        attention_dropout: float,
    ):
        super().__init__(num_heads, head_dim("EMBED_DIM of a stage", dim, num_heads), dropout, attention_dropout)
        self.dim = dim
        self.q = linear(dim, dim, bias=qkv_bias)
        self.kv = linear(dim, 2 * dim, bias=qkv_bias)
        self.proj = linear(dim, dim)
        self.is_linear, self.is_reduced = is_linear, is_linear or reduction > 1
        if self.is_reduced:
            side = 1 if is_linear else reduction
            self.sr = ChannelsLastConv(dim, dim, side, stride=side, **_fan_out(dim, side))
            self.norm = LayerNorm(dim, epsilon=patch_epsilon)
            self.act = GELU() if is_linear else nn.Identity()

    def forward(self, x, grid: tuple[int, int]):
        """Attend among tokens (batch, tokens, dim) of a grid (rows, columns)."""
        q = self.heads(self.q(x))
        x = self._reduce(x, grid) if self.is_reduced else x  # (batch, reduced tokens, dim)
        return self.dropout(self.proj(attend(self, q, self.heads(self.kv(x)))))  # (batch, tokens, dim)

    def _reduce(self, x, grid: tuple[int, int]):
        image = x.reshape([-1, *grid, self.dim])
        if self.is_linear:
            pooled = nn.functional.adaptive_avg_pool2d(image.transpose([0, 3, 1, 2]), _POOLED)
            image = pooled.transpose([0, 2, 3, 1])
        return self.act(self.norm(self.sr(image).flatten(1, 2)))  # (batch, reduced tokens, dim)


class ConvolutionalMlp(nn.Layer):
    """Two linear layers with a depth-wise 3 x 3 convolution and a GELU between them; the linear form adds a ReLU."""

    def __init__(self, dim: int, hidden_dim: int, is_linear: bool, dropout: float):
        super().__init__()
        self.hidden_dim, self.is_linear = hidden_dim, is_linear
        self.fc1 = linear(dim, hidden_dim)
        self.dwconv = ChannelsLastDepthwiseConv(hidden_dim, 3, **_fan_out(hidden_dim, 3, groups=hidden_dim))
        self.act = GELU()
        self.fc2 = linear(hidden_dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, grid: tuple[int, int]):
        """Map tokens (batch, tokens, dim) of a grid (rows, columns) to the same shape."""
        x = self.fc1(x)
        x = nn.functional.relu(x) if self.is_linear else x
        x = self.dwconv(x.reshape([-1, *grid, self.hidden_dim])).flatten(1, 2)  # (batch, tokens, hidden_dim)
        return self.dropout(self.fc2(self.dropout(self.act(x))))


class PvtBlock(nn.Layer):
    """Attention, then MLP, each on normalized input and added to what came in."""

    def __init__(
        self,
        dim: int,
        mlp_ratio: float,
        is_linear: bool,
        epsilon: float,
        dropout: float,
        drop_path: float,
        **attention: Any,
    ):
        super().__init__()
        self.norm1 = LayerNorm(dim, epsilon=epsilon)
        self.attn = SpatialReductionAttention(dim, is_linear=is_linear, dropout=dropout, **attention)
        self.norm2 = LayerNorm(dim, epsilon=epsilon)
        self.mlp = ConvolutionalMlp(dim, int(dim * mlp_ratio), is_linear, dropout)
        self.drop_path = DropPath(drop_path)

    def forward(self, x, grid: tuple[int, int]):
        """Map tokens (batch, tokens, dim) of a grid (rows, columns) to the same shape."""
        x = x + self.drop_path(self.attn(self.norm1(x), grid))
        return x + self.drop_path(self.mlp(self.norm2(x), grid))  # (batch, tokens, dim)


class OverlappingPatches(nn.Layer):
    """A strided convolution whose kernels overlap, then a norm over the channels."""

    def __init__(
        self, in_channels: int, dim: int, kernel_size: int, stride: int, epsilon: float, is_channels_last: bool = True
    ):
        super().__init__()
        self.proj = ChannelsLastConv(
            in_channels,
            dim,
            kernel_size,
            stride=stride,
            padding=kernel_size // 2,
            is_channels_last=is_channels_last,
            **_fan_out(dim, kernel_size),
        )
        self.norm = LayerNorm(dim, epsilon=epsilon)

    def forward(self, x):
        """Map (batch, channels, height, width) to normalized patches (batch, rows, columns, dim)."""
        return self.norm(self.proj(x))  # (batch, height, width, dim)


class PvtStage(nn.Layer):
    """Blocks at one resolution, after overlapping patches in all stages but the first."""

    def __init__(
        self,
        in_channels: int,
        dim: int,
        has_patches: bool,
        patch_epsilon: float,
        epsilon: float,
        drop_path: Sequence[float],
        **block: Any,
    ):
        super().__init__()
        self.dim = dim
        self.downsample = None
        if has_patches:
            self.downsample = OverlappingPatches(in_channels, dim, kernel_size=3, stride=2, epsilon=patch_epsilon)
        self.blocks = nn.LayerList(
            [PvtBlock(dim, drop_path=rate, patch_epsilon=patch_epsilon, epsilon=epsilon, **block) for rate in drop_path]
        )
        self.norm = LayerNorm(dim, epsilon=epsilon)

    def forward(self, x):
        """(batch, height, width, dim) of (batch, height, width, in_channels)."""
        x = x if self.downsample is None else self.downsample(x)
        grid = (x.shape[1], x.shape[2])
        x = x.flatten(1, 2)  # (batch, tokens, dim)
        for block in self.blocks:
            x = block(x, grid)
        return self.norm(x).reshape([-1, *grid, self.dim])


_WIDE = {"embed_dims": (64, 128, 320, 512), "num_heads": (1, 2, 5, 8)}

VARIANTS: Variants = {
    "pvt_v2_b0": {"embed_dims": (32, 64, 160, 256), "num_heads": (1, 2, 5, 8), "depths": (2, 2, 2, 2)},
    "pvt_v2_b1": dict(depths=(2, 2, 2, 2), **_WIDE),
    "pvt_v2_b2": dict(depths=(3, 4, 6, 3), **_WIDE),
    "pvt_v2_b2_li": dict(depths=(3, 4, 6, 3), is_linear=True, **_WIDE),
    "pvt_v2_b3": dict(depths=(3, 4, 18, 3), **_WIDE),
    "pvt_v2_b4": dict(depths=(3, 8, 27, 3), **_WIDE),
    "pvt_v2_b5": dict(depths=(3, 6, 40, 3), mlp_ratios=(4, 4, 4, 4), **_WIDE),
}
# PaddleViT's have another epsilon in the norms that follow a convolution, which moves logits by up to 6e-5.
VARIANTS.update({name.replace("pvt_v2", "pvtv2"): dict(VARIANTS[name], patch_epsilon=1e-6) for name in [*VARIANTS]})
VARIANTS["pvtv2_b2_linear"] = VARIANTS.pop("pvtv2_b2_li")


def _stage(match: re.Match[str]) -> int:
    """Return our name of a stage, which others count from 1."""
    return int(match[1]) - 1


_PATCHES = {"patch_embed": "proj", "proj": "proj", "norm": "norm"}


def _patches(match: re.Match[str]) -> str:
    place = "patch_embed" if match[1] == "1" else f"stages.{_stage(match)}.downsample"
    return f"{place}.{_PATCHES[match[2]]}."


_SHARED = (
    (r"^block([1-9])\.(\d+)\.mlp\.dwconv\.dwconv\.", lambda m: f"stages.{_stage(m)}.blocks.{m[2]}.mlp.dwconv."),
    (r"^block([1-9])\.", lambda m: f"stages.{_stage(m)}.blocks."),
    (r"^norm([1-9])\.", lambda m: f"stages.{_stage(m)}.norm."),
)

KEY_MAPS: dict[str, KeyMap] = {
    "PaddleViT": partial(rename, rules=((r"^patch_embedding([1-9])\.(patch_embed|norm)\.", _patches), *_SHARED)),
    "the authors'": partial(rename, rules=((r"^patch_embed([1-9])\.(proj|norm)\.", _patches), *_SHARED)),
}


class PyramidVisionTransformer(PyramidClassifier):
    """PVTv2 classifier.

    Args, in addition to the arguments of ``Classifier``:
        embed_dims, depths, num_heads, mlp_ratios: width, blocks, heads and hidden width to width of each stage.
        reductions: by how much each side shrinks before keys and values are taken, per stage.
        is_linear: average-pool to 7 x 7 instead.
        patch_epsilon, epsilon: of the norms that follow a convolution, and of all others.
    """

    variants = VARIANTS
    expected_inputs = list_inputs(VARIANTS, ExpectedInput(crop_pct=0.9))
    key_maps = KEY_MAPS
    telling_name = "stages.#.blocks.#.attn.kv.weight"
    layer_names = r"stages\.\d+\.(?:downsample|blocks\.\d+)"
    fixed_options = {"patch_size": 4}  # of the first stage, by the architecture

    def __init__(
        self,
        num_classes: int = 1000,
        image_size: int | tuple[int, int] = 224,
        embed_dims: Sequence[int] = (64, 128, 320, 512),
        depths: Sequence[int] = (3, 4, 6, 3),
        num_heads: Sequence[int] = (1, 2, 5, 8),
        mlp_ratios: Sequence[float] = (8, 8, 4, 4),
        reductions: Sequence[int] = (8, 4, 2, 1),
        is_linear: bool = False,
        patch_epsilon: float = 1e-5,
        epsilon: float = 1e-6,
        qkv_bias: bool = True,
        in_channels: int = 3,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        drop_path: float = 0.0,
    ):
        super().__init__()
        self.image_size, self.in_channels = as_pair(image_size), in_channels
        self.patch_embed = OverlappingPatches(
            in_channels, embed_dims[0], kernel_size=7, stride=4, epsilon=patch_epsilon, is_channels_last=False
        )
        self.stages = nn.LayerList()
        for index, rates in enumerate(rates_of_stages(drop_path, tuple(depths))):
            stage = PvtStage(
                embed_dims[max(index - 1, 0)],
                embed_dims[index],
                has_patches=index > 0,
                drop_path=rates,
                num_heads=num_heads[index],
                mlp_ratio=mlp_ratios[index],
                reduction=reductions[index],
                is_linear=is_linear,
                patch_epsilon=patch_epsilon,
                epsilon=epsilon,
                qkv_bias=qkv_bias,
                dropout=dropout,
                attention_dropout=attention_dropout,
            )
            self.stages.append(stage)
        self.feature_strides = tuple(4 * 2**i for i in range(len(depths)))
        self.feature_channels = tuple(embed_dims)
        self.embed_dim = embed_dims[-1]
        self.reset_classifier(num_classes)

    def forward_features(self, x):
        """Compute the mean (batch, embed_dim) of the normalized tokens of images (N, channels, height, width)."""
        return self.outputs(x)[-1].mean(axis=[1, 2])

    def parts(self):
        """Return the first patches, and the stages."""
        return (self.patch_embed,), self.stages

    def layer_groups(self) -> list[list[str]]:
        """Return a group for each stage, as in timm."""
        return group_by_layers([name for name, _ in self.named_parameters()], r"stages\.\d+")
