"""Network blocks that use fast functions where they apply."""

import functools
from collections.abc import Sequence

import numpy as np
import paddle

from ...images.models import convnext, pvt_v2, segformer, swin, vit, vit_blocks
from ...images.models.layers import DropPath
from .accelerate import can_use_fast_path
from .layers import FastGELU, FastLayerNorm, FastLinear, FastMlp, FastPatchEmbedding

_ATTENTIONS = vit.Attention, swin.WindowAttention
_Block = vit.ViTBlock | swin.SwinBlock | vit_blocks.ConfigurableBlock


class FastViTBlock(vit.ViTBlock):
    """Each branch is one function; in the last block, only tokens that are read pass the second branch."""

    def forward(self, x, count: int | None = None, mask: paddle.Tensor | None = None):
        """Run the block, by fast functions if they apply; they know no mask."""
        if mask is None and _fits(x, self):
            return _vit_block(self, x, count)
        return vit.ViTBlock.forward(self, x, count, mask)


class FastConfigurableAttention(vit_blocks.ConfigurableAttention):
    """Read queries, keys and values where they are side by side, without a transposition."""

    def attend_packed(self, parts: Sequence[paddle.Tensor], mask: paddle.Tensor | None) -> paddle.Tensor:
        """Attend among tokens, by a fast function if it applies."""
        if _fits_parts(parts, self):
            return _attend_side_by_side(self, parts, mask)
        return vit_blocks.ConfigurableAttention.attend_packed(self, parts, mask)


class FastConfigurableBlock(vit_blocks.ConfigurableBlock):
    """Add the scaled branches in one pass each."""

    def add(self, x, branch, scale: paddle.nn.Layer):
        """Add a branch, by a fast function if it applies."""
        if type(scale) is vit_blocks.LayerScale and _fits_addition(x, branch, self.drop_path, scale):
            return _add_scaled(self, x, branch, scale)
        return vit_blocks.ConfigurableBlock.add(self, x, branch, scale)


class FastSwinBlock(swin.SwinBlock):
    """Each branch is one function; attention reads and writes each window's tokens in place."""

    def forward(self, x):
        """Run the block, by fast functions if they apply."""
        if _fits_windows(self) and _fits(x, self):
            return _swin_block(self, x)
        return swin.SwinBlock.forward(self, x)


class FastNormalizedPatches(swin.NormalizedPatches):
    """Extract the patches for one matrix product."""

    def embed(self, x):
        """Embed the patches, by one product if it applies."""
        return FastPatchEmbedding.embed(self, x)


class FastConvNeXtBlock(convnext.ConvNeXtBlock):
    """Add the scaled branch in one pass."""

    def forward(self, x):
        """Run the block, by fast functions if they apply."""
        if can_use_fast_path(x, self.drop_path) and can_use_fast_path(self.gamma):
            return _convnext_block(self, x)
        return convnext.ConvNeXtBlock.forward(self, x)


class FastSpatialReductionAttention(pvt_v2.SpatialReductionAttention):
    """Read queries of all tokens, and keys and values of fewer, where their projections wrote them."""

    def forward(self, x, grid: tuple[int, int]):
        """Run the attention, by fast functions if they apply."""
        if _fits_reduction(x, self):
            return _reduction_attention(self, x, grid)
        return pvt_v2.SpatialReductionAttention.forward(self, x, grid)


class FastSegFormerHead(segformer.SegFormerHead):
    """Add the maps while they are upsampled, channels last."""

    def summed(self, maps: Sequence[paddle.Tensor]) -> paddle.Tensor:
        """Sum the maps at the size of the first, by fast functions if they apply."""
        if _fits_sum(maps[0], self):
            return _sum_enlarged(self, maps)
        return segformer.SegFormerHead.summed(self, maps)


