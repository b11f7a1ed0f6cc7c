"""Options of the blocks of newer Vision Transformers: rotary positions, gates, scales, norms, attention pooling.

Sources: Touvron et al., CaiT, 2021, section 2 (layer scale); Shazeer, GLU Variants Improve Transformer, arXiv
2002.05202 (SwiGLU); Fang et al., EVA-02, arXiv 2303.11331, section 2.1; Zhai et al., Scaling Vision Transformers, arXiv
2106.04560, appendix (attention pooling). Parameter names are timm's.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import paddle
from paddle import nn
from paddle.nn import functional as F

from ...core.runtime import autocast
from ...core.runtime.errors import UserError
from . import rotary
from .attention import MultiHeadAttention, attend
from .layers import DropPath, LayerNorm, Mlp, TruncatedNormal, linear

QUERIES_AND_VALUES = "queries and values"  # what has a bias
PACKED, SEPARATE = "packed", "separate"


class BlockConfig(NamedTuple):
    """What a block has beyond ViT's.

    Attributes:
        norm_epsilon: added to the variance in every norm.
        init_values: what each channel of a branch is multiplied by at first; None: no such factors.
        gate: of the MLP: None; "packed", one product for gate and values; "separate", two.
        activation: of an MLP without a gate: "gelu", "gelu_tanh" or "quick_gelu", x * sigmoid(1.702 x).
        mlp_norm, attention_norm: a norm before the last product of the branch.
        separate_qkv: queries, keys and values are three products.
        rotary: see ``rotary.angles``; None: nothing is turned.
    """

    norm_epsilon: float = 1e-6
    init_values: float | None = None
    gate: str | None = None
    activation: str = "gelu"
    mlp_norm: bool = False
    attention_norm: bool = False
    separate_qkv: bool = False
    rotary: str | None = None


class FeatureConfig(NamedTuple):
    """The maps that ``feature_maps`` of a ViT returns.

    Attributes:
        feature_depths: the blocks, from 1, after which there is a map; None: each quarter of them.
        norm_features: the last norm is on each of these maps.
        windows: parts down and across, with a copy of the tokens in front each, in which a block attends; the block
            after each of ``feature_depths`` attends to all of them.
        pyramid: the maps are instead of this number of channels, see ``SimplePyramid``; None: they are not.
        pyramid_maps: how many, at most four.
    """

    feature_depths: Sequence[int] | None = None
    norm_features: bool = False
    windows: int = 1
    pyramid: int | None = None
    pyramid_maps: int = 4


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


class ActivatedMlp(Mlp):
    """An MLP with another activation."""

    def __init__(self, dim: int, hidden_dim: int, dropout: float, activation: str):
        super().__init__(dim, hidden_dim, dropout)
        self.act = _ACTIVATIONS[activation]()


class GatedMlp(nn.Layer):
    """``fc2(norm(silu(gate) * values))``, both of the input: halves of one product if ``is_packed``."""

    def __init__(self, dim: int, hidden_dim: int, dropout: float, is_packed: bool, norm_epsilon: float | None):
        super().__init__()
        if is_packed:
            self.fc1 = linear(dim, 2 * hidden_dim)
        else:
            self.fc1_g, self.fc1_x = linear(dim, hidden_dim), linear(dim, hidden_dim)
        self.norm = nn.Identity() if norm_epsilon is None else LayerNorm(hidden_dim, epsilon=norm_epsilon)
        self.fc2 = linear(hidden_dim, dim)
        self.is_packed, self.dropout = is_packed, nn.Dropout(dropout)

    def forward(self, x):
        """Map (..., dim) to the same shape."""
        gate, values = self.fc1(x).chunk(2, axis=-1) if self.is_packed else (self.fc1_g(x), self.fc1_x(x))
        return self.dropout(self.fc2(self.norm(self.dropout(F.silu(gate) * values))))


def build_mlp(dim: int, hidden_dim: int, dropout: float, extras: BlockConfig) -> nn.Layer:
    """Build the MLP that the options ask for."""
    if extras.gate is not None:
        epsilon = extras.norm_epsilon if extras.mlp_norm else None
        return GatedMlp(dim, hidden_dim, dropout, extras.gate == PACKED, epsilon)
    if extras.activation == "gelu":
        return Mlp(dim, hidden_dim, dropout)
    return ActivatedMlp(dim, hidden_dim, dropout, extras.activation)


class ConfigurableAttention(MultiHeadAttention):
    """Self-attention with what ``BlockConfig`` says; ``qkv_bias`` is True, False or "queries and values"."""

    def __init__(
        self, dim: int, num_heads: int, head_dim: int, qkv_bias: bool | str, extras: BlockConfig, **dropouts: float
    ):
        super().__init__(num_heads, head_dim, **dropouts)
        width = num_heads * head_dim
        self.q_bias = self.v_bias = None
        self.rotary, self.is_separate = extras.rotary, extras.separate_qkv
        if extras.separate_qkv:
            self.q_proj, self.v_proj = (linear(dim, width, bias=qkv_bias is not False) for _ in range(2))
            self.k_proj = linear(dim, width, bias=qkv_bias is True)
        else:
            self.qkv = linear(dim, 3 * width, bias=qkv_bias is True)
            if qkv_bias == QUERIES_AND_VALUES:  # turned by its position a key's bias would count
                self.q_bias, self.v_bias = (self.create_parameter([width], is_bias=True) for _ in range(2))
        self.norm = LayerNorm(width, epsilon=extras.norm_epsilon) if extras.attention_norm else nn.Identity()
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

    def __init__(self, dim: int, mlp_dim: int, dropout: float, drop_path: float, extras: BlockConfig, **attention: Any):
        super().__init__()
        self.norm1, self.norm2 = (LayerNorm(dim, epsilon=extras.norm_epsilon) for _ in range(2))
        self.attn = ConfigurableAttention(dim, dropout=dropout, extras=extras, **attention)
        self.mlp = build_mlp(dim, mlp_dim, dropout, extras)
        scales = [nn.Identity() if extras.init_values is None else LayerScale(dim, extras.init_values) for _ in "12"]
        self.ls1, self.ls2 = scales
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

    def __init__(self, dim: int, num_heads: int, mlp_dim: int, extras: BlockConfig):
        super().__init__(num_heads, dim // num_heads, 0.0, 0.0)
        self.latent = self.create_parameter([1, 1, dim], default_initializer=TruncatedNormal())
        self.q, self.kv, self.proj = linear(dim, dim), linear(dim, 2 * dim), linear(dim, dim)
        self.norm = LayerNorm(dim, epsilon=extras.norm_epsilon)
        self.mlp = build_mlp(dim, mlp_dim, 0.0, extras._replace(gate=None))

    def forward(self, x):
        """Pool tokens (batch, tokens, dim) to (batch, dim)."""
        query = self.q(self.latent.astype(x.dtype)).expand([x.shape[0], -1, -1])
        x = self.proj(attend(self, self.heads(query), self.heads(self.kv(x))))
        return (x + self.mlp(self.norm(x)))[:, 0]


def validate_block_config(extras: BlockConfig, head_dim: int) -> None:
    """Refuse words that mean nothing here by a ``UserError`` that names the option."""
    known = {"gate": (None, PACKED, SEPARATE), "activation": (*_ACTIVATIONS,), "rotary": (None, *rotary.KINDS)}
    for name, words in known.items():
        if getattr(extras, name) not in words:
            expected = ", ".join("null" if word is None else word for word in words)
            raise UserError(f"option {name} '{getattr(extras, name)}' is not known: expected {expected}")
    if extras.rotary is not None and head_dim % 4:
        raise UserError(f"rotary positions need heads of a multiple of 4 channels, not {head_dim}: change NUM_HEADS")


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
