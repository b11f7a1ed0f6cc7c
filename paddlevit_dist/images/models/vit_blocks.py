"""Options of Vision Transformers, and blocks of newer ones: rotary positions, gates, scales, norms, attention pooling.

Sources: Touvron et al., CaiT, 2021, section 2 (layer scale); Shazeer, GLU Variants Improve Transformer, arXiv
2002.05202 (SwiGLU); Fang et al., EVA-02, arXiv 2303.11331, section 2.1; Zhai et al., Scaling Vision Transformers, arXiv
2106.04560, appendix (attention pooling). Parameter names are timm's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import paddle
from paddle import nn
from paddle.nn import functional as F

from ...core.runtime import autocast
from ...core.runtime.errors import UserError
from . import rotary
from .attention import MultiHeadAttention, attend
from .layers import DropPath, LayerNorm, Mlp, TruncatedNormal, linear
from .resampling import ANTIALIASED, BICUBIC, OFFSET

QUERIES_AND_VALUES = "queries and values"  # what has a bias
PACKED, SEPARATE = "packed", "separate"


@dataclass(frozen=True)
class ViTConfig:
    """The options of a Vision Transformer, apart from the sizes of its images and patches.

    Attributes:
        embed_dim, depth, num_heads: of the blocks.
        attn_head_size: channels of one head; None is ``embed_dim / num_heads``.
        any_size: images of other sizes are taken too, with zeros at the bottom and right where a patch is not full.
        resampling: how position embeddings are interpolated to their grid, see ``resampling_matrix``; None: "bicubic",
            and when weights for another size are loaded "antialiased", as in timm.
        mlp_ratio: hidden width of an MLP divided by ``embed_dim``, rounded down.
        mlp_multiple: the hidden width is then rounded up to a multiple of it.
        qkv_bias: also "queries and values".
        class_token, registers: learned tokens in front of the patches: one, and how many behind it.
        positions: "all" tokens have a learned position, or "patches", or None.
        patch_bias: of the embedding of patches.
        pool: what the classifier reads: the first "token", the "average" of the patches, "token_and_average" side by
            side, or "attention" to all tokens.
        pool_norm, pre_norm: the norm follows that average, not the last block; a norm precedes the first block.
        in_channels: of the images.
        dropout, attention_dropout: rates after products and on attention weights.
        drop_path: rate of stochastic depth in the last block.
        norm_epsilon: added to the variance in every norm.
        init_values: what each channel of a branch is multiplied by at first; None: no such factors.
        gate: of the MLP: None; "packed", one product for gate and values; "separate", two.
        activation: of an MLP without a gate: "gelu", "gelu_tanh" or "quick_gelu", x * sigmoid(1.702 x).
        mlp_norm, attention_norm: a norm before the last product of the branch.
        separate_qkv: queries, keys and values are three products.
        rotary: see ``rotary.angles``; None: nothing is turned.
        feature_depths: the blocks, from 1, after which ``feature_maps`` has a map; None: each quarter of them.
        norm_features: the last norm is on each of these maps.
        windows: parts down and across, with a copy of the tokens in front each, in which a block attends; the block
            after each of ``feature_depths`` attends to all of them.
        pyramid: the maps are instead of this number of channels, see ``SimplePyramid``; None: they are not.
        pyramid_maps: how many, at most four.
    """

    embed_dim: int = 768
    depth: int = 12
    num_heads: int = 12
    attn_head_size: int | None = None
    any_size: bool = False
    resampling: str | None = None
    mlp_ratio: float = 4.0
    mlp_multiple: int = 1
    qkv_bias: bool | str = True
    class_token: bool = True
    registers: int = 0
    positions: str | None = "all"
    patch_bias: bool = True
    pool: str = "token"
    pool_norm: bool = False
    pre_norm: bool = False
    in_channels: int = 3
    dropout: float = 0.0
    attention_dropout: float = 0.0
    drop_path: float = 0.0
    norm_epsilon: float = 1e-6
    init_values: float | None = None
    gate: str | None = None
    activation: str = "gelu"
    mlp_norm: bool = False
    attention_norm: bool = False
    separate_qkv: bool = False
    rotary: str | None = None
    feature_depths: Sequence[int] | None = None
    norm_features: bool = False
    windows: int = 1
    pyramid: int | None = None
    pyramid_maps: int = 4

    @property
    def head_dim(self) -> int:
        """Channels of one head; a ``UserError`` if the heads cannot share ``embed_dim``."""
        if self.attn_head_size is not None:
            return self.attn_head_size
        if self.embed_dim % self.num_heads:
            raise UserError(
                f"EMBED_DIM {self.embed_dim} is not divisible by NUM_HEADS {self.num_heads}: change one, or give "
                "ATTN_HEAD_SIZE"
            )
        return self.embed_dim // self.num_heads

    @property
    def hidden_dim(self) -> int:
        """Hidden width of an MLP."""
        return -(-int(self.embed_dim * self.mlp_ratio) // self.mlp_multiple) * self.mlp_multiple

    @property
    def is_extended(self) -> bool:
        """Whether its blocks are not the plain ViT's."""
        return isinstance(self.qkv_bias, str) or any(getattr(self, name) != getattr(ViTConfig, name) for name in _NEWER)

    def check(self) -> None:
        """Refuse values that mean nothing, or do not fit together, by a ``UserError`` that names the option."""
        for name, words in _WORDS.items():
            if (value := getattr(self, name)) not in words:
                expected = ", ".join("null" if word is None else word for word in words)
                raise UserError(f"option {name} '{value}' is not known: expected one of {expected}")
        if self.pool in ("token", "token_and_average") and not self.class_token:
            raise UserError(f"option pool '{self.pool}' needs the class token: set class_token, or take 'average'")
        if self.pool_norm and self.pool != "average":
            raise UserError(f"option pool_norm is for pool 'average', not '{self.pool}'")
        if self.rotary is not None and self.head_dim % 4:
            raise UserError(
                f"rotary positions need heads of a multiple of 4 channels, not {self.head_dim}: change NUM_HEADS"
            )
        if self.rotary is not None and self.windows > 1:
            raise UserError("option windows: rotary positions count the patches of the whole image: set rotary None")


