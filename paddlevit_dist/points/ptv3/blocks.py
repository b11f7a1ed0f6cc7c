"""Layers of serialized networks: norms, blocks, and the change to coarser cells and back."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import paddle
from paddle import nn

from ...core.runtime.autocast import as_dtype
from ...core.runtime.layers import GELU, LayerNorm, Linear
from ..sparse.device_plan import KernelDirection, KernelMap, KernelPairs, Plan
from ..sparse.layers import Convolution, RowsBatchNorm
from ..sparse.pooling import max_over_pairs
from ..sparse.tensor import SparseTensor
from .attention import PatchAttention, RotaryFrequencies, SerializedPatches
from .serialization import patch_lengths
from .tables import CellTable, GridTable, PatchTable

NormBuilder = Callable[[int], nn.Layer]  # a norm of this many channels

batch_norm: NormBuilder = functools.partial(RowsBatchNorm, momentum=0.99, epsilon=1e-3)


class ConditionalNorm(nn.Layer):
    """A norm for each of several data sets; only number ``chosen`` is used and trained (PDNorm).

    Source: X. Wu et al., "Towards Large-scale 3D Representation Learning with Multi-dataset Point Prompt Training",
    CVPR 2024, arXiv 2308.09718, section 3.2.
    """

    def __init__(self, build: NormBuilder, channels: int, number: int, chosen: int) -> None:
        super().__init__()
        self.chosen = chosen
        self.norm = nn.LayerList([build(channels) for _ in range(number)])
        for index, norm in enumerate(self.norm):
            for parameter in norm.parameters() if index != chosen else ():
                parameter.stop_gradient = True

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Return (N, C) normalized for the chosen data set."""
        return self.norm[self.chosen](x)


class ChannelScale(nn.Layer):
    """Learned factors of a branch, one for each channel."""

    def __init__(self, dim: int, value: float) -> None:
        super().__init__()
        self.gamma = self.create_parameter([dim], default_initializer=nn.initializer.Constant(value))

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Return (N, C)."""
        return x * self.gamma.astype(x.dtype)


class SerializedLevel:
    """A level of a batch: its convolutions' plan, its patches in each order, and positions of its voxels.

    ``orders`` are the patches' tables in the order in which blocks take turns, ``positions`` (N, 3) or None.
    """

    def __init__(
        self, plan: Plan, orders: Sequence[PatchTable], has_grid: bool, positions: paddle.Tensor | None = None
    ) -> None:
        self.plan, (self.stride,), self.positions = plan, orders[0].strides, positions
        sizes = plan.scenes(self.stride).sizes
        grid = plan.table(GridTable((self.stride,)))[0].reshape([-1, 3]) if has_grid else None
        self._patches = []
        for order in orders:
            rows, places, starts = plan.table(order)
            self._patches.append(
                SerializedPatches(rows, places, starts, patch_lengths(sizes, order.find_size(sizes)), grid)
            )
        self._turns: dict[int, tuple[paddle.Tensor, paddle.Tensor]] = {}

    def patches(self, block: int, rotary: RotaryFrequencies | None) -> SerializedPatches:
        """Return the patches for the block of this number in a stage."""
        patches = self._patches[block % len(self._patches)]
        if rotary is None or self.positions is None:
            return patches
        width = rotary.inv_freq.shape[0]
        if width not in self._turns:
            self._turns[width] = rotary(self.positions)
        return patches._replace(turns=self._turns[width])


class SparsePosition(nn.Sequential):
    """Conditional positions: a convolution over neighboring voxels, a linear layer, and a norm."""

    def __init__(self, channels: int, norm: NormBuilder) -> None:
        super().__init__(Convolution(channels, channels, 3, bias=True), Linear(channels, channels), norm(channels))

    def forward(self, x: paddle.Tensor, level: SerializedLevel) -> paddle.Tensor:
        """Return (N, C) from the features (N, C) of a level."""
        convolution, linear, norm = self
        return norm(linear(convolution(SparseTensor(x, plan=level.plan, stride=level.stride)).features))


class BlockOptions(NamedTuple):
    """What all blocks of a network have in common."""

    norm: NormBuilder = LayerNorm
    mlp_ratio: float = 4.0
    qkv_bias: bool = True
    pre_norm: bool = True
    layer_scale: float | None = None
    enable_rpe: bool = False
    is_rotary: bool = False


class SerializedBlock(nn.Layer):
    """Conditional positions, attention and two linear layers, each around a shortcut.

    ``drop_path`` is the share of points whose branches are dropped in training.
    """

    def __init__(self, channels: int, num_heads: int, patch_size: int, drop_path: float, options: BlockOptions) -> None:
        super().__init__()
        self.pre_norm, hidden = options.pre_norm, int(channels * options.mlp_ratio)
        self.cpe = SparsePosition(channels, options.norm)
        self.norm1 = nn.Sequential(options.norm(channels))
        relative = patch_size if options.enable_rpe else None
        self.attn = PatchAttention(channels, num_heads, options.qkv_bias, relative, options.is_rotary)
        self.norm2 = nn.Sequential(options.norm(channels))
        inner, outer = (Linear(*sizes) for sizes in ((channels, hidden), (hidden, channels)))
        self.mlp = nn.Sequential(nn.Sequential(("fc1", inner), ("act", GELU()), ("fc2", outer)))
        self.ls1, self.ls2 = (
            nn.Sequential(*([] if options.layer_scale is None else [ChannelScale(channels, options.layer_scale)]))
            for _ in range(2)
        )
        # Along axis 0, the rest of a row shares its fate.
        self.drop_path = nn.Dropout(drop_path, axis=0) if drop_path else nn.Identity()

    def forward(
        self, x: paddle.Tensor, seen: paddle.Tensor, level: SerializedLevel, number: int
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return features (N, C) of a level, and the last branch alone, (N, C), from the features before, ``x`` (N, C).

        ``seen`` (N, C) is what the convolution reads, ``number`` the block's place in its stage.
        """
        x = x + self.cpe(seen, level)
        patches = level.patches(number, self.attn.rope)
        branch = self.attn(self.norm1(x) if self.pre_norm else x, patches)
        x = x + self.drop_path(self.ls1(branch))
        x = x if self.pre_norm else self.norm1(x)
        branch = self.drop_path(self.ls2(self.mlp(self.norm2(x) if self.pre_norm else x)))
        x = x + branch
        return (x if self.pre_norm else self.norm2(x)), branch