# Tables of layers and messages show the names of the plain classes, from which the fast ones are derived first.
for _fast in (
    FastViTBlock,
    FastConfigurableAttention,
    FastConfigurableBlock,
    FastSwinBlock,
    FastNormalizedPatches,
    FastConvNeXtBlock,
    FastSpatialReductionAttention,
    FastSegFormerHead,
):
    _plain, *_ = _fast.__bases__
    _fast.__name__ = _plain.__name__


@paddle.jit.not_to_static
def _fits(x: paddle.Tensor, block: vit.ViTBlock | swin.SwinBlock) -> bool:
    """Return whether ``branches`` can compute a pre-norm block with ``norm1``, ``attn``, ``norm2`` and ``mlp``."""
    attention, mlp = block.attn, block.mlp
    if type(attention) not in _ATTENTIONS or type(mlp) is not FastMlp or type(block.drop_path) is not DropPath:
        return False  # custom layers may compute anything
    dropouts = attention.attention_dropout, attention.dropout, mlp.dropout
    norms, linears = (block.norm1, block.norm2), (attention.qkv, attention.proj, mlp.fc1, mlp.fc2)
    if any(layer.training and layer.p for layer in dropouts) or x.shape[-1] != block.norm1.weight.shape[0]:
        return False
    if not all(type(norm) is FastLayerNorm and norm.has_usual_parameters() for norm in norms):
        return False
    if type(mlp.act) is not FastGELU or not all(type(layer) is FastLinear for layer in linears):
        return False
    if any(layer.bias is None for layer in linears[1:]):
        return False
    other_layers = attention, mlp, mlp.act, attention.query_key, attention.attention_value, block.drop_path
    return can_use_fast_path(x, *norms, *linears, *dropouts, *other_layers)


def _factors(block: _Block, x: paddle.Tensor) -> paddle.Tensor | None:
    """Draw the factor of each item's branch; None for 1."""
    return block.drop_path.factors(x) if block.drop_path.is_dropping else None


@paddle.jit.not_to_static
def _vit_block(block: vit.ViTBlock, x: paddle.Tensor, count: int | None) -> paddle.Tensor:
    from . import branches

    attn, keep = block.attn, _factors(block, x)
    heads = branches.HeadLayout(attn.num_heads, attn.head_dim, attn.scale)
    x = branches.attention(x, block.norm1, attn.qkv, attn.proj, heads, keep=keep)
    x = x if count is None else x[:, :count]
    return branches.mlp(x, block.norm2, block.mlp.fc1, block.mlp.fc2, _factors(block, x))


@paddle.jit.not_to_static
def _fits_parts(parts: Sequence[paddle.Tensor], attention: vit_blocks.ConfigurableAttention) -> bool:
    dropout = attention.attention_dropout
    layers = attention.query_key, attention.attention_value, dropout
    return not (dropout.training and dropout.p) and all(can_use_fast_path(part, *layers) for part in parts)


