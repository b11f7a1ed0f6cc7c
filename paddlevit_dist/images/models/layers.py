"""Parts that several image models share."""

import math
from collections.abc import Sequence
from typing import Any

import paddle
from paddle import nn

from ...core.runtime import device_graph
from ...core.runtime.autocast import like_products
from ...core.runtime.errors import UserError
from ...core.runtime.layers import GELU, Linear
from ...core.runtime.layers import LayerNorm as LayerNorm
from ..image_size import ImageSize, as_pair


class Conv2D(nn.Conv2D):
    """A convolution padded with zeros, in the precision of its products."""

    def forward(self, x):
        """Convolve (batch, channels, height, width)."""
        return nn.functional.conv2d(
            x,
            self.weight,
            like_products(self.bias),
            self._stride,
            self._padding,
            self._dilation,
            self._groups,
        )


class Conv2DTranspose(nn.Conv2DTranspose):
    """A transposed convolution, in the precision of its products."""

    def forward(self, x):
        """Convolve (batch, channels, height, width), transposed."""
        return nn.functional.conv2d_transpose(
            x, self.weight, like_products(self.bias), self._stride, self._padding, self.output_padding
        )


class ChannelsLastConv(Conv2D):
    """A convolution to (batch, rows, columns, out_channels), from that layout or (batch, channels, height, width)."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        is_channels_last: bool = True,
        **attributes: object,
    ):
        super().__init__(in_channels, out_channels, kernel_size, stride=stride, padding=padding, **attributes)
        self.is_channels_last = is_channels_last

    def forward(self, x):
        """Convolve to (batch, rows, columns, out_channels)."""
        x = x.transpose([0, 3, 1, 2]) if self.is_channels_last else x
        # Not super().forward(): Paddle 2.6 cannot export it.
        return Conv2D.forward(self, x).transpose([0, 2, 3, 1])


class ChannelsLastDepthwiseConv(ChannelsLastConv):
    """A kernel of an odd side for each channel of (batch, height, width, channels), zero-padded to keep the size."""

    def __init__(self, channels: int, kernel_size: int, **attributes: Any):
        super().__init__(channels, channels, kernel_size, padding=kernel_size // 2, groups=channels, **attributes)


class TruncatedNormal(nn.initializer.Initializer):
    """Normal distribution cut at two of its deviations, the usual start of a transformer's weights.

    Paddle 2.6 cuts at two standard deviations and 3.x at -2 and 2 for every deviation: drawn with deviation 1
    both are the same, and the result is scaled to have ``standard_deviation`` after the cut.
    """

    _AFTER_THE_CUT = 0.87962566  # standard deviation of the unit normal between -2 and 2

    def __init__(self, standard_deviation: float = 0.02):
        super().__init__()
        self.standard_deviation = standard_deviation

    def forward(self, var, block=None):
        """Fill the parameter."""
        nn.initializer.TruncatedNormal(std=1.0)(var, block)
        with paddle.no_grad():
            var.set_value(var * (self.standard_deviation / self._AFTER_THE_CUT))


def linear(in_features: int, out_features: int, bias: bool = True, standard_deviation: float = 0.02) -> Linear:
    """Linear layer with truncated normal weights (.02 unless given) and zero bias."""
    start = starting_values(standard_deviation)
    return Linear(in_features, out_features, **(start if bias else {**start, "bias_attr": False}))


def starting_values(standard_deviation: float) -> dict[str, paddle.ParamAttr]:
    """``weight_attr`` and ``bias_attr`` of a layer with truncated normal weights and zero bias."""
    return {
        "weight_attr": paddle.ParamAttr(initializer=TruncatedNormal(standard_deviation)),
        "bias_attr": paddle.ParamAttr(initializer=nn.initializer.Constant(0.0)),
    }


def normal(deviation: float) -> paddle.ParamAttr:
    """Return an initializer with a normal distribution around 0."""
    return paddle.ParamAttr(initializer=nn.initializer.Normal(0.0, deviation))


def uniform(bound: float) -> paddle.ParamAttr:
    """Return an initializer with a uniform distribution between -bound and bound."""
    return paddle.ParamAttr(initializer=nn.initializer.Uniform(-bound, bound))


def zeros() -> paddle.ParamAttr:
    """Return an initializer with zeros."""
    return paddle.ParamAttr(initializer=nn.initializer.Constant(0.0))


def dense(inputs: int, outputs: int) -> Linear:
    """Build a linear layer with weights and bias uniform up to 1 / sqrt(inputs), PyTorch's default."""
    bound = inputs**-0.5
    return Linear(inputs, outputs, weight_attr=uniform(bound), bias_attr=uniform(bound))


def single_or_double(x: paddle.Tensor) -> paddle.Tensor:
    """Convert to float32 unless it is float64: boxes and losses in 16 bits are off by pixels."""
    return x if x.dtype == paddle.float64 else x.astype("float32")


