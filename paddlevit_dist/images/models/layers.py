"""Parts that several image models share."""

from __future__ import annotations

import math
from typing import Dict, List, Tuple, Union

import paddle
from paddle import nn

from ...errors import UserError
from ..kernels.layers import Linear, gelu, is_fast_mlp, is_fast_patches, mlp, patches


def as_pair(size: Union[int, Tuple[int, int]]) -> Tuple[int, int]:
    """``(height, width)`` of a size given as one number or as a pair."""
    if isinstance(size, int):
        return size, size
    height, width = size
    return int(height), int(width)


class TruncatedNormal(nn.initializer.Initializer):
    """Normal distribution cut at two of its deviations, the usual start of a transformer's weights.

    Paddle 2.6 cuts at two standard deviations and 3.x at -2 and 2, whatever the deviation is: drawn with deviation 1
    both are the same, and the result is scaled to have ``standard_deviation`` after the cut.
    """

    _AFTER_THE_CUT = 0.87962566  # standard deviation of the unit normal between -2 and 2

    def __init__(self, standard_deviation: float = 0.02):
        super().__init__()
        self.standard_deviation = standard_deviation

    def forward(self, var, block=None):
        nn.initializer.TruncatedNormal(std=1.0)(var, block)
        with paddle.no_grad():
            var.set_value(var * (self.standard_deviation / self._AFTER_THE_CUT))


def linear(in_features: int, out_features: int, bias: bool = True, standard_deviation: float = 0.02) -> Linear:
    """Linear layer with truncated normal weights (.02 unless given) and zero bias."""
    bias_attr = paddle.ParamAttr(initializer=nn.initializer.Constant(0.0)) if bias else False
    return Linear(
        in_features,
        out_features,
        weight_attr=paddle.ParamAttr(initializer=TruncatedNormal(standard_deviation)),
        bias_attr=bias_attr,
    )


def starting_values(standard_deviation: float) -> Dict[str, paddle.ParamAttr]:
    """``weight_attr`` and ``bias_attr`` of a layer with truncated normal weights and zero bias."""
    return {
        "weight_attr": paddle.ParamAttr(initializer=TruncatedNormal(standard_deviation)),
        "bias_attr": paddle.ParamAttr(initializer=nn.initializer.Constant(0.0)),
    }


class MatrixProduct(nn.Layer):
    """``x @ y`` of two activations, as a layer so that a hook can count its multiplications."""

    def __init__(self, transpose_x: bool = False, transpose_y: bool = False):
        super().__init__()
        self.transpose_x = transpose_x
        self.transpose_y = transpose_y

    def forward(self, x, y):
        return paddle.matmul(x, y, transpose_x=self.transpose_x, transpose_y=self.transpose_y)


def drop_path_rates(last_rate: float, depth: int) -> List[float]:
    """A rate for each of ``depth`` blocks: linear from 0 in the first to ``last_rate`` in the last."""
    return [last_rate * (1.0 - (depth - 1 - index) / max(depth - 1, 1)) for index in range(depth)]


def rates_of_stages(last_rate: float, depths: Tuple[int, ...]) -> List[List[float]]:
    """``drop_path_rates`` over the blocks of all stages, cut into stages."""
    rates = iter(drop_path_rates(last_rate, sum(depths)))
    return [[next(rates) for _ in range(depth)] for depth in depths]


def head_dim(name: str, dim: int, num_heads: int) -> int:
    """Channels of one attention head.

    Raises:
        UserError: the heads cannot share the channels; ``name`` says which they are.
    """
    if dim % num_heads:
        raise UserError(f"{name} {dim} is not divisible by its number of heads {num_heads}: change one")
    return dim // num_heads


class DropPath(nn.Layer):
    """Drops a residual branch for whole samples while training and scales the others to keep the mean.

    Source: Huang et al., Deep Networks with Stochastic Depth, 2016.
    """

    def __init__(self, rate: float = 0.0):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        return x if not self.is_dropping else x * self.factors(x)

    @property
    def is_dropping(self) -> bool:
        return self.training and self.rate != 0.0

    def factors(self, x):
        """Newly drawn, (batch, 1, ...): 0 for a dropped sample, for the others 1 / the share that is kept."""
        keep = 1.0 - self.rate
        draws = paddle.rand([x.shape[0]] + [1] * (x.ndim - 1))
        return (draws < keep).astype(x.dtype) / keep

    def extra_repr(self) -> str:
        return f"rate={self.rate:g}"


class Mlp(nn.Layer):
    """Two linear layers with an exact GELU between them, on the last axis."""

    def __init__(self, dim: int, hidden_dim: int, dropout: float = 0.0):
        super().__init__()
        self.fc1 = linear(dim, hidden_dim)
        self.fc2 = linear(hidden_dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        if not (self.training and self.dropout.p) and is_fast_mlp(x, self.fc1, self.fc2):
            return mlp(x, self.fc1, self.fc2)
        x = self.dropout(gelu(self.fc1(x)))  # (..., hidden_dim)
        return self.dropout(self.fc2(x))  # (..., dim)


class PatchEmbedding(nn.Layer):
    """Cuts an image into square patches and maps each to a vector.

    The weights start as a truncated normal of variance 1 / fan-in, so that a patch's vector has about the variance of
    its pixels whatever the patch size and the number of channels (the convention of the original JAX models).
    """

    def __init__(self, image_size: Union[int, Tuple[int, int]], patch_size: int, in_channels: int, embed_dim: int):
        super().__init__()
        self.image_size = as_pair(image_size)
        self.patch_size = patch_size
        _check_divisible(self.image_size, patch_size)
        self.grid = (self.image_size[0] // patch_size, self.image_size[1] // patch_size)  # patches down, across
        fan_in = in_channels * patch_size * patch_size
        self.proj = nn.Conv2D(
            in_channels,
            embed_dim,
            patch_size,
            stride=patch_size,
            weight_attr=paddle.ParamAttr(initializer=TruncatedNormal(math.sqrt(1.0 / fan_in))),
            bias_attr=paddle.ParamAttr(initializer=nn.initializer.Constant(0.0)),
        )

    def forward(self, x):
        if tuple(x.shape[-2:]) != self.image_size:
            built, given = _times(self.image_size), _times(tuple(x.shape[-2:]))
            raise UserError(
                f"the model was built for images of {built} px, the batch has {given}: build it with image_size"
            )
        if is_fast_patches(x, self.proj):
            return patches(x, self.proj)
        x = self.proj(x)  # (batch, embed_dim, grid height, grid width)
        return x.flatten(2).transpose([0, 2, 1])  # (batch, patches, embed_dim)


def _check_divisible(image_size: Tuple[int, int], patch_size: int) -> None:
    for side in image_size:
        if side % patch_size or side <= 0:
            below = side // patch_size * patch_size
            fitting = f"{below} or {below + patch_size}" if below > 0 else f"{patch_size} or a multiple of it"
            size = _times(image_size)
            raise UserError(
                f"image size {size} does not divide into patches of {patch_size} px: instead of {side} use {fitting}"
            )


def _times(size: Tuple[int, int]) -> str:
    return " x ".join(str(side) for side in size)
