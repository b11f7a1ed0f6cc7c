"""MLP-Mixer: one MLP over the patches and one over the channels, in turn.

Source: Tolstikhin et al., MLP-Mixer: An all-MLP Architecture for Vision, 2021 (section 2, table 1).
"""

import math
from functools import partial

from paddle import nn

from ...core.runtime.errors import UserError
from ...core.tasks.model import KeyMap, Variants
from ..image_size import format_size
from .classifier import Classifier
from .key_names import jax_layout, rename, without_jax_prefix
from .layers import DropPath, LayerNorm, Mlp, PatchEmbedding, drop_path_rates
from .pretrained_input import HALF, ExpectedInput, list_inputs


def _mlp(dim: int, hidden_dim: int, dropout: float) -> Mlp:
    """Build an MLP whose weights start with the variance 1 / fan-in, as in the authors' code."""
    return Mlp(dim, hidden_dim, dropout, deviations=(math.sqrt(1.0 / dim), math.sqrt(1.0 / hidden_dim)))


class MixerBlock(nn.Layer):
    """An MLP over the patches, then one over the channels, each on normalized input and added to what came in."""

    def __init__(self, dim: int, num_patches: int, token_dim: int, channel_dim: int, dropout: float, drop_path: float):
        super().__init__()
        self.norm1 = LayerNorm(dim, epsilon=1e-6)
        self.mlp_tokens = _mlp(num_patches, token_dim, dropout)
        self.norm2 = LayerNorm(dim, epsilon=1e-6)
        self.mlp_channels = _mlp(dim, channel_dim, dropout)
        self.drop_path = DropPath(drop_path)

    def forward(self, x):
        """Map (batch, patches, dim) to the same shape."""
        mixed = self.mlp_tokens(self.norm1(x).transpose([0, 2, 1]))  # (batch, dim, patches)
        x = x + self.drop_path(mixed.transpose([0, 2, 1]))
        return x + self.drop_path(self.mlp_channels(self.norm2(x)))  # (batch, patches, dim)


_SMALL = {"embed_dim": 512, "depth": 8, "token_ratio": 0.5, "mlp_ratio": 4.0}
_BASE = {"embed_dim": 768, "depth": 12, "token_ratio": 0.5, "mlp_ratio": 4.0}
_LARGE = {"embed_dim": 1024, "depth": 24, "token_ratio": 0.5, "mlp_ratio": 4.0}

VARIANTS: Variants = {
    "mixer_s32_224": dict(image_size=224, patch_size=32, **_SMALL),
    "mixer_s16_224": dict(image_size=224, patch_size=16, **_SMALL),
    "mixer_b32_224": dict(image_size=224, patch_size=32, **_BASE),
    "mixer_b16_224": dict(image_size=224, patch_size=16, **_BASE),
    "mixer_l32_224": dict(image_size=224, patch_size=32, **_LARGE),
    "mixer_l16_224": dict(image_size=224, patch_size=16, **_LARGE),
}

_PADDLEVIT = (
    (r"^patch_embed\.patch_embed\.", "stem.proj."),
    (r"^mixer_layers\.", "blocks."),
)

_BLOCK = r"^MixerBlock_(\d+)/"
_GOOGLE = (
    (r"^stem/", "stem.proj."),
    (_BLOCK + r"LayerNorm_0/", r"blocks.\1.norm1."),
    (_BLOCK + r"token_mixing/Dense_0/", r"blocks.\1.mlp_tokens.fc1."),
    (_BLOCK + r"token_mixing/Dense_1/", r"blocks.\1.mlp_tokens.fc2."),
    (_BLOCK + r"LayerNorm_1/", r"blocks.\1.norm2."),
    (_BLOCK + r"channel_mixing/Dense_0/", r"blocks.\1.mlp_channels.fc1."),
    (_BLOCK + r"channel_mixing/Dense_1/", r"blocks.\1.mlp_channels.fc2."),
    (r"^pre_head_layer_norm/", "norm."),
    (r"^head/", "head."),
)

KEY_MAPS: dict[str, KeyMap] = {
    "PaddleViT": partial(rename, rules=_PADDLEVIT),
    "Google": lambda state: jax_layout(rename(without_jax_prefix(state), _GOOGLE)),  # weights are (in, out)
}


class MlpMixer(Classifier):
    """Mixer classifier.

    Args, in addition to the arguments of ``Classifier``:
        image_size: the weights of the MLPs over the patches depend on it: weights for another size do not fit.
        token_ratio, mlp_ratio: hidden widths of the MLPs over the patches and over the channels, to ``embed_dim``.
    """

    variants = VARIANTS
    expected_inputs = list_inputs(VARIANTS, ExpectedInput(HALF, HALF))
    key_maps = KEY_MAPS
    telling_name = "blocks.#.mlp_tokens.fc#.weight"
    layer_names = r"blocks\.\d+"

    def __init__(
        self,
        num_classes: int = 1000,
        image_size: int | tuple[int, int] = 224,
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
        self.norm = LayerNorm(embed_dim, epsilon=1e-6)
        self.reset_classifier(num_classes)

    def forward_features(self, x):
        """Compute the mean (batch, embed_dim) of the normalized tokens of images (N, channels, height, width)."""
        x = self.stem(x)  # (batch, patches, embed_dim)
        for block in self.blocks:
            x = block(x)
        return self.norm(x).mean(axis=1)

    def resample_parameter(self, name: str, value, trained_size):
        """Refuse MLPs over an equal number of patches in another rectangle; None for other parameters."""
        grid, trained_grid = self.stem.grid, self.stem.find_grid(trained_size)
        if trained_size is None or trained_grid is None or ".mlp_tokens." not in name:
            return None
        if trained_grid != grid and trained_grid[0] * trained_grid[1] == grid[0] * grid[1]:
            theirs, ours = format_size(trained_size), format_size(self.stem.image_size)
            raise UserError(
                f"the weights are for images of {theirs}, the model for {ours}: MLPs over patches cannot be resized, "
                "build the model for the size of the weights"
            )
        return None