#: what the blocks of newer networks have, and ViT's lack
_NEWER = ("norm_epsilon", "init_values", "gate", "activation", "mlp_norm", "attention_norm", "separate_qkv", "rotary")


class TokenGrid(NamedTuple):
    """Where the tokens of a batch are, and what they attend to.

    Attributes:
        size: patches down and across.
        prefix: tokens in front of them.
        mask: added to the attention weights of the first tokens, see ``attend``; None: all attend to all.
        scale: factor of the coordinates of rotary positions, a tensor (1,); None: 1.
    """

    size: tuple[int, int]
    prefix: int
    mask: paddle.Tensor | None = None
    scale: paddle.Tensor | None = None


class QuickGELU(nn.Layer):
    """The GELU of OpenAI's CLIP, x * sigmoid(1.702 x)."""

    def forward(self, x):
        """Apply the activation to a tensor of any shape."""
        return x * F.sigmoid(1.702 * x)


_ACTIVATIONS = {"gelu": nn.GELU, "gelu_tanh": lambda: nn.GELU(approximate=True), "quick_gelu": QuickGELU}
#: values of the options that are words
_WORDS: dict[str, Sequence[str | None]] = {
    "pool": ("token", "average", "token_and_average", "attention"),
    "positions": ("all", "patches", None),
    "resampling": (BICUBIC, ANTIALIASED, OFFSET, None),
    "gate": (None, PACKED, SEPARATE),
    "activation": (*_ACTIVATIONS,),
    "rotary": (None, *rotary.KINDS),
}


class ActivatedMlp(Mlp):
    """An MLP with another activation."""

    def __init__(self, config: ViTConfig):
        super().__init__(config.embed_dim, config.hidden_dim, config.dropout)
        self.act = _ACTIVATIONS[config.activation]()


