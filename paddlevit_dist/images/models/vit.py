"""Vision Transformer: an image as a sequence of patches, a class token, and a pre-norm transformer encoder.

Source: Dosovitskiy et al., An Image is Worth 16x16 Words, 2021 (section 3.1, tables 1 and 5); Ti and S from
Touvron et al., DeiT, 2021. Parameter names are timm's; Linear weights are (in, out) as Paddle stores them.
"""

from typing import Any

import paddle
from paddle import nn
from paddle.nn import functional as F

from ...runtime.errors import UserError
from . import key_names
from .attention import MultiHeadAttention, attend
from .classifier import Classifier
from .layers import DropPath, LayerNorm, Mlp, PatchEmbedding, TruncatedNormal, drop_path_rates, linear
from .resampling import resize_position_embedding
from .variants import VIT


class Attention(MultiHeadAttention):
    """Multi-head self-attention."""

    def __init__(self, dim: int, num_heads: int, head_dim: int, qkv_bias: bool, **dropouts: float):
        super().__init__(num_heads, head_dim, **dropouts)
        self.qkv = linear(dim, 3 * num_heads * head_dim, bias=qkv_bias)
        self.proj = linear(num_heads * head_dim, dim)

    def forward(self, x):
        return self.dropout(self.proj(attend(self, self.heads(self.qkv(x)))))  # (batch, tokens, dim)


class Block(nn.Layer):
    """Attention, then MLP, each on normalised input and added to what came in."""

    def __init__(self, dim: int, mlp_dim: int, dropout: float, drop_path: float, **attention: Any):
        super().__init__()
        self.norm1 = LayerNorm(dim, epsilon=1e-6)
        self.attn = Attention(dim, dropout=dropout, **attention)
        self.norm2 = LayerNorm(dim, epsilon=1e-6)
        self.mlp = Mlp(dim, mlp_dim, dropout)
        self.drop_path = DropPath(drop_path)

    def forward(self, x, count: int | None = None):
        """All tokens (batch, tokens, dim), or the first ``count`` of them."""
        x = x + self.drop_path(self.attn(self.norm1(x)))
        x = x + self.drop_path(self.mlp(self.norm2(x)))
        return x if count is None else x[:, :count]


