"""Attention within patches of sorted voxels: one operation on GPUs, products of whole patches elsewhere."""

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.nn.functional import flash_attention

from ...core.runtime.autocast import as_dtype
from ...core.runtime.layers import Linear

_LARGEST_HEAD, _MULTIPLE = 192, 8  # channels of a head that flash attention takes; above, only some GPUs train
_LEAST_CAPABILITY = 8  # of the GPU: Ampere
_MOST_WEIGHTS = 1 << 24  # of a head at a time: 64 MB


class SerializedPatches(NamedTuple):
    """The patches of a level in one order, see ``PatchTable``."""

    rows: paddle.Tensor  # int32 (T,), the level's row at each place of the patches
    places: paddle.Tensor  # int32 (N,), the place of each row
    starts: paddle.Tensor  # int32 (patches + 1,), on the device
    lengths: list[int]  # of each patch, on the host
    grid: paddle.Tensor | None = None  # int32 (N, 3), the cells of the level, for relative positions
    turns: tuple[paddle.Tensor, paddle.Tensor] | None = None  # cosines and sines (N, 1, 3, 1, d), for rotary positions

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Yield the first place, the number and the length of consecutive patches of one length, not too many."""
        first = 0
        for length, members in itertools.groupby(self.lengths):
            number = len(list(members))
            most = max(1, _MOST_WEIGHTS // length**2)
            for begin in range(0, number, most):
                yield first + begin * length, min(most, number - begin), length
            first += number * length


class RelativePosition(nn.Layer):
    """A learned term of attention for the difference of two cells along each axis, clipped to ``reach``."""

    def __init__(self, num_heads: int, patch_size: int) -> None:
        super().__init__()
        self.reach = int((4 * patch_size) ** (1 / 3) * 2)
        rows = 2 * self.reach + 1
        self.rpe_table = self.create_parameter(
            [3 * rows, num_heads], default_initializer=nn.initializer.TruncatedNormal(std=0.02)
        )

    def forward(self, cells: paddle.Tensor) -> paddle.Tensor:
        """Return (patches, heads, K, K) for the cells int32 (patches, K, 3)."""
        steps = (cells.unsqueeze(2) - cells.unsqueeze(1)).clip(-self.reach, self.reach) + self.reach
        rows = 2 * self.reach + 1
        total = sum(
            paddle.gather(self.rpe_table[axis * rows : (axis + 1) * rows], steps[..., axis].flatten())
            for axis in range(3)
        )
        return total.reshape([*steps.shape[:3], -1]).transpose([0, 3, 1, 2])


class RotaryFrequencies(nn.Layer):
    """The angles per unit of length by which Utonia turns a head's queries and keys: a part for each axis."""

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        width = head_dim // 3
        frequencies = [1.0 / 10 ** (index / width) for index in range(0, width, 2)]
        self.register_buffer("inv_freq", paddle.to_tensor(frequencies, dtype="float32"))

    def forward(self, positions: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return cosines and sines (N, 1, 3, 1, head_dim / 6) for positions (N, 3)."""
        angles = positions.unsqueeze(-1) * self.inv_freq.astype(positions.dtype)
        angles = angles.reshape([-1, 1, 3, 1, self.inv_freq.shape[0]])
        return angles.cos(), angles.sin()


def turn(x: paddle.Tensor, turns: tuple[paddle.Tensor, paddle.Tensor]) -> paddle.Tensor:
    """Turn queries or keys (N, heads, head_dim): a third for each axis, in which the halves are a plane's two axes."""
    parts = x.reshape([x.shape[0], x.shape[1], 3, 2, -1])
    cosines, sines = (as_dtype(part, x.dtype) for part in turns)
    first, second = parts[:, :, :, :1], parts[:, :, :, 1:]
    turned = [first * cosines - second * sines, second * cosines + first * sines]
    return paddle.concat(turned, axis=3).reshape(x.shape)


class PatchAttention(nn.Layer):
    """Multi-head attention within patches. ``patch_size`` is for relative positions; None: there are none."""

    #: use the operation of GPUs where relative positions allow it; None: on GPUs that have it, in half precision
    is_fused: bool | None = None

    def __init__(
        self, dim: int, num_heads: int, qkv_bias: bool = True, patch_size: int | None = None, is_rotary: bool = False
    ) -> None:
        super().__init__()
        self.num_heads, self.head_dim = num_heads, dim // num_heads
        self.qkv = Linear(dim, 3 * dim, bias_attr=None if qkv_bias else False)
        self.proj = Linear(dim, dim)
        self.rpe = None if patch_size is None else RelativePosition(num_heads, patch_size)
        self.rope = RotaryFrequencies(self.head_dim) if is_rotary else None

    def forward(self, x: paddle.Tensor, patches: SerializedPatches) -> paddle.Tensor:
        """Return (N, C) from the rows of a level (N, C)."""
        qkv = self.qkv(x)  # (N, 3 C)
        if self.rope is not None and patches.turns is not None:
            q, k, v = qkv.reshape([-1, 3, self.num_heads, self.head_dim]).unbind(axis=1)
            qkv = paddle.stack([turn(q, patches.turns), turn(k, patches.turns), v], axis=1).flatten(1)
        qkv = paddle.gather(qkv, patches.rows)  # (T, 3 C)
        y = self._fused(qkv, patches) if self.rpe is None and self._can_fuse(qkv) else self._plain(qkv, patches)
        return self.proj(paddle.gather(y, patches.places))

    def _can_fuse(self, qkv: paddle.Tensor) -> bool:
        if self.is_fused is not None:
            return self.is_fused
        is_half = qkv.dtype in (paddle.float16, paddle.bfloat16) and qkv.place.is_gpu_place()
        if not is_half or self.head_dim % _MULTIPLE or self.head_dim > _LARGEST_HEAD:
            return False
        return paddle.device.cuda.get_device_capability()[0] >= _LEAST_CAPABILITY

    def _fused(self, qkv: paddle.Tensor, patches: SerializedPatches) -> paddle.Tensor:
        """Return (T, C) with one operation for patches of any lengths, which keeps no weights."""
        q, k, v = qkv.reshape([-1, 3, self.num_heads, self.head_dim]).unbind(axis=1)
        longest = max(patches.lengths)
        y, _ = flash_attention.flash_attn_unpadded(
            q, k, v, patches.starts, patches.starts, longest, longest, 1.0 / math.sqrt(self.head_dim)
        )
        return y.flatten(1)

    def _plain(self, qkv: paddle.Tensor, patches: SerializedPatches) -> paddle.Tensor:
        """Return (T, C) with products of all patches of one length."""
        cells = None if self.rpe is None or patches.grid is None else paddle.gather(patches.grid, patches.rows)
        results: list[paddle.Tensor] = []
        for first, number, length in patches.runs():
            part = slice(first, first + number * length)
            heads = qkv[part].reshape([number, length, 3, self.num_heads, self.head_dim])
            q, k, v = heads.transpose([2, 0, 3, 1, 4]).unbind(axis=0)  # (patches, heads, K, head_dim) each
            weights = paddle.matmul(q * (1.0 / math.sqrt(self.head_dim)), k, transpose_y=True)
            if cells is not None and self.rpe is not None:
                weights = weights + self.rpe(cells[part].reshape([number, length, 3]))
            y = paddle.matmul(F.softmax(weights, axis=-1), v)
            results.append(y.transpose([0, 2, 1, 3]).reshape([number * length, -1]))
        return results[0] if len(results) == 1 else paddle.concat(results)
