"""Vision Transformer: an image as a sequence of patches, a class token, and a pre-norm transformer encoder.

Source: Dosovitskiy et al., An Image is Worth 16x16 Words, 2021 (section 3.1, tables 1 and 5); Ti and S from Touvron et
al., DeiT, 2021.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

from ...core.runtime import autocast
from ...core.runtime.errors import UserError
from ...core.runtime.transfers import constant
from ...core.tasks.model import Variants
from . import foundation_variants as foundation
from .attention import MultiHeadAttention, attend
from .classifier import USUAL_EPSILONS, Classifier
from .foundation_names import FOUNDATION, OF_HUGGING_FACE
from .layers import DropPath, LayerNorm, Mlp, PatchEmbedding, TruncatedNormal, drop_path_rates, linear
from .pretrained_input import HALF, ExpectedInput, list_inputs
from .resampling import ANTIALIASED, BICUBIC, resampling_matrix, resize_patch_kernel, resize_position_embedding
from .simple_pyramid import SimplePyramid
from .vit_blocks import (
    AttentionPool,
    ConfigurableBlock,
    TokenGrid,
    ViTConfig,
    join_windows,
    split_windows,
)
from .vit_names import VIT


class Attention(MultiHeadAttention):
    """Multi-head self-attention."""

    def __init__(self, config: ViTConfig):
        super().__init__(config.num_heads, config.head_dim, config.dropout, config.attention_dropout)
        width = config.num_heads * config.head_dim
        self.qkv = linear(config.embed_dim, 3 * width, bias=bool(config.qkv_bias))
        self.proj = linear(width, config.embed_dim)

    def forward(self, x, mask=None):
        """Map tokens (batch, tokens, dim) to the same shape; ``mask``: see ``attend``."""
        x = attend(self, self.heads(self.qkv(x)), mask=mask)
        return self.dropout(self.proj(x))  # (batch, tokens, dim)


class ViTBlock(nn.Layer):
    """Attention, then MLP, each on normalized input and added to what came in."""

    def __init__(self, config: ViTConfig, drop_path: float):
        super().__init__()
        self.norm1 = LayerNorm(config.embed_dim, epsilon=config.norm_epsilon)
        self.attn = Attention(config)
        self.norm2 = LayerNorm(config.embed_dim, epsilon=config.norm_epsilon)
        self.mlp = Mlp(config.embed_dim, config.hidden_dim, config.dropout)
        self.drop_path = DropPath(drop_path)

    def forward(self, x, count: int | None = None, mask=None):
        """Compute all tokens (batch, tokens, dim), or the first ``count`` of them; ``mask``: see ``attend``."""
        normal = self.norm1(x)
        attended = self.attn(normal) if mask is None else self.attn(normal, mask)  # one's own may take no mask
        x = x + self.drop_path(attended)
        x = x + self.drop_path(self.mlp(self.norm2(x)))
        return x if count is None else x[:, :count]


TINY = {"embed_dim": 192, "depth": 12, "num_heads": 3, "mlp_ratio": 4.0, "qkv_bias": True}
SMALL = {"embed_dim": 384, "depth": 12, "num_heads": 6, "mlp_ratio": 4.0, "qkv_bias": True}
BASE = {"embed_dim": 768, "depth": 12, "num_heads": 12, "mlp_ratio": 4.0, "qkv_bias": True}
LARGE = {"embed_dim": 1024, "depth": 24, "num_heads": 16, "mlp_ratio": 4.0, "qkv_bias": True}
HUGE = {"embed_dim": 1280, "depth": 32, "num_heads": 16, "mlp_ratio": 4.0, "qkv_bias": True}

_OF_IMAGENET_21K: Variants = {
    "vit_tiny_patch16_224": dict(image_size=224, patch_size=16, **TINY),
    "vit_tiny_patch16_384": dict(image_size=384, patch_size=16, **TINY),
    "vit_small_patch16_224": dict(image_size=224, patch_size=16, **SMALL),
    "vit_small_patch16_384": dict(image_size=384, patch_size=16, **SMALL),
    "vit_small_patch32_224": dict(image_size=224, patch_size=32, **SMALL),
    "vit_small_patch32_384": dict(image_size=384, patch_size=32, **SMALL),
    "vit_base_patch16_224": dict(image_size=224, patch_size=16, **BASE),
    "vit_base_patch16_384": dict(image_size=384, patch_size=16, **BASE),
    "vit_base_patch32_224": dict(image_size=224, patch_size=32, **BASE),
    "vit_base_patch32_384": dict(image_size=384, patch_size=32, **BASE),
    "vit_large_patch16_224": dict(image_size=224, patch_size=16, **LARGE),
    "vit_large_patch16_384": dict(image_size=384, patch_size=16, **LARGE),
    "vit_large_patch32_224": dict(image_size=224, patch_size=32, **LARGE),
    "vit_large_patch32_384": dict(image_size=384, patch_size=32, **LARGE),
    "vit_large_patch14_224": dict(image_size=224, patch_size=14, **LARGE),
    "vit_huge_patch14_224": dict(image_size=224, patch_size=14, **HUGE),
}
_DEFAULT = dict(image_size=224, patch_size=16, **BASE)  # a start for configurations that give their own dimensions
VARIANTS: Variants = {"vit": _DEFAULT, **_OF_IMAGENET_21K, **foundation.FOUNDATION}
EXPECTED_INPUTS: dict[str, ExpectedInput] = {
    **list_inputs(_OF_IMAGENET_21K, ExpectedInput(HALF, HALF, 0.9)),
    **foundation.EXPECTED_INPUTS,
}


class VisionTransformer(Classifier):
    """ViT classifier, and what has been made of it: DINOv2 and DINOv3, CLIP, SigLIP, EVA-02.

    Args, in addition to the arguments of ``Classifier``:
        patch_size: side of a patch in pixels.
        options: fields of ``ViTConfig``, which ``config`` then is.
    """

    variants = VARIANTS
    expected_inputs = EXPECTED_INPUTS
    key_maps = {**VIT, **FOUNDATION}
    telling_name = "blocks.#.attn.proj.weight"
    layer_names = r"blocks\.\d+"
    extra_tokens = 0  # in front of the patches, in addition to a class token and registers

    def __init__(
        self,
        num_classes: int = 1000,
        image_size: int | tuple[int, int] = 224,
        patch_size: int = 16,
        **options: Any,
    ):
        super().__init__()
        self.config = config = ViTConfig(**options)
        config.check()
        self.embed_dim, self.in_channels = config.embed_dim, config.in_channels
        self.has_class_token, self.positions = config.class_token, config.positions
        # Parameters are created in the order of the forward pass: their initial values depend on it.
        self.patch_embed = PatchEmbedding(image_size, patch_size, config.in_channels, self.embed_dim, config.patch_bias)
        self.image_size = self.patch_embed.image_size
        self.num_patches = self.patch_embed.grid[0] * self.patch_embed.grid[1]
        self.create_tokens()
        if config.positions is not None:
            rows = self.num_patches + self._placed_tokens
            self.pos_embed = self.create_parameter([1, rows, self.embed_dim], default_initializer=TruncatedNormal())
        self.pos_drop = nn.Dropout(config.dropout)
        epsilon = config.norm_epsilon
        self.norm_pre = LayerNorm(self.embed_dim, epsilon=epsilon) if config.pre_norm else nn.Identity()
        kind: type[ViTBlock | ConfigurableBlock] = ConfigurableBlock if config.is_extended else ViTBlock
        self.blocks = nn.LayerList([kind(config, rate) for rate in drop_path_rates(config.drop_path, config.depth)])
        norm = LayerNorm(self.embed_dim, epsilon=epsilon)
        self.norm: nn.Layer = nn.Identity() if config.pool_norm else norm
        self.fc_norm: nn.Layer = norm if config.pool_norm else nn.Identity()
        if config.pyramid is not None:  # what no map depends on would never learn
            self.fc_norm = nn.Identity()
        elif config.pool == "attention":
            self.attn_pool = AttentionPool(config)
        self._create_maps(patch_size)
        self.reset_classifier(num_classes)

    def _create_maps(self, patch_size: int) -> None:
        """Store which blocks ``feature_maps`` returns, and create the pyramid from the last one."""
        config, depth = self.config, self.config.depth
        self.norm_features = config.norm_features or config.pyramid is not None
        self.feature_blocks = list(config.feature_depths or sorted({depth * part // 4 for part in (1, 2, 3, 4)} - {0}))
        if not all(1 <= block <= depth for block in self.feature_blocks):
            raise UserError(f"option feature_depths {self.feature_blocks}: expected numbers from 1 to {depth}")
        self.feature_strides = (patch_size,) * len(self.feature_blocks)
        self.feature_channels = (self.embed_dim,) * len(self.feature_blocks)
        self.pyramid: SimplePyramid | None = None
        if config.pyramid is not None:
            self.pyramid = SimplePyramid(self.embed_dim, config.pyramid, config.pyramid_maps, patch_size)
            self.feature_blocks, self.feature_strides = [depth], self.pyramid.strides
            self.feature_channels = (config.pyramid,) * len(self.feature_strides)
        if config.windows > 1:  # what no map depends on would never learn
            for block in self.blocks[max(self.feature_blocks) :]:
                for parameter in block.parameters():
                    parameter.stop_gradient = True

    @classmethod
    def options(cls) -> dict[str, Any]:
        """Return the options with their defaults, including the fields of ``ViTConfig``."""
        own = {name: value for name, value in super().options().items() if name != "options"}
        return {**own, **asdict(ViTConfig())}

    @property
    def num_prefix_tokens(self) -> int:
        """Learned tokens in front of the patches."""
        return int(self.has_class_token) + self.config.registers + self.extra_tokens

    @property
    def _placed_tokens(self) -> int:
        """How many of them have a position."""
        return self.num_prefix_tokens if self.positions == "all" else 0

    def create_tokens(self) -> None:
        """Create the learned tokens that precede the patches."""
        if self.has_class_token:
            self.cls_token = self.create_parameter([1, 1, self.embed_dim], default_initializer=TruncatedNormal())
        if self.config.registers:
            size = [1, self.config.registers, self.embed_dim]
            self.reg_token = self.create_parameter(size, default_initializer=TruncatedNormal())

    def network_facts(self) -> Mapping[str, Any]:
        """Return what no shape tells, see ``Model.network_facts``."""
        heads = self.blocks[0].attn.num_heads
        facts = {"hidden_act": "gelu", "layer_norm_eps": USUAL_EPSILONS, "num_attention_heads": heads}
        return {} if self.config.is_extended else {"model_type": ("vit", "deit"), **facts}

    @classmethod
    def read_described(cls, content: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the options that transformers' ViT and DINOv2 have, see ``Model.read_described``."""
        kind, registers = content.get("model_type"), content.get("num_register_tokens", 0)
        if cls is not VisionTransformer or kind not in ("vit", "dinov2", "dinov2_with_registers"):
            return None
        options = {
            "image_size": content["image_size"],
            "patch_size": content["patch_size"],
            "embed_dim": content["hidden_size"],
            "depth": content["num_hidden_layers"],
            "num_heads": content["num_attention_heads"],
        }
        if kind == "vit":
            ratio = content["intermediate_size"] / content["hidden_size"]
            return {**options, "mlp_ratio": ratio, "qkv_bias": content.get("qkv_bias", True)}
        if content.get("use_swiglu_ffn"):
            return None  # whose width it computes from another rule
        # Its positions are resampled plainly, unlike the authors' and timm's.
        others = {"init_values": content.get("layerscale_value", 1.0), "any_size": True, "resampling": BICUBIC}
        own_positions = {"registers": registers, "positions": "patches"} if kind != "dinov2" else {}
        return {**options, "mlp_ratio": float(content["mlp_ratio"]), **others, **own_positions}

    def forward_features(self, x):
        """Compute the input of the classifier from images (batch, channels, height, width).

        (batch, embed_dim), or (batch, 2 * embed_dim) with pool "token_and_average".
        """
        if self.config.pool == "token":
            return self.norm(self.first_tokens(x)[:, 0])  # normalizing only the token that is read
        tokens = self.tokens(x)
        if self.config.pool == "attention":
            return self.attn_pool(tokens)
        if self.config.pool == "token_and_average":
            return paddle.concat([tokens[:, 0], tokens[:, self.num_prefix_tokens :].mean(axis=1)], axis=1)
        return self.fc_norm(tokens[:, self.num_prefix_tokens :].mean(axis=1))

    def new_classifier(self, num_classes: int) -> nn.Layer:
        """Make the last layer, from all that is pooled."""
        return linear((1 + (self.config.pool == "token_and_average")) * self.embed_dim, num_classes)

    def follow_source(self, state: Mapping[str, Any]) -> list[str]:
        """Read what the classifier of ``state`` does: of DINOv2's, the class token next to the mean of the patches.

        Source: transformers, ``Dinov2ForImageClassification``; the linear heads of DINOv2's authors.
        """
        norm, weight = state.get("norm.weight"), state.get("head.weight")
        if self.num_classes == 0 or self.config.pool != "token" or norm is None or weight is None:
            return []
        if norm.shape != (self.embed_dim,) or weight.shape[:1] != (2 * self.embed_dim,):
            return []
        self.config = replace(self.config, pool="token_and_average")
        self.reset_classifier(self.num_classes)
        return ["the classifier reads the class token and the mean of the patches, as its weights tell"]

    def tokens(self, x):
        """Compute all tokens (batch, prefix tokens + patches, embed_dim), normalized unless pooled first."""
        return self.norm(self.encode(x))

    def encode(self, x):
        """Compute all tokens (batch, prefix tokens + patches, embed_dim) after the last block, not normalized."""
        return self.pass_blocks(self.embedded(x), self.find_grid(x))

    def pass_blocks(self, x, grid: tuple[int, int]):
        """Pass embedded tokens (batch, tokens, embed_dim) of images with a ``grid`` of patches through all blocks."""
        for block in self.blocks:
            x = self.pass_block(block, x, grid)
        return x

    def first_tokens(self, x):
        """Compute the learned tokens (batch, prefix tokens, embed_dim) after the last block, not normalized."""
        grid, x = self.find_grid(x), self.embedded(x)
        blocks = list(self.blocks)
        for block in blocks[:-1]:
            x = self.pass_block(block, x, grid)
        return self.pass_block(blocks[-1], x, grid, self.num_prefix_tokens)

    def feature_maps(self, x, sizes=None) -> list[paddle.Tensor]:
        """Return the patches after each of ``feature_depths``, without the tokens in front; all have one stride."""
        grid, maps = self.find_grid(x), []
        x = split_windows(self.embedded(x), grid, self.config.windows, self.num_prefix_tokens)
        for index, block in enumerate(self.blocks[: max(self.feature_blocks)]):
            _, count, width = x.shape
            if self.config.windows > 1 and index in self.feature_blocks:
                x = self.pass_block(block, x.reshape([-1, self.config.windows**2 * count, width]), grid)
                x = x.reshape([-1, count, width])
            else:
                x = self.pass_block(block, x, grid)
            if index + 1 in self.feature_blocks:
                tokens = self.norm(x) if self.norm_features else x
                patches = join_windows(tokens[:, self.num_prefix_tokens :], grid, self.config.windows)
                maps.append(patches.transpose([0, 2, 1]).reshape([0, 0, *grid]))  # (batch, embed_dim, *grid)
        return maps if self.pyramid is None else self.pyramid(maps[0])

    def pass_block(self, block, x, grid: tuple[int, int], count: int | None = None):
        """Pass tokens through one block, which returns the first ``count`` of them, or all."""
        return block(x, TokenGrid(grid, self.num_prefix_tokens), count) if self.config.is_extended else block(x, count)

    def pass_more_tokens(self, block, x, tokens: TokenGrid):
        """Pass tokens with others in front of them through one block, see ``TokenGrid``."""
        if self.config.is_extended:
            return block(x, tokens)
        return block(x) if tokens.mask is None else block(x, None, tokens.mask)

    def embedded(self, x):
        """Compute all tokens (batch, prefix tokens + patches, embed_dim) before the first block."""
        positions = None if self.positions is None else self.resample_positions(self.find_grid(x))
        if self.config.any_size:
            down, across = (-side % self.patch_embed.patch_size for side in x.shape[2:])
            x = self.patch_embed.embed(F.pad(x, [0, across, 0, down]) if down or across else x)
        else:
            x = self.patch_embed(x)  # (batch, patches, embed_dim)
        x = x + positions if self.positions == "patches" else x
        tokens = [token.astype(x.dtype).expand([x.shape[0], -1, -1]) for token in self.prefix_tokens()]
        x = paddle.concat([*tokens, x], axis=1) if tokens else x
        return self.norm_pre(self.pos_drop(x + positions if self.positions == "all" else x))

    def find_grid(self, images) -> tuple[int, int]:
        """Return the number of patches down and across."""
        if not self.config.any_size:
            return self.patch_embed.grid
        height, width = (-(-side // self.patch_embed.patch_size) for side in images.shape[2:])
        return height, width

    def padded_size(self, images) -> tuple[int, int]:
        """Return height and width that images (batch, channels, H, W) are padded to, at the right and the bottom."""
        rows, columns = self.find_grid(images)
        return rows * self.patch_embed.patch_size, columns * self.patch_embed.patch_size

    def resample_positions(self, grid: tuple[int, int]):
        """Return the position embedding (1, prefix tokens + patches, embed_dim) for a grid."""
        trained_grid = self.patch_embed.grid
        if grid == trained_grid:
            return self.pos_embed
        dtype = "float64" if self.pos_embed.dtype == paddle.float64 else "float32"
        kinds = [(self.config.resampling or BICUBIC, old, new, dtype) for old, new in zip(trained_grid, grid)]
        down, across = (constant(resampling_matrix, *kind) for kind in kinds)
        prefix, patches = self.pos_embed[:, : self._placed_tokens], self.pos_embed[0, self._placed_tokens :]
        with autocast.off():
            patches = down @ patches.astype(dtype).reshape([trained_grid[0], -1])  # (height, old width * embed_dim)
            patches = across @ patches.reshape([grid[0], trained_grid[1], self.embed_dim])  # (height, width, embed_dim)
        patches = patches.reshape([1, -1, self.embed_dim]).astype(prefix.dtype)
        return paddle.concat([prefix, patches], axis=1) if self._placed_tokens else patches

    def prefix_tokens(self):
        """Return the learned tokens (1, n, embed_dim) that precede the patches, in order."""
        return [getattr(self, name) for name in ("cls_token", "reg_token") if hasattr(self, name)]

    def list_source_notices(self, naming: str, state: Mapping[str, Any]) -> list[str]:
        """Say where the code that the weights come from computes otherwise.

        A ``UserError`` refuses weights with biases of queries and values for a model without them.
        """
        biased = [name for name in state if name.endswith(".attn.q_bias") and np.any(state[name])]
        if biased and not any(name == biased[0] for name, _ in self.named_parameters()):
            raise UserError(f"the weights have {biased[0]}, which the model lacks: take the name with _qkvb")
        if naming in OF_HUGGING_FACE and self.config.pool == "attention" and self.config.activation != "gelu_tanh":
            tanh = "SigLIP's authors and transformers compute the tanh form of GELU, timm the exact one in this size"
            return [f"{tanh}: outputs differ by about 5e-4 (option activation gelu_tanh)"]
        return []

    def no_weight_decay(self) -> tuple[str, ...]:
        """Return timm's names of parameters that are not decayed; big_vision decays kernels alone (``wd_mults``)."""
        exempt = ("pos_embed", "cls_token", "reg_token", "attn_pool.latent")
        names = {name for name, _ in self.named_parameters()}
        return tuple(name for name in exempt if name in names)

    def resample_parameter(self, name: str, value, trained_size):
        """Resample the position embedding to the grid of this model's image size, and the embedding to its patches."""
        if name == "patch_embed.proj.weight" and value.ndim == 4 and value.shape[2] != self.patch_embed.patch_size:
            return resize_patch_kernel(value, self.patch_embed.patch_size)
        if name != "pos_embed":
            return None
        old_grid = self.patch_embed.find_grid(trained_size)
        kind = BICUBIC if self.config.resampling == BICUBIC else ANTIALIASED  # timm's, where nothing else is asked for
        return resize_position_embedding(value, self.patch_embed.grid, self._placed_tokens, old_grid, kind)