@paddle.jit.not_to_static
def _attend_side_by_side(
    attention: vit_blocks.ConfigurableAttention, parts: Sequence[paddle.Tensor], mask: paddle.Tensor | None
) -> paddle.Tensor:
    from . import branches

    batch, tokens = parts[0].shape[:2]
    qkv = parts[0] if len(parts) == 1 else paddle.concat(list(parts), axis=2)  # (batch, tokens, 3 * heads, head_dim)
    windows, added = 1, None
    if mask is not None:  # (batch, 1, n, tokens): the other tokens attend to all
        others = paddle.zeros([batch, tokens - mask.shape[2], tokens], mask.dtype)
        windows, added = batch, branches.UntrackedTensor(paddle.concat([mask.squeeze(1), others], axis=1))
    heads = branches.HeadLayout(attention.num_heads, attention.head_dim, attention.scale, windows, mask=added)
    attended = branches.attend_within(qkv.reshape([batch // windows, windows * tokens, -1]), heads)
    return attended.reshape([batch, tokens, -1])


@paddle.jit.not_to_static
def _fits_addition(x: paddle.Tensor, branch: paddle.Tensor, drop_path: paddle.nn.Layer, scale: paddle.nn.Layer) -> bool:
    return type(drop_path) is DropPath and can_use_fast_path(x, drop_path, scale) and can_use_fast_path(branch)


@paddle.jit.not_to_static
def _add_scaled(block: vit_blocks.ConfigurableBlock, x: paddle.Tensor, branch: paddle.Tensor, scale) -> paddle.Tensor:
    from . import image_functions

    return image_functions.add_scaled(x, branch, scale.gamma, _factors(block, x))


@paddle.jit.not_to_static
def _fits_windows(block: swin.SwinBlock) -> bool:
    """Return whether the grid is known and windows divide it, so that none is padded."""
    return block.grid is not None and not any(side % part for side, part in zip(block.grid, block.window))


@paddle.jit.not_to_static
def _swin_block(block: swin.SwinBlock, x: paddle.Tensor) -> paddle.Tensor:
    from . import branches

    attn, keep = block.attn, _factors(block, x)
    index = _window_index(block.grid, block.window, block.shift)
    mask = None if block.attention_mask is None else branches.UntrackedTensor(block.attention_mask)
    heads = branches.HeadLayout(
        attn.num_heads, attn.head_dim, attn.scale, index.shape[0], branches.UntrackedTensor(index), mask
    )
    x = branches.attention(x, block.norm1, attn.qkv, attn.proj, heads, attn.position_bias(), keep)
    return branches.mlp(x, block.norm2, block.mlp.fc1, block.mlp.fc2, _factors(block, x))


@paddle.jit.not_to_static
def _convnext_block(block: convnext.ConvNeXtBlock, x: paddle.Tensor) -> paddle.Tensor:
    from . import image_functions

    branch = block.mlp(block.norm(block.conv_dw(x)))
    return image_functions.add_scaled(x, branch, block.gamma, _factors(block, x))


@paddle.jit.not_to_static
def _fits_reduction(x: paddle.Tensor, attention: pvt_v2.SpatialReductionAttention) -> bool:
    dropout = attention.attention_dropout
    return not (dropout.training and dropout.p) and can_use_fast_path(
        x, attention.query_key, attention.attention_value, dropout
    )


@paddle.jit.not_to_static
def _reduction_attention(
    attention: pvt_v2.SpatialReductionAttention, x: paddle.Tensor, grid: tuple[int, int]
) -> paddle.Tensor:
    from . import branches

    heads = branches.HeadLayout(attention.num_heads, attention.head_dim, attention.scale)
    q, source = attention.q(x), attention._reduce(x, grid) if attention.is_reduced else x
    return attention.dropout(attention.proj(branches.attend(q, attention.kv(source), heads)))


@paddle.jit.not_to_static
def _fits_sum(x: paddle.Tensor, head: segformer.SegFormerHead) -> bool:
    return can_use_fast_path(x, head.product, head.weights_product)


@paddle.jit.not_to_static
def _sum_enlarged(head: segformer.SegFormerHead, maps: Sequence[paddle.Tensor]) -> paddle.Tensor:
    from . import functions, upsampling

    projected = [functions.linear(x, *weights) for x, weights in zip(maps, head.joined_weights())]
    return upsampling.sum_enlarged(projected).transpose([0, 3, 1, 2])


@functools.cache
def _window_index(grid: swin.Size, window: swin.Size, shift: swin.Size) -> paddle.Tensor:
    """Return the index in the unshifted image, which windows divide, of each token: int64 (windows, tokens)."""
    rows, columns = grid[0] // window[0], grid[1] // window[1]
    tokens = np.roll(np.arange(grid[0] * grid[1]).reshape(grid), (-shift[0], -shift[1]), (0, 1))
    tokens = tokens.reshape(rows, window[0], columns, window[1]).transpose(0, 2, 1, 3)
    index = np.ascontiguousarray(tokens.reshape(rows * columns, -1), dtype=np.int64)
    return paddle.to_tensor(index, place=paddle.CPUPlace())
