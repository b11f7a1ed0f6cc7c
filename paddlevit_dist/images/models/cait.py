"""CaiT: a deep ViT with scaled residual branches and mixed attention heads; the class token joins in the last blocks.

Source: Touvron et al., Going deeper with Image Transformers, 2021 (sections 2 and 3, tables 3 and 5), and Shazeer et
al., Talking-Heads Attention, 2020.
"""

import functools
from typing import Any

import paddle
from paddle import nn

from ...core.tasks.model import KeyMap, Variants
from .attention import MultiHeadAttention, attend, head_dim
from .classifier import Classifier
from .key_names import rename
from .layers import DropPath, LayerNorm, MatrixProduct, Mlp, PatchEmbedding, TruncatedNormal, linear
from .pretrained_input import ExpectedInput, list_inputs
from .resampling import resize_position_embedding


class TalkingHeadsAttention(MultiHeadAttention):
    """Multi-head self-attention whose heads are mixed linearly before and after the softmax."""

    def __init__(self, dim: int, num_heads: int, qkv_bias: bool, dropout: float, attention_dropout: float):
        super().__init__(num_heads, head_dim("EMBED_DIM", dim, num_heads), dropout, attention_dropout)
        self.qkv = linear(dim, 3 * dim, bias=qkv_bias)
        self.proj_l = linear(num_heads, num_heads)
        self.proj_w = linear(num_heads, num_heads)
        self.proj = linear(dim, dim)
        self.mix_heads = MatrixProduct(transpose_x=True)

    def forward(self, x):
        """Attend among tokens (batch, tokens, dim)."""
        qkv = self.heads(self.qkv(x))
        mixed = [functools.partial(self._mix, layer=layer) for layer in (self.proj_l, self.proj_w)]
        return self.dropout(self.proj(attend(self, qkv, before=mixed[0], after=mixed[1])))  # (batch, tokens, dim)

    def _mix(self, attention, layer: nn.Linear):
        """Apply ``layer`` over the heads of (batch, heads, tokens, tokens), without moving them to the last axis."""
        tokens = attention.shape[-1]
        flat = attention.reshape([-1, self.num_heads, tokens * tokens])
        flat = self.mix_heads(layer.weight.astype(flat.dtype), flat) + layer.bias.astype(flat.dtype).unsqueeze(-1)
        return flat.reshape([-1, self.num_heads, tokens, tokens])


class ClassAttention(MultiHeadAttention):
    """Attention of the class token, the first, to itself and all others (section 3)."""

    def __init__(self, dim: int, num_heads: int, qkv_bias: bool, dropout: float, attention_dropout: float):
        super().__init__(num_heads, head_dim("EMBED_DIM", dim, num_heads), dropout, attention_dropout)
        self.q = linear(dim, dim, bias=qkv_bias)
        self.k = linear(dim, dim, bias=qkv_bias)
        self.v = linear(dim, dim, bias=qkv_bias)
        self.proj = linear(dim, dim)

    def forward(self, x):
        """Return the attention's output for the class token, (batch, 1, dim)."""
        q, k, v = self.heads(self.q(x[:, :1])), self.heads(self.k(x)), self.heads(self.v(x))
        return self.dropout(self.proj(attend(self, q, k, v)))  # (batch, 1, dim)


class CaiTBlock(nn.Layer):
    """Attention, then MLP, each on normalized input, scaled by channel (LayerScale) and added to what came in."""

    def __init__(
        self, attention: nn.Layer, dim: int, mlp_dim: int, init_values: float, dropout: float, drop_path: float
    ):
        super().__init__()
        start = nn.initializer.Constant(init_values)
        self.norm1 = LayerNorm(dim, epsilon=1e-6)
        self.attn = attention
        self.norm2 = LayerNorm(dim, epsilon=1e-6)
        self.mlp = Mlp(dim, mlp_dim, dropout)
        self.gamma_1 = self.create_parameter([dim], default_initializer=start)
        self.gamma_2 = self.create_parameter([dim], default_initializer=start)
        self.drop_path = DropPath(drop_path)

    def forward(self, x):
        """Map tokens (batch, tokens, dim) to the same shape."""
        x = x + self.drop_path(self.gamma_1 * self.attn(self.norm1(x)))
        return x + self.drop_path(self.gamma_2 * self.mlp(self.norm2(x)))  # (batch, tokens, dim)


class ClassBlock(CaiTBlock):
    """A block that changes only the class token."""

    def forward(self, x, token):
        """Return the new class token, (batch, 1, dim), from patches (batch, patches, dim) and the old one."""
        tokens = self.norm1(paddle.concat([token, x], axis=1))  # (batch, 1 + patches, dim)
        token = token + self.drop_path(self.gamma_1 * self.attn(tokens))
        return token + self.drop_path(self.gamma_2 * self.mlp(self.norm2(token)))  # (batch, 1, dim)


_XXS24 = {"patch_size": 16, "embed_dim": 192, "depth": 24, "num_heads": 4, "init_values": 1e-5}
_XXS36 = {"patch_size": 16, "embed_dim": 192, "depth": 36, "num_heads": 4, "init_values": 1e-5}
_XS24 = {"patch_size": 16, "embed_dim": 288, "depth": 24, "num_heads": 6, "init_values": 1e-5}
_S24 = {"patch_size": 16, "embed_dim": 384, "depth": 24, "num_heads": 8, "init_values": 1e-5}
_S36 = {"patch_size": 16, "embed_dim": 384, "depth": 36, "num_heads": 8, "init_values": 1e-6}
_M36 = {"patch_size": 16, "embed_dim": 768, "depth": 36, "num_heads": 16, "init_values": 1e-6}
_M48 = {"patch_size": 16, "embed_dim": 768, "depth": 48, "num_heads": 16, "init_values": 1e-6}

