"""MLP-Mixer: one MLP over the patches and one over the channels, in turn.

Source: Tolstikhin et al., MLP-Mixer: An all-MLP Architecture for Vision, 2021 (section 2, table 1). Parameter names
are timm's; Linear weights are (in, out) as Paddle stores them.
"""

from __future__ import annotations

import math
from typing import Any, Dict, Tuple, Union

from paddle import nn

from .layers import DropPath, PatchEmbedding, drop_path_rates, linear
from .mlp_mixer_keys import from_google, from_paddlevit
from .variants import build_variant

_SMALL = {"embed_dim": 512, "depth": 8, "token_ratio": 0.5, "mlp_ratio": 4.0}
_BASE = {"embed_dim": 768, "depth": 12, "token_ratio": 0.5, "mlp_ratio": 4.0}
_LARGE = {"embed_dim": 1024, "depth": 24, "token_ratio": 0.5, "mlp_ratio": 4.0}

VARIANTS: Dict[str, Dict[str, Any]] = {
    "mixer_s32_224": dict(image_size=224, patch_size=32, **_SMALL),
    "mixer_s16_224": dict(image_size=224, patch_size=16, **_SMALL),
    "mixer_b32_224": dict(image_size=224, patch_size=32, **_BASE),
    "mixer_b16_224": dict(image_size=224, patch_size=16, **_BASE),
    "mixer_l32_224": dict(image_size=224, patch_size=32, **_LARGE),
    "mixer_l16_224": dict(image_size=224, patch_size=16, **_LARGE),
}


def build(name: str, num_classes: int = 1000, image_size=None, **options: Any) -> MlpMixer:
    """The Mixer that ``name`` stands for, with the options that differ from its variant."""
    return build_variant(MlpMixer, VARIANTS, name, num_classes, image_size, options)


class MixerMlp(nn.Layer):
    """Two linear layers with an exact GELU between them, on the last axis.

    Weights start with the variance 1 / fan-in, as in the authors' code.
    """

    def __init__(self, dim: int, hidden_dim: int, dropout: float):
        super().__init__()
        self.fc1 = linear(dim, hidden_dim, standard_deviation=math.sqrt(1.0 / dim))
        self.fc2 = linear(hidden_dim, dim, standard_deviation=math.sqrt(1.0 / hidden_dim))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = self.dropout(nn.functional.gelu(self.fc1(x)))  # (..., hidden_dim)
        return self.dropout(self.fc2(x))  # (..., dim)


class MixerBlock(nn.Layer):
    """An MLP over the patches, then one over the channels, each on normalised input and added to what came in."""

    def __init__(self, dim: int, num_patches: int, token_dim: int, channel_dim: int, dropout: float, drop_path: float):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, epsilon=1e-6)
        self.mlp_tokens = MixerMlp(num_patches, token_dim, dropout)
        self.norm2 = nn.LayerNorm(dim, epsilon=1e-6)
        self.mlp_channels = MixerMlp(dim, channel_dim, dropout)
        self.drop_path = DropPath(drop_path)

    def forward(self, x):
        mixed = self.mlp_tokens(self.norm1(x).transpose([0, 2, 1]))  # (batch, dim, patches)
        x = x + self.drop_path(mixed.transpose([0, 2, 1]))
        return x + self.drop_path(self.mlp_channels(self.norm2(x)))  # (batch, patches, dim)


class MlpMixer(nn.Layer):
    """Mixer classifier.

    Args:
        num_classes: outputs; 0 for the features alone.
        image_size: pixels, one number or (height, width), each a multiple of ``patch_size``. The weights of the MLPs
            over the patches depend on it: weights for another size do not fit.
        patch_size: side of a patch in pixels.
        embed_dim, depth: width of a token, number of blocks.
        token_ratio, mlp_ratio: hidden widths of the MLPs over the patches and over the channels, to ``embed_dim``.
        in_channels: channels of the images.
        dropout: rate after both layers of each MLP.
        drop_path: rate of stochastic depth in the last block; it grows linearly from 0 in the first.
    """

    key_maps = {"PaddleViT": from_paddlevit, "Google": from_google}
    classifier_layers = ("head",)

    def __init__(
        self,
        num_classes: int = 1000,
        image_size: Union[int, Tuple[int, int]] = 224,
        patch_size: int = 16,
        embed_dim: int = 512,
        depth: int = 8,
        token_ratio: float = 0.5,
        mlp_ratio: float = 4.0,
        in_channels: int = 3,
        dropout: float = 0.0,
        drop_path: float = 0.0,
    ):
        super().__init__()
        self.embed_dim = embed_dim
        self.stem = PatchEmbedding(image_size, patch_size, in_channels, embed_dim)
        self.image_size, self.in_channels = self.stem.image_size, in_channels
        num_patches = self.stem.grid[0] * self.stem.grid[1]
        token_dim, channel_dim = int(embed_dim * token_ratio), int(embed_dim * mlp_ratio)
        self.blocks = nn.LayerList(
            [
                MixerBlock(embed_dim, num_patches, token_dim, channel_dim, dropout, rate)
                for rate in drop_path_rates(drop_path, depth)
            ]
        )
        self.norm = nn.LayerNorm(embed_dim, epsilon=1e-6)
        self.reset_classifier(num_classes)

    def forward_features(self, x):
        """The mean of the normalised tokens (batch, embed_dim) of images (batch, in_channels, height, width)."""
        x = self.stem(x)  # (batch, patches, embed_dim)
        for block in self.blocks:
            x = block(x)
        return self.norm(x).mean(axis=1)

    def forward(self, x):
        """Logits (batch, num_classes), or the features when the model has no classes."""
        return self.head(self.forward_features(x))

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the last layer by a fresh one for ``num_classes``, or by nothing for 0.

        Its weights are small but not zero, as the authors start them: no gradient would reach the blocks at first.
        """
        self.num_classes = num_classes
        self.head = linear(self.embed_dim, num_classes) if num_classes > 0 else nn.Identity()
