"""Swin Transformer: attention inside windows that shift from block to block, at four resolutions.

Source: Liu et al., Swin Transformer: Hierarchical Vision Transformer using Shifted Windows, 2021 (section 3, table 7).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

from ...core.tasks.model import KeyMap, Variants
from .attention import MultiHeadAttention, attend, head_dim
from .classifier import USUAL_EPSILONS, PyramidClassifier
from .key_names import join_projections, rename, without
from .layers import DropPath, LayerNorm, Mlp, PatchEmbedding, TruncatedNormal, are_equal_sides, linear, rates_of_stages
from .pretrained_input import ExpectedInput, list_inputs
from .resampling import resize_relative_position_bias

Size = tuple[int, int]
_MASKED = -100.0  # the value of the authors' code: exp(-100) is 3.7e-44


def pad_to_multiples(x, window: Size, grid: Size | None = None, data_format: str = "NHWC"):
    """Pad (batch, height, width, channels) with zeros at the bottom and right, so that ``window`` divides each side.

    ``grid`` is (height, width) of x, where its shape does not tell.
    """
    height, width = grid or (x.shape[1], x.shape[2])
    down, across = -height % window[0], -width % window[1]
    return x if are_equal_sides((down, across), (0, 0)) else F.pad(x, [0, across, 0, down], data_format=data_format)


def split_into_windows(x, grid: Size, window: Size):
    """Split (batch, height, width, channels) of size ``grid``, padded with zeros at the bottom and right, into windows.

    Returns (batch * windows, window height * window width, channels) and the padded (height, width).
    """
    padded = (grid[0] + -grid[0] % window[0], grid[1] + -grid[1] % window[1])
    rows, columns, channels = padded[0] // window[0], padded[1] // window[1], x.shape[-1]
    x = pad_to_multiples(x, window, grid)
    x = x.reshape([-1, rows, window[0], columns, window[1], channels]).transpose([0, 1, 3, 2, 4, 5])
    return x.reshape([-1, window[0] * window[1], channels]), padded


def merge_windows(x, grid: Size, padded: Size, window: Size):
    """Invert ``split_into_windows``: (batch, height, width, channels) without the padding."""
    rows, columns, channels = padded[0] // window[0], padded[1] // window[1], x.shape[-1]
    x = x.reshape([-1, rows, columns, window[0], window[1], channels]).transpose([0, 1, 3, 2, 4, 5])
    x = x.reshape([-1, padded[0], padded[1], channels])
    return x if are_equal_sides(padded, grid) else x[:, : grid[0], : grid[1]]


def relative_position_index(height: int, width: int) -> np.ndarray:
    """int64 (tokens, tokens): row of the bias table for each pair of tokens, by the offset of their positions."""
    rows, columns = np.divmod(np.arange(height * width), width)
    down = rows[:, None] - rows[None, :] + height - 1
    across = columns[:, None] - columns[None, :] + width - 1
    return down * (2 * width - 1) + across


def attention_mask(grid: Size, window: Size, shift: Size) -> np.ndarray:
    """float32 (windows, tokens, tokens): 0 where two tokens of a shifted image were neighbors before, else -100.

    Source: section 3.2, "Efficient batch computation for shifted configuration"; padded positions belong to the last
    region, as in timm.
    """
    sides = []
    for length, part, moved in zip(grid, window, shift):
        padded = length + -length % part
        regions = np.zeros(padded, dtype=np.int64)
        regions[padded - part :] = 1
        if moved:
            regions[padded - moved :] = 2
        sides.append(regions.reshape(-1, part))
    down, across = sides
    region = 3 * down[:, None, :, None] + across[None, :, None, :]  # (rows, columns, window height, window width)
    region = region.reshape(-1, window[0] * window[1])
    return np.where(region[:, :, None] == region[:, None, :], 0.0, _MASKED).astype(np.float32)


def mask_on_device(grid: Size, window: Size, shift: Size) -> paddle.Tensor:
    """``attention_mask`` of a grid that windows divide and both of whose sides are shifted, made where it is used."""
    sides = []
    for length, part, moved in zip(grid, window, shift):
        places = paddle.arange(length)
        region = (places >= length - part).astype("int64") + (places >= length - moved).astype("int64")
        sides.append(region.reshape([-1, part]))
    down, across = sides
    region = 3 * down.unsqueeze([1, 3]) + across.unsqueeze([0, 2])  # (rows, columns, window height, window width)
    region = region.reshape([-1, window[0] * window[1]])
    return _MASKED * (region.unsqueeze(2) != region.unsqueeze(1)).astype("float32")


_EPSILON = 1e-5


class WindowAttention(MultiHeadAttention):
    """Multi-head self-attention among the tokens of a window, with a learned bias for each relative position."""

    def __init__(
        self, dim: int, window: Size, num_heads: int, qkv_bias: bool, dropout: float, attention_dropout: float
    ):
        super().__init__(num_heads, head_dim("EMBED_DIM of a stage", dim, num_heads), dropout, attention_dropout)
        self.window = window
        self.qkv = linear(dim, 3 * dim, bias=qkv_bias)
        self.proj = linear(dim, dim)
        num_positions = (2 * window[0] - 1) * (2 * window[1] - 1)
        self.relative_position_bias_table = self.create_parameter(
            [num_positions, num_heads], default_initializer=TruncatedNormal()
        )
        index = paddle.to_tensor(relative_position_index(*window).reshape(-1))
        self.register_buffer("relative_position_index", index, persistable=False)

    def forward(self, x, mask: paddle.Tensor | None):
        """Attend in windows (batch * windows, tokens, dim), ``mask`` (windows, tokens, tokens) is added."""

        def add_bias(attention):  # no partial function, which Paddle does not convert
            return self._add_bias(attention, mask)

        return self.dropout(self.proj(attend(self, self.heads(self.qkv(x)), before=add_bias)))

    def _add_bias(self, attention, mask: paddle.Tensor | None):
        tokens, heads = attention.shape[-1], self.num_heads
        attention = attention + self.position_bias().unsqueeze(0).astype(attention.dtype)
        if mask is not None:
            attention = attention.reshape([-1, mask.shape[0], heads, tokens, tokens])
            attention = attention + mask.astype(attention.dtype).unsqueeze(1)
            attention = attention.reshape([-1, heads, tokens, tokens])
        return attention

    def position_bias(self):
        """Return the learned bias of each pair of a window's tokens, (heads, tokens, tokens)."""
        tokens = self.window[0] * self.window[1]
        index = self.relative_position_index.astype("int64")  # Layer.to(dtype=...) changes it too
        bias = paddle.gather(self.relative_position_bias_table, index)  # (tokens ** 2, heads)
        return bias.transpose([1, 0]).reshape([self.num_heads, tokens, tokens])