def are_equal_sides(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Return whether both are the same numbers; in an export of any size they are tensors, whose values are unknown."""
    return all(isinstance(side, int) for side in (*first, *second)) and tuple(first) == tuple(second)


class MatrixProduct(nn.Layer):
    """``x @ y`` of two activations, as a layer so that a hook can count its multiplications."""

    def __init__(self, transpose_x: bool = False, transpose_y: bool = False):
        super().__init__()
        self.transpose_x = transpose_x
        self.transpose_y = transpose_y

    def forward(self, x, y):
        """Multiply the last two axes."""
        return paddle.matmul(x, y, self.transpose_x, self.transpose_y)

    def count_products(self, x: paddle.Tensor, y: paddle.Tensor) -> int:
        """Return the number of products in each number of the output."""
        return int(x.shape[-2 if self.transpose_x else -1])


def drop_path_rates(last_rate: float, depth: int) -> list[float]:
    """Return a rate for each of ``depth`` blocks, linear from 0 in the first to ``last_rate`` in the last."""
    return [last_rate * (1.0 - (depth - 1 - index) / max(depth - 1, 1)) for index in range(depth)]


def rates_of_stages(last_rate: float, depths: tuple[int, ...]) -> list[list[float]]:
    """``drop_path_rates`` over the blocks of all stages, cut into stages."""
    rates = iter(drop_path_rates(last_rate, sum(depths)))
    return [[next(rates) for _ in range(depth)] for depth in depths]


class DropPath(nn.Layer):
    """Drops a residual branch for whole samples while training and scales the others to keep the mean.

    Source: Huang et al., Deep Networks with Stochastic Depth, 2016.
    """

    def __init__(self, rate: float = 0.0):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        """Drop the branch (batch, ...) of random samples, in training."""
        return x * self.factors(x) if self.is_dropping else x

    @property
    def is_dropping(self) -> bool:
        """Return whether samples are dropped: in training, with a rate above 0."""
        return self.training and self.rate != 0.0

    def factors(self, x):
        """Newly drawn, (batch, 1, ...): 0 for a dropped sample, for the others 1 / the share that is kept."""
        keep = 1.0 - self.rate
        shape = [x.shape[0]] + [1] * (x.ndim - 1)
        draws = device_graph.enter_value(lambda _: paddle.rand(shape))
        return (draws < keep).astype(x.dtype) / keep

    def extra_repr(self) -> str:
        """Show the rate."""
        return f"rate={self.rate:g}"


class ChannelDropout(nn.Dropout2D):
    """Drops channels while training. Captured passes draw anew, where Paddle's layer would repeat its draws."""

    def forward(self, x):
        """Drop channels of (batch, channels, rows, columns)."""
        if not self.training or not self.p:
            return x
        shape = [*x.shape[:2], 1, 1]
        draws = device_graph.enter_value(lambda _: paddle.rand(shape))
        return x * ((draws >= self.p).astype(x.dtype) / (1.0 - self.p))


class Mlp(nn.Layer):
    """Two linear layers, whose weights start with ``deviations``, and an exact GELU between them, on the last axis."""

    def __init__(self, dim: int, hidden_dim: int, dropout: float = 0.0, deviations: tuple[float, float] = (0.02, 0.02)):
        super().__init__()
        self.fc1 = linear(dim, hidden_dim, standard_deviation=deviations[0])
        self.act = GELU()
        self.fc2 = linear(hidden_dim, dim, standard_deviation=deviations[1])
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        """Map (..., dim) to the same shape."""
        x = self.dropout(self.act(self.fc1(x)))  # (..., hidden_dim)
        return self.dropout(self.fc2(x))  # (..., dim)


class PatchEmbedding(nn.Layer):
    """Cuts an image into square patches and maps each to a vector.

    Weights start as a truncated normal of variance 1 / fan-in, as in the original JAX models: vectors have about the
    variance of the pixels for every patch size.
    """

    def __init__(self, image_size: ImageSize, patch_size: int, in_channels: int, embed_dim: int, bias: bool = True):
        super().__init__()
        self.image_size = as_pair(image_size)
        self.patch_size = patch_size
        _check_divisible(self.image_size, patch_size)
        self.grid = (self.image_size[0] // patch_size, self.image_size[1] // patch_size)  # patches down, across
        fan_in = in_channels * patch_size * patch_size
        start = {**starting_values(math.sqrt(1.0 / fan_in)), **({} if bias else {"bias_attr": False})}
        self.proj = nn.Conv2D(in_channels, embed_dim, patch_size, stride=patch_size, **start)

    def find_grid(self, image_size: tuple[int, int] | None) -> tuple[int, int] | None:
        """Return the patches down and across images of a size, padded to whole patches; None if that is None."""
        if image_size is None:
            return None
        return -(-image_size[0] // self.patch_size), -(-image_size[1] // self.patch_size)

    def forward(self, x):
        """Map images (batch, channels, height, width) to tokens (batch, patches, dim)."""
        if tuple(x.shape[-2:]) != self.image_size:
            expected_size, actual_size = _times(self.image_size), _times(tuple(x.shape[-2:]))
            raise UserError(
                f"the model was built for images of {expected_size} px, the batch has {actual_size}: build it with "
                "image_size"
            )
        return self.embed(x)

    def embed(self, x):
        """Map images of the right size to tokens (batch, patches, dim)."""
        x = self.proj(x)  # (batch, embed_dim, grid height, grid width)
        return x.flatten(2).transpose([0, 2, 1])


def _check_divisible(image_size: tuple[int, int], patch_size: int) -> None:
    for side in image_size:
        if side % patch_size or side <= 0:
            below = side // patch_size * patch_size
            fitting = f"{below} or {below + patch_size}" if below > 0 else f"{patch_size} or a multiple of it"
            size = _times(image_size)
            raise UserError(
                f"image size {size} does not divide into patches of {patch_size} px: instead of {side} use {fitting}"
            )


def _times(size: tuple[int, int]) -> str:
    return " x ".join(str(side) for side in size)