class GatedMlp(nn.Layer):
    """``fc2(norm(silu(gate) * values))``, both of the input: halves of one product if ``is_packed``."""

    def __init__(self, config: ViTConfig):
        super().__init__()
        dim, hidden_dim, self.is_packed = config.embed_dim, config.hidden_dim, config.gate == PACKED
        if self.is_packed:
            self.fc1 = linear(dim, 2 * hidden_dim)
        else:
            self.fc1_g, self.fc1_x = linear(dim, hidden_dim), linear(dim, hidden_dim)
        self.norm = LayerNorm(hidden_dim, epsilon=config.norm_epsilon) if config.mlp_norm else nn.Identity()
        self.fc2 = linear(hidden_dim, dim)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x):
        """Map (..., dim) to the same shape."""
        gate, values = self.fc1(x).chunk(2, axis=-1) if self.is_packed else (self.fc1_g(x), self.fc1_x(x))
        return self.dropout(self.fc2(self.norm(self.dropout(F.silu(gate) * values))))


def build_mlp(config: ViTConfig) -> nn.Layer:
    """Build the MLP that the options ask for."""
    if config.gate is not None:
        return GatedMlp(config)
    if config.activation == "gelu":
        return Mlp(config.embed_dim, config.hidden_dim, config.dropout)
    return ActivatedMlp(config)


class ConfigurableAttention(MultiHeadAttention):
    """Self-attention with all options of ``ViTConfig``."""

    def __init__(self, config: ViTConfig):
        super().__init__(config.num_heads, config.head_dim, config.dropout, config.attention_dropout)
        dim, width, qkv_bias = config.embed_dim, config.num_heads * config.head_dim, config.qkv_bias
        self.q_bias = self.v_bias = None
        self.rotary, self.is_separate = config.rotary, config.separate_qkv
        if self.is_separate:
            self.q_proj, self.v_proj = (linear(dim, width, bias=qkv_bias is not False) for _ in range(2))
            self.k_proj = linear(dim, width, bias=qkv_bias is True)
        else:
            self.qkv = linear(dim, 3 * width, bias=qkv_bias is True)
            if qkv_bias == QUERIES_AND_VALUES:  # turned by its position a key's bias would count
                self.q_bias, self.v_bias = (self.create_parameter([width], is_bias=True) for _ in range(2))
        self.norm = LayerNorm(width, epsilon=config.norm_epsilon) if config.attention_norm else nn.Identity()
        self.proj = linear(width, dim)

    def forward(self, x, grid: TokenGrid):
        """Attend among tokens (batch, tokens, dim) of a grid (rows, columns)."""
        if self.is_separate:
            parts = [self.heads(product(x)) for product in (self.q_proj, self.k_proj, self.v_proj)]
        elif self.q_bias is None:
            parts = [self.heads(self.qkv(x))]
        else:
            bias = paddle.concat([self.q_bias, paddle.zeros_like(self.v_bias), self.v_bias])
            parts = [self.heads(autocast.linear(x, self.qkv.weight, bias))]
        if self.rotary is not None:
            if not self.is_separate:
                parts = parts[0].split([2 * self.num_heads, self.num_heads], axis=2)  # queries and keys; values
            *turned, values = parts
            place = grid.size, grid.prefix, grid.scale
            parts = [*(rotary.rotate(part, self.rotary, *place) for part in turned), values]
        return self.dropout(self.proj(self.norm(self.attend_packed(parts, grid.mask))))

    def attend_packed(self, parts: Sequence[paddle.Tensor], mask: paddle.Tensor | None) -> paddle.Tensor:
        """Return (batch, tokens, heads * head_dim); see ``attention.attend``, whose ``packed`` are the parts."""
        return attend(self, *parts, mask=mask)