class VisionTransformer(Classifier):
    """ViT classifier.

    Args, besides those of ``Classifier``:
        embed_dim, depth, num_heads: dimensions of the encoder.
        attn_head_size: channels of one head; None is ``embed_dim / num_heads``.
        any_size: images of other sizes are taken too, with zeros at the bottom and right where a patch is not full;
            position embeddings are interpolated bicubically to their grid, as in mmsegmentation.
    """

    variants = VIT
    key_maps = key_names.VIT
    layer_names = r"blocks\.\d+"
    num_prefix_tokens = 1  # learnt tokens in front of the patches

    def __init__(
        self,
        num_classes: int = 1000,
        image_size: int | tuple[int, int] = 224,
        patch_size: int = 16,
        embed_dim: int = 768,
        depth: int = 12,
        num_heads: int = 12,
        attn_head_size: int | None = None,
        any_size: bool = False,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        in_channels: int = 3,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        drop_path: float = 0.0,
    ):
        super().__init__()
        self.embed_dim, self.any_size = embed_dim, any_size
        self.patch_embed = PatchEmbedding(image_size, patch_size, in_channels, embed_dim)
        self.image_size = self.patch_embed.image_size
        self.in_channels = in_channels
        self.num_patches = self.patch_embed.grid[0] * self.patch_embed.grid[1]
        self.create_tokens()
        self.pos_embed = self.create_parameter(
            [1, self.num_prefix_tokens + self.num_patches, embed_dim], default_initializer=TruncatedNormal()
        )
        self.pos_drop = nn.Dropout(dropout)
        self.blocks = nn.LayerList(
            [
                Block(
                    embed_dim,
                    mlp_dim=int(embed_dim * mlp_ratio),
                    num_heads=num_heads,
                    head_dim=_head_dim(embed_dim, num_heads, attn_head_size),
                    qkv_bias=qkv_bias,
                    dropout=dropout,
                    attention_dropout=attention_dropout,
                    drop_path=rate,
                )
                for rate in drop_path_rates(drop_path, depth)
            ]
        )
        self.norm = LayerNorm(embed_dim, epsilon=1e-6)
        self.feature_blocks = sorted({depth * quarter // 4 for quarter in (1, 2, 3, 4)} - {0})  # from 1
        self.feature_strides = (patch_size,) * len(self.feature_blocks)
        self.feature_channels = (embed_dim,) * len(self.feature_blocks)
        self.reset_classifier(num_classes)

    def create_tokens(self) -> None:
        """Create the learnt tokens that precede the patches."""
        self.cls_token = self.create_parameter([1, 1, self.embed_dim], default_initializer=TruncatedNormal())

    def forward_features(self, x):
        """The normalised class token (batch, embed_dim) of images (batch, in_channels, height, width)."""
        return self.norm(self.first_tokens(x)[:, 0])  # normalising only the token that is read

    def encode(self, x):
        """All tokens (batch, prefix tokens + patches, embed_dim) after the last block, not normalised."""
        x = self._tokens(x)
        for block in self.blocks:
            x = block(x)
        return x

    def first_tokens(self, x):
        """The learnt tokens (batch, prefix tokens, embed_dim) after the last block, not normalised."""
        x = self._tokens(x)
        blocks = list(self.blocks)
        for block in blocks[:-1]:
            x = block(x)
        return blocks[-1](x, self.num_prefix_tokens)

    def features(self, x, sizes=None) -> list[paddle.Tensor]:
        """The patches after each quarter of the blocks, without the tokens in front; all of one stride."""
        grid, maps = self._grid(x), []
        x = self._tokens(x)
        for index, block in enumerate(self.blocks):
            x = block(x)
            if index + 1 in self.feature_blocks:
                patches = x[:, self.num_prefix_tokens :].transpose([0, 2, 1])  # (batch, embed_dim, patches)
                maps.append(patches.reshape([0, 0, *grid]))
        return maps

    def _tokens(self, x):
        """All tokens (batch, prefix tokens + patches, embed_dim) before the first block."""
        positions = self._positions(self._grid(x))
        if self.any_size:
            down, across = (-side % self.patch_embed.patch_size for side in x.shape[2:])
            x = self.patch_embed.embed(F.pad(x, [0, across, 0, down]) if down or across else x)
        else:
            x = self.patch_embed(x)  # (batch, patches, embed_dim)
        tokens = [token.astype(x.dtype).expand([x.shape[0], -1, -1]) for token in self.prefix_tokens()]
        return self.pos_drop(paddle.concat([*tokens, x], axis=1) + positions)

    def _grid(self, images) -> tuple[int, int]:
        """Patches down and across."""
        if not self.any_size:
            return self.patch_embed.grid
        height, width = (-(-side // self.patch_embed.patch_size) for side in images.shape[2:])
        return height, width

    def _positions(self, grid: tuple[int, int]):
        """The position embedding (1, prefix tokens + patches, embed_dim) of a grid."""
        own = self.patch_embed.grid
        if grid == own:
            return self.pos_embed
        prefix, patches = self.pos_embed.split([self.num_prefix_tokens, -1], axis=1)
        patches = patches.reshape([1, *own, self.embed_dim]).transpose([0, 3, 1, 2])
        patches = F.interpolate(patches, size=list(grid), mode="bicubic", align_corners=False)
        return paddle.concat([prefix, patches.flatten(2).transpose([0, 2, 1])], axis=1)

    def prefix_tokens(self):
        """The learnt tokens (1, 1, embed_dim) that precede the patches, in order."""
        return [self.cls_token]

    def no_weight_decay(self) -> tuple[str, ...]:
        """As in timm, and in big_vision, which decays kernels alone (``wd_mults`` of its ``optax.py``)."""
        return ("pos_embed", "cls_token")

    def resize_parameter(self, name: str, value):
        """The position embedding is resampled to the grid of this model's image size."""
        if name != "pos_embed":
            return None
        return resize_position_embedding(value, self.patch_embed.grid, self.num_prefix_tokens)


def _head_dim(embed_dim: int, num_heads: int, attn_head_size: int | None) -> int:
    if attn_head_size is not None:
        return attn_head_size
    if embed_dim % num_heads:
        raise UserError(
            f"EMBED_DIM {embed_dim} is not divisible by NUM_HEADS {num_heads}: change one, or give ATTN_HEAD_SIZE"
        )
    return embed_dim // num_heads