class CellPooling(nn.Layer):
    """A linear layer, then the maximum over the voxels of each coarse cell; norm and GELU, or without ``norm`` none."""

    def __init__(self, in_channels: int, out_channels: int, norm: NormBuilder | None) -> None:
        super().__init__()
        self.proj = Linear(in_channels, out_channels)
        self.norm = nn.Sequential() if norm is None else nn.Sequential(norm(out_channels))
        self.act = nn.Identity() if norm is None else GELU()

    def forward(self, x: paddle.Tensor, plan: Plan, table: CellTable) -> paddle.Tensor:
        """Return (M, out_channels) from the features (N, in_channels) of the finer level."""
        _, *lists = plan.table(table)
        pairs = [KernelPairs(rank, *lists[2 * rank : 2 * rank + 2]) for rank in range(len(lists) // 2)]
        direction = KernelDirection([pairs], False, [])
        children = KernelMap(False, len(pairs), direction, direction)
        largest = max_over_pairs(as_dtype(self.proj(x), self.proj.weight.dtype), children, plan.rows(table.strides[1]))
        return self.act(self.norm(largest))


class CellUnpooling(nn.Layer):
    """Features of coarse cells added to the finer level's, both after a linear layer, norm and GELU."""

    def __init__(self, in_channels: int, skip_channels: int, out_channels: int, norm: NormBuilder | None) -> None:
        super().__init__()
        self.proj, self.proj_skip = (
            nn.Sequential(Linear(channels, out_channels), *([] if norm is None else [norm(out_channels), GELU()]))
            for channels in (in_channels, skip_channels)
        )

    def forward(
        self, x: paddle.Tensor, skipped: paddle.Tensor, plan: Plan, table: CellTable
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return the sum and the skipped features, (N, out_channels) each, from (M, in_channels) and (N, skip)."""
        skipped = self.proj_skip(skipped)
        return skipped + unpool(self.proj(x), plan, table), skipped


def unpool(x: paddle.Tensor, plan: Plan, table: CellTable) -> paddle.Tensor:
    """Return the features (N, C) of each voxel's cell, from (M, C)."""
    return paddle.gather(x, plan.table(table)[0])


def mean_positions(positions: paddle.Tensor, plan: Plan, table: CellTable) -> paddle.Tensor:
    """Return the mean position (M, 3) of each cell's voxels, from (N, 3)."""
    cells, rows = plan.table(table)[0], plan.rows(table.strides[1])
    ones = paddle.ones([positions.shape[0], 1], dtype=positions.dtype)
    total = paddle.concat([positions, ones], axis=1)
    total = paddle.zeros([rows, 4], dtype=positions.dtype).index_add(cells, 0, total)
    return total[:, :3] / total[:, 3:]