VARIANTS: Variants = {
    "cait_xxs24_224": dict(image_size=224, **_XXS24),
    "cait_xxs24_384": dict(image_size=384, **_XXS24),
    "cait_xxs36_224": dict(image_size=224, **_XXS36),
    "cait_xxs36_384": dict(image_size=384, **_XXS36),
    "cait_xs24_384": dict(image_size=384, **_XS24),
    "cait_s24_224": dict(image_size=224, **_S24),
    "cait_s24_384": dict(image_size=384, **_S24),
    "cait_s36_384": dict(image_size=384, **_S36),
    "cait_m36_384": dict(image_size=384, **_M36),
    "cait_m48_448": dict(image_size=448, **_M48),
}

# The authors' names are timm's.
KEY_MAPS: dict[str, KeyMap] = {
    "PaddleViT": functools.partial(rename, rules=((r"^patch_embed\.patch_embed\.", "patch_embed.proj."),)),
}


class CaiT(Classifier):
    """CaiT classifier.

    Args, in addition to the arguments of ``Classifier``:
        depth, class_depth: blocks of the patches, and blocks of the class token, which follow.
        init_values: initial scale of the residual branches.
        drop_path: one rate for all blocks of the patches; blocks of the class token have 0.
    """

    variants = VARIANTS
    expected_inputs = list_inputs(VARIANTS, ExpectedInput(crop_pct=1.0))
    key_maps = KEY_MAPS
    telling_name = "blocks_token_only.#.attn.q.weight"
    layer_names = r"blocks\.\d+"

    def __init__(
        self,
        num_classes: int = 1000,
        image_size: int | tuple[int, int] = 224,
        patch_size: int = 16,
        embed_dim: int = 192,
        depth: int = 24,
        num_heads: int = 4,
        class_depth: int = 2,
        init_values: float = 1e-5,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        in_channels: int = 3,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        drop_path: float = 0.0,
    ):
        super().__init__()
        self.embed_dim = embed_dim
        self.patch_embed = PatchEmbedding(image_size, patch_size, in_channels, embed_dim)
        self.image_size, self.in_channels = self.patch_embed.image_size, in_channels
        num_patches = self.patch_embed.grid[0] * self.patch_embed.grid[1]
        self.cls_token = self.create_parameter([1, 1, embed_dim], default_initializer=TruncatedNormal())
        self.pos_embed = self.create_parameter([1, num_patches, embed_dim], default_initializer=TruncatedNormal())
        self.pos_drop = nn.Dropout(dropout)
        heads: dict[str, Any] = {"dim": embed_dim, "num_heads": num_heads, "qkv_bias": qkv_bias}
        block: dict[str, Any] = {"dim": embed_dim, "mlp_dim": int(embed_dim * mlp_ratio), "init_values": init_values}
        self.blocks = nn.LayerList()
        for _ in range(depth):
            attention = TalkingHeadsAttention(dropout=dropout, attention_dropout=attention_dropout, **heads)
            self.blocks.append(CaiTBlock(attention, dropout=dropout, drop_path=drop_path, **block))
        self.blocks_token_only = nn.LayerList()
        for _ in range(class_depth):
            attention = ClassAttention(dropout=0.0, attention_dropout=0.0, **heads)
            self.blocks_token_only.append(ClassBlock(attention, dropout=0.0, drop_path=0.0, **block))
        self.norm = LayerNorm(embed_dim, epsilon=1e-6)
        self.reset_classifier(num_classes)

    def forward_features(self, x):
        """Compute the normalized class token (batch, embed_dim) of images (batch, channels, height, width)."""
        x = self.pos_drop(self.patch_embed(x) + self.pos_embed)  # (batch, patches, embed_dim)
        for block in self.blocks:
            x = block(x)
        token = self.cls_token.astype(x.dtype).expand([x.shape[0], -1, -1])  # (batch, 1, embed_dim)
        for block in self.blocks_token_only:
            token = block(x, token)
        return self.norm(token[:, 0])

    def no_weight_decay(self) -> tuple[str, ...]:
        """Return the names of parameters with several axes that are not decayed, as in the authors' code."""
        return ("pos_embed", "cls_token")

    def layer_groups(self) -> list[list[str]]:
        """Group the names as timm: the last blocks of patches and of the class token are one step from the head."""
        groups, last = super().layer_groups(), len(self.blocks)
        token_names = [key for key in groups[last] if key.startswith("blocks_token_only.")]
        groups[last] = [key for key in groups[last] if key not in token_names]
        for name in token_names:
            number = int(name.split(".")[1])
            groups[max(last + 1 - len(self.blocks_token_only) + number, 0)].append(name)
        return groups

    def resample_parameter(self, name: str, value, trained_size):
        """Resample the position embedding, which has no part for the class token, to this model's grid."""
        if name != "pos_embed":
            return None
        return resize_position_embedding(value, self.patch_embed.grid, 0, self.patch_embed.find_grid(trained_size))