class SwinBlock(nn.Layer):
    """Windowed attention, then MLP, each on normalized input and added to what came in.

    Args:
        grid: height and width of its input in tokens. A side that is not longer than the window's gets one window of
            its own length, without a shift. None: any size; windows are never smaller and always shifted, and the
            image is padded before it is.
        is_shifted: whether the windows are shifted by half their size.
    """

    def __init__(
        self,
        dim: int,
        grid: Size | None,
        window_size: int,
        is_shifted: bool,
        mlp_ratio: float,
        drop_path: float,
        num_heads: int,
        qkv_bias: bool,
        dropout: float,
        attention_dropout: float,
    ):
        super().__init__()
        window, shift = (window_size,) * 2, (window_size // 2 if is_shifted else 0,) * 2
        if grid is not None:
            rows, columns = grid
            window = min(rows, window_size), min(columns, window_size)
            shift = shift[0] if rows > window_size else 0, shift[1] if columns > window_size else 0
        self.grid, self.window, self.shift = grid, window, shift
        self.norm1 = LayerNorm(dim, epsilon=_EPSILON)
        self.attn = WindowAttention(dim, window, num_heads, qkv_bias, dropout, attention_dropout)
        self.norm2 = LayerNorm(dim, epsilon=_EPSILON)
        self.mlp = Mlp(dim, int(dim * mlp_ratio), dropout)
        self.drop_path = DropPath(drop_path)
        mask = None
        if grid is not None and any(shift):
            mask = paddle.to_tensor(attention_mask(grid, window, shift))
        self.register_buffer("attention_mask", mask, persistable=False)

    def forward(self, x):
        """Map (batch, height, width, dim) to the same shape."""
        x = x + self.drop_path(self._attend(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))  # (batch, height, width, dim)

    def _attend(self, x):
        size = grid = self.grid or (x.shape[1], x.shape[2])
        mask, (down, across) = self.attention_mask, self.shift
        if self.grid is None:
            # Padded, then shifted, as in the authors' networks for detection and segmentation; padding is not masked.
            x = pad_to_multiples(x, self.window)
            grid = (x.shape[1], x.shape[2])
            mask = mask_on_device(grid, self.window, self.shift) if any(self.shift) else None
        if any(self.shift):
            x = paddle.roll(x, shifts=(-down, -across), axis=(1, 2))
        windows, padded = split_into_windows(x, grid, self.window)  # (batch * windows, tokens, dim)
        x = merge_windows(self.attn(windows, mask), grid, padded, self.window)
        x = paddle.roll(x, shifts=(down, across), axis=(1, 2)) if any(self.shift) else x
        return x if are_equal_sides(grid, size) else x[:, : size[0], : size[1]]


class PatchMerging(nn.Layer):
    """Four neighboring tokens become one of twice the width; a missing row or column is filled with zeros."""

    def __init__(self, dim: int, grid: Size | None):
        super().__init__()
        self.dim = dim
        self.grid = grid
        self.norm = LayerNorm(4 * dim, epsilon=_EPSILON)
        self.reduction = linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x):
        """Map (batch, rows, columns, dim) to half the rows and columns and twice the channels."""
        height, width = self.grid or (x.shape[1], x.shape[2])
        x = pad_to_multiples(x, (2, 2), (height, width))
        rows, columns = (height + 1) // 2, (width + 1) // 2
        x = x.reshape([-1, rows, 2, columns, 2, self.dim]).transpose([0, 1, 3, 4, 2, 5])
        x = x.reshape([-1, rows, columns, 4 * self.dim])  # upper left, lower left, upper right, lower right
        return self.reduction(self.norm(x))  # (batch, rows, columns, 2 * dim)