class LayerScale(nn.Layer):
    """A learned factor for each channel."""

    def __init__(self, dim: int, start: float):
        super().__init__()
        self.gamma = self.create_parameter([dim], default_initializer=nn.initializer.Constant(start))

    def forward(self, x):
        """Scale the channels of (..., dim)."""
        return x * self.gamma


class ConfigurableBlock(nn.Layer):
    """Attention, then MLP, each on normalized input, scaled, and added to what came in."""

    def __init__(self, config: ViTConfig, drop_path: float):
        super().__init__()
        self.norm1, self.norm2 = (LayerNorm(config.embed_dim, epsilon=config.norm_epsilon) for _ in range(2))
        self.attn = ConfigurableAttention(config)
        self.mlp = build_mlp(config)
        start = config.init_values
        self.ls1, self.ls2 = (nn.Identity() if start is None else LayerScale(config.embed_dim, start) for _ in range(2))
        self.drop_path = DropPath(drop_path)

    def forward(self, x, grid: TokenGrid, count: int | None = None):
        """Compute all tokens (batch, tokens, dim), or the first ``count`` of them."""
        x = self.add(x, self.attn(self.norm1(x), grid), self.ls1)
        x = x if count is None else x[:, :count]
        return self.add(x, self.mlp(self.norm2(x)), self.ls2)

    def add(self, x, branch, scale: nn.Layer):
        """Return x + the scaled branch, without those that stochastic depth drops."""
        return x + self.drop_path(scale(branch))


class AttentionPool(MultiHeadAttention):
    """One learned query on all tokens, and an MLP: (batch, dim) of (batch, tokens, dim)."""

    def __init__(self, config: ViTConfig):
        dim = config.embed_dim
        super().__init__(config.num_heads, dim // config.num_heads, 0.0, 0.0)
        self.latent = self.create_parameter([1, 1, dim], default_initializer=TruncatedNormal())
        self.q, self.kv, self.proj = linear(dim, dim), linear(dim, 2 * dim), linear(dim, dim)
        self.norm = LayerNorm(dim, epsilon=config.norm_epsilon)
        self.mlp = build_mlp(replace(config, gate=None, dropout=0.0))

    def forward(self, x):
        """Pool tokens (batch, tokens, dim) to (batch, dim)."""
        query = self.q(self.latent.astype(x.dtype)).expand([x.shape[0], -1, -1])
        x = self.proj(attend(self, self.heads(query), self.heads(self.kv(x))))
        return (x + self.mlp(self.norm(x)))[:, 0]


def split_windows(x: paddle.Tensor, grid: tuple[int, int], windows: int, prefix: int) -> paddle.Tensor:
    """Return the tokens of each window, (batch * windows**2, tokens of a window, channels).

    Args:
        x: all tokens (batch, prefix + patches, channels); each window gets a copy of the ``prefix`` tokens in front.
        grid: patches down and across; a ``UserError`` if they cannot be divided.
        windows: windows down and across.
    """
    if windows == 1:
        return x
    rows, columns = (side // windows for side in grid)
    if (rows * windows, columns * windows) != grid:
        raise UserError(f"{grid[0]} x {grid[1]} patches cannot be divided into {windows} x {windows} windows")
    width = x.shape[2]
    patches = x[:, prefix:].reshape([-1, windows, rows, windows, columns, width]).transpose([0, 1, 3, 2, 4, 5])
    copies = x[:, :prefix].unsqueeze(1).tile([1, windows**2, 1, 1]).reshape([-1, prefix, width])
    return paddle.concat([copies, patches.reshape([-1, rows * columns, width])], axis=1)


def join_windows(patches: paddle.Tensor, grid: tuple[int, int], windows: int) -> paddle.Tensor:
    """Return the patches (batch, rows * columns, channels) of a grid, given the patches of its windows."""
    if windows == 1:
        return patches
    rows, columns = (side // windows for side in grid)
    width = patches.shape[2]
    patches = patches.reshape([-1, windows, windows, rows, columns, width]).transpose([0, 1, 3, 2, 4, 5])
    return patches.reshape([-1, grid[0] * grid[1], width])