class SwinStage(nn.Layer):
    """Blocks at one resolution, every other one shifted, after patch merging in all stages but the first."""

    def __init__(self, dim: int, grid: Size | None, merges: bool, drop_path: Sequence[float], **block: Any):
        super().__init__()
        self.downsample = nn.Identity()
        if merges:
            self.downsample = PatchMerging(dim // 2, grid)
            grid = None if grid is None else ((grid[0] + 1) // 2, (grid[1] + 1) // 2)
        self.grid = grid
        self.blocks = nn.LayerList(
            [
                SwinBlock(dim, grid, is_shifted=index % 2 == 1, drop_path=rate, **block)
                for index, rate in enumerate(drop_path)
            ]
        )

    def forward(self, x):
        """Map positions (batch, rows, columns, channels) to (batch, height, width, dim)."""
        x = self.downsample(x)
        for block in self.blocks:
            x = block(x)
        return x  # (batch, height, width, dim)


class NormalizedPatches(PatchEmbedding):
    """Patches as a normalized image of vectors; with ``any_size`` images of other sizes are padded to full patches."""

    def __init__(
        self, image_size: int | Size, patch_size: int, in_channels: int, embed_dim: int, any_size: bool = False
    ):
        super().__init__(image_size, patch_size, in_channels, embed_dim)
        self.embed_dim, self.any_size = embed_dim, any_size
        self.norm = LayerNorm(embed_dim, epsilon=_EPSILON)

    def forward(self, x):
        """Map images (batch, channels, height, width) to patches (batch, height, width, dim)."""
        if self.any_size:
            x = pad_to_multiples(x, (self.patch_size, self.patch_size), (x.shape[2], x.shape[3]), "NCHW")
            return self.norm(self.proj(x).transpose([0, 2, 3, 1]))
        # Not super().forward(): Paddle 2.6 cannot export it.
        x = self.norm(PatchEmbedding.forward(self, x))
        return x.reshape([-1, *self.grid, self.embed_dim])  # (batch, height, width, dim)


# Liu et al., Swin Transformer, 2021, section 3.3.
_TINY = {"embed_dim": 96, "depths": (2, 2, 6, 2), "num_heads": (3, 6, 12, 24)}
_SMALL = {"embed_dim": 96, "depths": (2, 2, 18, 2), "num_heads": (3, 6, 12, 24)}
_BASE = {"embed_dim": 128, "depths": (2, 2, 18, 2), "num_heads": (4, 8, 16, 32)}
_LARGE = {"embed_dim": 192, "depths": (2, 2, 18, 2), "num_heads": (6, 12, 24, 48)}
_AT_224 = {"image_size": 224, "patch_size": 4, "window_size": 7, "mlp_ratio": 4.0, "qkv_bias": True}
_AT_384 = {"image_size": 384, "patch_size": 4, "window_size": 12, "mlp_ratio": 4.0, "qkv_bias": True}

VARIANTS: Variants = {
    "swin_tiny_patch4_window7_224": dict(_AT_224, **_TINY),
    "swin_small_patch4_window7_224": dict(_AT_224, **_SMALL),
    "swin_base_patch4_window7_224": dict(_AT_224, **_BASE),
    "swin_base_patch4_window12_384": dict(_AT_384, **_BASE),
    "swin_large_patch4_window7_224": dict(_AT_224, **_LARGE),
    "swin_large_patch4_window12_384": dict(_AT_384, **_LARGE),
}

_COMPUTED = ("relative_position_index", "attn_mask")


def _find_window(places: int, grid: Size) -> Size | None:
    """Return the window with this number of relative places, which a small grid makes smaller; None: none has it."""
    windows = ((min(grid[0], side), min(grid[1], side)) for side in range(1, max(grid) + 1))
    return next((window for window in windows if (2 * window[0] - 1) * (2 * window[1] - 1) == places), None)


def _next_stage(match: re.Match[str]) -> str:  # others count patch merging as part of the preceding stage
    return f"layers.{int(match[1]) + 1}.downsample."


_AUTHORS = (
    (r"^layers\.(\d{1,3})\.downsample\.", _next_stage),
    (r"^head\.(weight|bias)$", r"head.fc.\1"),
)

_PADDLEVIT = (
    (r"^patch_embedding\.patch_embed\.", "patch_embed.proj."),
    (r"^patch_embedding\.norm\.", "patch_embed.norm."),
    (r"^stages\.(\d{1,3})\.downsample\.", _next_stage),
    (r"^stages\.", "layers."),
    (r"^fc\.", "head.fc."),
)

_OF_SWIN = r"^(?:swin\.)?"
_BLOCK = _OF_SWIN + r"encoder\.layers\.(\d+)\.blocks\.(\d+)\."
_HUGGINGFACE = (
    (_OF_SWIN + r"embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (_OF_SWIN + r"embeddings\.norm\.", "patch_embed.norm."),
    (_OF_SWIN + r"encoder\.layers\.(\d{1,3})\.downsample\.", _next_stage),
    (_BLOCK + r"layernorm_before\.", r"layers.\1.blocks.\2.norm1."),
    (_BLOCK + r"attention\.self\.", r"layers.\1.blocks.\2.attn."),
    (_BLOCK + r"attention\.output\.dense\.", r"layers.\1.blocks.\2.attn.proj."),
    (_BLOCK + r"layernorm_after\.", r"layers.\1.blocks.\2.norm2."),
    (_BLOCK + r"intermediate\.dense\.", r"layers.\1.blocks.\2.mlp.fc1."),
    (_BLOCK + r"output\.dense\.", r"layers.\1.blocks.\2.mlp.fc2."),
    (_OF_SWIN + r"layernorm\.", "norm."),
    (r"^classifier\.", "head.fc."),
)

KEY_MAPS: dict[str, KeyMap] = {
    "PaddleViT": lambda state: rename(without(state, _COMPUTED), _PADDLEVIT),
    # SwinForImageClassification of transformers, also without the classifier
    "Hugging Face": lambda state: join_projections(
        rename(without(state, _COMPUTED), _HUGGINGFACE), ("query", "key", "value"), "qkv"
    ),
    "the authors'": lambda state: rename(without(state, _COMPUTED), _AUTHORS),  # older versions of timm too
}


class SwinTransformer(PyramidClassifier):
    """Swin classifier.

    Args, in addition to the arguments of ``Classifier``:
        embed_dim: width of a token in the first stage; it doubles from stage to stage.
        window_size: side of a window in tokens.
        any_size: for images of any size, as the authors' networks for detection and segmentation: windows are never
            smaller than ``window_size`` and shifted in every second block, and what they do not divide is padded with
            zeros. With False windows are fitted to ``image_size``.
    """

    variants = VARIANTS
    expected_inputs = list_inputs(VARIANTS, ExpectedInput(crop_pct=0.9))
    key_maps = KEY_MAPS
    telling_name = "layers.#.blocks.#.attn.relative_position_bias_table"
    classifier_layers = ("head.fc",)
    layer_names = r"layers\.\d+\.(?:downsample|blocks\.\d+)"

    def __init__(
        self,
        num_classes: int = 1000,
        image_size: int | Size = 224,
        patch_size: int = 4,
        embed_dim: int = 96,
        depths: Sequence[int] = (2, 2, 6, 2),
        num_heads: Sequence[int] = (3, 6, 12, 24),
        window_size: int = 7,
        any_size: bool = False,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        in_channels: int = 3,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        drop_path: float = 0.0,
    ):
        super().__init__()
        self.patch_embed = NormalizedPatches(image_size, patch_size, in_channels, embed_dim, any_size)
        self.image_size, self.in_channels = self.patch_embed.image_size, in_channels
        self.pos_drop, self.window_size = nn.Dropout(dropout), window_size
        self.layers = nn.LayerList()
        grid = None if any_size else self.patch_embed.grid
        for index, (rates, heads) in enumerate(zip(rates_of_stages(drop_path, tuple(depths)), num_heads)):
            stage = SwinStage(
                embed_dim * 2**index,
                grid,
                merges=index > 0,
                drop_path=rates,
                window_size=window_size,
                num_heads=heads,
                mlp_ratio=mlp_ratio,
                qkv_bias=qkv_bias,
                dropout=dropout,
                attention_dropout=attention_dropout,
            )
            grid = stage.grid
            self.layers.append(stage)
        self.feature_strides = tuple(patch_size * 2**i for i in range(len(depths)))
        self.feature_channels = tuple(embed_dim * 2**i for i in range(len(depths)))
        self.embed_dim = self.feature_channels[-1]
        self.norm = LayerNorm(self.embed_dim, epsilon=_EPSILON)
        self.head = nn.Sequential()
        self.reset_classifier(num_classes)

    @classmethod
    def read_described(cls, content: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the options that transformers' Swin has, see ``Model.read_described``."""
        if content.get("model_type") != "swin":
            return None
        same = ("image_size", "patch_size", "window_size", "mlp_ratio", "qkv_bias", "embed_dim")
        lists = {name: tuple(content[name]) for name in ("depths", "num_heads")}
        return {**{name: content[name] for name in same}, **lists}

    def forward_features(self, x):
        """Compute the mean (batch, embed_dim) of the normalized tokens of images (N, channels, height, width)."""
        return self.norm(self.outputs(x)[-1]).mean(axis=[1, 2])

    def parts(self):
        """Return the layers before the stages, and the stages."""
        return (self.patch_embed, self.pos_drop), self.layers

    def network_facts(self) -> Mapping[str, Any]:
        """Return what no shape tells, see ``Model.network_facts``."""
        heads = [stage.blocks[0].attn.num_heads for stage in self.parts()[1]]
        facts = {"hidden_act": "gelu", "layer_norm_eps": USUAL_EPSILONS, "num_heads": heads}
        return {"model_type": ("swin",), **facts}

    def no_weight_decay(self) -> tuple[str, ...]:
        """Return the parameters with several axes that are not decayed, as in the authors' code."""
        return tuple(name for name, _ in self.named_parameters() if name.endswith("relative_position_bias_table"))

    def resample_parameter(self, name: str, value, trained_size):
        """Resample tables of relative position biases to this model's windows."""
        if not name.endswith(".relative_position_bias_table"):
            return None
        _, stage, _, block, *_ = name.split(".")
        grid, old_window = self.patch_embed.find_grid(trained_size), None
        if grid is not None and value.ndim == 2:
            for _ in range(int(stage)):
                grid = (grid[0] + 1) // 2, (grid[1] + 1) // 2
            old_window = _find_window(len(value), grid)
        return resize_relative_position_bias(value, self.layers[int(stage)].blocks[int(block)].window, old_window)
